/* Where the initial weights of a run came from: data/experiment/init.json. A worker reads the
 * weights that it names. */
#ifndef FP8LAB_RUNNER_RECORD_INIT_RECORD_H
#define FP8LAB_RUNNER_RECORD_INIT_RECORD_H

#include <jansson.h>

#include "model/train.h"

/* The origin of weights, beside their content. */
struct init_origin {
    const char *from; /* as the experiment names it */
    const char *path; /* what a worker opens; absolute */
    const char *run;  /* id of the run that made them; NULL: they are no run's */
    int64_t step;     /* of that run */
    bool optimizer;   /* the optimizer's state of the checkpoint is wanted too */
};

/* Opens the weights at origin->path, compares them with the model, and reads them all. *record,
 * owned by the caller: {from, path, kind, sha256, run, step, files: [{path, bytes,
 * sample_sha256}]}. With the optimizer's state, of a checkpoint that is verified, also optimizer:
 * {sha256, weights_sha256, recipe_sha256, step, updates}; `sha256` above is then of both hashes. */
NODISCARD enum status init_record_make(const struct init_origin *origin,
                                       const struct model_config *model, json_t **record,
                                       struct err *e);

struct init_import {
    const char *run_path;
    const struct model_config *model;
    struct trainer *trainer; /* new */
    bool restart;            /* init.restart (model/checkpoint_adopt.h) */
};

struct init_imported {
    int64_t bytes, us; /* of the files together, and how long the reading took */
};

/* Imports the weights of a run, if it has a record of them, and the optimizer's state; otherwise
 * *out is zero. ERR_CONFIG if a file changed since: its size, or bytes of a sample. */
NODISCARD enum status init_record_import(const struct init_import *q, struct init_imported *out,
                                         struct err *e);

#endif
