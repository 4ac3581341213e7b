/* The collectives of the CPU backend over sockets, with 2, 3 and 4 ranks: their results, to the
 * bit. Also the errors of a group whose ranks disagree, leave or die. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/comm_cases.h"

enum { SECONDS = 60 };

static void all_succeed(rank_body body) {
    for (int world = 2; world <= 4; world++) {
        int code[4];
        ranks_run("cpu", world, body, NULL, SECONDS, code);
        for (int r = 0; r < world; r++) assert_int_equal(code[r], 0);
    }
}

static void test_sum(void **state) { all_succeed(comm_sums); }
static void test_max(void **state) { all_succeed(comm_maxima); }
static void test_reduce_scatter(void **state) { all_succeed(comm_scatters); }
static void test_reduce_scatter_codes(void **state) { all_succeed(comm_scatters_codes); }
static void test_all_gather(void **state) { all_succeed(comm_gathers); }
static void test_broadcast(void **state) { all_succeed(comm_broadcasts); }

/* ---- groups that fail -------------------------------------------------------------------------*/

/* Returns 10 + the status of a sum of 100000; the text of its error must contain `want`. */
static int one_sum(struct rank_test *t, const char *want) {
    struct err e = { 0 };
    struct tensor x = comm_tensor(t, DTYPE_F32, 100000);
    enum status st = t->backend->ops->comm.all_reduce(t->backend, LANE_COMM, &x, REDUCE_SUM, &e);
    free(x.data);
    bool said = st == OK || strstr(e.text, want);
    if (!said) fprintf(stderr, "rank %d: wanted \"%s\", found: %s\n", t->group.rank, want, e.text);
    return said ? 10 + (int)st : 1;
}

static int disagrees(struct rank_test *t) {
    if (t->group.rank != 1) return one_sum(t, "all_gather of 50000 f32");
    struct err e = { 0 };
    struct tensor x = comm_tensor(t, DTYPE_F32, 50000), out = comm_tensor(t, DTYPE_F32, 100000);
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
    if (t->backend->ops->comm.poll(t->backend, &e) != OK) return 2; /* rank 1 left in order */
    return one_sum(t, "all_reduce sum of 100000 f32: rank 1 on ");
}

static int dies(struct rank_test *t) {
    if (t->group.rank == 1) {
        (void)raise(SIGKILL);
    }
    struct err e = { 0 };
    /* ranks_run ends a test that waits too long. */
    while (t->backend->ops->comm.poll(t->backend, &e) == OK) {
        struct timespec nap = { 0, 10000000 };
        (void)nanosleep(&nap, NULL);
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

/* All links of rank 1 break while it lives. It notes both; each other rank notes rank 1 at
 * least. */
static int is_cut_off(struct rank_test *t) {
    const struct comm_note *note = t->group.note;
    bool cut = t->group.rank == 1;
    RANK_CHECK(!note->aborted && !note->lost);
    if (cut)
        for (int i = 0; i < 3; i += 2) (void)shutdown(t->group.link[i], SHUT_RDWR);
    int code = one_sum(t, "rank ");
    RANK_CHECK(note->aborted);
    RANK_CHECK(cut ? note->lost == 5 : (note->lost & 2) != 0);
    return code;
}

static void run_broken(rank_body body, int first, int second) {
    int code[2];
    ranks_run("cpu", 2, body, NULL, SECONDS, code);
    assert_int_equal(code[0], first);
    assert_int_equal(code[1], second);
}

static void test_disagreement(void **state) {
    run_broken(disagrees, 10 + ERR_STATE, 10 + ERR_STATE);
}
static void test_goodbye(void **state) { run_broken(leaves, 10 + ERR_PEER, 0); }
static void test_death(void **state) { run_broken(dies, 10 + ERR_PEER, RANK_KILLED); }
static void test_abort(void **state) { run_broken(is_aborted, 10 + ERR_PEER, 10 + ERR_PEER); }

static void test_cut_off(void **state) {
    int code[3];
    ranks_run("cpu", 3, is_cut_off, NULL, SECONDS, code);
    for (int r = 0; r < 3; r++) assert_int_equal(code[r], 10 + ERR_PEER);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum), cmocka_unit_test(test_max),
        cmocka_unit_test(test_reduce_scatter), cmocka_unit_test(test_all_gather),
        cmocka_unit_test(test_reduce_scatter_codes),
        cmocka_unit_test(test_broadcast), cmocka_unit_test(test_disagreement),
        cmocka_unit_test(test_goodbye), cmocka_unit_test(test_death),
        cmocka_unit_test(test_abort), cmocka_unit_test(test_cut_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
