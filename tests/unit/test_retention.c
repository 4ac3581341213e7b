/* Which checkpoints are kept after a save. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/checkpoint.h"
#include "runner/worker/retention.h"
#include "tests/support/must.h"

enum { STEPS_MAX = 8 };

/* Folders of the steps in `before` (0 ends the list); after a save of `saved`, those in `after`
 * remain. */
static void leaves(const struct retention *r, const int64_t before[STEPS_MAX], int64_t saved,
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

static void the_newest_are_kept(void **state) {
    const struct retention two = { .keep = 2 };
    leaves(&two, (int64_t[STEPS_MAX]){ 10, 20, 30 }, 30, (int64_t[STEPS_MAX]){ 20, 30 });
    leaves(&two, (int64_t[STEPS_MAX]){ 30 }, 30, (int64_t[STEPS_MAX]){ 30 });
    leaves(&two, (int64_t[STEPS_MAX]){ 90, 1000000, 100 }, 1000000,
           (int64_t[STEPS_MAX]){ 100, 1000000 });
}

static void the_best_is_kept_too(void **state) {
    const struct retention one = { .keep = 1, .keep_best = true, .best_step = 10 };
    leaves(&one, (int64_t[STEPS_MAX]){ 10, 20, 30 }, 30, (int64_t[STEPS_MAX]){ 10, 30 });
}

/* Step 0 is kept with the newest on request; otherwise it is treated like any other step. */
static void the_first_is_kept_on_request(void **state) {
    for (int wanted = 0; wanted < 2; wanted++) {
        const struct retention r = { .keep = 1, .keep_init = wanted };
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
    const struct retention two = { .keep = 2 };
    leaves(&two, (int64_t[STEPS_MAX]){ 50, 200, 204 }, 50, (int64_t[STEPS_MAX]){ 50 });
    leaves(&two, (int64_t[STEPS_MAX]){ 100, 150, 200, 204 }, 150,
           (int64_t[STEPS_MAX]){ 100, 150 });
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_are_kept),
        cmocka_unit_test(the_best_is_kept_too),
        cmocka_unit_test(skipped_checkpoints_are_deleted),
        cmocka_unit_test(the_first_is_kept_on_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
