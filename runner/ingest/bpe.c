#include "runner/ingest/bpe.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table ----------------------------------------------------------------------------- */

enum { SHORT_WORD = 40 }; /* symbols; up to here scanning beats a queue (LOG.md) */

struct slot { uint64_t key; uint32_t rank, id; };

/* Open addressing, at most half full. */
struct bpe {
    struct slot *slot; /* owned */
    uint64_t mask;
    int shift;
};

#define NO_KEY UINT64_MAX /* no pair: ids are below 2^31 */
#define NO_RANK UINT32_MAX

enum status bpe_create(struct bpe **out, int64_t count, struct err *e) {
    int bits = 4;
    while ((1ll << bits) < 2 * count) bits++;
    size_t bytes = sizeof(struct slot) << bits;
    struct bpe *b = calloc(1, sizeof *b);
    if (b) b->slot = malloc(bytes);
    if (!b || !b->slot) {
        free(b);
        return FAIL(e, ERR_MEMORY, "%zu bytes for the merges of a tokenizer", bytes);
    }
    memset(b->slot, 0xff, bytes);
    b->mask = (1ull << bits) - 1;
    b->shift = 64 - bits;
    *out = b;
    return OK;
}

void bpe_destroy(struct bpe *b) {
    if (!b) return;
    free(b->slot);
    free(b);
}

static inline struct slot *find(const struct bpe *b, uint32_t left, uint32_t right) {
    uint64_t key = (uint64_t)left << 32 | right;
    uint64_t at = key * 0x9e3779b97f4a7c15u >> b->shift; /* Knuth's multiplicative hashing */
    while (b->slot[at].key != key && b->slot[at].key != NO_KEY) at = (at + 1) & b->mask;
    return &b->slot[at];
}

void bpe_set(struct bpe *b, uint32_t left, uint32_t right, uint32_t rank, uint32_t id) {
    *find(b, left, right) = (struct slot){ (uint64_t)left << 32 | right, rank, id };
}

bool bpe_has(const struct bpe *b, uint32_t left, uint32_t right) {
    return find(b, left, right)->key != NO_KEY;
}

static inline uint32_t rank_of(const struct bpe *b, uint32_t left, uint32_t right, uint32_t *id) {
    const struct slot *s = find(b, left, right);
    *id = s->id;
    return s->rank; /* NO_RANK in an empty slot */
}

/* ---- short words --------------------------------------------------------------------------- */

static size_t merge_short(const struct bpe *b, uint32_t *ids, size_t n) {
    uint32_t rank[SHORT_WORD], id[SHORT_WORD]; /* of the pair (i, i + 1) */
    for (size_t i = 0; i + 1 < n; i++) rank[i] = rank_of(b, ids[i], ids[i + 1], &id[i]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == NO_RANK) break;
        ids[best] = id[best];
        n--;
        memmove(ids + best + 1, ids + best + 2, (n - best - 1) * sizeof *ids);
        memmove(rank + best, rank + best + 1, (n - best - 1) * sizeof *rank);
        memmove(id + best, id + best + 1, (n - best - 1) * sizeof *id);
        if (best + 1 < n) rank[best] = rank_of(b, ids[best], ids[best + 1], &id[best]);
        if (best > 0) rank[best - 1] = rank_of(b, ids[best - 1], ids[best], &id[best - 1]);
    }
    return n;
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
    assert(n < 1u << 30);
    if (n > SHORT_WORD) {
        TRY(work_room(w, n, e));
        *out = merge_long(b, w, ids, n);
    } else {
        *out = n > 1 ? merge_short(b, ids, n) : n;
    }
    return OK;
}
