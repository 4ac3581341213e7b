/* Logits on the device: near those of the CPU, without a trace in the steps around them, whose
 * graphs are replayed; and a trainer without a backward evaluates like one with it. */
#include <math.h>
#include <stdlib.h>

#include "model/logits.h"
#include "runner/plan/backends.h"
#include "tests/support/must.h"
#include "tests/support/tiny.h"

enum { B = 2, T = 256, V = 96, ROWS = 4, STEPS = 6 };

struct gpu_run {
    struct tiny_run run;
    struct backend_handle handle;
};

static void open_on(struct gpu_run *g, const char *backend, enum recipe_kind kind,
                    const char *choices, bool forward_only) {
    memset(g, 0, sizeof *g);
    tiny_run_init(&g->run, kind, STEPS);
    g->run.model.seq_len = T;
    g->run.model.width = 256;
    g->run.model.head_dim = 64;
    g->run.model.ffn = 512;
    g->run.model.init_std = 0.1;
    g->run.train.head_chunk = 256; /* of 512 rows */
    g->run.train.forward_only = forward_only;
    MUST(backend_open(backend, 0, 0, &g->handle, E));
    g->run.backend = g->handle.backend;
    if (choices) MUST(g->run.backend->ops->choices_load(g->run.backend, choices, E));
    MUST(tiny_run_open(&g->run, E));
}

static void close_run(struct gpu_run *g) {
    g->handle.backend = NULL; /* the run closes it */
    tiny_run_close(&g->run);
    backend_close(&g->handle);
}

static void ask(struct gpu_run *g, float out[ROWS * V]) {
    static int32_t tokens[B * T];
    const int64_t row[ROWS] = { B * T - 1, 0, 255, 256 };
    for (int i = 0; i < B * T; i++) tokens[i] = (int32_t)((i * 31 + i * i) % V);
    MUST(trainer_logits(g->run.trainer, tokens, row, ROWS, out, E));
}

struct record { float loss[STEPS], norm[STEPS]; char weights[65]; };

static void train(struct gpu_run *g, bool asks, struct record *out) {
    static float logits[ROWS * V];
    struct step_result s;
    memset(out, 0, sizeof *out);
    for (int i = 0; i < STEPS; i++) {
        if (asks) ask(g, logits);
        MUST(trainer_step(g->run.trainer, false, &s, E));
        out->loss[i] = s.loss;
        out->norm[i] = s.grad_norm;
    }
    MUST(trainer_weights_sha256(g->run.trainer, out->weights, E));
}

static void no_bit_of_a_step_changes(void **state) {
    for (int kind = RECIPE_BF16; kind < RECIPE_KIND_COUNT; kind++) {
        struct gpu_run g;
        struct record a, b;
        char *choices = NULL;
        open_on(&g, "cuda", (enum recipe_kind)kind, NULL, false);
        train(&g, false, &a);
        MUST(g.run.backend->ops->choices_save(g.run.backend, &choices, E));
        close_run(&g);
        open_on(&g, "cuda", (enum recipe_kind)kind, choices, false);
        train(&g, true, &b);
        close_run(&g);
        free(choices);
        if (memcmp(&a, &b, sizeof a)) fail_msg("%s", RECIPE_KIND_NAMES[kind]);
    }
}

static float distance(const float *a, const float *b) {
    float sum = 0;
    for (int i = 0; i < V; i++) sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sqrtf(sum);
}

/* Each row is far nearer to the CPU's than any other row is. In FP8 a difference of one rounding in
 * BF16 moves some codes by a whole step, so no small bound holds. */
static void assert_rows_match(const float *cpu, const float *gpu) {
    for (int r = 0; r < ROWS; r++)
        for (int other = 0; other < ROWS; other++) {
            if (other == r) continue;
            assert_true(distance(cpu + r * V, gpu + r * V) <
                        0.3f * distance(cpu + other * V, gpu + r * V));
        }
}

/* The initial weights are equal on both. */
static void they_are_near_the_cpus(void **state) {
    static float cpu[ROWS * V], gpu[ROWS * V], only[ROWS * V];
    for (int kind = RECIPE_BF16; kind < RECIPE_KIND_COUNT; kind++) {
        struct gpu_run g;
        struct eval_result full, forward;
        float largest = 0, worst = 0, without = 0;
        open_on(&g, "cpu", (enum recipe_kind)kind, NULL, false);
        ask(&g, cpu);
        close_run(&g);
        open_on(&g, "cuda", (enum recipe_kind)kind, NULL, false);
        ask(&g, gpu);
        MUST(trainer_eval(g.run.trainer, 1, &full, E));
        close_run(&g);
        open_on(&g, "cuda", (enum recipe_kind)kind, NULL, true);
        ask(&g, only);
        MUST(trainer_eval(g.run.trainer, 1, &forward, E));
        close_run(&g);
        for (int i = 0; i < ROWS * V; i++) {
            largest = fmaxf(largest, fabsf(cpu[i]));
            worst = fmaxf(worst, fabsf(cpu[i] - gpu[i]));
            without = fmaxf(without, fabsf(only[i] - gpu[i]));
        }
        print_message("%-16s largest %.3f, off by %.4f, without a backward by %.4f\n",
                      RECIPE_KIND_NAMES[kind], (double)largest, (double)worst, (double)without);
        if (kind == RECIPE_BF16) assert_true(worst < 0.02f * largest);
        assert_rows_match(cpu, gpu);
        assert_rows_match(gpu, only);
        assert_float_equal(full.loss, forward.loss, 1e-2);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_bit_of_a_step_changes),
        cmocka_unit_test(they_are_near_the_cpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
