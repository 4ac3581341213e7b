/* Normalization form C: Unicode Standard Annex 15. Only the stretches of text in which a character
 * has UC_NFC are taken apart and composed again. */
#include <stdlib.h>
#include <string.h>

#include "runner/ingest/unicode.h"
#include "runner/ingest/unicode_tables.h"

/* Hangul syllables are arithmetic: The Unicode Standard 16.0, 3.12. */
enum { S_BASE = 0xac00, L_BASE = 0x1100, V_BASE = 0x1161, T_BASE = 0x11a7, L_COUNT = 19,
       V_COUNT = 21, T_COUNT = 28, S_COUNT = L_COUNT * V_COUNT * T_COUNT };

/* The code points of one stretch, each in the bits of CODE. The bits above count the characters of
 * the text that begin in it, in units of BEGUN. */
static const uint32_t CODE = 0x1fffff, BEGUN = 1u << 24;
struct stretch {
    uint32_t *code; /* owned */
    size_t count, room;
};

bool nfc_unchanged(const struct unicode *u, const uint8_t *p, size_t n) {
    for (size_t at = 0; at < n;) {
        uint64_t eight;
        while (n - at >= 8 && (memcpy(&eight, p + at, 8), !(eight & 0x8080808080808080u))) at += 8;
        if (at == n) break;
        int length;
        if (u->class_of[utf8_at(p + at, &length)] & UC_NFC) return false;
        at += (size_t)length;
    }
    return true;
}

static const struct unicode_pair *decomposition(uint32_t code) {
    int low = 0, high = UNICODE_PAIR_COUNT - 1;
    while (low <= high) {
        int middle = (low + high) / 2;
        if (UNICODE_PAIRS[middle].code == code) return &UNICODE_PAIRS[middle];
        if (UNICODE_PAIRS[middle].code < code) low = middle + 1;
        else high = middle - 1;
    }
    return NULL;
}

static uint32_t composition(const struct unicode *u, uint32_t a, uint32_t b) {
    if (a - L_BASE < L_COUNT && b - V_BASE < V_COUNT)
        return S_BASE + ((a - L_BASE) * V_COUNT + (b - V_BASE)) * T_COUNT;
    if (a - S_BASE < S_COUNT && (a - S_BASE) % T_COUNT == 0 && b - T_BASE - 1 < T_COUNT - 1)
        return a + (b - T_BASE);
    int low = 0, high = u->composed_count - 1;
    while (low <= high) {
        int middle = (low + high) / 2;
        const struct unicode_pair *pair = &UNICODE_PAIRS[u->pair_of_composed[middle]];
        if (pair->first == a && pair->second == b) return pair->code;
        if (pair->first < a || (pair->first == a && pair->second < b)) low = middle + 1;
        else high = middle - 1;
    }
    return 0;
}

static enum status push(struct stretch *s, uint32_t code, struct err *e) {
    if (s->count == s->room) {
        size_t room = s->room ? 2 * s->room : 64;
        uint32_t *more = realloc(s->code, room * sizeof *more);
        if (!more) return FAIL(e, ERR_MEMORY, "%zu bytes to normalise text", room * sizeof *more);
        s->code = more;
        s->room = room;
    }
    s->code[s->count++] = code;
    return OK;
}

/* Pushes the full decomposition. The tables nest at most four deep. */
static enum status push_parts(struct stretch *s, uint32_t code, struct err *e) {
    if (code - S_BASE < S_COUNT) {
        uint32_t i = code - S_BASE;
        TRY(push(s, BEGUN | (L_BASE + i / (V_COUNT * T_COUNT)), e));
        TRY(push(s, V_BASE + i / T_COUNT % V_COUNT, e));
        return i % T_COUNT ? push(s, T_BASE + i % T_COUNT, e) : OK;
    }
    uint32_t second[8];
    int seconds = 0;
    for (const struct unicode_pair *pair; (pair = decomposition(code)); code = pair->first)
        if (pair->second) second[seconds++] = pair->second;
    TRY(push(s, BEGUN | code, e));
    while (seconds > 0) TRY(push(s, second[--seconds], e));
    return OK;
}

/* Stable sort by combining class: by counting, since a run of marks may be of any length. */
static enum status sort_marks(const struct unicode *u, uint32_t *code, size_t n, struct err *e) {
    size_t begin[257] = { 0 };
    bool sorted = true;
    for (size_t i = 1; i < n && sorted; i++)
        sorted = u->combining[code[i - 1] & CODE] <= u->combining[code[i] & CODE];
    if (sorted) return OK;
    uint32_t *copy = malloc(n * sizeof *copy);
    if (!copy) return FAIL(e, ERR_MEMORY, "%zu bytes to normalise text", n * sizeof *copy);
    memcpy(copy, code, n * sizeof *copy);
    for (size_t i = 0; i < n; i++) begin[u->combining[copy[i] & CODE] + 1]++;
    for (int i = 1; i < 257; i++) begin[i] += begin[i - 1];
    for (size_t i = 0; i < n; i++) code[begin[u->combining[copy[i] & CODE]]++] = copy[i];
    free(copy);
    return OK;
}

static enum status order(const struct unicode *u, struct stretch *s, struct err *e) {
    for (size_t i = 0; i < s->count;) {
        size_t end = i;
        while (end < s->count && u->combining[s->code[end] & CODE]) end++;
        TRY(sort_marks(u, s->code + i, end - i, e));
        i = end > i ? end : i + 1;
    }
    return OK;
}

static void compose(const struct unicode *u, struct stretch *s) {
    size_t out = 0, starter = SIZE_MAX;
    int last = 0; /* combining class of the last code point kept after the starter; -1: none */
    for (size_t i = 0; i < s->count; i++) {
        uint32_t code = s->code[i];
        int ccc = u->combining[code & CODE];
        if (starter != SIZE_MAX && last < (ccc ? ccc : 1) && (ccc || last == -1)) {
            uint32_t base = s->code[starter], composed = composition(u, base & CODE, code & CODE);
            if (composed) {
                s->code[starter] = composed | ((base & ~CODE) + (code & ~CODE));
                continue;
            }
        }
        if (ccc == 0) {
            starter = out;
            last = -1;
        } else {
            last = ccc;
        }
        s->code[out++] = code;
    }
    s->count = out;
}

/* One stretch: from a starter that NFC may join, to the next such starter. */
static enum status add_stretch(const struct unicode *u, struct bytes *out, struct stretch *s,
                               const uint8_t *p, size_t n, size_t *head, struct err *e) {
    size_t begin = out->count;
    int64_t left = 0; /* characters of the head that do not begin in what is written */
    int length;
    s->count = 0;
    for (size_t at = 0; at < n; at += (size_t)length) {
        TRY(push_parts(s, utf8_at(p + at, &length), e));
        left += at < *head;
    }
    TRY(order(u, s, e));
    compose(u, s);
    TRY(bytes_reserve(out, 4 * s->count, e));
    *head = 0;
    for (size_t i = 0; i < s->count; i++) {
        int64_t begun = s->code[i] / BEGUN;
        out->count += (size_t)utf8_put(s->code[i] & CODE, out->bytes + out->count);
        if (left > 0 || (left == 0 && begun == 0)) *head = out->count - begin;
        left -= begun;
    }
    return OK;
}

/* How many of the bytes from `begin` to `end` are in the head. */
static size_t in_head(size_t head, size_t begin, size_t end) {
    return head <= begin ? 0 : (head < end ? head : end) - begin;
}

enum status nfc_add(const struct unicode *u, struct bytes *out, const uint8_t *p, size_t n,
                    size_t *head, struct err *e) {
    struct stretch s = { 0 };
    enum status st = OK;
    size_t done = 0, starter = 0; /* text before `done` is written; the last without UC_NFC */
    size_t head_out = 0;
    int length;
    for (size_t at = 0; st == OK && at < n; at += (size_t)length) {
        if (!(u->class_of[utf8_at(p + at, &length)] & UC_NFC)) {
            starter = at;
            continue;
        }
        st = bytes_add(out, p + done, starter - done, e);
        size_t end = at;
        while (end < n && u->class_of[utf8_at(p + end, &length)] & UC_NFC) end += (size_t)length;
        size_t part = in_head(*head, starter, end);
        if (st == OK) st = add_stretch(u, out, &s, p + starter, end - starter, &part, e);
        head_out += in_head(*head, done, starter) + part;
        done = starter = end;
        at = end;
        length = 0;
    }
    if (st == OK) st = bytes_add(out, p + done, n - done, e);
    *head = head_out + in_head(*head, done, n);
    free(s.code);
    return st;
}
