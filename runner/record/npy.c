#include "runner/record/npy.h"

#include <stdio.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "rows are copied from memory");

static const char MAGIC[8] = "\x93NUMPY\x01";
enum { PREFIX = 10, ALIGN = 64, ROWS_DIGITS = 19 }; /* PREFIX: bytes before the dictionary */

/* Bounds for hostile headers: far above any real run, and too small to overflow int64_t. */
static const int64_t ROWS_MAX = INT64_C(1) << 40, WIDTH_MAX = INT64_C(1) << 24;

static const char *const TYPES[] = {
    [COLUMN_I64] = "<i8", [COLUMN_F64] = "<f8", [COLUMN_U32] = "<f4", [COLUMN_U64] = "<u8",
};
enum { TYPE_COUNT = sizeof TYPES / sizeof *TYPES };

/* ---- writing -------------------------------------------------------------------------------- */

void npy_layout(const struct stream *s, int64_t width, struct npy *out) {
    char header[NPY_HEADER_MAX];
    *out = (struct npy){ .count = s->metric_count };
    for (int64_t i = 0; i < s->metric_count; i++) {
        const struct metric *m = &s->metric[i];
        struct npy_column *c = &out->column[i];
        *c = (struct npy_column){ .type = m->type, .wide = m->wide, .width = m->wide ? width : 1,
                                  .offset = out->row_bytes };
        snprintf(c->name, sizeof c->name, "%s", m->name);
        out->row_bytes += c->width * column_type_bytes(c->type);
    }
    out->header_bytes = npy_header(out, header);
}

int64_t npy_width_of(const struct stream *s, int64_t row_bytes) {
    int64_t single = 0, wide = 0;
    for (int64_t i = 0; i < s->metric_count; i++)
        *(s->metric[i].wide ? &wide : &single) += column_type_bytes(s->metric[i].type);
    int64_t width = (row_bytes - single) / wide;
    return width >= 1 && single + width * wide == row_bytes ? width : 0;
}

int64_t npy_header(const struct npy *l, char out[NPY_HEADER_MAX]) {
    size_t cap = NPY_HEADER_MAX, n = PREFIX;
    n += (size_t)snprintf(out + n, cap - n, "{'descr': [");
    for (int64_t i = 0; i < l->count; i++) {
        const struct npy_column *c = &l->column[i];
        char shape[32] = "";
        if (c->wide) snprintf(shape, sizeof shape, ", (%lld,)", (long long)c->width);
        n += (size_t)snprintf(out + n, cap - n, "%s('%s', '%s'%s)", i ? ", " : "", c->name,
                              TYPES[c->type], shape);
    }
    char rows[ROWS_DIGITS + 1];
    size_t digits = (size_t)snprintf(rows, sizeof rows, "%lld", (long long)l->rows);
    n += (size_t)snprintf(out + n, cap - n, "], 'fortran_order': False, 'shape': (%s,), }", rows);
    /* The same size for any number of rows. */
    size_t size = (size_t)round_up((int64_t)(n + ROWS_DIGITS - digits + 1), ALIGN);
    memset(out + n, ' ', size - n);
    out[size - 1] = '\n';
    uint16_t length = (uint16_t)(size - PREFIX);
    memcpy(out, MAGIC, sizeof MAGIC);
    memcpy(out + sizeof MAGIC, &length, sizeof length);
    return (int64_t)size;
}

void npy_row(const struct stream *s, const struct stream_source *source, const struct npy *l,
             char *out) {
    for (int64_t i = 0; i < l->count; i++) {
        const struct npy_column *c = &l->column[i];
        int64_t bytes = column_type_bytes(c->type);
        for (int64_t k = 0; k < c->width; k++) {
            union stream_value v = s->metric[i].value(source, k);
            memcpy(out + c->offset + k * bytes, &v, (size_t)bytes);
        }
    }
}

/* ---- reading -------------------------------------------------------------------------------- */

struct cursor {
    const char *at, *end;
};

static bool take(struct cursor *c, const char *text) {
    size_t n = strlen(text);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, text, n) != 0) return false;
    c->at += n;
    return true;
}

/* A decimal number of 0 to `most`, without leading zeros. */
static bool take_number(struct cursor *c, int64_t most, int64_t *out) {
    const char *first = c->at;
    int64_t n = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9' && n <= most; c->at++)
        n = 10 * n + (*c->at - '0');
    *out = n;
    return c->at > first && n <= most && (*first != '0' || c->at == first + 1);
}

static bool take_name(struct cursor *c, char out[COLUMN_NAME_CAP]) {
    size_t n = 0;
    for (; c->at < c->end && n + 1 < COLUMN_NAME_CAP; c->at++) {
        char x = *c->at;
        bool word = x == '_' || (x >= 'a' && x <= 'z') || (n > 0 && x >= '0' && x <= '9');
        if (!word) break;
        out[n++] = x;
    }
    out[n] = 0;
    return n > 0;
}

static bool take_type(struct cursor *c, enum column_type *out) {
    for (int t = 0; t < TYPE_COUNT; t++) {
        *out = (enum column_type)t;
        if (take(c, TYPES[t])) return true;
    }
    return false;
}

/* "('amax', '<f4', (3,))" */
static bool take_column(struct cursor *c, struct npy_column *out) {
    *out = (struct npy_column){ .width = 1 };
    if (!take(c, "('") || !take_name(c, out->name) || !take(c, "', '") ||
        !take_type(c, &out->type) || !take(c, "'"))
        return false;
    out->wide = take(c, ", (");
    if (out->wide && (!take_number(c, WIDTH_MAX, &out->width) || out->width < 1 || !take(c, ",)")))
        return false;
    return take(c, ")");
}

static bool known(const struct npy *l, const char *name) {
    for (int64_t i = 0; i < l->count; i++)
        if (strcmp(l->column[i].name, name) == 0) return true;
    return false;
}

static bool take_columns(struct cursor *c, struct npy *out) {
    do {
        struct npy_column column;
        if (out->count == NPY_COLUMNS_MAX || !take_column(c, &column) || known(out, column.name))
            return false;
        column.offset = out->row_bytes;
        out->row_bytes += column.width * column_type_bytes(column.type);
        out->column[out->count++] = column;
    } while (take(c, ", "));
    return true;
}

bool npy_is_torn(const char *bytes, size_t n) {
    uint16_t length = 0;
    if (memcmp(bytes, MAGIC, n < sizeof MAGIC ? n : sizeof MAGIC) != 0) return false;
    if (n < PREFIX) return true;
    memcpy(&length, bytes + sizeof MAGIC, sizeof length);
    return n - PREFIX < length && PREFIX + length <= NPY_HEADER_MAX;
}

enum status npy_parse(const void *bytes, size_t n, const char *name, struct npy *out,
                      struct err *e) {
    const char *text = bytes;
    uint16_t length = 0;
    *out = (struct npy){ 0 };
    if (n >= PREFIX) memcpy(&length, text + sizeof MAGIC, sizeof length);
    if (n < PREFIX || memcmp(text, MAGIC, sizeof MAGIC) != 0 || length > n - PREFIX)
        return FAIL(e, ERR_FORMAT, "%s: %zu bytes do not begin with the header of a NumPy array",
                    name, n);
    struct cursor c = { text + PREFIX, text + PREFIX + length };
    out->header_bytes = PREFIX + length;
    bool good = take(&c, "{'descr': [") && take_columns(&c, out) &&
                take(&c, "], 'fortran_order': False, 'shape': (") &&
                take_number(&c, ROWS_MAX, &out->rows) && take(&c, ",), }");
    while (good && c.at + 1 < c.end && *c.at == ' ') c.at++;
    if (good && c.end - c.at == 1 && *c.at == '\n') return OK;
    return FAIL(e, ERR_FORMAT, "%s: the header of the NumPy array is not understood at byte %lld",
                name, (long long)(c.at - text));
}
