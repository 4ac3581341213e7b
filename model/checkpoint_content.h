/* What a checkpoint of a trainer holds: shared by its writer and its reader. Private to the files
 * checkpoint*.c. */
#ifndef FP8LAB_MODEL_CHECKPOINT_CONTENT_H
#define FP8LAB_MODEL_CHECKPOINT_CONTENT_H

#include "model/checkpoint_files.h"
#include "model/safetensors.h"
#include "model/trainer.h"

/* Adds the tensors of one file. */
typedef enum status (*checkpoint_lister)(const struct trainer *t, struct safetensors *s,
                                         struct err *e);
NODISCARD enum status checkpoint_list_weights(const struct trainer *t, struct safetensors *s,
                                              struct err *e);
NODISCARD enum status checkpoint_list_state(const struct trainer *t, struct safetensors *s,
                                            struct err *e);

/* The content and path of one file. Fails on all ranks or on none. The caller frees the list. */
NODISCARD enum status checkpoint_begin_file(const struct trainer *t, const char *dir,
                                            const char *name, checkpoint_lister list,
                                            char path[CHECKPOINT_PATH_CAP], struct safetensors *s,
                                            struct err *e);

/* One hash of the recipe: the options of every site. */
NODISCARD enum status checkpoint_recipe_sha256(const struct recipe *r, char hex[65],
                                               struct err *e);
/* The settings that give the tensors their meaning; owned by the caller. NULL: no memory. */
json_t *checkpoint_meaning(const struct trainer *t, const char *recipe);

#endif
