#include "runner/line_stats.h"

#include <stdlib.h>
#include <string.h>

#include "model/ground/input_file.h"
#include "model/ground/json_safe.h"
#include "runner/chat/conversation.h"

enum { CHUNK = 1 << 16, HEAD = 4096, FIRST_MAX = 16 << 20 /* of the line that is parsed */ };

const char *line_kind_name(enum line_kind kind) {
    static const char *const NAMES[] = { "none", "conversations", "text", "other" };
    return NAMES[kind];
}

/* Counts the lines that are not empty; `filled`: the last one, which has no end yet, is not. */
struct counter { int64_t lines; bool filled; };

static void count_in(struct counter *c, const char *text, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (text[i] == '\n') c->lines += c->filled;
        c->filled = text[i] != '\n' && (c->filled || !strchr(" \t\r", text[i]));
    }
}

static enum status count_lines(const struct input_file *f, int64_t *lines, struct err *e) {
    char *chunk = malloc(CHUNK);
    struct counter c = { 0 };
    enum status st = chunk ? OK : FAIL(e, ERR_MEMORY, "%d bytes to read %s", CHUNK, f->path);
    for (int64_t at = 0, n; st == OK && at < f->bytes; at += n) {
        n = f->bytes - at < CHUNK ? f->bytes - at : CHUNK;
        st = input_read(f, at, n, chunk, e);
        if (st == OK) count_in(&c, chunk, n);
    }
    *lines = c.lines + c.filled;
    free(chunk);
    return st;
}

/* Where the first line with anything on it begins, if it may be an object; -1: it is none. */
static int64_t object_begin(const char *head, int64_t n) {
    int64_t at = n >= 3 && !memcmp(head, "\xef\xbb\xbf", 3) ? 3 : 0;
    while (at < n && head[at] && strchr(" \t\r\n", head[at])) at++;
    return at < n && head[at] == '{' ? at : -1;
}

/* The bytes of the line that begins the text; 0: it does not end there, and there is `more`. */
static size_t line_bytes(const char *text, int64_t n, bool more) {
    const char *end = memchr(text, '\n', (size_t)n);
    if (end) return (size_t)(end - text);
    return more ? 0 : (size_t)n;
}

/* The first line with anything on it, without the white space before it; n 0: there is none, or it
 * is longer than FIRST_MAX. The caller frees *memory. */
static enum status first_line(const struct input_file *f, char **memory, size_t *n,
                              struct err *e) {
    char head[HEAD];
    int64_t some = f->bytes < HEAD ? f->bytes : HEAD;
    *n = 0;
    *memory = NULL;
    TRY(input_read(f, 0, some, head, e));
    int64_t at = object_begin(head, some);
    if (at < 0) return OK; /* most files end here */
    int64_t room = f->bytes - at < FIRST_MAX ? f->bytes - at : FIRST_MAX;
    *memory = malloc((size_t)room);
    if (!*memory) return FAIL(e, ERR_MEMORY, "%lld bytes of %s", (long long)room, f->path);
    TRY(input_read(f, at, room, *memory, e));
    *n = line_bytes(*memory, room, room < f->bytes - at);
    return OK;
}

static enum line_kind kind_of(const json_t *row) {
    struct conversation c;
    struct err ignored;
    if (conversation_read(row, &c, &ignored) == OK) {
        conversation_free(&c);
        return LINES_CONVERSATIONS;
    }
    return json_is_string(json_object_get(row, "text")) ? LINES_TEXT : LINES_OTHER;
}

static enum status look(const char *line, size_t n, struct line_stats *out, struct err *e) {
    json_t *row = NULL;
    json_error_t why;
    const char *key;
    json_t *value;
    bool failed = false;
    enum status st = json_parse(&row, line, n, JSON_ALLOW_NUL, &why);
    if (st == ERR_MEMORY) return FAIL(e, st, "memory for the first line");
    if (st != OK) return OK;
    out->kind = json_is_object(row) ? kind_of(row) : LINES_NONE;
    out->keys = json_array();
    json_object_foreach(row, key, value) json_append(out->keys, json_string(key), &failed);
    json_decref(row);
    return failed || !out->keys ? FAIL(e, ERR_MEMORY, "memory for the keys of a line") : OK;
}

enum status line_stats_memory(const char *text, int64_t n, bool more, struct line_stats *out,
                              struct err *e) {
    struct counter c = { 0 };
    *out = (struct line_stats){ 0 };
    int64_t at = object_begin(text, n < HEAD ? n : HEAD);
    if (at < 0) return OK;
    int64_t room = n - at < FIRST_MAX ? n - at : FIRST_MAX;
    size_t line = line_bytes(text + at, room, more || room < n - at);
    enum status st = line > 0 ? look(text + at, line, out, e) : OK;
    if (st == OK && out->kind != LINES_NONE) count_in(&c, text, n);
    out->lines = c.lines + c.filled;
    if (st != OK) json_decref(out->keys);
    if (st != OK) out->keys = NULL;
    return st;
}

enum status line_stats_file(const char *path, struct line_stats *out, struct err *e) {
    struct input_file f;
    struct err ignored;
    char *memory = NULL;
    size_t n = 0;
    *out = (struct line_stats){ 0 };
    if (input_open(&f, path, &ignored) != OK) return OK;
    enum status st = first_line(&f, &memory, &n, e);
    if (st == OK && n > 0) st = look(memory, n, out, e);
    free(memory);
    if (st == OK && out->kind != LINES_NONE) st = count_lines(&f, &out->lines, e);
    input_close(&f);
    if (st != OK) json_decref(out->keys);
    if (st != OK) out->keys = NULL;
    return st;
}
