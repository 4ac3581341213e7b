/* One run from its resolved configuration to its bundle: directory, provenance, attempts, end. */
#ifndef FP8LAB_RUNNER_RUN_RUN_ONE_H
#define FP8LAB_RUNNER_RUN_RUN_ONE_H

#include "runner/job/run_settings.h"
#include "runner/record/inputs.h"
#include "runner/record/run_dir.h"
#include "runner/script/resolve.h"

/* What a run begins with that goes on from another one's checkpoint. Borrowed, and its files are
 * moved into the new run's directory, so `path` must be on the same file system. */
struct run_beginning {
    char path[PATH_CAP];    /* data/metrics/ and data/checkpoints/ as in a run's directory */
    int64_t step;           /* of the checkpoint */
    char checkpoint[SHA256_HEX]; /* its hash: an input of the run */
    json_t *extends;        /* of run.json: the run extended, the step, what its rates were */
    const json_t *attempts; /* of the run extended */
    int64_t rates_part;     /* the first step whose learning rate the schedule here does not have;
                             * 0: none. The last one so, with both rates: */
    int64_t rate_step;
    double rate_then, rate_now;
};

/* What to run. All borrowed. */
struct run_request {
    const struct resolution *resolution; /* for the files and whether it is a smoke run */
    const struct resolved_run *run;
    const struct inputs *inputs;
    const json_t *data_files; /* as inputs_hash() lists them */
    const json_t *overrides;  /* the texts of --set */
    const json_t *mismatch; /* of the hardware query, with --anywhere; or NULL */
    const char *parent; /* identity of the bundle that this run reproduces or extends, or NULL */
    const struct run_beginning *beginning; /* NULL: from step 0 */
};

struct run_outcome {
    char id[160], name[96], status[16]; /* as in run.json */
    char bundle[PATH_CAP];    /* the bundle, or the directory where none could be written */
    char checkpoints[PATH_CAP]; /* the folder beside the bundle that holds some; "": none does */
    int exit_code;
    bool resumable;           /* not ended by itself, and a checkpoint is there to go on from */
    bool fails_again;         /* run_fails_again(), sharing.h */
};

/* Runs it. Whatever happens to the run is an outcome, and told to the user; an error is only what
 * kept it from being started or its record from being written. */
NODISCARD enum status run_one(const struct run_settings *settings,
                              const struct run_request *request, struct run_outcome *out,
                              struct err *e);

/* ERR_ARG where the run of this record came to its end: done, or its time limit used up. */
NODISCARD enum status run_may_go_on(const json_t *run, struct err *e);

/* `path`, of a directory or a bundle, becomes the directory of the run to go on with: a bundle is
 * unpacked beside itself. ERR_ARG as run_may_go_on() says. */
NODISCARD enum status run_directory(const struct cli *cli, char path[PATH_CAP], struct err *e);

/* Goes on with an interrupted run in its directory, from its newest whole checkpoint. */
NODISCARD enum status run_resume(const struct run_settings *settings, const char *path,
                                 struct run_outcome *out, struct err *e);

#endif
