/* The vocabulary and its parts: tokens by id and by bytes, added tokens, the bytes of ByteLevel. */
#include <stdlib.h>
#include <string.h>

#include "runner/ingest/tokenizer_parts.h"

/* ---- tokens -------------------------------------------------------------------------------- */

static uint64_t hash_of(const uint8_t *p, size_t n) { /* FNV-1a, then mixed */
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h ^ h >> 29;
}

uint32_t vocab_find(const struct vocab *v, const uint8_t *text, size_t n) {
    if (!v->slot) return NO_TOKEN;
    for (uint64_t at = hash_of(text, n) & v->mask;; at = (at + 1) & v->mask) {
        uint32_t id = v->slot[at];
        if (id == NO_TOKEN) return NO_TOKEN;
        if (vocab_length(v, id) == n && !memcmp(v->text + v->begin[id], text, n)) return id;
    }
}

enum status vocab_row(struct vocab_rows *rows, int64_t id, struct vocab_row **out,
                      struct err *e) {
    if (id >= rows->room) {
        int64_t room = rows->room ? rows->room : 1024;
        while (room <= id) room *= 2;
        struct vocab_row *more = realloc(rows->row, (size_t)room * sizeof *more);
        if (!more) return FAIL(e, ERR_MEMORY, "memory for a vocabulary of %lld tokens",
                               (long long)room);
        memset(more + rows->room, 0, (size_t)(room - rows->room) * sizeof *more);
        rows->row = more;
        rows->room = room;
    }
    if (id >= rows->size) rows->size = id + 1;
    *out = &rows->row[id];
    return OK;
}

enum status vocab_build(struct vocab *v, const struct vocab_rows *from, struct err *e) {
    const struct vocab_row *rows = from->row;
    int64_t size = from->size;
    uint64_t bytes = 0, slots = 16;
    for (int64_t i = 0; i < size; i++) bytes += rows[i].n;
    if (bytes > UINT32_MAX)
        return FAIL(e, ERR_FORMAT, "%llu bytes of tokens; a vocabulary has less than 4 GiB",
                    (unsigned long long)bytes);
    while (slots < 2 * (uint64_t)size) slots *= 2;
    v->size = size;
    v->mask = slots - 1;
    v->begin = malloc((size_t)(size + 1) * sizeof *v->begin);
    v->text = malloc(bytes + 1);
    v->flags = malloc((size_t)size + 1);
    v->slot = malloc(slots * sizeof *v->slot);
    if (!v->begin || !v->text || !v->flags || !v->slot)
        return FAIL(e, ERR_MEMORY, "memory for a vocabulary of %lld tokens", (long long)size);
    memset(v->slot, 0xff, slots * sizeof *v->slot);
    v->begin[0] = 0;
    for (int64_t i = 0; i < size; i++) {
        if (rows[i].n) memcpy(v->text + v->begin[i], rows[i].text, rows[i].n);
        v->begin[i + 1] = v->begin[i] + (uint32_t)rows[i].n;
        v->flags[i] = rows[i].flags;
        if (!(rows[i].flags & TOKEN_REACHED)) continue;
        uint64_t at = hash_of(rows[i].text, rows[i].n) & v->mask;
        while (v->slot[at] != NO_TOKEN) at = (at + 1) & v->mask;
        v->slot[at] = (uint32_t)i;
    }
    return OK;
}

void vocab_free(struct vocab *v) {
    free(v->begin);
    free(v->text);
    free(v->flags);
    free(v->slot);
    *v = (struct vocab){ 0 };
}

/* ---- ByteLevel ----------------------------------------------------------------------------- */

/* Printable bytes of Latin-1 stand for themselves, the other 68 for U+0100 on, in their order
 * (encoder.py of OpenAI's GPT-2, bytes_to_unicode). */
static bool stands_for_itself(uint32_t c) {
    return (c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff);
}

uint32_t byte_level_character(uint8_t byte) {
    if (stands_for_itself(byte)) return byte;
    uint32_t others = 0;
    for (uint32_t c = 0; c < byte; c++) others += !stands_for_itself(c);
    return 0x100 + others;
}

/* The byte of a character, -1 for none. 68 bytes do not stand for themselves: 0 to 20h, 7Fh to
 * A0h, ADh. */
static int byte_of(uint32_t c) {
    if (c < 0x100) return stands_for_itself(c) ? (int)c : -1;
    if (c < 0x100 + 0x21) return (int)(c - 0x100);
    if (c < 0x100 + 0x43) return (int)(c - 0x121 + 0x7f);
    return c == 0x143 ? 0xad : -1;
}

bool byte_level_bytes(const uint8_t *text, size_t n, uint8_t *out, size_t *count) {
    *count = 0;
    for (size_t at = 0; at < n;) {
        int length, byte = byte_of(utf8_at(text + at, &length));
        if (byte < 0) return false;
        out[(*count)++] = (uint8_t)byte;
        at += (size_t)length;
    }
    return true;
}

/* ---- added tokens -------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b) {
    const struct added *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->n < y->n ? x->n : y->n);
    return order ? order : x->n < y->n ? -1 : x->n > y->n;
}

void added_build(struct added_pass *a) {
    int firsts = 0;
    if (a->count) qsort(a->token, (size_t)a->count, sizeof *a->token, by_text);
    for (int64_t i = 0; i < a->count; i++)
        a->first[(uint8_t)a->token[i].text[0]] = true;
    a->only = -1;
    for (int i = 0; i < 256; i++)
        if (a->first[i]) a->only = firsts++ ? -1 : i;
}

void added_free(struct added_pass *a) {
    for (int64_t i = 0; i < a->count; i++) free((char *)a->token[i].text);
    free(a->token);
    *a = (struct added_pass){ 0 };
}

/* The longest token that text[0..n-1] begins with. The tokens from `low` to `high` have the first
 * `depth` bytes of the text. */
static const struct added *longest(const struct added_pass *a, const uint8_t *text, size_t n) {
    int64_t low = 0, high = a->count;
    const struct added *best = NULL;
    for (size_t depth = 0; low < high; depth++) {
        if (a->token[low].n == depth) best = &a->token[low++]; /* the shortest comes first */
        if (depth == n) break;
        int64_t from = low, to = high; /* the first whose byte is not below */
        while (from < to) {
            int64_t middle = (from + to) / 2;
            if ((uint8_t)a->token[middle].text[depth] < text[depth]) from = middle + 1;
            else to = middle;
        }
        low = from;
        to = high;
        while (from < to) { /* the first whose byte is above */
            int64_t middle = (from + to) / 2;
            if ((uint8_t)a->token[middle].text[depth] <= text[depth]) from = middle + 1;
            else to = middle;
        }
        high = from;
    }
    return best;
}

const struct added *added_find(const struct added_pass *a, const uint8_t *text, size_t n,
                               size_t from, size_t *at) {
    if (a->count == 0) return NULL;
    for (size_t i = from; i < n; i++) {
        if (a->only >= 0) {
            const uint8_t *found = memchr(text + i, a->only, n - i);
            if (!found) return NULL;
            i = (size_t)(found - text);
        } else if (!a->first[text[i]]) {
            continue;
        }
        const struct added *match = longest(a, text + i, n - i);
        if (match) return *at = i, match;
    }
    return NULL;
}
