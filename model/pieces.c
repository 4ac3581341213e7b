#include "model/pieces.h"

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

static struct tensor bytes_at(void *data, int64_t n) { return tensor_1d(data, DTYPE_E4M3, n); }

struct holding holding_whole(void *data, int64_t bytes) {
    return (struct holding){ .data = data, .bytes = bytes };
}

struct holding holding_of(const struct params *p, const struct param *x, void *data, int64_t bytes,
                          int64_t elements) {
    int64_t n = ceil_div(param_count(x), elements) * bytes;
    if (!shard_divides(&p->options.shard)) return holding_whole(data, n);
    int64_t first = x->own.first / elements * bytes;
    int64_t own = ceil_div(x->own.count, elements) * bytes;
    return (struct holding){ .data = data, .first = first,
                             .bytes = first < n ? min64(own, n - first) : 0,
                             .shard = p->bucket[x->bucket].shard / elements * bytes,
                             .offset = x->offset / elements * bytes };
}

int pieces_holder(const struct holding *h, int64_t at, int64_t n) {
    if (!h->shard) return HOLDER_ALL;
    int64_t first = (h->offset + at) / h->shard, last = (h->offset + at + n - 1) / h->shard;
    return first == last ? (int)first : HOLDER_NONE;
}

enum status pieces_own(const struct pieces *p, const struct holding *h, int64_t at, int64_t n,
                       void *host, struct err *e) {
    return p->b->ops->download(p->b, LANE_COMPUTE, host, h->data + at - h->first, n, e);
}

enum status pieces_read(const struct pieces *p, const struct holding *h, int64_t at, int64_t n,
                        void *host, struct err *e) {
    const struct backend_ops *ops = p->b->ops;
    if (!h->shard) return host ? pieces_own(p, h, at, n, host, e) : OK;
    for (int64_t part; n > 0; at += part, n -= part) {
        int owner = (int)((h->offset + at) / h->shard);
        part = min64(n, (owner + 1) * h->shard - h->offset - at);
        struct tensor x = bytes_at(owner == p->rank ? h->data + at - h->first : p->staging, part);
        TRY(ops->comm.broadcast(p->b, LANE_COMPUTE, &x, owner, e));
        if (!host) continue;
        TRY(ops->download(p->b, LANE_COMPUTE, host, x.data, part, e));
        host = (char *)host + part;
    }
    return OK;
}

enum status pieces_queue(const struct pieces *p, const struct holding *h, int64_t at, int64_t n,
                         int slot, int64_t *part, struct err *e) {
    const struct backend_ops *ops = p->b->ops;
    struct tensor x = bytes_at(h->data + at - h->first, *part = min64(n, PIECE_BYTES));
    if (h->shard) {
        int owner = (int)((h->offset + at) / h->shard);
        x.dim[0] = *part = min64(*part, (owner + 1) * h->shard - h->offset - at);
        if (owner != p->rank) x.data = p->staging;
        TRY(ops->comm.broadcast(p->b, LANE_COMPUTE, &x, owner, e));
    }
    return ops->readback(p->b, LANE_COMPUTE, slot, x.data, *part, e);
}

enum status pieces_write(const struct pieces *p, const struct holding *h, int64_t at, int64_t n,
                         const void *host, struct err *e) {
    const struct backend_ops *ops = p->b->ops;
    if (p->world == 1) return ops->upload(p->b, LANE_COMPUTE, h->data + at, host, n, e);
    struct tensor staged = bytes_at(p->staging, n);
    if (p->rank == 0) TRY(ops->upload(p->b, LANE_COMPUTE, p->staging, host, n, e));
    TRY(ops->comm.broadcast(p->b, LANE_COMPUTE, &staged, 0, e));
    int64_t begin = at > h->first ? at : h->first, end = min64(at + n, h->first + h->bytes);
    if (end <= begin) return OK;
    struct tensor from = bytes_at((char *)p->staging + (begin - at), end - begin);
    struct tensor to = bytes_at(h->data + (begin - h->first), end - begin);
    return ops->copy(p->b, LANE_COMPUTE, &to, &from, e);
}

enum status pieces_broadcast(const struct pieces *p, void *host, int64_t n, struct err *e) {
    const struct backend_ops *ops = p->b->ops;
    if (p->world == 1) return OK;
    struct tensor staged = bytes_at(p->staging, n);
    if (p->rank == 0) TRY(ops->upload(p->b, LANE_COMPUTE, p->staging, host, n, e));
    TRY(ops->comm.broadcast(p->b, LANE_COMPUTE, &staged, 0, e));
    return p->rank ? ops->download(p->b, LANE_COMPUTE, host, p->staging, n, e) : OK;
}

enum status pieces_join(const struct pieces *p, uint32_t *host, int64_t n, struct err *e) {
    const struct backend_ops *ops = p->b->ops;
    if (p->world == 1) return OK;
    for (int64_t part; n > 0; host += part, n -= part) {
        part = min64(n, PIECE_BYTES / (int64_t)sizeof *host);
        struct tensor x = tensor_1d(p->staging, DTYPE_U32, part);
        TRY(ops->upload(p->b, LANE_COMPUTE, p->staging, host, part * 4, e));
        TRY(ops->comm.all_reduce(p->b, LANE_COMPUTE, &x, REDUCE_MAX, e));
        TRY(ops->download(p->b, LANE_COMPUTE, host, p->staging, part * 4, e));
    }
    return OK;
}

enum status pieces_agree(const struct pieces *p, enum status mine, const char *what,
                         struct err *e) {
    const struct backend_ops *ops = p->b->ops;
    struct err lost; /* e already has this rank's error */
    struct err *why = mine == OK ? e : &lost;
    if (p->world == 1) return mine;
    uint32_t failed = mine != OK;
    struct tensor flag = tensor_1d(p->staging, DTYPE_U32, 1);
    enum status st = ops->upload(p->b, LANE_COMPUTE, p->staging, &failed, sizeof failed, why);
    if (st == OK) st = ops->comm.all_reduce(p->b, LANE_COMPUTE, &flag, REDUCE_MAX, why);
    if (st == OK) st = ops->download(p->b, LANE_COMPUTE, &failed, p->staging, sizeof failed, why);
    if (mine != OK) return mine;
    if (st == OK && failed) st = FAIL(e, ERR_PEER, "%s failed on another rank", what);
    return st;
}
