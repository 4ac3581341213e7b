/* Which GPUs two sides share, and the ratio of their speeds on those: least squares of side and
 * chip, by hand (runner/compare/faster_chips.c). */
#include <jansson.h>
#include <math.h>

#include "runner/compare/faster_sides.h"
#include "tests/support/must.h"

enum { RUNS_MAX = 8 };

/* A side of runs on the GPUs that the letters name. */
static struct side side_of(const char *gpus, double log[RUNS_MAX]) {
    struct side s = { .log = log, .count = (int64_t)strlen(gpus), .gpus = json_array() };
    for (const char *at = gpus; *at; at++)
        assert_int_equal(json_array_append_new(s.gpus, json_stringn(at, 1)), 0);
    return s;
}

static void the_gap_is_of_shared_gpus(void **state) {
    static const struct {
        const char *x, *y;
        double of_x[RUNS_MAX], of_y[RUNS_MAX], gap; /* NaN: none */
    } CASES[] = {
        { "ab", "ac", { 1, 5 }, { 1.5, 9 }, 0.5 },
        /* On a 2 runs of 3 a side, on b 1 and 2: weights 1.2 and 2 / 3, gaps 0.5 and 0.2. */
        { "aabc", "aaabb", { 1, 2, 4, 8 }, { 2, 2, 2, 4, 4.4 }, (1.2 * 0.5 + 2. / 3 * 0.2) /
                                                                (1.2 + 2. / 3) },
        { "abc", "c", { 1, 2, 3 }, { 2.5 }, -0.5 },
        { "abc", "a", { 1, 2, 3 }, { 2.5 }, 1.5 },
        { "ab", "cd", { 1, 2 }, { 3, 4 }, (double)NAN },     /* none in common */
        { "ab", "ab", { 1, 2 }, { 3, 4 }, (double)NAN },     /* spread alike */
        { "ab", "abab", { 1, 2 }, { 3, 4, 3, 4 }, (double)NAN }, /* the same, twice as often */
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        double a[RUNS_MAX], b[RUNS_MAX];
        memcpy(a, CASES[i].of_x, sizeof a);
        memcpy(b, CASES[i].of_y, sizeof b);
        struct side x = side_of(CASES[i].x, a), y = side_of(CASES[i].y, b);
        double gap = speeds_shared_gap(&x, &y), back = speeds_shared_gap(&y, &x);
        if (isnan(CASES[i].gap) ? !isnan(gap) || !isnan(back)
                                : fabs(gap - CASES[i].gap) > 1e-12 || fabs(gap + back) > 1e-12)
            fail_msg("case %d: %g and %g", (int)i, gap, back);
        json_decref(x.gpus);
        json_decref(y.gpus);
    }
}

/* Bounds know of the scatter of chips if both sides were on several. */
static void one_gpu_has_no_scatter_of_chips(void **state) {
    static const struct { const char *x, *y; bool other; } CASES[] = {
        { "aaa", "bbb", true }, { "abc", "ddd", true }, { "ddd", "abc", true },
        { "abc", "def", false }, { "abc", "aaa", false }, { "aaa", "aaa", false },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct side x = side_of(CASES[i].x, NULL), y = side_of(CASES[i].y, NULL);
        if (speeds_other_gpus(&x, &y) != CASES[i].other) fail_msg("case %d", (int)i);
        json_decref(x.gpus);
        json_decref(y.gpus);
    }
}

static void many_gpus_are_cut(void **state) {
    char why[FAMILY_WHY_CAP] = "";
    struct side x = side_of("abcdefghijklmnopqrstuvwxyz", NULL), y = side_of("0000", NULL);
    speeds_note_gpus(&x, &y, why);
    assert_string_equal(why, "its runs were on GPU 0, the baseline's on GPU a, b, c, d, e, f, g, "
                             "h, i, j, k, l, m, n, o, p, q, r, ...: two chips of one product may "
                             "differ by some percent");
    json_decref(x.gpus);
    json_decref(y.gpus);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gap_is_of_shared_gpus),
        cmocka_unit_test(one_gpu_has_no_scatter_of_chips),
        cmocka_unit_test(many_gpus_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
