/* A run learns in every recipe, resumes bit for bit, is not changed by observation, and allocates
 * nothing in a step. */
/* long: 13 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels/histogram.h"
#include "model/checkpoint.h"
#include "model/trainer.h"
#include "tests/support/allocations.h"
#include "tests/support/cases.h"
#include "tests/support/must.h"
#include "tests/support/tiny.h"

/* ---- one row per way of training ---- */

struct variant {
    const char *name;
    enum recipe_kind kind;
    enum state_kind state;
    bool no_master, bf16_grad, per_step, param_gather, fp8_head, bf16_ends;
    enum quant_constants constants; /* 0: the kind's own */
    unsigned bf16; /* GEMMs */
    bool weight_2d, nearest; /* nearest: without NVFP4's rotation and random bits */
    int64_t forward_bf16_after;
    bool attention_fp8;
};

static const struct variant VARIANTS[] = {
    { .name = "f32", .kind = RECIPE_F32, .state = STATE_F32 },
    { .name = "bf16", .kind = RECIPE_BF16, .state = STATE_F32 },
    { .name = "bf16, bf16 state, no master", .kind = RECIPE_BF16, .state = STATE_BF16,
      .no_master = true, .bf16_grad = true },
    { .name = "bf16, 8-bit state", .kind = RECIPE_BF16, .state = STATE_8BIT },
    { .name = "delayed", .kind = RECIPE_DELAYED, .state = STATE_F32 },
    { .name = "delayed per step, fp8 head", .kind = RECIPE_DELAYED, .state = STATE_F32,
      .per_step = true, .fp8_head = true },
    { .name = "delayed, param gather, bf16 ends", .kind = RECIPE_DELAYED, .state = STATE_8BIT,
      .param_gather = true, .bf16_ends = true },
    { .name = "tensorwise", .kind = RECIPE_TENSORWISE, .state = STATE_F32, .fp8_head = true },
    { .name = "tensorwise, torchao", .kind = RECIPE_TENSORWISE, .state = STATE_BF16,
      .constants = QUANT_TORCHAO },
    { .name = "rowwise", .kind = RECIPE_ROWWISE, .state = STATE_F32, .fp8_head = true },
    { .name = "rowwise, wgrad in bf16", .kind = RECIPE_ROWWISE, .state = STATE_F32,
      .bf16 = WGRAD_BF16, .fp8_head = true },
    { .name = "blockwise", .kind = RECIPE_BLOCKWISE, .state = STATE_F32, .fp8_head = true },
    { .name = "blockwise, deepseek", .kind = RECIPE_BLOCKWISE, .state = STATE_BF16,
      .constants = QUANT_DEEPSEEK },
    { .name = "mxfp8", .kind = RECIPE_MXFP8, .state = STATE_F32, .fp8_head = true },
    { .name = "mxfp8, 2-D weights", .kind = RECIPE_MXFP8, .state = STATE_F32, .weight_2d = true,
      .no_master = true },
    { .name = "nvfp4, 1x16 weights, to nearest, unrotated", .kind = RECIPE_NVFP4,
      .state = STATE_BF16, .nearest = true, .bf16_ends = true },
    { .name = "nvfp4, forward in bf16 after 3 steps", .kind = RECIPE_NVFP4, .state = STATE_F32,
      .weight_2d = true, .fp8_head = true, .forward_bf16_after = 3 },
    { .name = "tensorwise, fp8 attention, bf16 ends", .kind = RECIPE_TENSORWISE,
      .state = STATE_F32, .bf16_ends = true, .attention_fp8 = true },
    { .name = "delayed, fp8 attention", .kind = RECIPE_DELAYED, .state = STATE_F32,
      .attention_fp8 = true },
    { .name = "delayed, fp8 attention, fprop in bf16", .kind = RECIPE_DELAYED, .state = STATE_F32,
      .attention_fp8 = true, .bf16 = FPROP_BF16, .fp8_head = true },
    { .name = "blockwise, dgrad in bf16", .kind = RECIPE_BLOCKWISE, .state = STATE_F32,
      .bf16 = DGRAD_BF16, .fp8_head = true },
    { .name = "tensorwise, dgrad in fp8 alone", .kind = RECIPE_TENSORWISE, .state = STATE_8BIT,
      .bf16 = FPROP_BF16 | WGRAD_BF16, .fp8_head = true },
    { .name = "rowwise, fprop in fp8 alone", .kind = RECIPE_ROWWISE, .state = STATE_F32,
      .bf16 = DGRAD_BF16 | WGRAD_BF16 },
};
enum { VARIANT_COUNT = sizeof VARIANTS / sizeof *VARIANTS };

/* Every second row has each kind of recipe. a_step_allocates_nothing runs every row. */
static int next_variant(int i) { return i + cases_step(2, 5); }

static void init_variant(struct tiny_run *r, const struct variant *v, int64_t steps) {
    tiny_run_init(r, v->kind, steps);
    r->model.layers = v->bf16_ends ? 3 : 2;
    struct recipe_options o = tiny_recipe_options(v->kind);
    if (v->constants) o.constants = v->constants;
    if (v->constants == QUANT_TORCHAO) o.format = FORMAT_HYBRID;
    if (v->per_step) o.roll = ROLL_STEP;
    o.param_gather = v->param_gather;
    tiny_gemms_bf16(&o, v->bf16);
    o.weight_2d = v->weight_2d;
    if (v->nearest) o.hadamard = o.stochastic = false;
    o.forward_bf16_after = v->forward_bf16_after;
    o.history = 3;
    tiny_run_recipe(r, &o);
    struct recipe_options bf16 = tiny_recipe_options(RECIPE_BF16);
    for (int s = 0; v->bf16_ends && s < GEMM_SITE_COUNT; s++)
        r->site[s] = r->site[2 * GEMM_SITE_COUNT + s] = bf16;
    if (v->fp8_head) r->recipe.head = o;
    r->recipe.attention_fp8 = v->attention_fp8;
    r->train.head_chunk = 48; /* of 64 rows: a second, shorter chunk */
    r->train.optimizer.state = v->state;
    r->train.optimizer.master = !v->no_master;
    if (v->bf16_grad) r->train.grad_dtype = DTYPE_BF16;
}

/* ---- learning ---- */

enum { OVERFIT_STEPS = 36 };

static void one_batch_overfits(void **state) {
    char path[] = "/tmp/fp8lab-overfit-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    for (int i = 0; i < 4 * 32 + 1; i++) {
        unsigned char byte = (unsigned char)(i * i * 7 % 89);
        assert_int_equal(write(fd, &byte, 1), 1);
    }
    close(fd);
    const char *paths[] = { path };
    for (int i = 0; i < VARIANT_COUNT; i = next_variant(i)) {
        struct tiny_run r;
        init_variant(&r, &VARIANTS[i], OVERFIT_STEPS);
        struct data_options text = { .kind = DATA_TEXT, .paths = paths, .path_count = 1 };
        r.data_options = text;
        r.train.optimizer.lr = 1e-2;
        MUST(tiny_run_open(&r, E));
        struct step_result first, s;
        MUST(trainer_step(r.trainer, false, &first, E));
        while (trainer_step_count(r.trainer) < OVERFIT_STEPS)
            MUST(trainer_step(r.trainer, false, &s, E));
        print_message("%-34s loss %.3f -> %.4f\n", VARIANTS[i].name, (double)first.loss,
                      (double)s.loss);
        assert_true(first.loss > 4.0f && s.loss < 0.5f);
        tiny_run_close(&r);
    }
    unlink(path);
}

/* ---- the record of a run, to the bit ---- */

enum { STEPS = 6, SLOTS_MAX = 128, TRACED_MAX = 256 };

struct record {
    uint32_t loss[STEPS], norm[STEPS];
    struct fp8_slot slot[STEPS][SLOTS_MAX];
    int weight_slots; /* the first of them */
    char weights[65];
};

static void record_step(struct tiny_run *r, struct record *out, bool trace) {
    int64_t step = trainer_step_count(r->trainer), slots;
    struct step_result s;
    MUST(trainer_step(r->trainer, trace, &s, E));
    trainer_slots(r->trainer, &slots);
    assert_true(slots <= SLOTS_MAX);
    trainer_read_fp8(r->trainer, out->slot[step]);
    out->weight_slots = r->trainer->slots.first[SLOT_FORWARD];
    memcpy(&out->loss[step], &s.loss, 4);
    memcpy(&out->norm[step], &s.grad_norm, 4);
}

static void assert_same(const struct record *a, const struct record *b, const char *name) {
    for (int i = 0; i < STEPS; i++)
        if (a->loss[i] != b->loss[i] || a->norm[i] != b->norm[i])
            fail_msg("%s: step %d: loss %08x and %08x, norm %08x and %08x", name, i + 1, a->loss[i],
                     b->loss[i], a->norm[i], b->norm[i]);
    assert_memory_equal(a->slot, b->slot, sizeof a->slot);
    assert_string_equal(a->weights, b->weights);
}

/* Codes that are made before their use are counted then: a step after their update. */
static void move_weight_counts(struct record *later, const struct record *kept) {
    for (int i = 0; i < STEPS; i++)
        for (int k = 0; k < later->weight_slots; k++) {
            bool last = i + 1 == STEPS;
            const struct fp8_slot *from = last ? &kept->slot[i][k] : &later->slot[i + 1][k];
            later->slot[i][k].saturated = from->saturated;
            later->slot[i][k].underflow = from->underflow;
        }
}

static void run_straight(const struct variant *v, struct record *out) {
    struct tiny_run r;
    memset(out, 0, sizeof *out);
    init_variant(&r, v, STEPS);
    MUST(tiny_run_open(&r, E));
    for (int i = 0; i < STEPS; i++) record_step(&r, out, false);
    MUST(trainer_weights_sha256(r.trainer, out->weights, E));
    tiny_run_close(&r);
}

static void scratch(char dir[64]) {
    strcpy(dir, "/tmp/fp8lab-train-XXXXXX");
    assert_non_null(mkdtemp(dir));
}

/* Two steps, then a fresh trainer from a checkpoint, twice. */
static void run_interrupted(const struct variant *v, struct record *out) {
    char dir[64];
    struct checkpoint_info info = { .step = -1 };
    scratch(dir);
    memset(out, 0, sizeof *out);
    for (int part = 0; part < 3; part++) {
        struct tiny_run r;
        init_variant(&r, v, STEPS);
        MUST(tiny_run_open(&r, E));
        if (part > 0) {
            struct checkpoint_info loaded;
            MUST(checkpoint_latest(dir, NULL, &info, E));
            assert_int_equal(info.step, 2 * part);
            MUST(checkpoint_load(r.trainer, info.path, &loaded, E));
            assert_string_equal(info.sha256, loaded.sha256);
            MUST(checkpoint_remove(info.path, E));
        }
        record_step(&r, out, false);
        record_step(&r, out, false);
        if (part < 2) MUST(checkpoint_save(r.trainer, dir, &info, E));
        else MUST(trainer_weights_sha256(r.trainer, out->weights, E));
        tiny_run_close(&r);
    }
    assert_int_equal(rmdir(dir), 0);
}

static void resume_equals_uninterrupted(void **state) {
    struct record *a = malloc(sizeof *a), *b = malloc(sizeof *b);
    for (int i = 0; i < VARIANT_COUNT; i = next_variant(i)) {
        run_straight(&VARIANTS[i], a);
        run_interrupted(&VARIANTS[i], b);
        assert_same(a, b, VARIANTS[i].name);
    }
    free(a);
    free(b);
}

/* ---- observation ---- */

/* Each element is in one bucket. A trainer that counted nothing in a step says so. */
static void check_histograms(struct tiny_run *r, bool counted) {
    static const char OUTPUT[] = "out:embed";
    static int64_t counts[TRACED_MAX][HISTOGRAM_COUNTS];
    int64_t traced, found = 0;
    struct err e;
    if (!counted) {
        assert_int_equal(trainer_histograms(r->trainer, counts[0], &e), ERR_STATE);
        return;
    }
    const char *const *names = trainer_trace_tensors(r->trainer, &traced);
    MUST(trainer_histograms(r->trainer, counts[0], E));
    for (int64_t i = 0; i < traced; i++) {
        int64_t sum = 0;
        for (int k = 0; k < HISTOGRAM_COUNTS; k++) sum += counts[i][k];
        assert_true(sum > 0 && counts[i][HISTOGRAM_NAN] == 0);
        if (strcmp(names[i], OUTPUT) != 0) continue;
        found++;
        assert_int_equal(sum, 2 * 32 * r->model.width);
    }
    assert_int_equal(found, 1);
}

/* Ways in which a run computes again what it could keep. */
struct again { enum recompute_kind kind; int64_t layers; bool codes; };

static void run_observed(const struct variant *v, struct again how, struct record *out) {
    struct tiny_run r;
    char dir[64];
    scratch(dir);
    memset(out, 0, sizeof *out);
    init_variant(&r, v, STEPS);
    r.train.recompute = how.kind;
    r.train.recompute_layers = how.layers;
    r.train.makes_codes = how.codes;
    r.train.histograms = true;
    MUST(tiny_run_open(&r, E));
    for (int i = 0; i < STEPS; i++) {
        struct eval_result eval, again;
        struct checkpoint_info info;
        uint64_t prints[TRACED_MAX];
        int64_t traced;
        if (i % 2) trainer_ask_histograms(r.trainer);
        record_step(&r, out, true);
        check_histograms(&r, i % 2);
        trainer_trace_tensors(r.trainer, &traced);
        assert_true(traced <= TRACED_MAX);
        MUST(trainer_trace(r.trainer, prints, E));
        MUST(trainer_eval(r.trainer, 3, &eval, E));
        assert_true(eval.loss > 0 && eval.tokens == 3 * 2 * 32);
        MUST(trainer_eval(r.trainer, 3, &again, E)); /* evaluation changes nothing */
        assert_true(eval.loss == again.loss);
        MUST(checkpoint_save(r.trainer, dir, &info, E));
        MUST(checkpoint_remove(info.path, E));
    }
    MUST(trainer_weights_sha256(r.trainer, out->weights, E));
    tiny_run_close(&r);
    assert_int_equal(rmdir(dir), 0);
}

static void observation_changes_no_bit(void **state) {
    struct record *a = malloc(sizeof *a), *b = malloc(sizeof *b);
    for (int i = 0; i < VARIANT_COUNT; i = next_variant(i)) {
        run_straight(&VARIANTS[i], a);
        for (int k = 0; k < 6; k++) { /* in all layers, or in the first alone */
            if (!cases_all() && k != i % 6) continue; /* the rows take turns */
            run_observed(&VARIANTS[i], (struct again){ (enum recompute_kind)(k % 3), k / 3, false },
                         b);
            assert_same(a, b, VARIANTS[i].name);
        }
        run_observed(&VARIANTS[i], (struct again){ RECOMPUTE_NONE, 0, true }, b);
        move_weight_counts(b, a);
        assert_same(a, b, VARIANTS[i].name);
    }
    free(a);
    free(b);
}

/* Recomputation saves memory in the plan. */
static void recomputation_saves_memory(void **state) {
    enum { SOME_LAYERS = RECOMPUTE_BLOCK + 1, WAYS };
    int64_t bytes[WAYS];
    for (int k = 0; k < WAYS; k++) {
        struct tiny_run r;
        struct plan plan;
        init_variant(&r, &VARIANTS[1], STEPS);
        r.model.layers = 6;
        struct recipe_options bf16 = tiny_recipe_options(RECIPE_BF16);
        tiny_run_recipe(&r, &bf16);
        r.train.recompute = k == SOME_LAYERS ? RECOMPUTE_BLOCK : (enum recompute_kind)k;
        r.train.recompute_layers = k == SOME_LAYERS ? 3 : 0;
        MUST(trainer_plan(&plan, &r.model, &r.recipe, &r.train, 1, E));
        MUST(tiny_run_open(&r, E));
        assert_int_equal(plan.bytes, trainer_memory_bytes(r.trainer));
        bytes[k] = 0;
        for (int64_t i = 0; i < plan.row_count; i++) bytes[k] += plan.row[i].bytes;
        assert_int_equal(bytes[k], plan.bytes);
        plan_free(&plan);
        tiny_run_close(&r);
    }
    assert_true(bytes[RECOMPUTE_FFN] < bytes[RECOMPUTE_NONE]);
    assert_true(bytes[RECOMPUTE_BLOCK] < bytes[RECOMPUTE_FFN]);
    /* Of six layers three are kept, and the other three share one. */
    int64_t layer = (bytes[RECOMPUTE_NONE] - bytes[RECOMPUTE_BLOCK]) / 5;
    assert_int_equal(bytes[SOME_LAYERS], bytes[RECOMPUTE_NONE] - 2 * layer);
}

/* Codes that are not kept have the memory of one layer's. */
static void codes_in_use_are_of_one_layer(void **state) {
    int64_t bytes[2] = { 0, 0 };
    for (int made = 0; made < 2; made++) {
        struct tiny_run r;
        struct plan plan;
        tiny_run_init(&r, RECIPE_BLOCKWISE, STEPS);
        r.model.layers = 6;
        struct recipe_options blockwise = tiny_recipe_options(RECIPE_BLOCKWISE);
        tiny_run_recipe(&r, &blockwise);
        r.train.makes_codes = made;
        MUST(trainer_plan(&plan, &r.model, &r.recipe, &r.train, 1, E));
        for (int64_t i = 0; i < plan.row_count; i++)
            if (!strcmp(plan.row[i].arena, "weight codes")) bytes[made] += plan.row[i].bytes;
        plan_free(&plan);
    }
    assert_true(bytes[1] > 0);
    assert_int_equal(bytes[0], 6 * bytes[1]);
}

/* ---- accumulation ---- */

/* The same batch in one micro-batch or four gives the same sums up to rounding. */
static void accumulation_is_one_batch(void **state) {
    float loss[2][3], norm[2][3];
    for (int k = 0; k < 2; k++) {
        struct tiny_run r;
        tiny_run_init(&r, RECIPE_F32, 3);
        r.train.micro_batch = k ? 1 : 4;
        MUST(tiny_run_open(&r, E));
        for (int i = 0; i < 3; i++) {
            struct step_result s;
            MUST(trainer_step(r.trainer, false, &s, E));
            loss[k][i] = s.loss;
            norm[k][i] = s.grad_norm;
            assert_int_equal(s.tokens, 4 * 32);
        }
        tiny_run_close(&r);
    }
    for (int i = 0; i < 3; i++) {
        assert_float_equal(loss[0][i], loss[1][i], 2e-5f);
        assert_float_equal(norm[0][i], norm[1][i], 2e-4f);
    }
}

/* ---- evaluation ---- */

/* Three held-out sequences do not fill two micro-batches of two. The filler counts neither as loss
 * nor as tokens, for any number of batches. */
static void a_part_batch_is_evaluated_in_part(void **state) {
    char path[] = "/tmp/fp8lab-eval-XXXXXX";
    unsigned char text[8 * 32 + 1];
    int fd = mkstemp(path);
    for (size_t i = 0; i < sizeof text; i++) text[i] = (unsigned char)(i * i % 91);
    assert_true(fd >= 0 && write(fd, text, sizeof text) == (ssize_t)sizeof text);
    close(fd);
    const char *paths[] = { path };
    struct eval_result result[3];
    for (int micro = 1; micro <= 2; micro++)
        for (int64_t batches = 1; batches <= 9; batches += 8) {
            struct tiny_run r;
            struct step_result s;
            tiny_run_init(&r, RECIPE_F32, 2);
            r.train.micro_batch = micro;
            struct data_options o = { .kind = DATA_TEXT, .paths = paths, .path_count = 1,
                                      .holdout = 0.4 };
            r.data_options = o;
            MUST(tiny_run_open(&r, E));
            assert_int_equal(data_sequences(r.data, SPLIT_EVAL), 3);
            MUST(trainer_step(r.trainer, false, &s, E));
            MUST(trainer_eval(r.trainer, batches, &result[micro], E));
            int64_t asked = batches * micro;
            assert_int_equal(result[micro].tokens, 32 * (asked < 3 ? asked : 3));
            tiny_run_close(&r);
        }
    assert_float_equal(result[1].loss, result[2].loss, 2e-5f);
    unlink(path);
}

/* A run that also evaluates a further set, or not. */
static void run_beside_set(const char *const *paths, bool set, struct record *out,
                           struct eval_result *of_set) {
    const struct data_set_options sets[] = { { "code", paths + 1, 1 } };
    struct tiny_run r;
    memset(out, 0, sizeof *out);
    init_variant(&r, &VARIANTS[1], STEPS);
    r.data_options = (struct data_options){ .kind = DATA_TEXT, .paths = paths, .path_count = 1,
                                            .holdout = 0.4, .sets = sets, .set_count = set };
    MUST(tiny_run_open(&r, E));
    for (int i = 0; i < STEPS; i++) {
        struct eval_result own;
        record_step(&r, out, true);
        MUST(trainer_eval(r.trainer, 2, &own, E));
        if (set) MUST(trainer_eval_set(r.trainer, 0, 2, of_set, E));
        struct eval_result again;
        MUST(trainer_eval(r.trainer, 2, &again, E));
        assert_true(own.loss == again.loss && own.tokens == again.tokens);
    }
    MUST(trainer_weights_sha256(r.trainer, out->weights, E));
    tiny_run_close(&r);
}

static void a_further_set_changes_no_bit(void **state) {
    char path[2][64] = { "/tmp/fp8lab-own-XXXXXX", "/tmp/fp8lab-set-XXXXXX" };
    const char *paths[] = { path[0], path[1] };
    struct record *a = malloc(sizeof *a), *b = malloc(sizeof *b);
    struct eval_result set = { 0 };
    for (int k = 0; k < 2; k++) {
        unsigned char text[12 * 32 + 1];
        size_t n = k ? 40 : sizeof text; /* two sequences, the second of 7 targets */
        int fd = mkstemp(path[k]);
        for (size_t i = 0; i < n; i++) text[i] = (unsigned char)((i * i + 7 * (size_t)k) % 91);
        assert_true(fd >= 0 && write(fd, text, n) == (ssize_t)n);
        close(fd);
    }
    run_beside_set(paths, false, a, &set);
    run_beside_set(paths, true, b, &set);
    assert_same(a, b, "a set");
    assert_true(set.loss > 0 && set.tokens == 64 && set.loss_tokens == 39);
    unlink(path[0]);
    unlink(path[1]);
    free(a);
    free(b);
}

/* The sums of shares, made in any order, join to the bits of one evaluation. */
static void shares_join_to_the_same_bits(void **state) {
    for (int i = 0; i < VARIANT_COUNT; i = next_variant(i)) {
        struct tiny_run r;
        struct eval_result whole, joined;
        float loss[5], right[5];
        init_variant(&r, &VARIANTS[i], 2);
        r.train.accuracy = true;
        MUST(tiny_run_open(&r, E));
        MUST(trainer_eval(r.trainer, 5, &whole, E));
        for (int first = 2; first >= 0; first--)
            MUST(trainer_eval_part(r.trainer, 5, &(struct eval_part){ first, 3, loss, right }, E));
        const struct eval_whole all = { r.data, r.model.seq_len, r.train.micro_batch, 5 };
        MUST(eval_join(&all, loss, right, &joined, E));
        assert_true(whole.loss == joined.loss && whole.accuracy == joined.accuracy);
        assert_true(whole.tokens == joined.tokens && whole.loss_tokens == joined.loss_tokens);
        tiny_run_close(&r);
    }
}

/* One held-out sequence in a batch of four has the same loss as alone, bit for bit. The filler
 * changes no scale, even with one scale per tensor. */
static void filler_reaches_no_scale(void **state) {
    char path[] = "/tmp/fp8lab-filler-XXXXXX";
    unsigned char text[6 * 32];
    int fd = mkstemp(path);
    for (size_t i = 0; i < sizeof text; i++) text[i] = (unsigned char)(1 + i * i % 91);
    assert_true(fd >= 0 && write(fd, text, sizeof text) == (ssize_t)sizeof text);
    close(fd);
    const char *paths[] = { path };
    for (int i = 0; i < VARIANT_COUNT; i++) {
        struct eval_result alone = { 0 }, filled = { 0 };
        for (int k = 0; k < 2; k++) {
            struct tiny_run r;
            init_variant(&r, &VARIANTS[i], 2);
            r.train.micro_batch = k ? 4 : 1;
            r.train.head_chunk = 0; /* the whole batch */
            r.data_options = (struct data_options){ .kind = DATA_TEXT, .paths = paths,
                                                    .path_count = 1, .holdout = 0.25 };
            MUST(tiny_run_open(&r, E));
            assert_int_equal(data_sequences(r.data, SPLIT_EVAL), 1);
            MUST(trainer_eval(r.trainer, 1, k ? &filled : &alone, E));
            tiny_run_close(&r);
        }
        if (alone.loss != filled.loss)
            fail_msg("%s: %a by itself, %a in a batch", VARIANTS[i].name, (double)alone.loss,
                     (double)filled.loss);
        assert_int_equal(alone.tokens, filled.tokens);
    }
    unlink(path);
}

/* ---- allocation, shapes ---- */

static void a_step_allocates_nothing(void **state) {
    for (int i = 0; i < VARIANT_COUNT; i++) {
        struct tiny_run r;
        struct step_result s;
        struct eval_result eval;
        init_variant(&r, &VARIANTS[i], 3);
        MUST(tiny_run_open(&r, E));
        MUST(trainer_step(r.trainer, true, &s, E)); /* OpenMP starts its threads */
        allocations_watch();
        MUST(trainer_step(r.trainer, true, &s, E));
        MUST(trainer_eval(r.trainer, 2, &eval, E));
        assert_int_equal(allocations_end(), 0);
        tiny_run_close(&r);
    }
}

/* Vocabularies and widths that no tile divides. */
static void odd_shapes_train(void **state) {
    static const struct { int64_t vocab, width, heads, head_dim, ffn, layers, seq_len; } SHAPE[] = {
        { 50257, 24, 2, 12, 40, 1, 8 },
        { 50264, 24, 2, 12, 40, 1, 8 },
        { 300, 1600, 25, 64, 200, 1, 4 }, /* GPT-2 1558M's width and heads */
    };
    static const enum recipe_kind KIND[] = { RECIPE_DELAYED, RECIPE_ROWWISE, RECIPE_BLOCKWISE,
                                             RECIPE_MXFP8 };
    for (size_t i = 0; i < sizeof SHAPE / sizeof *SHAPE; i++)
        for (size_t k = 0; k < sizeof KIND / sizeof *KIND; k++) {
            struct tiny_run r;
            struct step_result s;
            if ((i + k) % (size_t)cases_step(2, 4)) continue; /* every shape; no kind has all */
            tiny_run_init(&r, KIND[k], 2);
            r.model.vocab = SHAPE[i].vocab;
            r.model.width = SHAPE[i].width;
            r.model.heads = r.model.kv_heads = SHAPE[i].heads;
            r.model.head_dim = SHAPE[i].head_dim;
            r.model.ffn = SHAPE[i].ffn;
            r.model.layers = SHAPE[i].layers;
            r.model.seq_len = SHAPE[i].seq_len;
            r.model.tied = true;
            struct recipe_options o = tiny_recipe_options(KIND[k]);
            tiny_run_recipe(&r, &o);
            r.recipe.head = o;
            MUST(tiny_run_open(&r, E));
            MUST(trainer_step(r.trainer, false, &s, E));
            MUST(trainer_step(r.trainer, false, &s, E));
            tiny_run_close(&r);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_batch_overfits),
        cmocka_unit_test(resume_equals_uninterrupted),
        cmocka_unit_test(observation_changes_no_bit),
        cmocka_unit_test(recomputation_saves_memory),
        cmocka_unit_test(codes_in_use_are_of_one_layer),
        cmocka_unit_test(accumulation_is_one_batch),
        cmocka_unit_test(a_part_batch_is_evaluated_in_part),
        cmocka_unit_test(a_further_set_changes_no_bit),
        cmocka_unit_test(shares_join_to_the_same_bits),
        cmocka_unit_test(filler_reaches_no_scale),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(odd_shapes_train),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
