/* Frozen parameters and factors of the learning rate. A frozen run has the bits of a run in which
 * the same parameters have the learning rate 0; what it need not compute is not computed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels/cpu/cpu_backend.h"
#include "model/checkpoint.h"
#include "model/trainer.h"
#include "tests/support/cases.h"
#include "tests/support/must.h"
#include "tests/support/tiny.h"

enum { STEPS = 4, RULES_MAX = 4, PARAMS_MAX = 64 };

#define FROZEN(names_) { .names = (names_), .frozen = true }
#define SCALED(names_, scale_) { .names = (names_), .lr_scale = (scale_) }
#define RULES(...)                                                                       \
    (struct selection) { .rule = (const struct selection_rule[]){ __VA_ARGS__ },        \
        .count = sizeof((struct selection_rule[]){ __VA_ARGS__ }) / sizeof(struct selection_rule) }

/* ---- frozen is a learning rate of 0 ---- */

struct case_of {
    const char *names[RULES_MAX];
    bool tied, learned, gpt, fp8_head, no_master;
    enum state_kind state;
    enum recompute_kind recompute;
    int64_t recompute_layers;
    bool makes_codes;
    unsigned bf16; /* GEMMs */
};
static const struct case_of CASES[] = {
    { .names = { "layers.0" } },
    { .names = { "embed", "layers.0" }, .state = STATE_8BIT },
    { .names = { "layers.*.qkv", "layers.0-1.norm2" }, .no_master = true, .state = STATE_BF16 },
    { .names = { "layers.*.attn_out", "layers.1.ffn_out" }, .recompute = RECOMPUTE_FFN },
    { .names = { "embed", "layers.0" }, .recompute = RECOMPUTE_BLOCK },
    { .names = { "embed", "layers.1" }, .recompute = RECOMPUTE_BLOCK, .recompute_layers = 1 },
    { .names = { "embed", "layers", "final_norm" }, .fp8_head = true },
    { .names = { "head" }, .fp8_head = true },
    { .names = { "embed" }, .tied = true, .fp8_head = true },
    { .names = { "embed", "position.weight" }, .gpt = true, .learned = true },
    { .names = { "embed", "layers.1" }, .gpt = true, .learned = true, .tied = true },
    { .names = { "embed", "layers.0", "layers.1.qkv" }, .fp8_head = true, .makes_codes = true },
    { .names = { "layers.0.ffn_in", "layers.1.qkv" }, .bf16 = FPROP_BF16 },
};
enum { CASE_COUNT = sizeof CASES / sizeof *CASES };

static void open_case(struct tiny_run *r, const struct case_of *c, enum recipe_kind kind,
                      bool frozen) {
    struct selection_rule rule[RULES_MAX];
    int64_t n = 0;
    for (; n < RULES_MAX && c->names[n]; n++)
        rule[n] = (struct selection_rule){ .names = c->names[n], .frozen = frozen };
    tiny_run_init(r, kind, STEPS);
    r->model.tied = c->tied;
    if (c->learned) r->model.positions = POSITION_LEARNED;
    if (c->gpt) r->model.norm = NORM_LAYER;
    r->model.bias = c->gpt;
    struct recipe_options o = tiny_recipe_options(kind);
    if (recipe_is_fp8(kind)) tiny_gemms_bf16(&o, c->bf16);
    tiny_run_recipe(r, &o);
    if (c->fp8_head && recipe_is_fp8(kind)) r->recipe.head = o;
    r->train.optimizer.clip = 0; /* the norms differ: frozen gradients do not count */
    r->train.optimizer.state = c->state;
    r->train.recompute = c->recompute;
    r->train.recompute_layers = c->recompute_layers;
    r->train.makes_codes = c->makes_codes;
    r->train.optimizer.master = !c->no_master;
    r->train.selection = (struct selection){ .rule = rule, .count = n };
    MUST(tiny_run_open(r, E));
}

struct figures {
    float loss[STEPS];
    char weights[65];
    int slots;
    struct fp8_slot slot[128];
};

static void run_case(const struct case_of *c, enum recipe_kind kind, bool frozen,
                     struct figures *out) {
    struct tiny_run r;
    struct step_result s;
    struct fp8_slot slot[128];
    memset(out, 0, sizeof *out);
    open_case(&r, c, kind, frozen);
    for (int i = 0; i < STEPS; i++) {
        MUST(trainer_step(r.trainer, i == 1, &s, E));
        out->loss[i] = s.loss;
    }
    trainer_read_fp8(r.trainer, slot);
    out->slots = r.trainer->slots.first[SLOT_FORWARD]; /* weights: their codes' amax and scale */
    memcpy(out->slot, slot, (size_t)out->slots * sizeof *slot);
    MUST(trainer_weights_sha256(r.trainer, out->weights, E));
    tiny_run_close(&r);
}

static void frozen_is_a_rate_of_zero(void **state) {
    int step = cases_step(1, 4); /* a sanitizer runs two cases of each kind */
    for (int kind = RECIPE_F32; kind < RECIPE_KIND_COUNT; kind++)
        for (int i = kind % step; i < CASE_COUNT; i += step) {
            struct figures frozen, still;
            run_case(&CASES[i], (enum recipe_kind)kind, true, &frozen);
            run_case(&CASES[i], (enum recipe_kind)kind, false, &still);
            if (memcmp(&frozen, &still, sizeof frozen) != 0)
                fail_msg("%s, case %d: last loss %a and %a, weights %.12s and %.12s",
                         tiny_kind_name((enum recipe_kind)kind), i, (double)frozen.loss[STEPS - 1],
                         (double)still.loss[STEPS - 1], frozen.weights, still.weights);
        }
}

/* ---- what stays as it is ---- */

struct bytes { unsigned char *at; int64_t n; };

static struct bytes fetch(struct tiny_run *r, const void *data, int64_t n) {
    struct bytes b = { malloc((size_t)n + 1), n };
    assert_non_null(b.at);
    if (n) MUST(r->backend->ops->download(r->backend, LANE_COMPUTE, b.at, data, n, E));
    return b;
}

static struct bytes value_of(struct tiny_run *r, const struct param *p) {
    const struct tensor *x = &p->weight.value;
    return fetch(r, x->data, tensor_count(x) * dtype_bytes(x->dtype));
}

static struct bytes codes_of(struct tiny_run *r, const struct param *p) {
    const struct tensor *x = &p->weight.codes;
    bool any = p->weight.fp8 && p->weight.has_codes;
    return fetch(r, x->data, any ? tensor_fp8_bytes(x->dim[0], x->dim[1]) : 0);
}

static struct bytes scales_of(struct tiny_run *r, const struct param *p) {
    const struct scale *x = &p->weight.codes.scale;
    bool any = p->weight.fp8 && p->weight.has_codes;
    return fetch(r, x->data, !any ? 0 : x->kind == SCALE_TENSOR ? 4 : scale_bytes(x));
}

static void assert_equal(struct bytes a, struct bytes b, const char *what, const char *name) {
    if (a.n != b.n || memcmp(a.at, b.at, (size_t)a.n) != 0)
        fail_msg("%s of %s changed", what, name);
    free(a.at);
    free(b.at);
}

/* Weights from the beginning. Codes and scales too, but a delayed scale has its first amax after
 * the first step. Others move. */
static void frozen_weights_keep_every_bit(void **state) {
    for (int kind = RECIPE_F32; kind < RECIPE_KIND_COUNT; kind++) {
        struct tiny_run r;
        struct step_result s;
        struct bytes value[PARAMS_MAX], codes[PARAMS_MAX], scales[PARAMS_MAX];
        open_case(&r, &CASES[1], (enum recipe_kind)kind, true);
        struct params *p = &r.trainer->params;
        assert_true(p->count <= PARAMS_MAX);
        for (int i = 0; i < p->count; i++) value[i] = value_of(&r, &p->param[i]);
        if (kind == RECIPE_DELAYED) MUST(trainer_step(r.trainer, false, &s, E));
        for (int i = 0; i < p->count; i++) codes[i] = codes_of(&r, &p->param[i]);
        for (int i = 0; i < p->count; i++) scales[i] = scales_of(&r, &p->param[i]);
        while (trainer_step_count(r.trainer) < STEPS) MUST(trainer_step(r.trainer, true, &s, E));
        for (int i = 0; i < p->count; i++) {
            const struct param *x = &p->param[i];
            struct bytes now = value_of(&r, x);
            bool wanted = !strncmp(x->name, "embed", 5) || !strncmp(x->name, "layers.0.", 9);
            assert_true(x->frozen == wanted);
            assert_true(!x->frozen || (!x->m.data && !x->v.data && !x->master.data));
            bool same = !memcmp(now.at, value[i].at, (size_t)now.n);
            if (same != x->frozen) fail_msg("%s %s", x->name, same ? "did not move" : "moved");
            free(now.at);
            free(value[i].at);
            if (x->frozen) {
                assert_equal(codes[i], codes_of(&r, x), "codes", x->name);
                assert_equal(scales[i], scales_of(&r, x), "scales", x->name);
            } else {
                free(codes[i].at);
                free(scales[i].at);
            }
        }
        tiny_run_close(&r);
    }
}

/* ---- norm, clipping, factors: by hand, in f32 ---- */

static float *floats(struct tiny_run *r, const struct tensor *x, int64_t n) {
    return (float *)(void *)fetch(r, x->data, 4 * n).at;
}

static void assert_first_update(struct tiny_run *r, const struct param *x, const float *before,
                                double clip, double scale) {
    const struct optimizer_options *o = &r->train.optimizer;
    int64_t n = param_count(x);
    float *after = floats(r, &x->weight.value, n), *grad = floats(r, &x->grad, n);
    double decay = x->cols ? o->weight_decay : 0;
    for (int64_t i = 0; i < n; i++) {
        double g = (double)grad[i] * clip, w = (double)before[i];
        double wanted = w - o->lr * scale * (g / (fabs(g) + o->eps) + decay * w);
        if (fabs((double)after[i] - wanted) > 1e-6 * (o->lr * scale + fabs(w)))
            fail_msg("%s[%lld] is %g, wanted %g", x->name, (long long)i, (double)after[i], wanted);
    }
    free(after);
    free(grad);
}

static void norm_and_factors_by_hand(void **state) {
    struct tiny_run r;
    struct step_result s;
    float *before[PARAMS_MAX];
    double sum = 0;
    tiny_run_init(&r, RECIPE_F32, STEPS);
    r.train.optimizer.clip = 0.25; /* active */
    r.train.optimizer.eps = 1e-4;
    r.train.schedule = (struct schedule_options){ .kind = SCHEDULE_CONSTANT };
    r.train.selection = RULES(FROZEN("layers.0"), SCALED("embed", 0.5), SCALED("head", 0.5),
                              SCALED("layers.1.ffn_in", 3));
    MUST(tiny_run_open(&r, E));
    const struct params *p = &r.trainer->params;
    assert_int_equal(p->lr_scales, 3); /* 1, 0.5, 3 */
    for (int i = 0; i < p->count; i++)
        before[i] = floats(&r, &p->param[i].weight.value, param_count(&p->param[i]));
    MUST(trainer_step(r.trainer, false, &s, E));
    assert_float_equal(s.lr, 3e-3, 1e-9); /* of the schedule, without factors */
    for (int i = 0; i < p->count; i++) {
        const struct param *x = &p->param[i];
        float *g = x->frozen ? NULL : floats(&r, &x->grad, param_count(x));
        for (int64_t k = 0; g && k < param_count(x); k++) sum += (double)g[k] * (double)g[k];
        free(g);
    }
    assert_float_equal(s.grad_norm, sqrt(sum), 1e-5 * sqrt(sum));
    assert_true(sqrt(sum) > 0.25);
    for (int i = 0; i < p->count; i++) {
        const struct param *x = &p->param[i];
        bool half = !strncmp(x->name, "embed", 5) || !strncmp(x->name, "head", 4);
        double scale = half ? 0.5 : !strcmp(x->name, "layers.1.ffn_in.weight") ? 3 : 1;
        if (!x->frozen) assert_first_update(&r, x, before[i], 0.25 / sqrt(sum), scale);
        free(before[i]);
    }
    tiny_run_close(&r);
}

/* ---- what is left out ---- */

static struct {
    const struct backend_ops *real;
    int dgrad, wgrad, adamw, quantised, finished;
    const struct tensor *weights; /* the amax of all weights */
} watched; /* of this test program only */

static enum status watching_matmul(struct backend *b, int lane, const struct matmul_args *args,
                                   struct err *e) {
    watched.dgrad += args->direction == GEMM_DGRAD;
    watched.wgrad += args->direction == GEMM_WGRAD;
    return watched.real->matmul(b, lane, args, e);
}

static enum status watching_adamw(struct backend *b, int lane, const struct adamw_args *args,
                                  int64_t n, struct err *e) {
    watched.adamw += (int)n;
    return watched.real->adamw(b, lane, args, n, e);
}

static bool is_weight(const struct sink *out) {
    const char *amax = out->amax ? out->amax->data : NULL, *first = watched.weights->data;
    return amax && amax >= first && amax < first + 4 * tensor_count(watched.weights);
}

static enum status watching_quantise(struct backend *b, int lane, const struct sink *out,
                                     const struct tensor *x, struct err *e) {
    watched.quantised += is_weight(out);
    return watched.real->quantise(b, lane, out, x, e);
}

static enum status watching_finish(struct backend *b, int lane, const struct sink *out,
                                   struct err *e) {
    watched.finished += is_weight(out);
    return watched.real->quantise_finish(b, lane, out, e);
}

static void watched_step(struct tiny_run *r) {
    struct step_result s;
    struct backend_ops ops = *r->backend->ops;
    struct tensor weights = r->trainer->slots.amax;
    weights.dim[0] = r->trainer->slots.first[SLOT_FORWARD];
    memset(&watched, 0, sizeof watched);
    watched.real = r->backend->ops;
    watched.weights = &weights;
    ops.matmul = watching_matmul;
    ops.adamw = watching_adamw;
    ops.quantise = watching_quantise;
    ops.quantise_finish = watching_finish;
    r->backend->ops = &ops;
    MUST(trainer_step(r->trainer, false, &s, E));
    r->backend->ops = watched.real;
}

/* A model of two layers has 8 weights of linear layers and the head. A step has two micro-batches.
 * Only weights that are updated are made again. A delayed scale has its first amax in step 1. */
static int count_delayed(const struct tiny_run *r) { /* frozen weights with such a scale */
    int n = 0;
    for (int i = 0; i < r->trainer->params.count; i++) {
        const struct param *x = &r->trainer->params.param[i];
        n += x->frozen && r->trainer->slots.slot[x->weight.slot].delayed;
    }
    return n;
}

static void what_is_not_needed_is_not_computed(void **state) {
    static const struct { struct case_of of; int dgrad, wgrad, adamw; } WANTED[] = {
        { { .names = { NULL } }, 18, 18, 15 },
        { { .names = { "layers.0" } }, 18, 10, 9 },          /* the embedding is trained */
        { { .names = { "embed", "layers.0" } }, 10, 10, 8 }, /* backward ends above layer 0 */
        { { .names = { "layers.1", "embed" } }, 18, 10, 8 },
        { { .names = { "embed", "layers", "final_norm" } }, 2, 2, 1 }, /* only the head */
        { { .names = { "layers.*.ffn_in", "head" } }, 18, 12, 12 },
    };
    for (size_t i = 0; i < sizeof WANTED / sizeof *WANTED; i++) {
        struct tiny_run r;
        static const enum recipe_kind KIND[] = { RECIPE_BF16, RECIPE_TENSORWISE, RECIPE_DELAYED };
        for (int k = 0; k < 3; k++) {
            open_case(&r, &WANTED[i].of, KIND[k], true);
            for (int step = 1; step <= 2; step++) {
                watched_step(&r);
                int adamw = WANTED[i].adamw, again = step == 1 ? count_delayed(&r) : 0;
                if (watched.dgrad != WANTED[i].dgrad || watched.wgrad != WANTED[i].wgrad ||
                    watched.adamw != adamw || watched.quantised != again ||
                    watched.finished != adamw + again)
                    fail_msg("case %zu of %s, step %d: %d dgrad, %d wgrad, %d updates, %d and %d "
                             "weights made", i, tiny_kind_name(KIND[k]), step, watched.dgrad,
                             watched.wgrad, watched.adamw, watched.quantised, watched.finished);
            }
            tiny_run_close(&r);
        }
    }
}

/* Histories that hold a larger amax, as of weights that were trained before: the scale changes when
 * that amax leaves, and until then the codes are made again. */
static void an_older_amax_leaves_the_history(void **state) {
    enum { HISTORY = 3 };
    float loss[2][HISTORY + 2];
    for (int frozen = 0; frozen < 2; frozen++) {
        struct tiny_run r;
        struct step_result s;
        struct recipe_options o = tiny_recipe_options(RECIPE_DELAYED);
        o.history = HISTORY;
        tiny_run_init(&r, RECIPE_DELAYED, STEPS);
        tiny_run_recipe(&r, &o);
        r.train.optimizer.clip = 0;
        r.train.steps = HISTORY + 2;
        r.train.selection = frozen ? RULES(FROZEN("layers.0")) : RULES(SCALED("layers.0", 0));
        MUST(tiny_run_open(&r, E));
        struct tensor history = r.trainer->slots.run[0].history;
        assert_int_equal(r.trainer->remakes, frozen);
        MUST(r.backend->ops->fill(r.backend, LANE_COMPUTE, &history, 7.0f, E));
        MUST(trainer_requantise(r.trainer, E));
        assert_int_equal(r.trainer->remakes, frozen ? HISTORY : 0);
        for (int i = 0; i < HISTORY + 2; i++) {
            if (i == HISTORY) watched_step(&r);
            else MUST(trainer_step(r.trainer, false, &s, E));
            loss[frozen][i] = i == HISTORY ? 0 : s.loss;
        }
        assert_true(!frozen || watched.quantised == 0);
        tiny_run_close(&r);
    }
    assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
}

static int64_t planned(const struct plan *p, const char *arena) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < p->row_count; i++)
        if (!strcmp(p->row[i].arena, arena)) bytes += p->row[i].bytes;
    return bytes;
}

/* Layer 0 of two: its share of gradients, moments and masters is not planned. */
static void frozen_layers_take_no_memory(void **state) {
    static const char *const ARENAS[] = { "master weights", "gradients", "optimizer" };
    struct tiny_run r;
    struct plan all, some;
    tiny_run_init(&r, RECIPE_TENSORWISE, STEPS);
    MUST(trainer_plan(&all, &r.model, &r.recipe, &r.train, 1, E));
    r.train.selection = RULES(FROZEN("layers.0"));
    MUST(trainer_plan(&some, &r.model, &r.recipe, &r.train, 1, E));
    int64_t layer = (4 + 4) * 16 * 64 + 64 * 64 + 320 * 64 + 64 * 160; /* elements of matrices */
    assert_int_equal(all.trained, model_parameter_count(&r.model));
    assert_int_equal(some.trained, all.trained - layer - 2 * 64);
    for (int i = 0; i < 3; i++) {
        int64_t each = i == 2 ? 8 : 4, less = planned(&all, ARENAS[i]) - planned(&some, ARENAS[i]);
        if (less < each * layer) fail_msg("%s: %lld less", ARENAS[i], (long long)less);
    }
    assert_int_equal(planned(&all, "weights"), planned(&some, "weights"));
    assert_true(planned(&some, "activations") < planned(&all, "activations"));
    plan_free(&some);
    r.train.selection = RULES(FROZEN("layers.0"), FROZEN("embed")); /* it has no backward */
    MUST(trainer_plan(&some, &r.model, &r.recipe, &r.train, 1, E));
    int64_t rows = 64, qkv = 128, width = 64, ffn = 160;
    int64_t less = planned(&all, "activations") - planned(&some, "activations");
    int64_t values = 2 * rows * (qkv + width + 2 * ffn + width); /* BF16; x_mid, gate_up, o */
    int64_t twins = rows * (width + width + width + ffn);        /* FP8: of the four inputs */
    assert_int_equal(less, values + twins);
    plan_free(&all);
    plan_free(&some);
}

/* The FLOP of a token in multiples of a layer's weights w, the head's h and its attention a: 6w +
 * 6h + a each, less what is frozen. */
static void figures_count_what_is_computed(void **state) {
    struct model_config c = tiny_model();
    double w = (4 + 4) * 16 * 64 + 64 * 64 + 320 * 64 + 64 * 160, h = 96 * 64, found;
    double a = (model_flops_per_token(&c) - 12 * w - 6 * h) / 2;
    const struct { struct selection rules; bool tied; double wanted; } CASE[] = {
        { { 0 }, false, 12 * w + 6 * h + 2 * a },
        { RULES(FROZEN("layers.0")), false, 10 * w + 6 * h + 2 * a },
        { RULES(FROZEN("layers.0"), FROZEN("embed")), false, 8 * w + 6 * h + a * 4 / 3 },
        { RULES(FROZEN("layers"), FROZEN("embed")), false, 4 * w + 6 * h + a * 2 / 3 },
        { RULES(FROZEN("embed")), true, 12 * w + 4 * h + 2 * a },
        { RULES(SCALED("embed", 0)), true, 12 * w + 6 * h + 2 * a },
    };
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        c.tied = CASE[i].tied;
        MUST(selection_flops_per_token(&c, &CASE[i].rules, &found, E));
        assert_float_equal(found, CASE[i].wanted, 1);
    }
}

/* ---- names ---- */

static void names_that_are_refused(void **state) {
    static const struct {
        struct selection_rule rule[2];
        bool tied;
        const char *words;
    } BAD[] = {
        { { FROZEN("layer.0") }, false, "train.freeze: \"layer.0\" names no parameter" },
        { { FROZEN("layers.2") }, false, "embed, layers.0-1 (each norm1, qkv, attn_out, norm2, "
          "ffn_in, ffn_out), final_norm, head" },
        { { FROZEN("layers.1-0") }, false, "names no parameter" },
        { { FROZEN("layers.0-") }, false, "names no parameter" },
        { { FROZEN("layers.-1") }, false, "names no parameter" },
        { { FROZEN("layers.0.qkv.weight.x") }, false, "names no parameter" },
        { { FROZEN("layers.0.qk") }, false, "names no parameter" },
        { { FROZEN("") }, false, "names no parameter" },
        { { FROZEN("layers..qkv") }, false, "names no parameter" },
        { { FROZEN("head") }, true, "the head is embed, by model.tied" },
        { { SCALED("norm", 2) }, false, "train.lr_scale: \"norm\" names no parameter" },
        { { SCALED("layers", 2), SCALED("layers.0.norm1", 1) }, false, "\"layers\" and "
          "\"layers.0.norm1\" both name layers.0.norm1.weight" },
        { { FROZEN("layers"), SCALED("layers.0", 2) }, false, "all that \"layers.0\" names is "
          "frozen" },
        { { FROZEN("*"), FROZEN("embed") }, false, "nothing is left to train" },
    };
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        struct tiny_run r;
        struct plan plan;
        int64_t trained;
        tiny_run_init(&r, RECIPE_BF16, STEPS);
        r.model.tied = BAD[i].tied;
        r.train.selection = (struct selection){ BAD[i].rule, BAD[i].rule[1].names ? 2 : 1 };
        MUST_FAIL(ERR_CONFIG, BAD[i].words,
                  trainer_plan(&plan, &r.model, &r.recipe, &r.train, 1, E));
        MUST_FAIL(ERR_CONFIG, BAD[i].words,
                  selection_trained(&r.model, &r.train.selection, &trained, E));
    }
}

/* ---- checkpoints ---- */

/* A frozen parameter has no state in the file; a run with other frozen ones does not continue. */
static void checkpoints_continue_with_equal_bits(void **state) {
    char dir[] = "/tmp/fp8lab-freeze-XXXXXX", wanted[65], found[65];
    struct checkpoint_info info, loaded;
    struct step_result s;
    struct tiny_run r;
    assert_non_null(mkdtemp(dir));
    open_case(&r, &CASES[1], RECIPE_DELAYED, true);
    for (int i = 0; i < STEPS; i++) {
        if (i == 2) MUST(checkpoint_save(r.trainer, dir, &info, E));
        MUST(trainer_step(r.trainer, false, &s, E));
    }
    MUST(trainer_weights_sha256(r.trainer, wanted, E));
    tiny_run_close(&r);
    open_case(&r, &CASES[1], RECIPE_DELAYED, true);
    MUST(checkpoint_load(r.trainer, info.path, &loaded, E));
    for (int i = 2; i < STEPS; i++) MUST(trainer_step(r.trainer, false, &s, E));
    MUST(trainer_weights_sha256(r.trainer, found, E));
    assert_string_equal(wanted, found);
    tiny_run_close(&r);
    const struct case_of other = { .names = { "layers.1" }, .state = STATE_8BIT };
    const struct case_of none = { .names = { NULL }, .state = STATE_8BIT };
    open_case(&r, &other, RECIPE_DELAYED, true);
    MUST_FAIL(ERR_CONFIG, "7 frozen parameters, this run has 6",
              checkpoint_load(r.trainer, info.path, &loaded, E));
    tiny_run_close(&r);
    open_case(&r, &none, RECIPE_DELAYED, true);
    MUST_FAIL(ERR_CONFIG, "7 frozen parameters, this run has 0",
              checkpoint_load(r.trainer, info.path, &loaded, E));
    tiny_run_close(&r);
    MUST(checkpoint_remove(info.path, E));
    assert_int_equal(rmdir(dir), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frozen_is_a_rate_of_zero),
        cmocka_unit_test(frozen_weights_keep_every_bit),
        cmocka_unit_test(norm_and_factors_by_hand),
        cmocka_unit_test(what_is_not_needed_is_not_computed),
        cmocka_unit_test(an_older_amax_leaves_the_history),
        cmocka_unit_test(frozen_layers_take_no_memory),
        cmocka_unit_test(figures_count_what_is_computed),
        cmocka_unit_test(names_that_are_refused),
        cmocka_unit_test(checkpoints_continue_with_equal_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
