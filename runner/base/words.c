#include "runner/base/words.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/canonical.h"
#include "runner/base/shell_word.h"

/* Takes ownership of `word`; NULL means that its allocation failed. */
static void take(struct words *w, char *word) {
    if (word && w->count + 2 > w->capacity) {
        int64_t capacity = w->capacity ? 2 * w->capacity : 64;
        char **fresh = realloc(w->word, (size_t)capacity * sizeof *fresh);
        if (fresh) {
            w->word = fresh;
            w->capacity = capacity;
        }
    }
    if (!word || w->count + 2 > w->capacity) {
        free(word);
        w->failed = true;
        return;
    }
    w->word[w->count++] = word;
    w->word[w->count] = NULL;
}

void words_add(struct words *w, const char *word) { take(w, strdup(word)); }

void words_addf(struct words *w, const char *format, ...) {
    char *word = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&word, format, args) < 0) word = NULL;
    va_end(args);
    take(w, word);
}

void words_free(struct words *w) {
    for (int64_t i = 0; i < w->count; i++) free(w->word[i]);
    free(w->word);
    *w = (struct words){ 0 };
}

void words_add_all(struct words *w, const struct words *more) {
    for (int64_t i = 0; i < more->count; i++) words_add(w, more->word[i]);
}

char *words_text(const struct words *w) {
    struct text t = { 0 };
    bool failed = w->failed;
    for (int64_t i = 0; i < w->count; i++) {
        char *word = shell_word(w->word[i]);
        failed = failed || !word;
        if (i) text_puts(&t, " ");
        text_puts(&t, word ? word : "");
        free(word);
    }
    if (!failed && !t.failed) return t.bytes; /* moved to the caller */
    text_free(&t);
    return NULL;
}
