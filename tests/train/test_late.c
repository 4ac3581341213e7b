/* Steps queued ahead have the same records, bit for bit, as steps run one by one. A bad step is
 * named even if another step is queued after it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels/cpu/cpu_backend.h"
#include "model/checkpoint.h"
#include "model/trainer.h"
#include "tests/support/must.h"
#include "tests/support/tiny.h"

enum { STEPS = 5, SLOTS_MAX = 128, TRACED_MAX = 256 };

struct record {
    struct step_result result[STEPS];
    struct fp8_slot fresh[SLOTS_MAX], slot[STEPS][SLOTS_MAX];
    uint64_t print[STEPS][TRACED_MAX];
    char weights[65];
};

static void collect(struct tiny_run *r, struct record *out) {
    struct step_result s;
    MUST(trainer_collect(r->trainer, &s, E));
    int64_t i = s.step - 1;
    assert_int_equal(s.step, trainer_step_count(r->trainer));
    assert_true(s.time_us >= 0);
    s.time_us = 0;
    out->result[i] = s;
    trainer_read_fp8(r->trainer, out->slot[i]);
    if (s.traced) MUST(trainer_trace(r->trainer, out->print[i], E));
    else MUST_FAIL(ERR_STATE, "not traced", trainer_trace(r->trainer, out->print[i], E));
}

/* At most `ahead` steps are pending when another is queued. Every second step is traced. */
static void run(enum recipe_kind kind, int ahead, bool warms_up, struct record *out) {
    struct tiny_run r;
    int64_t slots, traced;
    memset(out, 0, sizeof *out);
    tiny_run_init(&r, kind, STEPS);
    MUST(cpu_backend_open(&r.backend, 0, E));
    struct backend_ops ops = *r.backend->ops;
    const struct backend_ops *real = r.backend->ops;
    ops.warms_up = warms_up;
    r.backend->ops = &ops;
    MUST(tiny_run_open(&r, E));
    trainer_read_fp8(r.trainer, out->fresh);
    trainer_slots(r.trainer, &slots);
    trainer_trace_tensors(r.trainer, &traced);
    assert_true(slots <= SLOTS_MAX && traced <= TRACED_MAX);
    for (int i = 0; i < STEPS; i++) {
        MUST(trainer_queue(r.trainer, i % 2 == 0, E));
        while (trainer_pending(r.trainer) > ahead) collect(&r, out);
    }
    while (trainer_pending(r.trainer)) collect(&r, out);
    assert_int_equal(trainer_step_count(r.trainer), STEPS);
    MUST(trainer_weights_sha256(r.trainer, out->weights, E));
    r.backend->ops = real;
    tiny_run_close(&r);
}

static void late_records_are_the_same(void **state) {
    struct record *at_once = malloc(sizeof *at_once), *late = malloc(sizeof *late);
    for (int kind = RECIPE_F32; kind < RECIPE_KIND_COUNT; kind++) {
        run((enum recipe_kind)kind, 0, false, at_once);
        run((enum recipe_kind)kind, 1, false, late);
        assert_memory_equal(at_once, late, sizeof *late);
    }
    free(at_once);
    free(late);
}

/* A warm-up changes no result. */
static void warm_up_changes_nothing(void **state) {
    struct record *without = malloc(sizeof *without), *with = malloc(sizeof *with);
    for (int kind = RECIPE_F32; kind < RECIPE_KIND_COUNT; kind++) {
        run((enum recipe_kind)kind, 0, false, without);
        run((enum recipe_kind)kind, 0, true, with);
        assert_memory_equal(without, with, sizeof *with);
    }
    free(without);
    free(with);
}

static void weights_after(int64_t steps, char hex[65]) {
    struct tiny_run r;
    struct step_result s;
    tiny_run_init(&r, RECIPE_TENSORWISE, STEPS);
    MUST(tiny_run_open(&r, E));
    for (int64_t i = 0; i < steps; i++) MUST(trainer_step(r.trainer, false, &s, E));
    MUST(trainer_weights_sha256(r.trainer, hex, E));
    tiny_run_close(&r);
}

static void assert_no_checkpoint(struct tiny_run *r, const char *words) {
    char dir[] = "/tmp/fp8lab-late-XXXXXX", path[128];
    struct checkpoint_info info;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/checkpoints", dir);
    MUST_FAIL(ERR_STATE, words, checkpoint_save(r->trainer, path, &info, E));
    assert_int_equal(rmdir(dir), 0); /* it is empty */
}

/* Step 3 is bad, and step 4 was queued before step 3 was collected. Step 2 is complete, the error
 * names step 3, and the weights contain neither step 3 nor step 4. */
static void a_bad_step_is_named_late(void **state) {
    struct tiny_run r;
    struct step_result s;
    char wanted[65], found[65];
    const float nan = NAN;
    tiny_run_init(&r, RECIPE_TENSORWISE, STEPS);
    MUST(tiny_run_open(&r, E));
    MUST(trainer_step(r.trainer, false, &s, E));
    MUST(trainer_queue(r.trainer, false, E));
    MUST(r.backend->ops->upload(r.backend, LANE_COMPUTE, r.trainer->transformer.grad_scale.data,
                                &nan, sizeof nan, E));
    MUST(trainer_queue(r.trainer, false, E));
    MUST(trainer_collect(r.trainer, &s, E));
    assert_true(s.step == 2 && isfinite(s.loss) && isfinite(s.grad_norm) && !s.tensor[0]);
    MUST(trainer_queue(r.trainer, false, E));
    assert_no_checkpoint(&r, "step 3 is queued");
    MUST_FAIL(ERR_NUMERIC, "step 3: head.dy is not finite", trainer_collect(r.trainer, &s, E));
    assert_int_equal(s.step, 3);
    assert_string_equal(s.tensor, "head.dy");
    assert_int_equal(trainer_step_count(r.trainer), 2);
    assert_int_equal(trainer_pending(r.trainer), 0);
    MUST_FAIL(ERR_STATE, "no step", trainer_collect(r.trainer, &s, E));
    MUST_FAIL(ERR_STATE, "a value was not finite after step 2", trainer_queue(r.trainer, false, E));
    assert_no_checkpoint(&r, "nothing is saved");
    weights_after(2, wanted);
    MUST(trainer_weights_sha256(r.trainer, found, E));
    assert_string_equal(wanted, found);
    tiny_run_close(&r);
}

/* Calls that need the state after a step are rejected while a step is pending. */
static void pending_step_blocks_calls(void **state) {
    struct tiny_run r;
    struct step_result s;
    struct eval_result eval;
    struct checkpoint_info info;
    char hex[65];
    tiny_run_init(&r, RECIPE_BF16, STEPS);
    MUST(tiny_run_open(&r, E));
    MUST(trainer_queue(r.trainer, false, E));
    MUST_FAIL(ERR_STATE, "step 1 is queued", trainer_step(r.trainer, false, &s, E));
    MUST_FAIL(ERR_STATE, "step 1 is queued", trainer_eval(r.trainer, 1, &eval, E));
    MUST_FAIL(ERR_STATE, "step 1 is queued", trainer_weights_sha256(r.trainer, hex, E));
    MUST_FAIL(ERR_STATE, "step 1 is queued", checkpoint_load(r.trainer, "/nonexistent", &info, E));
    assert_no_checkpoint(&r, "step 1 is queued");
    MUST(trainer_queue(r.trainer, false, E));
    MUST_FAIL(ERR_STATE, "2 steps are queued", trainer_queue(r.trainer, false, E));
    for (int64_t i = 1; i <= 2; i++) {
        MUST(trainer_collect(r.trainer, &s, E));
        assert_int_equal(s.step, i);
    }
    MUST(trainer_eval(r.trainer, 1, &eval, E));
    tiny_run_close(&r);
}

static enum status broken_copy(struct backend *b, int lane, const struct tensor *out,
                               const struct tensor *x, struct err *e) {
    return FAIL(e, ERR_DEVICE, "broken on purpose");
}

/* A step that cannot be queued does not lose the step before it. */
static void the_step_before_a_failure_is_kept(void **state) {
    struct tiny_run r;
    struct step_result s;
    tiny_run_init(&r, RECIPE_DELAYED, STEPS);
    MUST(tiny_run_open(&r, E));
    MUST(trainer_queue(r.trainer, false, E));
    const struct backend_ops *real = r.backend->ops;
    struct backend_ops ops = *real;
    ops.copy = broken_copy;
    r.backend->ops = &ops;
    MUST_FAIL(ERR_DEVICE, "on purpose", trainer_queue(r.trainer, false, E));
    r.backend->ops = real;
    bool ready = false;
    MUST(trainer_ready(r.trainer, &ready, E));
    assert_true(ready);
    MUST(trainer_collect(r.trainer, &s, E));
    assert_int_equal(s.step, 1);
    MUST(trainer_ready(r.trainer, &ready, E));
    assert_false(ready);
    MUST_FAIL(ERR_STATE, "half-way after step 1", trainer_queue(r.trainer, false, E));
    tiny_run_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_records_are_the_same),
        cmocka_unit_test(warm_up_changes_nothing),
        cmocka_unit_test(a_bad_step_is_named_late),
        cmocka_unit_test(pending_step_blocks_calls),
        cmocka_unit_test(the_step_before_a_failure_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
