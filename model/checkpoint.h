/* Checkpoints: everything that a run needs to resume with equal bits, as safetensors and JSON.
 *
 *   PARENT/step-000100/model.safetensors   weights, canonical names, unpadded
 *                      state.safetensors   master:NAME  m:NAME  v:NAME  (8-bit: m.scale:, v.scale:)
 *                                          fp8.K.history [H,S]  fp8.K.multiplier [S], K the run of
 *                                          delayed slots, in the order of model/slots.h
 *                      checkpoint.json     schema, step, cursor, updates_before (only after
 *                                          checkpoint_adopt.h), what the tensors mean (sizes, seed,
 *                                          recipe, optimizer), size and tree hash of both files
 *                                          (model/ground/sha256.h), the backend's choice
 *                                          table (kernels/choices.h), and "sha256": of this file
 *                                          itself, with 64 zeros in place of these digits
 *
 * All other inputs of a step follow from these. Random draws are keyed by seed and step. FP8
 * weights are quantised again from values and scales. The cursor is the position in the sampling
 * order. A checkpoint is written into a temporary directory, synced and renamed, so it is whole or
 * absent. */
#ifndef FP8LAB_MODEL_CHECKPOINT_H
#define FP8LAB_MODEL_CHECKPOINT_H

#include "model/checkpoint_files.h"
#include "model/train.h"

/* checkpoint_writer.h saves without keeping the steps waiting for the disk.
 *
 * Every rank calls checkpoint_save and checkpoint_load. Each rank writes its own share of the files
 * (model/safetensors.h); rank 0 alone reads them. The bytes do not depend on the number of ranks or
 * on sharding, so any number of ranks can resume. An error on one rank is ERR_PEER on the
 * others. */

/* Saves the state after the step last collected. Replaces a checkpoint of the same step. ERR_STATE
 * after a non-finite value. ERR_IO (disk full included) leaves no partial checkpoint. Creates
 * `parent` if missing. */
NODISCARD enum status checkpoint_save(struct trainer *t, const char *parent,
                                      struct checkpoint_info *info, struct err *e);

/* Verifies, then restores into a fresh trainer. ERR_CONFIG names the first difference that changes
 * the meaning of the tensors: model, recipe, seed, format of the optimizer's state. The caller must
 * keep the rest (batch, learning rate, data) equal. A trainer with forward_only reads weights and
 * scales alone; its seed and, with RoPE, its seq_len may differ. After a partial restore the
 * trainer rejects steps, evaluations and saves (ERR_STATE) until a load succeeds. */
NODISCARD enum status checkpoint_load(struct trainer *t, const char *path,
                                      struct checkpoint_info *info, struct err *e);

#endif
