/* A tokenizer as a user names it, and the token that ends a document. */
#ifndef FP8LAB_RUNNER_INGEST_TOKENIZER_CHOICE_H
#define FP8LAB_RUNNER_INGEST_TOKENIZER_CHOICE_H

#include "runner/base/paths.h"
#include "runner/ingest/tokenizer.h"

struct tokenizer_choice {
    struct tokenizer *tokenizer; /* owned */
    char path[PATH_CAP];         /* its file, or the word "bytes" */
    int32_t end;  /* what ingestion sets behind each document, or -1: none, or the tokenizer sets
                   * it itself */
    int64_t vocab; /* the smallest vocabulary of a model: the largest id that can occur, and one */
};

/* `name`: a file, the folder that has a tokenizer.json, or "bytes". `end`: a token by its id or its
 * text, or "none"; NULL: the one that the tokenizer is known to have. end_name is what the user
 * calls `end`, for messages. ERR_CONFIG, ERR_ARG, with what to do; ERR_MEMORY. */
NODISCARD enum status tokenizer_choose(struct tokenizer_choice *out, const char *name,
                                       const struct tokenizer_options *options, const char *end,
                                       const char *end_name, struct err *e);
void tokenizer_choice_free(struct tokenizer_choice *c);

/* The processors that this process may use, as threads for tokenise(); at most 1,024. */
enum { TOKENISE_THREADS_MAX = 1024 };
int tokenise_threads(void);

#endif
