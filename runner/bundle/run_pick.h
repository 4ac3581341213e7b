/* The forms by which a user names a run of a folder without its id. */
#ifndef FP8LAB_RUNNER_BUNDLE_RUN_PICK_H
#define FP8LAB_RUNNER_BUNDLE_RUN_PICK_H

#include "runner/base/run_files.h"

/* For the help of verbs that take a RUN. */
#define RUN_FORMS                                                                  \
    "RUN is a bundle file, a run directory, or the beginning of a run's id.\n"       \
    "Of the runs in --runs: last is the newest, last~2 the one two before it.\n"     \
    "name:GLOB is the newest called so. best:eval.loss is the finished run with the\n" \
    "best value; so are best:loss, best:tokens_per_s and best:step_time.\n"

/* Whether the text has one of these forms. */
bool run_is_form(const char *text);

/* The run that such a text means, among the paths of `runs`, oldest first. `where` is their folder,
 * for messages. *index: in `runs`. ERR_ARG: none is meant, or the text is wrong. Runs that cannot
 * be read do not count; the error of a search says how many those were. */
NODISCARD enum status run_pick(const char *text, const struct tree *runs, const char *where,
                               int64_t *index, struct err *e);

#endif
