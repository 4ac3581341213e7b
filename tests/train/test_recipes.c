/* Recipe semantics computed by hand: delayed scales from the recorded amax, the GEMMs with FP8
 * operands, the effect of a non-finite value. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "model/checkpoint.h"
#include "model/trainer.h"
#include "tests/support/must.h"
#include "tests/support/tiny.h"

enum { SLOTS_MAX = 128, STEPS = 5 };

static int slot_named(struct tiny_run *r, const char *name) {
    int64_t count;
    const char *const *names = trainer_slots(r->trainer, &count);
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) return i;
    fail_msg("no slot %s", name);
    return -1;
}

static void open_delayed(struct tiny_run *r, int margin, int history, enum amax_algo algo,
                         enum roll_kind roll, int64_t micro_batch) {
    tiny_run_init(r, RECIPE_DELAYED, 20);
    struct recipe_options o = tiny_recipe_options(RECIPE_DELAYED);
    o.margin = margin;
    o.history = history;
    o.algo = algo;
    o.roll = roll;
    tiny_run_recipe(r, &o);
    r->train.micro_batch = micro_batch;
    MUST(tiny_run_open(r, E));
}

static void step(struct tiny_run *r, struct fp8_slot *slots) {
    struct step_result s;
    MUST(trainer_step(r->trainer, false, &s, E));
    trainer_read_fp8(r->trainer, slots);
}

/* ---- delayed scaling ---- */

/* multiplier = max * 2^-margin / (largest amax in the history). A history of H rows has H-1 older
 * values and the current one. */
static void delayed_scales_by_hand(void **state) {
    static const struct { int margin, history; enum amax_algo algo; } CASE[] = {
        { 0, 1024, AMAX_MAX }, { 1, 1024, AMAX_MAX }, { 0, 3, AMAX_MAX }, { 2, 2, AMAX_MAX },
        { 0, 1, AMAX_MOST_RECENT }, { 0, 16, AMAX_MOST_RECENT }, { 0, 1, AMAX_MAX },
    };
    static const struct { const char *name; float max; } SLOT[] = {
        { "layers.0.qkv.x", 448 }, { "layers.1.ffn_out.x", 448 },
        { "layers.0.attn_out.dy", 57344 }, { "layers.1.qkv.dy", 57344 },
    };
    for (size_t c = 0; c < sizeof CASE / sizeof *CASE; c++) {
        struct tiny_run r;
        struct fp8_slot seen[STEPS][SLOTS_MAX];
        open_delayed(&r, CASE[c].margin, CASE[c].history, CASE[c].algo, ROLL_MICROBATCH, 4);
        for (int i = 0; i < STEPS; i++) step(&r, seen[i]);
        for (size_t k = 0; k < sizeof SLOT / sizeof *SLOT; k++) {
            int slot = slot_named(&r, SLOT[k].name);
            assert_true(seen[0][slot].scale == 1.0f); /* no amax before the first step */
            for (int i = 1; i < STEPS; i++) {
                float amax = 0;
                int back = CASE[c].algo == AMAX_MOST_RECENT ? 1 : CASE[c].history;
                for (int j = i - 1; j >= 0 && j >= i - back; j--)
                    amax = fmaxf(amax, f32_from_bits(seen[j][slot].amax_bits));
                float wanted = ldexpf(SLOT[k].max, -CASE[c].margin) / amax;
                assert_true(amax > 0 && seen[i][slot].scale == wanted);
            }
        }
        tiny_run_close(&r);
    }
}

/* The scale of a weight also lags one quantisation: codes made at creation have multiplier 1, codes
 * of the first update 448/amax at creation. With param_gather the scale lags by as much, as in
 * TransformerEngine, and the weights are the same. */
static void delayed_weights(void **state) {
    char weights[2][65];
    for (int gather = 0; gather < 2; gather++) {
        struct tiny_run r;
        struct fp8_slot seen[STEPS][SLOTS_MAX];
        tiny_run_init(&r, RECIPE_DELAYED, STEPS);
        struct recipe_options o = tiny_recipe_options(RECIPE_DELAYED);
        o.history = 3; /* two older rows and the newest */
        o.param_gather = gather;
        tiny_run_recipe(&r, &o);
        MUST(tiny_run_open(&r, E));
        int slot = slot_named(&r, "layers.1.ffn_in.weight");
        int x = slot_named(&r, "layers.1.ffn_in.x"); /* [64, 64], in two micro-batches */
        trainer_read_fp8(r.trainer, seen[0]);
        assert_true(seen[0][slot].scale == 1.0f);
        for (int i = 1; i < STEPS; i++) {
            float amax = 0;
            step(&r, seen[i]);
            for (int j = i - 1; j >= 0 && j >= i - 3; j--)
                amax = fmaxf(amax, f32_from_bits(seen[j][slot].amax_bits));
            assert_true(seen[i][slot].amax_bits != seen[i - 1][slot].amax_bits);
            assert_true(seen[i][slot].scale == 448.0f / amax);
        }
        assert_int_equal(seen[1][slot].elements, 320 * 64);
        assert_int_equal(seen[1][x].elements, 2 * 64 * 64);
        MUST(trainer_weights_sha256(r.trainer, weights[gather], E));
        tiny_run_close(&r);
    }
    assert_string_equal(weights[0], weights[1]);
}

/* roll = "step": in the first step every scale is 1 and every amax is the whole batch's, for any
 * number of micro-batches. So the second step's scales are equal too. With roll = "microbatch" they
 * are not: the second micro-batch has a scale from the first. */
static void roll_per_step_ignores_accumulation(void **state) {
    static const enum roll_kind ROLL[] = { ROLL_STEP, ROLL_MICROBATCH };
    for (int k = 0; k < 2; k++) {
        struct fp8_slot slots[2][SLOTS_MAX], second[2][SLOTS_MAX];
        int64_t count = 0, differ = 0;
        for (int pieces = 0; pieces < 2; pieces++) {
            struct tiny_run r;
            open_delayed(&r, 0, 16, AMAX_MAX, ROLL[k], pieces ? 1 : 4);
            step(&r, slots[pieces]);
            step(&r, second[pieces]);
            trainer_slots(r.trainer, &count);
            int first = r.trainer->slots.first[SLOT_FORWARD];
            for (int64_t i = first; pieces && i < count; i++) {
                if (!slots[0][i].elements) continue;
                differ += slots[0][i].amax_bits != slots[1][i].amax_bits;
                differ += second[0][i].scale != second[1][i].scale;
                float amax = f32_from_bits(slots[1][i].amax_bits);
                float max = dtype_max(r.trainer->slots.slot[i].code);
                assert_true(slots[1][i].scale == 1.0f || ROLL[k] == ROLL_MICROBATCH);
                assert_true(second[1][i].scale == max / amax || ROLL[k] == ROLL_MICROBATCH);
            }
            tiny_run_close(&r);
        }
        assert_true(ROLL[k] == ROLL_STEP ? differ == 0 : differ > 0);
    }
}

/* Neighbouring slots with other options have their own history, margin and length. */
static void each_gemm_keeps_its_own_history(void **state) {
    static const struct { const char *name; int margin, history; } SITE[] = {
        { "layers.0.attn_out.x", 0, 1 }, { "layers.0.ffn_in.x", 2, 1 },
        { "layers.0.ffn_out.x", 2, 16 },
    };
    struct tiny_run r;
    struct fp8_slot seen[STEPS][SLOTS_MAX];
    tiny_run_init(&r, RECIPE_DELAYED, 20);
    for (int s = GEMM_ATTN_OUT; s <= GEMM_FFN_OUT; s++) {
        r.site[s].margin = SITE[s - GEMM_ATTN_OUT].margin;
        r.site[s].history = SITE[s - GEMM_ATTN_OUT].history;
    }
    r.train.micro_batch = 4;
    MUST(tiny_run_open(&r, E));
    for (int i = 0; i < STEPS; i++) step(&r, seen[i]);
    for (size_t k = 0; k < sizeof SITE / sizeof *SITE; k++) {
        int slot = slot_named(&r, SITE[k].name);
        for (int i = 1; i < STEPS; i++) {
            float amax = 0;
            for (int j = i - 1; j >= 0 && j >= i - SITE[k].history; j--)
                amax = fmaxf(amax, f32_from_bits(seen[j][slot].amax_bits));
            assert_true(seen[i][slot].scale == ldexpf(448, -SITE[k].margin) / amax);
        }
    }
    tiny_run_close(&r);
}

/* BF16 in the first and last layer under delayed scaling: their slots record amax and are not
 * FP8. */
static void first_and_last_in_bf16(void **state) {
    struct tiny_run r;
    struct fp8_slot slots[SLOTS_MAX];
    tiny_run_init(&r, RECIPE_DELAYED, 5);
    r.model.layers = 3;
    struct recipe_options o = tiny_recipe_options(RECIPE_DELAYED);
    tiny_run_recipe(&r, &o);
    for (int s = 0; s < GEMM_SITE_COUNT; s++)
        r.site[s].kind = r.site[2 * GEMM_SITE_COUNT + s].kind = RECIPE_BF16;
    MUST(tiny_run_open(&r, E));
    step(&r, slots);
    step(&r, slots);
    for (int layer = 0; layer < 3; layer++) {
        char name[64];
        snprintf(name, sizeof name, "layers.%d.ffn_in.x", layer);
        const struct fp8_slot *x = &slots[slot_named(&r, name)];
        assert_true(x->amax_bits != 0);
        if (layer == 1) assert_true(x->elements > 0 && x->scale != 1.0f);
        else assert_true(x->elements == 0 && x->scale == 1.0f);
    }
    tiny_run_close(&r);
}

/* With current scaling at most the largest element saturates; a margin of -8 scales values to 256
 * times the largest code. Counts are elements. */
static void saturation_is_counted(void **state) {
    struct tiny_run r;
    struct fp8_slot slots[SLOTS_MAX];
    int64_t count, saturated = 0;
    open_delayed(&r, -8, 1, AMAX_MOST_RECENT, ROLL_MICROBATCH, 4);
    step(&r, slots);
    step(&r, slots);
    trainer_slots(r.trainer, &count);
    for (int64_t i = 0; i < count; i++) {
        assert_true(slots[i].saturated + slots[i].underflow <= slots[i].elements);
        saturated += slots[i].saturated > 0;
    }
    assert_true(saturated > 10);
    tiny_run_close(&r);
    tiny_run_init(&r, RECIPE_TENSORWISE, 5);
    MUST(tiny_run_open(&r, E));
    step(&r, slots);
    trainer_slots(r.trainer, &count);
    for (int64_t i = 0; i < count; i++) {
        assert_true(slots[i].saturated <= 4); /* amax * (448/amax) may round above 448 */
        float amax = f32_from_bits(slots[i].amax_bits);
        int e5m2 = strstr(r.trainer->slots.name[i], ".dy") != NULL;
        if (slots[i].elements)
            assert_true(slots[i].scale == (e5m2 ? 57344.0f : 448.0f) / amax);
    }
    tiny_run_close(&r);
}

/* The share of the gradients at GEMMs that become zero in FP8, in the first micro-batch of a step
 * of `sequences` sequences. Gradients are divided by the number of tokens in a step. */
static double gradients_lost(const struct recipe_options *o, int64_t sequences) {
    struct tiny_run r;
    struct fp8_slot slots[SLOTS_MAX];
    int64_t count, lost = 0, elements = 0;
    tiny_run_init(&r, o->kind, 5);
    tiny_run_recipe(&r, o);
    r.train.global_batch = sequences;
    MUST(tiny_run_open(&r, E));
    r.trainer->accumulation = 1; /* one micro-batch of many */
    step(&r, slots);
    const char *const *names = trainer_slots(r.trainer, &count);
    for (int64_t i = 0; i < count; i++)
        if (strstr(names[i], ".dy") && slots[i].elements) {
            lost += slots[i].underflow;
            elements += slots[i].elements;
        }
    assert_true(elements > 10000);
    tiny_run_close(&r);
    return (double)lost / (double)elements;
}

/* The share of a gradient that blockwise FP8 keeps does not depend on the tokens in a step. All
 * three numbers of tokens are powers of two, so the codes are equal. */
static void large_batches_lose_no_gradients(void **state) {
    static const int64_t SEQUENCES[] = { 4, 1 << 15, 1 << 25 }; /* 2^7, 2^20, 2^30 tokens */
    static const enum quant_constants CONSTANTS[] = { QUANT_TE, QUANT_DEEPSEEK };
    for (size_t c = 0; c < sizeof CONSTANTS / sizeof *CONSTANTS; c++) {
        struct recipe_options o = tiny_recipe_options(RECIPE_BLOCKWISE);
        o.constants = CONSTANTS[c];
        for (int pow2 = 0; pow2 < 2; pow2++) {
            o.pow2 = pow2;
            double few = gradients_lost(&o, SEQUENCES[0]);
            assert_true(few < 0.001);
            for (int i = 1; i < 3; i++) assert_true(gradients_lost(&o, SEQUENCES[i]) == few);
        }
    }
}

/* ---- which operands the GEMMs read ---- */

static struct {
    const struct backend_ops *real;
    int fp8, mixed, high;
} counted; /* of this test program only */

static enum status counting_matmul(struct backend *b, int lane, const struct matmul_args *args,
                                   struct err *e) {
    int n = dtype_is_fp8(args->a->dtype) + dtype_is_fp8(args->b->dtype);
    if (n == 2) counted.fp8++;
    else if (n == 1) counted.mixed++;
    else counted.high++;
    return counted.real->matmul(b, lane, args, e);
}

/* One training step, with its GEMMs counted. */
static void count_a_step(struct tiny_run *r) {
    struct step_result s;
    struct backend_ops ops = *r->backend->ops;
    memset(&counted, 0, sizeof counted);
    counted.real = r->backend->ops;
    ops.matmul = counting_matmul;
    r->backend->ops = &ops;
    MUST(trainer_step(r->trainer, false, &s, E));
    r->backend->ops = counted.real;
}

static void every_gemm_runs_in_its_format(void **state) {
    static const struct { enum recipe_kind kind; bool head; unsigned bf16; int fp8, high; }
    CASE[] = {
        /* 2 layers x 4 GEMMs x 3 directions, and 3 of the head */
        { RECIPE_F32, false, 0, 0, 27 },       { RECIPE_BF16, false, 0, 0, 27 },
        { RECIPE_DELAYED, false, 0, 24, 3 },   { RECIPE_TENSORWISE, false, 0, 24, 3 },
        { RECIPE_ROWWISE, false, 0, 24, 3 },   { RECIPE_ROWWISE, false, WGRAD_BF16, 16, 11 },
        { RECIPE_BLOCKWISE, false, 0, 24, 3 }, { RECIPE_MXFP8, true, 0, 27, 0 },
        { RECIPE_NVFP4, false, 0, 24, 3 },     { RECIPE_TENSORWISE, true, DGRAD_BF16, 18, 9 },
        { RECIPE_DELAYED, true, FPROP_BF16 | WGRAD_BF16, 9, 18 },
    };
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        struct tiny_run r;
        tiny_run_init(&r, CASE[i].kind, 5);
        struct recipe_options o = tiny_recipe_options(CASE[i].kind);
        tiny_gemms_bf16(&o, CASE[i].bf16);
        tiny_run_recipe(&r, &o);
        if (CASE[i].head) r.recipe.head = o;
        r.train.micro_batch = 4;
        MUST(tiny_run_open(&r, E));
        count_a_step(&r);
        assert_int_equal(counted.fp8, CASE[i].fp8);
        assert_int_equal(counted.high, CASE[i].high);
        assert_int_equal(counted.mixed, 0);
        tiny_run_close(&r);
    }
}

/* After forward_bf16_after steps the eight fprops are BF16; dgrad and wgrad are not, and an
 * evaluation is as the last step's forward. */
static void forward_changes_to_bf16(void **state) {
    struct tiny_run r;
    struct eval_result before, after;
    tiny_run_init(&r, RECIPE_NVFP4, 5);
    struct recipe_options o = tiny_recipe_options(RECIPE_NVFP4);
    o.forward_bf16_after = 1;
    tiny_run_recipe(&r, &o);
    r.train.micro_batch = 4;
    r.train.optimizer.lr = 0; /* the weights stay */
    r.data_options.holdout = 0.1;
    MUST(tiny_run_open(&r, E));
    count_a_step(&r);
    assert_true(counted.fp8 == 24 && counted.high == 3);
    MUST(trainer_eval(r.trainer, 1, &before, E));
    count_a_step(&r);
    assert_true(counted.fp8 == 16 && counted.high == 11 && counted.mixed == 0);
    MUST(trainer_eval(r.trainer, 1, &after, E));
    assert_true(before.loss != after.loss);
    tiny_run_close(&r);
}

/* ---- gradients ---- */

/* The third step's gradient of one parameter, with a learning rate of 0. So every run has the same
 * weights, and delayed scales are known. In f32; owned by the caller. */
static float *gradient_of(struct tiny_run *r, const char *name, int64_t *count) {
    const struct param *p = params_find(&r->trainer->params, "%s", name);
    *count = param_count(p);
    float *g = malloc((size_t)*count * sizeof *g);
    assert_non_null(g);
    MUST(r->backend->ops->download(r->backend, LANE_COMPUTE, g, p->grad.data, 4 * *count, E));
    return g;
}

static void open_at_rest(struct tiny_run *r, const struct recipe_options *o, bool fp8_head) {
    struct step_result s;
    tiny_run_init(r, o->kind, 5);
    tiny_run_recipe(r, o);
    if (fp8_head) r->recipe.head = *o;
    r->model.init_std = 0.1;
    r->model.width = 160; /* a second, short block of 128 */
    r->model.bias = true;
    r->train.head_chunk = 48;
    r->train.optimizer.lr = 0;
    MUST(tiny_run_open(r, E));
    for (int i = 0; i < 3; i++) MUST(trainer_step(r->trainer, false, &s, E));
}

/* Every gradient has the direction and length of f32's, up to the format's precision. AdamW hides a
 * wrong scale, so a falling loss does not prove this. */
static void gradients_have_direction_and_length(void **state) {
    static const struct { const char *name; enum recipe_kind kind;
                          unsigned bf16; bool param_gather, weight_2d, fp8_head;
                          double error_max; } CASE[] = {
        /* relative RMS difference; measured: BF16 0.02, FP8 0.27 to 0.30 (behind the softmax) */
        { "bf16", RECIPE_BF16, 0, false, false, false, 0.04 },
        { "delayed", RECIPE_DELAYED, 0, false, false, true, 0.4 },
        { "param gather", RECIPE_DELAYED, 0, true, false, false, 0.4 },
        { "tensorwise", RECIPE_TENSORWISE, 0, false, false, true, 0.4 },
        { "rowwise", RECIPE_ROWWISE, 0, false, false, true, 0.4 },
        { "rowwise, wgrad in bf16", RECIPE_ROWWISE, WGRAD_BF16, false, false, true, 0.4 },
        { "blockwise", RECIPE_BLOCKWISE, 0, false, false, true, 0.4 },
        { "mxfp8", RECIPE_MXFP8, 0, false, false, true, 0.4 },
        { "mxfp8, 2-D weights", RECIPE_MXFP8, 0, false, true, true, 0.4 },
        { "nvfp4", RECIPE_NVFP4, 0, false, true, true, 1.5 },
        { "tensorwise, fprop in bf16", RECIPE_TENSORWISE, FPROP_BF16, false, false, true, 0.4 },
        { "delayed, dgrad in bf16", RECIPE_DELAYED, DGRAD_BF16, false, false, true, 0.4 },
        { "blockwise, wgrad in bf16", RECIPE_BLOCKWISE, WGRAD_BF16, false, false, true, 0.4 },
        { "mxfp8, dgrad in fp8 alone", RECIPE_MXFP8, FPROP_BF16 | WGRAD_BF16, false, true, true,
          0.4 },
    };
    struct tiny_run reference;
    struct recipe_options f32 = tiny_recipe_options(RECIPE_F32);
    open_at_rest(&reference, &f32, false);
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        struct tiny_run r;
        struct recipe_options o = tiny_recipe_options(CASE[i].kind);
        tiny_gemms_bf16(&o, CASE[i].bf16);
        o.param_gather = CASE[i].param_gather;
        o.weight_2d = CASE[i].weight_2d;
        open_at_rest(&r, &o, CASE[i].fp8_head);
        double worst = 0;
        const char *where = "";
        for (int k = 0; k < r.trainer->params.count; k++) {
            const char *name = r.trainer->params.param[k].name;
            int64_t n;
            float *a = gradient_of(&reference, name, &n), *b = gradient_of(&r, name, &n);
            double difference = 0, size = 0;
            for (int64_t j = 0; j < n; j++) {
                difference += ((double)a[j] - b[j]) * ((double)a[j] - b[j]);
                size += (double)a[j] * a[j];
            }
            double error = sqrt(difference / size);
            if (error > worst) { worst = error; where = name; }
            free(a);
            free(b);
        }
        print_message("%-24s at most %.3f (%s)\n", CASE[i].name, worst, where);
        assert_true(worst < CASE[i].error_max);
        tiny_run_close(&r);
    }
    tiny_run_close(&reference);
}

/* ---- values that are not finite ---- */

static void poke(struct tiny_run *r, const struct tensor *x, int64_t element, float value) {
    uint16_t narrow = bf16_encode(value);
    const void *bytes = x->dtype == DTYPE_BF16 ? (const void *)&narrow : &value;
    int64_t size = dtype_bytes(x->dtype);
    MUST(r->backend->ops->upload(r->backend, LANE_COMPUTE, (char *)x->data + element * size, bytes,
                                 size, E));
}

static void poke_row(struct tiny_run *r, const struct tensor *x, int64_t row, float value) {
    for (int64_t i = 0; i < x->dim[1]; i++) poke(r, x, row * x->dim[1] + i, value);
}

/* The step fails and names the tensor. No parameter changes. Steps and saves are rejected. */
static void assert_stopped(struct tiny_run *r, const char *tensor) {
    char before[65], after[65], words[128];
    struct step_result s;
    struct checkpoint_info info;
    struct eval_result eval;
    MUST(trainer_weights_sha256(r->trainer, before, E));
    snprintf(words, sizeof words, "step 2: %s is not finite", tensor);
    MUST_FAIL(ERR_NUMERIC, words, trainer_step(r->trainer, false, &s, E));
    assert_string_equal(s.tensor, tensor);
    assert_int_equal(trainer_step_count(r->trainer), 1);
    MUST(trainer_weights_sha256(r->trainer, after, E));
    assert_string_equal(before, after);
    MUST_FAIL(ERR_STATE, "not finite", trainer_step(r->trainer, false, &s, E));
    MUST_FAIL(ERR_STATE, "not finite", trainer_eval(r->trainer, 1, &eval, E));
    MUST_FAIL(ERR_STATE, "nothing is saved",
              checkpoint_save(r->trainer, "/nonexistent/checkpoints", &info, E));
}

static void open_for_poking(struct tiny_run *r, int kind) {
    struct step_result s;
    tiny_run_init(r, (enum recipe_kind)kind, 5);
    MUST(tiny_run_open(r, E));
    MUST(trainer_step(r->trainer, false, &s, E));
}

static void nan_in_a_weight_is_named(void **state) {
    for (int kind = RECIPE_F32; kind < RECIPE_KIND_COUNT; kind++) {
        struct tiny_run r;
        open_for_poking(&r, kind);
        struct trainer *t = r.trainer;
        struct param *p = params_find(&t->params, "layers.1.ffn_in.weight");
        poke(&r, &p->weight.value, 77, NAN);
        MUST(params_quantise(&t->params, t->backend, &t->slots, E)); /* as an update does */
        assert_stopped(&r, "layers.1.ffn_in.weight");
        tiny_run_close(&r);
    }
}

static void nan_in_an_activation_is_named(void **state) {
    for (int kind = RECIPE_F32; kind < RECIPE_KIND_COUNT; kind++) {
        struct tiny_run r;
        open_for_poking(&r, kind);
        struct param *embed = params_find(&r.trainer->params, "embed.weight");
        for (int64_t v = 0; v < r.model.vocab; v += 2)
            poke_row(&r, &embed->weight.value, v, kind % 2 ? NAN : INFINITY);
        assert_stopped(&r, "layers.0.qkv.x");
        tiny_run_close(&r);
    }
}

static void nan_in_a_gradient_is_named(void **state) {
    for (int kind = RECIPE_F32; kind < RECIPE_KIND_COUNT; kind++) {
        struct tiny_run r;
        char before[65], after[65], tensor[128];
        struct record_head head;
        /* an input of the network ... */
        open_for_poking(&r, kind);
        poke(&r, &r.trainer->transformer.grad_scale, 0, NAN);
        assert_stopped(&r, "head.dy");
        tiny_run_close(&r);
        /* ... and a value made in an accumulator */
        open_for_poking(&r, kind);
        struct param *p = params_find(&r.trainer->params, "layers.0.attn_out.weight");
        poke(&r, &p->grad, 9, NAN);
        MUST(trainer_weights_sha256(r.trainer, before, E));
        MUST(trainer_update(r.trainer, E));
        MUST(trainer_read_record(r.trainer, &head, tensor, E));
        assert_string_equal(tensor, "grad:layers.0.attn_out.weight");
        MUST(trainer_weights_sha256(r.trainer, after, E));
        assert_string_equal(before, after);
        tiny_run_close(&r);
    }
}

/* Overflow outside operands: logits, and a sum over tensors whose own sums are finite. */
static void infinite_loss_and_norm_are_named(void **state) {
    struct tiny_run r;
    char before[65], after[65], tensor[128];
    struct record_head seen;
    open_for_poking(&r, RECIPE_BF16);
    struct param *head = params_find(&r.trainer->params, "head.weight");
    poke_row(&r, &head->weight.value, 3, 3e38f);
    assert_stopped(&r, "loss");
    tiny_run_close(&r);

    open_for_poking(&r, RECIPE_F32);
    static const char *const NAMES[] = { "layers.0.qkv.weight", "layers.1.ffn_out.weight" };
    for (int i = 0; i < 2; i++)
        poke(&r, &params_find(&r.trainer->params, NAMES[i])->grad, 9, 1.5e19f); /* 2.25e38 each */
    MUST(trainer_weights_sha256(r.trainer, before, E));
    MUST(trainer_update(r.trainer, E));
    MUST(trainer_read_record(r.trainer, &seen, tensor, E));
    assert_string_equal(tensor, "grad_norm");
    MUST(trainer_weights_sha256(r.trainer, after, E));
    assert_string_equal(before, after);
    tiny_run_close(&r);
}

/* A weight that an update makes infinite is found in that step, before a checkpoint can save it. */
static void exploding_update_is_named(void **state) {
    struct tiny_run r;
    struct step_result s;
    struct checkpoint_info info;
    tiny_run_init(&r, RECIPE_BF16, 5);
    MUST(tiny_run_open(&r, E));
    struct param *p = params_find(&r.trainer->params, "layers.0.ffn_out.weight");
    poke(&r, &p->m, 5, 3e38f); /* m / sqrt(v) overflows */
    poke(&r, &p->v, 5, 0.0f);
    MUST_FAIL(ERR_NUMERIC, "layers.0.ffn_out.weight", trainer_step(r.trainer, false, &s, E));
    MUST_FAIL(ERR_STATE, "nothing is saved",
              checkpoint_save(r.trainer, "/nonexistent/checkpoints", &info, E));
    tiny_run_close(&r);
}

static enum status broken_copy(struct backend *b, int lane, const struct tensor *out,
                               const struct tensor *x, struct err *e) {
    return FAIL(e, ERR_DEVICE, "broken on purpose");
}

/* An error inside a step leaves histories updated by one micro-batch: no valid state. */
static void half_a_step_is_not_saved(void **state) {
    struct tiny_run r;
    struct step_result s;
    struct checkpoint_info info;
    tiny_run_init(&r, RECIPE_DELAYED, 5);
    MUST(tiny_run_open(&r, E));
    const struct backend_ops *real = r.backend->ops;
    struct backend_ops ops = *real;
    ops.copy = broken_copy; /* after the first micro-batch's backward */
    r.backend->ops = &ops;
    MUST_FAIL(ERR_DEVICE, "on purpose", trainer_step(r.trainer, false, &s, E));
    r.backend->ops = real;
    MUST_FAIL(ERR_STATE, "half-way after step 0", trainer_step(r.trainer, false, &s, E));
    MUST_FAIL(ERR_STATE, "half-way after step 0: nothing is saved",
              checkpoint_save(r.trainer, "/nonexistent/checkpoints", &info, E));
    tiny_run_close(&r);
}

/* ---- combinations that no project defines ---- */

static void undefined_combinations_are_refused(void **state) {
    static const struct { enum recipe_kind kind; enum quant_constants constants;
                          enum recipe_format format; const char *words; } CASE[] = {
        { RECIPE_DELAYED, QUANT_TORCHAO, FORMAT_HYBRID, "with the constants of torchao" },
        { RECIPE_ROWWISE, QUANT_TE, FORMAT_E4M3, "fp8.rowwise with the constants of te" },
        { RECIPE_ROWWISE, QUANT_TORCHAO, FORMAT_HYBRID, "\"e4m3\" only" },
        { RECIPE_TENSORWISE, QUANT_DEEPSEEK, FORMAT_HYBRID, "constants of deepseek" },
        { RECIPE_BLOCKWISE, QUANT_DEEPSEEK, FORMAT_HYBRID, "DeepSeek's constants" },
        { RECIPE_MXFP8, QUANT_TORCHAO, FORMAT_E4M3, "constants of torchao" },
    };
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        struct tiny_run r;
        tiny_run_init(&r, RECIPE_BF16, 5);
        struct recipe_options *o = &r.site[1 * GEMM_SITE_COUNT + GEMM_FFN_IN];
        *o = tiny_recipe_options(CASE[i].kind);
        o->constants = CASE[i].constants;
        o->format = CASE[i].format;
        MUST_FAIL(ERR_CONFIG, CASE[i].words, recipe_check(&r.recipe, &r.model, E));
        MUST_FAIL(ERR_CONFIG, "layer 1, ffn_in", recipe_check(&r.recipe, &r.model, E));
    }
}

/* One GEMM must stay in FP8; what needs codes of fprop or dgrad has none of a BF16 one. */
static void useless_mixes_are_refused(void **state) {
    static const struct { enum recipe_kind kind; unsigned bf16; bool gather; int64_t after;
                          const char *words; } CASE[] = {
        { RECIPE_BLOCKWISE, FPROP_BF16 | DGRAD_BF16 | WGRAD_BF16, false, 0, "are all in BF16" },
        { RECIPE_DELAYED, FPROP_BF16, true, 0, "and fprop in BF16 reads the values" },
        { RECIPE_TENSORWISE, DGRAD_BF16, true, 0, "and dgrad in BF16 reads the values" },
        { RECIPE_NVFP4, FPROP_BF16, false, 3, "forward_bf16_after has no effect" },
        { RECIPE_DELAYED, WGRAD_BF16, true, 0, NULL },
        { RECIPE_NVFP4, DGRAD_BF16 | WGRAD_BF16, false, 3, NULL },
    };
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        struct tiny_run r;
        tiny_run_init(&r, CASE[i].kind, 5);
        struct recipe_options *o = &r.site[1 * GEMM_SITE_COUNT + GEMM_FFN_IN];
        tiny_gemms_bf16(o, CASE[i].bf16);
        o->param_gather = CASE[i].gather;
        o->forward_bf16_after = CASE[i].after;
        if (CASE[i].words)
            MUST_FAIL(ERR_CONFIG, CASE[i].words, recipe_check(&r.recipe, &r.model, E));
        else MUST(recipe_check(&r.recipe, &r.model, E));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(delayed_scales_by_hand),
        cmocka_unit_test(delayed_weights),
        cmocka_unit_test(roll_per_step_ignores_accumulation),
        cmocka_unit_test(each_gemm_keeps_its_own_history),
        cmocka_unit_test(first_and_last_in_bf16),
        cmocka_unit_test(saturation_is_counted),
        cmocka_unit_test(large_batches_lose_no_gradients),
        cmocka_unit_test(every_gemm_runs_in_its_format),
        cmocka_unit_test(forward_changes_to_bf16),
        cmocka_unit_test(gradients_have_direction_and_length),
        cmocka_unit_test(nan_in_a_weight_is_named),
        cmocka_unit_test(nan_in_an_activation_is_named),
        cmocka_unit_test(nan_in_a_gradient_is_named),
        cmocka_unit_test(infinite_loss_and_norm_are_named),
        cmocka_unit_test(exploding_update_is_named),
        cmocka_unit_test(half_a_step_is_not_saved),
        cmocka_unit_test(undefined_combinations_are_refused),
        cmocka_unit_test(useless_mixes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
