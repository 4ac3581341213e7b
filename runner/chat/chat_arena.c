#include "runner/chat/chat_arena.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_BYTES = 16 << 10, BLOCK_MAX = 1 << 20, ALIGN = 16 };

struct chat_block {
    struct chat_block *next;
    int64_t used, capacity; /* bytes of the payload, which follows the header */
};

static unsigned char *payload(struct chat_block *b) {
    return (unsigned char *)b + round_up((int64_t)sizeof *b, ALIGN);
}

/* Blocks double, so that a small conversation costs one small block. */
static enum status block_add(struct chat_arena *a, int64_t n, struct err *e) {
    int64_t capacity = a->blocks ? 2 * a->blocks->capacity : FIRST_BYTES;
    if (capacity > BLOCK_MAX) capacity = BLOCK_MAX;
    if (capacity < n) capacity = n;
    struct chat_block *b = malloc(sizeof *b + ALIGN + (size_t)capacity);
    if (!b) return FAIL(e, ERR_MEMORY, "%lld bytes for a chat template", (long long)capacity);
    *b = (struct chat_block){ a->blocks, 0, capacity };
    a->blocks = b;
    return OK;
}

enum status chat_alloc(struct chat_arena *a, int64_t n, void *out, struct err *e) {
    if (n > a->limit - a->used || n > a->limit - ALIGN)
        return FAIL(e, ERR_UNSUPPORTED, "the template needs more than %lld MiB of memory",
                    (long long)(a->limit >> 20));
    n = round_up(n > 0 ? n : 1, ALIGN);
    if (!a->blocks || a->blocks->capacity - a->blocks->used < n) TRY(block_add(a, n, e));
    void *at = payload(a->blocks) + a->blocks->used;
    a->blocks->used += n;
    a->used += n;
    memset(at, 0, (size_t)n);
    memcpy(out, &at, sizeof at);
    return OK;
}

enum status chat_grow(struct chat_arena *a, void *array, int64_t count, int64_t *capacity,
                      int64_t size, struct err *e) {
    if (count < *capacity) return OK;
    int64_t wider = *capacity ? 2 * *capacity : 8;
    void *old, *grown = NULL;
    memcpy(&old, array, sizeof old);
    TRY(chat_alloc(a, wider * size, &grown, e));
    if (count) memcpy(grown, old, (size_t)(count * size));
    memcpy(array, &grown, sizeof grown);
    *capacity = wider;
    return OK;
}

void chat_arena_free(struct chat_arena *a) {
    while (a->blocks) {
        struct chat_block *next = a->blocks->next;
        free(a->blocks);
        a->blocks = next;
    }
    a->used = 0;
}
