/* The errors of FP8 casts that a step measures: which steps, which operands, the right numbers, and
 * the same bits of the run with and without. */
#include <math.h>
#include <stdio.h>

#include "model/trainer.h"
#include "tests/support/must.h"
#include "tests/support/tiny.h"

enum { SLOTS_MAX = 128, STEPS = 3 };

static const struct kind_case {
    const char *name;
    struct recipe_options o; /* kind and switches; the rest from tiny.c */
} KINDS[] = {
    { "delayed", { .kind = RECIPE_DELAYED } },
    { "tensorwise", { .kind = RECIPE_TENSORWISE } },
    { "rowwise, wgrad in BF16", { .kind = RECIPE_ROWWISE, .wgrad_bf16 = true } },
    { "blockwise", { .kind = RECIPE_BLOCKWISE } },
    { "blockwise, dgrad in BF16", { .kind = RECIPE_BLOCKWISE, .dgrad_bf16 = true } },
    { "tensorwise, wgrad in FP8 alone",
      { .kind = RECIPE_TENSORWISE, .fprop_bf16 = true, .dgrad_bf16 = true } },
    { "mxfp8, 2-D weights", { .kind = RECIPE_MXFP8, .weight_2d = true } },
    { "nvfp4, 2-D weights", { .kind = RECIPE_NVFP4, .weight_2d = true } },
    { "nvfp4, dgrad in BF16", { .kind = RECIPE_NVFP4, .weight_2d = true, .dgrad_bf16 = true } },
};
enum { KIND_COUNT = sizeof KINDS / sizeof *KINDS };

static void init(struct tiny_run *r, const struct kind_case *c, int64_t every) {
    struct recipe_options o = tiny_recipe_options(c->o.kind);
    o.fprop_bf16 = c->o.fprop_bf16;
    o.dgrad_bf16 = c->o.dgrad_bf16;
    o.wgrad_bf16 = c->o.wgrad_bf16;
    o.weight_2d = c->o.weight_2d;
    tiny_run_init(r, c->o.kind, STEPS);
    tiny_run_recipe(r, &o);
    r->train.fp8_error = every;
}

/* What is in memory after the step, by the definition, in decibels. */
static double weight_snr(struct tiny_run *r, const struct param *p) {
    static float sums[2];
    struct tensor out = tensor_1d(sums, DTYPE_F32, 2);
    sums[0] = sums[1] = 0;
    MUST(r->backend->ops->quant_error(r->backend, LANE_COMPUTE, &out, &p->weight.value,
                                      &p->weight.codes, E));
    return 10 * log10((double)sums[0] / (double)sums[1]);
}

/* Each FP8 slot has a figure, other slots none; weights have that of the codes that the update
 * made. E4M3 has 3 bits of mantissa, E5M2 has 2: about 31 and 25 dB. */
static void check_figures(struct tiny_run *r, const char *name, int64_t step) {
    struct fp8_slot s[SLOTS_MAX];
    struct trainer *t = r->trainer;
    trainer_read_fp8(t, s);
    for (int i = 0; i < t->slots.count; i++) {
        const struct slot *slot = &t->slots.slot[i];
        /* A rotated twin alone is not compared with the value. */
        bool alone = strstr(name, "nvfp4, dgrad") && strstr(slot->name, ".dy");
        bool fp8 = dtype_is_fp8(slot->code) && !alone;
        double least = slot->code == DTYPE_E2M1 ? 12 : slot->code == DTYPE_E5M2 ? 18 : 24;
        if (isnan(s[i].snr_db) != !fp8 || isnan(s[i].rms) != !fp8)
            fail_msg("%s, step %lld: %s has %g dB", name, (long long)step, slot->name, s[i].snr_db);
        if (fp8 && step > 2 && (s[i].snr_db < least || s[i].snr_db > 45))
            fail_msg("%s, step %lld: %s has %g dB", name, (long long)step, slot->name, s[i].snr_db);
        if (fp8) assert_true(s[i].rms > 0 && s[i].rms <= (double)f32_from_bits(s[i].amax_bits) * 2);
    }
    for (int i = 0; i < t->params.count; i++) {
        const struct param *p = &t->params.param[i];
        if (!p->weight.fp8 || !p->weight.has_codes) continue;
        assert_true(s[p->weight.slot].snr_db == weight_snr(r, p));
    }
}

static void measured_steps_have_figures_and_the_same_bits(void **state) {
    for (size_t c = 0; c < KIND_COUNT; c++) {
        struct tiny_run plain, measured;
        char hash[2][65];
        init(&plain, &KINDS[c], 0);
        init(&measured, &KINDS[c], 2);
        MUST(tiny_run_open(&plain, E));
        MUST(tiny_run_open(&measured, E));
        for (int64_t step = 1; step <= STEPS; step++) {
            struct step_result a, b;
            struct fp8_slot s[SLOTS_MAX];
            MUST(trainer_step(plain.trainer, false, &a, E));
            MUST(trainer_step(measured.trainer, false, &b, E));
            assert_memory_equal(&a.loss, &b.loss, sizeof a.loss);
            assert_memory_equal(&a.grad_norm, &b.grad_norm, sizeof a.grad_norm);
            assert_false(a.measured);
            assert_int_equal(b.measured, step % 2 == 0);
            if (b.measured) check_figures(&measured, KINDS[c].name, step);
            trainer_read_fp8((b.measured ? plain : measured).trainer, s);
            for (int i = 0; i < plain.trainer->slots.count; i++) assert_true(isnan(s[i].snr_db));
        }
        MUST(trainer_weights_sha256(plain.trainer, hash[0], E));
        MUST(trainer_weights_sha256(measured.trainer, hash[1], E));
        assert_string_equal(hash[0], hash[1]);
        tiny_run_close(&plain);
        tiny_run_close(&measured);
    }
}

/* Recomputation measures nothing twice, and a later micro-batch adds nothing. */
static void figures_are_of_the_first_micro_batch_once(void **state) {
    struct fp8_slot s[3][SLOTS_MAX];
    int count = 0;
    for (int way = 0; way < 3; way++) {
        struct tiny_run r;
        struct step_result result;
        init(&r, &KINDS[3], 1);
        r.train.recompute = way == 1 ? RECOMPUTE_BLOCK : RECOMPUTE_NONE;
        r.train.global_batch = way == 2 ? 2 : 4; /* micro-batches of 2 */
        MUST(tiny_run_open(&r, E));
        MUST(trainer_step(r.trainer, false, &result, E));
        trainer_read_fp8(r.trainer, s[way]);
        count = r.trainer->slots.first[SLOT_BACKWARD];
        for (int i = r.trainer->slots.first[SLOT_FORWARD]; i < count; i++)
            for (int k = 0; k < way; k++)
                if (!isnan(s[0][i].snr_db)) /* twice the sums: the same ratio, another rms */
                    assert_true(s[way][i].snr_db == s[k][i].snr_db && s[way][i].rms == s[k][i].rms);
        tiny_run_close(&r);
    }
    assert_true(count > 0);
}

/* No step makes the codes of a frozen weight; the error is measured all the same. */
static void frozen_weights_have_figures(void **state) {
    static const struct { enum recipe_kind kind; const char *name; } CASE[] = {
        { RECIPE_TENSORWISE, "settled" }, { RECIPE_DELAYED, "made again in each step" },
    };
    static const struct selection_rule rule = { .names = "layers.0", .frozen = true };
    for (size_t c = 0; c < sizeof CASE / sizeof *CASE; c++) {
        struct tiny_run r;
        struct step_result result;
        struct kind_case kind = { CASE[c].name, { .kind = CASE[c].kind } };
        init(&r, &kind, 1);
        r.train.selection = (struct selection){ .rule = &rule, .count = 1 };
        MUST(tiny_run_open(&r, E));
        for (int i = 0; i < 3; i++) MUST(trainer_step(r.trainer, false, &result, E));
        check_figures(&r, CASE[c].name, 3);
        tiny_run_close(&r);
    }
}

static void bf16_measures_nothing(void **state) {
    struct tiny_run r;
    struct step_result result;
    tiny_run_init(&r, RECIPE_BF16, 1);
    r.train.fp8_error = 1;
    MUST(tiny_run_open(&r, E));
    MUST(trainer_step(r.trainer, false, &result, E));
    assert_false(result.measured);
    tiny_run_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measured_steps_have_figures_and_the_same_bits),
        cmocka_unit_test(figures_are_of_the_first_micro_batch_once),
        cmocka_unit_test(frozen_weights_have_figures),
        cmocka_unit_test(bf16_measures_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
