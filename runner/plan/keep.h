/* What stays of an experiment's checkpoints once a run of it is done, and how many bytes. */
#ifndef FP8LAB_RUNNER_PLAN_KEEP_H
#define FP8LAB_RUNNER_PLAN_KEEP_H

#include <jansson.h>

#include "runner/base/cli.h"
#include "runner/plan/options.h"

struct keep {
    bool asked;      /* the experiment has `checkpoint`; a rehearsal does not count */
    bool init;       /* the one of step 0 stays */
    bool last, best; /* which of the others stay; one checkpoint may be both */
    bool packed;     /* in the bundle (archive = "full"), not beside it */
    int64_t count;   /* of checkpoints at most: a bundle has the newest checkpoint.keep of them */
    int64_t bytes;   /* of one checkpoint, as planned: files have some KB of names beside that */
};

/* Which stay; `bytes` stays 0. smoke: a rehearsal, which keeps none. */
struct keep keep_which(const struct run_options *run, bool smoke);

/* The same of a resolved configuration, with the bytes of a checkpoint. */
NODISCARD enum status keep_plan(const json_t *config, bool smoke, struct keep *out, struct err *e);

/* Says of `count` rows what stays, in a line, or warns that nothing will though checkpoints are
 * asked for. On stdout for verbs that answer what a script would do, else as a message. */
void keep_say(const struct cli *cli, const struct keep *keeps, int64_t count, bool on_stdout);

/* {"init","last","best","bytes","where": "beside", "bundle" or null}; JSON null if the experiment has
 * no `checkpoint`. New reference; NULL: out of memory. */
json_t *keep_json(const struct keep *keep);

#endif
