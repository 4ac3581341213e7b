/* The collectives of the CPU backend over sockets, with 2, 3 and 4 ranks: what each means, to the
 * bit, and what becomes of a group whose ranks disagree, leave or die. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "kernels/dtype.h"
#include "tests/support/ranks.h"

enum { SECONDS = 60 };

/* What rank r has at i: of both signs, with sums that depend on their order. */
static float value_at(int r, int64_t i) {
    uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)r * 40503u + 12345u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    float unit = (float)(x >> 8) * 0x1p-23f - 1.0f;
    return unit * (x & 1 ? 1.0f : 3000.0f);
}

static void put(const struct tensor *x, int64_t i, float v) {
    if (x->dtype == DTYPE_F32) ((float *)x->data)[i] = v;
    else ((uint16_t *)x->data)[i] = bf16_encode(v);
}
static float get(const struct tensor *x, int64_t i) {
    return x->dtype == DTYPE_F32 ? ((float *)x->data)[i] : bf16_decode(((uint16_t *)x->data)[i]);
}

/* The definition: f32, rank order, one rounding. */
static float sum_at(int world, int64_t i, enum dtype dtype) {
    float sum = 0;
    for (int r = 0; r < world; r++) {
        float v = value_at(r, i);
        if (dtype == DTYPE_BF16) v = bf16_decode(bf16_encode(v));
        sum = r ? sum + v : v;
    }
    return dtype == DTYPE_BF16 ? bf16_decode(bf16_encode(sum)) : sum;
}

static struct tensor make(struct rank_test *t, enum dtype dtype, int64_t n) {
    struct tensor x = tensor_1d(calloc((size_t)n + 1, 8), dtype, n);
    for (int64_t i = 0; i < n; i++) put(&x, i, value_at(t->group.rank, i));
    return x;
}

/* Sizes: fewer elements than ranks, uneven slices, several pieces of one slice. */
static const int64_t SIZES[] = { 1, 3, 64, 1000, 1000003 };
static const enum dtype DTYPES[] = { DTYPE_F32, DTYPE_BF16 };

static int sums(struct rank_test *t) {
    const struct comm_ops *c = &t->backend->ops->comm;
    for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; s++)
        for (int d = 0; d < 2; d++) {
            struct tensor x = make(t, DTYPES[d], SIZES[s]);
            RANK_MUST(c->all_reduce(t->backend, LANE_COMM, &x, REDUCE_SUM, &must_));
            for (int64_t i = 0; i < SIZES[s]; i++)
                RANK_CHECK(get(&x, i) == sum_at(t->group.world, i, DTYPES[d]));
            free(x.data);
        }
    RANK_CHECK(t->note.count == 10 && !strcmp(t->note.what, "all_reduce sum of 1000003 bf16"));
    return 0;
}

static int maxima(struct rank_test *t) {
    const uint32_t special[3] = { 0x7F800000u, 0x7FC00000u, 0 }; /* infinity, NaN, zero */
    uint32_t bits[8] = { 0 };
    bits[t->group.rank % 3] = special[t->group.rank % 3];
    bits[3] = 1u << t->group.rank;
    struct tensor x = tensor_1d(bits, DTYPE_U32, 8);
    RANK_MUST(t->backend->ops->comm.all_reduce(t->backend, LANE_COMM, &x, REDUCE_MAX, &must_));
    RANK_CHECK(bits[0] == special[0] && bits[1] == special[1] && bits[2] == 0);
    RANK_CHECK(bits[3] == 1u << (t->group.world - 1));
    return 0;
}

/* Into memory of its own, or, in_place, into the slice of x. */
static int scatters(struct rank_test *t) {
    int world = t->group.world, rank = t->group.rank;
    for (int in_place = 0; in_place < 2; in_place++)
        for (int d = 0; d < 2; d++) {
            int64_t n = 300000, bytes = dtype_bytes(DTYPES[d]);
            struct tensor x = make(t, DTYPES[d], n * world);
            struct tensor out = tensor_1d((char *)x.data + rank * n * bytes, DTYPES[d], n);
            if (!in_place) out.data = malloc((size_t)(n * bytes));
            RANK_MUST(t->backend->ops->comm.reduce_scatter(t->backend, LANE_COMM, &out, &x,
                                                           &must_));
            for (int64_t i = 0; i < n; i++)
                RANK_CHECK(get(&out, i) == sum_at(world, rank * n + i, DTYPES[d]));
            if (!in_place) free(out.data);
            free(x.data);
        }
    return 0;
}

static int gathers(struct rank_test *t) {
    int world = t->group.world, rank = t->group.rank;
    const enum dtype moved[] = { DTYPE_F32, DTYPE_E4M3, DTYPE_U64 };
    for (int in_place = 0; in_place < 2; in_place++)
        for (int d = 0; d < 3; d++) {
            int64_t n = 100001, bytes = n * dtype_bytes(moved[d]);
            unsigned char *all = calloc((size_t)(bytes * world), 1);
            unsigned char *mine = in_place ? all + rank * bytes : malloc((size_t)bytes);
            for (int64_t i = 0; i < bytes; i++) mine[i] = (unsigned char)(i * 7 + rank);
            struct tensor out = tensor_1d(all, moved[d], n * world);
            struct tensor x = tensor_1d(mine, moved[d], n);
            RANK_MUST(t->backend->ops->comm.all_gather(t->backend, LANE_COMM, &out, &x, &must_));
            for (int r = 0; r < world; r++)
                for (int64_t i = 0; i < bytes; i++)
                    RANK_CHECK(all[r * bytes + i] == (unsigned char)(i * 7 + r));
            if (!in_place) free(mine);
            free(all);
        }
    return 0;
}

static int broadcasts(struct rank_test *t) {
    for (int root = 0; root < t->group.world; root++) {
        int64_t n = 70001;
        struct tensor x = make(t, DTYPE_F32, n);
        RANK_MUST(t->backend->ops->comm.broadcast(t->backend, LANE_COMM, &x, root, &must_));
        for (int64_t i = 0; i < n; i++) RANK_CHECK(get(&x, i) == value_at(root, i));
        free(x.data);
    }
    return 0;
}

static void all_succeed(rank_body body) {
    for (int world = 2; world <= 4; world++) {
        int code[4];
        ranks_run(world, body, NULL, SECONDS, code);
        for (int r = 0; r < world; r++) assert_int_equal(code[r], 0);
    }
}

static void test_sum(void **state) { all_succeed(sums); }
static void test_max(void **state) { all_succeed(maxima); }
static void test_reduce_scatter(void **state) { all_succeed(scatters); }
static void test_all_gather(void **state) { all_succeed(gathers); }
static void test_broadcast(void **state) { all_succeed(broadcasts); }

/* ---- ranks that do not hold together ----------------------------------------------------------*/

/* Returns 10 + status of one sum of 100000; `want` must be in the text of its error. */
static int one_sum(struct rank_test *t, const char *want) {
    struct err e = { 0 };
    struct tensor x = make(t, DTYPE_F32, 100000);
    enum status st = t->backend->ops->comm.all_reduce(t->backend, LANE_COMM, &x, REDUCE_SUM, &e);
    free(x.data);
    bool said = st == OK || strstr(e.text, want);
    if (!said) fprintf(stderr, "rank %d: wanted \"%s\", found: %s\n", t->group.rank, want, e.text);
    return said ? 10 + (int)st : 1;
}

static int disagrees(struct rank_test *t) {
    if (t->group.rank != 1) return one_sum(t, "all_gather of 50000 f32");
    struct err e = { 0 };
    struct tensor x = make(t, DTYPE_F32, 50000), out = make(t, DTYPE_F32, 100000);
    enum status st = t->backend->ops->comm.all_gather(t->backend, LANE_COMM, &out, &x, &e);
    free(x.data);
    free(out.data);
    return strstr(e.text, "all_reduce sum of 100000 f32") ? 10 + (int)st : 1;
}

static int leaves(struct rank_test *t) {
    if (t->group.rank == 1) return 0;
    struct timespec nap = { 0, 200000000 };
    (void)nanosleep(&nap, NULL);
    struct err e = { 0 };
    if (t->backend->ops->comm.poll(t->backend, &e) != OK) return 2; /* it said goodbye */
    return one_sum(t, "all_reduce sum of 100000 f32: rank 1 on ");
}

static int dies(struct rank_test *t) {
    if (t->group.rank == 1) {
        (void)raise(SIGKILL);
    }
    struct err e = { 0 };
    for (int i = 0; i < 500; i++) {
        struct timespec nap = { 0, 10000000 };
        (void)nanosleep(&nap, NULL);
        if (t->backend->ops->comm.poll(t->backend, &e) != OK) break;
    }
    if (!strstr(e.text, "rank ")) return 3;
    return one_sum(t, "all_reduce sum of 100000 f32: ");
}

static int is_aborted(struct rank_test *t) {
    if (t->group.rank == 1) {
        struct timespec nap = { 0, 300000000 };
        (void)nanosleep(&nap, NULL);
        t->backend->ops->comm.abort(t->backend);
        t->backend->ops->comm.abort(t->backend);
    }
    return one_sum(t, "");
}

static void run_broken(rank_body body, int first, int second) {
    int code[2];
    ranks_run(2, body, NULL, SECONDS, code);
    assert_int_equal(code[0], first);
    assert_int_equal(code[1], second);
}

static void test_disagreement(void **state) {
    run_broken(disagrees, 10 + ERR_STATE, 10 + ERR_STATE);
}
static void test_goodbye(void **state) { run_broken(leaves, 10 + ERR_PEER, 0); }
static void test_death(void **state) { run_broken(dies, 10 + ERR_PEER, RANK_KILLED); }
static void test_abort(void **state) { run_broken(is_aborted, 10 + ERR_PEER, 10 + ERR_PEER); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum), cmocka_unit_test(test_max),
        cmocka_unit_test(test_reduce_scatter), cmocka_unit_test(test_all_gather),
        cmocka_unit_test(test_broadcast), cmocka_unit_test(test_disagreement),
        cmocka_unit_test(test_goodbye), cmocka_unit_test(test_death),
        cmocka_unit_test(test_abort),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
