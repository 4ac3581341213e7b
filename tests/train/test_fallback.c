/* fallback = "bf16": a linear layer that the device cannot multiply in FP8 runs in BF16 and is
 * named, only if the recipe asks for it. The device is the CPU with a changed matmul_native. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/support/tiny.h"

/* No native FP8 for products as wide as the FFN's inner layer: its fprop. */
static enum status lacks_ffn_in(struct backend *b, const struct matmul_args *args, bool *native,
                                struct err *e) {
    *native = args->out->dim[1] != 2 * tiny_model().ffn;
    return OK;
}

struct trained { struct tiny_run run; struct backend_ops ops; char weights[65]; };

/* Two steps. `asks`: the recipe has fallback. `device`: the backend lacks native FP8. */
static void train(struct trained *t, bool asks, bool device, bool by_hand) {
    struct err e = { .text = "" };
    struct step_result result;
    tiny_run_init(&t->run, RECIPE_TENSORWISE, 2);
    assert_int_equal(cpu_backend_open(&t->run.backend, 0, &e), OK);
    const struct backend_ops *cpu = t->run.backend->ops;
    t->ops = *cpu;
    if (device) t->ops.matmul_native = lacks_ffn_in;
    t->run.backend->ops = &t->ops;
    for (int i = 0; i < 2 * GEMM_SITE_COUNT; i++) {
        t->run.site[i].fall_back = asks;
        if (by_hand && i % GEMM_SITE_COUNT == GEMM_FFN_IN) t->run.site[i].kind = RECIPE_BF16;
    }
    if (tiny_run_open(&t->run, &e) != OK) fail_msg("%s", e.text);
    for (int i = 0; i < 2; i++)
        if (trainer_step(t->run.trainer, false, &result, &e) != OK) fail_msg("%s", e.text);
    assert_int_equal(trainer_weights_sha256(t->run.trainer, t->weights, &e), OK);
}

static void expect_names(const struct trained *t, const char *const *names) {
    char name[64];
    int64_t i = 0;
    for (; names[i]; i++) {
        assert_true(trainer_fell_back(t->run.trainer, i, name));
        assert_string_equal(name, names[i]);
    }
    assert_false(trainer_fell_back(t->run.trainer, i, name));
}

static void what_is_lacking_goes_in_bf16(void **state) {
    struct trained *fell = calloc(1, sizeof *fell), *by_hand = calloc(1, sizeof *by_hand);
    assert_true(fell && by_hand);
    train(fell, true, true, false);
    train(by_hand, false, false, true);
    expect_names(fell, (const char *const[]){ "layers.0.ffn_in", "layers.1.ffn_in", NULL });
    assert_string_equal(fell->weights, by_hand->weights);
    tiny_run_close(&fell->run);
    tiny_run_close(&by_hand->run);
    free(fell);
    free(by_hand);
}

/* Like 1x128 blocks on Hopper: native only if the output has a multiple of 8 rows. */
static enum status wants_multiples_of_8(struct backend *b, const struct matmul_args *args,
                                        bool *native, struct err *e) {
    *native = args->out->dim[0] % 8 == 0 && args->out->dim[1] % 8 == 0;
    return OK;
}

/* 62 rows in chunks of 48: the head falls back because of the last chunk of 14. */
static void the_last_chunk_of_the_head_counts(void **state) {
    for (int rest = 0; rest < 2; rest++) {
        struct err e = { .text = "" };
        struct tiny_run r;
        char name[64];
        tiny_run_init(&r, RECIPE_TENSORWISE, 2);
        assert_int_equal(cpu_backend_open(&r.backend, 0, &e), OK);
        const struct backend_ops *cpu = r.backend->ops;
        struct backend_ops ops = *cpu;
        ops.matmul_native = wants_multiples_of_8;
        r.backend->ops = &ops;
        r.recipe.head = tiny_recipe_options(RECIPE_TENSORWISE);
        r.recipe.head.fall_back = true;
        r.train.head_chunk = 48;
        if (rest) r.model.seq_len = 31;
        if (tiny_run_open(&r, &e) != OK) fail_msg("%s", e.text);
        assert_int_equal(trainer_fell_back(r.trainer, 0, name), rest);
        assert_string_equal(name, "head");
        r.backend->ops = cpu;
        tiny_run_close(&r);
    }
}

static void nothing_changes_unasked(void **state) {
    struct trained *device = calloc(1, sizeof *device), *plain = calloc(1, sizeof *plain);
    assert_true(device && plain);
    train(device, false, true, false);
    train(plain, true, false, false);
    expect_names(device, (const char *const[]){ NULL });
    expect_names(plain, (const char *const[]){ NULL });
    assert_string_equal(device->weights, plain->weights);
    tiny_run_close(&device->run);
    tiny_run_close(&plain->run);
    free(device);
    free(plain);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_lacking_goes_in_bf16),
        cmocka_unit_test(the_last_chunk_of_the_head_counts),
        cmocka_unit_test(nothing_changes_unasked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
