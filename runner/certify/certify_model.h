/* The certificates of a model that is opened to evaluate, to generate or to be timed: of the cache
 * that runs use, or made now. */
#ifndef FP8LAB_RUNNER_CERTIFY_CERTIFY_MODEL_H
#define FP8LAB_RUNNER_CERTIFY_CERTIFY_MODEL_H

#include "kernels/base.h"

struct cli;
struct json_t;
struct ways;

struct certify_model {
    const struct cli *cli;
    const char *backend;       /* as backend_open takes it; a CPU needs no certificates */
    const char *cache, *runs;  /* as certify_cache_of_run has them */
    const struct json_t *facts; /* with the library versions that a probe found */
    int64_t device;
    const struct ways *ways;   /* NULL: makes none, and takes whatever the cache forbids */
    const struct json_t *then; /* names that the model's own run did not use; NULL: none */
};

/* *forbidden: what this device must not use, for forbidden_apply(); "" for nothing; the caller
 * frees it. Tells the user what is not used and what could not be tried. ERR_HARDWARE: a way failed
 * that has no other. */
NODISCARD enum status certify_model(const struct certify_model *o, char **forbidden,
                                    struct err *e);

#endif
