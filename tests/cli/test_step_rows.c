/* Rows of `bench step` beside each other: which row is compared with which, what a recipe can gain
 * at most, and the step with one kind of GEMM changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cpu/cpu_backend.h"
#include "runner/bench/step_rows.h"
#include "tests/support/tiny.h"

static void need(enum status st, const struct err *e) {
    if (st != OK) fail_msg("%s", e->text);
}

/* ---- rows -------------------------------------------------------------------------------------*/

/* 100 us of other operators, and a fprop of ffn_in of `us`: in the head too, if asked. */
static void row_of(struct step_row *out, const char *name, const char *recipe, enum dtype a,
                   double us, double step_us) {
    struct timed_call calls[] = {
        { .op = "rmsnorm_fwd", .part = PART_NORM, .gemm = -1, .attention = -1, .time_us = 100 },
        { .op = "matmul", .part = PART_GEMM, .gemm = 0, .attention = -1, .time_us = us },
        { .op = "matmul", .part = PART_HEAD, .gemm = 1, .attention = -1, .time_us = 50 },
    };
    struct model_config model = tiny_model();
    struct step_bench *s = calloc(1, sizeof *s);
    assert_non_null(s);
    snprintf(s->name, sizeof s->name, "%s", name);
    snprintf(s->recipe, sizeof s->recipe, "%s", recipe);
    s->backend = "cuda";
    s->micro_batch = 2;
    s->whole.tokens = 128;
    s->whole.time.median_us = step_us;
    s->record = (struct timed_record){ .call = calls, .call_count = 3, .gemm_count = 2 };
    s->record.gemm[0] = (struct gemm_shape){ .m = 64, .n = 320, .k = 64, .a = a, .b = a };
    s->record.gemm[1] = (struct gemm_shape){ .m = 64, .n = 128, .k = 64, .a = DTYPE_BF16 };
    step_row_of(s, &model, out);
    free(s);
}

static void a_row_is_beside_its_bf16(void **state) {
    (void)state;
    struct step_row *row = calloc(4, sizeof *row);
    assert_non_null(row);
    row_of(&row[0], "low", "fp8.blockwise", DTYPE_E4M3, 120, 280);
    row_of(&row[1], "other batch", "bf16", DTYPE_BF16, 400, 560);
    row_of(&row[2], "bf16", "bf16", DTYPE_BF16, 200, 360);
    row_of(&row[3], "long", "fp8.blockwise", DTYPE_E4M3, 120, 280);
    row[1].tokens *= 2;
    row[3].model.seq_len *= 2;
    assert_ptr_equal(step_row_beside(row, 4, 0), &row[2]);
    assert_null(step_row_beside(row, 4, 1));
    assert_null(step_row_beside(row, 4, 2));
    assert_null(step_row_beside(row, 4, 3)); /* another sequence length */
    row[3].model.seq_len = row[0].model.seq_len;
    row[3].model.ffn *= 2;
    assert_null(step_row_beside(row, 4, 3));
    free(row);
}

/* Of 360 us, 200 are in GEMMs that FP8 could take in 100. The head in BF16 can gain nothing. */
static void the_limit_is_of_low_gemms(void **state) {
    (void)state;
    struct step_row *row = calloc(3, sizeof *row);
    assert_non_null(row);
    row_of(&row[0], "bf16", "bf16", DTYPE_BF16, 200, 360);
    row_of(&row[1], "fp8", "fp8.blockwise", DTYPE_E4M3, 120, 280);
    row_of(&row[2], "fp4", "fp4.nvfp4", DTYPE_E2M1, 120, 280);
    assert_true(fabs(step_row_limit(&row[0], &row[1]) - 360.0 / 260) < 1e-12);
    assert_true(fabs(step_row_limit(&row[0], &row[2]) - 360.0 / 210) < 1e-12);
    assert_true(step_row_limit(&row[0], &row[0]) == 1);
    row[1].gemm[0].calls = 4; /* of four calls one is in FP8: first_bf16, last_bf16 */
    assert_true(fabs(step_row_limit(&row[0], &row[1]) - 360.0 / 335) < 1e-12);
    free(row);
}

static void json_names_the_gemms(void **state) {
    (void)state;
    struct step_row *row = calloc(2, sizeof *row);
    struct err e;
    json_t *list = json_pack("[{},{}]");
    assert_non_null(row);
    row_of(&row[0], "bf16", "bf16", DTYPE_BF16, 200, 360);
    row_of(&row[1], "fp8", "fp8.blockwise", DTYPE_E4M3, 120, 280);
    need(step_rows_json(row, 2, list, &e), &e);
    assert_true(json_is_null(json_object_get(json_array_get(list, 0), "beside")));
    const json_t *beside = json_object_get(json_array_get(list, 1), "beside");
    const json_t *gemms = json_object_get(beside, "gemms"), *gemm = json_array_get(gemms, 0);
    assert_string_equal(json_string_value(json_object_get(beside, "row")), "bf16");
    assert_int_equal(json_array_size(gemms), 1); /* the head is in BF16 in both */
    assert_string_equal(json_string_value(json_object_get(gemm, "gemm")),
                        "ffn_in fprop 64x320x64");
    assert_true(json_number_value(json_object_get(gemm, "beside_us")) == 200);
    assert_true(json_number_value(json_object_get(gemm, "time_us")) == 120);
    json_decref(list);
    free(row);
}

/* ---- one kind of GEMM changed -----------------------------------------------------------------*/

enum { STEPS = 1, ALL_STEPS = STEPS + 4 /* warm-up */ };

/* One layer, one micro-step: a change trains three times. */
static void small_run(struct tiny_run *run, enum recipe_kind kind) {
    tiny_run_init(run, kind, ALL_STEPS);
    run->model.layers = 1;
    run->model.seq_len = 16;
    run->train.global_batch = 2;
    struct recipe_options o = tiny_recipe_options(kind);
    tiny_run_recipe(run, &o);
}

static void changes_of(struct tiny_run *run, int64_t room, struct gemm_changes *out) {
    const struct trainer_inputs in = { &run->model, &run->recipe, &run->train, run->data };
    const struct energy_meter none = { 0 };
    struct err e;
    need(gemm_changes_measure(run->backend, &in, room, STEPS, &none, out, &e), &e);
}

/* The loss of the last of as many steps in the recipe of `run`, in a trainer of its own. */
static float loss_in(struct tiny_run *run) {
    struct trainer *t = NULL;
    struct step_result result = { 0 };
    struct err e;
    need(trainer_create(&t, run->backend, &run->model, &run->recipe, &run->train, run->data, &e),
         &e);
    for (int i = 0; i < ALL_STEPS; i++) need(trainer_step(t, false, &result, &e), &e);
    trainer_destroy(t);
    return result.loss;
}

static void change_site(struct tiny_run *run, int site) {
    for (int64_t l = 0; l < run->model.layers; l++)
        run->site[l * GEMM_SITE_COUNT + site] = tiny_recipe_options(RECIPE_BF16);
}

/* Each change has the bits of a run whose recipe has it. */
static void each_change_is_that_of_its_name(void **state) {
    (void)state;
    static const char *const NAMES[] = { "qkv in BF16", "attn_out in BF16", "ffn_in in BF16",
                                         "ffn_out in BF16", "fprop in BF16", "dgrad in BF16",
                                         "wgrad in BF16", "lm_head in fp8.blockwise" };
    static const unsigned GEMMS[] = { FPROP_BF16, DGRAD_BF16, WGRAD_BF16 };
    struct tiny_run run;
    struct gemm_changes c;
    struct err e;
    small_run(&run, RECIPE_BLOCKWISE);
    need(tiny_run_open(&run, &e), &e);
    changes_of(&run, INT64_MAX, &c);
    float unchanged = loss_in(&run);
    assert_int_equal(c.count, CHANGES_MAX);
    for (int i = 0; i < CHANGES_MAX; i++) {
        struct recipe_options o = tiny_recipe_options(RECIPE_BLOCKWISE);
        bool direction = i >= GEMM_SITE_COUNT && i < CHANGES_MAX - 1;
        if (direction) tiny_gemms_bf16(&o, GEMMS[i - GEMM_SITE_COUNT]);
        tiny_run_recipe(&run, &o);
        if (i < GEMM_SITE_COUNT) change_site(&run, i);
        if (i == CHANGES_MAX - 1) run.recipe.head = o;
        assert_string_equal(c.change[i].name, NAMES[i]);
        for (int r = 0; r < CHANGE_ROUNDS; r++) assert_true(c.change[i].us[r] > 0);
        assert_true(c.change[i].loss == loss_in(&run));
        assert_true(c.change[i].loss != unchanged);
    }
    tiny_run_close(&run);
}

/* A site in BF16 has no codes to keep; fprop in BF16 keeps values beside the codes. */
static void without_room_only_what_saves_is_tried(void **state) {
    (void)state;
    struct tiny_run run;
    struct gemm_changes c;
    struct err e;
    int tried = 0;
    small_run(&run, RECIPE_BLOCKWISE);
    need(tiny_run_open(&run, &e), &e);
    changes_of(&run, 0, &c);
    for (int i = 0; i < c.count; i++) {
        tried += !c.change[i].no_memory;
        assert_int_equal(c.change[i].us[CHANGE_ROUNDS - 1] > 0, !c.change[i].no_memory);
    }
    assert_true(tried > 0 && tried < c.count);
    tiny_run_close(&run);
}

static void what_cannot_change_alone_is_left_out(void **state) {
    (void)state;
    struct tiny_run run;
    struct gemm_changes c;
    struct err e;
    struct recipe_options o = tiny_recipe_options(RECIPE_TENSORWISE);
    small_run(&run, RECIPE_TENSORWISE);
    tiny_gemms_bf16(&o, DGRAD_BF16 | WGRAD_BF16); /* fprop must stay */
    tiny_run_recipe(&run, &o);
    change_site(&run, GEMM_FFN_OUT);
    run.recipe.head = tiny_recipe_options(RECIPE_DELAYED);
    run.recipe.attention_fp8 = true; /* qkv must stay */
    need(tiny_run_open(&run, &e), &e);
    changes_of(&run, INT64_MAX, &c);
    assert_int_equal(c.count, 6);
    assert_string_equal(c.change[0].name, "attn_out in BF16");
    assert_string_equal(c.change[1].name, "ffn_in in BF16");
    for (int i = 0; i < 3; i++) /* of the head, the only one with all three */
        assert_non_null(strstr("fprop in BF16 dgrad in BF16 wgrad in BF16", c.change[2 + i].name));
    assert_string_equal(c.change[5].name, "lm_head in BF16");
    tiny_run_close(&run);

    small_run(&run, RECIPE_BF16);
    need(tiny_run_open(&run, &e), &e);
    changes_of(&run, INT64_MAX, &c);
    assert_int_equal(c.count, 0);
    tiny_run_close(&run);
}

static void rounds_must_not_overlap(void **state) {
    (void)state;
    static const struct {
        double us[CHANGE_ROUNDS];
        enum change_verdict verdict;
    } CASES[] = {
        { { 95, 94, 96 }, CHANGE_FASTER },
        { { 106, 104, 105 }, CHANGE_SLOWER },
        { { 80, 80, 101.5 }, CHANGE_UNCLEAR },  /* one round as slow as an unchanged one */
        { { 150, 150, 101.5 }, CHANGE_UNCLEAR },
        { { 100.9, 100.9, 100.9 }, CHANGE_UNCLEAR }, /* less than half a percent */
        { { 102.1, 102.1, 102.1 }, CHANGE_SLOWER },
    };
    struct gemm_changes c = { .base_us = { 101, 102, 101.2 }, .count = 1 };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        memcpy(c.change[0].us, CASES[i].us, sizeof c.change[0].us);
        assert_int_equal(gemm_change_verdict(&c, 0), CASES[i].verdict);
    }
    c.change[0].no_memory = true;
    assert_int_equal(gemm_change_verdict(&c, 0), CHANGE_NO_MEMORY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_is_beside_its_bf16),
        cmocka_unit_test(the_limit_is_of_low_gemms),
        cmocka_unit_test(json_names_the_gemms),
        cmocka_unit_test(each_change_is_that_of_its_name),
        cmocka_unit_test(without_room_only_what_saves_is_tried),
        cmocka_unit_test(what_cannot_change_alone_is_left_out),
        cmocka_unit_test(rounds_must_not_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
