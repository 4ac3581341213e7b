/* The certificates of a run, before its first worker starts: from the cache, or made now by a child
 * process. They go to data/certificates.json. A way that fails is not used: the workers get its
 * name, and another way computes. */
#ifndef FP8LAB_RUNNER_CERTIFY_CERTIFY_RUN_H
#define FP8LAB_RUNNER_CERTIFY_CERTIFY_RUN_H

#include "kernels/base.h"

struct choice_cache;
struct cli;
struct json_t;
struct run_dir;

enum { CERTIFY_DEVICES_MAX = 64 };

struct certify_options {
    const struct cli *cli;
    const char *backend, *caps;    /* as run_settings has them; "cpu" needs no certificates */
    const char *cache, *runs;      /* folder of the cache, NULL: by default; folder of the runs */
    const struct json_t *facts, *resolved;
    int64_t ranks;
    int64_t device[CERTIFY_DEVICES_MAX], devices; /* of the ranks on this host, rank 0's first */
    const struct json_t *hosts;    /* of the job: [{host, facts}], this one first; NULL: alone */
    /* The ways that the bundle of a run to repeat did not use, as run.json has them; NULL: a new
     * run. A resumed run has them in its own run.json. */
    const struct json_t *then;
    bool resumed;
    const char *table;            /* the run's own choices: a file or a checkpoint; NULL: none */
    bool (*asked_to_stop)(const void *context); /* called twice a second */
    const void *context;
    struct choice_cache *choices; /* offered to the child; gets what it timed. NULL: neither */
};

/* Adds "forbidden" to run.json: an array of "gemm e4m3 row x e4m3 row", "attention cudnn"; and
 * "certificates": how many passed, failed, are absent, and the ways that are not_certified.
 * ERR_HARDWARE: a way without another one failed; or of a run that is resumed or repeated, other
 * ways failed than then. ERR_INTERRUPTED: it was asked to stop; the child is gone. A run that goes
 * on with ways that could not be tried says so, on screen and in its log. Without a plugin nothing
 * is certified: the worker says what is missing. */
NODISCARD enum status certify_run(const struct certify_options *o, struct run_dir *dir,
                                  struct err *e);

#endif
