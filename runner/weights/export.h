/* The weights of a run as a folder that transformers loads. */
#ifndef FP8LAB_RUNNER_WEIGHTS_EXPORT_H
#define FP8LAB_RUNNER_WEIGHTS_EXPORT_H

#include <jansson.h>

#include "model/recipe.h"
#include "runner/weights/tensor_files.h"

/* EXPORT_FP8_BLOCK: E4M3 codes and a factor for each 128 x 128 block (weight_scale_inv), where the
 * recipe trained with such; BF16 elsewhere. */
enum export_type { EXPORT_BF16, EXPORT_F32, EXPORT_FP8_BLOCK };
extern const char *const EXPORT_TYPE_NAMES[]; /* "bf16", "f32", "fp8-block", NULL */

struct export_request {
    const char *checkpoint; /* folder with model.safetensors; state.safetensors if it has masters */
    const char *to;         /* a new folder */
    const struct model_config *model;
    const struct recipe *recipe;
    enum export_type type;
    bool llmc;              /* llm.c's file model.bin instead of a Hugging Face folder */
    const json_t *base;     /* config.json that the run began with, or NULL */
    const json_t *generation; /* its generation_config.json, or NULL: made of config.json */
    const json_t *ends;     /* then: ids of tokens that end a text beside those of config.json */
    int64_t shard_bytes;    /* most bytes of a file; a tensor alone may be larger */
};

struct export_report {
    int64_t tensors, files, bytes;
    bool masters; /* F32 values are the master weights */
};

/* Writes the weights, and for transformers config.json and generation_config.json, to the folder
 * `to`, which must exist.
 * Reads and converts a piece at a time; GPT-2's matrices whole, one at a time. ERR_CONFIG: there is
 * no such family, or no 128 x 128 blocks to export. */
NODISCARD enum status export_write(const struct export_request *q, struct export_report *out,
                                   struct err *e);

#endif
