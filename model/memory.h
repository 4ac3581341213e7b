/* The memory plan: named arenas, counted first and allocated once.
 *
 * Layout code reserves bytes and says where the address is to be written (usually the `data` of a
 * tensor view). memory_allocate then creates every arena and writes the addresses, so the same
 * layout serves `fp8lab plan`, which allocates nothing. Reservations must not move before that. */
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
    MEMORY_ACTIVATIONS, /* kept from forward to backward */
    MEMORY_WORKSPACE,   /* used within a layer, then again by the next */
    MEMORY_HEAD,        /* one chunk of logits and what belongs to it */
    MEMORY_STATE,       /* FP8 state, scalars, tokens, fingerprints */
    MEMORY_ARENA_COUNT
};

/* No machine has so much; no sum of what was planned below it overflows. */
#define MEMORY_LIMIT ((int64_t)1 << 60)

struct memory_place { /* one address to write */
    void **where;
    int64_t offset; /* within the arena, or of the shared region */
    int arena, shared; /* shared: index, or -1 */
};

struct memory_item { const char *name; int arena; int64_t bytes, count; };
struct memory_shared { const char *name; int arena; int64_t bytes, offset; };

struct memory {
    struct arena arena[MEMORY_ARENA_COUNT];
    struct memory_place *place; /* owned, as the next two */
    struct memory_item *item;
    struct memory_shared *shared;
    int64_t place_count, item_count, shared_count;
    int64_t place_capacity, item_capacity, shared_capacity;
    int64_t bytes;  /* planned, of all arenas, while it is below MEMORY_LIMIT */
    bool pinned[MEMORY_ARENA_COUNT]; /* in the host's memory */
    bool failed;    /* the host ran out of memory; memory_finish reports it */
    bool too_large; /* the plan passed MEMORY_LIMIT: likewise */
    struct backend *backend; /* set while allocated */
};

void memory_init(struct memory *m);

/* Plans `bytes` in an arena for *where; returns the offset. `item` is static storage. */
int64_t memory_reserve(struct memory *m, enum memory_arena arena, const char *item, int64_t bytes,
                       void **where);

/* A region that several users have in turn: as large as the largest. A user may plan several pieces
 * of it, each at its own offset. */
int memory_share_open(struct memory *m, enum memory_arena arena, const char *item);
void memory_share(struct memory *m, int shared, int64_t offset, int64_t bytes, void **where);
/* Plans a piece behind those planned so far, at a multiple of 16 bytes: for what is copied out
 * together. Returns its offset. */
int64_t memory_append(struct memory *m, int shared, int64_t bytes, void **where);
/* What a shared region has come to. */
int64_t memory_shared_bytes(const struct memory *m, int shared);

/* An arena goes into locked memory of the host: what one operator reads and writes once a step. */
void memory_pin(struct memory *m, enum memory_arena arena);

/* Closes the plan: shared regions get their offsets. ERR_MEMORY if the host had no room for it,
 * ERR_CONFIG if it passes MEMORY_LIMIT. */
NODISCARD enum status memory_finish(struct memory *m, struct err *e);

/* Creates the arenas (zeroed) and writes every address. Call after memory_finish. */
NODISCARD enum status memory_allocate(struct memory *m, struct backend *b, struct err *e);

int64_t memory_bytes(const struct memory *m);        /* on the device */
int64_t memory_pinned_bytes(const struct memory *m); /* on the host */
void memory_destroy(struct memory *m);

#endif
