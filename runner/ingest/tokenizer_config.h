/* tokenizer_config.json of Hugging Face, which lies beside a tokenizer.json: special tokens by
 * name, and often the chat template. */
#ifndef FP8LAB_RUNNER_INGEST_TOKENIZER_CONFIG_H
#define FP8LAB_RUNNER_INGEST_TOKENIZER_CONFIG_H

#include <jansson.h>

#include "kernels/base.h"

#define TOKENIZER_CONFIG "tokenizer_config.json"

/* *out, owned by the caller, is an object. ERR_FORMAT with the line; the errors of file_read. */
NODISCARD enum status tokenizer_config_read(const char *path, json_t **out, struct err *e);

/* Whether the file, which need not be there, has a chat template. */
bool tokenizer_config_has_template(const char *path);

#endif
