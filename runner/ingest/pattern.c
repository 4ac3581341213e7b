/* Split patterns that split.c does not know. tokenizer.json means them as Oniguruma does, with the
 * syntax and options of its own: so this library matches them. */
#include <oniguruma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/ingest/split.h"

struct pattern {
    regex_t *code; /* NULL: `literal` */
    char *literal;
    size_t n;
};

static enum status rejected(int code, OnigErrorInfo *info, struct err *e) {
    UChar text[ONIG_MAX_ERROR_MESSAGE_LEN + 1] = "";
    if (code == ONIGERR_MEMORY) return FAIL(e, ERR_MEMORY, "memory for a split pattern");
    onig_error_code_to_str(text, code, info);
    return FAIL(e, ERR_FORMAT, "the regular expression is rejected: %s", (char *)text);
}

enum status pattern_create(struct pattern **out, const char *regex, size_t n, bool literal,
                           struct err *e) {
    struct pattern *p = calloc(1, sizeof *p);
    OnigErrorInfo info = { 0 };
    int code = ONIGERR_MEMORY;
    if (!p) return rejected(code, &info, e);
    if (literal) {
        p->literal = malloc(n + 1);
        p->n = n;
        if (p->literal) memcpy(p->literal, regex, n);
    } else {
        const UChar *text = (const UChar *)regex;
        code = onig_initialize((OnigEncoding[]){ ONIG_ENCODING_UTF8 }, 1);
        if (code == ONIG_NORMAL)
            code = onig_new(&p->code, text, text + n, ONIG_OPTION_NONE, ONIG_ENCODING_UTF8,
                            ONIG_SYNTAX_ONIGURUMA, &info);
        if (code != ONIG_NORMAL) p->code = NULL;
    }
    if (p->literal || p->code) {
        *out = p;
        return OK;
    }
    free(p);
    return rejected(code, &info, e);
}

void pattern_destroy(struct pattern *p) {
    if (!p) return;
    if (p->code) onig_free(p->code);
    free(p->literal);
    free(p);
}

void pattern_work_free(struct pattern_work *w) {
    if (w->limits) onig_free_match_param(w->limits);
    free(w->region);
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

/* Oniguruma limits the steps back at each place of the text; this limits them at all places of one
 * search: about ten seconds. */
static const unsigned long STEPS_BACK_MAX = 1000 * 1000 * 1000;

static enum status set_limits(struct pattern_work *w, struct err *e) {
    if (!w->limits) w->limits = onig_new_match_param();
    if (!w->limits) return FAIL(e, ERR_MEMORY, "memory to match a split pattern");
    onig_initialize_match_param(w->limits);
    onig_set_retry_limit_in_search_of_match_param(w->limits, STEPS_BACK_MAX);
    return OK;
}

/* Room for the places of all groups, with which Oniguruma allocates none: where a second allocation
 * fails it loses the first. */
static enum status make_region(const struct pattern *p, struct pattern_work *w, struct err *e) {
    int groups = onig_number_of_captures(p->code) + 1;
    if (groups < ONIG_NREGION) groups = ONIG_NREGION;
    if (w->region && w->region->allocated >= groups) return OK;
    OnigRegion *region = calloc(1, sizeof *region + 2 * (size_t)groups * sizeof *region->beg);
    if (!region) return FAIL(e, ERR_MEMORY, "memory to match a split pattern");
    region->allocated = groups;
    region->beg = (int *)(region + 1);
    region->end = region->beg + groups;
    free(w->region);
    w->region = region;
    return OK;
}

/* The next match from `from` on, which may be empty. *begin > n: there is none. */
static enum status next_match(const struct pattern *p, const uint8_t *text, size_t n, size_t from,
                              struct pattern_work *w, size_t *begin, size_t *end, struct err *e) {
    *begin = *end = n + 1;
    if (!p->code) {
        const uint8_t *found = memmem(text + from, n - from, p->literal, p->n);
        if (!found) return OK;
        *begin = (size_t)(found - text);
        *end = *begin + p->n;
        return OK;
    }
    int at = onig_search_with_param(p->code, text, text + n, text + from, text + n, w->region,
                                    ONIG_OPTION_NONE, w->limits);
    if (at == ONIG_MISMATCH) return OK;
    if (at == ONIGERR_MEMORY) return FAIL(e, ERR_MEMORY, "memory to match a split pattern");
    if (at < 0) {
        UChar why[ONIG_MAX_ERROR_MESSAGE_LEN + 1] = "";
        onig_error_code_to_str(why, at);
        return FAIL(e, ERR_FORMAT, "the split pattern cannot be matched: %s", (char *)why);
    }
    *begin = (size_t)w->region->beg[0];
    *end = (size_t)w->region->end[0];
    return OK;
}

/* One gap or match, as the behaviour says. `matches`: whether the last one was a match. */
static enum status take(struct pattern_work *w, enum split_behavior behavior, bool match,
                        bool *matches, size_t begin, size_t end, struct err *e) {
    bool was = *matches, first = w->count == 0;
    size_t *last = first ? NULL : &w->piece[2 * w->count - 1];
    *matches = match;
    switch (behavior) {
    case SPLIT_REMOVED: return match ? OK : add_piece(w, begin, end, e);
    case SPLIT_MERGED_PREVIOUS:
        if (match && !was && !first) return *last = end, OK;
        break;
    case SPLIT_MERGED_NEXT: begin = begin << 1 | match; break; /* see merge_next() */
    case SPLIT_CONTIGUOUS:
        if (match == was && !first) return *last = end, OK;
        break;
    default: break;
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

static void drop_empty(struct pattern_work *w) {
    size_t kept = 0;
    for (size_t i = 0; i < w->count; i++) {
        size_t begin = w->piece[2 * i], end = w->piece[2 * i + 1];
        w->piece[2 * kept] = begin;
        w->piece[2 * kept + 1] = end;
        kept += begin < end;
    }
    w->count = kept;
}

/* An empty match cuts the text too. Directly behind a match it is none: the search then goes on
 * one character later. So does the Rust package onig, which the tokenizers package uses. */
enum status pattern_split(const struct pattern *p, enum split_behavior behavior, bool invert,
                          const uint8_t *text, size_t n, struct pattern_work *w, struct err *e) {
    size_t last = 0, from = 0, begin, end; /* last: where the last match ended */
    bool matches = false, any = false;
    w->count = 0;
    if (p->code) {
        TRY(set_limits(w, e));
        TRY(make_region(p, w, e));
    }
    while (from <= n) {
        TRY(next_match(p, text, n, from, w, &begin, &end, e));
        if (begin > n) break;
        if (begin < last || end < begin) /* \K in a look-behind or look-ahead */
            return FAIL(e, ERR_FORMAT, "the split pattern matches bytes %zu to %zu of a text "
                        "behind byte %zu: use no \\K within (?= or (?<=", begin, end, last);
        if (begin == end && any && end == last) {
            do from++;
            while (from < n && (text[from] & 0xc0) == 0x80);
            continue;
        }
        if (last < begin) TRY(take(w, behavior, invert, &matches, last, begin, e));
        TRY(take(w, behavior, !invert, &matches, begin, end, e));
        from = last = end;
        any = true;
    }
    if (last < n) TRY(take(w, behavior, invert, &matches, last, n, e));
    if (behavior == SPLIT_MERGED_NEXT) merge_next(w);
    drop_empty(w);
    return OK;
}
