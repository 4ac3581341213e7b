/* Stop requests reach the main thread as data, whatever signals other threads block. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runner/base/signals.h"

/* The kernel may give the signal to the other thread between poll and read. It is then sent on, and
 * the next poll sees it. */
static int await(struct signals *s) {
    struct pollfd p = { .fd = s->fd, .events = POLLIN };
    int taken = 0;
    while (!taken && poll(&p, 1, 60000) == 1) taken = signals_take(s);
    return taken;
}

/* Like a thread of a driver, it blocks no signal, so it may receive signals of the process. */
static void *careless(void *end) {
    sigset_t none;
    char byte;
    sigemptyset(&none);
    (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
    (void)!read(*(int *)end, &byte, 1);
    return NULL;
}

static void test_a_thread_that_blocks_nothing(void **state) {
    struct signals s;
    struct err e = { 0 };
    pthread_t thread;
    int end[2];
    assert_int_equal(pipe(end), 0);
    assert_int_equal(signals_open(&s, &e), OK);
    assert_int_equal(pthread_create(&thread, NULL, careless, &end[0]), 0);
    static const int REQUESTS[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1 };
    for (int i = 0; i < 4; i++) {
        usleep(20000); /* the thread has unblocked them by now; otherwise the test checks less */
        assert_int_equal(kill(getpid(), REQUESTS[i]), 0);
        assert_int_equal(await(&s), REQUESTS[i]);
    }
    assert_int_equal(write(end[1], "x", 1), 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    signals_close(&s);
    close(end[0]);
    close(end[1]);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_thread_that_blocks_nothing),
        cmocka_unit_test(test_a_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
