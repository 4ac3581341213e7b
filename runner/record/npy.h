/* Wide streams as NumPy arrays: format version 1.0, one structured row per record (NEP 1).
 * numpy.load reads the file: numpy.load("fp8.npy")["amax"][row, label]. A row is
 * appended with one write. So the file of a killed run has whole rows, and at most one part of a
 * row at its end. The header counts whole rows only, so readers ignore that part.
 *
 *   "\x93NUMPY" 1 0 | u16 N | N bytes: a Python dictionary, spaces, newline | rows
 *   {'descr': [('step', '<i8'), ('amax', '<f4', (3,))], 'fortran_order': False, 'shape': (20,), }
 *
 * The size of the header depends on the labels only, so the number of rows is corrected in place
 * after each row. Values are packed, little-endian: <i8, <f8, <f4, <u8. */
#ifndef FP8LAB_RUNNER_RECORD_NPY_H
#define FP8LAB_RUNNER_RECORD_NPY_H

#include "runner/record/streams.h"

enum { NPY_COLUMNS_MAX = 32, NPY_HEADER_MAX = 4096 };

struct npy_column {
    char name[COLUMN_NAME_CAP];
    enum column_type type;
    bool wide;      /* an array in each row */
    int64_t width;  /* values a row, >= 1 */
    int64_t offset; /* in a row */
};

struct npy {
    int64_t rows; /* as the header says */
    int64_t header_bytes, row_bytes;
    int64_t count;
    struct npy_column column[NPY_COLUMNS_MAX];
};

/* The layout of a wide stream with `width` labels, without rows. */
void npy_layout(const struct stream *s, int64_t width, struct npy *out);

/* The number of labels whose rows have `row_bytes` bytes; 0: none. */
int64_t npy_width_of(const struct stream *s, int64_t row_bytes);

/* Writes the header of `layout` with its number of rows; returns its size, layout->header_bytes. */
int64_t npy_header(const struct npy *layout, char out[NPY_HEADER_MAX]);

/* Parses the header at the beginning of n bytes. Accepts only what npy_header() writes, with any
 * names and widths; every size is checked, so hostile bytes are safe. ERR_FORMAT, with `name`. */
NODISCARD enum status npy_parse(const void *bytes, size_t n, const char *name, struct npy *out,
                                struct err *e);

/* Whether n bytes are the beginning of a header, but not a whole one: an empty file, or one whose
 * writer was killed. */
bool npy_is_torn(const char *bytes, size_t n);

/* One row from the values of the worker: layout->row_bytes bytes. */
void npy_row(const struct stream *s, const struct stream_source *source, const struct npy *layout,
             char *out);

#endif
