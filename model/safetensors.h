/* Safetensors files of device tensors: u64 length, JSON header, then the bytes of every tensor
 * without a hole (https://github.com/huggingface/safetensors). Written by all ranks, read by rank
 * 0, 1 MiB at a time. */
#ifndef FP8LAB_MODEL_SAFETENSORS_H
#define FP8LAB_MODEL_SAFETENSORS_H

#include "model/pieces.h"
#include "model/ground/sha256.h"

struct safetensor {
    char name[96];
    enum dtype dtype; /* F32, BF16, E4M3, E5M2, I32, U32, U64 */
    int64_t shape[2];
    int rank;
    struct holding held; /* borrowed device memory of its packed elements */
    int64_t begin;       /* bytes after the header; set by safetensors_write */
};

static inline int64_t safetensor_bytes(const struct safetensor *t) {
    return t->shape[0] * (t->rank == 2 ? t->shape[1] : 1) * dtype_bytes(t->dtype);
}

/* The format's name of a dtype. */
const char *safetensors_dtype(enum dtype t);

struct safetensors {
    struct safetensor *tensor; /* owned */
    int64_t count, capacity;
    bool partial; /* reading: the file may have other tensors too */
};

/* Appends a tensor that is whole on every rank; cols 0: a vector. ERR_MEMORY. For a sharded tensor
 * the caller sets `held` afterwards. */
NODISCARD enum status safetensors_add(struct safetensors *s, enum dtype dtype, int64_t rows,
                                      int64_t cols, void *data, struct err *e, const char *format,
                                      ...) PRINTF_LIKE(7, 8);
void safetensors_free(struct safetensors *s);

/* Writes and syncs a new file, wide types first. Returns its size and tree hash
 * (model/ground/sha256.h). Every rank calls it and writes the bytes that it holds, if it sees the
 * file that rank 0 creates. An error on one rank is an error on all. The bytes do not depend on the
 * number of ranks or shards. */
NODISCARD enum status safetensors_write(struct safetensors *s, const struct pieces *p,
                                        const char *path, int64_t *bytes,
                                        char tree_sha256[SHA256_HEX], struct err *e);

/* The same in three parts, so that another thread may write while the tensors change.
 * safetensors_begin: every rank calls it. Creates the file and copies the bytes that this rank
 *   writes to `room`, host memory of *room_bytes that must stay until safetensors_drop(). Sets
 *   *room_bytes to the bytes used: 0 if a rank lacks room. Then every rank writes its bytes at
 *   once. An error on one rank is an error on all; *out is then NULL.
 * safetensors_put: hashes, writes and syncs the copies, on several threads. Not collective.
 * safetensors_end: every rank calls it, with its own result of safetensors_put. */
struct safetensors_file;
NODISCARD enum status safetensors_begin(struct safetensors *s, const struct pieces *p,
                                        const char *path, char *room, int64_t *room_bytes,
                                        struct safetensors_file **out, struct err *e);
NODISCARD enum status safetensors_put(struct safetensors_file *x, struct err *e);
NODISCARD enum status safetensors_end(struct safetensors_file *x, const struct pieces *p,
                                      enum status st, int64_t *bytes,
                                      char tree_sha256[SHA256_HEX], struct err *e);
void safetensors_drop(struct safetensors_file *x); /* NULL is fine */
/* The room that this rank needs if every rank sees the file. */
NODISCARD enum status safetensors_room(struct safetensors *s, const struct pieces *p,
                                       int64_t *bytes, struct err *e);

/* Reads these tensors, all of the file unless `partial`, into their memory. ERR_FORMAT for a
 * damaged file. ERR_CONFIG, before any copy, names the first tensor that is missing, unexpected, or
 * has another type or shape. Every rank calls it; rank 0 reads. An error on one rank is an error on
 * all. */
NODISCARD enum status safetensors_read(const struct safetensors *s, const struct pieces *p,
                                       const char *path, struct err *e);

#endif
