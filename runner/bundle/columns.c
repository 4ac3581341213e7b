#include "runner/bundle/columns.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"
#include "runner/record/npy.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "columns are read in place");

/* Bounds for hostile headers: far above any real run, and too small to overflow int64_t. */
enum { COLUMNS_MAX = 256, HEADER_LIMIT = 16 << 20 };
/* A walk over a mapping keeps at most about this much of it in memory. */
enum { FORGET_BYTES = 8 << 20 };
static const int64_t VALUES_MAX = INT64_C(1) << 40;

static const char *const TYPES[] = {
    [COLUMN_I64] = "i64", [COLUMN_F64] = "f64", [COLUMN_U32] = "u32", [COLUMN_U64] = "u64",
};
enum { TYPE_COUNT = sizeof TYPES / sizeof *TYPES };

static bool type_of_name(const char *name, enum column_type *out) {
    for (int t = 0; name && t < TYPE_COUNT; t++) {
        if (strcmp(name, TYPES[t]) != 0) continue;
        *out = (enum column_type)t;
        return true;
    }
    return false;
}

/* Parses one column of the header. *end is the end of the data so far; it advances. Columns stand
 * in the order of their offsets, with at most the padding to 8 bytes between them. */
static enum status parse_column(const json_t *item, int64_t rows, char *data, int64_t data_bytes,
                                int64_t *end, const char *name, struct column *out,
                                struct err *e) {
    const json_t *offset = json_object_get(item, "offset"), *width = json_object_get(item, "width");
    out->name = json_text(item, "name", NULL);
    if (!out->name || !type_of_name(json_text(item, "type", NULL), &out->type) ||
        !json_is_integer(offset) || !json_is_integer(width))
        return FAIL(e, ERR_FORMAT, "%s: a column lacks name, offset, type or width", name);
    int64_t at = json_integer_value(offset);
    out->width = json_integer_value(width);
    /* With a width of 0, any number of rows would fit into no bytes. */
    if (out->width < 1 || rows > VALUES_MAX / out->width)
        return FAIL(e, ERR_FORMAT, "%s: column %.100s: width %lld is not possible", name, out->name,
                    (long long)out->width);
    int64_t bytes = rows * out->width * column_type_bytes(out->type);
    if (at != round_up(*end, 8) || bytes > data_bytes || at > data_bytes - bytes)
        return FAIL(e, ERR_FORMAT,
                    "%s: column %.100s: %lld bytes at offset %lld do not fit the %lld bytes of "
                    "data (truncated?)",
                    name, out->name, (long long)bytes, (long long)at, (long long)data_bytes);
    out->data = data + at;
    out->stride = out->width * column_type_bytes(out->type);
    *end = at + bytes;
    return OK;
}

/* With two columns of one name, two readers could use different ones. */
static enum status check_names(const struct columns *c, const char *name, struct err *e) {
    for (int64_t i = 0; i < c->count; i++)
        if (columns_find(c, c->column[i].name) != &c->column[i])
            return FAIL(e, ERR_FORMAT, "%s: two columns are called %.100s", name,
                        c->column[i].name);
    return OK;
}

static enum status make_columns(struct columns *c, int64_t count, const char *name,
                                struct err *e) {
    c->count = count;
    c->column = calloc((size_t)count + 1, sizeof *c->column);
    return c->column ? OK
                     : FAIL(e, ERR_MEMORY, "%lld columns of %s", (long long)count, name);
}

/* ---- .cols ---------------------------------------------------------------------------------- */

static enum status parse_columns(struct columns *c, char *data, int64_t data_bytes,
                                 const char *name, struct err *e) {
    const json_t *items = json_object_get(c->header, "columns");
    const json_t *rows = json_object_get(c->header, "rows");
    if (strcmp(json_text(c->header, "schema", ""), "fp8lab.columns/1") != 0)
        return FAIL(e, ERR_FORMAT, "%s: schema \"%.100s\" is not fp8lab.columns/1", name,
                    json_text(c->header, "schema", ""));
    if (!json_is_array(items) || json_array_size(items) > COLUMNS_MAX || !json_is_integer(rows) ||
        json_integer_value(rows) < 0 || json_integer_value(rows) > VALUES_MAX)
        return FAIL(e, ERR_FORMAT, "%s: the header lacks columns or rows", name);
    c->rows = json_integer_value(rows);
    TRY(make_columns(c, (int64_t)json_array_size(items), name, e));
    int64_t end = 0;
    for (int64_t i = 0; i < c->count; i++)
        TRY(parse_column(json_array_get(items, (size_t)i), c->rows, data, data_bytes, &end, name,
                         &c->column[i], e));
    if (round_up(end, 8) != data_bytes)
        return FAIL(e, ERR_FORMAT, "%s: %lld bytes of data, but its columns end at %lld", name,
                    (long long)data_bytes, (long long)end);
    if (c->rows > 0 && c->count == 0)
        return FAIL(e, ERR_FORMAT, "%s: %lld rows, and no column that holds them", name,
                    (long long)c->rows);
    return check_names(c, name, e);
}

static enum status parse_cols(struct columns *c, size_t n, const char *name, struct err *e) {
    uint64_t header_bytes = 0;
    json_error_t why;
    char *bytes = c->bytes;
    if (n >= 8) memcpy(&header_bytes, bytes, 8);
    if (n < 8 || header_bytes > HEADER_LIMIT || header_bytes > n - 8 || header_bytes % 8 != 0)
        return FAIL(e, ERR_FORMAT, "%s: %zu bytes do not begin with a column header", name, n);
    enum status st = json_parse(&c->header, bytes + 8, header_bytes, JSON_REJECT_DUPLICATES, &why);
    if (st != OK || !json_is_object(c->header))
        return FAIL(e, st == OK ? ERR_FORMAT : st, "%s: column header: %s", name,
                    st == OK ? "not an object" : why.text);
    json_t *labels = json_object_get(c->header, "labels");
    if (json_is_array(labels)) c->labels = json_incref(labels);
    return parse_columns(c, bytes + 8 + header_bytes, (int64_t)(n - 8 - header_bytes), name, e);
}

/* ---- .npy ----------------------------------------------------------------------------------- */

static enum status parse_npy(struct columns *c, size_t n, enum rows_end end, const char *name,
                             struct err *e) {
    struct npy *l = malloc(sizeof *l);
    if (!l) return FAIL(e, ERR_MEMORY, "the columns of %s", name);
    c->names = l;
    TRY(npy_parse(c->bytes, n, name, l, e));
    int64_t bytes = (int64_t)n - l->header_bytes;
    c->rows = bytes / l->row_bytes;
    if (end == ROWS_COMPLETE && (bytes % l->row_bytes != 0 || c->rows != l->rows))
        return FAIL(e, ERR_FORMAT, "%s: the header says %lld rows of %lld bytes, but %lld bytes "
                    "follow it (truncated?)", name, (long long)l->rows, (long long)l->row_bytes,
                    (long long)bytes);
    TRY(make_columns(c, l->count, name, e));
    for (int64_t i = 0; i < l->count; i++)
        c->column[i] = (struct column){
            .name = l->column[i].name, .type = l->column[i].type, .width = l->column[i].width,
            .stride = l->row_bytes,
            .data = (const char *)c->bytes + l->header_bytes + l->column[i].offset };
    return OK;
}

/* ---- both ----------------------------------------------------------------------------------- */

static void release(void *bytes, size_t mapped) {
    if (mapped) munmap(bytes, mapped);
    else free(bytes);
}

/* Takes ownership of bytes, also on failure; `mapped` as in struct columns. */
static enum status parse(void *bytes, size_t n, size_t mapped, enum rows_end end,
                         const char *name, struct columns **out, struct err *e) {
    struct columns *c = calloc(1, sizeof *c);
    if (!c) {
        release(bytes, mapped);
        return FAIL(e, ERR_MEMORY, "columns of %s", name);
    }
    c->bytes = bytes;
    c->mapped = mapped;
    bool npy = n > 0 && *(const unsigned char *)bytes == 0x93;
    enum status st = npy ? parse_npy(c, n, end, name, e) : parse_cols(c, n, name, e);
    if (st == OK) *out = c;
    else columns_destroy(c);
    return st;
}

enum status columns_parse(void *bytes, size_t n, enum rows_end end, const char *name,
                          struct columns **out, struct err *e) {
    return parse(bytes, n, 0, end, name, out, e);
}

enum status columns_map(int fd, int64_t offset, int64_t n, const char *name, struct columns **out,
                        struct err *e) {
    size_t size = (size_t)n;
    void *bytes = size ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, offset) : NULL;
    if (bytes == MAP_FAILED) return FAIL(e, ERR_IO, "map %s: %s", name, strerror(errno));
    return parse(bytes, size, size, ROWS_COMPLETE, name, out, e);
}

void columns_forget(const struct columns *all, const struct column *c, int64_t row) {
    int64_t rows = FORGET_BYTES / c->stride;
    if (rows < 1 || row % rows == 0) (void)madvise(all->bytes, all->mapped, MADV_DONTNEED);
}

static bool is_named(const char *name, const char *const *names) {
    while (*names && strcmp(*names, name) != 0) names++;
    return *names != NULL;
}

void columns_keep(struct columns *c, const char *const *names) {
    int64_t kept = 0;
    for (int64_t i = 0; i < c->count; i++) {
        if (is_named(c->column[i].name, names)) c->column[kept++] = c->column[i];
        else if (c->separate) free((void *)(uintptr_t)c->column[i].data);
    }
    c->count = kept;
}

void columns_destroy(struct columns *c) {
    if (!c) return;
    for (int64_t i = 0; c->separate && i < c->count; i++)
        free((void *)(uintptr_t)c->column[i].data);
    free(c->column);
    free(c->names);
    json_decref(c->labels);
    json_decref(c->header);
    release(c->bytes, c->mapped);
    free(c);
}

const struct column *columns_find(const struct columns *c, const char *name) {
    for (int64_t i = 0; c && i < c->count; i++)
        if (strcmp(c->column[i].name, name) == 0) return &c->column[i];
    return NULL;
}

const struct column *columns_scalar(const struct columns *c, const char *name) {
    const struct column *found = columns_find(c, name);
    return found && found->width == 1 ? found : NULL;
}

const char *columns_label(const struct columns *c, int64_t label) {
    return label < 0 ? NULL : json_string_value(json_array_get(c->labels, (size_t)label));
}
