/* A pool of memory that is freed as a whole: everything that resolving one script needs. */
#ifndef FP8LAB_RUNNER_BASE_POOL_H
#define FP8LAB_RUNNER_BASE_POOL_H

#include "kernels/base.h"

struct pool_block;

/* Zero-initialise, then set `exhausted`, which must not return (the script's child raises a Lua
 * error): the functions below therefore never return NULL. */
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
