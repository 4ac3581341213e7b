#include "runner/base/diagnostics.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same(const struct diagnostic *a, const struct diagnostic *b) {
    return a->place.line == b->place.line && a->place.column == b->place.column &&
           same_text(a->place.file, b->place.file) && same_text(a->place.origin, b->place.origin) &&
           same_text(a->path, b->path) && same_text(a->text, b->text);
}

void diagnostics_add(struct diagnostics *d, struct place place, const char *path,
                     const char *format, ...) {
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    d->reported++;
    struct diagnostic fresh = { .place = place, .path = path, .text = text };
    for (int64_t i = 0; i < d->count; i++)
        if (same(&d->list[i], &fresh)) return;
    if (d->count == d->capacity) {
        d->capacity = d->capacity ? d->capacity * 2 : 16;
        struct diagnostic *grown = pool_alloc(d->pool, (size_t)d->capacity * sizeof *grown);
        if (d->count) memcpy(grown, d->list, (size_t)d->count * sizeof *grown);
        d->list = grown;
    }
    fresh.path = pool_copy(d->pool, path);
    fresh.text = pool_copy(d->pool, text);
    d->list[d->count++] = fresh;
}
