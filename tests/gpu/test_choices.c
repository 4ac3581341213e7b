/* What the backend chose, on a model small enough to train in a blink: native means FP8 operands in
 * every GEMM that the recipe does not leave out; another device's column is emulated; the choice
 * table of one backend gives another the same algorithms and bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/plan/backends.h"
#include "tests/support/tiny.h"

static const enum recipe_kind FP8[] = { RECIPE_DELAYED, RECIPE_TENSORWISE, RECIPE_ROWWISE,
                                        RECIPE_BLOCKWISE };
enum { FP8_COUNT = sizeof FP8 / sizeof *FP8, LAYERS = 2, STEPS = 4 };

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
    if (caps && b->ops->pretend(b, caps, &e) != OK) fail_msg("%s", e.text);
    if (table && b->ops->choices_load(b, table, &e) != OK) fail_msg("%s", e.text);
    return b;
}

/* STEPS steps, so that graphs are captured and replayed; sequences are long enough for cuDNN. */
/* With `fallback` every site asks for BF16 where FP8 is not native. */
static void train_with(struct trained *t, enum recipe_kind kind, const char *caps,
                       const char *table, bool fallback) {
    struct err e = { 0 };
    struct step_result s = { 0 };
    memset(t, 0, sizeof *t);
    tiny_run_init(&t->run, kind, STEPS);
    t->run.model = (struct model_config){
        .vocab = 96, .seq_len = 256, .layers = LAYERS, .width = 256, .heads = 4, .kv_heads = 2,
        .head_dim = 64, .ffn = 512, .norm = NORM_RMS, .activation = ACTIVATION_SWIGLU,
        .positions = POSITION_ROPE, .rope = { .theta = 10000 }, .norm_eps = 1e-5, .init_std = 0.02,
    };
    for (int i = 0; i < LAYERS * GEMM_SITE_COUNT; i++) t->run.site[i].fall_back = fallback;
    t->run.backend = open_gpu(t, caps, table);
    if (tiny_run_open(&t->run, &e) != OK) fail_msg("%s", e.text);
    for (int i = 0; i < STEPS; i++) {
        if (trainer_step(t->run.trainer, false, &s, &e) != OK) fail_msg("%s", e.text);
        if (i == 0) t->loss = s.loss, t->grad_norm = s.grad_norm;
    }
    if (trainer_weights_sha256(t->run.trainer, t->weights, &e) != OK) fail_msg("%s", e.text);
    if (t->run.backend->ops->choices_save(t->run.backend, &t->table, &e) != OK)
        fail_msg("%s", e.text);
}

static void train(struct trained *t, enum recipe_kind kind, const char *caps, const char *table) {
    train_with(t, kind, caps, table, false);
}

static void done(struct trained *t) {
    t->handle.backend = NULL; /* the run closes it */
    tiny_run_close(&t->run);
    free(t->table);
}

/* The decision on one GEMM: exactly one, since no GEMM may go two ways. */
static struct decision decision_on(const struct trained *t, const char *name,
                                   const char *direction) {
    struct backend *b = t->run.backend;
    struct decision d, found = { .calls = 0 };
    for (int64_t i = 0; b->ops->decision(b, i, &d); i++) {
        if (strcmp(d.name, name) != 0 || strcmp(d.direction, direction) != 0) continue;
        if (found.calls) fail_msg("%s %s: %s and %s", name, direction, found.way, d.way);
        found = d;
    }
    if (!found.calls) fail_msg("%s %s was never multiplied", name, direction);
    return found;
}

/* How many GEMMs of the layers went `way`, after asserting that all did, with such operands. */
static void every_layer_goes(const struct trained *t, const char *way, bool fp8) {
    static const char *const SITE[] = { "qkv", "attn_out", "ffn_in", "ffn_out" };
    static const char *const DIRECTION[] = { "fprop", "dgrad", "wgrad" };
    for (int layer = 0; layer < LAYERS; layer++)
        for (int s = 0; s < 4; s++)
            for (int i = 0; i < 3; i++) {
                char name[64];
                snprintf(name, sizeof name, "layers.%d.%s.weight", layer, SITE[s]);
                struct decision d = decision_on(t, name, DIRECTION[i]);
                if (strcmp(d.way, way) != 0)
                    fail_msg("%s %s is %s: %s", name, DIRECTION[i], d.way, d.detail);
                if (!strstr(d.detail, "bf16") != fp8)
                    fail_msg("%s %s: %s", name, DIRECTION[i], d.detail);
                assert_true(d.calls >= 2); /* a micro-step each, at the least */
            }
    for (int i = 0; i < 3; i++)
        assert_string_equal(decision_on(t, "head.weight", DIRECTION[i]).way, "bf16");
}

static void native_is_fp8_in_every_direction(void **state) {
    for (int k = 0; k < FP8_COUNT; k++) {
        struct trained t;
        train(&t, FP8[k], NULL, NULL);
        every_layer_goes(&t, "native", true);
        done(&t);
    }
    struct trained t;
    train(&t, RECIPE_BF16, NULL, NULL);
    every_layer_goes(&t, "bf16", false);
    done(&t);
}

static void what_sm_121_lacks_is_emulated(void **state) {
    for (int k = 0; k < FP8_COUNT; k++) {
        bool tensor = FP8[k] == RECIPE_DELAYED || FP8[k] == RECIPE_TENSORWISE;
        struct trained native, other;
        train(&native, FP8[k], NULL, NULL);
        train(&other, FP8[k], "sm_121", NULL);
        every_layer_goes(&other, tensor ? "native" : "emulated", tensor);
        /* Of the first step: the first updates of AdamW are signs of gradients, which amplify any
         * difference in the order of sums to some per cent of the loss within four steps. */
        if (!(fabsf(other.loss - native.loss) < 1e-3f * native.loss) ||
            !(fabsf(other.grad_norm - native.grad_norm) < 0.01f * native.grad_norm))
            fail_msg("%s: loss %g, gradient %g; as sm_121 %g, %g", tiny_kind_name(FP8[k]),
                     (double)native.loss, (double)native.grad_norm, (double)other.loss,
                     (double)other.grad_norm);
        assert_non_null(strstr(other.table, " as sm_121\n"));
        done(&native);
        done(&other);
    }
}

/* Asked to fall back, a recipe is BF16 in what sm_121 lacks, by name, and FP8 in what it has. */
static void what_sm_121_lacks_falls_back(void **state) {
    for (int k = 0; k < FP8_COUNT; k++) {
        bool tensor = FP8[k] == RECIPE_DELAYED || FP8[k] == RECIPE_TENSORWISE;
        struct trained t;
        char name[64];
        train_with(&t, FP8[k], "sm_121", NULL, true);
        every_layer_goes(&t, tensor ? "native" : "bf16", tensor);
        int64_t count = 0;
        while (trainer_fell_back(t.run.trainer, count, name)) count++;
        assert_int_equal(count, tensor ? 0 : LAYERS * GEMM_SITE_COUNT);
        done(&t);
        train_with(&t, FP8[k], NULL, NULL, true); /* Hopper lacks none of them */
        every_layer_goes(&t, "native", true);
        done(&t);
    }
}

/* A table that says of the first GEMM that the library has nothing for it, nor for its f32 product,
 * which is the way around: it is refused by name. */
static void what_the_library_lacks_is_refused(void **state) {
    enum { LDD = 5, TYPE_D = 8, KEYS = 21 }; /* places in a line of kernels/cuda/gemm.cu */
    struct trained first, second = { .loss = 0 };
    struct err e = { 0 };
    struct decision d = { .calls = 0 };
    struct step_result result;
    char table[2048];
    long long key[KEYS];
    train(&first, RECIPE_BF16, NULL, NULL);
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
        train(&first, FP8[k], NULL, NULL);
        assert_non_null(strstr(first.table, "\ngemm "));
        train(&second, FP8[k], NULL, first.table);
        assert_string_equal(first.table, second.table);
        assert_string_equal(first.weights, second.weights);
        done(&first);
        done(&second);
    }
}

static void another_table_is_refused(void **state) {
    struct trained first, other = { .loss = 0 };
    struct err e = { 0 };
    train(&first, RECIPE_TENSORWISE, NULL, NULL);
    assert_int_equal(first.run.backend->ops->choices_load(first.run.backend, first.table, &e),
                     ERR_STATE);
    struct backend *b = open_gpu(&other, "sm_121", NULL);
    assert_int_equal(b->ops->choices_load(b, first.table, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "as sm_121"));
    static const char NOT_OURS[] = "fp8lab choices 1\ndevice NVIDIA B200\nlibraries none\n";
    assert_int_equal(b->ops->choices_load(b, NOT_OURS, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "NVIDIA B200 (none)"));
    assert_int_equal(b->ops->pretend(b, "sm_70", &e), ERR_UNSUPPORTED);
    assert_int_equal(b->ops->choices_load(b, "", &e), OK);
    backend_close(&other.handle);
    done(&first);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(native_is_fp8_in_every_direction),
        cmocka_unit_test(what_sm_121_lacks_is_emulated),
        cmocka_unit_test(what_sm_121_lacks_falls_back),
        cmocka_unit_test(what_the_library_lacks_is_refused),
        cmocka_unit_test(a_loaded_table_gives_the_same_bits),
        cmocka_unit_test(another_table_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
