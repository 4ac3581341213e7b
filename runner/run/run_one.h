/* One run from its resolved configuration to its bundle: directory, provenance, attempts, end. */
#ifndef FP8LAB_RUNNER_RUN_RUN_ONE_H
#define FP8LAB_RUNNER_RUN_RUN_ONE_H

#include "runner/cache/cache.h"
#include "runner/job/run_settings.h"
#include "runner/record/inputs.h"
#include "runner/record/run_dir.h"
#include "runner/script/resolve.h"

/* The start of a run that continues another run's checkpoint (--extend). Borrowed. The files are
 * moved into the new run's directory, so `path` must be on the same file system. */
struct run_beginning {
    char path[PATH_CAP];    /* data/metrics/ and data/checkpoints/ as in a run's directory */
    int64_t step;           /* of the checkpoint */
    char checkpoint[SHA256_HEX]; /* its hash: an input of the run */
    json_t *extends;        /* for run.json: the run extended, the step, its learning rates */
    const json_t *attempts; /* of the run extended */
    int64_t rates_part;     /* the first step at which the new schedule has another learning rate;
                             * 0: none */
    int64_t rate_step;      /* the last such step, and the old and new rate at that step: */
    double rate_then, rate_now;
};

/* What to run. All borrowed. */
struct run_request {
    const struct resolution *resolution; /* for the files and whether it is a smoke run */
    const struct resolved_run *run;
    const struct inputs *inputs;
    const json_t *data_files; /* as inputs_hash() lists them */
    const struct cache_entry *tokens; /* of text with a tokenizer; NULL: other data */
    const json_t *init;       /* of the initial weights (run/init_from.h); NULL: random ones */
    const json_t *overrides;  /* the texts of --set */
    const json_t *mismatch; /* of the hardware query, with --anywhere; or NULL */
    const char *kept; /* data/experiment of the run that this one repeats; NULL: none */
    const char *parent; /* identity of the bundle that this run reproduces or extends, or NULL */
    const struct run_beginning *beginning; /* NULL: from step 0 */
    const json_t *rows; /* of its suite, for suite.json; NULL: an experiment alone */
};

struct run_outcome {
    char id[160], name[96], status[16]; /* as in run.json */
    char bundle[PATH_CAP];    /* the bundle, or the directory where none could be written */
    char checkpoints[PATH_CAP]; /* the folder beside the bundle; "": none was kept there */
    int exit_code;
    bool resumable;           /* did not come to its end, and has a checkpoint to resume from */
    bool fails_again;         /* run_fails_again(), run_status.h */
};

/* Runs it. A failure of the run itself is an outcome, and is reported to the user. An error is
 * returned only where the run could not start or its record could not be written. */
NODISCARD enum status run_one(const struct run_settings *settings,
                              const struct run_request *request, struct run_outcome *out,
                              struct err *e);

/* Changes `path`, a run directory or a bundle, to the directory of the run to resume. A bundle is
 * unpacked beside itself. ERR_ARG as run_may_go_on(). */
NODISCARD enum status run_directory(const struct cli *cli, char path[PATH_CAP], struct err *e);

/* Resumes an interrupted run in its directory, from the newest intact checkpoint. rows: as in
 * struct run_request. */
NODISCARD enum status run_resume(const struct run_settings *settings, const char *path,
                                 const json_t *rows, struct run_outcome *out, struct err *e);

#endif
