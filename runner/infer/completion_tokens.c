#include "runner/infer/completion_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "runner/base/canonical.h"

struct completion_tokens {
    const struct tokenizer_choice *choice;
    struct encoder *encoder;
    struct text text;     /* the context, and behind it the completion */
    size_t length, spare; /* of the context, and of the white space at its end */
    int32_t *context;     /* its ids; owned, as many as `count` */
    int64_t count;
};

static bool is_space(char c) { return c && strchr(" \t\n\r\f\v", c); }

enum status completion_tokens_create(struct completion_tokens **out,
                                     const struct tokenizer_choice *choice, struct err *e) {
    struct completion_tokens *t = calloc(1, sizeof *t);
    if (!t) return FAIL(e, ERR_MEMORY, "the tokens of questions");
    t->choice = choice;
    enum status st = encoder_create(&t->encoder, choice->tokenizer, e);
    if (st == OK) *out = t;
    else completion_tokens_destroy(t);
    return st;
}

void completion_tokens_destroy(struct completion_tokens *t) {
    if (!t) return;
    encoder_destroy(t->encoder);
    text_free(&t->text);
    free(t->context);
    free(t);
}

/* Ids are below 2^31. */
static const int32_t *ids_of(const struct completion_tokens *t, int64_t *count) {
    return (const int32_t *)(const void *)encoder_ids(t->encoder, count);
}

/* The first n bytes of the text, behind what stands before a text. */
static enum status encode(struct completion_tokens *t, size_t n, struct err *e) {
    int64_t before;
    encoder_clear(t->encoder);
    TRY(encoder_begin(t->encoder, e));
    (void)ids_of(t, &before);
    if (before == 0 && t->length == 0 && t->choice->end >= 0)
        TRY(encoder_push(t->encoder, (uint32_t)t->choice->end, e));
    return encoder_add(t->encoder, t->text.bytes, n, e);
}

/* Sets the text behind its first n bytes. */
static enum status put(struct completion_tokens *t, size_t n, const char *first, const char *then,
                       struct err *e) {
    t->text.size = n;
    text_puts(&t->text, first);
    text_puts(&t->text, then);
    return t->text.failed ? FAIL(e, ERR_MEMORY, "the text of a question") : OK;
}

enum status completion_tokens_context(struct completion_tokens *t, const char *text,
                                      const int32_t **ids, int64_t *count, struct err *e) {
    size_t n = strlen(text), length = n;
    int64_t found;
    while (length && is_space(text[length - 1])) length--;
    TRY(put(t, 0, text, "", e));
    t->length = length;
    t->spare = n - length;
    TRY(encode(t, length, e));
    const int32_t *made = ids_of(t, &found);
    if (found == 0)
        return FAIL(e, ERR_FORMAT, "there is no text before the completions, and this tokenizer "
                    "has no token that begins a text; the first token of a text has no loss");
    int32_t *copy = realloc(t->context, (size_t)found * sizeof *copy);
    if (!copy) return FAIL(e, ERR_MEMORY, "%lld tokens of a context", (long long)found);
    t->context = copy;
    memcpy(copy, made, (size_t)found * sizeof *copy);
    *ids = copy;
    *count = t->count = found;
    return OK;
}

enum status completion_tokens_behind(struct completion_tokens *t, const char *text,
                                     const int32_t **ids, int64_t *keep, int64_t *count,
                                     bool *inside, struct err *e) {
    bool between = t->length && !t->spare && !is_space(*text);
    int64_t all, same = 0;
    if (!*text) return FAIL(e, ERR_FORMAT, "it is empty");
    TRY(put(t, t->length + t->spare, between ? " " : "", text, e));
    TRY(encode(t, t->text.size, e));
    const int32_t *made = ids_of(t, &all);
    while (same < t->count && same < all - 1 && made[same] == t->context[same]) same++;
    if (same < 1)
        return FAIL(e, ERR_FORMAT, "its first token begins in the first token of the text, which "
                    "has no loss; write more text before it");
    *ids = made + same;
    *keep = same;
    *count = all - same;
    *inside = same < t->count;
    return OK;
}
