/* Pieces: transfer of the canonical bytes of tensors between files and the ranks that hold them.
 *
 * A tensor is whole on every rank, or cut at the shards of its bucket. A rank writes bytes that it
 * holds by itself (pieces_holder, pieces_own). Other bytes travel by broadcast: from the owner when
 * saved or hashed, from rank 0 when loaded. A piece has at most PIECE_BYTES, and no rank needs
 * memory for more than a piece. Every rank makes the same collective calls in the same order.
 * After an error of its own a rank continues these calls until all ranks agree on the error
 * (pieces_agree). After an error of the device or the group, no agreement is possible: the rank
 * returns, which ends the calls of the other ranks. */
#ifndef FP8LAB_MODEL_PIECES_H
#define FP8LAB_MODEL_PIECES_H

#include "model/params.h"

enum { PIECE_BYTES = 1 << 20 };

struct pieces {
    struct backend *b; /* borrowed */
    int rank, world;
    void *staging;     /* device: PIECE_BYTES, with several ranks */
};

/* The place of a tensor's bytes. */
struct holding {
    char *data;           /* device: this rank's bytes first .. first+bytes-1 of the tensor */
    int64_t first, bytes;
    int64_t shard;         /* bytes of a bucket's shard; 0: the tensor is whole on every rank */
    int64_t offset;        /* bytes, of the tensor in its bucket */
};

struct holding holding_whole(void *data, int64_t bytes);
/* The canonical part of a parameter's value or state. `data` has this rank's `own` elements,
 * `bytes` bytes for each `elements` elements. */
struct holding holding_of(const struct params *p, const struct param *x, void *data, int64_t bytes,
                          int64_t elements);

/* The rank that holds bytes at .. at+n-1. HOLDER_ALL: every rank holds them. HOLDER_NONE: they lie
 * on several ranks. No communication. */
enum { HOLDER_ALL = -1, HOLDER_NONE = -2 };
int pieces_holder(const struct holding *h, int64_t at, int64_t n);
/* Copies bytes that this rank holds to host memory. No communication. */
NODISCARD enum status pieces_own(const struct pieces *p, const struct holding *h, int64_t at,
                                 int64_t n, void *host, struct err *e);
/* Bytes at .. at+n-1 to host memory, n <= PIECE_BYTES. `host` NULL: this rank does not need
 * them. */
NODISCARD enum status pieces_read(const struct pieces *p, const struct holding *h, int64_t at,
                                  int64_t n, void *host, struct err *e);
/* Queues the first *part contiguous bytes of at .. at+n-1 into a read-back slot of the backend, on
 * every rank. So work on one piece overlaps with the transfer of the next. */
NODISCARD enum status pieces_queue(const struct pieces *p, const struct holding *h, int64_t at,
                                   int64_t n, int slot, int64_t *part, struct err *e);
/* The opposite of pieces_read; only rank 0's `host` is read. */
NODISCARD enum status pieces_write(const struct pieces *p, const struct holding *h, int64_t at,
                                   int64_t n, const void *host, struct err *e);
/* Broadcasts n bytes of rank 0, n <= PIECE_BYTES. */
NODISCARD enum status pieces_broadcast(const struct pieces *p, void *host, int64_t n,
                                       struct err *e);
/* Replaces each of the n numbers by its maximum over ranks. */
NODISCARD enum status pieces_join(const struct pieces *p, uint32_t *host, int64_t n, struct err *e);
/* OK only if every rank passes OK. A rank that passes another status gets it back; the other ranks
 * get ERR_PEER with `what` in the text. */
NODISCARD enum status pieces_agree(const struct pieces *p, enum status mine, const char *what,
                                   struct err *e);

#endif
