#include "runner/chat/chat_lines.h"

#include <errno.h>
#include <string.h>


enum status chat_lines_open(struct chat_lines *l, const char *path, struct err *e) {
    *l = (struct chat_lines){ .file = fopen(path, "rb"), .path = path };
    return l->file ? OK : FAIL(e, ERR_IO, "open %s: %s", path, strerror(errno));
}

void chat_lines_close(struct chat_lines *l) {
    if (l->file) fclose(l->file);
    text_free(&l->line);
    l->file = NULL;
}

/* Reads a line without its newline. *more is false if no byte was left. */
static enum status read_line(struct chat_lines *l, bool *more, struct err *e) {
    bool too_long = false;
    l->line.size = 0;
    l->number++;
    int c = getc_unlocked(l->file);
    *more = c != EOF;
    for (; c != EOF && c != '\n'; c = getc_unlocked(l->file)) {
        char byte = (char)c;
        too_long |= l->line.size >= CONVERSATION_LIMIT;
        if (!too_long) text_add(&l->line, &byte, 1);
    }
    if (ferror(l->file)) return FAIL(e, ERR_IO, "read %s: %s", l->path, strerror(errno));
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
