/* Stop requests reach the main thread as data, whatever signals other threads block. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runner/base/clock.h"
#include "runner/base/signals.h"

/* The kernel may give the signal to the other thread between poll and read. It is then sent on, and
 * the next poll sees it. */
static int await(struct signals *s) {
    struct pollfd p = { .fd = s->fd, .events = POLLIN };
    int taken = 0;
    while (!taken && poll(&p, 1, 60000) == 1) taken = signals_take(s);
    return taken;
}

/* As a thread of a driver: it blocks no signal, so the kernel may give it those of the process. It
 * waits for a semaphore, because the thread sanitizer delays the signals of a thread in read(). */
static void *careless(void *end) {
    sigset_t none;
    sigemptyset(&none);
    (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
    while (sem_wait(end) != 0) continue;
    return NULL;
}

static void test_a_thread_that_blocks_nothing(void **state) {
    struct signals s;
    struct err e = { 0 };
    pthread_t thread;
    sem_t end;
    assert_int_equal(sem_init(&end, 0, 0), 0);
    assert_int_equal(signals_open(&s, &e), OK);
    assert_int_equal(pthread_create(&thread, NULL, careless, &end), 0);
    static const int REQUESTS[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1 };
    for (int i = 0; i < 4; i++) {
        usleep(20000); /* the thread has unblocked them by now; otherwise the test checks less */
        assert_int_equal(kill(getpid(), REQUESTS[i]), 0);
        assert_int_equal(await(&s), REQUESTS[i]);
    }
    assert_int_equal(sem_post(&end), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    signals_close(&s);
    sem_destroy(&end);
}

/* A signal ends a forked child that has the old mask. */
static void test_a_child(void **state) {
    struct signals s;
    struct err e = { 0 };
    int status = 0;
    assert_int_equal(signals_open(&s, &e), OK);
    pid_t child = fork();
    if (child == 0) {
        (void)sigprocmask(SIG_SETMASK, &s.old, NULL);
        for (;;) pause();
    }
    usleep(20000);
    assert_int_equal(kill(child, SIGTERM), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    signals_close(&s);
}

static void send(int signo) { assert_int_equal(kill(getpid(), signo), 0); }

/* The kernel merges two pending signals of one number, so a pair has two numbers here. */
static void test_requests_within_a_second_are_one(void **state) {
    struct signals s;
    struct err e = { 0 };
    const int64_t begin = 5000, over = begin + SIGNALS_ONE_REQUEST_MS;
    assert_int_equal(signals_open(&s, &e), OK);
    send(SIGCHLD);
    assert_int_equal(signals_take_request(&s, begin), 0);
    send(SIGTERM);
    send(SIGINT);
    assert_int_equal(signals_take_request(&s, begin), SIGINT); /* the lowest number */
    assert_int_equal(signals_take_request(&s, begin), 0);
    send(SIGTERM);
    assert_int_equal(signals_take_request(&s, over - 1), 0);
    send(SIGTERM);
    assert_int_equal(signals_take_request(&s, over), SIGTERM);
    send(SIGTERM); /* the second counts at once, and so does a third */
    assert_int_equal(signals_take_request(&s, over), SIGTERM);
    signals_close(&s);
}

/* What is pending when the process ends its work must not kill it, if it is part of the stop. */
static void test_a_part_that_is_pending_at_the_end(void **state) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        struct signals s;
        if (signals_open(&s, NULL) != OK) _exit(1);
        send(SIGTERM);
        /* A time that cannot be over, however slow the process is. */
        if (signals_take_request(&s, INT64_MAX / 2) != SIGTERM) _exit(2);
        send(SIGTERM);
        signals_close(&s);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void test_awaiting_the_parts(void **state) {
    struct signals s;
    struct err e = { 0 };
    assert_int_equal(signals_open(&s, &e), OK);
    send(SIGTERM);
    int64_t begin = clock_ms();
    assert_int_equal(signals_take_request(&s, begin), SIGTERM);
    send(SIGTERM);
    signals_await_parts(&s);
    assert_true(clock_ms() >= begin + SIGNALS_ONE_REQUEST_MS);
    assert_int_equal(signals_take(&s), 0);
    signals_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_thread_that_blocks_nothing),
        cmocka_unit_test(test_a_child),
        cmocka_unit_test(test_requests_within_a_second_are_one),
        cmocka_unit_test(test_a_part_that_is_pending_at_the_end),
        cmocka_unit_test(test_awaiting_the_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
