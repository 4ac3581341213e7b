/* TensorBoard's event file: records of bytes with checksums, appended one by one.
 *
 *   record: u64 length | u32 checksum of the length | bytes | u32 checksum of the bytes
 *   checksum of x: CRC-32C of x, rotated right by 15 bits, plus 0xa282ead8; all little-endian
 *
 * Each record is one write. So the file of a killed process is whole up to its last record. Readers
 * lose all that follows a torn record, so no one appends to an earlier process's file. */
#ifndef FP8LAB_RUNNER_TENSORBOARD_EVENT_FILE_H
#define FP8LAB_RUNNER_TENSORBOARD_EVENT_FILE_H

#include "runner/base/canonical.h"
#include "runner/record/run_dir.h"

struct event_file {
    int fd;             /* -1: not open */
    int64_t size;       /* of the whole records */
    char name[80];      /* in the folder */
    struct text record; /* the one being written; kept for its memory */
};

/* Makes a new file in data/tensorboard, and that folder: one run of TensorBoard. Readers take the
 * files of a folder in the order of their names: the new one comes last, whatever the clock
 * says. */
NODISCARD enum status event_file_create(const struct run_dir *dir, struct event_file *out,
                                        struct err *e);

/* Appends one record. After ERR_IO the file ends with its last whole record. ERR_MEMORY if `bytes`
 * is a buffer that failed. */
NODISCARD enum status event_file_add(struct event_file *f, const struct text *bytes,
                                     struct err *e);

void event_file_close(struct event_file *f);

/* The checksum that the format uses. */
uint32_t event_file_checksum(const void *bytes, size_t n);

#endif
