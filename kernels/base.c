#include "kernels/base.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum status err_set(struct err *e, enum status code, const char *file, int line, const char *format,
                    ...) {
    assert(code != OK);
    if (!e) return code;
    e->code = code;
    e->file = file;
    e->line = line;
    va_list args;
    va_start(args, format);
    vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
    return code;
}

void err_prefix(struct err *e, const char *format, ...) {
    if (!e) return;
    char old[sizeof e->text];
    memcpy(old, e->text, sizeof old);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
    int room = (int)sizeof e->text - n - 3; /* behind ": ", before the NUL */
    if (n >= 0 && room > 0)
        snprintf(e->text + n, sizeof e->text - (size_t)n, ": %.*s", room, old);
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
