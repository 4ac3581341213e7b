#include "runner/ingest/word_ids.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runner/ingest/eight_bytes.h"

/* ---- memory -------------------------------------------------------------------------------- */

/* A word of up to 15 bytes that became up to 3 tokens: two to a cache line. The last byte of the
 * key is the length of the word; 0: empty. AMONG_LONGS instead of the number of tokens: it became
 * more, and may be a long word. */
enum { SHORT_MAX = 15, SHORT_IDS = 3, SHORTS_LOG2 = 17, AMONG_LONGS = 255 };
struct short_word {
    uint64_t key[2];
    uint32_t id[SHORT_IDS], ids;
};
_Static_assert(sizeof(struct short_word) == 32, "two short words are one cache line");

/* Other words of up to 86 bytes that became up to 10 tokens: two cache lines. Lines of one repeated
 * sign, which are frequent in code, are among them. */
enum { LONG_MAX = 86, LONG_IDS = 10, LONGS_LOG2 = 14 };
struct long_word {
    uint32_t id[LONG_IDS];
    uint8_t text[LONG_MAX], length, ids; /* length 0: empty */
};
_Static_assert(sizeof(struct long_word) == 128, "a long word is two cache lines");

/* Aligned to cache lines, and in huge pages if the system gives some: frequent words lie on all
 * pages, so that small ones would cost a walk through the page tables for most words. */
static void *zeroed_lines(size_t bytes) {
    size_t huge = 2 << 20;
    void *p;
    if (posix_memalign(&p, bytes < huge ? 64 : huge, bytes) != 0) return NULL;
    if (bytes >= huge) (void)madvise(p, bytes, MADV_HUGEPAGE);
    return memset(p, 0, bytes);
}

enum status word_ids_open(struct word_ids *w, const struct tokenizer *t, struct err *e) {
    size_t shorts = 2 * sizeof(struct short_word) << SHORTS_LOG2;
    size_t longs = sizeof(struct long_word) << LONGS_LOG2;
    *w = (struct word_ids){ .t = t, .shorts = zeroed_lines(shorts), .longs = zeroed_lines(longs) };
    if (w->shorts && w->longs) return OK;
    word_ids_close(w);
    return FAIL(e, ERR_MEMORY, "%zu bytes for the words of an encoder", shorts + longs);
}

void word_ids_close(struct word_ids *w) {
    bpe_work_free(&w->work);
    free(w->shorts);
    free(w->longs);
    free(w->id);
    *w = (struct word_ids){ 0 };
}

/* And a long word's worth that may be written beyond them. */
enum status word_ids_room(struct word_ids *w, size_t n, struct err *e) {
    if (w->room - w->count >= n + LONG_IDS + 1) return OK;
    size_t room = w->room ? w->room : 1024;
    while (room - w->count < n + LONG_IDS + 1) room *= 2;
    uint32_t *more = realloc(w->id, room * sizeof *more);
    if (!more) return FAIL(e, ERR_MEMORY, "%zu bytes for token ids", room * sizeof *more);
    w->id = more;
    w->room = room;
    return OK;
}

/* ---- the model on one word ----------------------------------------------------------------- */

/* The word's bytes as symbols. */
static size_t byte_symbols(struct word_ids *w, const uint8_t *p, size_t n, uint32_t *out) {
    const struct tokenizer *t = w->t;
    size_t count = 0;
    bool unknown = false; /* the last symbol is the unknown token */
    for (size_t i = 0; i < n; i++) {
        uint32_t id = t->byte_id[p[i]];
        if (id == NO_TOKEN && t->unk == NO_TOKEN) {
            w->dropped++;
            continue;
        }
        if (id == NO_TOKEN && unknown && t->fuse_unk) continue;
        unknown = id == NO_TOKEN;
        out[count++] = unknown ? t->unk : id;
    }
    return count;
}

/* The bytes of a character that is no token, as <0xNN>; false unless all of them exist. */
static bool fall_back(const struct tokenizer *t, const uint8_t *p, int length, uint32_t *out) {
    for (int i = 0; i < length; i++)
        if ((out[i] = t->byte_id[p[i]]) == NO_TOKEN) return false;
    return true;
}

/* The word's characters as symbols. An unknown token is held back until the next character that is
 * a token, behind characters that fall back to bytes: as models/bpe/model.rs, merge_word, does. */
static size_t character_symbols(struct word_ids *w, const uint8_t *p, size_t n, uint32_t *out) {
    const struct tokenizer *t = w->t;
    size_t count = 0;
    bool held = false;
    for (size_t at = 0; at < n;) {
        int length;
        utf8_at(p + at, &length);
        uint32_t id = vocab_find(&t->vocab, p + at, (size_t)length);
        if (id != NO_TOKEN) {
            if (held) out[count++] = t->unk;
            held = false;
            out[count++] = id;
        } else if (t->byte_fallback && fall_back(t, p + at, length, out + count)) {
            count += (size_t)length;
        } else if (t->unk == NO_TOKEN) {
            w->dropped++;
        } else {
            if (held && !t->fuse_unk) out[count++] = t->unk;
            held = true;
        }
        at += (size_t)length;
    }
    if (held) out[count++] = t->unk;
    return count;
}

static enum status merge_word(struct word_ids *w, const uint8_t *p, size_t n, struct err *e) {
    const struct tokenizer *t = w->t;
    size_t count;
    TRY(word_ids_room(w, n, e));
    uint32_t *out = w->id + w->count;
    if (t->ignore_merges) {
        uint32_t id = vocab_find(&t->vocab, p, n);
        if (id != NO_TOKEN) return *out = id, w->count++, OK;
    }
    if (t->kind == TOKENIZER_BYTES) {
        for (size_t i = 0; i < n; i++) out[i] = p[i];
        return w->count += n, OK;
    }
    if (t->whole_bytes) {
        TRY(bpe_merge_bytes(t->bpe, &w->work, p, n, out, &count, e));
        return w->count += count, OK;
    }
    count = t->byte_level ? byte_symbols(w, p, n, out) : character_symbols(w, p, n, out);
    TRY(bpe_merge(t->bpe, &w->work, out, count, &count, e));
    w->count += count;
    return OK;
}

/* ---- words that were met ------------------------------------------------------------------- */

/* The bytes of a word of up to 15 bytes, zeros behind them, and its length in the last byte. */
static inline void short_key(const uint8_t *p, size_t n, const uint8_t *limit, uint64_t key[2]) {
    static const uint8_t MASK[32] = { 255, 255, 255, 255, 255, 255, 255, 255,
                                      255, 255, 255, 255, 255, 255, 255, 255 };
    uint8_t copy[16];
    if (limit - p < 16) p = memcpy(copy, p, n);
    key[0] = load8(p) & load8(MASK + 16 - n);
    key[1] = (load8(p + 8) & load8(MASK + 24 - n)) | (uint64_t)n << 56;
}

static inline bool differ(const uint64_t a[2], const uint64_t b[2]) {
    return ((a[0] ^ b[0]) | (a[1] ^ b[1])) != 0;
}

/* Multiplicative: words that differ in one byte differ in their hashes. */
static inline struct short_word *short_place(const struct word_ids *w, const uint64_t key[2]) {
    uint64_t h = (key[0] ^ key[1] * 0xd6e8feb86659fd93u) * 0x9e3779b97f4a7c15u;
    return w->shorts + 2 * (h >> (64 - SHORTS_LOG2));
}

static struct long_word *long_place(const struct word_ids *w, const uint8_t *p, size_t n) {
    uint8_t bytes[(LONG_MAX + 7) / 8 * 8] = { 0 };
    uint64_t h = n;
    memcpy(bytes, p, n);
    for (size_t i = 0; i < n; i += 8) { /* the constant of splitmix */
        h = (h ^ load8(bytes + i)) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    return w->longs + (h * 0xd6e8feb86659fd93u >> (64 - LONGS_LOG2));
}

/* A word of any length, but none that is kept with its ids among the short ones. */
static enum status long_word(struct word_ids *w, const uint8_t *p, size_t n, struct err *e) {
    if (n > LONG_MAX) return merge_word(w, p, n, e);
    struct long_word *l = long_place(w, p, n);
    if (l->length == n && !memcmp(l->text, p, n)) {
        TRY(word_ids_room(w, LONG_IDS, e));
        memcpy(w->id + w->count, l->id, sizeof l->id);
        w->count += l->ids;
        return OK;
    }
    size_t before = w->count;
    int64_t dropped = w->dropped;
    TRY(merge_word(w, p, n, e));
    size_t ids = w->count - before;
    if (ids > LONG_IDS || dropped != w->dropped) return OK; /* drops must be counted */
    memcpy(l->text, p, n);
    memcpy(l->id, w->id + before, ids * sizeof *l->id);
    l->length = (uint8_t)n;
    l->ids = (uint8_t)ids;
    return OK;
}

/* A word of up to 15 bytes that is not in its place: merges it, and keeps it. */
static enum status new_short_word(struct word_ids *w, const uint8_t *p, size_t n,
                                  struct short_word *place, const uint64_t key[2],
                                  struct err *e) {
    size_t before = w->count;
    int64_t dropped = w->dropped;
    TRY(merge_word(w, p, n, e));
    size_t ids = w->count - before;
    if (dropped != w->dropped) return OK;
    place[1] = place[0];
    memcpy(place->key, key, sizeof place->key);
    if (ids <= SHORT_IDS) memcpy(place->id, w->id + before, ids * sizeof *place->id);
    place->ids = ids <= SHORT_IDS ? (uint32_t)ids : AMONG_LONGS;
    return OK;
}

/* All places are asked for before the first is used: a place is often not in the processor's
 * caches. */
enum status word_ids_add(struct word_ids *w, const uint8_t *p, const uint8_t *const *ends,
                         int count, const uint8_t *limit, struct err *e) {
    uint64_t key[WORDS_AHEAD][2];
    struct short_word *place[WORDS_AHEAD];
    const uint8_t *q = p;
    for (int i = 0; i < count; q = ends[i++]) {
        size_t n = (size_t)(ends[i] - q);
        place[i] = NULL;
        if (n > SHORT_MAX) continue;
        short_key(q, n, limit, key[i]);
        place[i] = short_place(w, key[i]);
        __builtin_prefetch(place[i]);
    }
    TRY(word_ids_room(w, WORDS_AHEAD * SHORT_IDS, e));
    for (int i = 0; i < count; p = ends[i++]) {
        const uint64_t *k = key[i];
        const struct short_word *s = place[i];
        size_t n = (size_t)(ends[i] - p);
        if (s) s += differ(s->key, k); /* without a branch, which would often be mispredicted */
        bool known = s && !differ(s->key, k);
        if (known && s->ids != AMONG_LONGS) {
            memcpy(w->id + w->count, s->id, sizeof s->id);
            w->count += s->ids;
            continue;
        }
        TRY(s && !known ? new_short_word(w, p, n, place[i], k, e) : long_word(w, p, n, e));
        TRY(word_ids_room(w, WORDS_AHEAD * SHORT_IDS, e));
    }
    return OK;
}
