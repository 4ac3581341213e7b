/* One run from its resolved configuration to its bundle: directory, provenance, attempts, end. */
#ifndef FP8LAB_RUNNER_RUN_ONE_H
#define FP8LAB_RUNNER_RUN_ONE_H

#include "runner/cli.h"
#include "runner/inputs.h"
#include "runner/resolve.h"
#include "runner/run_dir.h"
#include "runner/signals.h"

/* How to run: the command's flags, alike for all rows of a suite. */
struct crew;

struct run_settings {
    const struct cli *cli;
    struct signals *signals; /* opened by the first run; the caller's to close */
    const char *runs;    /* the folder of run directories */
    const char *backend; /* "auto", "cpu", "cuda" */
    int64_t threads;     /* 0: one per processor */
    int64_t ranks;       /* worker processes, for a run that goes on; 0: hardware.gpus */
    bool fewer_gpus;     /* a retry may leave out the GPU or host that failed */
    struct crew *crew;   /* the other runners of the job; NULL: there are none */
    int64_t hang_s;      /* 0: automatic */
    int64_t stop_grace_s; /* stop_grace.h; 0: nobody kills us */
    int64_t retries;     /* further attempts after a worker that died or hung */
    const char *caps;    /* "sm_121": use only what such a device has; NULL: all there is */
    const char *choices; /* a file with a choice table, or "none"; NULL: the run's own */
    const char *data_root; /* paths of data count from here; NULL: from where they stand */
    bool choose_anew;    /* where the table does not fit this device; otherwise that is an error */
    bool keep_directory; /* beside the bundle */
    int *claim;          /* dropped once the run has its directory (sharing.h); NULL: there is none */
    const json_t *facts; /* of this machine; borrowed */
};

/* What to run. All borrowed. */
struct run_request {
    const struct resolution *resolution; /* for the files and whether it is a smoke run */
    const struct resolved_run *run;
    const struct inputs *inputs;
    const json_t *data_files; /* as inputs_hash() lists them */
    const json_t *overrides;  /* the texts of --set */
    const json_t *mismatch; /* of the hardware query, with --anywhere; or NULL */
    const char *parent;     /* identity of the bundle that this run reproduces, or NULL */
};

struct run_outcome {
    char id[160], name[96], status[16]; /* as in run.json */
    char bundle[PATH_CAP];    /* the bundle, or the directory where none could be written */
    int exit_code;
    bool resumable;           /* not done, and a checkpoint is there to go on from */
};

/* Runs it. Whatever happens to the run is an outcome, and told to the user; an error is only what
 * kept it from being started or its record from being written. */
NODISCARD enum status run_one(const struct run_settings *settings,
                              const struct run_request *request, struct run_outcome *out,
                              struct err *e);

/* Goes on with an interrupted run in its directory, from its newest whole checkpoint. */
NODISCARD enum status run_resume(const struct run_settings *settings, const char *path,
                                 struct run_outcome *out, struct err *e);

#endif
