/* Weights that a run begins with: a Hugging Face folder, a checkpoint of ours, llm.c's .bin. They
 * are compared with the model before anything runs, hashed, and read a piece at a time. */
#ifndef FP8LAB_RUNNER_WEIGHTS_WEIGHTS_H
#define FP8LAB_RUNNER_WEIGHTS_WEIGHTS_H

#include "model/import.h"
#include "runner/weights/hf_names.h"
#include "runner/weights/tensor_files.h"

enum weights_kind { WEIGHTS_HF, WEIGHTS_CHECKPOINT, WEIGHTS_LLMC };
extern const char *const WEIGHTS_KIND_NAMES[]; /* "hf", "checkpoint", "llmc" */

struct weights {
    enum weights_kind kind;
    struct model_config model;
    struct tensor_files files;
    /* Of each part of the parameter that is read: a transposed tensor as it is in its file, or the
     * factors of an E4M3 tensor, one for each 128 x 128 block. */
    float *beside[WEIGHT_PARTS_MAX]; /* owned, or NULL */
};

/* Opens the weights at `path` for the model. ERR_CONFIG names the first tensor that is missing, of
 * another shape or type, or that the model lacks, or the head of a tied model if it differs from
 * the embedding. *out is valid for weights_close() always. */
NODISCARD enum status weights_open(const char *path, const struct model_config *model,
                                   struct weights *out, struct err *e);
void weights_close(struct weights *w);

/* SHA-256 over name, type, shape and bytes of all tensors, by name: the same for one file and for
 * shards. Reads everything. */
NODISCARD enum status weights_hash(struct weights *w, char hex[SHA256_HEX], struct err *e);

/* The source for trainer_import(); borrows *w. */
struct weight_source weights_source(struct weights *w);

#endif
