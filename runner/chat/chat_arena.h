/* Memory with a limit, freed as a whole. A template's tree lives in one arena, the values of one
 * rendering in another. */
#ifndef FP8LAB_RUNNER_CHAT_ARENA_H
#define FP8LAB_RUNNER_CHAT_ARENA_H

#include "kernels/base.h"

struct chat_block;

/* Zero-initialise, then set the limit. */
struct chat_arena {
    struct chat_block *blocks; /* owned */
    int64_t used, limit;       /* bytes handed out; the most that may be */
};

/* *out, a pointer to any object pointer, = n zeroed bytes, aligned for any type; borrowed until
 * chat_arena_free. ERR_UNSUPPORTED with the limit if it is reached, ERR_MEMORY. */
NODISCARD enum status chat_alloc(struct chat_arena *a, int64_t n, void *out, struct err *e);

/* Makes room for one more element: *array (count elements of `size` bytes) moves to a place of
 * twice the capacity if it is full. The old place stays allocated. Errors as chat_alloc. */
NODISCARD enum status chat_grow(struct chat_arena *a, void *array, int64_t count, int64_t *capacity,
                                int64_t size, struct err *e);

void chat_arena_free(struct chat_arena *a);

#endif
