/* Processes share memory; the first that fails or dies ends the others and is named. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "runner/infer/processes.h"
#include "tests/support/must.h"

enum { N = 5 };

static enum status write_rank(void *user, int64_t rank, struct err *e) {
    int64_t *shared = user;
    shared[rank] = 10 + rank;
    return OK;
}

static void memory_is_shared(void **state) {
    void *memory;
    MUST(processes_share(N * sizeof(int64_t), &memory, E));
    int64_t *shared = memory;
    for (int64_t i = 0; i < N; i++) assert_int_equal(shared[i], 0);
    MUST(processes_run(N, write_rank, shared, E));
    for (int64_t i = 0; i < N; i++) assert_int_equal(shared[i], 10 + i);
    MUST(processes_run(1, write_rank, shared, E));
    processes_unshare(memory, N * sizeof(int64_t));
    MUST_FAIL(ERR_ARG, "65 processes", processes_run(65, write_rank, NULL, E));
}

static enum status wait_for_the_end(void) {
    for (;;) (void)pause(); /* it is killed */
    return OK;
}

static enum status third_fails(void *user, int64_t rank, struct err *e) {
    if (rank == 3) return FAIL(e, ERR_NUMERIC, "weight 7 is not finite");
    return wait_for_the_end();
}

static enum status third_dies(void *user, int64_t rank, struct err *e) {
    if (rank == 3) (void)raise(SIGKILL);
    return wait_for_the_end();
}

static enum status third_exits(void *user, int64_t rank, struct err *e) {
    if (rank == 3) _exit(9);
    return wait_for_the_end();
}

static void the_first_failure_ends_all(void **state) {
    MUST_FAIL(ERR_NUMERIC, "rank 3 of 5: weight 7", processes_run(N, third_fails, NULL, E));
    MUST_FAIL(ERR_DEVICE, "rank 3 of 5 was killed (signal 9): was memory short?",
              processes_run(N, third_dies, NULL, E));
    MUST_FAIL(ERR_DEVICE, "rank 3 of 5 was killed (exit status 9)",
              processes_run(N, third_exits, NULL, E));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_shared),
        cmocka_unit_test(the_first_failure_ends_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
