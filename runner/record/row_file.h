/* The file of a wide stream (npy.h) while its run lives. Rows are appended. After a kill, or before
 * a resume, the end is cut off. */
#ifndef FP8LAB_RUNNER_RECORD_ROW_FILE_H
#define FP8LAB_RUNNER_RECORD_ROW_FILE_H

#include "runner/record/npy.h"

struct row_file {
    int fd;            /* open for reading and writing, without O_APPEND; -1: not open */
    int64_t size;      /* bytes of the file, whole rows only */
    struct npy layout; /* row_bytes 0: the file has no header yet */
};

/* Reads the header of an open file and finds its last whole row. A header that is not whole is a
 * file without rows. ERR_FORMAT for another damaged header, ERR_IO. Changes nothing. */
NODISCARD enum status row_file_open(int fd, const char *name, struct row_file *out,
                                    struct err *e);

/* Appends one row, and then counts it in the header: numpy.load reads the file of a live run too.
 * ERR_FORMAT if the row does not have the size of
 * the earlier ones. After ERR_IO the file ends with its last whole row. */
NODISCARD enum status row_file_append(struct row_file *f, const struct stream *s, const char *row,
                                      int64_t row_bytes, struct err *e);

/* Cuts the file after its last row whose step is at most `last_step`, and corrects the header. Rows
 * are in step order. */
NODISCARD enum status row_file_cut(struct row_file *f, const char *name, int64_t last_step,
                                   struct err *e);

#endif
