/* A growing argv, and its text for a shell. */
#ifndef FP8LAB_RUNNER_BASE_WORDS_H
#define FP8LAB_RUNNER_BASE_WORDS_H

#include "kernels/base.h"

struct words {
    char **word; /* owned, with each word; NULL-terminated after the first */
    int64_t count, capacity;
    bool failed; /* out of memory; stays set */
};
void words_add(struct words *w, const char *word);
void words_addf(struct words *w, const char *format, ...) PRINTF_LIKE(2, 3);
void words_add_all(struct words *w, const struct words *more);
void words_free(struct words *w);
/* The words on one line, quoted for a shell. Owned by the caller; NULL: out of memory. */
char *words_text(const struct words *w);

#endif
