/* The files of a checkpoint on disk: their names, their verification, the directory with several
 * checkpoints. checkpoint.c moves their content to and from a trainer. */
#ifndef FP8LAB_MODEL_CHECKPOINT_FILES_H
#define FP8LAB_MODEL_CHECKPOINT_FILES_H

#include <jansson.h>

#include "model/checkpoint.h"
#include "model/ground/sha256.h"

#define CHECKPOINT_SCHEMA "fp8lab.checkpoint/3"
#define CHECKPOINT_MODEL "model.safetensors"
#define CHECKPOINT_STATE "state.safetensors"
#define CHECKPOINT_JSON "checkpoint.json"
/* checkpoint.json contains the SHA-256 of its own text; for the hash these digits replace it. */
#define CHECKPOINT_UNSIGNED "0000000000000000000000000000000000000000000000000000000000000000"

/* out = parent/name. ERR_IO: it is too long. */
NODISCARD enum status checkpoint_join(char out[CHECKPOINT_PATH_CAP], const char *parent,
                                      const char *name, struct err *e);

/* Replaces CHECKPOINT_UNSIGNED in the text of a checkpoint.json by the hash of the text. */
NODISCARD enum status checkpoint_sign(char *text, struct err *e);

/* As checkpoint_verify(). *root must be NULL; it becomes the content of checkpoint.json. The caller
 * releases *root for every status. */
NODISCARD enum status checkpoint_read(const char *path, json_t **root, struct checkpoint_info *info,
                                      struct err *e);

#endif
