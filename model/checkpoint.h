/* Checkpoints: everything that a run needs to resume with equal bits, as safetensors and JSON.
 *
 *   PARENT/step-000100/model.safetensors   weights, canonical names, unpadded
 *                      state.safetensors   master:NAME  m:NAME  v:NAME  (8-bit: m.scale:, v.scale:)
 *                                          fp8.K.history [H,S]  fp8.K.multiplier [S], K the run of
 *                                          delayed slots, in the order of model/slots.h
 *                      checkpoint.json     schema, step, cursor, what the tensors mean (sizes,
 *                                          seed, recipe, optimizer), size and tree hash of both
 *                                          files (model/ground/sha256.h), the backend's choice
 *                                          table (kernels/choices.h), and "sha256": of this file
 *                                          itself, with 64 zeros in place of these digits
 *
 * All other inputs of a step follow from these. Random draws are keyed by seed and step. FP8
 * weights are quantised again from values and scales. The cursor is the position in the sampling
 * order. A checkpoint is written into a temporary directory, synced and renamed, so it is whole or
 * absent. */
#ifndef FP8LAB_MODEL_CHECKPOINT_H
#define FP8LAB_MODEL_CHECKPOINT_H

#include "model/train.h"

enum { CHECKPOINT_PATH_CAP = 4096 };

struct checkpoint_info {
    int64_t step, cursor; /* steps done; sequences drawn by the whole run */
    int64_t bytes;        /* of the three files */
    char path[CHECKPOINT_PATH_CAP]; /* the directory */
    char sha256[65];      /* of checkpoint.json, which has the hashes of the other files */
    char damage[512];     /* checkpoint_latest: of the newest that it skipped; "": none */
};

/* Every rank calls checkpoint_save and checkpoint_load. Each rank writes its own share of the files
 * (model/safetensors.h); rank 0 alone reads them. The bytes do not depend on the number of ranks or
 * on sharding, so any number of ranks can resume. An error on one rank is ERR_PEER on the
 * others. */

/* Saves the state after the step last collected. Replaces a checkpoint of the same step. ERR_STATE
 * after a non-finite value. ERR_IO (disk full included) leaves no partial checkpoint. Creates
 * `parent` if missing. */
NODISCARD enum status checkpoint_save(struct trainer *t, const char *parent,
                                      struct checkpoint_info *info, struct err *e);

/* Reads checkpoint.json, and verifies its own hash and the sizes and hashes of the other files.
 * ERR_FORMAT for damage of any byte, naming the file and the damage. Also reads schemas 1 and 2 (up
 * to 2026-11-22); their checkpoint.json has no hash of its own, so only a checkpoint_log detects
 * its damage. */
NODISCARD enum status checkpoint_verify(const char *path, struct checkpoint_info *info,
                                        struct err *e);

/* Verifies, then restores into a fresh trainer. ERR_CONFIG names the first difference that changes
 * the meaning of the tensors: model, recipe, seed, format of the optimizer's state. The caller must
 * keep the rest (batch, learning rate, data) equal. After a partial restore the trainer rejects
 * steps, evaluations and saves (ERR_STATE) until a load succeeds. */
NODISCARD enum status checkpoint_load(struct trainer *t, const char *path,
                                      struct checkpoint_info *info, struct err *e);

/* The choice table in a checkpoint; "" if its backend chose nothing. The caller frees *text.
 * Loading a checkpoint does not apply the table, because the run may continue on another device. A
 * run that must have the same bits applies it itself. */
NODISCARD enum status checkpoint_choices(const char *path, char **text, struct err *e);

/* A run's record of the checkpoints that it saved. look_up fills sha256 with the recorded hash of
 * the step's checkpoint.json, or leaves it "" if there is no record. */
struct checkpoint_log {
    void (*look_up)(void *user, int64_t step, char sha256[65]);
    void *user;
};

/* The newest checkpoint in `parent` that verifies and has the hash that `log` has for its step (log
 * NULL: no record). info->step is -1 if there is none. Damaged checkpoints are skipped;
 * info->damage describes the newest of them. An unreadable checkpoint is not damaged: ERR_IO,
 * ERR_MEMORY. */
NODISCARD enum status checkpoint_latest(const char *parent, const struct checkpoint_log *log,
                                        struct checkpoint_info *info, struct err *e);

/* The directory of the checkpoint of a step. ERR_IO: the path is too long. */
NODISCARD enum status checkpoint_path(char out[CHECKPOINT_PATH_CAP], const char *parent,
                                      int64_t step, struct err *e);

/* Removes one checkpoint directory. OK if it is absent. */
NODISCARD enum status checkpoint_remove(const char *path, struct err *e);

#endif
