/* Metrics as columns (.cols): what compare reads, because 100,000 steps must load in milliseconds.
 *
 *   u64 N | N bytes of JSON, padded with spaces so that the data begin at a multiple of 8 | data
 *
 * The header: {"columns":[{"name","offset","type","width"}...],"labels":[...],"rows":n,"schema":
 * "fp8lab.columns/1"}. A column is rows*width values of one type, row after row, little-endian,
 * `offset` bytes (a multiple of 8) after the header; columns do not overlap and fill the file.
 * `width` is 1, but for the arrays of fp8 and trace records: one value a slot or tensor, whose
 * names are `labels`. No width is below 1, no name occurs twice, and without a column there are no
 * rows: the size of the file bounds every count. Types:
 *   i64  whole numbers; booleans as 0 and 1
 *   f64  numbers; NaN stands for null and for a record without the key
 *   u32  bits of an f32, written in JSON as 8 hex digits; all ones for a record without the key
 *   u64  fingerprints, written as 16 hex digits; likewise
 * Other strings stay in the JSON lines only. */
#ifndef FP8LAB_RUNNER_BUNDLE_COLUMNS_H
#define FP8LAB_RUNNER_BUNDLE_COLUMNS_H

#include <jansson.h>
#include <stdio.h>

#include "kernels/base.h"

enum column_type { COLUMN_I64, COLUMN_F64, COLUMN_U32, COLUMN_U64 };

struct column {
    const char *name; /* borrowed from the columns' header */
    enum column_type type;
    int64_t width;
    const void *data; /* rows * width values; borrowed from the columns' bytes; 8-byte aligned */
};

struct columns {
    int64_t rows, count;
    struct column *column; /* owned */
    json_t *header;        /* owned */
    const json_t *labels;  /* array of strings, or NULL; borrowed from header */
    void *bytes;           /* owned: the whole file */
    size_t mapped;         /* bytes of the mapping; 0: `bytes` came from malloc */
};

/* "i64" and so on; bytes of one value. */
const char *column_type_name(enum column_type type);
int64_t column_type_bytes(enum column_type type);

/* Parses a whole file in memory. Takes ownership of `bytes` (from malloc), also on failure.
 * ERR_FORMAT says what is wrong. Every offset, count and product is checked, so hostile bytes are
 * safe. `name` is for messages. */
NODISCARD enum status columns_parse(void *bytes, size_t n, const char *name, struct columns **out,
                                    struct err *e);

/* The same for a file, mapped: only touched pages take memory. Only for our own files that no
 * process truncates (that would be SIGBUS), for example those of the run being closed. Also
 * ERR_IO. */
NODISCARD enum status columns_map(const char *path, struct columns **out, struct err *e);
/* The same for `n` bytes of an open file from `offset`, a multiple of the page size. */
NODISCARD enum status columns_map_part(int fd, int64_t offset, int64_t n, const char *name,
                                       struct columns **out, struct err *e);

/* Releases the memory of a mapping; values stay readable. Does nothing for parsed columns. Loops
 * over long columns call it every COLUMNS_CHUNK values. */
void columns_forget(const struct columns *c);
enum { COLUMNS_CHUNK = 1 << 20 };

void columns_destroy(struct columns *c); /* c may be NULL. */

/* The column of that name, or NULL. c may be NULL. */
const struct column *columns_find(const struct columns *c, const char *name);

/* One value as a double; i64 beyond 2^53 rounds. `at` < rows * width. */
double column_value(const struct column *c, int64_t at);

/* The label of value `slot` of a wide column, or NULL. */
const char *columns_label(const struct columns *c, int64_t slot);

/* Converts JSON lines (columns_write.c) in two passes with little memory: the first finds the
 * columns and their types, the second writes. `in` must be seekable. `labels`: JSON array of names
 * for the wide columns, borrowed, or NULL. `fd` is written from its start. *rows (may be NULL)
 * receives the number of records. ERR_FORMAT, with the line, if a record is not an object or an
 * array changes its length or kind between records. */
NODISCARD enum status columns_convert(FILE *in, const char *name, json_t *labels, int fd,
                                      int64_t *rows, struct err *e);

/* Whether row `row` (< rows) of the column is what columns_convert() makes of this value of a
 * record. NULL: the record has none. */
bool columns_hold(const struct column *c, int64_t row, const json_t *value);

/* Converts the file jsonl_path to cols_path, atomically. labels_path: a JSON file with the array of
 * names, or NULL; the file may be absent. */
NODISCARD enum status columns_convert_file(const char *jsonl_path, const char *labels_path,
                                           const char *cols_path, int64_t *rows, struct err *e);

#endif
