/* Collectives: operators of the same table, so that the model can order them with everything else.
 *
 * All ranks of a group call the same collectives in the same order. With one rank each is the
 * identity (a copy where the two tensors differ). Like every operator they are queued on a lane.
 * Reduction order is fixed by rank, so the bits depend on the world size only.
 * A peer that died or hung is ERR_PEER from poll() (or from the collective), naming rank and
 * host. */
#ifndef FP8LAB_KERNELS_COMM_H
#define FP8LAB_KERNELS_COMM_H

#include "kernels/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct backend;

enum reduce_op {
    REDUCE_SUM, /* f32, bf16 (summed in f32, rounded once) */
    REDUCE_MAX  /* u32: amax bits, NaN and infinity kept */
};

struct comm_ops {
    /* Joins the group. `rendezvous` is opaque bytes that rank 0's runner handed to every rank (NULL
     * when world is 1). Done on return. Call once, before any collective. */
    enum status (*init)(struct backend *b, int rank, int world, const void *rendezvous,
                        int64_t rendezvous_bytes, struct err *e);
    int (*rank)(const struct backend *b);
    int (*world)(const struct backend *b);
    /* x <- reduction over ranks, in place. */
    enum status (*all_reduce)(struct backend *b, int lane, const struct tensor *x,
                              enum reduce_op op, struct err *e);
    /* out [n/world] <- this rank's slice of the sum of every rank's x [n]; n % world == 0. out may
     * be that slice of x. */
    enum status (*reduce_scatter)(struct backend *b, int lane, const struct tensor *out,
                                  const struct tensor *x, struct err *e);
    /* out [n*world] <- every rank's x [n], in rank order. x may be this rank's slice of out. Bytes
     * are moved, so any dtype. */
    enum status (*all_gather)(struct backend *b, int lane, const struct tensor *out,
                              const struct tensor *x, struct err *e);
    /* x <- rank root's x. */
    enum status (*broadcast)(struct backend *b, int lane, const struct tensor *x, int root,
                             struct err *e);
    /* Not queued: ERR_PEER if the group is known to be broken, else OK at once. */
    enum status (*poll)(struct backend *b, struct err *e);
    /* Tears the group down from any state, so that peers notice; never blocks, never fails. */
    void (*abort)(struct backend *b);
};

#ifdef __cplusplus
}
#endif
#endif
