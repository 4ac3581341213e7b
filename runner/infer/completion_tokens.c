#include "runner/infer/completion_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "runner/base/canonical.h"
#include "runner/ingest/unicode.h"

struct completion_tokens {
    const struct tokenizer_choice *choice;
    struct encoder *encoder;
    int64_t twice;        /* ids before the text that the text has as well; not used */
    struct text text;     /* the context, and behind it the completion */
    size_t length, spare; /* of the context, and of the white space at its end */
    int32_t *context;     /* its ids; owned, as many as `count` */
    int64_t count;
};

/* As Python's str.isspace: White_Space, and the separators U+001C to U+001F. */
static bool is_space(uint32_t c) {
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Of UTF-8, as a JSON text has it. */
static bool begins_with_space(const char *text) {
    int length;
    return is_space(utf8_at((const uint8_t *)text, &length));
}

/* The bytes before the white space at the end of the first n. */
static size_t length_without_space(const char *text, size_t n) {
    while (n) {
        size_t last = n - 1;
        while (last && ((uint8_t)text[last] & 0xc0) == 0x80) last--;
        if (!begins_with_space(text + last)) break;
        n = last;
    }
    return n;
}

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
    const uint32_t *ids = encoder_ids(t->encoder, count);
    *count -= t->twice;
    return (const int32_t *)(const void *)(ids + t->twice);
}

/* The first n bytes of the text, behind what stands before a text. */
static enum status encode(struct completion_tokens *t, size_t n, struct err *e) {
    int64_t before, all;
    t->twice = 0;
    encoder_clear(t->encoder);
    TRY(encoder_begin(t->encoder, e));
    (void)ids_of(t, &before);
    if (before == 0 && t->length == 0 && t->choice->end >= 0)
        TRY(encoder_push(t->encoder, (uint32_t)t->choice->end, e));
    TRY(encoder_add(t->encoder, t->text.bytes, n, e));
    const int32_t *ids = ids_of(t, &all);
    if (before && all >= 2 * before &&
        !memcmp(ids, ids + before, (size_t)before * sizeof *ids))
        t->twice = before;
    return OK;
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
    size_t n = strlen(text), length = length_without_space(text, n);
    int64_t found;
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
    bool between = t->length && !t->spare && !begins_with_space(text);
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
