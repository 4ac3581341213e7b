/* Collectives of one rank: each is the identity, a copy where the two tensors differ. */
#include "kernels/cuda/cuda_common.cuh"

static enum status comm_init(struct backend *b, const struct comm_group *group, struct err *e) {
    if (!group || group->world == 1) return OK;
    return FAIL(e, ERR_UNSUPPORTED, "comm init: this build runs on one GPU, %d were asked for",
                group->world);
}

static int comm_rank(const struct backend *b) { return 0; }
static int comm_world(const struct backend *b) { return 1; }

static enum status comm_all_reduce(struct backend *b, int lane, const struct tensor *x,
                                   enum reduce_op op, struct err *e) {
    if (op == REDUCE_SUM) return cuda_check(x, "all_reduce sum: x", IS_GRAD, -1, -1, e);
    return cuda_check(x, "all_reduce max: x", IS_U32, -1, -1, e);
}

static enum status move(struct backend *b, int lane, const char *what, const struct tensor *out,
                        const struct tensor *x, struct err *e) {
    if (out->dtype != x->dtype || tensor_count(out) != tensor_count(x))
        return FAIL(e, ERR_ARG, "%s: %lld %s out of %lld %s, with one rank", what,
                    (long long)tensor_count(out), dtype_name(out->dtype),
                    (long long)tensor_count(x), dtype_name(x->dtype));
    return out->data == x->data ? OK : cuda_copy(b, lane, out, x, e);
}

static enum status comm_reduce_scatter(struct backend *b, int lane, const struct tensor *out,
                                       const struct tensor *x, struct err *e) {
    TRY(cuda_check(x, "reduce_scatter: x", IS_GRAD, -1, -1, e));
    return move(b, lane, "reduce_scatter", out, x, e);
}

static enum status comm_all_gather(struct backend *b, int lane, const struct tensor *out,
                                   const struct tensor *x, struct err *e) {
    return move(b, lane, "all_gather", out, x, e);
}

static enum status comm_broadcast(struct backend *b, int lane, const struct tensor *x, int root,
                                  struct err *e) {
    return root == 0 ? OK : FAIL(e, ERR_ARG, "broadcast: root %d of 1 rank", root);
}

static enum status comm_poll(struct backend *b, struct err *e) { return OK; }
static void comm_abort(struct backend *b) {}

void cuda_fill_comm(struct comm_ops *comm) {
    comm->init = comm_init;
    comm->rank = comm_rank;
    comm->world = comm_world;
    comm->all_reduce = comm_all_reduce;
    comm->reduce_scatter = comm_reduce_scatter;
    comm->all_gather = comm_all_gather;
    comm->broadcast = comm_broadcast;
    comm->poll = comm_poll;
    comm->abort = comm_abort;
}
