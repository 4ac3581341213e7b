/* Which checkpoints are kept after a save. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/checkpoint.h"
#include "runner/base/run_files.h"
#include "runner/worker/retention.h"
#include "tests/support/must.h"

enum { STEPS_MAX = 8 };

/* Folders of the steps in `before` (0 ends the list); after a save of `saved`, those in `after`
 * remain. */
static void leaves(struct retention *r, const int64_t before[STEPS_MAX], int64_t saved,
                   const int64_t after[STEPS_MAX]) {
    char parent[] = "/tmp/fp8lab-retention-XXXXXX", path[CHECKPOINT_PATH_CAP];
    int left = 0;
    assert_non_null(mkdtemp(parent));
    for (int i = 0; before[i]; i++) {
        MUST(checkpoint_path(path, parent, before[i], E));
        assert_int_equal(mkdir(path, 0777), 0);
    }
    MUST(retention_prune(r, parent, saved, E));
    for (; after[left]; left++) {
        MUST(checkpoint_path(path, parent, after[left], E));
        assert_int_equal(rmdir(path), 0);
    }
    assert_int_equal(rmdir(parent), 0); /* it is empty */
}

#define KEEPS(n, ...) { .scene = { .options = { .keep = (n), __VA_ARGS__ } } }

static void the_newest_are_kept(void **state) {
    struct retention two = KEEPS(2);
    leaves(&two, (int64_t[STEPS_MAX]){ 10, 20, 30 }, 30, (int64_t[STEPS_MAX]){ 20, 30 });
    leaves(&two, (int64_t[STEPS_MAX]){ 30 }, 30, (int64_t[STEPS_MAX]){ 30 });
    leaves(&two, (int64_t[STEPS_MAX]){ 90, 1000000, 100 }, 1000000,
           (int64_t[STEPS_MAX]){ 100, 1000000 });
}

static void the_best_is_kept_too(void **state) {
    struct retention one = KEEPS(1, .best = true);
    one.scene.best_step = 10;
    leaves(&one, (int64_t[STEPS_MAX]){ 10, 20, 30 }, 30, (int64_t[STEPS_MAX]){ 10, 30 });
}

/* Step 0 is kept with the newest on request; otherwise it is treated like any other step. */
static void the_first_is_kept_on_request(void **state) {
    for (int wanted = 0; wanted < 2; wanted++) {
        struct retention r = KEEPS(1, .init = wanted);
        char parent[] = "/tmp/fp8lab-retention-XXXXXX", path[CHECKPOINT_PATH_CAP];
        assert_non_null(mkdtemp(parent));
        for (int64_t step = 0; step <= 20; step += 10) {
            MUST(checkpoint_path(path, parent, step, E));
            assert_int_equal(mkdir(path, 0777), 0);
            MUST(retention_prune(&r, parent, step, E));
        }
        for (int64_t step = 0; step <= 20; step += 10) {
            MUST(checkpoint_path(path, parent, step, E));
            assert_int_equal(rmdir(path), step == 20 || (step == 0 && wanted) ? 0 : -1);
        }
        assert_int_equal(rmdir(parent), 0);
    }
}

/* Damaged steps 200 and 204 were skipped: new checkpoints are not the ones removed. */
static void skipped_checkpoints_are_deleted(void **state) {
    struct retention two = KEEPS(2);
    leaves(&two, (int64_t[STEPS_MAX]){ 50, 200, 204 }, 50, (int64_t[STEPS_MAX]){ 50 });
    leaves(&two, (int64_t[STEPS_MAX]){ 100, 150, 200, 204 }, 150,
           (int64_t[STEPS_MAX]){ 100, 150 });
}

/* Folders that a user made are no checkpoints, and take the place of none. */
static void other_folders_are_left_alone(void **state) {
    char parent[] = "/tmp/fp8lab-retention-XXXXXX", path[CHECKPOINT_PATH_CAP];
    static const char *const NAMES[] = { "step-000010", "step-000020", "step-000030.old",
                                         "step-000030", "old-step-000040" };
    struct retention two = KEEPS(2);
    assert_non_null(mkdtemp(parent));
    for (int made = 0; made < 5; made++) {
        snprintf(path, sizeof path, "%s/%s", parent, NAMES[made]);
        assert_int_equal(mkdir(path, 0777), 0);
    }
    MUST(retention_prune(&two, parent, 30, E));
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/%s", parent, NAMES[i]);
        assert_int_equal(rmdir(path), i == 0 ? -1 : 0);
    }
    assert_int_equal(rmdir(parent), 0);
}

/* The best checkpoint is also the oldest rolling one, so it stays when the others roll on. */
static void the_best_may_be_the_oldest_rolling_one(void **state) {
    struct retention r = KEEPS(2, .best = true);
    r.scene.best_step = 20;
    leaves(&r, (int64_t[STEPS_MAX]){ 10, 20, 30 }, 30, (int64_t[STEPS_MAX]){ 20, 30 });
    leaves(&r, (int64_t[STEPS_MAX]){ 20, 30, 40 }, 40, (int64_t[STEPS_MAX]){ 20, 30, 40 });
    r.scene.best_step = 40; /* a better one frees the old one */
    leaves(&r, (int64_t[STEPS_MAX]){ 20, 30, 40, 50 }, 50, (int64_t[STEPS_MAX]){ 40, 50 });
}

/* A milestone that is also the newest counts as the newest too: it takes no place of another. */
static void a_milestone_may_be_the_last(void **state) {
    struct retention r = KEEPS(1, .milestones = { 30, 60 }, .milestone_count = 2);
    const char *names[TIER_COUNT];
    leaves(&r, (int64_t[STEPS_MAX]){ 20, 30 }, 30, (int64_t[STEPS_MAX]){ 30 });
    leaves(&r, (int64_t[STEPS_MAX]){ 30, 40 }, 40, (int64_t[STEPS_MAX]){ 30, 40 });
    leaves(&r, (int64_t[STEPS_MAX]){ 30, 40, 60 }, 60, (int64_t[STEPS_MAX]){ 30, 60 });
    assert_int_equal(tiers_kept(&r.scene, 60, 0, names), 2);
    assert_string_equal(names[0], "last");
    assert_string_equal(names[1], "milestone");
    assert_true(tiers_due(&r.scene, 30) && !tiers_due(&r.scene, 40));
}

/* With keep = 0 the newest stays to resume from, and a done run has no "last". */
static void two_tiers_may_name_one_step(void **state) {
    struct retention r = KEEPS(0, .best = true, .milestones = { 20 }, .milestone_count = 1);
    const char *names[TIER_COUNT];
    r.scene.best_step = 20;
    leaves(&r, (int64_t[STEPS_MAX]){ 10, 20, 30 }, 30, (int64_t[STEPS_MAX]){ 20, 30 });
    assert_int_equal(tiers_kept(&r.scene, 20, 1, names), 2);
    assert_string_equal(names[0], "best");
    assert_string_equal(names[1], "milestone");
    assert_int_equal(tiers_kept(&r.scene, 30, 0, names), 0);
    r.scene.best_step = 10; /* the milestone outlives being the best */
    leaves(&r, (int64_t[STEPS_MAX]){ 10, 20, 30 }, 30, (int64_t[STEPS_MAX]){ 10, 20, 30 });
}

/* A kill left a clean-up undone, and half of a directory: the next clean-up finishes it, whatever
 * it finds. */
static void a_killed_clean_up_is_finished(void **state) {
    struct retention r = KEEPS(2, .milestones = { 20 }, .milestone_count = 1);
    leaves(&r, (int64_t[STEPS_MAX]){ 10, 20, 30, 40, 50, 60 }, 60,
           (int64_t[STEPS_MAX]){ 20, 50, 60 });
    char parent[] = "/tmp/fp8lab-retention-XXXXXX", path[CHECKPOINT_PATH_CAP];
    assert_non_null(mkdtemp(parent));
    for (int64_t step = 10; step <= 40; step += 10) {
        MUST(checkpoint_path(path, parent, step, E));
        assert_int_equal(mkdir(path, 0777), 0);
    }
    MUST(checkpoint_path(path, parent, 10, E)); /* its other files are gone already */
    strcat(path, "/" CHECKPOINT_STATE);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
    MUST(retention_prune(&r, parent, 40, E));
    for (int64_t step = 10; step <= 40; step += 10) {
        MUST(checkpoint_path(path, parent, step, E));
        assert_int_equal(rmdir(path), step == 10 ? -1 : 0);
    }
    assert_int_equal(rmdir(parent), 0);
}

static void an_epoch_ends_where_its_last_sequence_is_drawn(void **state) {
    const struct tier_scene s = { .options = { .keep = 1, .epoch = true }, .batch = 4,
                                  .sequences = 10 }; /* steps 1..3 draw 4, 8, 12 */
    static const int64_t ENDS[] = { 3, 5, 8, 10 };
    for (int64_t step = 0, next = 0; step <= 10; step++) {
        bool ends = step == ENDS[next];
        assert_int_equal(tiers_due(&s, step), ends);
        assert_int_equal(tiers_hold(&s, step, 5), ends);
        next += ends;
    }
    const struct tier_scene endless = { .options = s.options, .batch = 4 };
    for (int64_t step = 0; step < 100; step++) assert_false(tiers_due(&endless, step));
}

/* The checkpoint of a best evaluation is written. */
static bool saved_as_best(struct retention *r, int64_t step, double value) {
    if (!retention_evaluated(r, step, value)) return false;
    leaves(r, (int64_t[STEPS_MAX]){ step }, step, (int64_t[STEPS_MAX]){ step });
    return true;
}

static void only_a_finite_value_is_the_best(void **state) {
    struct retention r = KEEPS(1, .best = true);
    assert_false(retention_evaluated(&r, 10, (double)NAN));
    assert_int_equal(r.scene.best_step, 0);
    assert_true(saved_as_best(&r, 20, 3.0));
    assert_false(retention_evaluated(&r, 30, (double)NAN));
    assert_false(retention_evaluated(&r, 40, -(double)INFINITY));
    assert_false(retention_evaluated(&r, 50, 3.0)); /* the first of equal ones */
    assert_int_equal(r.scene.best_step, 20);
    assert_true(saved_as_best(&r, 60, 2.5));
    struct retention largest = KEEPS(1, .best = true, .best_is_max = true);
    assert_true(saved_as_best(&largest, 10, -1.0));
    assert_true(saved_as_best(&largest, 20, 2.0));
    assert_false(retention_evaluated(&largest, 30, (double)INFINITY));
    assert_false(retention_evaluated(&largest, 40, 1.0));
    assert_int_equal(largest.scene.best_step, 20);
}

/* The checkpoint of a better evaluation could not be written: the best that is there stays, also
 * while others are saved, and what is better than that one is the best again. */
static void a_best_that_was_not_written_frees_nothing(void **state) {
    struct retention r = KEEPS(1, .best = true);
    assert_true(retention_evaluated(&r, 10, 3.0));
    leaves(&r, (int64_t[STEPS_MAX]){ 10 }, 10, (int64_t[STEPS_MAX]){ 10 });
    assert_true(retention_evaluated(&r, 20, 2.0)); /* and its save fails */
    leaves(&r, (int64_t[STEPS_MAX]){ 10, 30 }, 30, (int64_t[STEPS_MAX]){ 10, 30 });
    assert_false(retention_evaluated(&r, 40, 3.5));
    leaves(&r, (int64_t[STEPS_MAX]){ 10, 30, 40 }, 40, (int64_t[STEPS_MAX]){ 10, 40 });
    assert_true(retention_evaluated(&r, 50, 2.5)); /* better than any that is there */
    leaves(&r, (int64_t[STEPS_MAX]){ 10, 40, 50 }, 50, (int64_t[STEPS_MAX]){ 50 });
    assert_int_equal(r.scene.best_step, 50);
    assert_int_equal(r.evaluated_step, 20);
}

/* Of the evaluations that a run recorded, those count whose checkpoint is there. */
static void a_resumed_run_knows_the_best_that_is_there(void **state) {
    static const char RECORDS[] = "{\"step\":10,\"loss\":3.0}\n{\"step\":20,\"loss\":2.0}\n"
                                  "{\"step\":30,\"loss\":2.5}\n{\"step\":40,\"loss\":2.75}\n";
    struct run_options options = { .checkpoint = { .keep = 1, .best = true, .best_metric = "loss" },
                                   .train = { .global_batch = 1 } };
    char run[] = "/tmp/fp8lab-retention-XXXXXX", path[CHECKPOINT_PATH_CAP], parent[64];
    assert_non_null(mkdtemp(run));
    snprintf(parent, sizeof parent, "%s/data/checkpoints", run);
    snprintf(path, sizeof path, "%s/data/metrics", run);
    MUST(directory_make(path, E));
    strcat(path, "/eval.jsonl");
    MUST(file_replace(path, RECORDS, sizeof RECORDS - 1, E));
    struct retention r;
    MUST(retention_open(run, &options, 0, &r, E)); /* no checkpoint at all */
    assert_int_equal(r.scene.best_step, 0);
    for (int64_t step = 10; step <= 40; step += 10) {
        MUST(checkpoint_path(path, parent, step, E));
        if (step != 20) MUST(directory_make(path, E));
    }
    MUST(retention_open(run, &options, 0, &r, E));
    assert_int_equal(r.scene.best_step, 30);
    assert_int_equal(r.evaluated_step, 20);
    MUST(retention_prune(&r, parent, 40, E));
    MUST(checkpoint_path(path, parent, 30, E));
    assert_true(path_is_directory(path));
    MUST(checkpoint_path(path, parent, 10, E));
    assert_false(path_exists(path));
    MUST(tree_remove(run, E));
}

/* Steps count on from those of an optimizer's state, unless they begin again. */
static void the_first_checkpoint_is_of_the_step_before_the_first(void **state) {
    char run[] = "/tmp/fp8lab-retention-XXXXXX", path[CHECKPOINT_PATH_CAP];
    assert_non_null(mkdtemp(run));
    snprintf(path, sizeof path, "%s/data/experiment", run);
    MUST(directory_make(path, E));
    strcat(path, "/init.json");
    MUST(file_replace(path, "{\"optimizer\":{\"step\":40}}", 25, E));
    for (int i = 0; i < 4; i++) {
        struct run_options options = { .init_optimizer = i & 1, .init_restart = i & 2 };
        struct retention r;
        MUST(retention_open(run, &options, 0, &r, E));
        assert_int_equal(r.scene.begin, i == 1 ? 40 : 0);
    }
    MUST(tree_remove(run, E));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_are_kept),
        cmocka_unit_test(the_best_is_kept_too),
        cmocka_unit_test(skipped_checkpoints_are_deleted),
        cmocka_unit_test(the_first_is_kept_on_request),
        cmocka_unit_test(other_folders_are_left_alone),
        cmocka_unit_test(the_best_may_be_the_oldest_rolling_one),
        cmocka_unit_test(a_milestone_may_be_the_last),
        cmocka_unit_test(two_tiers_may_name_one_step),
        cmocka_unit_test(a_killed_clean_up_is_finished),
        cmocka_unit_test(an_epoch_ends_where_its_last_sequence_is_drawn),
        cmocka_unit_test(only_a_finite_value_is_the_best),
        cmocka_unit_test(a_best_that_was_not_written_frees_nothing),
        cmocka_unit_test(a_resumed_run_knows_the_best_that_is_there),
        cmocka_unit_test(the_first_checkpoint_is_of_the_step_before_the_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
