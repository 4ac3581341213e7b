/* The backend's choices, on a model small enough to train in a moment. Native means FP8 operands in
 * every GEMM that the recipe includes. Another device's column is emulated. The choice table of one
 * backend gives another backend the same algorithms, attention and bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/choices.h"
#include "tests/gpu/pair.h"
#include "tests/support/tiny.h"

static const enum recipe_kind FP8[] = { RECIPE_DELAYED, RECIPE_TENSORWISE, RECIPE_ROWWISE,
                                        RECIPE_BLOCKWISE };
enum { FP8_COUNT = sizeof FP8 / sizeof *FP8, LAYERS = 2, STEPS = 4 };

/* How close two first steps must be if their products are added in different orders. A simulation
 * had noise of nmse_bound's s (test_matmul.c, the worst case) in each product of both. Losses
 * differed by up to 1.2e-4, gradient norms by up to 0.33 %. */
static const float LOSS_NEAR = 5e-4f, NORM_NEAR = 0.01f;

struct trained {
    struct tiny_run run;
    struct backend_handle handle;
    float loss, grad_norm; /* of the first step */
    char weights[65], *table; /* owned */
};

static struct backend *open_gpu(struct trained *t, const char *caps, const char *table) {
    struct err e = { 0 };
    if (backend_open("cuda", 0, 0, &t->handle, &e) != OK) fail_msg("%s", e.text);
    struct backend *b = t->handle.backend;
    if (caps && b->ops->assume_architecture(b, caps, &e) != OK) fail_msg("%s", e.text);
    if (table && b->ops->choices_load(b, table, &e) != OK) fail_msg("%s", e.text);
    return b;
}

/* The options of a run beside its recipe: an architecture to assume; tables; whether every
 * site falls back to BF16 without native FP8; whether the last layer stays in BF16. */
struct how {
    const char *caps, *table, *offers; /* table: to load; offers: of an earlier run */
    bool fall_back, bf16_last;
};

/* STEPS steps, so that graphs are captured and replayed; sequences are long enough for cuDNN. */
static void train(struct trained *t, enum recipe_kind kind, struct how how) {
    struct err e = { 0 };
    struct step_result s = { 0 };
    memset(t, 0, sizeof *t);
    tiny_run_init(&t->run, kind, STEPS);
    t->run.model = (struct model_config){
        .vocab = 96, .seq_len = 256, .layers = LAYERS, .width = 256, .heads = 4, .kv_heads = 2,
        .head_dim = 64, .ffn = 512, .norm = NORM_RMS, .activation = ACTIVATION_SWIGLU,
        .positions = POSITION_ROPE, .rope = { .theta = 10000 }, .norm_eps = 1e-5, .init_std = 0.02,
    };
    for (int i = 0; i < LAYERS * GEMM_SITE_COUNT; i++) {
        t->run.site[i].fall_back = how.fall_back;
        if (how.bf16_last && i / GEMM_SITE_COUNT == LAYERS - 1)
            t->run.site[i] = tiny_recipe_options(RECIPE_BF16);
    }
    t->run.backend = open_gpu(t, how.caps, how.table);
    if (how.offers && t->run.backend->ops->choices_offer(t->run.backend, how.offers, &e) != OK)
        fail_msg("%s", e.text);
    if (tiny_run_open(&t->run, &e) != OK) fail_msg("%s", e.text);
    for (int i = 0; i < STEPS; i++) {
        if (trainer_step(t->run.trainer, false, &s, &e) != OK) fail_msg("%s", e.text);
        if (i == 0) t->loss = s.loss, t->grad_norm = s.grad_norm;
    }
    if (trainer_weights_sha256(t->run.trainer, t->weights, &e) != OK) fail_msg("%s", e.text);
    if (t->run.backend->ops->choices_save(t->run.backend, &t->table, &e) != OK)
        fail_msg("%s", e.text);
}

static void done(struct trained *t) {
    t->handle.backend = NULL; /* the run closes it */
    tiny_run_close(&t->run);
    free(t->table);
}

/* The decision on one GEMM. There must be exactly one: no GEMM may be computed in two ways. */
static struct decision decision_on(const struct trained *t, const char *name,
                                   const char *direction) {
    struct backend *b = t->run.backend;
    struct decision d, found = { .calls = 0 };
    for (int64_t i = 0; b->ops->decision(b, i, &d); i++) {
        if (strcmp(d.name, name) != 0 || strcmp(d.direction, direction) != 0) continue;
        if (found.calls) fail_msg("%s %s: %s and %s", name, direction, found.way, d.way);
        found = d;
    }
    if (!found.calls) fail_msg("no decision for %s %s", name, direction);
    return found;
}

static const char *const DIRECTION[] = { "fprop", "dgrad", "wgrad" };

/* Calls of a GEMM. Each graph runs once uncaptured, is captured once, and is then replayed. There
 * are graphs for the first and for later micro-batches; fprop also has an evaluation. Scratch that
 * grows with a later graph's products (whose kernel time decides) drops the graphs before it: these
 * run once more. Without replay there would be two more calls for each of the STEPS. */
enum { CALLS = 2 * 2, CALLS_FPROP = 2 * 3, CALLS_AGAIN = 2 };

/* All GEMMs of a layer were computed in that way, with such operands. Fast accumulation is the
 * default for row-wise scales, and for tensor-wide scales in fprop only (model/recipe_kinds.h). Our
 * kernel on mma.sync has none. */
static void layer_goes(const struct trained *t, int layer, const char *way, bool fp8) {
    for (int s = 0; s < 4; s++)
        for (int i = 0; i < 3; i++) {
            char name[64];
            snprintf(name, sizeof name, "layers.%d.%s.weight", layer, GEMM_SITE_NAMES[s]);
            struct decision d = decision_on(t, name, DIRECTION[i]);
            bool tensor = strstr(d.detail, " tensor"), row = strstr(d.detail, " row");
            bool own = strstr(d.detail, ", mma.sync");
            bool fast = fp8 && !own && (row || (i == GEMM_FPROP && tensor));
            if (strcmp(d.way, way) != 0 || !strstr(d.detail, "bf16") != fp8 ||
                !strstr(d.detail, ", fast") == fast)
                fail_msg("%s %s is %s: %s", name, DIRECTION[i], d.way, d.detail);
            int64_t least = i == GEMM_FPROP ? CALLS_FPROP : CALLS;
            if (d.calls < least || d.calls > least + CALLS_AGAIN)
                fail_msg("%s %s (%s): %lld calls, not %lld", name, DIRECTION[i], d.detail,
                         (long long)d.calls, (long long)least);
        }
}

static void every_layer_goes(const struct trained *t, const char *way, bool fp8) {
    for (int layer = 0; layer < LAYERS; layer++) layer_goes(t, layer, way, fp8);
    for (int i = 0; i < 3; i++)
        assert_string_equal(decision_on(t, "head.weight", DIRECTION[i]).way, "bf16");
}

static void native_is_fp8_in_every_direction(void **state) {
    for (int k = 0; k < FP8_COUNT; k++) {
        struct trained t;
        train(&t, FP8[k], (struct how){ 0 });
        every_layer_goes(&t, "native", true);
        done(&t);
    }
    struct trained t;
    train(&t, RECIPE_BF16, (struct how){ 0 });
    every_layer_goes(&t, "bf16", false);
    done(&t);
}

/* A layer that the recipe leaves out is BF16; the other layer is not. */
static void a_layer_left_out_is_bf16(void **state) {
    struct trained t;
    train(&t, RECIPE_TENSORWISE, (struct how){ .bf16_last = true });
    layer_goes(&t, 0, "native", true);
    layer_goes(&t, 1, "bf16", false);
    done(&t);
}

/* Loss and gradient norm of the first step are near those of another device's column. Later steps
 * are not compared: AdamW's first updates are signs of gradients. Within four steps they amplify
 * any difference in the order of sums to some per cent of the loss. */
static void first_steps_near(const struct trained *native, const struct trained *other,
                             const char *what, const char *caps) {
    float loss = other->loss / native->loss - 1, norm = other->grad_norm / native->grad_norm - 1;
    if (getenv("DISTANCES"))
        print_message("    %s as %s: loss %+.2g, gradient norm %+.2g\n", what, caps, (double)loss,
                      (double)norm);
    if (!(fabsf(loss) < LOSS_NEAR) || !(fabsf(norm) < NORM_NEAR))
        fail_msg("%s: loss %g, gradient %g; as %s %g, %g", what, (double)native->loss,
                 (double)native->grad_norm, caps, (double)other->loss, (double)other->grad_norm);
}

/* The library has only tensor scales on sm_100 and sm_121; the others are our kernel's on sm_121,
 * and emulated on sm_100. sm_80 has no FP8 at all. */
static void what_a_device_lacks_is_emulated(void **state) {
    static const char *const CAPS[] = { "sm_121", "sm_100", "sm_80" };
    for (int k = 0; k < FP8_COUNT; k++) {
        struct trained native;
        train(&native, FP8[k], (struct how){ 0 });
        for (int i = 0; i < 3; i++) {
            bool tensor = FP8[k] == RECIPE_DELAYED || FP8[k] == RECIPE_TENSORWISE;
            bool has = i == 0 || (i == 1 && tensor);
            struct trained other;
            char suffix[32];
            snprintf(suffix, sizeof suffix, " as %s\n", CAPS[i]);
            train(&other, FP8[k], (struct how){ .caps = CAPS[i] });
            every_layer_goes(&other, has ? "native" : "emulated", has);
            bool own = strstr(decision_on(&other, "layers.0.qkv.weight", "fprop").detail,
                              ", mma.sync");
            assert_int_equal(own, i == 0 && !tensor);
            first_steps_near(&native, &other, tiny_kind_name(FP8[k]), CAPS[i]);
            assert_non_null(strstr(other.table, suffix));
            done(&other);
        }
        done(&native);
    }
}

static void mxfp8_and_nvfp4_are_emulated(void **state) {
    static const enum recipe_kind KIND[] = { RECIPE_MXFP8, RECIPE_NVFP4 };
    for (int i = 0; i < 2; i++) {
        struct trained t, asked;
        train(&t, KIND[i], (struct how){ 0 });
        every_layer_goes(&t, "emulated", false);
        /* As a Blackwell, the backend lays operands out and asks the library, which refuses. */
        train(&asked, KIND[i], (struct how){ .caps = "sm_100" });
        every_layer_goes(&asked, "emulated", false);
        first_steps_near(&t, &asked, tiny_kind_name(KIND[i]), "sm_100");
        done(&asked);
        done(&t);
    }
}

/* With fallback, a recipe is BF16 for what sm_100 lacks, which is named, and FP8 for the rest. */
static void what_sm_100_lacks_falls_back(void **state) {
    for (int k = 0; k < FP8_COUNT; k++) {
        bool tensor = FP8[k] == RECIPE_DELAYED || FP8[k] == RECIPE_TENSORWISE;
        struct trained t;
        char name[64];
        train(&t, FP8[k], (struct how){ .caps = "sm_100", .fall_back = true });
        every_layer_goes(&t, tensor ? "native" : "bf16", tensor);
        int64_t count = 0;
        while (trainer_fell_back(t.run.trainer, count, name)) count++;
        assert_int_equal(count, tensor ? 0 : LAYERS * GEMM_SITE_COUNT);
        done(&t);
        train(&t, FP8[k], (struct how){ .fall_back = true }); /* Hopper has all of them */
        every_layer_goes(&t, "native", true);
        done(&t);
    }
}

/* The table says that the library has no algorithm for the first GEMM, nor for its f32 product, the
 * alternative. The GEMM is rejected by name. */
static void missing_algorithm_is_rejected(void **state) {
    enum { LDD = 5, TYPE_D = 8, KEYS = 21 }; /* places in a line of kernels/cuda/gemm.cu */
    struct trained first, second = { .loss = 0 };
    struct err e = { 0 };
    struct decision d = { .calls = 0 };
    struct step_result result;
    char table[2048];
    long long key[KEYS];
    train(&first, RECIPE_BF16, (struct how){ 0 });
    char *line = strstr(first.table, "\ngemm ");
    assert_non_null(line);
    int n = snprintf(table, sizeof table, "%.*s\n", (int)(line - first.table), first.table);
    for (int round = 0; round < 2; round++) {
        char *from = line + strlen("\ngemm");
        n += snprintf(table + n, sizeof table - (size_t)n, "gemm");
        for (int i = 0; i < KEYS; i++) {
            key[i] = strtoll(from, &from, 10);
            if (round && i == LDD) key[i] = key[0];
            if (round && i == TYPE_D) key[i] = 0; /* CUDA_R_32F */
            n += snprintf(table + n, sizeof table - (size_t)n, " %lld", key[i]);
        }
        n += snprintf(table + n, sizeof table - (size_t)n, " : -\n");
    }
    tiny_run_init(&second.run, RECIPE_BF16, STEPS);
    second.run.model = first.run.model;
    second.run.backend = open_gpu(&second, NULL, table);
    enum status st = tiny_run_open(&second.run, &e);
    if (st == OK) st = trainer_step(second.run.trainer, false, &result, &e);
    if (st != ERR_UNSUPPORTED) fail_msg("%s: %s", status_name(st), e.text);
    assert_non_null(strstr(e.text, "matmul: cuBLASLt has no algorithm for M "));
    assert_true(second.run.backend->ops->decision(second.run.backend, 0, &d));
    assert_string_equal(d.name, "layers.0.qkv.weight");
    assert_string_equal(d.way, "refused");
    done(&second);
    done(&first);
}

static void a_loaded_table_gives_the_same_bits(void **state) {
    for (int k = 0; k < FP8_COUNT; k++) {
        struct trained first, second;
        train(&first, FP8[k], (struct how){ 0 });
        assert_non_null(strstr(first.table, "\ngemm "));
        train(&second, FP8[k], (struct how){ .table = first.table });
        assert_string_equal(first.table, second.table);
        assert_string_equal(first.weights, second.weights);
        done(&first);
        done(&second);
    }
}

/* How attention's forward was computed: in one way, for all layers. */
static struct decision attention_of(const struct trained *t) {
    struct backend *b = t->run.backend;
    struct decision d, found = { .calls = 0 };
    for (int64_t i = 0; b->ops->decision(b, i, &d); i++) {
        if (strcmp(d.section, "attention") != 0 || strcmp(d.direction, "forward") != 0) continue;
        if (found.calls) fail_msg("attention %s: %s and %s", d.name, found.way, d.way);
        found = d;
    }
    assert_true(found.calls > 0);
    return found;
}

/* The table records the choice for attention. With a table nothing is chosen: the named plan serves
 * again, or our own kernel if it names none. */
static void attention_follows_the_table(void **state) {
    struct trained first, again, own, own_again;
    train(&first, RECIPE_BF16, (struct how){ 0 });
    struct decision d = attention_of(&first);
    const char *line = strstr(first.table, "\nattention ");
    assert_non_null(line);
    bool has_plan = strncmp(strstr(line, " : "), " : -", 4) != 0;
    assert_int_equal(!strcmp(d.way, "cudnn"), has_plan);
    if (getenv("DISTANCES")) print_message("    attention by %s: %s\n", d.way, d.detail);

    train(&again, RECIPE_BF16, (struct how){ .table = first.table });
    assert_string_equal(attention_of(&again).way, d.way);
    assert_string_equal(attention_of(&again).detail, "by the choice table");
    assert_string_equal(again.table, first.table);
    assert_string_equal(again.weights, first.weights);

    char *without = choices_with("attention", first.table, "-");
    train(&own, RECIPE_BF16, (struct how){ .table = without });
    train(&own_again, RECIPE_BF16, (struct how){ .table = own.table });
    assert_string_equal(attention_of(&own).way, "wgmma");
    assert_string_equal(attention_of(&own_again).way, "wgmma");
    assert_string_equal(own.table, without);
    assert_string_equal(own.weights, own_again.weights);
    free(without);
    done(&first);
    done(&again);
    done(&own);
    done(&own_again);
}

static char *timed_of(struct trained *t) {
    struct err e = { 0 };
    char *text;
    if (t->run.backend->ops->choices_timed(t->run.backend, &text, &e) != OK) fail_msg("%s", e.text);
    return text;
}

static int count_choices(const char *table) {
    struct choices_reader r;
    struct choice c;
    struct err e = { 0 };
    bool more = true;
    int count = 0;
    if (choices_open(&r, table, &e) != OK) fail_msg("%s", e.text);
    while (choices_next(&r, &c, &more, &e) == OK && more) count++;
    return count;
}

/* What the first run timed serves the second, which times nothing and has the same table. An offer
 * that the library rejects is timed again. */
static void offers_replace_timing(void **state) {
    static const enum recipe_kind KINDS[] = { RECIPE_BF16, RECIPE_TENSORWISE, RECIPE_BLOCKWISE };
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        struct trained first, again, bad;
        train(&first, KINDS[i], (struct how){ 0 });
        char *timed = timed_of(&first);
        assert_true(count_choices(timed) > 3);
        train(&again, KINDS[i], (struct how){ .offers = timed });
        char *anew = timed_of(&again);
        assert_int_equal(count_choices(anew), 0);
        assert_string_equal(again.table, first.table);
        assert_string_equal(again.weights, first.weights);
        static const char NOTHING[] = "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
                                      "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
                                      "ffffffff";
        _Static_assert(sizeof NOTHING == 129, "the bytes of cublasLtMatmulAlgo_t");
        char *broken = choices_with("gemm", timed, NOTHING);
        train(&bad, KINDS[i], (struct how){ .offers = broken });
        assert_null(strstr(bad.table, NOTHING));
        free(broken);
        free(timed);
        free(anew);
        done(&first);
        done(&again);
        done(&bad);
    }
}

static void another_table_is_refused(void **state) {
    struct trained first, other = { .loss = 0 };
    struct err e = { 0 };
    train(&first, RECIPE_TENSORWISE, (struct how){ 0 });
    assert_int_equal(first.run.backend->ops->choices_load(first.run.backend, first.table, &e),
                     ERR_STATE);
    struct backend *b = open_gpu(&other, "sm_121", NULL);
    assert_int_equal(b->ops->choices_load(b, first.table, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "as sm_121"));
    static const char NOT_OURS[] = "fp8lab choices 1\ndevice NVIDIA B200\nlibraries none\n";
    assert_int_equal(b->ops->choices_load(b, NOT_OURS, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "NVIDIA B200 (none)"));
    assert_int_equal(b->ops->assume_architecture(b, "sm_70", &e), ERR_UNSUPPORTED);
    assert_int_equal(b->ops->choices_offer(b, NOT_OURS, &e), ERR_CONFIG);
    assert_int_equal(b->ops->choices_load(b, "", &e), OK);
    backend_close(&other.handle);
    done(&first);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(native_is_fp8_in_every_direction),
        cmocka_unit_test(a_layer_left_out_is_bf16),
        cmocka_unit_test(what_a_device_lacks_is_emulated),
        cmocka_unit_test(mxfp8_and_nvfp4_are_emulated),
        cmocka_unit_test(what_sm_100_lacks_falls_back),
        cmocka_unit_test(missing_algorithm_is_rejected),
        cmocka_unit_test(a_loaded_table_gives_the_same_bits),
        cmocka_unit_test(attention_follows_the_table),
        cmocka_unit_test(offers_replace_timing),
        cmocka_unit_test(another_table_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
