#include "runner/record/row_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int64_t rows_of(const struct row_file *f) {
    return (f->size - f->layout.header_bytes) / f->layout.row_bytes;
}

/* Writes n bytes at an offset; retries short writes and EINTR. */
static enum status write_at(int fd, const char *bytes, int64_t n, int64_t at, const char *name,
                            struct err *e) {
    while (n > 0) {
        ssize_t put = pwrite(fd, bytes, (size_t)n, at);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return FAIL(e, ERR_IO, "write %s: %s", name, strerror(errno));
        bytes += put;
        at += put;
        n -= put;
    }
    return OK;
}

static enum status truncate_to(const struct row_file *f, int64_t size, const char *name,
                               struct err *e) {
    return ftruncate(f->fd, size) == 0 ? OK
                                       : FAIL(e, ERR_IO, "truncate %s: %s", name, strerror(errno));
}

enum status row_file_open(int fd, const char *name, struct row_file *out, struct err *e) {
    char header[NPY_HEADER_MAX];
    struct stat info;
    *out = (struct row_file){ .fd = fd };
    if (fstat(fd, &info) != 0) return FAIL(e, ERR_IO, "stat %s: %s", name, strerror(errno));
    ssize_t n = pread(fd, header, sizeof header, 0);
    if (n < 0) return FAIL(e, ERR_IO, "read %s: %s", name, strerror(errno));
    if (npy_is_torn(header, (size_t)n)) return OK; /* killed during the first write */
    TRY(npy_parse(header, (size_t)n, name, &out->layout, e));
    int64_t rows = (info.st_size - out->layout.header_bytes) / out->layout.row_bytes;
    out->size = out->layout.header_bytes + rows * out->layout.row_bytes;
    return OK;
}

/* Writes the header with the number of whole rows. */
static enum status write_header(struct row_file *f, const char *name, struct err *e) {
    char header[NPY_HEADER_MAX];
    f->layout.rows = rows_of(f);
    return write_at(f->fd, header, npy_header(&f->layout, header), 0, name, e);
}

/* Gives a new file the layout that rows of this size have. */
static enum status begin(struct row_file *f, const struct stream *s, int64_t row_bytes,
                         struct err *e) {
    int64_t width = npy_width_of(s, row_bytes);
    if (!width)
        return FAIL(e, ERR_FORMAT, "a record of %s has %lld bytes, not a whole number of labels",
                    s->name, (long long)row_bytes);
    npy_layout(s, width, &f->layout);
    TRY(truncate_to(f, 0, s->file, e));
    f->size = f->layout.header_bytes;
    return write_header(f, s->file, e);
}

enum status row_file_append(struct row_file *f, const struct stream *s, const char *row,
                            int64_t row_bytes, struct err *e) {
    if (!f->layout.row_bytes) TRY(begin(f, s, row_bytes, e));
    if (row_bytes != f->layout.row_bytes)
        return FAIL(e, ERR_FORMAT, "a record of %s has %lld bytes, and the rows of %s have %lld: "
                    "the run has other labels or metrics than before; start a new run", s->name,
                    (long long)row_bytes, s->file, (long long)f->layout.row_bytes);
    enum status st = write_at(f->fd, row, row_bytes, f->size, s->file, e);
    if (st != OK) {
        if (ftruncate(f->fd, f->size) != 0) err_prefix(e, "a part of a row remains");
        return st;
    }
    f->size += row_bytes;
    return write_header(f, s->file, e);
}

/* The step of a row. */
static enum status step_of(const struct row_file *f, int64_t offset, int64_t row, const char *name,
                           int64_t *step, struct err *e) {
    int64_t at = f->layout.header_bytes + row * f->layout.row_bytes + offset;
    if (pread(f->fd, step, sizeof *step, at) == sizeof *step) return OK;
    return FAIL(e, ERR_IO, "read row %lld of %s: %s", (long long)row + 1, name, strerror(errno));
}

/* The number of rows up to `last_step`, by bisection. */
static enum status count_rows(const struct row_file *f, const char *name, int64_t last_step,
                              int64_t *rows, struct err *e) {
    int64_t low = 0, high = rows_of(f);
    const struct npy_column *c = f->layout.column;
    if (strcmp(c->name, "step") != 0 || c->type != COLUMN_I64)
        return FAIL(e, ERR_FORMAT, "%s: its rows do not begin with the step", name);
    while (low < high) {
        int64_t middle = low + (high - low) / 2, step = 0;
        TRY(step_of(f, c->offset, middle, name, &step, e));
        if (step <= last_step) low = middle + 1;
        else high = middle;
    }
    *rows = low;
    return OK;
}

enum status row_file_cut(struct row_file *f, const char *name, int64_t last_step, struct err *e) {
    int64_t rows = 0;
    if (!f->layout.row_bytes) return truncate_to(f, 0, name, e);
    TRY(count_rows(f, name, last_step, &rows, e));
    f->size = f->layout.header_bytes + rows * f->layout.row_bytes;
    TRY(truncate_to(f, f->size, name, e));
    return write_header(f, name, e);
}
