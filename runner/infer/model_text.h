/* The tokenizer of an open model: the run's, which its bundle keeps or which made its token shards,
 * or that of a folder. */
#ifndef FP8LAB_RUNNER_INFER_MODEL_TEXT_H
#define FP8LAB_RUNNER_INFER_MODEL_TEXT_H

#include "runner/generate/text_model.h"
#include "runner/ingest/tokenizer_content.h"
#include "runner/infer/open_model.h"

/* `tokenizer`: a file, a folder or "bytes", in place of the model's own; or NULL. chat: with the
 * chat template. *out must not move. ERR_CONFIG: the model has none, with what to do; or it has
 * fewer tokens than `tokenizer`. A run on
 * token shards has the one that made them, if its file and the shards have the same bytes as then;
 * `note` then says where it was found, else it is "". */
enum { MODEL_TEXT_NOTE = 512 };
NODISCARD enum status model_text_open(const struct open_model *m, const char *tokenizer, bool chat,
                                      struct text_model *out, char note[MODEL_TEXT_NOTE],
                                      struct err *e);

/* A warning if the tokenizer of this hash, which the user named, is not the model's own; "": it is,
 * or that one is not known. */
void model_text_compare(const struct open_model *m, const char *name,
                        const struct tokenizer_hash *hash,
                        char warning[MODEL_TEXT_NOTE]);

/* The tokens that end a text: the tokenizer's own, and those that the generation_config.json or the
 * config.json of a folder names. *count is at most STOPS_MAX. ERR_CONFIG for such a file that is
 * no JSON. */
enum { STOPS_MAX = 16 };
NODISCARD enum status model_text_stops(const struct open_model *m, const struct text_model *text,
                                       int32_t out[STOPS_MAX], int64_t *count, struct err *e);

#endif
