#include "runner/chat/chat_lines.h"

#include <stdio.h>
#include <string.h>

enum status chat_lines_open(struct chat_lines *l, const char *path, struct err *e) {
    memset(l, 0, sizeof *l);
    l->file = path;
    snprintf(l->path, sizeof l->path, "%s", path);
    return source_open(&l->source, path, e);
}

void chat_lines_close(struct chat_lines *l) {
    source_close(l->source);
    text_free(&l->line);
    l->source = NULL;
}

/* Goes on with the next file of the source; *more is false behind the last. */
static enum status next_file(struct chat_lines *l, bool *more, struct err *e) {
    const char *name;
    bool in_tar;
    TRY(source_next(l->source, &name, &in_tar, e));
    *more = l->inside = name != NULL;
    l->number = 0;
    if (name && in_tar) snprintf(l->path, sizeof l->path, "%s: %.120s", l->file, name);
    return OK;
}

/* Fills the block if it is empty; *more is false at the end of all files. A line ends with its
 * file, so the block is empty where the next one begins. */
static enum status fill(struct chat_lines *l, bool *more, struct err *e) {
    *more = true;
    if (l->at < l->filled) return OK;
    l->at = l->filled = 0;
    if (!l->inside) return next_file(l, more, e);
    TRY(source_read(l->source, l->block, sizeof l->block, &l->filled, e));
    l->inside = l->filled > 0;
    return OK;
}

/* Reads a line without its newline. *more is false if there is none. */
static enum status read_line(struct chat_lines *l, bool *more, struct err *e) {
    bool ends = false, too_long = false;
    l->line.size = 0;
    for (bool begun = false; !ends;) {
        TRY(fill(l, more, e));
        if (!*more) break;
        if (l->at == l->filled && begun && !l->inside) break; /* the file ends without a newline */
        if (l->at == l->filled) continue;
        if (!begun) l->number++;
        begun = true;
        const char *from = l->block + l->at;
        const char *end = memchr(from, '\n', l->filled - l->at);
        size_t n = end ? (size_t)(end - from) : l->filled - l->at;
        too_long |= l->line.size + n > CONVERSATION_LIMIT;
        if (!too_long) text_add(&l->line, from, n);
        l->at += n + (end != NULL);
        ends = end != NULL;
    }
    if (l->line.failed)
        return FAIL(e, ERR_MEMORY, "%s:%lld: no memory for the line", l->path,
                    (long long)l->number);
    if (too_long)
        return FAIL(e, ERR_FORMAT, "%s:%lld: a line of more than %d MiB", l->path,
                    (long long)l->number, CONVERSATION_LIMIT >> 20);
    return OK;
}

enum status chat_lines_next(struct chat_lines *l, struct conversation *out, bool *more,
                            struct err *e) {
    static const char MARK[] = "\xef\xbb\xbf";
    *out = (struct conversation){ 0 };
    for (;;) {
        TRY(read_line(l, more, e));
        if (!*more) return OK;
        const char *bytes = l->line.bytes;
        size_t n = l->line.size;
        if (l->number == 1 && n >= 3 && !memcmp(bytes, MARK, 3)) bytes += 3, n -= 3;
        while (n > 0 && memchr(" \t\r", bytes[n - 1], 3)) n--;
        if (n == 0) continue;
        enum status st = conversation_parse(bytes, n, out, e);
        if (st != OK) err_prefix(e, "%s:%lld", l->path, (long long)l->number);
        return st;
    }
}
