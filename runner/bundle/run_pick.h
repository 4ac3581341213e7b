/* The forms by which a user names a run of a folder without its id. */
#ifndef FP8LAB_RUNNER_BUNDLE_RUN_PICK_H
#define FP8LAB_RUNNER_BUNDLE_RUN_PICK_H

#include "runner/bundle/run_view.h"

/* For the help of verbs that take a RUN. */
#define RUN_FORMS                                                                  \
    "RUN is a bundle file, a run directory, or the beginning of a run's id.\n"       \
    "Of the runs in --runs: last is the newest, last~2 the one two before it.\n"     \
    "name:GLOB is the newest with that name. best:eval.loss is the finished run with the\n" \
    "best value; so are best:loss, best:tokens_per_s and best:step_time.\n"

/* Whether the text has one of these forms. */
bool run_is_form(const char *text);

struct pick_request {
    const char *text;
    const struct tree *runs; /* their paths, oldest first */
    const char *where;       /* their folder, for messages */
    enum run_counts counts;
};

/* The run that such a text means; *index: in `runs`. ERR_ARG: none is meant, the text is wrong, or
 * the best loss is asked for and candidates differ in their data or vocabulary. Runs that cannot be
 * read count for `last` only; the error of another search says how many those were. */
NODISCARD enum status run_pick(const struct pick_request *q, int64_t *index, struct err *e);

#endif
