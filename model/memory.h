/* The memory plan: named arenas, counted first and allocated once.
 *
 * Layout code reserves bytes and passes the location that receives the address, usually the `data`
 * of a tensor view. memory_allocate creates every arena and writes the addresses. The locations
 * must not move until then. `fp8lab plan` uses the same layout and allocates nothing. */
#ifndef FP8LAB_MODEL_MEMORY_H
#define FP8LAB_MODEL_MEMORY_H

#include "kernels/backend.h"

enum memory_arena {
    MEMORY_WEIGHTS,     /* act dtype values */
    MEMORY_CODES,       /* FP8 weights, both directions, and their scales */
    MEMORY_MASTER,      /* f32 masters */
    MEMORY_GRADIENTS,   /* main gradients */
    MEMORY_MOMENTS,     /* AdamW m and v */
    MEMORY_EXCHANGE,    /* several ranks: weights while they are read, gradients until reduced */
    MEMORY_ACTIVATIONS, /* from forward to backward: values or transposed codes of GEMM inputs */
    MEMORY_WORKSPACE,   /* during one layer, reused by the next: gradients, codes, recomputation */
    MEMORY_HEAD,        /* one chunk of logits and its codes */
    MEMORY_STATE,       /* the run: FP8 state, scalars, tokens, the record of a step */
    MEMORY_ARENA_COUNT
};

/* More than any machine has; sums of planned sizes below this limit do not overflow. */
#define MEMORY_LIMIT ((int64_t)1 << 60)

struct memory_place { /* one address to write */
    void **where;
    int64_t offset; /* within the arena, or of the shared region */
    enum memory_arena arena;
    int shared; /* index, or -1 */
};

struct memory_item { const char *name; enum memory_arena arena; int64_t bytes, count; };
struct memory_shared { const char *name; enum memory_arena arena; int64_t bytes, offset; };

struct memory {
    struct arena arena[MEMORY_ARENA_COUNT];
    struct memory_place *place; /* owned, as the next two */
    struct memory_item *item;
    struct memory_shared *shared;
    int64_t place_count, item_count, shared_count;
    int64_t place_capacity, item_capacity, shared_capacity;
    int64_t bytes;  /* planned in all arenas, while below MEMORY_LIMIT */
    bool pinned[MEMORY_ARENA_COUNT]; /* in pinned host memory */
    bool failed;    /* out of host memory; memory_finish reports it */
    bool too_large; /* the plan exceeds MEMORY_LIMIT; memory_finish reports it */
    struct backend *backend; /* set while allocated */
};

void memory_init(struct memory *m);

/* Plans `bytes` in an arena for *where; returns the offset. `item` is static storage. */
int64_t memory_reserve(struct memory *m, enum memory_arena arena, const char *item, int64_t bytes,
                       void **where);

/* A region that several users take in turn, as large as the largest use. A user may plan several
 * pieces of it, each at its own offset. */
int memory_share_open(struct memory *m, enum memory_arena arena, const char *item);
void memory_share(struct memory *m, int shared, int64_t offset, int64_t bytes, void **where);
/* Plans a piece behind all earlier pieces of the region, at a multiple of 16 bytes, so that one
 * copy moves them together. Returns its offset. */
int64_t memory_append(struct memory *m, int shared, int64_t bytes, void **where);
/* The size of a shared region so far. */
int64_t memory_shared_bytes(const struct memory *m, int shared);

/* Puts an arena into pinned host memory: for data that one operator reads and writes once a
 * step. */
void memory_pin(struct memory *m, enum memory_arena arena);

/* Closes the plan and gives shared regions their offsets. ERR_MEMORY if the host had no room for
 * the plan, ERR_CONFIG if the plan exceeds MEMORY_LIMIT. */
NODISCARD enum status memory_finish(struct memory *m, struct err *e);

/* Creates the arenas (zeroed) and writes every address. Call after memory_finish. */
NODISCARD enum status memory_allocate(struct memory *m, struct backend *b, struct err *e);

int64_t memory_bytes(const struct memory *m);        /* on the device */
int64_t memory_pinned_bytes(const struct memory *m); /* on the host */
void memory_destroy(struct memory *m);

#endif
