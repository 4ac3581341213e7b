/* Pieces: the canonical bytes of tensors, on their way between files and the ranks that hold them.
 *
 * A tensor is whole on every rank, or cut where its bucket is. What a rank holds it can write by
 * itself (pieces_holder, pieces_own); all else goes by broadcast, a piece of at most PIECE_BYTES at
 * a time, from its owner when it is saved or hashed, from rank 0 when it is loaded: no rank needs
 * memory for more than a piece. Every rank makes the same collective calls in the same order; a
 * rank whose own work has failed goes on with them until all agree that it has (pieces_agree).
 * Where the device or the group itself fails nothing can be agreed on: that rank leaves, which ends
 * the calls of the others. */
#ifndef FP8LAB_MODEL_PIECES_H
#define FP8LAB_MODEL_PIECES_H

#include "model/params.h"

enum { PIECE_BYTES = 1 << 20 };

struct pieces {
    struct backend *b; /* borrowed */
    int rank, world;
    void *staging;     /* device: PIECE_BYTES, with several ranks */
};

/* Where a tensor's bytes are. */
struct holding {
    char *data;           /* device: this rank's first byte, of `bytes` from `first` on */
    int64_t first, bytes;
    int64_t shard;         /* bytes of a bucket's shard; 0: the tensor is whole on every rank */
    int64_t offset;        /* bytes, of the tensor in its bucket */
};

struct holding holding_whole(void *data, int64_t bytes);
/* The canonical part of a parameter's value or state, of which `data` is this rank's `own`: `bytes`
 * for each `elements`. */
struct holding holding_of(const struct params *p, const struct param *x, void *data, int64_t bytes,
                          int64_t elements);

/* The one rank that holds bytes at .. at+n-1; HOLDER_ALL: every rank does, HOLDER_NONE: they lie on
 * several. No communication. */
enum { HOLDER_ALL = -1, HOLDER_NONE = -2 };
int pieces_holder(const struct holding *h, int64_t at, int64_t n);
/* Bytes that this rank holds into host memory. No communication. */
NODISCARD enum status pieces_own(const struct pieces *p, const struct holding *h, int64_t at,
                                 int64_t n, void *host, struct err *e);
/* Bytes at .. at+n-1 into host memory, n <= PIECE_BYTES; `host` NULL on a rank that wants none. */
NODISCARD enum status pieces_read(const struct pieces *p, const struct holding *h, int64_t at,
                                  int64_t n, void *host, struct err *e);
/* For who works on one piece while the next one comes: queues the first *part bytes of
 * at .. at+n-1, which lie together, into a read-back slot of the backend, on every rank. */
NODISCARD enum status pieces_queue(const struct pieces *p, const struct holding *h, int64_t at,
                                   int64_t n, int slot, int64_t *part, struct err *e);
/* The other way; `host` is read on rank 0 only. */
NODISCARD enum status pieces_write(const struct pieces *p, const struct holding *h, int64_t at,
                                   int64_t n, const void *host, struct err *e);
/* Rank 0's bytes to all, n <= PIECE_BYTES. */
NODISCARD enum status pieces_tell(const struct pieces *p, void *host, int64_t n, struct err *e);
/* Each of the n numbers becomes the largest that a rank has in its place. */
NODISCARD enum status pieces_join(const struct pieces *p, uint32_t *host, int64_t n, struct err *e);
/* OK only if all ranks bring OK. One that brings another status gets it back; the rest get ERR_PEER
 * and learn `what` failed. */
NODISCARD enum status pieces_agree(const struct pieces *p, enum status mine, const char *what,
                                   struct err *e);

#endif
