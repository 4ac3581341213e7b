/* The verbs: one row per cmd_<verb>.c. */
#ifndef FP8LAB_RUNNER_COMMANDS_H
#define FP8LAB_RUNNER_COMMANDS_H

#include "runner/base/cli.h"

/* In the order of the verb table. */
#define FP8LAB_VERBS(X) \
    X(VERB_RUN) \
    X(VERB_CHECK) \
    X(VERB_PLAN) \
    X(VERB_ADVISE) \
    X(VERB_HW) \
    X(VERB_DATA) \
    X(VERB_LIST) \
    X(VERB_SHOW) \
    X(VERB_WATCH) \
    X(VERB_LOG) \
    X(VERB_TAG) \
    X(VERB_HEALTH) \
    X(VERB_EVAL) \
    X(VERB_COMPARE) \
    X(VERB_VERIFY) \
    X(VERB_EXTRACT) \
    X(VERB_EXPORT) \
    X(VERB_GENERATE) \
    X(VERB_REPRO) \
    X(VERB_CLOSE) \
    X(VERB_RM) \
    X(VERB_GC) \
    X(VERB_DOCTOR) \
    X(VERB_BENCH) \
    X(VERB_COMPLETION) \
    X(VERB_HELP) \
    X(VERB_WORKER) \
    X(VERB_PROBE)

#define FP8LAB_DECLARE_VERB(name) extern const struct verb name;
FP8LAB_VERBS(FP8LAB_DECLARE_VERB)

#endif
