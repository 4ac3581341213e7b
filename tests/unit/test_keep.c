/* How many checkpoints are on the disk at once, and how many stay: never more than are written. */
#include "runner/plan/keep.h"
#include "runner/plan/tiers.h"
#include "tests/support/must.h"

#define RUN(n, e, ...)                                                                             \
    { .train = { .steps = (n) }, .eval = { .every = (e) },                                         \
      .checkpoint = { .given = true, __VA_ARGS__ } }

static void at_once(struct run_options run, int64_t during, int64_t count) {
    struct keep_counts k = keep_which(&run, false).counts[KEEP_AS_SET];
    assert_int_equal(k.during, during);
    assert_int_equal(k.count, count);
    assert_true(k.held <= k.during && k.count <= k.held);
}

static void a_short_run_writes_one(void **state) {
    at_once((struct run_options)RUN(99, 0, .every = 100, .keep = 1), 1, 1);
    at_once((struct run_options)RUN(100, 0, .every = 100, .keep = 1), 1, 1);
    at_once((struct run_options)RUN(101, 0, .every = 100, .keep = 1), 2, 1); /* 100, then 101 */
    at_once((struct run_options)RUN(1000, 0, .every = 100, .keep = 1), 2, 1);
    at_once((struct run_options)RUN(1000, 0, .every = 100, .keep = 3), 4, 1);
    at_once((struct run_options)RUN(200, 0, .every = 100, .keep = 3), 2, 1);
    at_once((struct run_options)RUN(1000, 0, .every = 100, .keep = 0), 2, 0);
    at_once((struct run_options)RUN(1000, 0, .minutes = 5, .keep = 1), 2, 1);
}

static void the_best_is_one_of_them(void **state) {
    at_once((struct run_options)RUN(100, 100, .every = 100, .keep = 1, .best = true), 1, 1);
    at_once((struct run_options)RUN(100, 50, .every = 100, .keep = 1, .best = true), 2, 2);
    at_once((struct run_options)RUN(100, 10, .every = 100, .keep = 1, .best = true), 3, 2);
    at_once((struct run_options)RUN(12, 4, .every = 6, .keep = 1, .best = true), 3, 2);
    at_once((struct run_options)RUN(1000000000, 999999937, .every = 999999929, .keep = 9,
                                    .best = true), 3, 2); /* and the last */
}

static void other_tiers_may_name_the_same_step(void **state) {
    at_once((struct run_options)RUN(100, 0, .every = 100, .keep = 1, .milestones = { 50, 100 },
                                    .milestone_count = 2), 2, 2);
    at_once((struct run_options)RUN(100, 0, .every = 100, .keep = 1, .init = true), 2, 2);
    struct run_options epochs = RUN(30, 0, .every = 100, .keep = 1, .epoch = true);
    epochs.epochs = 3; /* the third ends with the last step */
    at_once(epochs, 3, 3);
    epochs.train.steps = 1; /* of text that is not tokenised: any number */
    at_once(epochs, 5, 4);
}

static void an_archive_has_the_rolling_ones(void **state) {
    struct run_options run = RUN(1000, 0, .every = 100, .keep = 3);
    run.archive = ARCHIVE_FULL;
    at_once(run, 4, 3);
    run.train.steps = 150;
    at_once(run, 2, 2);
    run.checkpoint.given = false;
    at_once(run, 1, 0);
    run.archive = ARCHIVE_NONE;
    at_once(run, 0, 0);
}

/* Counts what the tiers save, step by step, and keeps the most that a rule of its own would. */
static void the_bound_is_not_below_what_is_written(void **state) {
    for (int64_t every = 1; every <= 7; every++)
        for (int64_t eval = 0; eval <= 5; eval++)
            for (int64_t steps = 1; steps <= 20; steps++) {
                const struct run_options run = RUN(steps, eval, .every = every, .keep = 100,
                                                   .best = eval > 0, .milestones = { 3, 8 },
                                                   .milestone_count = 2);
                const struct tier_scene scene = { .options = run.checkpoint };
                int64_t written = 0;
                for (int64_t step = 1; step <= steps; step++)
                    written += step == steps || tiers_due(&scene, step) ||
                               (eval && step % eval == 0);
                const struct keep k = keep_which(&run, false);
                assert_int_equal(k.counts[KEEP_AS_SET].during, written);
            }
}

/* ---- a disk that is too small ---------------------------------------------------------------- */

/* The message about `rows` alike runs, of checkpoints of 1 MiB, on a disk with `free` bytes. */
static const char *refusal_of(struct run_options run, int64_t rows, int64_t free, struct err *e) {
    struct keep keeps[3];
    struct keep_disk disk;
    for (int64_t i = 0; i < rows; i++) {
        keeps[i] = keep_which(&run, false);
        keeps[i].bytes = 1 << 20;
        keeps[i].bundled = run.archive == ARCHIVE_FULL ? 1 << 20 : 0;
    }
    MUST(keep_disk(".", keeps, rows, &disk, E));
    disk.free = free < disk.need ? free : disk.need - 1;
    assert_int_equal(keep_check_disk(&disk, e), ERR_IO);
    return e->text;
}

/* On a disk that lacks a byte. */
static const char *refusal(struct run_options run, int64_t rows, struct err *e) {
    return refusal_of(run, rows, INT64_MAX, e);
}

static void ends(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    if (n < m || strcmp(text + n - m, end) != 0) fail_msg("does not end in '%s': %s", end, text);
}

static void what_still_does_not_fit_is_not_suggested(void **state) {
    struct err e = { 0 };
    const struct run_options run = RUN(100, 0, .every = 10, .keep = 5);
    ends(refusal_of(run, 1, 2 << 20, &e), "keep less: --set checkpoint.keep=1 (then 2.0 MiB), "
         "--set checkpoint.every=100 (then 1.0 MiB; saves only after the last step)");
    ends(refusal_of(run, 1, (2 << 20) - 1, &e), "another disk, or keep less: --set "
         "checkpoint.every=100 (then 1.0 MiB; saves only after the last step)");
    ends(refusal_of(run, 1, (1 << 20) - 1, &e), "another disk");
}

static void without_its_archive_a_run_may_keep_no_weights(void **state) {
    struct err e = { 0 };
    struct run_options run = { .train = { .steps = 100 }, .archive = ARCHIVE_FULL };
    ends(refusal(run, 1, &e), "keep less: --set archive=none (then 0 bytes; keeps no weights)");
    run = (struct run_options)RUN(100, 0, .every = 100, .keep = 0);
    run.archive = ARCHIVE_FULL;
    ends(refusal(run, 1, &e), "--set archive=none (then 1.0 MiB; keeps no weights)");
}

static void only_what_helps_is_suggested(void **state) {
    struct err e = { 0 };
    ends(refusal((struct run_options)RUN(100, 0, .every = 10, .keep = 5), 1, &e),
         "another disk, or keep less: --set checkpoint.keep=1 (then 2.0 MiB), --set "
         "checkpoint.every=100 (then 1.0 MiB; saves only after the last step)");
    ends(refusal((struct run_options)RUN(100, 0, .every = 10, .keep = 1), 1, &e),
         "another disk, or keep less: --set checkpoint.every=100 (then 1.0 MiB; saves only after "
         "the last step)");
    ends(refusal((struct run_options)RUN(100, 0, .every = 10, .keep = 0), 1, &e),
         "another disk, or keep less: --set checkpoint.every=100 (then 1.0 MiB; saves only after "
         "the last step)");
    ends(refusal((struct run_options)RUN(100, 0, .every = 100, .keep = 1), 1, &e), "another disk");
    ends(refusal((struct run_options)RUN(100, 0, .minutes = 5, .keep = 1), 1, &e), "another disk");
    ends(refusal((struct run_options)RUN(100, 0, .every = 100, .keep = 1), 3, &e),
         "another disk, or keep less: --only NAME (then 1.0 MiB a row)");
    struct run_options run = RUN(100, 0, .every = 100, .keep = 1);
    run.archive = ARCHIVE_FULL;
    ends(refusal(run, 1, &e), "another disk, or keep less: --set archive=none (then 1.0 MiB)");
    run.epochs = 2;
    run.train.steps = 1; /* of text that is not tokenised: checkpoint.every is not known */
    run.archive = ARCHIVE_NONE;
    run.checkpoint.every = 10;
    ends(refusal(run, 1, &e), "another disk");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_run_writes_one),
        cmocka_unit_test(the_best_is_one_of_them),
        cmocka_unit_test(other_tiers_may_name_the_same_step),
        cmocka_unit_test(an_archive_has_the_rolling_ones),
        cmocka_unit_test(the_bound_is_not_below_what_is_written),
        cmocka_unit_test(only_what_helps_is_suggested),
        cmocka_unit_test(what_still_does_not_fit_is_not_suggested),
        cmocka_unit_test(without_its_archive_a_run_may_keep_no_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
