/* Multiple choice in llm.c's evaluation files, such as hellaswag_val.bin. Little endian:
 *
 *   256 i32: 20240522, version 1, number of examples, bytes of the longest example
 *   then each example in u16: 65535, bytes of the example (this word included), its number, the
 *   right completion, number of completions; {n, n tokens} of the context, and of each completion
 *
 * Source: https://github.com/karpathy/llm.c, llmc/dataloader.h and dev/data/data_common.py. */
#ifndef FP8LAB_RUNNER_INFER_QUESTIONS_LLMC_H
#define FP8LAB_RUNNER_INFER_QUESTIONS_LLMC_H

#include "runner/infer/questions.h"

/* Reads and checks every example of an untrusted file. ERR_CONFIG names the example, what was found
 * and what is expected: also a token beyond `vocab`, and a row of more than `seq_len` tokens. *out
 * is valid for questions_close() always. */
NODISCARD enum status questions_llmc_open(const char *path, int64_t vocab, int64_t seq_len,
                                          struct questions *out, struct err *e);

#endif
