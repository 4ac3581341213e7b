/* A pool of memory that is freed as a whole. Resolving a script allocates everything here. */
#ifndef FP8LAB_RUNNER_BASE_POOL_H
#define FP8LAB_RUNNER_BASE_POOL_H

#include "kernels/base.h"

struct pool_block;

/* Zero-initialise, then set `exhausted`. It is called when memory runs out, and must not return
 * (the script's child raises a Lua error), so the functions below never return NULL. */
struct pool {
    struct pool_block *blocks; /* owned */
    void (*exhausted)(void *context);
    void *context; /* borrowed */
};

/* n zeroed bytes, aligned for any type; borrowed until pool_destroy. */
void *pool_alloc(struct pool *p, size_t n);
char *pool_copy(struct pool *p, const char *text);
char *pool_copy_n(struct pool *p, const char *bytes, size_t n);
char *pool_format(struct pool *p, const char *format, ...) PRINTF_LIKE(2, 3);
void pool_destroy(struct pool *p);

#endif
