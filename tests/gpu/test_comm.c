/* The collectives over NCCL, one process a GPU: the reference's bits, also from a captured graph
 * and during work on another lane. Also the errors of the other ranks when one rank dies. Skipped
 * with fewer than two GPUs. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/comm_cases.h"

enum { SECONDS = 20, GPUS_MAX = 8 };

/* From CUDA_VISIBLE_DEVICES, else from device nodes: a process that has called CUDA cannot be
 * forked. */
static int gpu_count(void) {
    int n = 0;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible && *visible) {
        for (n = 1; *visible; visible++) n += *visible == ',';
        return n;
    }
    for (int i = 0; i < GPUS_MAX; i++) {
        char path[32];
        snprintf(path, sizeof path, "/dev/nvidia%d", i);
        n += access(path, F_OK) == 0;
    }
    return n;
}

static int gpus_or_skip(void) {
    int n = gpu_count();
    if (n >= 2) return n;
    print_message("skipped: %d GPU, needs two\n", n);
    skip();
    return 0;
}

static void all_succeed(rank_body body) {
    int world = gpus_or_skip(), code[GPUS_MAX];
    ranks_run("cuda", world, body, NULL, SECONDS, code);
    for (int r = 0; r < world; r++) assert_int_equal(code[r], 0);
}

static void test_sum(void **state) { all_succeed(comm_sums); }
static void test_max(void **state) { all_succeed(comm_maxima); }
static void test_reduce_scatter(void **state) { all_succeed(comm_scatters); }
static void test_reduce_scatter_codes(void **state) { all_succeed(comm_scatters_codes); }
static void test_all_gather(void **state) { all_succeed(comm_gathers); }
static void test_broadcast(void **state) { all_succeed(comm_broadcasts); }

/* x <- sum of x, small <- sum of small, on one lane or two. */
static enum status two_sums(struct rank_test *t, int small_lane, const struct tensor *x,
                            const struct tensor *small, struct err *e) {
    const struct backend_ops *ops = t->backend->ops;
    TRY(ops->signal(t->backend, LANE_COMPUTE, 0, e));
    TRY(ops->wait(t->backend, LANE_COMM, 0, e));
    TRY(ops->comm.all_reduce(t->backend, LANE_COMM, x, REDUCE_SUM, e));
    TRY(ops->comm.all_reduce(t->backend, small_lane, small, REDUCE_SUM, e));
    TRY(ops->signal(t->backend, LANE_COMM, 1, e));
    return ops->wait(t->backend, LANE_COMPUTE, 1, e);
}

static int check_sums(struct rank_test *t, const struct tensor *x) {
    float *value = comm_values(t, x);
    RANK_CHECK(value);
    for (int64_t i = 0; i < tensor_count(x); i++)
        RANK_CHECK(value[i] == comm_sum(t->group.world, i, x->dtype));
    free(value);
    return 0;
}

/* Four times: uncaptured, captured, replayed twice; or uncaptured each time. */
static int repeated(struct rank_test *t, int small_lane, bool graph) {
    const struct backend_ops *ops = t->backend->ops;
    struct tensor x = comm_tensor(t, DTYPE_BF16, 3000000), x0 = comm_tensor(t, DTYPE_BF16, 3000000);
    struct tensor few = comm_tensor(t, DTYPE_F32, 100), few0 = comm_tensor(t, DTYPE_F32, 100);
    for (int pass = 0; pass < 4; pass++) {
        bool replayed = false;
        RANK_MUST(ops->copy(t->backend, LANE_COMPUTE, &x, &x0, &must_));
        RANK_MUST(ops->copy(t->backend, LANE_COMPUTE, &few, &few0, &must_));
        RANK_MUST(ops->sync(t->backend, &must_));
        if (graph) RANK_MUST(ops->graph_replay(t->backend, GRAPH_UPDATE, &replayed, &must_));
        RANK_CHECK(replayed == (graph && pass > 1));
        if (!replayed) {
            if (graph) RANK_MUST(ops->graph_begin(t->backend, GRAPH_UPDATE, &must_));
            RANK_MUST(two_sums(t, small_lane, &x, &few, &must_));
            if (graph) RANK_MUST(ops->graph_end(t->backend, GRAPH_UPDATE, &must_));
        }
        RANK_MUST(ops->sync(t->backend, &must_));
        RANK_CHECK(check_sums(t, &x) == 0);
        RANK_CHECK(check_sums(t, &few) == 0);
    }
    RANK_MUST(ops->comm.poll(t->backend, &must_));
    return 0;
}

static int one_lane(struct rank_test *t) { return repeated(t, LANE_COMM, false); }
static int two_lanes(struct rank_test *t) { return repeated(t, LANE_COMPUTE, false); }
static int captured(struct rank_test *t) { return repeated(t, LANE_COMM, true); }
static int captured_lanes(struct rank_test *t) {
    RANK_CHECK(repeated(t, LANE_COMPUTE, true) == 0);
    struct tensor busy = comm_tensor(t, DTYPE_F32, 4);
    uint64_t ns[2] = { 0 };
    busy.dtype = DTYPE_U64;
    busy.dim[0] = 2;
    RANK_MUST(t->backend->ops->comm.busy(t->backend, LANE_COMM, &busy, &must_));
    RANK_MUST(t->backend->ops->download(t->backend, LANE_COMM, ns, busy.data, sizeof ns,
                                        &must_));
    /* Two collectives in each of four passes: replays are counted and timed as well. Nothing
     * overlapped them: compute waited for one and ran the other. */
    RANK_CHECK(comm_note_read(&t->note).at.count == 8);
    RANK_CHECK(ns[1] > 0 && ns[1] < 60000000000ull && ns[0] < 60000000000ull);
    RANK_CHECK(ns[0] >= ns[1] / 2);
    return 0;
}
static void test_one_lane(void **state) { all_succeed(one_lane); }
static void test_two_lanes(void **state) { all_succeed(two_lanes); }
static void test_captured(void **state) { all_succeed(captured); }
static void test_captured_lanes(void **state) { all_succeed(captured_lanes); }

struct aborting { struct rank_test *t; struct err e; };

/* Like a worker's heartbeat thread: polls, and aborts the group on an error. */
static void *pulse(void *user) {
    struct aborting *a = user;
    const struct comm_ops *c = &a->t->backend->ops->comm;
    for (int i = 0; i < 100; i++) {
        struct timespec nap = { 0, 100000000 };
        (void)nanosleep(&nap, NULL);
        if (c->poll(a->t->backend, &a->e) == OK) continue;
        c->abort(a->t->backend);
        break;
    }
    return NULL;
}

/* Rank 1 dies. The others' collectives end, although a graph still refers to the group. */
static int survives(struct rank_test *t) {
    const struct comm_ops *c = &t->backend->ops->comm;
    RANK_CHECK(captured(t) == 0);
    struct tensor x = comm_tensor(t, DTYPE_F32, 1 << 20);
    RANK_MUST(c->all_reduce(t->backend, LANE_COMM, &x, REDUCE_SUM, &must_));
    RANK_MUST(t->backend->ops->sync(t->backend, &must_));
    if (t->group.rank == 1) (void)raise(SIGKILL);
    struct aborting a = { .t = t };
    struct err e = { 0 };
    pthread_t thread;
    RANK_CHECK(pthread_create(&thread, NULL, pulse, &a) == 0);
    (void)!c->all_reduce(t->backend, LANE_COMM, &x, REDUCE_SUM, &e);
    (void)!t->backend->ops->sync(t->backend, &e); /* must return, with any status */
    RANK_CHECK(c->all_reduce(t->backend, LANE_COMM, &x, REDUCE_SUM, &e) == ERR_PEER);
    t->backend->ops->graph_drop(t->backend);
    RANK_CHECK(pthread_join(thread, NULL) == 0 && a.e.code == ERR_PEER);
    return 0;
}

static void test_death(void **state) {
    int world = gpus_or_skip(), code[GPUS_MAX];
    ranks_run("cuda", world, survives, NULL, SECONDS, code);
    for (int r = 0; r < world; r++) assert_int_equal(code[r], r == 1 ? RANK_KILLED : 0);
}

/* An argument selects tests: "test_captured*". */
int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum), cmocka_unit_test(test_max),
        cmocka_unit_test(test_reduce_scatter), cmocka_unit_test(test_all_gather),
        cmocka_unit_test(test_reduce_scatter_codes),
        cmocka_unit_test(test_broadcast), cmocka_unit_test(test_one_lane),
        cmocka_unit_test(test_two_lanes), cmocka_unit_test(test_captured),
        cmocka_unit_test(test_captured_lanes),
        cmocka_unit_test(test_death),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
