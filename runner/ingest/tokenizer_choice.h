/* A tokenizer as a user names it, and the token that ends a document. */
#ifndef FP8LAB_RUNNER_INGEST_TOKENIZER_CHOICE_H
#define FP8LAB_RUNNER_INGEST_TOKENIZER_CHOICE_H

#include "runner/base/paths.h"
#include "runner/ingest/tokenizer.h"

/* The token that tokenizer_config.json beside a tokenizer.json names as its eos_token; -1: it names
 * none, or one that `t` lacks. *text: as it names it; "": it names none, or cannot be read. */
enum { TOKENIZER_EOS_CAP = 80 };
int32_t tokenizer_eos(const struct tokenizer *t, const char *path, char text[TOKENIZER_EOS_CAP]);

struct tokenizer_choice {
    struct tokenizer *tokenizer; /* owned */
    char path[PATH_CAP];         /* its file, or the word "bytes" */
    int32_t end;  /* what ingestion sets behind each document, or -1: none, or the tokenizer sets
                   * it itself */
    int32_t mark; /* the token behind each document, whoever sets it; -1: none */
    const char *why;              /* whose word `mark` is, for a message; static */
    char eos[TOKENIZER_EOS_CAP];  /* as tokenizer_eos(); "" if it was not asked for */
    int64_t vocab; /* the smallest vocabulary of a model: the largest id that can occur, and one */
};

/* `name`: a file, the folder that has a tokenizer.json, or "bytes". `end`: a token by its id or its
 * text, or "none"; NULL: the eos_token beside the tokenizer, else one of known spelling. end_name
 * is what the user calls `end`, for messages. ERR_CONFIG, ERR_ARG, with what to do; ERR_MEMORY. */
NODISCARD enum status tokenizer_choose(struct tokenizer_choice *out, const char *name,
                                       const struct tokenizer_options *options, const char *end,
                                       const char *end_name, struct err *e);
/* The text of the token that ends each document, "" for none; a line that says which, and why. */
enum { TOKENIZER_END_CAP = 400 };
void tokenizer_end_token(const struct tokenizer_choice *c, char out[TOKENIZER_EOS_CAP]);
void tokenizer_end_text(const struct tokenizer_choice *c, char out[TOKENIZER_END_CAP]);
void tokenizer_choice_free(struct tokenizer_choice *c);

/* The processors that this process may use, as threads for tokenise(); at most 1,024. */
enum { TOKENISE_THREADS_MAX = 1024 };
int tokenise_threads(void);

#endif
