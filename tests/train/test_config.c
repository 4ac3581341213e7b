/* Schedules, bias corrections, parameter counts, and invalid configurations. */
#include <math.h>

#include "model/trainer.h"
#include "tests/support/must.h"
#include "tests/support/tiny.h"

static void schedules_by_hand(void **state) {
    static const struct { enum schedule_kind kind; int64_t decay, step; double wanted; } CASE[] = {
        /* lr 1, 100 steps, warm-up 10, final 0.1 */
        { SCHEDULE_COSINE, 0, 1, 0.1 },     { SCHEDULE_COSINE, 0, 10, 1 },
        { SCHEDULE_COSINE, 0, 55, 0.55 },   { SCHEDULE_COSINE, 0, 100, 0.1 },
        { SCHEDULE_COSINE, 90, 55, 0.55 },  { SCHEDULE_COSINE, 0, 150, 0.1 },
        { SCHEDULE_COSINE, 40, 30, 0.55 },  { SCHEDULE_COSINE, 40, 50, 0.1 },
        { SCHEDULE_COSINE, 40, 51, 0.1 },   { SCHEDULE_COSINE, 40, 100, 0.1 },
        { SCHEDULE_COSINE, 40, 20, 0.1 + 0.45 * (1 + 0.70710678118654752) }, /* cos(pi/4) */
        { SCHEDULE_LINEAR, 0, 5, 0.5 },     { SCHEDULE_LINEAR, 0, 55, 0.55 },
        { SCHEDULE_LINEAR, 0, 28, 0.82 },   { SCHEDULE_LINEAR, 0, 100, 0.1 },
        { SCHEDULE_LINEAR, 20, 20, 0.55 },  { SCHEDULE_LINEAR, 20, 31, 0.1 },
        { SCHEDULE_WSD, 20, 11, 1 },        { SCHEDULE_WSD, 20, 80, 1 },
        { SCHEDULE_WSD, 20, 90, 0.55 },     { SCHEDULE_WSD, 20, 100, 0.1 },
        { SCHEDULE_WSD, 0, 100, 1 },
        /* longer than the run: the decay begins where the warm-up ends */
        { SCHEDULE_WSD, 400, 10, 1 },       { SCHEDULE_WSD, 400, 11, 0.99 },
        { SCHEDULE_WSD, 400, 100, 0.1 },
        { SCHEDULE_CONSTANT, 20, 9, 0.9 },  { SCHEDULE_CONSTANT, 20, 100, 1 },
    };
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        struct schedule_options s = { .kind = CASE[i].kind, .warmup = 10, .decay = CASE[i].decay,
                                      .final = 0.1 };
        double found = schedule_lr(&s, 1, CASE[i].step, 100);
        if (fabs(found - CASE[i].wanted) > 1e-12)
            fail_msg("row %zu: %.15g, wanted %.15g", i, found, CASE[i].wanted);
    }
    struct schedule_options none = { .kind = SCHEDULE_COSINE };
    assert_true(schedule_lr(&none, 2, 1, 1) <= 2); /* no warm-up, one step: no division by 0 */
    assert_true(fabs(adamw_bias(0.9, 1) - 10) < 1e-12);
    assert_true(fabs(adamw_bias(0.95, 3) - 1 / (1 - 0.95 * 0.95 * 0.95)) < 1e-12);
    assert_true(adamw_bias(0, 5) == 1);
}

/* Published sizes. */
static void parameter_counts(void **state) {
    struct model_config gpt2 = {
        .vocab = 50257, .seq_len = 1024, .layers = 12, .width = 768, .heads = 12, .kv_heads = 12,
        .head_dim = 64, .ffn = 3072, .norm = NORM_LAYER, .activation = ACTIVATION_GELU,
        .positions = POSITION_LEARNED, .norm_eps = 1e-5, .init_std = 0.02, .bias = true,
        .tied = true,
    };
    assert_int_equal(model_parameter_count(&gpt2), 124439808);
    gpt2.layers = 48;
    gpt2.width = 1600;
    gpt2.heads = gpt2.kv_heads = 25;
    gpt2.ffn = 6400;
    assert_int_equal(model_parameter_count(&gpt2), 1557611200);
    struct model_config llama = {
        .vocab = 128256, .seq_len = 8192, .layers = 32, .width = 4096, .heads = 32, .kv_heads = 8,
        .head_dim = 128, .ffn = 14336, .norm = NORM_RMS, .activation = ACTIVATION_SWIGLU,
        .positions = POSITION_ROPE, .rope = { .theta = 500000 }, .norm_eps = 1e-5, .init_std = 0.02,
    };
    assert_int_equal(model_parameter_count(&llama), 8030261248);
    /* 6 per matmul weight (all but the input embedding and norms) + 12 L HD T / 2 */
    double weights = 8030261248.0 - 128256.0 * 4096 - 65 * 4096;
    assert_true(model_flops_per_token(&llama) == 6 * weights + 12.0 * 32 * 4096 * 8192 / 2);
    MUST(model_config_check(&gpt2, E));
    MUST(model_config_check(&llama, E));
}

static void impossible_models_are_refused(void **state) {
    struct model_config c = tiny_model();
    c.kv_heads = 3;
    MUST_FAIL(ERR_CONFIG, "model.heads is 4; it must be a multiple of model.kv_heads 3",
              model_config_check(&c, E));
    c = tiny_model();
    c.head_dim = 15;
    MUST_FAIL(ERR_CONFIG, "model.head_dim is 15; it must be even", model_config_check(&c, E));
    c = tiny_model();
    c.vocab = 0;
    MUST_FAIL(ERR_CONFIG, "model.vocab is 0", model_config_check(&c, E));
    c = tiny_model();
    c.rope.factor = 8;
    MUST_FAIL(ERR_CONFIG, "model.rope.scaling has factor 8", model_config_check(&c, E));
    c = tiny_model();
    c.window = -1;
    MUST_FAIL(ERR_CONFIG, "model.window is -1; it must be between 1 and 2^24",
              model_config_check(&c, E));
    c = tiny_model();
    c.norm_eps = NAN;
    MUST_FAIL(ERR_CONFIG, "model.norm_eps", model_config_check(&c, E));
}

static void impossible_runs_are_refused(void **state) {
    struct tiny_run r;
    struct plan plan;
    tiny_run_init(&r, RECIPE_BF16, 5);
    r.train.micro_batch = 3;
    MUST_FAIL(ERR_CONFIG, "a multiple of micro_batch 3",
              trainer_plan(&plan, &r.model, &r.recipe, &r.train, 1, E));
    tiny_run_init(&r, RECIPE_BF16, 5);
    r.train.head_chunk = 17;
    MUST_FAIL(ERR_CONFIG, "train.head_chunk is 17",
              trainer_plan(&plan, &r.model, &r.recipe, &r.train, 1, E));
    tiny_run_init(&r, RECIPE_BF16, 5);
    r.train.head_chunk = -16;
    MUST_FAIL(ERR_CONFIG, "train.head_chunk is -16",
              trainer_plan(&plan, &r.model, &r.recipe, &r.train, 1, E));
    tiny_run_init(&r, RECIPE_BF16, (int64_t)1 << 31); /* a step is counted in i32 */
    MUST_FAIL(ERR_CONFIG, "train.steps is 2147483648",
              trainer_plan(&plan, &r.model, &r.recipe, &r.train, 1, E));
    tiny_run_init(&r, RECIPE_F32, 5);
    r.train.grad_dtype = DTYPE_BF16;
    MUST_FAIL(ERR_CONFIG, "train.grad_dtype is bf16; the f32 recipe has",
              trainer_plan(&plan, &r.model, &r.recipe, &r.train, 1, E));
    tiny_run_init(&r, RECIPE_F32, 5);
    r.train.grad_codes = true;
    MUST_FAIL(ERR_CONFIG, "train.grad_dtype is fp8; the f32 recipe has",
              trainer_plan(&plan, &r.model, &r.recipe, &r.train, 1, E));
    tiny_run_init(&r, RECIPE_BF16, 5);
    r.train.optimizer.beta2 = 1;
    MUST_FAIL(ERR_CONFIG, "betas[2] is 1",
              trainer_plan(&plan, &r.model, &r.recipe, &r.train, 1, E));
    tiny_run_init(&r, RECIPE_F32, 5);
    r.site[3].kind = RECIPE_BF16;
    MUST_FAIL(ERR_CONFIG, "layer 0, ffn_out", recipe_check(&r.recipe, &r.model, E));
}

/* trainer_create reports the same error, before any other computation. */
static void impossible_trainers_are_refused(void **state) {
    struct tiny_run r;
    tiny_run_init(&r, RECIPE_BF16, 5);
    r.train.micro_batch = 0;
    MUST_FAIL(ERR_CONFIG, "a multiple of micro_batch 0", tiny_run_open(&r, E));
    tiny_run_close(&r);
    tiny_run_init(&r, RECIPE_BF16, 5);
    r.recipe.layers = 1;
    MUST_FAIL(ERR_CONFIG, "the recipe has 1 layers, the model 2", tiny_run_open(&r, E));
    tiny_run_close(&r);
}

/* The memory table of a model too large to allocate in a test. */
static void plans_are_free(void **state) {
    struct tiny_run r;
    struct plan plan;
    tiny_run_init(&r, RECIPE_BLOCKWISE, 5);
    r.model.width = 8192;
    r.model.ffn = 28672;
    r.model.heads = r.model.kv_heads = 64;
    r.model.head_dim = 128;
    r.model.seq_len = 8192;
    MUST(trainer_plan(&plan, &r.model, &r.recipe, &r.train, 1, E));
    int64_t total = 0, masters = 0, wanted = 4 * model_parameter_count(&r.model);
    for (int64_t i = 0; i < plan.row_count; i++) {
        total += plan.row[i].bytes;
        if (strcmp(plan.row[i].arena, "master weights") == 0) masters += plan.row[i].bytes;
    }
    assert_int_equal(total, plan.bytes);
    assert_true(masters >= wanted && masters < wanted + 4 * 128 * 8192); /* padding */
    plan_free(&plan);
}

/* cuBLASLt multiplies 1x128 scales if the rows are a multiple of 8. A last chunk of 14 rows is
 * widened first. */
static void plans_count_the_last_chunk(void **state) {
    for (int rest = 0; rest < 2; rest++) {
        struct tiny_run r;
        struct plan plan;
        tiny_run_init(&r, RECIPE_BF16, 5);
        r.recipe.head = tiny_recipe_options(RECIPE_BLOCKWISE);
        r.train.head_chunk = 48;
        if (rest) r.model.seq_len = 31;
        MUST(trainer_plan(&plan, &r.model, &r.recipe, &r.train, 1, E));
        MUST(plan_add_gpu(&plan, &r.model, &r.recipe, &r.train, 1, 90, E));
        int64_t widened = 0;
        for (int64_t i = 0; i < plan.row_count; i++)
            if (strcmp(plan.row[i].item, "operands widened to BF16") == 0)
                widened = plan.row[i].bytes;
        /* dgrad's: dy [14, 128], W^T [64, 128]; wgrad's rows are 128 and 64 */
        assert_int_equal(widened, rest ? 2 * (14 + 64) * 128 : 0);
        plan_free(&plan);
    }
}

/* FP8 attention keeps a byte of each query, key and value where BF16 keeps two; with delayed
 * scaling the output's codes too, in place of its values. On a GPU it widens them to BF16. */
static void plans_count_fp8_attention(void **state) {
    enum { R = 2 * 32, W = 8 * 16, HD = 4 * 16, LAYERS = 2 };
    static const enum recipe_kind KIND[] = { RECIPE_TENSORWISE, RECIPE_DELAYED };
    for (int i = 0; i < 2; i++) {
        int64_t activations[2] = { 0, 0 }, widened[2] = { 0, 0 };
        for (int fp8 = 0; fp8 < 2; fp8++) {
            struct tiny_run r;
            struct plan plan;
            tiny_run_init(&r, KIND[i], 5);
            r.recipe.attention_fp8 = fp8;
            MUST(trainer_plan(&plan, &r.model, &r.recipe, &r.train, 1, E));
            MUST(plan_add_gpu(&plan, &r.model, &r.recipe, &r.train, 1, 80, E));
            for (int64_t k = 0; k < plan.row_count; k++) {
                const struct plan_row *row = &plan.row[k];
                if (!strcmp(row->arena, "activations")) activations[fp8] += row->bytes;
                if (!strcmp(row->item, "attention, widened to BF16")) widened[fp8] = row->bytes;
            }
            plan_free(&plan);
        }
        int64_t saved = LAYERS * R * (W + (KIND[i] == RECIPE_DELAYED ? HD : 0));
        assert_int_equal(activations[0] - activations[1], saved);
        assert_int_equal(widened[0], 0);
        assert_int_equal(widened[1], 2 * R * (W + HD));
    }
}

/* Llama 3.1's table against its published formula in libm: wavelengths below 8192/4 tokens are
 * kept, those above 8192 are 8 times longer, in between interpolated. */
static void rope_table_of_llama_31(void **state) {
    enum { T = 32, D = 16 };
    struct tiny_run r;
    float table[T * D];
    int kept = 0, stretched = 0, between = 0;
    tiny_run_init(&r, RECIPE_F32, 1);
    r.model.rope = (struct rope_config){ 500000, 8, 1, 4, 8192 };
    MUST(tiny_run_open(&r, E));
    MUST(r.backend->ops->download(r.backend, LANE_COMPUTE, table,
                                  r.trainer->transformer.rope.data, sizeof table, E));
    for (int i = 0; i < D / 2; i++) {
        double f = pow(500000, -2.0 * i / D), wavelength = 2 * acos(-1) / f, scaled = f / 8;
        double smooth = (8192 / wavelength - 1) / 3;
        if (wavelength < 2048) kept++, scaled = f;
        else if (wavelength <= 8192) between++, scaled = (1 - smooth) * f / 8 + smooth * f;
        else stretched++;
        for (int t = 0; t < T; t++) {
            assert_float_equal(table[t * D + i], cos(t * scaled), 1e-6);
            assert_float_equal(table[t * D + D / 2 + i], sin(t * scaled), 1e-6);
        }
    }
    assert_true(kept > 0 && stretched > 0 && between > 0);
    tiny_run_close(&r);
}

static void recompute_layers_are_of_the_model(void **state) {
    struct tiny_run r;
    struct plan plan;
    tiny_run_init(&r, RECIPE_BF16, 5);
    r.train.recompute = RECOMPUTE_BLOCK;
    r.train.recompute_layers = 3;
    MUST_FAIL(ERR_CONFIG, "train.recompute_layers is 3; it must be 0 (all) to 2",
              trainer_plan(&plan, &r.model, &r.recipe, &r.train, 1, E));
    r.train.recompute_layers = -1;
    MUST_FAIL(ERR_CONFIG, "train.recompute_layers is -1",
              trainer_plan(&plan, &r.model, &r.recipe, &r.train, 1, E));
}

/* Sizes whose bytes overflow 64 bits are rejected. */
static void sizes_do_not_overflow(void **state) {
    struct tiny_run r;
    struct plan plan;
    struct model_config c = tiny_model();
    c.width = (int64_t)1 << 31;
    MUST_FAIL(ERR_CONFIG, "model.width is 2147483648", model_config_check(&c, E));
    c = tiny_model();
    c.heads = c.kv_heads = c.head_dim = 1 << 23;
    MUST_FAIL(ERR_CONFIG, "at most 2^24", model_config_check(&c, E));
    tiny_run_init(&r, RECIPE_BF16, 5);
    r.model.positions = POSITION_LEARNED;
    r.model.seq_len = 1 << 24;
    r.train.micro_batch = r.train.global_batch = 1 << 20;
    MUST_FAIL(ERR_CONFIG, "rows are counted in i32",
              trainer_plan(&plan, &r.model, &r.recipe, &r.train, 1, E));
    r.train.micro_batch = r.train.global_batch = 127;
    r.model.width = r.model.ffn = r.model.vocab = r.model.head_dim = 1 << 24;
    r.model.heads = r.model.kv_heads = 1;
    r.train.head_chunk = 1 << 30;
    for (int k = RECOMPUTE_NONE; k <= RECOMPUTE_BLOCK; k++) {
        r.train.recompute = (enum recompute_kind)k;
        MUST_FAIL(ERR_CONFIG, "more than 2^60 bytes",
                  trainer_plan(&plan, &r.model, &r.recipe, &r.train, 1, E));
    }
}

/* Equal chunks of at most 1 GiB of logits and at least 1024 rows; small heads have one chunk. */
static void head_chunk_follows_from_sizes(void **state) {
    static const struct { int64_t vocab, rows, chunk; } CASE[] = {
        { 128256, 16384, 4096 }, { 50257, 32768, 8192 }, { 256, 1024, 1024 }, { 256, 100, 1024 },
        { 256, 4000, 4096 },     { 128256, 4097, 2176 }, { 1 << 24, 8192, 1024 },
        { 2, (int64_t)1 << 44, 1 << 20 },
    };
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        int64_t chunk = model_head_chunk(CASE[i].vocab, CASE[i].rows);
        assert_int_equal(chunk, CASE[i].chunk);
        assert_int_equal(chunk % 128, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(head_chunk_follows_from_sizes),
        cmocka_unit_test(schedules_by_hand),
        cmocka_unit_test(parameter_counts),
        cmocka_unit_test(impossible_models_are_refused),
        cmocka_unit_test(impossible_runs_are_refused),
        cmocka_unit_test(impossible_trainers_are_refused),
        cmocka_unit_test(plans_are_free),
        cmocka_unit_test(plans_count_the_last_chunk),
        cmocka_unit_test(plans_count_fp8_attention),
        cmocka_unit_test(recompute_layers_are_of_the_model),
        cmocka_unit_test(sizes_do_not_overflow),
        cmocka_unit_test(rope_table_of_llama_31),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
