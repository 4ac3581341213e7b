/* After how many tokens losses are compared, and which runs that place is of. */
#include "runner/compare/compare.h"
#include "tests/bundle/compare_scene.h"

/* What a run learned after the place of the comparison says nothing about that place. */
static void what_counts_is_learned_until_the_comparison(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    two_sides(runs);
    for (int i = 0; i < 6; i++) {
        runs[i].planned = 300;
        runs[i].steps = i < 3 ? 300 : 8 + i; /* of FP8 steps 11 to 13, evaluated at step 10 */
        runs[i].status = i < 3 ? "done" : "time_limit";
        runs[i].guess_loss = 1.5; /* the baseline has 1.84 at step 10, 0.42 at the end */
    }
    compare(&s, runs, 6);
    verdict_is(&s, NULL, "token occurs: its mean loss is 1.8");
    finish(&s);
    for (int i = 0; i < 6; i++) runs[i].guess_loss = 3.5;
    compare(&s, runs, 6);
    verdict_is(&s, "holds", "");
    finish(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_counts_is_learned_until_the_comparison),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
