/* Collectives over the group's sockets. A reduction is scattered (every rank adds one slice, in
 * rank order) and gathered again. Tensors are moved in pieces, so the memory for other ranks' terms
 * is allocated once, at init. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "kernels/comm_codes.h"
#include "kernels/cpu/cpu.h"
#include "kernels/link.h"

enum { PIECE = 1 << 17 }; /* elements of one slice that are moved at a time */
/* Terms of 8 bits: codes received take the first half of a rank's room, codes to send the other. */
enum { OUTGOING = PIECE / 2 /* u32 */ };
static_assert(PIECE % COMM_BLOCK == 0, "blocks do not cross pieces");
static_assert(OUTGOING * 4 >= PIECE + PIECE / COMM_BLOCK, "a half holds a piece's codes");

struct cpu_group {
    struct links *links;
    int rank, world;
    struct comm_note *note; /* the caller's, or `own` */
    struct comm_note own;
    struct comm_at at;      /* last written to the note */
    uint64_t busy_ns;       /* time in collectives so far */
    uint32_t *terms;                /* [world][PIECE] */
    struct link_transfer *transfer; /* [world] */
};

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* ---- life ---- */

void cpu_group_close(struct cpu_group *g) {
    if (!g) return;
    links_destroy(g->links);
    free(g->terms);
    free(g->transfer);
    free(g);
}

static enum status comm_init(struct backend *b, const struct comm_group *group, struct err *e) {
    if (cpu_of(b)->group) return FAIL(e, ERR_STATE, "comm init: the group exists already");
    if (!group || group->world == 1) return OK;
    struct cpu_group *g = calloc(1, sizeof *g);
    if (!g) return FAIL(e, ERR_MEMORY, "no memory for a group of ranks");
    enum status st = links_create(&g->links, group, e);
    size_t world = (size_t)group->world;
    if (st == OK) {
        g->terms = malloc(world * PIECE * sizeof *g->terms);
        g->transfer = calloc(world, sizeof *g->transfer);
        if (!g->terms || !g->transfer)
            st = FAIL(e, ERR_MEMORY, "no memory for the terms of %d ranks: %zu bytes",
                      group->world, world * PIECE * sizeof *g->terms);
    }
    if (st != OK) {
        cpu_group_close(g);
        return st;
    }
    g->rank = group->rank;
    g->world = group->world;
    g->note = group->note ? group->note : &g->own;
    cpu_of(b)->group = g;
    return OK;
}

static const struct cpu_group *group_of(const struct backend *b) {
    return ((const struct cpu_backend *)b)->group;
}
static int comm_rank(const struct backend *b) { return group_of(b) ? group_of(b)->rank : 0; }
static int comm_world(const struct backend *b) { return group_of(b) ? group_of(b)->world : 1; }

static enum status comm_poll(struct backend *b, struct err *e) {
    return cpu_of(b)->group ? links_poll(cpu_of(b)->group->links, e) : OK;
}
static void comm_abort(struct backend *b) {
    if (cpu_of(b)->group) links_abort(cpu_of(b)->group->links);
}

/* ---- moving ---- */

/* A tensor cut into one slice for each rank. All have `each` elements; the last may have fewer. */
struct slices { char *data; int64_t count, each, bytes; };

static struct slices slices_of(const struct cpu_group *g, const struct tensor *x) {
    int64_t n = tensor_count(x);
    return (struct slices){ x->data, n, ceil_div(n, g->world), dtype_bytes(x->dtype) };
}
/* Slice `rank` in piece `p`: returns the number of its elements; *at is where they begin. */
static int64_t piece_of(const struct slices *s, int rank, int64_t p, char **at) {
    int64_t first = rank * s->each + p * PIECE, end = (rank + 1) * s->each;
    if (end > s->count) end = s->count;
    *at = s->data + first * s->bytes;
    if (first >= end) return 0;
    return end - first < PIECE ? end - first : PIECE;
}

/* Notes the collective, and checks that all ranks are in the same one. */
static enum status begin(struct cpu_group *g, const char *name, const struct tensor *x, int64_t op,
                         const int *peer, int peers, struct err *e) {
    const int64_t detail[4] = { x->dtype, tensor_count(x), op, 0 };
    g->at.count++;
    snprintf(g->at.what, sizeof g->at.what, "%s of %lld %s", name, (long long)tensor_count(x),
             dtype_name(x->dtype));
    comm_note_move(g->note, &g->at);
    return links_agree(g->links, peer, peers, g->at.what, detail, e);
}

/* Sends piece p of every slice to its rank, and receives the others' terms of this rank's slice. */
static enum status scatter_piece(struct cpu_group *g, const struct slices *s, int64_t p,
                                 struct err *e) {
    char *at;
    int n = 0;
    int64_t mine = piece_of(s, g->rank, p, &at);
    for (int i = 0; i < g->world; i++) {
        if (i == g->rank) continue;
        int64_t theirs = piece_of(s, i, p, &at);
        g->transfer[n++] = (struct link_transfer){
            .peer = i, .out = at, .out_bytes = theirs * s->bytes,
            .in = g->terms + (int64_t)i * PIECE, .in_bytes = mine * s->bytes,
        };
    }
    return links_exchange(g->links, g->transfer, n, g->at.what, e);
}

/* Sends every rank's slice to every rank. */
static enum status gather(struct cpu_group *g, const struct slices *s, struct err *e) {
    int n = 0;
    char *mine, *theirs;
    int64_t last = s->count - g->rank * s->each;
    int64_t own = last < 0 ? 0 : last < s->each ? last : s->each;
    mine = s->data + g->rank * s->each * s->bytes;
    for (int i = 0; i < g->world; i++) {
        if (i == g->rank) continue;
        int64_t left = s->count - i * s->each;
        int64_t count = left < 0 ? 0 : left < s->each ? left : s->each;
        theirs = s->data + i * s->each * s->bytes;
        g->transfer[n++] = (struct link_transfer){
            .peer = i, .out = mine, .out_bytes = own * s->bytes,
            .in = theirs, .in_bytes = count * s->bytes,
        };
    }
    return links_exchange(g->links, g->transfer, n, g->at.what, e);
}

/* ---- adding ---- */

/* The term of `rank` in the current sum: the received bytes, or this rank's own slice. */
static const void *term(const struct cpu_group *g, int rank, const void *own) {
    return rank == g->rank ? own : g->terms + (int64_t)rank * PIECE;
}

/* out[0..n) = the sum of all terms in rank order; out may be own. */
static void add_terms(struct backend *b, const struct tensor *out, int64_t at, const void *own,
                      int64_t n) {
    const struct cpu_group *g = cpu_of(b)->group;
    float *sum = cpu_scratch(b, 0), *next = sum + PIECE;
    for (int r = 0; r < g->world; r++) {
        struct tensor x = tensor_1d((void *)term(g, r, own), out->dtype, n);
        load_span(r ? next : sum, &x, 0, n);
        for (int64_t i = 0; r && i < n; i++) sum[i] = sum[i] + next[i];
    }
    store_span(out, at, sum, n);
}

static void max_terms(const struct cpu_group *g, uint32_t *own, int64_t n) {
    for (int r = 0; r < g->world; r++) {
        if (r == g->rank) continue;
        const uint32_t *x = term(g, r, own);
        for (int64_t i = 0; i < n; i++) own[i] = x[i] > own[i] ? x[i] : own[i];
    }
}

/* ---- terms of 8 bits ---- */

/* A piece of rank r's slice, on its way to r, or there. */
static uint8_t *outgoing(const struct cpu_group *g, int r) {
    return (uint8_t *)(g->terms + (int64_t)r * PIECE + OUTGOING);
}

static void encode(const struct isa *isa, uint8_t *to, const float *x, int64_t n) {
    uint8_t *scale = to + comm_scales_at(n);
    float m[COMM_BLOCK];
    for (int64_t at = 0; at < n; at += COMM_BLOCK, scale++) {
        int64_t block = n - at < COMM_BLOCK ? n - at : COMM_BLOCK;
        *scale = comm_block_scale(isa->amax(x + at, block));
        for (int64_t i = 0; i < block; i++) m[i] = e8m0_decode_inverse(*scale);
        isa->fp8_encode(DTYPE_E4M3, to + at, x + at, m, block);
    }
}

static void decode(const struct isa *isa, float *to, const uint8_t *from, int64_t n) {
    const uint8_t *scale = from + comm_scales_at(n);
    isa->fp8_decode(DTYPE_E4M3, to, from, n);
    for (int64_t i = 0; i < n; i++) to[i] = to[i] * e8m0_decode(scale[i / COMM_BLOCK]);
}

/* scatter_piece, with each term made into codes first. */
static enum status scatter_codes(struct backend *b, const struct tensor *x, const struct slices *s,
                                 int64_t p, struct err *e) {
    struct cpu_group *g = cpu_of(b)->group;
    float *values = cpu_scratch(b, 0);
    char *at;
    int n = 0;
    int64_t mine = piece_of(s, g->rank, p, &at);
    for (int i = 0; i < g->world; i++) {
        int64_t theirs = piece_of(s, i, p, &at);
        load_span(values, x, (at - s->data) / s->bytes, theirs);
        encode(cpu_of(b)->isa, outgoing(g, i), values, theirs);
        if (i == g->rank) continue;
        g->transfer[n++] = (struct link_transfer){
            .peer = i, .out = outgoing(g, i), .out_bytes = comm_codes_bytes(theirs),
            .in = g->terms + (int64_t)i * PIECE, .in_bytes = comm_codes_bytes(mine),
        };
    }
    return links_exchange(g->links, g->transfer, n, g->at.what, e);
}

static void add_codes(struct backend *b, const struct tensor *out, int64_t at, int64_t n) {
    const struct cpu_group *g = cpu_of(b)->group;
    float *sum = cpu_scratch(b, 0), *next = sum + PIECE;
    for (int r = 0; r < g->world; r++) {
        decode(cpu_of(b)->isa, r ? next : sum, term(g, r, outgoing(g, g->rank)), n);
        for (int64_t i = 0; r && i < n; i++) sum[i] = sum[i] + next[i];
    }
    store_span(out, at, sum, n);
}

static enum status reduce_codes(struct backend *b, const struct tensor *out,
                                const struct tensor *x, struct err *e) {
    struct cpu_group *g = cpu_of(b)->group;
    struct slices s = slices_of(g, x);
    TRY(begin(g, "reduce_scatter_codes", x, 0, NULL, 0, e));
    for (int64_t p = 0; p * PIECE < s.each; p++) {
        char *own;
        TRY(scatter_codes(b, x, &s, p, e));
        add_codes(b, out, p * PIECE, piece_of(&s, g->rank, p, &own));
    }
    return OK;
}

/* ---- the collectives ---- */

static enum status reduce_all(struct backend *b, const struct tensor *x, enum reduce_op op,
                              struct err *e) {
    struct cpu_group *g = cpu_of(b)->group;
    struct slices s = slices_of(g, x);
    TRY(begin(g, op == REDUCE_SUM ? "all_reduce sum" : "all_reduce max", x, op, NULL, 0, e));
    for (int64_t p = 0; p * PIECE < s.each; p++) {
        char *own;
        TRY(scatter_piece(g, &s, p, e));
        int64_t n = piece_of(&s, g->rank, p, &own);
        if (op == REDUCE_SUM && n) add_terms(b, x, (own - s.data) / s.bytes, own, n);
        if (op == REDUCE_MAX) max_terms(g, (uint32_t *)own, n);
    }
    return gather(g, &s, e);
}

static enum status reduce_slices(struct backend *b, const struct tensor *out,
                                 const struct tensor *x, struct err *e) {
    struct cpu_group *g = cpu_of(b)->group;
    struct slices s = slices_of(g, x);
    TRY(begin(g, "reduce_scatter", x, 0, NULL, 0, e));
    for (int64_t p = 0; p * PIECE < s.each; p++) {
        char *own;
        TRY(scatter_piece(g, &s, p, e));
        int64_t n = piece_of(&s, g->rank, p, &own);
        add_terms(b, out, p * PIECE, own, n);
    }
    return OK;
}

static enum status gather_all(struct backend *b, const struct tensor *out, const struct tensor *x,
                              struct err *e) {
    struct cpu_group *g = cpu_of(b)->group;
    struct slices s = slices_of(g, out);
    TRY(begin(g, "all_gather", x, 0, NULL, 0, e));
    char *own = s.data + g->rank * s.each * s.bytes;
    if (own != x->data) memcpy(own, x->data, (size_t)(s.each * s.bytes));
    return gather(g, &s, e);
}

static enum status send_all(struct backend *b, const struct tensor *x, int root, struct err *e) {
    struct cpu_group *g = cpu_of(b)->group;
    int64_t bytes = tensor_count(x) * dtype_bytes(x->dtype);
    bool sends = g->rank == root;
    int n = 0;
    TRY(begin(g, "broadcast", x, root, sends ? NULL : &root, 1, e));
    for (int i = 0; i < g->world; i++) {
        if (i == g->rank || (!sends && i != root)) continue;
        g->transfer[n++] = (struct link_transfer){
            .peer = i, .out = x->data, .out_bytes = sends ? bytes : 0,
            .in = x->data, .in_bytes = sends ? 0 : bytes,
        };
    }
    return links_exchange(g->links, g->transfer, n, g->at.what, e);
}

/* ---- the table ---- */

static void account(struct backend *b, uint64_t since) {
    cpu_of(b)->group->busy_ns += now_ns() - since;
}

static enum status comm_all_reduce(struct backend *b, int lane, const struct tensor *x,
                                   enum reduce_op op, struct err *e) {
    uint64_t since = now_ns();
    if (op == REDUCE_SUM)
        TRY(cpu_check_packed(x, "all_reduce sum: x", IS_ACT, -1, -1, e));
    else TRY(cpu_check_packed(x, "all_reduce max: x", IS_U32, -1, -1, e));
    if (!cpu_of(b)->group) return OK;
    enum status st = reduce_all(b, x, op, e);
    account(b, since);
    return st;
}

/* The shapes of a scattered and a gathered tensor: large has `world` times the elements. */
static enum status check_pair(struct backend *b, const char *what, const struct tensor *small,
                              const struct tensor *large, int dtypes, struct err *e) {
    int64_t world = comm_world(b);
    TRY(cpu_check_packed(small, what, dtypes, -1, -1, e));
    TRY(cpu_check_packed(large, what, dtypes, -1, -1, e));
    if (small->dtype == large->dtype && tensor_count(small) * world == tensor_count(large))
        return OK;
    return FAIL(e, ERR_ARG, "%s: %lld %s and %lld %s, with %lld ranks", what,
                (long long)tensor_count(small), dtype_name(small->dtype),
                (long long)tensor_count(large), dtype_name(large->dtype), (long long)world);
}

/* With one rank a slice is the whole. */
static enum status copy_alone(const struct tensor *out, const struct tensor *x) {
    if (out->data != x->data)
        memcpy(out->data, x->data, (size_t)(tensor_count(x) * dtype_bytes(x->dtype)));
    return OK;
}

static enum status comm_reduce_scatter(struct backend *b, int lane, const struct tensor *out,
                                       const struct tensor *x, struct err *e) {
    uint64_t since = now_ns();
    TRY(check_pair(b, "reduce_scatter", out, x, IS_ACT, e));
    if (!cpu_of(b)->group) return copy_alone(out, x);
    enum status st = reduce_slices(b, out, x, e);
    account(b, since);
    return st;
}

static enum status comm_reduce_scatter_codes(struct backend *b, int lane,
                                             const struct tensor *out, const struct tensor *x,
                                             struct err *e) {
    uint64_t since = now_ns();
    TRY(check_pair(b, "reduce_scatter_codes", out, x, IS_ACT, e));
    if (!cpu_of(b)->group) return copy_alone(out, x);
    enum status st = reduce_codes(b, out, x, e);
    account(b, since);
    return st;
}

static enum status comm_all_gather(struct backend *b, int lane, const struct tensor *out,
                                   const struct tensor *x, struct err *e) {
    uint64_t since = now_ns();
    TRY(check_pair(b, "all_gather", x, out, -1, e));
    if (!cpu_of(b)->group) return copy_alone(out, x);
    enum status st = gather_all(b, out, x, e);
    account(b, since);
    return st;
}

static enum status comm_broadcast(struct backend *b, int lane, const struct tensor *x, int root,
                                  struct err *e) {
    uint64_t since = now_ns();
    TRY(cpu_check_packed(x, "broadcast: x", -1, -1, -1, e));
    if (root < 0 || root >= comm_world(b))
        return FAIL(e, ERR_ARG, "broadcast: root %d of %d ranks", root, comm_world(b));
    if (!cpu_of(b)->group) return OK;
    enum status st = send_all(b, x, root, e);
    account(b, since);
    return st;
}

static enum status comm_busy(struct backend *b, int lane, const struct tensor *out,
                             struct err *e) {
    TRY(cpu_check(out, "busy: out", IS_U64, 2, 1, e));
    uint64_t *ns = out->data; /* all lanes run in this thread, so all of the time is waiting */
    ns[0] = ns[1] = cpu_of(b)->group ? cpu_of(b)->group->busy_ns : 0;
    return OK;
}

const struct comm_ops CPU_COMM = {
    .init = comm_init, .rank = comm_rank, .world = comm_world, .all_reduce = comm_all_reduce,
    .reduce_scatter = comm_reduce_scatter, .reduce_scatter_codes = comm_reduce_scatter_codes,
    .all_gather = comm_all_gather,
    .broadcast = comm_broadcast, .busy = comm_busy, .poll = comm_poll, .abort = comm_abort,
};
