/* A certifying child that does not end in time: it is killed, and nothing of its answer is used,
 * neither certificates nor the algorithms that it timed. One that does not even end then, as if a
 * driver held it, is left behind. The child is this program. */
/* long: 12, waits */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include <jansson.h>

#include "runner/base/self_ask.h"
#include "runner/certify/certify_make.h"

static struct certify_way the_way(void) {
    return (struct certify_way){ .section = WAY_GEMM, .m = 64, .n = 128, .k = 128,
                                 .a = DTYPE_E4M3, .b = DTYPE_E4M3, .out = DTYPE_BF16,
                                 .scale_a = SCALE_TENSOR, .scale_b = SCALE_TENSOR };
}

/* Prints a whole answer. One that hangs then keeps its end of the pipe open, or, with "closed", as
 * a process does that hangs while it ends, closes it. */
static int answer(void) {
    const char *hangs = getenv("CHILD_HANGS");
    char text[WAY_TEXT_CAP];
    struct certify_way way = the_way();
    certify_way_text(&way, text);
    printf("{\"schema\":\"fp8lab.certificates/1\",\"seconds\":1,\"untried\":[],"
           "\"choices\":\"fp8lab choices 1\\ndevice x\\nlibraries y\\ngemm 1 : 00\\n\","
           "\"certificates\":[{\"way\":\"%s\",\"section\":\"gemm\",\"outcome\":\"passed\","
           "\"without\":[],\"agreed\":[]}]}\n", text);
    fflush(stdout);
    if (hangs && !strcmp(hangs, "closed")) close(1);
    while (hangs) pause();
    return 0;
}

/* A process that traces its parent, which nobody can reap until this one has ended. It writes its
 * number to descriptor `report`, 0 if it may not trace. */
static void hold_parent(int report) {
    pid_t held = getppid(), holder = getpid();
    close(1);
    if (ptrace(PTRACE_SEIZE, held, NULL, NULL) != 0) holder = 0;
    if (write(report, &holder, sizeof holder) != sizeof holder) _exit(1);
    while (holder) pause();
    _exit(0);
}

static int be_held(int report) {
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    if (fork() == 0) hold_parent(report);
    while (pause() != 0) continue; /* it never gives 0 */
    return 1;
}

static void count_answer(void *context, const json_t *given) {
    assert_non_null(json_object_get(given, "choices"));
    ++*(int *)context;
}

struct scene {
    struct certify_way way;
    struct ways ways;
    struct making making;
    int answers;
};

static void make(struct scene *s, int64_t seconds) {
    struct err e = { 0 };
    *s = (struct scene){ .way = the_way() };
    s->ways = (struct ways){ .way = &s->way, .count = 1 };
    s->making = (struct making){
        .request = { .backend = "cuda", .ranks = 1, .seconds = seconds }, .ways = &s->ways,
        .answered = count_answer, .context = &s->answers, .list = json_array(),
        .fresh = json_array(), .untried = json_object(),
    };
    if (certify_make(&s->making, &e) != OK) fail_msg("%s", e.text);
}

static void release(struct scene *s) {
    json_decref(s->making.list);
    json_decref(s->making.fresh);
    json_decref(s->making.untried);
}

static void an_answer_in_time_is_used(void **state) {
    (void)state;
    struct scene s;
    unsetenv("CHILD_HANGS");
    make(&s, 60);
    assert_int_equal(s.answers, 1);
    assert_int_equal(json_array_size(s.making.fresh), 1);
    assert_int_equal(certify_missing(&s.making), 0);
    release(&s);
}

static void check_nothing_is_used(const char *hangs) {
    struct scene s;
    setenv("CHILD_HANGS", hangs, 1);
    make(&s, 1);
    unsetenv("CHILD_HANGS");
    assert_int_equal(s.answers, 0);
    assert_int_equal(json_array_size(s.making.fresh), 0); /* no later command may use any */
    assert_int_equal(json_array_size(s.making.list), 1);
    const json_t *one = json_array_get(s.making.list, 0);
    const char *found = json_string_value(json_object_get(one, "found"));
    assert_string_equal(json_string_value(json_object_get(one, "outcome")), "failed");
    assert_string_equal(json_string_value(json_object_get(one, "fault")), "crash");
    if (!found || !strstr(found, "no answer within 1 s")) fail_msg("found: %s", found);
    release(&s);
}

static void nothing_of_a_child_that_hangs_is_used(void **state) {
    (void)state;
    check_nothing_is_used("open");
}

static void nothing_of_a_child_that_hangs_at_its_end_is_used(void **state) {
    (void)state;
    check_nothing_is_used("closed");
}

static void a_killed_child_that_does_not_end_is_left(void **state) {
    (void)state;
    int ends[2], how;
    char report[16];
    pid_t holder = 0;
    bool crashed = false;
    json_t *out = NULL;
    struct err e;
    assert_int_equal(pipe(ends), 0);
    snprintf(report, sizeof report, "%d", ends[1]);
    const struct self_ask ask = { .args = (const char *const[]){ "held", report, NULL },
                                  .schema = "", .seconds = 1 };
    assert_int_equal(self_ask(&ask, &out, &crashed, &e), ERR_DEVICE);
    assert_true(crashed);
    assert_int_equal(read(ends[0], &holder, sizeof holder), sizeof holder);
    close(ends[0]);
    close(ends[1]);
    if (!holder) skip(); /* no process may trace another here */
    assert_int_equal(waitpid(-1, &how, WNOHANG), 0);
    assert_int_equal(kill(holder, SIGKILL), 0);
    assert_true(waitpid(-1, &how, 0) > 0);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "probe") == 0) return answer();
    if (argc > 2 && strcmp(argv[1], "held") == 0) return be_held(atoi(argv[2]));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_in_time_is_used),
        cmocka_unit_test(nothing_of_a_child_that_hangs_is_used),
        cmocka_unit_test(nothing_of_a_child_that_hangs_at_its_end_is_used),
        cmocka_unit_test(a_killed_child_that_does_not_end_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
