/* Collectives: operators of the same table, so that the model can order them with everything else.
 *
 * All ranks of a group call the same collectives in the same order. With one rank each is the
 * identity (a copy where the two tensors differ). Like every operator they are queued on a lane;
 * all operands are packed.
 * A sum is taken in rank order, ((x_0 + x_1) + x_2) + ..., in f32, and rounded once. So the bits
 * depend on the world size only. They are the same on every backend and transport.
 * If a peer died or left, or a link broke, poll() or a collective returns ERR_PEER and names rank
 * and host. A collective cannot tell a hung rank from a slow one: it waits. The supervisor of the
 * processes decides, and calls abort(). */
#ifndef FP8LAB_KERNELS_COMM_H
#define FP8LAB_KERNELS_COMM_H

#include "kernels/shared_record.h"
#include "kernels/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct backend;

enum reduce_op {
    REDUCE_SUM, /* f32, bf16 */
    REDUCE_MAX  /* u32: amax bits, NaN and infinity kept */
};

enum { COMM_RANKS_MAX = 64 }; /* of a group; a set of ranks is one word: bit r is rank r */

struct comm_at {
    int64_t count; /* collectives that this rank has reached; on a device: that the device has */
    char what[64]; /* the last of them, as of the last poll(): "reduce_scatter of 1048576 f32" */
};

/* The progress of this rank's collectives, for a supervisor. The memory may be shared with another
 * process, which calls comm_note_read at any time, also after this process was killed. Only the
 * backend writes. */
struct comm_note {
    uint64_t writes;
    struct comm_at at[2]; /* see shared_record.h */
    /* Ranks with which an exchange over the links is not complete. 0 after an exchange that
     * succeeded, and for bytes that links do not carry. */
    uint64_t waits_for;
    bool aborted;  /* this rank has given up the group and closed its links itself */
    uint64_t lost; /* ranks whose links were down by then; written before aborted */
};

/* A copy of a note that the backend may be writing. */
struct comm_state {
    struct comm_at at;
    uint64_t waits_for, lost;
    bool aborted;
};

static inline void comm_note_move(struct comm_note *n, const struct comm_at *at) {
    shared_write(&n->writes, n->at, at, sizeof *at);
}

static inline struct comm_state comm_note_read(const struct comm_note *n) {
    struct comm_state s;
    (void)shared_read(&n->writes, n->at, &s.at, sizeof s.at);
    s.at.what[sizeof s.at.what - 1] = '\0';
    s.waits_for = __atomic_load_n(&n->waits_for, __ATOMIC_RELAXED);
    s.aborted = __atomic_load_n(&n->aborted, __ATOMIC_ACQUIRE);
    s.lost = __atomic_load_n(&n->lost, __ATOMIC_RELAXED);
    return s;
}

/* The processes of a group and how they reach one another. Borrowed until the backend is closed. */
struct comm_group {
    int rank, world;
    /* [world] a connected stream socket to each other rank, for this group alone; -1 at `rank`.
     * The CPU sends tensors through them; other backends send what NCCL needs to connect. */
    const int *link;
    const char *const *host; /* [world] names, for messages */
    struct comm_note *note;  /* or NULL */
};

struct comm_ops {
    /* Joins the group; all its ranks must call it. NULL is a group of one. Done on return. Call
     * once, before any collective. */
    enum status (*init)(struct backend *b, const struct comm_group *group, struct err *e);
    int (*rank)(const struct backend *b);
    int (*world)(const struct backend *b);
    /* x <- reduction over ranks, in place. */
    enum status (*all_reduce)(struct backend *b, int lane, const struct tensor *x,
                              enum reduce_op op, struct err *e);
    /* out [n/world] <- this rank's slice of the sum of every rank's x [n]; n % world == 0. out may
     * be that slice of x. */
    enum status (*reduce_scatter)(struct backend *b, int lane, const struct tensor *out,
                                  const struct tensor *x, struct err *e);
    /* reduce_scatter with terms of 8 bits: every rank's x, its own slice too, is rounded to codes
     * (comm_codes.h) in blocks that begin with each slice; the last of a slice may be short. out
     * and x are f32 or bf16. One rank rounds nothing. */
    enum status (*reduce_scatter_codes)(struct backend *b, int lane, const struct tensor *out,
                                        const struct tensor *x, struct err *e);
    /* out [n*world] <- every rank's x [n], in rank order. x may be this rank's slice of out. Bytes
     * are moved, so any dtype. */
    enum status (*all_gather)(struct backend *b, int lane, const struct tensor *out,
                              const struct tensor *x, struct err *e);
    /* x <- rank root's x. */
    enum status (*broadcast)(struct backend *b, int lane, const struct tensor *x, int root,
                             struct err *e);
    /* out [2] u64 <- nanoseconds so far that this rank has spent in collectives, and that
     * LANE_COMPUTE has waited for them (not hidden behind arithmetic). Both include waiting for
     * peers and collectives of replayed graphs. 0 with one rank. */
    enum status (*busy)(struct backend *b, int lane, const struct tensor *out, struct err *e);
    /* Not queued. ERR_PEER if the group is known to be broken; otherwise OK, without waiting. From
     * any thread. */
    enum status (*poll)(struct backend *b, struct err *e);
    /* Closes the group from any state and from any thread. Peers notice, and running collectives
     * end with ERR_PEER. Never fails. It may not return until graphs that contain collectives are
     * dropped. */
    void (*abort)(struct backend *b);
};

#ifdef __cplusplus
}
#endif
#endif
