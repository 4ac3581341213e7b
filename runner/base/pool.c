#include "runner/base/pool.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 64 << 10, POOL_ALIGN = 16 };

struct pool_block {
    struct pool_block *next;
    size_t used, capacity; /* bytes of the payload, which follows the header */
};

static unsigned char *payload(struct pool_block *b) {
    return (unsigned char *)b + (size_t)round_up((int64_t)sizeof *b, POOL_ALIGN);
}

static struct pool_block *block_add(struct pool *p, size_t n) {
    size_t capacity = n > BLOCK_BYTES ? n : BLOCK_BYTES;
    struct pool_block *b = calloc(1, sizeof *b + POOL_ALIGN + capacity);
    if (!b) {
        p->exhausted(p->context);
        assert(!"`exhausted` must not return");
    }
    b->capacity = capacity;
    b->next = p->blocks;
    p->blocks = b;
    return b;
}

void *pool_alloc(struct pool *p, size_t n) {
    n = (size_t)round_up((int64_t)(n ? n : 1), POOL_ALIGN);
    struct pool_block *b = p->blocks;
    if (!b || b->capacity - b->used < n) b = block_add(p, n);
    void *at = payload(b) + b->used;
    b->used += n;
    return at;
}

char *pool_copy_n(struct pool *p, const char *bytes, size_t n) {
    char *copy = pool_alloc(p, n + 1);
    memcpy(copy, bytes, n);
    return copy;
}

char *pool_copy(struct pool *p, const char *text) { return pool_copy_n(p, text, strlen(text)); }

char *pool_format(struct pool *p, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = pool_alloc(p, n > 0 ? (size_t)n + 1 : 1);
    if (n > 0) vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    return text;
}

void pool_destroy(struct pool *p) {
    while (p->blocks) {
        struct pool_block *next = p->blocks->next;
        free(p->blocks);
        p->blocks = next;
    }
}
