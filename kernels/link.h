/* The sockets of a group: transfers with several ranks at once, detection of lost peers, an orderly
 * end. Part of the interface, so that all backends share it. */
#ifndef FP8LAB_KERNELS_LINK_H
#define FP8LAB_KERNELS_LINK_H

#include "kernels/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

struct links; /* opaque */

/* Makes the group's sockets non-blocking. `group` is borrowed until links_destroy. */
NODISCARD enum status links_create(struct links **out, const struct comm_group *group,
                                   struct err *e);
/* Tells the peers that this rank leaves in good order, without waiting. NULL is fine. The sockets
 * stay open: they are the caller's. */
void links_destroy(struct links *l);

/* Bytes for one peer and from it; either may be none. */
struct link_transfer {
    int peer;
    const void *out;
    void *in;
    int64_t out_bytes, in_bytes;
    int64_t sent, got; /* progress; set by links_exchange */
};

/* Runs all transfers at the same time, so that their order cannot deadlock. Done on return.
 * ERR_PEER names `what`, rank and host; the group is broken from then on, and its sockets are shut
 * down so that the others notice. */
NODISCARD enum status links_exchange(struct links *l, struct link_transfer *transfer, int count,
                                     const char *what, struct err *e);

/* Exchanges one header with each rank of `peer` (NULL: all others), to check that all are in the
 * same collective: ERR_STATE, with both calls, if they are not. `detail` are numbers
 * that must agree (dtype, count, root). */
NODISCARD enum status links_agree(struct links *l, const int *peer, int count, const char *what,
                                  const int64_t detail[4], struct err *e);

/* As comm_ops.poll and abort: from any thread. A peer that said goodbye is no error. */
NODISCARD enum status links_poll(struct links *l, struct err *e);
void links_abort(struct links *l);

#ifdef __cplusplus
}
#endif
#endif
