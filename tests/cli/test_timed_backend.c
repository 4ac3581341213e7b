/* A step with timed operators has the same bits as a step without. Every operator is counted in its
 * part, and no measured time is below its floor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>

#include "kernels/cpu/cpu_backend.h"
#include "runner/bench/step_bench.h"
#include "tests/support/tiny.h"

enum { STEPS = 3 };

static void need(enum status st, const struct err *e) {
    if (st != OK) fail_msg("%s", e->text);
}

/* STEPS losses; with `record`, each step timed. */
static void train_run(struct tiny_run *run, float loss[STEPS], struct timed_record *record) {
    struct timed *timed = NULL;
    struct step_result result;
    struct err e;
    need(tiny_run_open(run, &e), &e);
    const struct backend_ops *before = run->backend->ops;
    if (record) need(timed_start(run->backend, &timed, &e), &e);
    for (int i = 0; i < STEPS; i++) {
        need(trainer_step(run->trainer, false, &result, &e), &e);
        if (record) need(timed_step_done(timed, &e), &e);
        loss[i] = result.loss;
    }
    if (record) timed_stop(timed, record);
    assert_ptr_equal(run->backend->ops, before); /* the table is restored */
    tiny_run_close(run);
}

static void train(enum recipe_kind kind, float loss[STEPS], struct timed_record *record) {
    struct tiny_run run;
    tiny_run_init(&run, kind, STEPS);
    train_run(&run, loss, record);
}

static int64_t calls_of(const struct timed_record *r, enum timed_part part, const char *op) {
    int64_t n = 0;
    for (int64_t i = 0; i < r->call_count; i++)
        n += r->call[i].part == part && (!op || !strcmp(r->call[i].op, op));
    return n;
}

static int64_t calls_in(const struct timed_record *r, enum timed_phase phase, const char *op) {
    int64_t n = 0;
    for (int64_t i = 0; i < r->call_count; i++)
        n += r->call[i].phase == phase && !strcmp(r->call[i].op, op);
    return n;
}

/* 2 micro-batches; 4 GEMMs a layer and one of the head forward, twice as many backward. Order
 * within a step: the update comes last. */
static void each_call_has_its_phase(const struct timed_record *r) {
    assert_int_equal(calls_in(r, PHASE_FORWARD, "matmul"), 2 * (2 * 4 + 1));
    assert_int_equal(calls_in(r, PHASE_BACKWARD, "matmul"), 2 * 2 * (2 * 4 + 1));
    assert_int_equal(calls_in(r, PHASE_UPDATE, "matmul"), 0);
    assert_int_equal(calls_in(r, PHASE_FORWARD, "attention_fwd"), 2 * 2);
    assert_int_equal(calls_in(r, PHASE_BACKWARD, "attention_bwd"), 2 * 2);
    assert_int_equal(calls_in(r, PHASE_UPDATE, "adamw"), calls_of(r, PART_OPTIMIZER, "adamw"));
    bool updates = false;
    for (int64_t i = 0; i < r->call_count; i++) {
        assert_true(!updates || r->call[i].phase == PHASE_UPDATE);
        updates = r->call[i].phase == PHASE_UPDATE;
    }
    assert_true(updates);
}

/* tiny_model: 2 layers; tiny_train: 2 micro-batches a step. */
static void timing_changes_no_bit_and_misses_no_operator(void **state) {
    for (int kind = RECIPE_F32; kind < RECIPE_KIND_COUNT; kind++) {
        float plain[STEPS], timed[STEPS];
        struct timed_record r;
        train((enum recipe_kind)kind, plain, NULL);
        train((enum recipe_kind)kind, timed, &r);
        assert_memory_equal(plain, timed, sizeof plain);
        assert_int_equal(r.steps, STEPS);
        assert_int_equal(calls_of(&r, PART_GEMM, "matmul"), 2 * 4 * 3 * 2);
        assert_int_equal(calls_of(&r, PART_GEMM, NULL), calls_of(&r, PART_GEMM, "matmul"));
        assert_int_equal(calls_of(&r, PART_ATTENTION, NULL), 2 * 2 * 2);
        assert_true(calls_of(&r, PART_HEAD, "matmul") >= 2 * 3);
        assert_true(calls_of(&r, PART_HEAD, "cross_entropy") >= 2);
        assert_true(calls_of(&r, PART_OPTIMIZER, "adamw") > 0);
        assert_int_equal(calls_of(&r, PART_QUANTISE, "delayed_update") > 0, kind == RECIPE_DELAYED);
        for (int64_t i = 0; i < r.call_count; i++) assert_true(r.call[i].time_us >= 0);
        each_call_has_its_phase(&r);
        timed_record_free(&r);
    }
}

/* The bytes that each call of a part must move, equal for all its calls; -1: no call. */
static double bytes_of_each(const struct timed_record *r, enum timed_part part, const char *op) {
    double bytes = -1;
    for (int64_t i = 0; i < r->call_count; i++) {
        if (r->call[i].part != part || strcmp(r->call[i].op, op)) continue;
        assert_true(bytes < 0 || bytes == r->call[i].bytes);
        bytes = r->call[i].bytes;
    }
    return bytes;
}

/* Without rotation (GPT-2) no operator runs between attention's backward and the qkv GEMMs.
 * Attention writes the operands of these GEMMs, values or codes, without a separate pass. The head
 * makes its codes chunk by chunk. 64 rows a micro-batch, 128 outputs of qkv, 4 heads of 16, width
 * 64. */
static void codes_belong_to_their_producer(void **state) {
    enum { READ = 64 * (128 * 2 + 64 * 2 + 64 * 2 + 4 * 4) }; /* qkv, o, d_o; log-sum-exp */
    static const struct {
        enum recipe_kind kind;
        bool fp8_head;
        int64_t head; /* calls of a step: 2 micro-batches, 4 chunks */
        enum scale_kind codes; /* that attention makes, in both directions */
        double attention_bytes, head_bytes; /* of one call */
    } CASE[] = {
        { RECIPE_BF16, false, 0, SCALE_NONE, READ + 64 * 128 * 2, -1 },
        { RECIPE_DELAYED, false, 0, SCALE_TENSOR, READ + 64 * 128 * 2, -1 }, /* and transposed */
        { RECIPE_TENSORWISE, true, 8, SCALE_TENSOR, READ + 64 * 128 * 2, 16 * 64 * (2 + 2) },
    };
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        struct tiny_run run;
        struct timed_record r;
        float loss[STEPS];
        tiny_run_init(&run, CASE[i].kind, STEPS);
        run.model.norm = NORM_LAYER;
        run.model.activation = ACTIVATION_GELU;
        run.model.positions = POSITION_LEARNED;
        run.model.bias = true;
        run.train.head_chunk = 16;
        if (CASE[i].fp8_head) run.recipe.head = tiny_recipe_options(CASE[i].kind);
        train_run(&run, loss, &r);
        assert_int_equal(calls_of(&r, PART_NORM, "quantise"), 0);
        assert_int_equal(calls_of(&r, PART_QUANTISE, "quantise"), 0);
        assert_int_equal(calls_of(&r, PART_HEAD, "quantise"), CASE[i].head);
        assert_true(bytes_of_each(&r, PART_ATTENTION, "attention_bwd") ==
                    CASE[i].attention_bytes);
        assert_int_equal(r.attention_count, 2);
        assert_int_equal(r.attention[0].codes, CASE[i].codes);
        assert_int_equal(r.attention[1].codes, CASE[i].codes);
        assert_true(bytes_of_each(&r, PART_HEAD, "quantise") == CASE[i].head_bytes);
        /* After codes: those of a chunk's input and of its gradient. */
        assert_int_equal(calls_of(&r, PART_HEAD, "quantise_finish"), CASE[i].head + 2 * 4);
        timed_record_free(&r);
    }
}

static void shapes_and_their_operations(void **state) {
    float loss[STEPS];
    struct timed_record r;
    train(RECIPE_BLOCKWISE, loss, &r);
    bool found = false;
    for (int i = 0; i < r.gemm_count; i++) {
        const struct gemm_shape *s = &r.gemm[i];
        assert_true(s->m > 0 && s->n > 0 && s->k > 0);
        bool qkv = s->direction == GEMM_FPROP && s->m == 64 && s->n == 128 && s->k == 64;
        if (!qkv || s->a == DTYPE_BF16) continue; /* the head has the same shape */
        found = true; /* 2 x 32 tokens, (4 + 2 * 2) * 16 outputs, width 64 */
        assert_true(s->a == DTYPE_E4M3 && s->a_scale == SCALE_1X128);
        assert_true(s->b == DTYPE_E4M3 && s->b_scale == SCALE_128X128);
        assert_true(gemm_flop(s) == 2.0 * 64 * 128 * 64);
    }
    assert_true(found);
    assert_int_equal(r.attention_count, 2);
    const struct attention_shape forward = r.attention[0], backward = r.attention[1];
    assert_true(forward.batch == 2 && forward.seq_len == 32 && forward.heads == 4);
    assert_true(forward.kv_heads == 2 && forward.head_dim == 16 && !forward.backward);
    /* With rotation, the operator after attention's backward makes the codes of its result. */
    assert_true(forward.codes == SCALE_1X128 && backward.codes == SCALE_NONE);
    /* Two products over half of the pairs forward, five backward. */
    assert_true(attention_keys(&forward) == 16);
    assert_true(attention_flop(&forward) == 2 * 2.0 * (2 * 4 * 32 * 32 / 2) * 16);
    assert_true(backward.backward && attention_flop(&backward) == 2.5 * attention_flop(&forward));
    struct attention_shape window = forward; /* the first 7 queries see fewer than 8 keys */
    window.window = 8;
    assert_true(attention_flop(&window) == 2 * 2.0 * (2 * 4 * (32 * 8 - 8 * 8 / 2)) * 16);
    timed_record_free(&r);
}

/* Two products of one shape, an attention, a copy, a pure read: no time is below its floor. */
static void no_floor_is_above_the_measured_time(void **state) {
    struct timed_call call[] = {
        { .gemm = 0, .attention = -1, .time_us = 30 },
        { .gemm = 0, .attention = -1, .time_us = 8 },
        { .gemm = -1, .attention = 0, .time_us = 50 },
        { .gemm = -1, .attention = -1, .bytes = 4e3, .time_us = 9 },
        { .gemm = -1, .attention = -1, .bytes = 4e3, .time_us = 3 },
    };
    struct step_bench s = { .copy_bytes_per_s = 1e9,
                            .record = { .call = call, .call_count = 5, .gemm_count = 1,
                                        .attention_count = 1 } };
    s.gemm[0].best_us = 20; /* measured while another program was running */
    s.attention[0].best_us = 40;
    step_lower_ceilings(&s);
    static const double FLOOR_US[] = { 8, 8, 40, 4, 3 };
    for (int i = 0; i < 5; i++) assert_true(step_call_floor_us(&s, &call[i]) == FLOOR_US[i]);
}

static void a_step_with_other_operators_is_rejected(void **state) {
    struct tiny_run run;
    struct timed *timed = NULL;
    struct timed_record r;
    struct step_result result;
    struct err e;
    tiny_run_init(&run, RECIPE_BF16, STEPS);
    need(tiny_run_open(&run, &e), &e);
    need(timed_start(run.backend, &timed, &e), &e);
    need(trainer_step(run.trainer, false, &result, &e), &e);
    need(timed_step_done(timed, &e), &e);
    assert_int_equal(timed_step_done(timed, &e), ERR_STATE); /* a step without an operator */
    timed_stop(timed, &r);
    timed_record_free(&r);
    tiny_run_close(&run);
    timed_stop(NULL, &r);
}

/* One shape more than a record holds, of attention and then of GEMMs: the error names the kind. */
static void too_many_shapes_are_named(void **state) {
    static float x[(SHAPES_MAX + 1) * 12];
    struct backend *b;
    struct timed *timed = NULL;
    struct timed_record r;
    struct err e;
    enum status attention = OK, gemm = OK;
    need(cpu_backend_open(&b, 1, &e), &e);
    need(timed_start(b, &timed, &e), &e);
    for (int64_t t = 1; t <= SHAPES_MAX + 1; t++) {
        struct tensor qkv = { .data = x, .dtype = DTYPE_F32, .dim = { 1, t, 3, 2 },
                              .stride = { 6 * t, 6, 2, 1 } };
        struct tensor o = tensor_2d(x + 6 * t, DTYPE_F32, t, 2);
        struct tensor lse = { .data = x + 8 * t, .dtype = DTYPE_F32, .dim = { 1, 1, t, 1 },
                              .stride = { t, t, 1, 1 } };
        struct sink sink = sink_value(&o, NULL);
        assert_int_equal(attention, OK);
        attention = b->ops->attention_fwd(b, LANE_COMPUTE, &(struct attention_fwd_args){
                .o = &sink, .lse = &lse, .qkv = &qkv, .heads = 1, .kv_heads = 1 }, &e);
    }
    assert_int_equal(attention, ERR_ARG);
    assert_string_equal(e.text, "a step with more than 128 shapes of attention");
    for (int64_t m = 1; m <= SHAPES_MAX + 1; m++) {
        struct tensor a = tensor_2d(x, DTYPE_F32, m, 4), w = tensor_2d(x, DTYPE_F32, 4, 4);
        struct tensor out = tensor_2d(x + 4 * m, DTYPE_F32, m, 4);
        struct matmul_args args = { .out = &out, .a = &a, .b = &w };
        assert_int_equal(gemm, OK);
        gemm = b->ops->matmul(b, LANE_COMPUTE, &args, &e);
    }
    assert_int_equal(gemm, ERR_ARG);
    assert_string_equal(e.text, "a step with more than 128 shapes of GEMM");
    timed_stop(timed, &r);
    timed_record_free(&r);
    b->ops->close(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timing_changes_no_bit_and_misses_no_operator),
        cmocka_unit_test(codes_belong_to_their_producer),
        cmocka_unit_test(shapes_and_their_operations),
        cmocka_unit_test(no_floor_is_above_the_measured_time),
        cmocka_unit_test(too_many_shapes_are_named),
        cmocka_unit_test(a_step_with_other_operators_is_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
