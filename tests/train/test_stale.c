/* The cost of delayed scales. Several recipes follow one BF16 run, step by step, with its weights
 * and batches. Their gradients are compared with f32's. Separate runs would diverge by chance. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/trainer.h"
#include "tests/support/must.h"
#include "tests/support/tiny.h"

/* SETTLED: steps after which no slot has its first scale of 1. TOKENS: tokens in a step of a large
 * run, which give gradients of that size. */
enum { STEPS = 24, SETTLED = 4, TOKENS = 1 << 17 };

static void open_run(struct tiny_run *r, enum recipe_kind kind, int history, enum amax_algo algo) {
    struct recipe_options o = tiny_recipe_options(kind);
    tiny_run_init(r, kind, STEPS);
    o.history = history;
    o.algo = algo;
    tiny_run_recipe(r, &o);
    r->train.micro_batch = 4;
    MUST(tiny_run_open(r, E));
    const float scale = 1.0f / TOKENS;
    MUST(r->backend->ops->upload(r->backend, LANE_COMPUTE, r->trainer->transformer.grad_scale.data,
                                 &scale, sizeof scale, E));
}

static float *values_of(struct tiny_run *r, const struct tensor *x, int64_t n) {
    float *out = malloc((size_t)n * sizeof *out);
    assert_non_null(out);
    int64_t size = dtype_bytes(x->dtype);
    MUST(r->backend->ops->download(r->backend, LANE_COMPUTE, out, x->data, n * size, E));
    const uint16_t *narrow = (const uint16_t *)out;
    for (int64_t i = n; i-- > 0 && size == 2;) out[i] = bf16_decode(narrow[i]);
    return out;
}

/* Copies the leader's weights and makes their codes with the scales of earlier steps. */
static void follow(struct tiny_run *r, struct tiny_run *leader) {
    struct trainer *t = r->trainer;
    for (int i = 0; i < t->params.count; i++) {
        const struct tensor *x = &t->params.param[i].weight.value;
        int64_t n = param_count_padded(&t->params.param[i]), size = dtype_bytes(x->dtype);
        float *w = values_of(leader, &leader->trainer->params.param[i].weight.value, n);
        uint16_t *narrow = (uint16_t *)w;
        for (int64_t k = 0; k < n && size == 2; k++) narrow[k] = bf16_encode(w[k]);
        MUST(t->backend->ops->upload(t->backend, LANE_COMPUTE, x->data, w, n * size, E));
        free(w);
    }
    MUST(trainer_requantise(t, E));
}

/* Relative RMS difference over all gradients of the layers' GEMM weights. */
static double error_of(struct tiny_run *r, struct tiny_run *exact) {
    double difference = 0, size = 0;
    for (int i = 0; i < r->trainer->params.count; i++) {
        const struct param *p = &r->trainer->params.param[i];
        if (!p->spec || strncmp(p->name, "layers", 6) != 0) continue;
        int64_t n = param_count(p);
        float *g = values_of(r, &p->grad, n);
        float *f = values_of(exact, &exact->trainer->params.param[i].grad, n);
        for (int64_t k = 0; k < n; k++) {
            difference += ((double)g[k] - f[k]) * ((double)g[k] - f[k]);
            size += (double)f[k] * f[k];
        }
        free(g);
        free(f);
    }
    return sqrt(difference / size);
}

/* Once every slot has a scale, scales from all steps, the last four or the last are as good as
 * current scales. FP8 is a floating-point format: a scale too small by some powers of two loses
 * only the smallest values. Only the first step, with scales of 1, loses its gradients. */
static void stale_scales_cost_little(void **state) {
    static const struct { const char *name; enum recipe_kind kind; int history;
                          enum amax_algo algo; } CASE[] = {
        { "tensorwise", RECIPE_TENSORWISE, 1024, AMAX_MAX },
        { "delayed, history 1024", RECIPE_DELAYED, 1024, AMAX_MAX },
        { "delayed, history 4", RECIPE_DELAYED, 4, AMAX_MAX },
        { "delayed, most recent", RECIPE_DELAYED, 1, AMAX_MOST_RECENT },
    };
    enum { COUNT = sizeof CASE / sizeof *CASE };
    struct tiny_run leader, exact, run[COUNT];
    struct step_result s;
    double first[COUNT], mean[COUNT] = { 0 };
    open_run(&leader, RECIPE_BF16, 1024, AMAX_MAX);
    open_run(&exact, RECIPE_F32, 1024, AMAX_MAX);
    for (int i = 0; i < COUNT; i++) open_run(&run[i], CASE[i].kind, CASE[i].history, CASE[i].algo);
    for (int step = 1; step <= STEPS; step++) {
        follow(&exact, &leader);
        MUST(trainer_step(exact.trainer, false, &s, E));
        for (int i = 0; i < COUNT; i++) {
            follow(&run[i], &leader);
            MUST(trainer_step(run[i].trainer, false, &s, E));
            double error = error_of(&run[i], &exact);
            if (step == 1) first[i] = error;
            if (step >= SETTLED) mean[i] += error / (STEPS - SETTLED + 1);
        }
        MUST(trainer_step(leader.trainer, false, &s, E));
    }
    for (int i = 0; i < COUNT; i++)
        print_message("%-24s first step %.4f, from step %d on %.4f\n", CASE[i].name, first[i],
                      SETTLED, mean[i]);
    for (int i = 1; i < COUNT; i++) {
        assert_true(first[i] > 5 * first[0]);
        assert_true(mean[i] < 1.2 * mean[0]);
    }
    for (int i = 0; i < COUNT; i++) tiny_run_close(&run[i]);
    tiny_run_close(&leader);
    tiny_run_close(&exact);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(stale_scales_cost_little) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
