/* The weights that an experiment's `init` names, found and hashed before the run. */
#ifndef FP8LAB_RUNNER_RUN_INIT_FROM_H
#define FP8LAB_RUNNER_RUN_INIT_FROM_H

#include <jansson.h>

#include "runner/base/paths.h"

struct init_request {
    const json_t *config;  /* resolved */
    const char *instead;   /* a path to read instead of init.from; NULL: none */
    const char *data_root; /* prefix of the path, or NULL */
    const char *runs;      /* where runs are looked up */
    const char *which;     /* of a run's checkpoints: "last", "best", "init" or a step; NULL: the
                            * newest */
    const char *cache;     /* folder for weights that only a bundle has; made if it is needed. NULL:
                            * such weights are an error */
    json_t *known;         /* the record of equal weights for an equal model; NULL: none */
};

struct found_weights {
    char path[PATH_CAP]; /* a Hugging Face folder, a file of tensors, or a checkpoint's folder */
    char run[160];       /* id of the run that made it; "" */
    char of[PATH_CAP];   /* that run's bundle or directory; "" */
    int64_t step;
};

/* The weights that `from` names: a run by its id, its bundle or its directory; a Hugging Face
 * folder, a checkpoint's folder or one with several, a file. Does not read config and instead.
 * ERR_CONFIG, ERR_ARG: there are none. */
NODISCARD enum status weights_find(const struct init_request *q, const char *from,
                                   struct found_weights *out, struct err *e);

/* The weights that the run at `path` (its bundle or directory) kept and q->which names: beside it,
 * or unpacked into q->cache. Other members of q are not read. ERR_CONFIG: it kept none, or not
 * these, and which ones it kept. */
NODISCARD enum status weights_of_run(const struct init_request *q, const char *path,
                                     struct found_weights *out, struct err *e);

/* Whether the tensors that `init` names are the model's, by their names and shapes alone; of a run,
 * those of its configuration. runs: the folder that is searched for its id; data_root: prefix of
 * the path, or NULL. ERR_IO: nothing has this path or id. ERR_CONFIG, ERR_FORMAT: what run would
 * refuse. */
NODISCARD enum status init_look(const json_t *config, const char *data_root, const char *runs,
                                struct err *e);

/* *record, owned by the caller, is that of record/init_record.h; NULL if the experiment has no
 * `init`. ERR_CONFIG: there are no such weights, or they are not the model's. */
NODISCARD enum status init_take(const struct init_request *q, json_t **record, struct err *e);

#endif
