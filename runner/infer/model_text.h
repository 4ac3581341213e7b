/* The tokenizer of an open model: the run's, which its bundle keeps, or that of a folder. */
#ifndef FP8LAB_RUNNER_INFER_MODEL_TEXT_H
#define FP8LAB_RUNNER_INFER_MODEL_TEXT_H

#include "runner/generate/text_model.h"
#include "runner/infer/open_model.h"

/* `tokenizer`: a file, a folder or "bytes", in place of the model's own; or NULL. chat: with the
 * chat template. *out must not move. ERR_CONFIG: the model has none, with what to do. */
NODISCARD enum status model_text_open(const struct open_model *m, const char *tokenizer, bool chat,
                                      struct text_model *out, struct err *e);

#endif
