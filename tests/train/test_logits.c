/* Logits are those of the loss, of causal sequences, in every recipe; they change no bit of a run.
 * A trainer that only goes forward takes less memory and gives the same bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels/exactmath.h"
#include "model/checkpoint.h"
#include "model/logits.h"
#include "tests/support/must.h"
#include "tests/support/tiny.h"

enum { B = 2, T = 32, V = 96, STEPS = 4, CHUNK = 48 };

static void init(struct tiny_run *r, enum recipe_kind kind) {
    tiny_run_init(r, kind, STEPS);
    r->train.head_chunk = CHUNK; /* of 64 rows: a second, shorter chunk */
    if (kind != RECIPE_F32 && kind != RECIPE_BF16) r->recipe.head = r->site[0];
}

static void text(int32_t tokens[B * T], int salt) {
    for (int i = 0; i < B * T; i++) tokens[i] = (i * i + 7 * i + salt) % V;
}

static void all_rows(int64_t row[B * T]) {
    for (int i = 0; i < B * T; i++) row[i] = i;
}

struct record { float loss[STEPS], norm[STEPS], eval; char weights[65]; };

static void train(enum recipe_kind kind, bool asks, struct record *out) {
    struct tiny_run r;
    static float logits[3 * V];
    int32_t tokens[B * T];
    const int64_t row[3] = { B * T - 1, 0, CHUNK };
    memset(out, 0, sizeof *out);
    init(&r, kind);
    MUST(tiny_run_open(&r, E));
    for (int i = 0; i < STEPS; i++) {
        struct step_result s;
        text(tokens, i);
        if (asks) MUST(trainer_logits(r.trainer, tokens, row, 3, logits, E));
        MUST(trainer_step(r.trainer, false, &s, E));
        out->loss[i] = s.loss;
        out->norm[i] = s.grad_norm;
    }
    struct eval_result eval;
    if (asks) MUST(trainer_logits(r.trainer, tokens, row, 3, logits, E));
    MUST(trainer_eval(r.trainer, 2, &eval, E));
    out->eval = eval.loss;
    MUST(trainer_weights_sha256(r.trainer, out->weights, E));
    tiny_run_close(&r);
}

static void no_bit_of_a_run_changes(void **state) {
    for (int kind = 0; kind < RECIPE_KIND_COUNT; kind++) {
        struct record a, b;
        train((enum recipe_kind)kind, false, &a);
        train((enum recipe_kind)kind, true, &b);
        if (memcmp(&a, &b, sizeof a)) fail_msg("%s", RECIPE_KIND_NAMES[kind]);
    }
}

/* ---- the loss ---- */

static double loss_of(const float *logits, int32_t target) {
    double sum = 0;
    for (int i = 0; i < V; i++) sum += exp((double)logits[i]);
    return log(sum) - (double)logits[target];
}

static void their_loss_is_the_evaluation(void **state) {
    static float logits[B * T * V];
    for (int kind = 0; kind < RECIPE_KIND_COUNT; kind++) {
        struct tiny_run r;
        struct step_result s;
        struct eval_result eval;
        int32_t tokens[B * T], targets[B * T];
        int64_t row[B * T];
        double loss = 0;
        init(&r, (enum recipe_kind)kind);
        MUST(tiny_run_open(&r, E));
        MUST(trainer_step(r.trainer, false, &s, E));
        MUST(trainer_eval(r.trainer, 1, &eval, E));
        MUST(data_batch(r.data, SPLIT_EVAL, 0, B, tokens, targets, NULL, E));
        all_rows(row);
        MUST(trainer_logits(r.trainer, tokens, row, B * T, logits, E));
        for (int i = 0; i < B * T; i++) loss += loss_of(logits + i * V, targets[i]) / (B * T);
        if (fabs(loss - (double)eval.loss) > 1e-5)
            fail_msg("%s: %.8f, evaluated %.8f", RECIPE_KIND_NAMES[kind], loss, (double)eval.loss);
        tiny_run_close(&r);
    }
}

/* What stands behind a row does not reach it, and documents are not looked for. */
static void sequences_are_causal(void **state) {
    static float first[B * T * V], second[B * T * V];
    static const struct { enum recipe_kind kind; int64_t window; bool apart; } CASES[] = {
        { RECIPE_F32, 0, false }, { RECIPE_BF16, 8, false }, { RECIPE_BF16, 8, true },
        { RECIPE_BF16, 0, true },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct tiny_run r;
        int32_t tokens[B * T];
        int64_t row[B * T];
        init(&r, CASES[i].kind);
        r.model.window = CASES[i].window;
        MUST(tiny_run_open(&r, E));
        text(tokens, 1);
        all_rows(row);
        MUST(trainer_logits(r.trainer, tokens, row, B * T, first, E));
        if (CASES[i].apart) { /* the same of a trainer whose data have documents */
            trainer_destroy(r.trainer);
            r.train.documents = (struct document_options){ true, true };
            MUST(trainer_create(&r.trainer, r.backend, &r.model, &r.recipe, &r.train, NULL, E));
        }
        for (int t = 20; t < T; t++) tokens[t] = (tokens[t] + 5) % V;
        MUST(trainer_logits(r.trainer, tokens, row, B * T, second, E));
        assert_memory_equal(first, second, 20 * V * sizeof *first);
        assert_memory_equal(first + T * V, second + T * V, T * V * sizeof *first);
        assert_true(memcmp(first + 20 * V, second + 20 * V, V * sizeof *first) != 0);
        tiny_run_close(&r);
    }
}

/* ---- forward only ---- */

static void open_forward(struct tiny_run *f, const struct tiny_run *like) {
    *f = *like;
    f->recipe.site = f->site;
    f->train.forward_only = true;
    f->train.global_batch = f->train.micro_batch;
    f->train.optimizer = (struct optimizer_options){ 0 };
    f->backend = NULL;
    MUST(tiny_run_open(f, E));
}

/* The weights of a run's checkpoint, in a trainer without a backward. */
static void compare_forward(struct tiny_run *r, struct tiny_run *f, const char *name) {
    static float a[B * T * V], b[B * T * V];
    struct eval_result full, only;
    struct plan plan, smaller;
    int32_t tokens[B * T];
    int64_t row[B * T];
    MUST(trainer_eval(r->trainer, 2, &full, E));
    MUST(trainer_eval(f->trainer, 2, &only, E));
    text(tokens, 3);
    all_rows(row);
    MUST(trainer_logits(r->trainer, tokens, row, B * T, a, E));
    MUST(trainer_logits(f->trainer, tokens, row, B * T, b, E));
    if (memcmp(&full.loss, &only.loss, sizeof full.loss) || memcmp(a, b, sizeof a))
        fail_msg("%s: evaluated %.8f, without a backward %.8f", name, (double)full.loss,
                 (double)only.loss);
    MUST(trainer_plan(&plan, &r->model, &r->recipe, &r->train, 1, E));
    MUST(trainer_plan(&smaller, &f->model, &f->recipe, &f->train, 1, E));
    assert_int_equal(smaller.bytes, trainer_memory_bytes(f->trainer));
    print_message("%-16s %8lld bytes, forward only %8lld\n", name, (long long)plan.bytes,
                  (long long)smaller.bytes);
    assert_true(smaller.bytes < plan.bytes / 2);
    plan_free(&plan);
    plan_free(&smaller);
}

static void forward_only_gives_the_same_bits(void **state) {
    static const unsigned BF16[] = { 0, WGRAD_BF16, FPROP_BF16 | DGRAD_BF16 };
    char dir[] = "/tmp/fp8lab-logits-XXXXXX";
    assert_non_null(mkdtemp(dir));
    for (int kind = 0; kind < RECIPE_KIND_COUNT; kind++)
        for (int g = 0; g < (recipe_is_fp8((enum recipe_kind)kind) ? 3 : 1); g++) {
            struct tiny_run r, f;
            struct step_result s;
            struct checkpoint_info info, loaded;
            init(&r, (enum recipe_kind)kind);
            for (int i = 0; i < 2 * GEMM_SITE_COUNT; i++) tiny_gemms_bf16(&r.site[i], BF16[g]);
            MUST(tiny_run_open(&r, E));
            for (int i = 0; i < STEPS; i++) MUST(trainer_step(r.trainer, false, &s, E));
            MUST(checkpoint_save(r.trainer, dir, &info, E));
            open_forward(&f, &r);
            MUST(checkpoint_load(f.trainer, info.path, &loaded, E));
            compare_forward(&r, &f, RECIPE_KIND_NAMES[kind]);
            MUST_FAIL(ERR_STATE, "makes no steps", trainer_step(f.trainer, false, &s, E));
            MUST_FAIL(ERR_STATE, "no state to save", checkpoint_save(f.trainer, dir, &loaded, E));
            MUST(checkpoint_remove(info.path, E));
            tiny_run_close(&f);
            tiny_run_close(&r);
        }
    assert_int_equal(rmdir(dir), 0);
}

/* ---- errors ---- */

static void wrong_arguments_are_named(void **state) {
    struct tiny_run r;
    struct plan plan;
    int32_t tokens[B * T];
    int64_t row = B * T;
    float logits[V];
    init(&r, RECIPE_BF16);
    MUST(tiny_run_open(&r, E));
    text(tokens, 0);
    MUST_FAIL(ERR_ARG, "row 64", trainer_logits(r.trainer, tokens, &row, 1, logits, E));
    row = 0;
    tokens[5] = V;
    MUST_FAIL(ERR_ARG, "token 96 at row 5", trainer_logits(r.trainer, tokens, &row, 1, logits, E));
    tokens[5] = 0;
    MUST(trainer_queue(r.trainer, false, E));
    MUST_FAIL(ERR_STATE, "collect it first", trainer_logits(r.trainer, tokens, &row, 1, logits, E));
    r.train.forward_only = true;
    r.train.global_batch = 4;
    MUST_FAIL(ERR_CONFIG, "has one rank, found 2",
              trainer_plan(&plan, &r.model, &r.recipe, &r.train, 2, E));
    tiny_run_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_bit_of_a_run_changes),
        cmocka_unit_test(their_loss_is_the_evaluation),
        cmocka_unit_test(sequences_are_causal),
        cmocka_unit_test(forward_only_gives_the_same_bits),
        cmocka_unit_test(wrong_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
