/* The choices of an attempt (kernels/choices.h): those of earlier runs are offered to its worker.
 * Those that it timed are kept for later runs, unless its GPU was disturbed. */
#ifndef FP8LAB_RUNNER_RUN_TUNING_H
#define FP8LAB_RUNNER_RUN_TUNING_H

#include "model/ground/sha256.h"
#include "runner/hardware/gpu_watch.h"
#include "runner/job/rank_layout.h"
#include "runner/job/run_settings.h"
#include "runner/record/choice_cache.h"
#include "runner/record/run_dir.h"

struct telemetry;

struct tuning {
    const struct run_settings *settings;
    struct run_dir *dir;
    struct gpu_watch watch; /* of rank 0's GPU, while it timed */
    char architecture[32]; /* "" until rank 0 has reported its device */
    char table[SHA256_HEX]; /* of the first rank that reported its choices */
    int64_t table_rank, tables; /* which that was; how many ranks reported the same */
    int64_t steps;         /* records of steps; the worker times in the first step */
    char said[CHOICE_PROBLEM_CAP]; /* what the user should know; "": nothing */
};

/* Opens `cache` and uses it in `s`, unless s->backend makes no choices. It is in s->cache. Without
 * that it is where choice_cache_open says, and in our image beside the runs. With s->choices "none"
 * it serves each run with what its own certificates timed, and keeps nothing. */
NODISCARD enum status tuning_settings(struct run_settings *s, struct choice_cache *cache,
                                      struct err *e);

/* Before the workers start: offers the kept choices. */
NODISCARD enum status tuning_begin(struct tuning *t, const struct run_settings *settings,
                                   struct run_dir *dir, const struct rank_layout *layout,
                                   struct err *e);
/* At each tick, and after each event of rank 0. telemetry may be NULL. */
void tuning_tick(struct tuning *t, const struct telemetry *telemetry);
NODISCARD enum status tuning_event(struct tuning *t, const struct telemetry *telemetry,
                                   const json_t *event, struct err *e);
/* Takes a rank's "table". ERR_STATE, with both ranks: it has other choices than one before. */
NODISCARD enum status tuning_table(struct tuning *t, int64_t rank, const json_t *event,
                                   struct err *e);
/* After the workers have ended. */
NODISCARD enum status tuning_end(struct tuning *t, struct err *e);

#endif
