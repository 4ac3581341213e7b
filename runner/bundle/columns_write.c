/* Converts JSON lines to columns in two passes, because a column's offset depends on the number of
 * records. Memory holds one record and one small buffer a column, for any length of the run. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/jsonl.h"
#include "runner/base/run_files.h"
#include "runner/bundle/columns.h"

enum { DRAFTS_MAX = 64, BUFFER_BYTES = 64 * 1024 };

/* The kinds of values that a key had; they decide the column's type. */
enum kind { KIND_NONE, KIND_WHOLE, KIND_REAL, KIND_HEX8, KIND_HEX16, KIND_TEXT };

struct draft {
    char *name; /* owned */
    enum kind kind;
    bool missing;           /* a record has null or no value for the key */
    bool sized;             /* width is known */
    int64_t width, seen;    /* values a record; records that had the key */
    enum column_type type;  /* members below: second pass only */
    int64_t offset, filled; /* next byte to write, beginning at the data; bytes in buffer */
    char *buffer;           /* owned */
};

struct conversion {
    struct jsonl lines;
    struct draft draft[DRAFTS_MAX];
    int64_t count, rows, data_at; /* data_at: offset of the data in the file */
    int fd;
};

static bool hex_value(const char *text, size_t digits, uint64_t *out) {
    if (strlen(text) != digits || strspn(text, "0123456789abcdef") != digits) return false;
    *out = strtoull(text, NULL, 16);
    return true;
}

static enum kind kind_of(const json_t *value) {
    uint64_t bits;
    if (json_is_integer(value) || json_is_boolean(value)) return KIND_WHOLE;
    if (json_is_real(value)) return KIND_REAL;
    if (json_is_null(value)) return KIND_NONE;
    if (json_is_string(value) && hex_value(json_string_value(value), 8, &bits)) return KIND_HEX8;
    if (json_is_string(value) && hex_value(json_string_value(value), 16, &bits)) return KIND_HEX16;
    return KIND_TEXT;
}

/* The kind that can hold values of both kinds; text if no other can. */
static enum kind kind_join(enum kind a, enum kind b) {
    if (a == b || b == KIND_NONE) return a;
    if (a == KIND_NONE) return b;
    if ((a == KIND_WHOLE && b == KIND_REAL) || (a == KIND_REAL && b == KIND_WHOLE))
        return KIND_REAL;
    return KIND_TEXT;
}

static struct draft *draft_find(struct conversion *c, const char *name) {
    for (int64_t i = 0; i < c->count; i++)
        if (strcmp(c->draft[i].name, name) == 0) return &c->draft[i];
    return NULL;
}

static enum status draft_add(struct conversion *c, const char *name, struct draft **out,
                             struct err *e) {
    if (c->count == DRAFTS_MAX)
        return FAIL(e, ERR_FORMAT, "%s:%lld: more than %d different keys", c->lines.name,
                    (long long)c->lines.number, DRAFTS_MAX);
    char *copy = strdup(name);
    if (!copy) return FAIL(e, ERR_MEMORY, "the key %s", name);
    *out = &c->draft[c->count++];
    **out = (struct draft){ .name = copy, .missing = c->rows > 0 };
    return OK;
}

/* First pass, one key of one record. */
static enum status learn_value(struct conversion *c, const char *key, const json_t *value,
                               struct err *e) {
    struct draft *d = draft_find(c, key);
    if (!d) TRY(draft_add(c, key, &d, e));
    d->seen++;
    if (json_is_null(value)) {
        d->missing = true;
        return OK;
    }
    int64_t width = json_is_array(value) ? (int64_t)json_array_size(value) : 1;
    if (!json_is_array(value)) d->kind = kind_join(d->kind, kind_of(value));
    size_t i;
    const json_t *item;
    json_array_foreach(value, i, item) {
        if (json_is_null(item)) d->missing = true;
        d->kind = kind_join(d->kind, kind_of(item));
    }
    if (d->sized && d->width != width)
        return FAIL(e, ERR_FORMAT, "%s:%lld: \"%s\" has %lld values, and %lld before",
                    c->lines.name, (long long)c->lines.number, key, (long long)width,
                    (long long)d->width);
    d->sized = true;
    d->width = width;
    return OK;
}

static enum status learn(struct conversion *c, struct err *e) {
    for (;;) {
        json_t *record = NULL;
        TRY(jsonl_next(&c->lines, &record, e));
        if (!record) break;
        enum status st = OK;
        const char *key;
        json_t *value;
        json_object_foreach(record, key, value) {
            if (st == OK) st = learn_value(c, key, value, e);
        }
        json_decref(record);
        if (st != OK) return st;
        c->rows++;
    }
    return OK;
}

/* Drops keys without a column, decides types, and sets the offset of each column. */
static void lay_out(struct conversion *c) {
    int64_t kept = 0, end = 0;
    for (int64_t i = 0; i < c->count; i++) {
        struct draft d = c->draft[i];
        bool gaps = d.missing || d.seen < c->rows;
        if (d.kind == KIND_NONE || d.kind == KIND_TEXT) {
            free(d.name);
            continue;
        }
        d.type = d.kind == KIND_HEX8    ? COLUMN_U32
                 : d.kind == KIND_HEX16 ? COLUMN_U64
                 : d.kind == KIND_REAL || gaps ? COLUMN_F64
                                               : COLUMN_I64;
        d.offset = end;
        end = round_up(end + c->rows * d.width * column_type_bytes(d.type), 8);
        c->draft[kept++] = d;
    }
    c->count = kept;
}

static enum status write_at(struct conversion *c, const void *bytes, size_t n, int64_t at,
                            struct err *e) {
    const char *from = bytes;
    while (n > 0) {
        ssize_t put = pwrite(c->fd, from, n, at);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0)
            return FAIL(e, ERR_IO, "write the columns of %s: %s", c->lines.name, strerror(errno));
        from += put;
        at += put;
        n -= (size_t)put;
    }
    return OK;
}

static enum status write_header(struct conversion *c, json_t *labels, struct err *e) {
    json_t *header = json_pack("{s:s, s:I, s:[]}", "schema", "fp8lab.columns/1", "rows",
                               (json_int_t)(c->count ? c->rows : 0), "columns");
    int64_t end = 0;
    bool failed = false;
    for (int64_t i = 0; i < c->count; i++) {
        const struct draft *d = &c->draft[i];
        json_append(json_object_get(header, "columns"),
                    json_pack("{s:s, s:s, s:I, s:I}", "name", d->name, "type",
                              column_type_name(d->type), "width", (json_int_t)d->width, "offset",
                              (json_int_t)d->offset), &failed);
        end = round_up(d->offset + c->rows * d->width * column_type_bytes(d->type), 8);
    }
    if (labels) json_put(header, "labels", json_incref(labels), &failed);
    char *text = header && !failed ? json_dump_text(header, JSON_SORT_KEYS | JSON_COMPACT) : NULL;
    json_decref(header);
    if (!text) return FAIL(e, ERR_MEMORY, "the column header of %s", c->lines.name);
    int64_t length = (int64_t)strlen(text), padded = round_up(length, 8);
    uint64_t prefix = (uint64_t)padded;
    c->data_at = 8 + padded;
    enum status st = write_at(c, &prefix, 8, 0, e);
    if (st == OK) st = write_at(c, text, (size_t)length, 8, e);
    if (st == OK && padded > length)
        st = write_at(c, "       ", (size_t)(padded - length), 8 + length, e);
    free(text);
    /* Sets the final length of the file, with the padding of the last column. */
    if (st == OK && ftruncate(c->fd, c->data_at + end) != 0)
        st = FAIL(e, ERR_IO, "size the columns of %s: %s", c->lines.name, strerror(errno));
    return st;
}

static enum status draft_flush(struct conversion *c, struct draft *d, struct err *e) {
    TRY(write_at(c, d->buffer, (size_t)d->filled, c->data_at + d->offset, e));
    d->offset += d->filled;
    d->filled = 0;
    return OK;
}

union cell {
    int64_t i;
    double f;
    uint64_t u;
};

static union cell cell_of(enum column_type type, const json_t *value) {
    union cell v = { 0 };
    const char *text = json_string_value(value);
    switch (type) {
    case COLUMN_I64: v.i = json_is_true(value) ? 1 : json_integer_value(value); break;
    case COLUMN_F64:
        v.f = json_is_true(value)                              ? 1.0
              : json_is_false(value)                           ? 0.0
              : json_is_number(value) ? json_number_value(value) : (double)NAN;
        break;
    case COLUMN_U32: v.u = text ? strtoull(text, NULL, 16) : UINT32_MAX; break;
    case COLUMN_U64: v.u = text ? strtoull(text, NULL, 16) : UINT64_MAX; break;
    }
    return v;
}

static enum status draft_put(struct conversion *c, struct draft *d, const json_t *value,
                             struct err *e) {
    union cell v = cell_of(d->type, value);
    if (d->filled + 8 > BUFFER_BYTES) TRY(draft_flush(c, d, e));
    /* Little-endian: the low four bytes of a u32 come first. */
    memcpy(d->buffer + d->filled, &v, (size_t)column_type_bytes(d->type));
    d->filled += column_type_bytes(d->type);
    return OK;
}

static enum status put_record(struct conversion *c, const json_t *record, struct err *e) {
    for (int64_t k = 0; k < c->count; k++) {
        struct draft *d = &c->draft[k];
        const json_t *value = json_object_get(record, d->name);
        for (int64_t i = 0; i < d->width; i++) {
            const json_t *item = json_is_array(value) ? json_array_get(value, (size_t)i) : value;
            TRY(draft_put(c, d, item, e));
        }
    }
    return OK;
}

static enum status fill(struct conversion *c, struct err *e) {
    for (int64_t i = 0; i < c->count; i++) {
        c->draft[i].buffer = malloc(BUFFER_BYTES);
        if (!c->draft[i].buffer) return FAIL(e, ERR_MEMORY, "%d bytes a column", BUFFER_BYTES);
    }
    TRY(jsonl_rewind(&c->lines, e));
    /* Only as many records as in the first pass: a live run may have appended since. */
    for (int64_t row = 0; row < c->rows; row++) {
        json_t *record = NULL;
        TRY(jsonl_next(&c->lines, &record, e));
        if (!record) return FAIL(e, ERR_IO, "%s became shorter while it was read", c->lines.name);
        enum status st = put_record(c, record, e);
        json_decref(record);
        if (st != OK) return st;
    }
    for (int64_t i = 0; i < c->count; i++) TRY(draft_flush(c, &c->draft[i], e));
    return OK;
}

/* Whether a column of the type may hold the value; one that it cannot would look like a missing
 * one. */
static bool fits(enum column_type type, const json_t *value) {
    enum kind kind = value ? kind_of(value) : KIND_NONE;
    switch (type) {
    case COLUMN_I64: return kind == KIND_WHOLE;
    case COLUMN_F64: return kind == KIND_WHOLE || kind == KIND_REAL || kind == KIND_NONE;
    case COLUMN_U32: return kind == KIND_HEX8 || kind == KIND_NONE;
    case COLUMN_U64: return kind == KIND_HEX16 || kind == KIND_NONE;
    }
    return false;
}

bool columns_hold(const struct column *c, int64_t row, const json_t *value) {
    bool list = json_is_array(value);
    size_t size = (size_t)column_type_bytes(c->type);
    if (list && (int64_t)json_array_size(value) != c->width) return false;
    for (int64_t i = 0; i < c->width; i++) {
        const json_t *item = list ? json_array_get(value, (size_t)i) : value;
        union cell v = cell_of(c->type, item);
        int64_t at = row * c->width + i;
        bool gap = c->type == COLUMN_F64 && isnan(v.f) && isnan(column_value(c, at));
        if (!fits(c->type, item)) return false;
        /* Little-endian, as in draft_put(). */
        if (!gap && memcmp(&v, (const char *)c->data + (size_t)at * size, size) != 0) return false;
    }
    return true;
}

enum status columns_convert(FILE *in, const char *name, json_t *labels, int fd, int64_t *rows,
                            struct err *e) {
    struct conversion c = { .fd = fd };
    jsonl_open(&c.lines, in, name);
    enum status st = jsonl_rewind(&c.lines, e);
    if (st == OK) st = learn(&c, e);
    if (st == OK) lay_out(&c);
    if (st == OK) st = write_header(&c, labels, e);
    if (st == OK) st = fill(&c, e);
    if (st == OK && rows) *rows = c.rows;
    for (int64_t i = 0; i < c.count; i++) {
        free(c.draft[i].name);
        free(c.draft[i].buffer);
    }
    jsonl_close(&c.lines);
    return st;
}

enum status columns_convert_file(const char *jsonl_path, const char *labels_path,
                                 const char *cols_path, int64_t *rows, struct err *e) {
    char temporary[PATH_CAP];
    int length = snprintf(temporary, sizeof temporary, "%s.partial", cols_path);
    if (length < 0 || length >= PATH_CAP)
        return FAIL(e, ERR_ARG, "path too long: %.200s…", cols_path);
    enum status st = OK;
    json_t *labels = NULL;
    FILE *in = NULL;
    int fd = -1;
    if (labels_path && path_exists(labels_path)) {
        st = json_file_read(labels_path, &labels, e);
        if (st != OK) goto done;
    }
    in = fopen(jsonl_path, "rbe");
    fd = open(temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (!in || fd < 0) {
        st = FAIL(e, ERR_IO, "open %s: %s", in ? temporary : jsonl_path, strerror(errno));
        goto done;
    }
    st = columns_convert(in, jsonl_path, labels, fd, rows, e);
    if (st == OK && fsync(fd) != 0)
        st = FAIL(e, ERR_IO, "fsync %s: %s", temporary, strerror(errno));
    if (st == OK && rename(temporary, cols_path) != 0)
        st = FAIL(e, ERR_IO, "rename to %s: %s", cols_path, strerror(errno));
done:
    if (fd >= 0) close(fd);
    if (st != OK && fd >= 0) unlink(temporary);
    if (in) fclose(in);
    json_decref(labels);
    return st;
}
