/* A certifying child that does not end in time: it is killed, and nothing of its answer is used,
 * neither certificates nor the algorithms that it timed. The child is this program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include <jansson.h>

#include "runner/certify/certify_make.h"

static struct certify_way the_way(void) {
    return (struct certify_way){ .section = WAY_GEMM, .m = 64, .n = 128, .k = 128,
                                 .a = DTYPE_E4M3, .b = DTYPE_E4M3, .out = DTYPE_BF16,
                                 .scale_a = SCALE_TENSOR, .scale_b = SCALE_TENSOR };
}

/* Prints a whole answer; one that hangs then keeps its end of the pipe open. */
static int answer(void) {
    char text[WAY_TEXT_CAP];
    struct certify_way way = the_way();
    certify_way_text(&way, text);
    printf("{\"schema\":\"fp8lab.certificates/1\",\"seconds\":1,\"untried\":[],"
           "\"choices\":\"fp8lab choices 1\\ndevice x\\nlibraries y\\ngemm 1 : 00\\n\","
           "\"certificates\":[{\"way\":\"%s\",\"section\":\"gemm\",\"outcome\":\"passed\","
           "\"without\":[],\"agreed\":[]}]}\n", text);
    fflush(stdout);
    while (getenv("CHILD_HANGS")) pause();
    return 0;
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

static void nothing_of_a_child_that_hangs_is_used(void **state) {
    (void)state;
    struct scene s;
    setenv("CHILD_HANGS", "1", 1);
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

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "probe") == 0) return answer();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_in_time_is_used),
        cmocka_unit_test(nothing_of_a_child_that_hangs_is_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
