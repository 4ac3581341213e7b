/* Checkpoints: everything a run needs to go on bit for bit, as safetensors with JSON beside
 * them.
 *
 *   PARENT/step-000100/model.safetensors   weights, canonical names, unpadded
 *                      state.safetensors   master:NAME  m:NAME  v:NAME  (8-bit: m.scale:, v.scale:)
 *                                          fp8.K.history [H,S]  fp8.K.multiplier [S], K the run of
 *                                          delayed slots, in the order of model/slots.h
 *                      checkpoint.json     schema, step, cursor, what the tensors mean (sizes,
 *                                          seed, recipe, optimizer), size and tree hash of both
 *                                          files (model/sha256.h), the backend's choice table
 *                                          (kernels/choices.h), and "sha256": of this file itself,
 *                                          with 64 zeros in place of these digits
 *
 * What else a step reads follows from these: draws are keyed by seed and step, FP8 weights are
 * quantised again from values and scales, the data cursor is the position in the sampling order.
 * Written into a temporary directory beside it, synced, then renamed: a checkpoint is whole or
 * absent. */
#ifndef FP8LAB_MODEL_CHECKPOINT_H
#define FP8LAB_MODEL_CHECKPOINT_H

#include "model/train.h"

enum { CHECKPOINT_PATH_CAP = 4096 };

struct checkpoint_info {
    int64_t step, cursor; /* steps done; sequences drawn by the whole run */
    int64_t bytes;        /* of the three files */
    char path[CHECKPOINT_PATH_CAP]; /* the directory */
    char sha256[65];      /* of checkpoint.json, which holds the hashes of the others */
    char damage[512];     /* checkpoint_latest: of the newest that it passed over; "" none */
};

/* With several ranks all of them call checkpoint_save and checkpoint_load. Each writes its own
 * share of the files (model/safetensors.h), rank 0 alone reads them, and a checkpoint is the same
 * to the byte whatever the number of ranks and the sharding: any number of ranks can go on from
 * it. What fails on one rank fails on all: the others get ERR_PEER. */

/* Saves after the last step. Replaces a checkpoint of the same step. ERR_STATE when a non-finite
 * value was seen; ERR_IO (disk full included) leaves no partial checkpoint. `parent` is created
 * if missing. */
NODISCARD enum status checkpoint_save(struct trainer *t, const char *parent,
                                      struct checkpoint_info *info, struct err *e);

/* Reads checkpoint.json and verifies its own hash, and sizes and hashes of the others. ERR_FORMAT
 * for damage of any byte, naming file and what. Schemas 1 and 2 (up to 2026-11-22) are read too;
 * their checkpoint.json has no hash of its own, so that only a checkpoint_log tells its damage. */
NODISCARD enum status checkpoint_verify(const char *path, struct checkpoint_info *info,
                                        struct err *e);

/* Verifies, then restores into a fresh trainer. ERR_CONFIG names the first difference that
 * would give the tensors another meaning: model, recipe, seed, how the optimizer's state is
 * stored. What else a run goes on with (batch, learning rate, data) is for the caller to keep
 * the same. A trainer restored in part refuses to step, evaluate or be saved (ERR_STATE)
 * until a load succeeds. */
NODISCARD enum status checkpoint_load(struct trainer *t, const char *path,
                                      struct checkpoint_info *info, struct err *e);

/* The choice table that a checkpoint carries, "" if its backend chose nothing; *text is the
 * caller's: free(). Loading a checkpoint does not apply it, since a run has a table of its own and
 * a checkpoint may go on elsewhere: it is for the run that is to have the same bits from here. */
NODISCARD enum status checkpoint_choices(const char *path, char **text, struct err *e);

/* What a run noted of the checkpoints that it saved. look_up fills sha256 with that of the step's
 * checkpoint.json, or leaves it "" where nothing was noted. */
struct checkpoint_log {
    void (*look_up)(void *user, int64_t step, char sha256[65]);
    void *user;
};

/* The newest checkpoint in `parent` that verifies and is the one that `log` (NULL: there is none)
 * has for its step; info->step -1 if there is none. Others are passed over, and info->damage says
 * what is wrong with the newest of them. One that cannot be read is no damaged one: ERR_IO,
 * ERR_MEMORY. */
NODISCARD enum status checkpoint_latest(const char *parent, const struct checkpoint_log *log,
                                        struct checkpoint_info *info, struct err *e);

/* Where the checkpoint of a step is. ERR_IO: the path is too long. */
NODISCARD enum status checkpoint_path(char out[CHECKPOINT_PATH_CAP], const char *parent,
                                      int64_t step, struct err *e);

/* Removes one checkpoint directory; removing what is absent is fine. */
NODISCARD enum status checkpoint_remove(const char *path, struct err *e);

#endif
