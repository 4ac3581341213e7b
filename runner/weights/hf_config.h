/* The config.json of a Hugging Face model as the keys of `model` in an experiment. The file is
 * untrusted. A key that changes the maths is used, or refused by name. */
#ifndef FP8LAB_RUNNER_WEIGHTS_HF_CONFIG_H
#define FP8LAB_RUNNER_WEIGHTS_HF_CONFIG_H

#include <jansson.h>

#include "model/config.h"

enum { HF_CONFIG_MAX = 1 << 20 /* bytes of a config.json */ };

/* *model, owned by the caller, has the keys of `model` (runner/script/KEYS.md) that the file
 * decides; seq_len is its longest sequence. ERR_CONFIG names the key, what was found and what is
 * expected. `path` is for messages. */
NODISCARD enum status hf_config_read(const char *text, size_t n, const char *path, json_t **model,
                                     struct err *e);

/* The model_type that hf_config_write() gives the model. A model without a window is a llama, also
 * if it was read from a mistral. */
const char *hf_config_type(const struct model_config *c);

/* The config.json of a model whose weights have this torch type ("bfloat16"). `base`: the one that
 * the run began with, for the ids of tokens and the longest sequence, or NULL. ERR_CONFIG if no
 * family here has such a model. *out is owned by the caller. */
NODISCARD enum status hf_config_write(const struct model_config *c, const char *dtype,
                                      const json_t *base, json_t **out, struct err *e);

#endif
