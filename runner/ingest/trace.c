#include "runner/ingest/trace.h"

#include <stdlib.h>
#include <string.h>

void trace_begin(struct trace *t, const uint8_t *text, const struct byte_range *control,
                 int64_t count) {
    t->on = true;
    t->control = control;
    t->control_count = count;
    t->view = (struct trace_view){ .base = text };
    t->ends.count = 0;
}

void trace_free(struct trace *t) {
    for (size_t i = 0; i < sizeof t->map / sizeof *t->map; i++) free(t->map[i].bytes);
    free(t->ends.bytes);
}

/* Where the character of a byte of the view ends in the text. */
static uint32_t end_of(const struct trace_view *v, const uint8_t *p) {
    size_t at = (size_t)(p - v->base);
    return v->map ? v->map[at] : (uint32_t)(v->origin + at + 1);
}

bool trace_allows(const struct trace *t, const uint8_t *p, size_t n) {
    int64_t begin = (int64_t)end_of(&t->view, p) - 1, end = end_of(&t->view, p + n - 1);
    int64_t low = 0, high = t->control_count; /* the first range that does not end before `end` */
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (t->control[middle].end < end) low = middle + 1;
        else high = middle;
    }
    return low < t->control_count && t->control[low].begin <= begin;
}

static enum status add_end(struct bytes *to, uint32_t end, struct err *e) {
    return bytes_add(to, &end, sizeof end, e);
}

enum status trace_push(struct trace *t, const uint8_t *last, struct err *e) {
    return add_end(&t->ends, end_of(&t->view, last), e);
}

/* ---- words --------------------------------------------------------------------------------- */

/* How many of p[0..n-1], n > 0, a token stands for; 0: it stands for something else. */
static size_t covers(const struct tokenizer *k, uint32_t id, const uint8_t *p, size_t n) {
    size_t length = id < k->vocab.size ? vocab_length(&k->vocab, id) : 0;
    if (length > 0 && length <= n && !memcmp(k->vocab.text + k->vocab.begin[id], p, length))
        return length;
    return k->byte_id[*p] == id; /* <0xNN> */
}

/* The tokens of a word cover it without a gap. Characters without a token are left out, or become
 * the unknown token; then the next token that fits shows how many. */
enum status trace_word(struct trace *t, const struct tokenizer *k, const uint8_t *p, size_t n,
                       const uint32_t *id, size_t count, struct err *e) {
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        size_t length = 0;
        while (at < n && id[i] != k->unk && !(length = covers(k, id[i], p + at, n - at))) at++;
        if (id[i] == k->unk && at < n) {
            int whole = 1;
            if (!k->byte_level) utf8_at(p + at, &whole);
            length = (size_t)whole < n - at ? (size_t)whole : n - at;
        }
        at += length;
        TRY(trace_push(t, p + (i + 1 < count && at ? at : n) - 1, e));
    }
    return OK;
}

enum status trace_ids(struct trace *t, const struct tokenizer *k, const uint8_t *p,
                      const uint32_t *id, size_t count, struct err *e) {
    TRY(bytes_reserve(&t->ends, count * sizeof(uint32_t), e));
    uint32_t *out = (uint32_t *)(void *)(t->ends.bytes + t->ends.count);
    for (size_t i = 0; i < count; i++) {
        p += vocab_length(&k->vocab, id[i]);
        out[i] = end_of(&t->view, p - 1);
    }
    t->ends.count += count * sizeof(uint32_t);
    return OK;
}

/* ---- changed text -------------------------------------------------------------------------- */

/* The map of what replacing makes of p[0..n-1], n > 0, behind `prefix` new bytes. All bytes of a
 * replacement end where the last byte that it replaces does. New bytes belong to the first one. */
static enum status map_replaced(const struct trace_view *v, struct bytes *map, size_t prefix,
                                const uint8_t *p, size_t n, const struct text_ref *from,
                                const struct text_ref *to, struct err *e) {
    const uint8_t *end = p + n, *found;
    map->count = 0;
    TRY(bytes_reserve(map, (prefix + n) * sizeof(uint32_t), e));
    for (size_t i = 0; i < prefix; i++) TRY(add_end(map, end_of(v, p), e));
    while (p < end) {
        found = from ? memmem(p, (size_t)(end - p), from->text, from->n) : NULL;
        for (const uint8_t *stop = found ? found : end; p < stop; p++)
            TRY(add_end(map, end_of(v, p), e));
        if (!found) break;
        p += from->n;
        for (size_t i = 0; i < to->n; i++) TRY(add_end(map, end_of(v, p - 1), e));
    }
    return OK;
}

/* The map of the NFC of p[0..n-1]. A character that NFC neither changes nor joins to what stands
 * before begins a stretch. What a changed stretch becomes ends where the stretch does. */
static enum status map_nfc(const struct trace_view *v, const struct unicode *u, struct bytes *map,
                           const uint8_t *p, size_t n, struct err *e) {
    struct bytes whole = { 0 };
    enum status st = OK;
    map->count = 0;
    for (size_t at = 0, next; st == OK && at < n; at = next) {
        int length;
        utf8_at(p + at, &length);
        next = at + (size_t)length;
        while (next < n && u->class_of[utf8_at(p + next, &length)] & UC_NFC)
            next += (size_t)length;
        whole.count = 0;
        st = nfc_add(u, &whole, p + at, next - at, &(size_t){ 0 }, e);
        bool same = whole.count == next - at && !memcmp(whole.bytes, p + at, whole.count);
        for (size_t i = 0; st == OK && i < whole.count; i++)
            st = add_end(map, end_of(v, p + (same ? at + i : next - 1)), e);
    }
    free(whole.bytes);
    return st;
}

enum status trace_stage(struct trace *t, int stage, const uint8_t *base, size_t prefix,
                        const uint8_t *p, size_t n, const struct text_ref *from,
                        const struct text_ref *to, struct err *e) {
    struct bytes *map = &t->map[stage];
    TRY(map_replaced(&t->view, map, prefix, p, n, from, to, e));
    t->view = (struct trace_view){ base, (const uint32_t *)(void *)map->bytes, 0 };
    return OK;
}

enum status trace_step(struct trace *t, const struct unicode *u, const struct normal_step *s,
                       const uint8_t *base, const uint8_t *p, size_t n, struct err *e) {
    int at = STAGES_MAX + (t->flip ^= 1);
    switch (s->kind) {
    case STEP_NFC: TRY(map_nfc(&t->view, u, &t->map[at], p, n, e)); break;
    case STEP_REPLACE:
        TRY(map_replaced(&t->view, &t->map[at], 0, p, n, &s->a, &s->b, e));
        break;
    case STEP_PREPEND:
        TRY(map_replaced(&t->view, &t->map[at], s->a.n, p, n, NULL, NULL, e));
        break;
    }
    t->view = (struct trace_view){ base, (const uint32_t *)(void *)t->map[at].bytes, 0 };
    return OK;
}
