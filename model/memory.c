#include "model/memory.h"

#include <assert.h>
#include <stdlib.h>

static const char *const ARENA_NAME[MEMORY_ARENA_COUNT] = {
    "weights", "weight codes", "master weights", "gradients", "optimizer",
    "exchange", "activations", "workspace", "head", "state",
};

void memory_init(struct memory *m) {
    memset(m, 0, sizeof *m);
    for (int i = 0; i < MEMORY_ARENA_COUNT; i++) m->arena[i].name = ARENA_NAME[i];
}

/* Makes room for one more element; false, with `failed` set, if there is no memory. */
static bool grow(struct memory *m, void **array, int64_t count, int64_t *capacity, size_t size) {
    if (count < *capacity) return true;
    int64_t wanted = *capacity ? 2 * *capacity : 64;
    void *fresh = realloc(*array, (size_t)wanted * size);
    if (!fresh) {
        m->failed = true;
        return false;
    }
    *array = fresh;
    *capacity = wanted;
    return true;
}

static void add_place(struct memory *m, enum memory_arena arena, int shared, int64_t offset,
                      void **where) {
    if (!grow(m, (void **)&m->place, m->place_count, &m->place_capacity, sizeof *m->place)) return;
    struct memory_place p = { .where = where, .offset = offset, .arena = arena, .shared = shared };
    m->place[m->place_count++] = p;
}

static void add_item(struct memory *m, enum memory_arena arena, const char *name,
                     int64_t bytes) {
    for (int64_t i = 0; i < m->item_count; i++) {
        struct memory_item *it = &m->item[i];
        if (it->arena != arena || strcmp(it->name, name) != 0) continue;
        it->bytes += bytes;
        it->count++;
        return;
    }
    if (!grow(m, (void **)&m->item, m->item_count, &m->item_capacity, sizeof *m->item)) return;
    struct memory_item it = { .name = name, .arena = arena, .bytes = bytes, .count = 1 };
    m->item[m->item_count++] = it;
}

/* Adds `bytes` to the plan; false, with too_large set, if the plan exceeds MEMORY_LIMIT. */
static bool within_limit(struct memory *m, int64_t bytes) {
    if (bytes > MEMORY_LIMIT - ARENA_ALIGN - m->bytes) m->too_large = true;
    else m->bytes += round_up(bytes, ARENA_ALIGN);
    return !m->too_large;
}

int64_t memory_reserve(struct memory *m, enum memory_arena arena, const char *item, int64_t bytes,
                       void **where) {
    if (!within_limit(m, bytes)) return 0;
    int64_t offset = arena_reserve(&m->arena[arena], bytes);
    add_item(m, arena, item, round_up(bytes, ARENA_ALIGN));
    add_place(m, arena, -1, offset, where);
    return offset;
}

int memory_share_open(struct memory *m, enum memory_arena arena, const char *item) {
    if (!grow(m, (void **)&m->shared, m->shared_count, &m->shared_capacity, sizeof *m->shared))
        return -1;
    struct memory_shared s = { .name = item, .arena = arena };
    m->shared[m->shared_count] = s;
    return (int)m->shared_count++;
}

void memory_share(struct memory *m, int shared, int64_t offset, int64_t bytes, void **where) {
    if (m->failed) return;
    struct memory_shared *s = &m->shared[shared];
    if (offset + bytes > s->bytes) s->bytes = offset + bytes;
    add_place(m, s->arena, shared, offset, where);
}

int64_t memory_append(struct memory *m, int shared, int64_t bytes, void **where) {
    if (m->failed) return 0;
    int64_t offset = round_up(m->shared[shared].bytes, 16);
    memory_share(m, shared, offset, bytes, where);
    return offset;
}

int64_t memory_shared_bytes(const struct memory *m, int shared) {
    return m->failed ? 0 : m->shared[shared].bytes;
}

void memory_pin(struct memory *m, enum memory_arena arena) {
    m->pinned[arena] = true;
    m->arena[arena].name = arena == MEMORY_MASTER ? "master weights, on the host"
                                                  : "optimizer, on the host";
}

enum status memory_finish(struct memory *m, struct err *e) {
    for (int64_t i = 0; i < m->shared_count; i++) {
        struct memory_shared *s = &m->shared[i];
        if (!within_limit(m, s->bytes)) break;
        s->offset = arena_reserve(&m->arena[s->arena], s->bytes);
        if (s->bytes) add_item(m, s->arena, s->name, round_up(s->bytes, ARENA_ALIGN));
    }
    if (m->failed) return FAIL(e, ERR_MEMORY, "no host memory for the memory plan");
    if (m->too_large)
        return FAIL(e, ERR_CONFIG, "this model and micro-batch take more than 2^60 bytes");
    return OK;
}

enum status memory_allocate(struct memory *m, struct backend *b, struct err *e) {
    assert(!m->backend && !m->failed);
    m->backend = b;
    for (int i = 0; i < MEMORY_ARENA_COUNT; i++) {
        struct arena *a = &m->arena[i];
        if (a->bytes == 0) continue;
        TRY(m->pinned[i] ? b->ops->memory_create_pinned(b, a->name, a->bytes, &a->base, e)
                         : b->ops->memory_create(b, a->name, a->bytes, &a->base, e));
    }
    for (int64_t i = 0; i < m->place_count; i++) {
        const struct memory_place *p = &m->place[i];
        int64_t offset = p->offset + (p->shared >= 0 ? m->shared[p->shared].offset : 0);
        *p->where = arena_at(&m->arena[p->arena], offset);
    }
    return OK;
}

int64_t memory_bytes(const struct memory *m) { return m->bytes - memory_pinned_bytes(m); }

int64_t memory_pinned_bytes(const struct memory *m) {
    int64_t bytes = 0;
    for (int i = 0; i < MEMORY_ARENA_COUNT; i++)
        if (m->pinned[i]) bytes += m->arena[i].bytes;
    return bytes;
}

void memory_destroy(struct memory *m) {
    for (int i = 0; i < MEMORY_ARENA_COUNT; i++)
        if (m->arena[i].base) m->backend->ops->memory_destroy(m->backend, m->arena[i].base);
    free(m->place);
    free(m->item);
    free(m->shared);
    memset(m, 0, sizeof *m);
}
