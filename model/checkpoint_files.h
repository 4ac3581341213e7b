/* The files of a checkpoint on disk: their names, their verification, the directory with several
 * checkpoints. checkpoint.c moves their content to and from a trainer. */
#ifndef FP8LAB_MODEL_CHECKPOINT_FILES_H
#define FP8LAB_MODEL_CHECKPOINT_FILES_H

#include <jansson.h>

#include "kernels/base.h"

enum { CHECKPOINT_PATH_CAP = 4096 };

struct checkpoint_info {
    int64_t step, cursor; /* steps done; sequences drawn by the whole run */
    int64_t updates_before; /* that its moments saw before step 0 (checkpoint_adopt.h) */
    int64_t bytes;        /* of the three files */
    char path[CHECKPOINT_PATH_CAP]; /* the directory */
    char sha256[65];      /* of checkpoint.json, which has the hashes of the other files */
    char damage[512];     /* checkpoint_latest: of the newest that it skipped; "": none */
};

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

/* Reads checkpoint.json, and verifies its own hash and the sizes and hashes of the other files.
 * ERR_FORMAT for damage of any byte, naming the file and the damage. Also reads schemas 1 and 2 (up
 * to 2026-11-22); their checkpoint.json has no hash of its own, so only a checkpoint_log detects
 * its damage. */
NODISCARD enum status checkpoint_verify(const char *path, struct checkpoint_info *info,
                                        struct err *e);

/* Whether one of the three files is not there, or is no regular file. That is damage: a removal was
 * interrupted, or somebody deleted or replaced the file. False if it cannot be known. */
bool checkpoint_lacks_file(const char *path);

/* As checkpoint_verify(). *root must be NULL; it becomes the content of checkpoint.json. The caller
 * releases *root for every status. */
NODISCARD enum status checkpoint_read(const char *path, json_t **root, struct checkpoint_info *info,
                                      struct err *e);

/* The choice table in a checkpoint; "" if its backend chose nothing. The caller frees *text.
 * Loading a checkpoint does not apply the table, because the run may continue on another device. A
 * run that must have the same bits applies it itself. */
NODISCARD enum status checkpoint_choices(const char *path, char **text, struct err *e);

/* A run's record of the checkpoints that it saved. look_up fills sha256 with the recorded hash of
 * the step's checkpoint.json. It leaves "" if there is no record. */
struct checkpoint_log {
    void (*look_up)(void *user, int64_t step, char sha256[65]);
    void *user;
    int64_t recorded; /* the last step that the run has a record of: no later checkpoint serves */
};

/* The newest checkpoint in `parent` that verifies, has the hash that `log` records for its step,
 * and is of a recorded step (log NULL: any). info->step is -1 if there is none. Damaged checkpoints
 * are skipped; info->damage describes the newest of them. An unreadable checkpoint is not damaged:
 * ERR_IO, ERR_MEMORY. */
NODISCARD enum status checkpoint_latest(const char *parent, const struct checkpoint_log *log,
                                        struct checkpoint_info *info, struct err *e);

/* The directory of the checkpoint of a step. ERR_IO: the path is too long. */
NODISCARD enum status checkpoint_path(char out[CHECKPOINT_PATH_CAP], const char *parent,
                                      int64_t step, struct err *e);

/* Removes one checkpoint directory. OK if it is absent. */
NODISCARD enum status checkpoint_remove(const char *path, struct err *e);

#endif
