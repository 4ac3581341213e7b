/* Collectives of one rank: each is the identity, a copy where the two tensors differ. */
#include "kernels/cpu/cpu.h"

static enum status comm_init(struct backend *b, int rank, int world, const void *rendezvous,
                             int64_t rendezvous_bytes, struct err *e) {
    if (world < 1 || rank < 0 || rank >= world)
        return FAIL(e, ERR_ARG, "comm init: rank %d of %d", rank, world);
    if (world > 1)
        return FAIL(e, ERR_UNSUPPORTED,
                    "comm init: the CPU backend has one rank, %d were asked for; "
                    "the CUDA backend has several (NCCL)", world);
    return OK;
}

static int comm_rank(const struct backend *b) { return 0; }
static int comm_world(const struct backend *b) { return 1; }

static enum status comm_all_reduce(struct backend *b, int lane, const struct tensor *x,
                                   enum reduce_op op, struct err *e) {
    if (op == REDUCE_SUM) return cpu_check(x, "all_reduce sum: x", IS_ACT, -1, -1, e);
    return cpu_check(x, "all_reduce max: x", IS_U32, -1, -1, e);
}

static enum status move(struct backend *b, int lane, const char *what, const struct tensor *out,
                        const struct tensor *x, struct err *e) {
    if (out->dtype != x->dtype || tensor_count(out) != tensor_count(x))
        return FAIL(e, ERR_ARG, "%s: %lld %s out of %lld %s, with one rank", what,
                    (long long)tensor_count(out), dtype_name(out->dtype),
                    (long long)tensor_count(x),
                    dtype_name(x->dtype));
    if (out->data == x->data) return OK;
    return b->ops->copy(b, lane, out, x, e);
}

static enum status comm_reduce_scatter(struct backend *b, int lane, const struct tensor *out,
                                       const struct tensor *x, struct err *e) {
    TRY(cpu_check(x, "reduce_scatter: x", IS_ACT, -1, -1, e));
    return move(b, lane, "reduce_scatter", out, x, e);
}

static enum status comm_all_gather(struct backend *b, int lane, const struct tensor *out,
                                   const struct tensor *x, struct err *e) {
    return move(b, lane, "all_gather", out, x, e);
}

static enum status comm_broadcast(struct backend *b, int lane, const struct tensor *x, int root,
                                  struct err *e) {
    if (root != 0) return FAIL(e, ERR_ARG, "broadcast: root %d of 1 rank", root);
    return OK;
}

static enum status comm_poll(struct backend *b, struct err *e) { return OK; }
static void comm_abort(struct backend *b) {}

const struct comm_ops CPU_COMM = {
    .init = comm_init, .rank = comm_rank, .world = comm_world, .all_reduce = comm_all_reduce,
    .reduce_scatter = comm_reduce_scatter, .all_gather = comm_all_gather,
    .broadcast = comm_broadcast, .poll = comm_poll, .abort = comm_abort,
};
