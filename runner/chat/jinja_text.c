#include "runner/chat/jinja_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- building -------------------------------------------------------------------------------- */

enum status str_from(struct chat_arena *a, const char *bytes, int64_t n, struct chat_origin origin,
                     struct str **out, struct err *e) {
    struct { struct str s; struct piece piece; } *both;
    TRY(chat_alloc(a, sizeof *both, &both, e));
    both->piece = (struct piece){ bytes, n, origin };
    both->s = (struct str){ .n = n, .count = 1, .pieces = &both->piece, .flat = bytes };
    *out = &both->s;
    return OK;
}

enum status str_format(struct chat_arena *a, struct chat_origin origin, struct str **out,
                       struct err *e, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = NULL;
    enum status st = chat_alloc(a, n > 0 ? n + 1 : 1, &text, e);
    if (st == OK && n > 0) vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    return st == OK ? str_from(a, text, n > 0 ? n : 0, origin, out, e) : st;
}

static bool same_origin(struct chat_origin x, struct chat_origin y) {
    return x.message == y.message && x.field == y.field && x.generated == y.generated;
}

enum status str_add_piece(struct chat_arena *a, struct str_builder *b, struct piece piece,
                          struct err *e) {
    if (piece.n == 0 && piece.origin.message < 0) return OK;
    struct piece *last = b->count ? &b->pieces[b->count - 1] : NULL;
    b->n += piece.n;
    if (last && last->bytes + last->n == piece.bytes && same_origin(last->origin, piece.origin)) {
        last->n += piece.n;
        return OK;
    }
    TRY(chat_grow(a, &b->pieces, b->count, &b->capacity, sizeof *b->pieces, e));
    b->pieces[b->count++] = piece;
    return OK;
}

enum status str_add(struct chat_arena *a, struct str_builder *b, const struct str *s,
                    struct err *e) {
    for (int64_t i = 0; i < s->count; i++) TRY(str_add_piece(a, b, s->pieces[i], e));
    return OK;
}

enum status str_finish(struct chat_arena *a, const struct str_builder *b, struct str **out,
                       struct err *e) {
    TRY(chat_alloc(a, sizeof **out, out, e));
    **out = (struct str){ .n = b->n, .count = b->count, .pieces = b->pieces };
    if (b->count == 0) (*out)->flat = "";
    if (b->count == 1) (*out)->flat = b->pieces[0].bytes;
    return OK;
}

enum status str_flat(struct chat_arena *a, struct str *s, const char **out, struct err *e) {
    if (!s->flat) {
        char *bytes;
        int64_t at = 0;
        TRY(chat_alloc(a, s->n, &bytes, e));
        for (int64_t i = 0; i < s->count; at += s->pieces[i++].n)
            memcpy(bytes + at, s->pieces[i].bytes, (size_t)s->pieces[i].n);
        s->flat = bytes;
    }
    *out = s->flat;
    return OK;
}

/* Compares piece by piece, so nothing is copied. The order of code points is that of UTF-8. */
int str_order(const struct str *x, const struct str *y) {
    int64_t i = 0, j = 0, at = 0, to = 0;
    while (i < x->count && j < y->count) {
        int64_t left = x->pieces[i].n - at, right = y->pieces[j].n - to;
        int64_t n = left < right ? left : right;
        int order = n ? memcmp(x->pieces[i].bytes + at, y->pieces[j].bytes + to, (size_t)n) : 0;
        if (order) return order;
        at += n;
        to += n;
        if (at == x->pieces[i].n) i++, at = 0;
        if (to == y->pieces[j].n) j++, to = 0;
    }
    return (x->n > y->n) - (x->n < y->n);
}

struct chat_origin str_origin(const struct str *s) {
    return s->count ? s->pieces[0].origin : CHAT_FROM_TEMPLATE;
}

enum status str_cut(struct chat_arena *a, const struct str *s, int64_t begin, int64_t end,
                    struct str **out, struct err *e) {
    struct str_builder b = { 0 };
    int64_t at = 0;
    if (begin >= end) return str_from(a, "", 0, str_origin(s), out, e);
    for (int64_t i = 0; i < s->count && at < end; i++) {
        struct piece p = s->pieces[i];
        int64_t from = begin > at ? begin - at : 0, to = end - at < p.n ? end - at : p.n;
        at += p.n;
        if (from >= to) continue;
        TRY(str_add_piece(a, &b, (struct piece){ p.bytes + from, to - from, p.origin }, e));
    }
    return str_finish(a, &b, out, e);
}

/* ---- code points ----------------------------------------------------------------------------- */

uint32_t str_code(const char *s, int64_t n, int64_t *length) {
    const unsigned char *u = (const unsigned char *)s;
    static const unsigned char LEAD[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
    int64_t size = u[0] < 0x80 ? 1 : u[0] < 0xe0 ? 2 : u[0] < 0xf0 ? 3 : 4;
    if (size > n) size = 1;
    uint32_t code = u[0] & LEAD[size];
    for (int64_t i = 1; i < size; i++) code = code << 6 | (u[i] & 0x3f);
    *length = size;
    return code;
}

int64_t str_count(const char *s, int64_t n) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += ((unsigned char)s[i] & 0xc0) != 0x80;
    return count;
}

int64_t str_offset(const char *s, int64_t n, int64_t index) {
    int64_t at = 0;
    for (; at < n; at++)
        if (((unsigned char)s[at] & 0xc0) != 0x80 && index-- == 0) break;
    return at;
}

int64_t str_find(const char *s, int64_t n, int64_t from, const char *what, int64_t what_n) {
    if (what_n > n - from) return -1;
    if (what_n == 0) return from;
    const char *at = memmem(s + from, (size_t)(n - from), what, (size_t)what_n);
    return at ? at - s : -1;
}

/* ---- white space ----------------------------------------------------------------------------- */

/* Python 3's str.isspace: Unicode's White_Space, and U+001C to U+001F. */
static bool is_space(uint32_t c) {
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

int64_t str_space(const char *s, int64_t n) {
    int64_t length;
    return n > 0 && is_space(str_code(s, n, &length)) ? length : 0;
}

/* The beginning of the last character of s[0, n). */
static int64_t last_character(const char *s, int64_t n) {
    int64_t at = n - 1;
    while (at > 0 && ((unsigned char)s[at] & 0xc0) == 0x80) at--;
    return at;
}

int64_t str_space_behind(const char *s, int64_t n) {
    int64_t end = n;
    while (end > 0) {
        int64_t at = last_character(s, end);
        if (!str_space(s + at, end - at)) break;
        end = at;
    }
    return n - end;
}

/* Whether the character s[0, n) is to be stripped. */
static bool strips(const char *s, int64_t n, const char *chars, int64_t chars_n) {
    if (!chars) return str_space(s, n) > 0;
    return str_find(chars, chars_n, 0, s, n) >= 0;
}

enum status str_strip(struct chat_arena *a, struct str *s, struct str *chars, bool left, bool right,
                      struct str **out, struct err *e) {
    const char *bytes, *set = NULL;
    int64_t begin = 0, end = s->n, length;
    TRY(str_flat(a, s, &bytes, e));
    if (chars) TRY(str_flat(a, chars, &set, e));
    while (left && begin < end) {
        str_code(bytes + begin, end - begin, &length);
        if (!strips(bytes + begin, length, set, chars ? chars->n : 0)) break;
        begin += length;
    }
    while (right && begin < end) {
        int64_t at = last_character(bytes, end);
        if (!strips(bytes + at, end - at, set, chars ? chars->n : 0)) break;
        end = at;
    }
    if (begin == 0 && end == s->n) {
        *out = s;
        return OK;
    }
    return str_cut(a, s, begin, end, out, e);
}
