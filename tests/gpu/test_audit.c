/* The audit on a GPU: no false alarm in any recipe and the same bits of the run, with replayed
 * graphs; bits that flip in device memory are found, by name; and what an audit costs, by turns
 * with steps without. Prints what was compared. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "model/trainer.h"
#include "runner/plan/backends.h"
#include "tests/support/must.h"
#include "tests/support/tiny.h"

enum { STEPS = 8, OUTPUTS = 128 };

struct setup { enum recipe_kind kind; bool gpt2, lean; };
static const struct setup SETUP[] = {
    { RECIPE_BF16, false, false }, { RECIPE_DELAYED, false, false },
    { RECIPE_TENSORWISE, false, false }, { RECIPE_ROWWISE, false, false },
    { RECIPE_BLOCKWISE, false, false }, { RECIPE_MXFP8, false, false },
    { RECIPE_NVFP4, false, false }, { RECIPE_BF16, true, true },
    { RECIPE_DELAYED, true, false }, { RECIPE_BLOCKWISE, true, true },
};
enum { SETUPS = sizeof SETUP / sizeof *SETUP };

struct gpu_run { struct tiny_run run; struct backend_handle handle; };

/* A small model whose GEMMs run natively; `big`: one whose steps take some time. */
static void open_on(struct gpu_run *g, const struct setup *how, int64_t every, bool big,
                    const char *choices) {
    memset(g, 0, sizeof *g);
    tiny_run_init(&g->run, how->kind, 1000);
    struct model_config *m = &g->run.model;
    struct train_options *t = &g->run.train;
    m->seq_len = big ? 1024 : 256;
    m->width = big ? 2048 : 256;
    m->head_dim = big ? 128 : 64;
    m->heads = m->width / m->head_dim;
    m->kv_heads = m->heads / 2;
    m->ffn = big ? 5632 : 512;
    if (big) m->vocab = 32000;
    if (big) t->micro_batch = t->global_batch = 8;
    if (how->gpt2) {
        m->norm = NORM_LAYER;
        m->activation = ACTIVATION_GELU;
        m->positions = POSITION_LEARNED;
        m->kv_heads = m->heads;
        m->bias = m->tied = true;
    }
    if (how->lean) t->grad_dtype = DTYPE_BF16;
    t->audit = (struct audit_options){ every, big ? AUDIT_OUTPUTS : OUTPUTS };
    MUST(backend_open("cuda", 0, 0, &g->handle, E));
    g->run.backend = g->handle.backend;
    if (choices) MUST(g->run.backend->ops->choices_load(g->run.backend, choices, E));
    MUST(tiny_run_open(&g->run, E));
}

static void close_run(struct gpu_run *g) {
    g->handle.backend = NULL; /* the run closes it */
    tiny_run_close(&g->run);
    backend_close(&g->handle);
}

/* Queues one step ahead, as a run does. */
static enum status run_steps(struct trainer *t, int64_t n, float *loss, struct err *e) {
    struct step_result s;
    for (int64_t i = 0; i <= n; i++) {
        if (i < n) TRY(trainer_queue(t, false, e));
        if (i > 0) TRY(trainer_collect(t, &s, e));
        if (i > 0 && loss) loss[i - 1] = s.loss;
    }
    return OK;
}

static void drain(struct trainer *t, struct audit_record *sum) {
    struct audit_record a;
    for (; trainer_audited(t, &a); sum->step++) {
        sum->products += a.products;
        sum->codes += a.codes;
        sum->unknown += a.unknown;
    }
}

/* ---- equal ---- */

static void no_false_alarm_and_the_same_bits(void **state) {
    int wrong = 0;
    for (int k = 0; k < SETUPS; k++) {
        struct gpu_run plain, audited;
        struct audit_record sum = { 0 };
        struct err e = { 0 };
        float loss[2][STEPS];
        char weights[2][65], *choices = NULL;
        open_on(&plain, &SETUP[k], 0, false, NULL);
        MUST(run_steps(plain.run.trainer, STEPS, loss[0], E));
        MUST(trainer_weights_sha256(plain.run.trainer, weights[0], E));
        MUST(plain.run.backend->ops->choices_save(plain.run.backend, &choices, E));
        close_run(&plain);
        open_on(&audited, &SETUP[k], 1, false, choices);
        enum status st = OK;
        for (int i = 0; i < STEPS && st == OK; i++) {
            st = run_steps(audited.run.trainer, 1, &loss[1][i], &e);
            if (st == OK) st = trainer_audit_settle(audited.run.trainer, &e);
            drain(audited.run.trainer, &sum);
        }
        printf("%-12s%s%s: %lld audited steps, %lld products and %lld codes equal, %lld products "
               "not comparable%s%s\n", tiny_kind_name(SETUP[k].kind), SETUP[k].gpt2 ? " gpt2" : "",
               SETUP[k].lean ? " bf16 gradients" : "", (long long)sum.step,
               (long long)sum.products, (long long)sum.codes, (long long)sum.unknown,
               st == OK ? "" : "; ", st == OK ? "" : e.text);
        wrong += st != OK;
        if (st == OK) {
            assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
            MUST(trainer_weights_sha256(audited.run.trainer, weights[1], E));
            assert_string_equal(weights[0], weights[1]);
            assert_true(sum.step == STEPS && sum.products + sum.unknown == STEPS * OUTPUTS);
        }
        close_run(&audited);
        free(choices);
    }
    assert_int_equal(wrong, 0);
}

/* ---- faults ---- */

enum fault_kind { FAULT_PRODUCT, FAULT_WEIGHT, FAULT_SCALE };
static const struct { enum fault_kind fault; enum recipe_kind kind; const char *what; } FAULTS[] = {
    { FAULT_PRODUCT, RECIPE_BF16, "product" }, { FAULT_PRODUCT, RECIPE_BLOCKWISE, "product" },
    { FAULT_WEIGHT, RECIPE_TENSORWISE, "code" }, { FAULT_WEIGHT, RECIPE_BLOCKWISE, "code" },
    { FAULT_SCALE, RECIPE_BLOCKWISE, "factor" },
};

/* The backend with a matmul whose outputs flip in an audited micro-batch. */
static struct {
    struct backend_ops ops;
    const struct backend_ops *inner;
    struct trainer *t;
} faulty;

static enum status flip(struct backend *b, void *data, int64_t bytes, int64_t stride,
                        struct err *e) {
    unsigned char *x = malloc((size_t)bytes);
    if (!x) return FAIL(e, ERR_MEMORY, "%lld bytes", (long long)bytes);
    enum status st = b->ops->download(b, LANE_COMPUTE, x, data, bytes, e);
    for (int64_t i = 0; i < bytes; i += stride)
        if ((x[i] & 0x7F) < 0x7B || stride > 1) x[i] ^= 1; /* no code becomes a NaN */
    if (st == OK) st = b->ops->upload(b, LANE_COMPUTE, data, x, bytes, e);
    free(x);
    return st;
}

static enum status wrong_matmul(struct backend *b, int lane, const struct matmul_args *args,
                                struct err *e) {
    TRY(faulty.inner->matmul(b, lane, args, e));
    bool target = args->name && !strcmp(args->name, "layers.1.ffn_in.weight") &&
                  args->direction == GEMM_FPROP;
    if (!target || !faulty.t->audit->now) return OK;
    return flip(b, args->out->data, tensor_count(args->out) * 2, 2, e);
}

/* Flips the weight's codes or factors, as they are between two steps. */
static enum status damage(struct backend *b, struct trainer *t, enum fault_kind kind,
                          struct err *e) {
    const struct param *p = params_find(&t->params, "layers.1.ffn_in.weight");
    const struct tensor *codes = &p->weight.codes;
    if (kind == FAULT_WEIGHT)
        return flip(b, codes->data, codes->dim[0] * codes->stride[0], 1, e);
    return kind == FAULT_SCALE ? flip(b, codes->scale.data, scale_bytes(&codes->scale), 4, e) : OK;
}

static void flipped_bits_are_found(void **state) {
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
        const struct setup how = { FAULTS[i].kind, false, false };
        struct gpu_run g;
        struct err e = { 0 };
        open_on(&g, &how, 1, false, NULL);
        struct backend *b = g.run.backend;
        MUST(run_steps(g.run.trainer, 1, NULL, E));
        MUST(trainer_audit_settle(g.run.trainer, E));
        faulty.ops = *b->ops;
        faulty.inner = b->ops;
        faulty.t = g.run.trainer;
        if (FAULTS[i].fault == FAULT_PRODUCT) faulty.ops.matmul = wrong_matmul;
        b->ops = &faulty.ops;
        enum status st = OK;
        int steps = 0;
        for (; steps < 40 && st == OK; steps++) {
            st = damage(b, g.run.trainer, FAULTS[i].fault, &e);
            if (st == OK) st = run_steps(g.run.trainer, 1, NULL, &e);
            if (st == OK) st = trainer_audit_settle(g.run.trainer, &e);
        }
        printf("found after %d audited steps: %s\n", steps, e.text);
        const struct audit_fault *f = trainer_audit_fault(g.run.trainer);
        assert_true(st == ERR_VERIFY && f);
        assert_string_equal(f->what, FAULTS[i].what);
        assert_non_null(strstr(f->name, "layers.1.ffn_in.weight"));
        b->ops = faulty.inner;
        close_run(&g);
    }
}

/* ---- cost ---- */

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* By turns: 10 steps without, 10 with an audit every fifth; the least of each of 6 turns. */
static void what_an_audit_costs(void **state) {
    enum { TURNS = 6, EACH = 10, EVERY = 5 };
    static const enum recipe_kind KIND[] = { RECIPE_BF16, RECIPE_TENSORWISE, RECIPE_BLOCKWISE };
    for (size_t k = 0; k < sizeof KIND / sizeof *KIND; k++) {
        const struct setup how = { KIND[k], false, false };
        struct gpu_run g[2];
        double least[2] = { 1e9, 1e9 };
        char *choices = NULL;
        for (int i = 0; i < 2; i++) {
            open_on(&g[i], &how, i ? EVERY : 0, true, choices);
            MUST(run_steps(g[i].run.trainer, EACH, NULL, E));
            if (i == 0) MUST(g[0].run.backend->ops->choices_save(g[0].run.backend, &choices, E));
        }
        for (int turn = 0; turn < TURNS; turn++)
            for (int i = 0; i < 2; i++) {
                double begin = seconds();
                MUST(run_steps(g[i].run.trainer, EACH, NULL, E));
                double took = (seconds() - begin) / EACH;
                if (took < least[i]) least[i] = took;
            }
        double begin = seconds();
        MUST(trainer_audit_settle(g[1].run.trainer, E));
        double settled = seconds() - begin, one = (least[1] - least[0]) * EVERY;
        printf("%-12s: a step %.3f ms, an audit adds %.3f ms to its step; at every = %d: %.4f %%; "
               "settling waited %.3f ms\n", tiny_kind_name(KIND[k]), 1e3 * least[0], 1e3 * one,
               AUDIT_EVERY, 100 * one / AUDIT_EVERY / least[0], 1e3 * settled);
        for (int i = 0; i < 2; i++) close_run(&g[i]);
        free(choices);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_false_alarm_and_the_same_bits),
        cmocka_unit_test(flipped_bits_are_found),
        cmocka_unit_test(what_an_audit_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
