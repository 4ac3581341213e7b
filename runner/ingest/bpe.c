#include "runner/ingest/bpe.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table ----------------------------------------------------------------------------- */

enum { SHORT_WORD = 40 }; /* symbols; up to here scanning beats a queue (LOG.md) */

struct slot { uint64_t key; uint32_t rank, id; };
struct byte_pair { uint32_t rank, id; };

/* Open addressing, at most half full. Most pairs that are asked for are not in the table: a small
 * filter, of 8 bits a slot, says so without a look at it. */
struct bpe {
    struct slot *slot;       /* owned, as the next two */
    uint64_t *filter;
    struct byte_pair *bytes; /* [65536] by the two bytes, or NULL */
    const uint32_t *byte_id; /* borrowed; of `bytes` */
    uint64_t mask;
    int shift, filter_shift;
};

#define NO_KEY UINT64_MAX /* no pair: ids are below 2^31 */
#define NO_RANK UINT32_MAX

enum status bpe_create(struct bpe **out, int64_t count, struct err *e) {
    int bits = 4;
    while ((1ll << bits) < 2 * count) bits++;
    size_t bytes = sizeof(struct slot) << bits, filter_bytes = (size_t)1 << bits;
    struct bpe *b = calloc(1, sizeof *b);
    if (b) b->slot = malloc(bytes);
    if (b) b->filter = calloc(1, filter_bytes);
    if (!b || !b->slot || !b->filter) {
        bpe_destroy(b);
        return FAIL(e, ERR_MEMORY, "%zu bytes for the merges of a tokenizer",
                    bytes + filter_bytes);
    }
    memset(b->slot, 0xff, bytes);
    b->mask = (1ull << bits) - 1;
    b->shift = 64 - bits;
    b->filter_shift = 64 - bits - 3; /* 8 bits a slot */
    *out = b;
    return OK;
}

void bpe_destroy(struct bpe *b) {
    if (!b) return;
    free(b->slot);
    free(b->filter);
    free(b->bytes);
    free(b);
}

static inline uint64_t hash_of(uint32_t left, uint32_t right) {
    return ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u; /* Knuth's, multiplicative */
}

static inline struct slot *find(const struct bpe *b, uint32_t left, uint32_t right) {
    uint64_t key = (uint64_t)left << 32 | right, at = hash_of(left, right) >> b->shift;
    while (b->slot[at].key != key && b->slot[at].key != NO_KEY) at = (at + 1) & b->mask;
    return &b->slot[at];
}

void bpe_set(struct bpe *b, uint32_t left, uint32_t right, uint32_t rank, uint32_t id) {
    uint64_t bit = hash_of(left, right) >> b->filter_shift;
    *find(b, left, right) = (struct slot){ (uint64_t)left << 32 | right, rank, id };
    b->filter[bit / 64] |= 1ull << bit % 64;
}

bool bpe_has(const struct bpe *b, uint32_t left, uint32_t right) {
    return find(b, left, right)->key != NO_KEY;
}

static inline uint32_t rank_of(const struct bpe *b, uint32_t left, uint32_t right, uint32_t *id) {
    uint64_t bit = hash_of(left, right) >> b->filter_shift;
    if (!(b->filter[bit / 64] >> bit % 64 & 1)) return *id = 0, NO_RANK;
    const struct slot *s = find(b, left, right);
    *id = s->id;
    return s->rank; /* NO_RANK in an empty slot */
}

enum status bpe_set_bytes(struct bpe *b, const uint32_t byte_id[256], struct err *e) {
    size_t bytes = 65536 * sizeof *b->bytes;
    b->bytes = malloc(bytes);
    b->byte_id = byte_id;
    if (!b->bytes) return FAIL(e, ERR_MEMORY, "%zu bytes for the merges of bytes", bytes);
    for (uint32_t i = 0; i < 65536; i++) {
        const struct slot *s = find(b, byte_id[i >> 8], byte_id[i & 255]);
        b->bytes[i] = (struct byte_pair){ s->rank, s->id };
    }
    return OK;
}

/* ---- short words --------------------------------------------------------------------------- */

/* The symbols stay where they are. Bit i of `live` is set while symbol i is not merged into one
 * before it. rank[i] and id[i] are of the pair that symbol i forms with the next live one. */
static size_t merge_short(const struct bpe *b, uint32_t *ids, uint32_t *rank, uint32_t *id,
                          size_t n) {
    uint64_t live = (2ull << (n - 1)) - 1;
    for (;;) {
        uint64_t best = UINT64_MAX;
        for (size_t i = 0; i + 1 < n; i++) {
            uint64_t entry = (uint64_t)rank[i] << 32 | i;
            if (entry < best) best = entry;
        }
        if (best >> 32 == NO_RANK) break;
        uint32_t at = (uint32_t)best;
        uint64_t behind = live & ~1ull << at; /* the next one goes */
        ids[at] = id[at];
        live &= ~(behind & -behind);
        rank[__builtin_ctzll(behind)] = NO_RANK;
        behind &= behind - 1;
        rank[at] = NO_RANK;
        if (behind) rank[at] = rank_of(b, ids[at], ids[__builtin_ctzll(behind)], &id[at]);
        uint64_t before = live & ((1ull << at) - 1);
        if (!before) continue;
        int previous = 63 - __builtin_clzll(before);
        rank[previous] = rank_of(b, ids[previous], ids[at], &id[previous]);
    }
    size_t kept = 0;
    for (; live; live &= live - 1) ids[kept++] = ids[__builtin_ctzll(live)];
    return kept;
}

/* ---- long words ----------------------------------------------------------------------------
 * A priority queue of candidates. It is a heap of ascending runs rather than of candidates. The
 * candidates of one repeated character form one run each time that they double, so they cost no
 * comparisons. A candidate is stale when the pair at its position has another rank by now. */

struct queue {
    struct bpe_work *w;
    size_t entries, pending; /* entries in all; the first that is in no run yet */
    size_t runs;
    uint64_t pending_min;
};

static void sift_down(struct bpe_run *heap, size_t n, size_t at) {
    struct bpe_run moving = heap[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1].head < heap[child].head) child++;
        if (heap[child].head >= moving.head) break;
        heap[at] = heap[child];
    }
    heap[at] = moving;
}

static void push_run(struct queue *q, size_t at, size_t end) {
    struct bpe_run run = { q->w->entry[at], (uint32_t)at, (uint32_t)end };
    size_t place = q->runs++;
    for (size_t parent; place > 0; place = parent) {
        parent = (place - 1) / 2;
        if (q->w->heap[parent].head <= run.head) break;
        q->w->heap[place] = q->w->heap[parent];
    }
    q->w->heap[place] = run;
}

/* Cuts what is pending into ascending runs. */
static void flush(struct queue *q) {
    const uint64_t *entry = q->w->entry;
    for (size_t at = q->pending, end; at < q->entries; at = end) {
        for (end = at + 1; end < q->entries && entry[end] > entry[end - 1];) end++;
        push_run(q, at, end);
    }
    q->pending = q->entries;
    q->pending_min = UINT64_MAX;
}

static inline void offer(struct queue *q, uint32_t rank, size_t position) {
    uint64_t entry = (uint64_t)rank << 32 | position;
    if (rank == NO_RANK) return;
    q->w->entry[q->entries++] = entry;
    if (entry < q->pending_min) q->pending_min = entry;
}

/* The smallest candidate, UINT64_MAX if there is none. */
static inline uint64_t take(struct queue *q) {
    struct bpe_run *top = q->w->heap;
    if (q->pending < q->entries && (q->runs == 0 || q->pending_min < top->head)) flush(q);
    if (q->runs == 0) return UINT64_MAX;
    uint64_t head = top->head;
    if (++top->at < top->end) top->head = q->w->entry[top->at];
    else *top = q->w->heap[--q->runs];
    if (q->runs > 1) sift_down(top, q->runs, 0);
    return head;
}

/* Each merge takes a candidate and offers two: fewer than 3 n in all, and 2 n at once. */
static enum status work_room(struct bpe_work *w, size_t n, struct err *e) {
    if (n <= w->room) return OK;
    bpe_work_free(w);
    w->next = malloc(n * sizeof *w->next);
    w->previous = malloc(n * sizeof *w->previous);
    w->entry = malloc(3 * n * sizeof *w->entry);
    w->heap = malloc(2 * n * sizeof *w->heap);
    w->room = n;
    if (w->next && w->previous && w->entry && w->heap) return OK;
    bpe_work_free(w);
    return FAIL(e, ERR_MEMORY, "memory to merge a word of %zu symbols", n);
}

void bpe_work_free(struct bpe_work *w) {
    free(w->next);
    free(w->previous);
    free(w->entry);
    free(w->heap);
    *w = (struct bpe_work){ 0 };
}

static size_t merge_long(const struct bpe *b, struct bpe_work *w, uint32_t *ids, size_t n) {
    struct queue q = { .w = w, .pending_min = UINT64_MAX };
    uint32_t id;
    for (size_t i = 0; i < n; i++) {
        w->next[i] = (uint32_t)(i + 1);
        w->previous[i] = (uint32_t)(i - 1); /* of the first: UINT32_MAX */
        if (i + 1 < n) offer(&q, rank_of(b, ids[i], ids[i + 1], &id), i);
    }
    for (uint64_t best; (best = take(&q)) != UINT64_MAX;) {
        size_t at = (uint32_t)best, right = w->next[at];
        if (ids[at] == UINT32_MAX || right == n) continue;
        if (rank_of(b, ids[at], ids[right], &id) != best >> 32) continue;
        ids[at] = id;
        ids[right] = UINT32_MAX; /* merged into the one before */
        size_t after = w->next[at] = w->next[right];
        if (after < n) {
            w->previous[after] = (uint32_t)at;
            offer(&q, rank_of(b, id, ids[after], &id), at);
        }
        if (at > 0) {
            size_t before = w->previous[at];
            offer(&q, rank_of(b, ids[before], ids[at], &id), before);
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < n; i = w->next[i]) ids[kept++] = ids[i];
    return kept;
}

enum status bpe_merge(const struct bpe *b, struct bpe_work *w, uint32_t *ids, size_t n, size_t *out,
                      struct err *e) {
    uint32_t rank[SHORT_WORD], id[SHORT_WORD];
    assert(n < 1u << 30);
    if (n > SHORT_WORD) {
        TRY(work_room(w, n, e));
        *out = merge_long(b, w, ids, n);
        return OK;
    }
    for (size_t i = 0; i + 1 < n; i++) rank[i] = rank_of(b, ids[i], ids[i + 1], &id[i]);
    *out = n > 1 ? merge_short(b, ids, rank, id, n) : n;
    return OK;
}

enum status bpe_merge_bytes(const struct bpe *b, struct bpe_work *w, const uint8_t *p, size_t n,
                            uint32_t *ids, size_t *out, struct err *e) {
    uint32_t rank[SHORT_WORD], id[SHORT_WORD];
    for (size_t i = 0; i < n; i++) ids[i] = b->byte_id[p[i]];
    if (n > SHORT_WORD) return bpe_merge(b, w, ids, n, out, e);
    for (size_t i = 0; i + 1 < n; i++) {
        const struct byte_pair *pair = &b->bytes[(size_t)p[i] << 8 | p[i + 1]];
        rank[i] = pair->rank;
        id[i] = pair->id;
    }
    *out = n > 1 ? merge_short(b, ids, rank, id, n) : n;
    return OK;
}
