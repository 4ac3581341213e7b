/* The records of one stream as columns in memory, whatever file they were read from: JSON lines,
 * a NumPy array (record/npy.h), or the .cols file of bundle format 1:
 *
 *   u64 N | N bytes of JSON, padded with spaces so that the data begin at a multiple of 8 | data
 *
 * The header of a .cols file: {"columns":[{"name","offset","type","width"}...],"labels":[...],
 * "rows":n,"schema":"fp8lab.columns/1"}. A column is rows*width values of one type, row after row,
 * little-endian. It begins `offset` bytes (a multiple of 8) after the header. Columns do not
 * overlap and fill the file. No width is below 1, no name occurs twice, and a file without columns
 * has no rows. So the size of the file bounds every count. Types: i64, f64, u32 and u64 as in enum
 * column_type. A value that a record lacks is NaN, or all ones. */
#ifndef FP8LAB_RUNNER_BUNDLE_COLUMNS_H
#define FP8LAB_RUNNER_BUNDLE_COLUMNS_H

#include <jansson.h>
#include <string.h>

#include "kernels/base.h"
#include "runner/record/streams.h"

struct column {
    const char *name; /* borrowed from the columns */
    enum column_type type;
    int64_t width;    /* values a row */
    int64_t stride;   /* bytes from one row to the next */
    const char *data; /* of row 0; borrowed from the columns; perhaps not aligned */
};

struct columns {
    int64_t rows, count;
    struct column *column; /* owned */
    json_t *labels;        /* names of the values of a wide column, or NULL; owned */
    void *bytes;           /* owned: the whole file; NULL for lines */
    size_t mapped;         /* bytes of the mapping; 0: `bytes` came from malloc */
    bool separate;         /* the data of each column are owned; for lines */
    void *names;           /* owned */
    json_t *header;        /* owned; of a .cols file, or NULL */
};

/* Whether a file of rows must end with its last row. The file of a live or killed run may hold a
 * row that its header does not count yet, or a part of a row. */
enum rows_end { ROWS_COMPLETE, ROWS_GROWING };

/* Parses a whole .npy or .cols file in memory. Takes ownership of `bytes` (from malloc), also on
 * failure. ERR_FORMAT says what is wrong. Every offset, count and product is checked, so hostile
 * bytes are safe. `name` is for messages. */
NODISCARD enum status columns_parse(void *bytes, size_t n, enum rows_end end, const char *name,
                                    struct columns **out, struct err *e);

/* The same for `n` bytes of an open file from `offset`, a multiple of the page size. The bytes are
 * mapped: only touched pages take memory. Only for files of ours that no process truncates, since
 * reading a truncated page is SIGBUS. Also ERR_IO. */
NODISCARD enum status columns_map(int fd, int64_t offset, int64_t n, const char *name,
                                  struct columns **out, struct err *e);

/* Reads JSON lines (columns_lines.c). A key is a column if all its values are numbers, booleans, or
 * 8 or 16 hexadecimal digits: 8 bytes a value in memory. Other keys are skipped. An incomplete last
 * line is ignored. ERR_FORMAT, with the line, if another line is not a JSON object, or if the
 * values need far more memory than the text; ERR_MEMORY. `text` is not kept. */
NODISCARD enum status columns_of_lines(const char *text, size_t n, const char *name,
                                       struct columns **out, struct err *e);

/* The same for lines that arrive in pieces, cut anywhere: create, add each piece, finish, destroy.
 * A line of more than JSONL_LINE_LIMIT bytes is ERR_FORMAT even if its end has not come. After an
 * error, and after finish, the reader can only be destroyed. `name` is copied. */
struct lines_reader;
NODISCARD enum status lines_reader_create(const char *name, struct lines_reader **out,
                                          struct err *e);
NODISCARD enum status lines_reader_add(struct lines_reader *r, const char *bytes, size_t n,
                                       struct err *e);
/* The caller owns *out. */
NODISCARD enum status lines_reader_finish(struct lines_reader *r, struct columns **out,
                                          struct err *e);
void lines_reader_destroy(struct lines_reader *r); /* r may be NULL */

void columns_forget(const struct columns *all, const struct column *c, int64_t row);
/* Call it before row `row` in a walk over the rows of column c. It releases the memory of a mapping
 * now and then. So a walk over any number of rows needs little memory. Values stay readable. */
static inline void columns_pass(const struct columns *all, const struct column *c, int64_t row) {
    if (all->mapped) columns_forget(all, c, row);
}

void columns_destroy(struct columns *c); /* c may be NULL. */

/* Forgets all columns but those named (NULL-terminated), and frees their memory if each column has
 * its own, as those of lines do. */
void columns_keep(struct columns *c, const char *const *names);

/* The column of that name, or NULL. c may be NULL. */
const struct column *columns_find(const struct columns *c, const char *name);
/* The same; NULL also if the column is wide. */
const struct column *columns_scalar(const struct columns *c, const char *name);

/* The values of a row, column_type_bytes() each. row < rows. */
static inline const char *column_row(const struct column *c, int64_t row) {
    return c->data + row * c->stride;
}
/* The bits of one value, extended to 64 bits with zeros; of an i64, its two's complement. */
static inline uint64_t column_bits(const struct column *c, int64_t row, int64_t label) {
    uint64_t bits;
    uint32_t low;
    if (c->type == COLUMN_U32) {
        memcpy(&low, column_row(c, row) + label * 4, sizeof low);
        return low;
    }
    memcpy(&bits, column_row(c, row) + label * 8, sizeof bits);
    return bits;
}
/* One value as a double; i64 beyond 2^53 rounds, and a u32 is the integer of its bits. */
static inline double column_value(const struct column *c, int64_t row, int64_t label) {
    uint64_t bits = column_bits(c, row, label);
    double f;
    if (c->type == COLUMN_I64) return (double)(int64_t)bits;
    if (c->type != COLUMN_F64) return (double)bits;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* The label of value `label` of a wide column, or NULL. */
const char *columns_label(const struct columns *c, int64_t label);

#endif
