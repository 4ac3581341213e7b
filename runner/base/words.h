/* An argv that grows, and its text for a shell. */
#ifndef FP8LAB_RUNNER_BASE_WORDS_H
#define FP8LAB_RUNNER_BASE_WORDS_H

#include "kernels/base.h"

struct words {
    char **word; /* owned, and each of them; NULL-terminated once there is one */
    int64_t count, capacity;
    bool failed; /* no memory; sticks */
};
void words_add(struct words *w, const char *word);
void words_addf(struct words *w, const char *format, ...) PRINTF_LIKE(2, 3);
void words_add_all(struct words *w, const struct words *more);
void words_free(struct words *w);
/* The words as a shell takes them, on one line; owned by the caller, NULL without memory. */
char *words_text(const struct words *w);

#endif
