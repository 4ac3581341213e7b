/* llm.c's file of a GPT-2 (.bin): 256 i32, then all weights in a fixed order, f32 or bf16. */
#ifndef FP8LAB_RUNNER_WEIGHTS_LLMC_FILE_H
#define FP8LAB_RUNNER_WEIGHTS_LLMC_FILE_H

#include "model/import.h"
#include "runner/weights/tensor_files.h"

struct params;

/* *is: the file begins like one of llm.c's models. Then *out has its tensors by our own names
 * (model/params.h), or there is an error: ERR_CONFIG for a Llama or an unknown version, ERR_FORMAT
 * if the size is not that of its header. *out is valid for tensor_files_close() in any case. */
NODISCARD enum status llmc_open(const char *path, struct tensor_files *out, bool *is,
                                struct err *e);

/* Writes a GPT-2 with the values of `source`. ERR_CONFIG: the model is not one that llm.c has. */
NODISCARD enum status llmc_write(const char *path, const struct model_config *model,
                                 const struct params *params, bool f32,
                                 const struct weight_source *source, int64_t *bytes,
                                 struct err *e);

#endif
