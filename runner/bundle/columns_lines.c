/* JSON lines to columns, in one pass. A line as this program writes it (one flat object without
 * spaces and escapes) is read in place: `compare` reads 100,000 lines of ten runs in less than a
 * second. jansson parses any other line. */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/jsonl.h"
#include "runner/bundle/columns.h"

/* SPARE_VALUES: a file may have this many values more than it has bytes. A real line has more bytes
 * than values; a hostile one could be "{}" and claim memory for 64 columns. */
enum { DRAFTS_MAX = 64, ROWS_FIRST = 1024, SPARE_VALUES = 1 << 16 };

/* The kinds of values that a key had; they decide the column's type. */
enum kind { KIND_NONE, KIND_WHOLE, KIND_REAL, KIND_HEX8, KIND_HEX16, KIND_TEXT };

/* What a column holds for a record without the key: NaN, or all ones. */
#define ABSENT ((union stream_value){ .u = UINT64_MAX })

struct draft {
    char name[COLUMN_NAME_CAP];
    size_t length;            /* of name */
    bool plain;               /* the name stands in the file as it is, without escapes */
    enum kind kind;
    int64_t row;              /* the last row with the key */
    union stream_value *cell; /* [capacity]; owned */
};

struct lines_reader {
    char *name; /* owned */
    char *begun; /* the beginning of a line whose end has not come; owned */
    size_t begun_bytes, begun_capacity;
    struct draft draft[DRAFTS_MAX];
    int64_t count, rows, capacity;
    int64_t bytes; /* of the lines read so far */
    int64_t next; /* the draft whose key is expected next: lines have their keys in one order */
};

/* ---- drafts --------------------------------------------------------------------------------- */

static enum status grow(struct lines_reader *r, struct err *e) {
    if (r->count * r->rows > r->bytes + SPARE_VALUES)
        return FAIL(e, ERR_FORMAT, "%s:%lld: %lld keys in %lld bytes: most records lack most keys",
                    r->name, (long long)r->rows, (long long)r->count, (long long)r->bytes);
    int64_t capacity = r->capacity ? 2 * r->capacity : ROWS_FIRST;
    for (int64_t i = 0; i < r->count; i++) {
        struct draft *d = &r->draft[i];
        void *cell = realloc(d->cell, (size_t)capacity * sizeof *d->cell);
        if (!cell)
            return FAIL(e, ERR_MEMORY, "%lld records of %s", (long long)capacity, r->name);
        d->cell = cell;
    }
    r->capacity = capacity;
    return OK;
}

static bool is_digit(char x) { return x >= '0' && x <= '9'; }

/* The end of the plain characters at key. */
static const char *plain_end(const char *key) {
    while (*key == '_' || (*key >= 'a' && *key <= 'z') || is_digit(*key)) key++;
    return key;
}

static enum status add_draft(struct lines_reader *r, const char *key, size_t n, struct draft **out,
                             struct err *e) {
    if (r->count == DRAFTS_MAX)
        return FAIL(e, ERR_FORMAT, "%s:%lld: more than %d different keys", r->name,
                    (long long)r->rows + 1, DRAFTS_MAX);
    if ((r->count + 1) * r->rows > r->bytes + SPARE_VALUES)
        return FAIL(e, ERR_FORMAT, "%s:%lld: %lld keys in %lld records of %lld bytes: most records "
                    "lack most keys", r->name, (long long)r->rows + 1, (long long)r->count + 1,
                    (long long)r->rows, (long long)r->bytes);
    struct draft *d = &r->draft[r->count];
    *d = (struct draft){ .length = n, .row = -1,
                         .cell = malloc((size_t)r->capacity * sizeof *d->cell) };
    if (!d->cell) return FAIL(e, ERR_MEMORY, "%lld records of %s", (long long)r->capacity, r->name);
    memcpy(d->name, key, n);
    d->plain = plain_end(d->name) == d->name + n;
    for (int64_t i = 0; i < r->rows; i++) d->cell[i] = ABSENT;
    r->count++;
    *out = d;
    return OK;
}

static void expect_after(struct lines_reader *r, const struct draft *d) {
    r->next = d + 1 < r->draft + r->count ? d + 1 - r->draft : 0;
}

/* The draft of the key at `key` if it is the expected one, else NULL. The line ends at `end`. */
static struct draft *expected_draft(struct lines_reader *r, const char *key, const char *end) {
    struct draft *d = &r->draft[r->next];
    if (r->count == 0 || !d->plain || (size_t)(end - key) <= d->length) return NULL;
    if (memcmp(key, d->name, d->length) != 0) return NULL;
    if (key[d->length] != '"') return NULL;
    expect_after(r, d);
    return d;
}

/* The draft of a key; a new one if no line had the key before. */
static enum status find_draft(struct lines_reader *r, const char *key, size_t n,
                              struct draft **out, struct err *e) {
    struct draft *d = r->draft, *end = r->draft + r->count;
    while (d < end && (d->length != n || memcmp(d->name, key, n) != 0)) d++;
    if (d == end) return add_draft(r, key, n, out, e);
    expect_after(r, d);
    *out = d;
    return OK;
}

/* Whole numbers become doubles when a record lacks the key, or has another number for it. */
static void make_real(struct draft *d, int64_t rows) {
    for (int64_t i = 0; i < rows; i++) d->cell[i].f = (double)d->cell[i].i;
    d->kind = KIND_REAL;
}

/* Sets the value of the current row; twice gives the same. */
static void put(struct lines_reader *r, struct draft *d, enum kind kind, union stream_value v) {
    d->row = r->rows;
    if (kind == KIND_NONE) v = ABSENT;
    /* Without a kind, no earlier record has a value. */
    if (d->kind == KIND_NONE) d->kind = kind == KIND_WHOLE && r->rows > 0 ? KIND_REAL : kind;
    if (d->kind == KIND_WHOLE && (kind == KIND_REAL || kind == KIND_NONE)) make_real(d, r->rows);
    if (d->kind == KIND_REAL && kind == KIND_WHOLE) {
        v.f = (double)v.i;
        kind = KIND_REAL;
    }
    if (kind != KIND_NONE && kind != d->kind) d->kind = KIND_TEXT;
    d->cell[r->rows] = v;
}

/* Ends a row: keys that the record lacks are absent. */
static void end_row(struct lines_reader *r) {
    for (int64_t i = 0; i < r->count; i++) {
        struct draft *d = &r->draft[i];
        if (d->row == r->rows) continue;
        if (d->kind == KIND_WHOLE) make_real(d, r->rows);
        d->cell[r->rows] = ABSENT;
    }
    r->rows++;
}

/* ---- a line, by jansson --------------------------------------------------------------------- */

static bool hex_value(const char *text, size_t digits, uint64_t *out) {
    uint64_t bits = 0;
    for (size_t i = 0; i < digits; i++) {
        char x = text[i];
        bool letter = x >= 'a' && x <= 'f';
        if (!letter && (x < '0' || x > '9')) return false;
        bits = bits << 4 | (uint64_t)(letter ? x - 'a' + 10 : x - '0');
    }
    *out = bits;
    return true;
}

static enum kind hex_kind(const char *text, size_t n, union stream_value *v) {
    if (n == 8 && hex_value(text, 8, &v->u)) return KIND_HEX8;
    if (n == 16 && hex_value(text, 16, &v->u)) return KIND_HEX16;
    return KIND_TEXT;
}

static enum kind kind_of(const json_t *value, union stream_value *v) {
    switch (json_typeof(value)) {
    case JSON_NULL: return KIND_NONE;
    case JSON_TRUE:
    case JSON_FALSE: v->i = json_is_true(value); return KIND_WHOLE;
    case JSON_INTEGER: v->i = json_integer_value(value); return KIND_WHOLE;
    case JSON_REAL: v->f = json_real_value(value); return KIND_REAL;
    case JSON_STRING:
        return hex_kind(json_string_value(value), json_string_length(value), v);
    case JSON_OBJECT:
    case JSON_ARRAY: break;
    }
    return KIND_TEXT;
}

static enum status parse_line(struct lines_reader *r, const char *line, size_t n, struct err *e) {
    json_error_t why;
    json_t *record = NULL;
    enum status st = json_parse(&record, line, n, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(record)) {
        st = FAIL(e, record ? ERR_FORMAT : st, "%s:%lld: %s", r->name, (long long)r->rows + 1,
                  record ? "not an object" : why.text);
        json_decref(record);
        return st;
    }
    const char *key;
    json_t *value;
    json_object_foreach(record, key, value) {
        union stream_value v = { 0 };
        struct draft *d = NULL;
        size_t length = strlen(key);
        if (length >= COLUMN_NAME_CAP) continue;
        st = find_draft(r, key, length, &d, e);
        if (st != OK) break;
        enum kind kind = kind_of(value, &v);
        put(r, d, kind, v);
    }
    json_decref(record);
    return st;
}

/* ---- a line, in place ----------------------------------------------------------------------- */

/* Exact powers of ten: as double up to 10^22, with 64 bits of mantissa up to 10^27. */
static const long double POWERS[] = {
    1e0L, 1e1L, 1e2L, 1e3L, 1e4L, 1e5L, 1e6L, 1e7L, 1e8L, 1e9L,
    1e10L, 1e11L, 1e12L, 1e13L, 1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L,
    1e20L, 1e21L, 1e22L, 1e23L, 1e24L, 1e25L, 1e26L, 1e27L,
};
enum { DOUBLE_POWER_MAX = 22, LONG_POWER_MAX = 27 };

/* Reads digits into *value; *exact becomes false if the value does not hold all of them. */
static const char *take_digits(const char *p, uint64_t *value, bool *exact) {
    for (; is_digit(*p); p++) {
        if (*value < UINT64_C(1000000000000000000)) *value = 10 * *value + (uint64_t)(*p - '0');
        else *exact = false;
    }
    return p;
}

/* The double nearest to digits / 10^fraction; false: strtod must find it. A quotient of two exact
 * numbers is rounded once, so it is the nearest (Clinger 1990, "How to Read Floating Point Numbers
 * Accurately"). On x86 a quotient with 64 bits of mantissa is rounded again, to the 53 of a double.
 * The second rounding is wrong only if the first one ends exactly between two doubles. */
static bool nearest(uint64_t digits, int64_t fraction, double *out) {
    if (digits <= UINT64_C(1) << 53 && fraction <= DOUBLE_POWER_MAX) {
        *out = (double)digits / (double)POWERS[fraction];
        return true;
    }
#if LDBL_MANT_DIG == 64
    if (fraction <= LONG_POWER_MAX) {
        long double quotient = (long double)digits / POWERS[fraction];
        uint64_t mantissa;
        memcpy(&mantissa, &quotient, sizeof mantissa);
        *out = (double)quotient;
        return (mantissa & 0x7ff) != 0x400;
    }
#endif
    return false;
}

/* Reads a number of JSON at p; returns its end, or NULL if jansson must read the line. */
static const char *take_number(const char *p, enum kind *kind, union stream_value *v) {
    const char *first = p;
    uint64_t digits = 0;
    bool negative = *p == '-', exact = true;
    const char *begin = p += negative;
    p = take_digits(p, &digits, &exact);
    if (p == begin || p - begin > 18 || (*begin == '0' && p > begin + 1)) return NULL;
    if (*p == 'e' || *p == 'E') return NULL;
    if (*p != '.') {
        *kind = KIND_WHOLE;
        v->i = negative ? -(int64_t)digits : (int64_t)digits;
        return p;
    }
    const char *point = p++;
    p = take_digits(p, &digits, &exact);
    if (p == point + 1 || *p == 'e' || *p == 'E') return NULL;
    *kind = KIND_REAL;
    double x;
    if (exact && nearest(digits, p - point - 1, &x)) {
        v->f = negative ? -x : x;
        return p;
    }
    char *end;
    v->f = strtod(first, &end); /* stops at p: the line goes on with a comma or a brace */
    return end == p ? p : NULL;
}

static const char *take_value(const char *p, enum kind *kind, union stream_value *v) {
    if (*p == '"') {
        bool eight = hex_value(p + 1, 8, &v->u) && p[9] == '"';
        if (!eight && !(hex_value(p + 1, 16, &v->u) && p[17] == '"')) return NULL;
        *kind = eight ? KIND_HEX8 : KIND_HEX16;
        return p + (eight ? 10 : 18);
    }
    if (p[0] == 'n' && p[1] == 'u' && p[2] == 'l' && p[3] == 'l') {
        *kind = KIND_NONE;
        return p + 4;
    }
    return take_number(p, kind, v);
}

/* Reads a key that was not expected at *p, up to the quote behind it. *out is NULL if jansson must
 * read the line. */
static enum status take_new_key(struct lines_reader *r, const char **p, struct draft **out,
                                struct err *e) {
    const char *key = *p, *end = plain_end(key);
    size_t n = (size_t)(end - key);
    if (*end != '"' || n >= COLUMN_NAME_CAP) return OK;
    *p = end;
    return find_draft(r, key, n, out, e);
}

/* Reads one line, up to the newline at `end`. No test goes past it, since nothing here accepts a
 * newline. *done is false if jansson must read it. */
static enum status take_line(struct lines_reader *r, const char *p, const char *end, bool *done,
                             struct err *e) {
    *done = false;
    if (*p++ != '{') return OK;
    for (;; p++) {
        if (*p++ != '"') return OK;
        struct draft *d = expected_draft(r, p, end);
        if (d) p += d->length;
        else TRY(take_new_key(r, &p, &d, e));
        if (!d || p[1] != ':') return OK;
        if (d->row == r->rows) return OK; /* the key occurs twice: an error */
        enum kind kind = KIND_NONE;
        union stream_value v = { 0 };
        p = take_value(p + 2, &kind, &v);
        if (!p) return OK;
        put(r, d, kind, v);
        if (*p != ',') break;
    }
    *done = p[0] == '}' && p[1] == '\n';
    return OK;
}

/* ---- all lines ------------------------------------------------------------------------------ */

static enum status too_long(const struct lines_reader *r, struct err *e) {
    return FAIL(e, ERR_FORMAT, "%s:%lld: a line of more than %d bytes", r->name,
                (long long)r->rows + 1, JSONL_LINE_LIMIT);
}

/* Reads one line of n bytes, and the newline behind them. */
static enum status read_line(struct lines_reader *r, const char *line, size_t n, struct err *e) {
    if (n > JSONL_LINE_LIMIT) return too_long(r, e);
    if (r->rows == r->capacity) TRY(grow(r, e));
    bool done = false;
    TRY(take_line(r, line, line + n, &done, e));
    if (!done) TRY(parse_line(r, line, n, e));
    end_row(r);
    r->bytes += (int64_t)n + 1;
    return OK;
}

/* Keeps n more bytes of a line whose end has not come. */
static enum status keep_begun(struct lines_reader *r, const char *bytes, size_t n, struct err *e) {
    size_t need = r->begun_bytes + n;
    if (need > JSONL_LINE_LIMIT + 1) return too_long(r, e);
    if (need > r->begun_capacity) {
        char *more = realloc(r->begun, 2 * need);
        if (!more) return FAIL(e, ERR_MEMORY, "%zu bytes of %s", 2 * need, r->name);
        r->begun = more;
        r->begun_capacity = 2 * need;
    }
    if (n > 0) memcpy(r->begun + r->begun_bytes, bytes, n);
    r->begun_bytes = need;
    return OK;
}

enum status lines_reader_add(struct lines_reader *r, const char *bytes, size_t n, struct err *e) {
    for (const char *end = bytes + n, *stop; bytes < end; bytes = stop + 1) {
        stop = memchr(bytes, '\n', (size_t)(end - bytes));
        if (!stop) return keep_begun(r, bytes, (size_t)(end - bytes), e);
        if (r->begun_bytes > 0) {
            TRY(keep_begun(r, bytes, (size_t)(stop + 1 - bytes), e));
            TRY(read_line(r, r->begun, r->begun_bytes - 1, e));
            r->begun_bytes = 0;
        } else {
            TRY(read_line(r, bytes, (size_t)(stop - bytes), e));
        }
    }
    return OK;
}

/* Moves the cells of the drafts that are numbers to columns. */
static enum status make_columns(struct lines_reader *r, struct columns *c, struct err *e) {
    static const enum column_type TYPES[] = { [KIND_WHOLE] = COLUMN_I64, [KIND_REAL] = COLUMN_F64,
                                              [KIND_HEX8] = COLUMN_U32,
                                              [KIND_HEX16] = COLUMN_U64 };
    char(*names)[COLUMN_NAME_CAP] = c->names = calloc((size_t)r->count + 1, sizeof *names);
    c->column = calloc((size_t)r->count + 1, sizeof *c->column);
    if (!c->names || !c->column)
        return FAIL(e, ERR_MEMORY, "%lld columns of %s", (long long)r->count, r->name);
    c->separate = true;
    for (int64_t i = 0; i < r->count; i++) {
        struct draft *d = &r->draft[i];
        if (d->kind == KIND_NONE || d->kind == KIND_TEXT) continue;
        memcpy(names[c->count], d->name, sizeof d->name);
        c->column[c->count] = (struct column){ .name = names[c->count], .type = TYPES[d->kind],
                                               .width = 1, .stride = sizeof *d->cell,
                                               .data = (const char *)d->cell };
        d->cell = NULL; /* moved to the columns */
        c->count++;
    }
    c->rows = c->count ? r->rows : 0;
    return OK;
}

enum status lines_reader_create(const char *name, struct lines_reader **out, struct err *e) {
    struct lines_reader *r = calloc(1, sizeof *r);
    if (r) r->name = strdup(name);
    if (!r || !r->name) {
        free(r);
        return FAIL(e, ERR_MEMORY, "the records of %s", name);
    }
    *out = r;
    return OK;
}

void lines_reader_destroy(struct lines_reader *r) {
    if (!r) return;
    for (int64_t i = 0; i < r->count; i++) free(r->draft[i].cell);
    free(r->begun);
    free(r->name);
    free(r);
}

enum status lines_reader_finish(struct lines_reader *r, struct columns **out, struct err *e) {
    struct columns *c = calloc(1, sizeof *c);
    enum status st = c ? make_columns(r, c, e) : FAIL(e, ERR_MEMORY, "the columns of %s", r->name);
    if (st == OK) *out = c;
    else columns_destroy(c);
    return st;
}

enum status columns_of_lines(const char *text, size_t n, const char *name, struct columns **out,
                             struct err *e) {
    struct lines_reader *r = NULL;
    TRY(lines_reader_create(name, &r, e));
    enum status st = lines_reader_add(r, text, n, e);
    if (st == OK) st = lines_reader_finish(r, out, e);
    lines_reader_destroy(r);
    return st;
}
