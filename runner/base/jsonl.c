#include "runner/base/jsonl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"

void jsonl_open(struct jsonl *j, FILE *file, const char *name) {
    *j = (struct jsonl){ .file = file, .name = name };
}

void jsonl_close(struct jsonl *j) {
    free(j->line);
    j->line = NULL;
    j->capacity = 0;
}

/* Reads a line and removes its newline. *whole is false at the end of the file, even after an
 * incomplete line. fgets and a doubling buffer, because getline accepts any length. */
static enum status read_line(struct jsonl *j, size_t *length, bool *whole, struct err *e) {
    size_t have = 0;
    *whole = false;
    for (;;) {
        if (j->capacity - have < 2) {
            size_t capacity = j->capacity ? 2 * j->capacity : 4096;
            if (capacity > 2 * (size_t)JSONL_LINE_LIMIT)
                return FAIL(e, ERR_FORMAT, "%s:%lld: a line of more than %d bytes", j->name,
                            (long long)j->number, JSONL_LINE_LIMIT);
            char *line = realloc(j->line, capacity);
            if (!line) return FAIL(e, ERR_MEMORY, "%zu bytes for a line of %s", capacity, j->name);
            j->line = line;
            j->capacity = capacity;
        }
        size_t room = j->capacity - have;
        memset(j->line + have, '\n', room); /* marks the end even if the line has NUL bytes */
        if (!fgets(j->line + have, (int)room, j->file)) break;
        char *end = memchr(j->line + have, '\n', room);
        if (end && end + 1 < j->line + j->capacity && end[1] == 0) {
            *length = (size_t)(end - j->line);
            *end = 0;
            *whole = true;
            return OK;
        }
        if (end) break; /* fgets put its NUL before our filler: an incomplete last line */
        have = j->capacity - 1;
    }
    if (ferror(j->file)) return FAIL(e, ERR_IO, "read %s: %s", j->name, strerror(errno));
    return OK;
}

enum status jsonl_next(struct jsonl *j, json_t **out, struct err *e) {
    size_t length = 0;
    bool whole = false;
    *out = NULL;
    j->number++;
    TRY(read_line(j, &length, &whole, e));
    if (!whole) return OK;
    json_error_t why;
    json_t *value = NULL;
    enum status st = json_parse(&value, j->line, length, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(value)) {
        st = FAIL(e, value ? ERR_FORMAT : st, "%s:%lld: %s", j->name, (long long)j->number,
                  value ? "not an object" : why.text);
        json_decref(value);
        return st;
    }
    *out = value;
    return OK;
}
