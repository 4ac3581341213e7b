/* Split patterns that split.c does not know: PCRE2 with its own Unicode tables. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/ingest/split.h"

struct pattern {
    pcre2_code *code; /* NULL: `literal` */
    char *literal;
    size_t n;
};

/* PCRE2's \s also matches U+180E, which is no white space since Unicode 6.3; other programs follow
 * Unicode. Spells \s out, and \S outside a class. Owned by the caller; NULL: no memory. */
static char *spell_spaces(const char *regex, size_t n, size_t *out_bytes) {
    static const char SPACES[] = "\\t-\\r\\x{85}\\p{Z}";
    enum { GROWTH = 10 }; /* two bytes become at most 20 */
    char *out = malloc(n * GROWTH + 1), *to = out;
    bool in_class = false;
    for (size_t i = 0; out && i < n; i++) {
        char c = regex[i], next = i + 1 < n ? regex[i + 1] : '\0';
        if (c == '\\' && (next == 's' || (next == 'S' && !in_class))) {
            to += sprintf(to, "%s%s%s", in_class ? "" : next == 's' ? "[" : "[^", SPACES,
                          in_class ? "" : "]");
            i++;
            continue;
        }
        *to++ = c;
        if (c == '\\' && i + 1 < n) *to++ = regex[++i];
        else if (c == ']') in_class = false;
        else if (c == '[' && !in_class) {
            in_class = true;
            if (next == '^') *to++ = regex[++i];
            if (i + 1 < n && regex[i + 1] == ']') *to++ = regex[++i]; /* a member of the class */
        }
    }
    if (out) *out_bytes = (size_t)(to - out);
    return out;
}

/* An error has its place in the text as it was given. */
static pcre2_code *compile(const char *regex, size_t n, int *error, PCRE2_SIZE *at) {
    const uint32_t flags = PCRE2_UTF | PCRE2_UCP;
    pcre2_code *given = pcre2_compile((PCRE2_SPTR)regex, n, flags, error, at, NULL);
    if (!given) return NULL;
    pcre2_code_free(given);
    size_t bytes;
    char *spelt = spell_spaces(regex, n, &bytes);
    if (!spelt) return *error = PCRE2_ERROR_NOMEMORY, NULL;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)spelt, bytes, flags, error, at, NULL);
    free(spelt);
    if (code) pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* without JIT: only slower */
    return code;
}

enum status pattern_create(struct pattern **out, const char *regex, size_t n, bool literal,
                           struct err *e) {
    struct pattern *p = calloc(1, sizeof *p);
    if (!p) return FAIL(e, ERR_MEMORY, "memory for a split pattern");
    int code = 0;
    PCRE2_SIZE at = 0;
    if (literal) {
        p->literal = malloc(n + 1);
        p->n = n;
        if (p->literal) memcpy(p->literal, regex, n);
    } else {
        p->code = compile(regex, n, &code, &at);
    }
    if (p->literal || p->code) {
        *out = p;
        return OK;
    }
    free(p);
    if (literal || code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED)
        return FAIL(e, ERR_MEMORY, "memory for a split pattern");
    PCRE2_UCHAR text[128] = "";
    pcre2_get_error_message(code, text, sizeof text);
    return FAIL(e, ERR_FORMAT, "the regular expression is rejected at byte %zu: %s", at,
                (char *)text);
}

void pattern_destroy(struct pattern *p) {
    if (!p) return;
    pcre2_code_free(p->code);
    free(p->literal);
    free(p);
}

void pattern_work_free(struct pattern_work *w) {
    pcre2_match_data_free(w->match);
    free(w->piece);
    *w = (struct pattern_work){ 0 };
}

static enum status add_piece(struct pattern_work *w, size_t begin, size_t end, struct err *e) {
    if (w->count == w->room) {
        size_t room = w->room ? 2 * w->room : 256;
        size_t *more = realloc(w->piece, 2 * room * sizeof *more);
        if (!more) return FAIL(e, ERR_MEMORY, "%zu bytes for pieces of text", room * sizeof *more);
        w->piece = more;
        w->room = room;
    }
    w->piece[2 * w->count] = begin;
    w->piece[2 * w->count++ + 1] = end;
    return OK;
}

/* The next match from `from` on: *begin = n if there is none. An empty match is none. */
static enum status next_match(const struct pattern *p, const uint8_t *text, size_t n, size_t from,
                              struct pattern_work *w, size_t *begin, size_t *end, struct err *e) {
    *begin = *end = n;
    if (!p->code) {
        const uint8_t *found = p->n ? memmem(text + from, n - from, p->literal, p->n) : NULL;
        if (!found) return OK;
        *begin = (size_t)(found - text);
        *end = *begin + p->n;
        return OK;
    }
    if (!w->match && !(w->match = pcre2_match_data_create(1, NULL)))
        return FAIL(e, ERR_MEMORY, "memory to match a split pattern");
    /* The text is known to be valid; without NO_UTF_CHECK each call checks it to its end again. */
    int rc = pcre2_match(p->code, text, n, from, PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, w->match,
                         NULL);
    if (rc == PCRE2_ERROR_NOMATCH) return OK;
    if (rc == PCRE2_ERROR_NOMEMORY) return FAIL(e, ERR_MEMORY, "memory to match a split pattern");
    if (rc < 0) {
        PCRE2_UCHAR why[128] = "";
        pcre2_get_error_message(rc, why, sizeof why);
        return FAIL(e, ERR_FORMAT, "the split pattern cannot be matched: %s", (char *)why);
    }
    *begin = pcre2_get_ovector_pointer(w->match)[0];
    *end = pcre2_get_ovector_pointer(w->match)[1];
    return OK;
}

/* One gap or match, as the behaviour says. `matches`: whether the last one was a match. */
static enum status take(struct pattern_work *w, enum split_behavior behavior, bool match,
                        bool *matches, size_t begin, size_t end, struct err *e) {
    bool was = *matches, first = w->count == 0;
    size_t *last = first ? NULL : &w->piece[2 * w->count - 1];
    if (begin == end) return OK;
    *matches = match;
    switch (behavior) {
    case SPLIT_REMOVED: return match ? OK : add_piece(w, begin, end, e);
    case SPLIT_MERGED_PREVIOUS:
        if (match && !was && !first) return *last = end, OK;
        break;
    case SPLIT_CONTIGUOUS:
        if (match == was && !first) return *last = end, OK;
        break;
    default: break; /* MERGED_NEXT is done from the end, in merge_next() */
    }
    return add_piece(w, begin, end, e);
}

/* Joins every match to the gap behind it. Whether a piece is a match is in the low bit of its
 * `begin`. */
static void merge_next(struct pattern_work *w) {
    size_t kept = 0;
    for (size_t i = 0; i < w->count; i++) {
        size_t begin = w->piece[2 * i], end = w->piece[2 * i + 1];
        bool match = begin & 1;
        if (match && i + 1 < w->count && !(w->piece[2 * i + 2] & 1))
            end = w->piece[2 * ++i + 1];
        w->piece[2 * kept] = begin >> 1;
        w->piece[2 * kept++ + 1] = end;
    }
    w->count = kept;
}

enum status pattern_split(const struct pattern *p, enum split_behavior behavior, bool invert,
                          const uint8_t *text, size_t n, struct pattern_work *w, struct err *e) {
    size_t at = 0, begin, end;
    bool matches = false;
    w->count = 0;
    while (at < n) {
        TRY(next_match(p, text, n, at, w, &begin, &end, e));
        for (int part = 0; part < 2; part++) { /* the gap, then the match */
            size_t from = part ? begin : at, to = part ? end : begin;
            bool match = (part == 1) != invert;
            if (behavior == SPLIT_MERGED_NEXT) {
                if (from < to) TRY(add_piece(w, from << 1 | match, to, e));
            } else {
                TRY(take(w, behavior, match, &matches, from, to, e));
            }
        }
        at = end;
    }
    if (behavior == SPLIT_MERGED_NEXT) merge_next(w);
    return OK;
}
