/* Questions with several completions, of which one is right, and the loss of each completion.
 * questions_llmc.h and questions_json.h read them from files. */
#ifndef FP8LAB_RUNNER_INFER_QUESTIONS_H
#define FP8LAB_RUNNER_INFER_QUESTIONS_H

#include "model/ground/sha256.h"
#include "model/train.h"

enum { COMPLETIONS_MAX = 64 /* completions of a question */ };

/* Tokens are token[first .. first + tokens - 1] of struct questions. */
struct completion {
    int64_t keep;   /* tokens of the question's context that stand before it, at least 1 */
    int64_t first, tokens; /* at least 1 */
    int64_t bytes;  /* of its text; 0: not known */
};

struct question {
    int64_t number;     /* in the file: of the line, or of the example */
    int64_t first;      /* of its context's tokens */
    int64_t row;        /* its first completion */
    int64_t completions, right; /* at least 2; the right one from 0 */
};

struct questions {
    char *path;               /* owned */
    char sha256[SHA256_HEX];  /* of the file */
    const char *unit;         /* what `number` counts: "line" or "example"; static */
    bool has_bytes;           /* of every completion */
    struct question *question;
    int64_t count;            /* at least 1 after a reader's OK */
    struct completion *row;   /* the completions of all questions */
    int64_t rows;
    int32_t *token;
    int64_t token_count;
    int64_t longest; /* tokens that the longest row reads: context and completion less one */
    int64_t tokens;  /* of all completions */
    struct { int64_t questions, rows, tokens; } room;
};

/* For readers. A question has the completions that are added behind it. questions_drop takes back
 * the last question, with its completions. ERR_MEMORY. */
NODISCARD enum status questions_add(struct questions *c, int64_t number, int64_t right,
                                    const int32_t *context, int64_t tokens, struct err *e);
NODISCARD enum status questions_add_completion(struct questions *c, int64_t keep,
                                               const int32_t *token, int64_t tokens, int64_t bytes,
                                               struct err *e);
void questions_drop(struct questions *c);
/* Counts what is counted over all questions. */
void questions_finish(struct questions *c);
void questions_close(struct questions *c); /* allowed for a zeroed struct */

/* The trainer has sequences of `seq_len` tokens, at least c->longest; `batch` is its micro-batch.
 * Batches are of neighbouring completions; of them, one trainer takes number first, first + stride,
 * and so on, and fills the sums of their losses in nats [rows]. ERR_NUMERIC names a question with a
 * loss that is not finite. */
struct questions_part { int64_t batch, seq_len, first, stride; };
NODISCARD enum status questions_losses(const struct questions *c, struct trainer *trainer,
                                       const struct questions_part *part, double *nats,
                                       struct err *e);

#endif
