/* Multiple choice by the loss of each completion, from llm.c's evaluation files, such as
 * hellaswag_val.bin. Little endian:
 *
 *   256 i32: 20240522, version 1, number of examples, bytes of the longest example
 *   then each example in u16: 65535, bytes of the example (this word included), its number, the
 *   right completion, number of completions; {n, n tokens} of the context, and of each completion
 *
 * Source: https://github.com/karpathy/llm.c, llmc/dataloader.h and dev/data/data_common.py. */
#ifndef FP8LAB_RUNNER_INFER_QUESTIONS_H
#define FP8LAB_RUNNER_INFER_QUESTIONS_H

#include "model/ground/input_file.h"
#include "model/train.h"

enum { COMPLETIONS_MAX = 64 /* completions of an example */ };

struct questions {
    struct input_file file;
    int64_t *at;     /* byte where each example begins; owned */
    int64_t count;   /* examples, at least 1 */
    int64_t longest; /* tokens that the longest row reads: context and completion less one */
    int64_t rows;    /* completions of all examples */
    int64_t tokens;  /* of those */
};

/* Opens and checks every example of an untrusted file. ERR_CONFIG names the example, what was found
 * and what is expected: also a token beyond `vocab`, and a row of more than `seq_len` tokens. *out
 * is valid for questions_close() always. */
NODISCARD enum status questions_open(const char *path, int64_t vocab, int64_t seq_len,
                                   struct questions *out, struct err *e);
void questions_close(struct questions *c);

struct questions_result {
    int64_t examples, right; /* right: the right completion has the lowest mean loss of its tokens;
                              * of equal ones the first counts */
    int64_t tokens;          /* of all completions */
    double loss;             /* nats per token: mean over examples, of the right completions */
};

/* The trainer has sequences of `seq_len` tokens, at least c->longest; `batch` is its micro-batch.
 * Batches are of neighbouring completions; of them, one trainer takes number first, first + stride,
 * and so on, and fills their mean losses in mean [rows]. ERR_NUMERIC names an example whose loss is
 * not finite. */
struct questions_part { int64_t batch, seq_len, first, stride; };
NODISCARD enum status questions_losses(const struct questions *c, struct trainer *trainer,
                                       const struct questions_part *part, double *mean,
                                       struct err *e);
/* The answers by the mean loss of each completion. */
NODISCARD enum status questions_judge(const struct questions *c, const double *mean,
                                      struct questions_result *out, struct err *e);

#endif
