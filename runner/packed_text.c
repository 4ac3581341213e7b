#include "runner/packed_text.h"

#include <stdlib.h>
#include <string.h>

#include "model/ground/input_file.h"
#include "runner/ingest/source.h"

const char *packed_text_kind(const char *path) {
    static const struct { int at; size_t n; const char *magic, *kind; } KINDS[] = {
        { 0, 2, "\x1f\x8b", "gzip" },
        { 0, 4, "\x28\xb5\x2f\xfd", "zstd" },
        { 257, 5, "ustar", "tar" },
    };
    struct input_file f;
    struct err ignored;
    char head[262] = "";
    if (input_open(&f, path, &ignored) != OK) return NULL;
    int64_t n = f.bytes < (int64_t)sizeof head ? f.bytes : (int64_t)sizeof head;
    bool read = input_read(&f, 0, n, head, &ignored) == OK;
    input_close(&f);
    for (size_t i = 0; read && i < sizeof KINDS / sizeof *KINDS; i++)
        if (!memcmp(head + KINDS[i].at, KINDS[i].magic, KINDS[i].n)) return KINDS[i].kind;
    return NULL;
}

/* Appends what of the file in the source there is room for. */
static enum status append_file(struct packed_text *p, struct source *s, struct err *e) {
    size_t n = 0;
    char behind, name[2 * PATH_CAP];
    TRY(source_read(s, p->text + p->bytes, (size_t)(PACKED_TEXT_MAX - p->bytes), &n, e));
    const struct text_head head = source_head(s, name);
    TRY(text_head_check(&head, name, false, e));
    p->bytes += (int64_t)n;
    if (p->bytes < PACKED_TEXT_MAX) return OK;
    TRY(source_read(s, &behind, 1, &n, e));
    p->whole = n == 0;
    return OK;
}

static enum status read_files(struct packed_text *p, struct source *s, struct err *e) {
    const char *name;
    bool inside = false;
    p->whole = true;
    for (;;) {
        TRY(source_next(s, &name, &inside, e));
        if (!name) return OK;
        bool full = p->bytes == PACKED_TEXT_MAX;
        if (!full && p->bytes > 0 && p->text[p->bytes - 1] != '\n') p->text[p->bytes++] = '\n';
        p->files += inside && !full;
        TRY(append_file(p, s, e));
        if (!p->whole) return OK;
    }
}

enum status packed_text_read(struct packed_text *out, const char *path, struct err *e) {
    struct packed_text p = { .text = malloc(PACKED_TEXT_MAX) };
    struct source *s = NULL;
    if (!p.text) return FAIL(e, ERR_MEMORY, "%d bytes to unpack %s", PACKED_TEXT_MAX, path);
    enum status st = source_open(&s, path, e);
    if (st == OK) st = read_files(&p, s, e);
    if (st == OK) st = source_finish(s, p.sha256, &p.packed_bytes, e);
    source_close(s);
    if (st != OK) packed_text_free(&p);
    else *out = p;
    return st;
}

void packed_text_free(struct packed_text *p) {
    free(p->text);
    p->text = NULL;
}
