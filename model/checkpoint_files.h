/* The files of a checkpoint as they lie on the disk: their names, how they are verified, the
 * directory in which several stand. What is in them, and how it reaches a trainer: checkpoint.c. */
#ifndef FP8LAB_MODEL_CHECKPOINT_FILES_H
#define FP8LAB_MODEL_CHECKPOINT_FILES_H

#include <jansson.h>

#include "model/checkpoint.h"
#include "model/sha256.h"

#define CHECKPOINT_SCHEMA "fp8lab.checkpoint/3"
#define CHECKPOINT_MODEL "model.safetensors"
#define CHECKPOINT_STATE "state.safetensors"
#define CHECKPOINT_JSON "checkpoint.json"
/* checkpoint.json's own SHA-256 stands in it, and is of the text with these digits in its place. */
#define CHECKPOINT_UNSIGNED "0000000000000000000000000000000000000000000000000000000000000000"

/* out = parent/name. ERR_IO: it is too long. */
NODISCARD enum status checkpoint_join(char out[CHECKPOINT_PATH_CAP], const char *parent,
                                      const char *name, struct err *e);

/* Puts its own hash into the text of a checkpoint.json, in which CHECKPOINT_UNSIGNED stands. */
NODISCARD enum status checkpoint_sign(char *text, struct err *e);

/* As checkpoint_verify(); *root, which must be NULL, becomes the content of checkpoint.json, and is
 * the caller's whatever the status. */
NODISCARD enum status checkpoint_read(const char *path, json_t **root, struct checkpoint_info *info,
                                      struct err *e);

#endif
