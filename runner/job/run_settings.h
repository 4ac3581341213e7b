/* The flags of `run` and `repro`, the same for all rows of a suite. */
#ifndef FP8LAB_RUNNER_JOB_RUN_SETTINGS_H
#define FP8LAB_RUNNER_JOB_RUN_SETTINGS_H

#include <jansson.h>

#include "runner/base/cli.h"
#include "runner/base/signals.h"

struct choice_cache;
struct job_members;
struct slot;
struct start_clock;

struct run_settings {
    const struct cli *cli;
    struct signals *signals; /* opened by the first run; the caller's to close */
    const char *runs;    /* the folder of run directories */
    const char *backend; /* "auto", "cpu", "cuda" */
    int64_t threads;     /* 0: one per processor */
    int64_t ranks;       /* worker processes of a resumed run; 0: hardware.gpus */
    bool fewer_gpus;     /* a retry may leave out the GPU or host that failed */
    struct job_members *members; /* the other runners of the job; NULL: none */
    int64_t hang_s;      /* 0: automatic */
    int64_t stop_grace_s; /* stop_grace.h; 0: no limit */
    int64_t only_steps;  /* a repetition ends after this step, without a checkpoint; 0: never */
    int64_t retries;     /* further attempts after a worker died or hung */
    const char *caps;    /* "sm_121": use only the features of such a device; NULL: all */
    const char *arithmetic; /* of a new run on the cpu backend; NULL: the reference's */
    struct choice_cache *choice_cache; /* choices of earlier runs; NULL: the backend has none */
    const json_t *forbidden; /* ways that the bundle to repeat did not use; NULL: a new run */
    const char *choices; /* a file with a choice table, or "none"; NULL: the run's own */
    const char *data_root; /* relative paths of data start here; NULL: unchanged paths */
    const char *cache;   /* --cache: keeps tokens of text, and choices; NULL: by default */
    bool choose_anew;    /* a choice table of another device is replaced; false: it is an error */
    bool profile;        /* steps without graphs, and ranges if a profiler asks for them */
    bool keep_directory; /* keep the run directory beside the bundle */
    int *claim; /* released once the run has its directory (run/sharing.h); NULL: none */
    struct slot *slot; /* one of several places for rows (run/slot.h); NULL: there is none */
    struct start_clock *start; /* of the command (run/starting.h); NULL: nothing is measured */
    const json_t *facts; /* of this machine; borrowed */
};

#endif
