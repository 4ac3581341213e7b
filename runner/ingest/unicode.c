#include "runner/ingest/unicode.h"

#include <stdlib.h>
#include <string.h>

#include "runner/ingest/unicode_tables.h"

/* ---- tables -------------------------------------------------------------------------------- */

static uint16_t class_bits(char letter) {
    switch (letter) {
    case 'U': return UC_LETTER | UC_UPPER;
    case 'l': return UC_LETTER | UC_LOWER;
    case 'o': return UC_LETTER;
    case 'N': return UC_NUMBER | UC_DIGIT;
    case 'M': return UC_MARK;
    case 'P': return UC_PUNCTUATION;
    case 'S': return UC_SYMBOL;
    case 's': return UC_SPACE;
    case 'd': return UC_DIGIT;
    default: return 0;
    }
}

static void fill_classes(struct unicode *u) {
    uint32_t at = 0;
    for (const char *p = UNICODE_CLASSES; *p;) {
        uint16_t bits = class_bits(*p++);
        uint32_t count = 0;
        while (*p >= '0' && *p <= '9') count = count * 10 + (uint32_t)(*p++ - '0');
        for (uint32_t i = 0; i < (count ? count : 1) && at < UNICODE_COUNT; i++)
            u->class_of[at++] = bits;
    }
}

static int by_parts(const void *a, const void *b) {
    const struct unicode_pair *x = &UNICODE_PAIRS[*(const int *)a];
    const struct unicode_pair *y = &UNICODE_PAIRS[*(const int *)b];
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->second < y->second ? -1 : x->second > y->second;
}

/* UC_NFC: combining classes, decompositions that stay, second parts of compositions, and the
 * Hangul vowels and finals. */
static void fill_nfc(struct unicode *u) {
    for (int i = 0; i < UNICODE_MARKS_COUNT; i++)
        for (uint32_t c = UNICODE_MARKS[i].from; c <= UNICODE_MARKS[i].to; c++) {
            u->combining[c] = (uint8_t)UNICODE_MARKS[i].combining;
            u->class_of[c] |= UC_NFC;
        }
    for (int i = 0; i < UNICODE_PAIR_COUNT; i++) {
        const struct unicode_pair *pair = &UNICODE_PAIRS[i];
        if (pair->composes) {
            u->pair_of_composed[u->composed_count++] = i;
            u->class_of[pair->second] |= UC_NFC;
        } else {
            u->class_of[pair->code] |= UC_NFC;
        }
    }
    for (uint32_t c = 0x1161; c <= 0x1175; c++) u->class_of[c] |= UC_NFC;
    for (uint32_t c = 0x11a8; c <= 0x11c2; c++) u->class_of[c] |= UC_NFC;
    qsort(u->pair_of_composed, (size_t)u->composed_count, sizeof *u->pair_of_composed, by_parts);
}

enum status unicode_create(struct unicode **out, struct err *e) {
    struct unicode *u = calloc(1, sizeof *u);
    if (u) u->pair_of_composed = malloc((size_t)UNICODE_PAIR_COUNT * sizeof *u->pair_of_composed);
    if (!u || !u->pair_of_composed) {
        unicode_destroy(u);
        return FAIL(e, ERR_MEMORY, "%zu bytes for the classes of characters", sizeof *u);
    }
    fill_classes(u);
    fill_nfc(u);
    *out = u;
    return OK;
}

void unicode_destroy(struct unicode *u) {
    if (!u) return;
    free(u->pair_of_composed);
    free(u);
}

/* ---- bytes --------------------------------------------------------------------------------- */

enum status bytes_reserve(struct bytes *b, size_t n, struct err *e) {
    if (b->room - b->count >= n) return OK;
    size_t room = b->room ? b->room : 256;
    while (room - b->count < n) room *= 2;
    uint8_t *more = realloc(b->bytes, room);
    if (!more) return FAIL(e, ERR_MEMORY, "%zu bytes of text", room);
    b->bytes = more;
    b->room = room;
    return OK;
}

enum status bytes_add(struct bytes *b, const void *from, size_t n, struct err *e) {
    TRY(bytes_reserve(b, n, e));
    if (n) memcpy(b->bytes + b->count, from, n);
    b->count += n;
    return OK;
}

/* ---- UTF-8 --------------------------------------------------------------------------------- */

int utf8_put(uint32_t code, uint8_t out[4]) {
    if (code < 0x80) return out[0] = (uint8_t)code, 1;
    if (code < 0x800) {
        out[0] = (uint8_t)(0xc0 | code >> 6);
        out[1] = (uint8_t)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (uint8_t)(0xe0 | code >> 12);
        out[1] = (uint8_t)(0x80 | (code >> 6 & 0x3f));
        out[2] = (uint8_t)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (uint8_t)(0xf0 | code >> 18);
    out[1] = (uint8_t)(0x80 | (code >> 12 & 0x3f));
    out[2] = (uint8_t)(0x80 | (code >> 6 & 0x3f));
    out[3] = (uint8_t)(0x80 | (code & 0x3f));
    return 4;
}

/* The character at p, Unicode 16.0 table 3-7: returns its length, or 0 with *subpart bytes that
 * are a maximal subpart of none. *torn: the text ends before that is known. */
static int character(const uint8_t *p, size_t n, size_t *subpart, bool *torn) {
    uint8_t low = 0x80, high = 0xbf;
    int length = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3
                 : p[0] < 0xf5 ? 4 : 0;
    *subpart = 1;
    *torn = false;
    if (length < 2) return length;
    if (p[0] == 0xe0) low = 0xa0;
    if (p[0] == 0xed) high = 0x9f;
    if (p[0] == 0xf0) low = 0x90;
    if (p[0] == 0xf4) high = 0x8f;
    for (int i = 1; i < length; i++) {
        *subpart = (size_t)i;
        if ((size_t)i == n) return *torn = true, 0;
        if (p[i] < low || p[i] > high) return 0;
        low = 0x80;
        high = 0xbf;
    }
    return length;
}

size_t utf8_valid(const uint8_t *p, size_t n) {
    size_t at = 0, subpart;
    bool torn;
    while (at < n) {
        uint64_t eight;
        while (n - at >= 8 && (memcpy(&eight, p + at, 8), !(eight & 0x8080808080808080u))) at += 8;
        if (at == n) break;
        int length = character(p + at, n - at, &subpart, &torn);
        if (!length) break;
        at += (size_t)length;
    }
    return at;
}

size_t utf8_torn(const uint8_t *p, size_t n) {
    size_t subpart;
    bool torn;
    for (size_t back = 1; back <= 3 && back <= n; back++)
        if (p[n - back] >= 0xc2) {
            character(p + n - back, back, &subpart, &torn);
            return torn ? back : 0;
        }
    return 0;
}

enum status utf8_lossy(struct bytes *out, const uint8_t *p, size_t n, int64_t *replaced,
                       struct err *e) {
    while (n) {
        size_t good = utf8_valid(p, n), subpart;
        bool torn;
        TRY(bytes_add(out, p, good, e));
        p += good;
        n -= good;
        if (!n) break;
        character(p, n, &subpart, &torn);
        TRY(bytes_add(out, "\xef\xbf\xbd", 3, e));
        ++*replaced;
        p += subpart;
        n -= subpart;
    }
    return OK;
}
