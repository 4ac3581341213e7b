#include "kernels/base.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A text that is too long loses its middle, so that a name of any length leaves room for the
 * rest of the sentence. */
static void fill(struct err *e, const char *format, va_list args) {
    static const char CUT[] = " [...] ";
    const size_t tail = sizeof e->text / 2, cut = sizeof CUT - 1;
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(e->text, sizeof e->text, format, args);
    char *whole = n >= (int)sizeof e->text ? malloc((size_t)n + 1) : NULL;
    if (whole && vsnprintf(whole, (size_t)n + 1, format, again) == n) {
        char *end = e->text + sizeof e->text - 1 - tail;
        memcpy(end - cut, CUT, cut);
        memcpy(end, whole + (size_t)n - tail, tail + 1);
    }
    va_end(again);
    free(whole);
}

static void fill_words(struct err *e, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fill(e, format, args);
    va_end(args);
}

enum status err_set(struct err *e, enum status code, const char *file, int line, const char *format,
                    ...) {
    assert(code != OK);
    if (!e) return code;
    e->code = code;
    e->file = file;
    e->line = line;
    va_list args;
    va_start(args, format);
    fill(e, format, args);
    va_end(args);
    return code;
}

void err_prefix(struct err *e, const char *format, ...) {
    if (!e) return;
    struct err what, old = *e;
    va_list args;
    va_start(args, format);
    fill(&what, format, args);
    va_end(args);
    fill_words(e, "%s: %s", what.text, old.text);
}

const char *status_name(enum status code) {
    switch (code) {
    case OK: return "OK";
    case ERR_ARG: return "ERR_ARG";
    case ERR_CONFIG: return "ERR_CONFIG";
    case ERR_IO: return "ERR_IO";
    case ERR_FORMAT: return "ERR_FORMAT";
    case ERR_MEMORY: return "ERR_MEMORY";
    case ERR_NUMERIC: return "ERR_NUMERIC";
    case ERR_DEVICE: return "ERR_DEVICE";
    case ERR_HARDWARE: return "ERR_HARDWARE";
    case ERR_UNSUPPORTED: return "ERR_UNSUPPORTED";
    case ERR_INTERRUPTED: return "ERR_INTERRUPTED";
    case ERR_VERIFY: return "ERR_VERIFY";
    case ERR_PEER: return "ERR_PEER";
    case ERR_STATE: return "ERR_STATE";
    }
    return "ERR_UNKNOWN";
}

int64_t arena_reserve(struct arena *a, int64_t bytes) {
    assert(bytes >= 0 && !a->base);
    int64_t offset = a->bytes;
    a->bytes = round_up(offset + bytes, ARENA_ALIGN);
    return offset;
}

void *arena_at(const struct arena *a, int64_t offset) {
    return a->base ? (char *)a->base + offset : NULL;
}
