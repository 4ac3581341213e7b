/* Bad input at the operator interface. If the CPU backend rejects it, the CUDA backend returns the
 * same status, names the operator and queues nothing. A backend works after a failed capture. The
 * running operators are known, and the error of a fault names them.
 *
 * Rows are operators with valid arguments. Each argument in turn is missing, of another dtype, one
 * row longer, one column longer, and full of gaps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernels/histogram.h"
#include "tests/gpu/pair.h"

enum { ARGS_MAX = 10, R = 64, C = 32, HEADS = 4, KV = 2, DIM = 16, T = 16, V = 48, VOCAB = V - 2 };
enum { W = (HEADS + 2 * KV) * DIM };

#include "tests/gpu/operators.h"

#define H DTYPE_BF16
#define F DTYPE_F32

struct shape { enum dtype t; int64_t d[4]; };
struct row {
    const char *name;
    operator_call call;
    struct shape arg[ARGS_MAX];
};

#define VECTOR(t, n) { t, { n, 1, 1, 1 } }
#define MATRIX(t, rows, cols) { t, { rows, cols, 1, 1 } }
#define ONE(t) VECTOR(t, 1)
#define QKV { H, { R / T, T, HEADS + 2 * KV, DIM } }
#define SQUARES { H, { HEADS, T, T, 1 } }
#define LSE { F, { R / T, HEADS, T, 1 } }

static const struct row ROWS[] = {
    { "matmul", matmul, { MATRIX(H, R, C), MATRIX(H, R, 24), MATRIX(H, C, 24), VECTOR(H, C),
                          MATRIX(H, R, C) } },
    { "quantise", quantise, { MATRIX(H, R, C), MATRIX(H, R, C) } },
    { "copy", copy, { MATRIX(H, R, C), MATRIX(F, R, C) } },
    { "embedding_fwd", embedding_fwd, { MATRIX(H, R, C), VECTOR(DTYPE_I32, R), MATRIX(H, V, C),
                                        MATRIX(H, T, C), VECTOR(DTYPE_I32, R) } },
    { "embedding_bwd", embedding_bwd, { MATRIX(F, V, C), MATRIX(F, T, C), MATRIX(H, R, C),
                                        VECTOR(DTYPE_I32, R), VECTOR(DTYPE_I32, R) } },
    { "rmsnorm_fwd", rmsnorm_fwd, { MATRIX(H, R, C), VECTOR(F, R), MATRIX(H, R, C),
                                    VECTOR(H, C) } },
    { "rmsnorm_bwd", rmsnorm_bwd, { MATRIX(H, R, C), VECTOR(F, C), MATRIX(H, R, C), MATRIX(H, R, C),
                                    VECTOR(H, C), VECTOR(F, R), MATRIX(H, R, C) } },
    { "layernorm_fwd", layernorm_fwd, { MATRIX(H, R, C), VECTOR(F, R), VECTOR(F, R),
                                        MATRIX(H, R, C), VECTOR(H, C), VECTOR(H, C) } },
    { "layernorm_bwd", layernorm_bwd, { MATRIX(H, R, C), VECTOR(F, C), VECTOR(F, C),
                                        MATRIX(H, R, C), MATRIX(H, R, C), VECTOR(H, C),
                                        VECTOR(F, R), VECTOR(F, R), MATRIX(H, R, C) } },
    { "qk_fwd", qk_fwd, { QKV, { F, { R / T, T, HEADS + KV, 1 } }, QKV, VECTOR(H, DIM),
                          VECTOR(H, DIM), MATRIX(F, T, DIM), MATRIX(DTYPE_I32, R / T, T) } },
    { "qk_bwd", qk_bwd, { MATRIX(H, R, W), VECTOR(F, DIM), VECTOR(F, DIM), QKV, QKV,
                          VECTOR(H, DIM), VECTOR(H, DIM), { F, { R / T, T, HEADS + KV, 1 } },
                          MATRIX(F, T, DIM), MATRIX(DTYPE_I32, R / T, T) } },
    { "attention_fwd", attention_fwd, { MATRIX(H, R, HEADS * DIM), LSE, QKV } },
    { "attention_bwd", attention_bwd, { QKV, LSE, MATRIX(H, R, HEADS * DIM),
                                        MATRIX(H, R, HEADS * DIM), QKV, LSE } },
    { "softmax_fwd", softmax_fwd, { SQUARES, SQUARES } },
    { "softmax_bwd", softmax_bwd, { SQUARES, SQUARES, SQUARES } },
    { "swiglu_fwd", swiglu_fwd, { MATRIX(H, R, C), MATRIX(H, R, 2 * C) } },
    { "swiglu_bwd", swiglu_bwd, { MATRIX(H, R, 2 * C), MATRIX(H, R, C), MATRIX(H, R, 2 * C) } },
    { "gelu_fwd", gelu_fwd, { MATRIX(H, R, C), MATRIX(H, R, C) } },
    { "gelu_bwd", gelu_bwd, { MATRIX(H, R, C), MATRIX(H, R, C), MATRIX(H, R, C) } },
    { "cross_entropy", cross_entropy, { VECTOR(F, R), MATRIX(H, R, V), MATRIX(H, R, V),
                                        VECTOR(DTYPE_I32, R), ONE(F) } },
    { "sum", sum, { ONE(F), VECTOR(F, R) } },
    { "add", add, { VECTOR(F, R), VECTOR(H, R) } },
    { "sum_squares", sum_squares, { ONE(F), VECTOR(F, R) } },
    { "clip_factor", clip_factor, { ONE(F), ONE(F), VECTOR(F, R) } },
    { "adamw", adamw, { MATRIX(H, R, C), VECTOR(F, R * C), VECTOR(F, R * C), MATRIX(F, R, C),
                        ONE(F), ONE(F), ONE(F), ONE(F), ONE(DTYPE_I32), VECTOR(DTYPE_I32, 2) } },
    { "flag_nonfinite", flag_nonfinite, { VECTOR(DTYPE_I32, 2), ONE(DTYPE_I32), VECTOR(F, R) } },
    { "fill", fill, { MATRIX(H, R, C) } },
    { "fill_normal", fill_normal, { MATRIX(H, R, C) } },
    { "fingerprint", fingerprint, { ONE(DTYPE_U64), MATRIX(H, R, C) } },
    { "histogram", histogram, { VECTOR(DTYPE_U64, HISTOGRAM_COUNTS), MATRIX(H, R, C) } },
};

static struct pair *p;
static int setup(void **state) { p = pair_open(); return 0; }
static int teardown(void **state) { pair_close(p); return 0; }

/* ---- mutations of one argument ---- */

static void missing(struct tensor *x) { x->data = NULL; }
static void integers(struct tensor *x) {
    x->dtype = x->dtype == DTYPE_I32 ? DTYPE_U32 : DTYPE_I32;
}
static void longer(struct tensor *x) { x->dim[0]++; }
static void wider(struct tensor *x) {
    x->dim[1]++;
    x->stride[0] = x->dim[1] * x->dim[2] * x->dim[3];
}
static void with_gaps(struct tensor *x) {
    if (x->dim[1] == 1 && x->dim[2] == 1 && x->dim[3] == 1) x->stride[0] = 2;
    else x->stride[1] = x->stride[1] * 2;
}

static const struct { const char *name; void (*apply)(struct tensor *x); } WRONG[] = {
    { "missing", missing }, { "of another dtype", integers }, { "longer", longer },
    { "wider", wider },     { "with gaps", with_gaps },
};

/* Twice the memory that an argument needs, so that an accepted bad argument causes no fault. */
static int make_args(const struct row *row, struct twin *out) {
    int n = 0;
    for (; n < ARGS_MAX && row->arg[n].d[0]; n++) {
        const int64_t *d = row->arg[n].d;
        out[n] = pair_tensor(p, row->arg[n].t, 4 * d[0], d[1], d[2], d[3]);
        for (int s = 0; s < SIDES; s++) out[n].side[s].dim[0] = d[0];
    }
    return n;
}

static enum status run_with(const struct row *row, const struct twin *args, int n, int side,
                            int which, void (*wrong)(struct tensor *), struct err *e) {
    struct tensor copy_of[ARGS_MAX], *t[ARGS_MAX] = { NULL };
    for (int i = 0; i < n; i++) {
        copy_of[i] = args[i].side[side];
        t[i] = &copy_of[i];
    }
    if (wrong) wrong(t[which]);
    return row->call(p->b[side], t, e);
}

static void both_answer(const struct row *row, const struct twin *args, int n, int which,
                        size_t wrong) {
    struct err e[SIDES] = { { 0 }, { 0 } };
    enum status st[SIDES];
    for (int s = 0; s < SIDES; s++)
        st[s] = run_with(row, args, n, s, which, WRONG[wrong].apply, &e[s]);
    if (st[CPU] != st[GPU])
        fail_msg("%s, argument %d %s: cpu %s (%s), cuda %s (%s)", row->name, which,
                 WRONG[wrong].name, status_name(st[CPU]), e[CPU].text, status_name(st[GPU]),
                 e[GPU].text);
    if (st[GPU] != OK && strncmp(e[GPU].text, row->name, strlen(row->name)) != 0)
        fail_msg("%s, argument %d %s: says %s", row->name, which, WRONG[wrong].name, e[GPU].text);
    if (p->ops[GPU]->sync(p->b[GPU], &p->e) != OK)
        fail_msg("%s, argument %d %s: %s", row->name, which, WRONG[wrong].name, p->e.text);
}

static void bad_arguments_are_refused_alike(void **state) {
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        const struct row *row = &ROWS[i];
        struct twin args[ARGS_MAX];
        int n = make_args(row, args);
        for (int s = 0; s < SIDES; s++)
            if (run_with(row, args, n, s, 0, NULL, &p->e) != OK)
                fail_msg("%s with good arguments: %s", row->name, p->e.text);
        for (int which = 0; which < n; which++)
            for (size_t w = 0; w < sizeof WRONG / sizeof *WRONG; w++)
                both_answer(row, args, n, which, w);
        pair_clear(p);
    }
}

static void too_much_memory_is_an_error(void **state) {
    void *memory;
    struct err e = { 0 };
    struct backend *b = p->b[GPU];
    assert_int_equal(b->ops->memory_create(b, "weights", (int64_t)1 << 50, &memory, &e),
                     ERR_MEMORY);
    assert_non_null(strstr(e.text, "memory for weights: 1125899906842624 bytes wanted"));
    assert_non_null(strstr(e.text, "free on the device"));
    assert_int_equal(b->ops->memory_create(b, "x", -1, &memory, &e), ERR_ARG);
    assert_int_equal(b->ops->memory_create(b, "x", 16, &memory, &e), OK); /* still works */
    b->ops->memory_destroy(b, memory);
}

/* If an operator fails in a capture, the capture and all graphs are dropped. Otherwise no memory
 * could be allocated or freed, and later work would be recorded instead of run. */
static void failed_capture_is_abandoned(void **state) {
    struct backend *b = p->b[GPU];
    const struct backend_ops *ops = b->ops;
    struct twin x = pair_tensor(p, F, 1000, 1, 1, 1), out = pair_tensor(p, H, 96, 56, 1, 1);
    struct twin m = pair_tensor(p, H, 96, 40, 1, 1), n = pair_tensor(p, H, 56, 40, 1, 1);
    struct tensor *product[ARGS_MAX] = { &out.side[GPU], &m.side[GPU], &n.side[GPU] };
    float seen[1000];
    void *memory;
    bool replayed;
    struct err e = { 0 };
    ops->graph_drop(b);
    for (int round = 0; round < 4; round++) { /* uncaptured, failed capture, uncaptured, captured */
        float value = (float)(round + 1);
        assert_int_equal(ops->graph_begin(b, GRAPH_UPDATE, &e), OK);
        assert_int_equal(ops->fill(b, LANE_COMPUTE, &x.side[GPU], value, &e), OK);
        if (round == 1) {
            assert_int_equal(matmul(b, product, &e), ERR_STATE);
            assert_non_null(strstr(e.text, "was not seen in the warm-up pass"));
            ops->graph_drop(b);
            assert_int_equal(ops->memory_create(b, "x", 1 << 20, &memory, &e), OK);
            ops->memory_destroy(b, memory);
            value = 1; /* recorded operators have not run */
        } else {
            assert_int_equal(ops->graph_end(b, GRAPH_UPDATE, &e), OK);
        }
        assert_int_equal(ops->download(b, LANE_COMPUTE, seen, x.side[GPU].data, sizeof seen, &e),
                         OK);
        for (int i = 0; i < 1000; i++) assert_true(seen[i] == value);
        assert_int_equal(ops->graph_replay(b, GRAPH_UPDATE, &replayed, &e), OK);
        assert_int_equal(replayed, round == 3);
    }
    ops->graph_drop(b);
    pair_clear(p);
}

/* Whether the device soon reports no running operator: marks are set after the operators. */
static bool is_idle(struct backend *b) {
    char in[160];
    for (int i = 0; i < 1000; i++) {
        const struct timespec nap = { 0, 1000000 };
        if (!b->ops->in_progress(b, in, sizeof in)) return true;
        (void)nanosleep(&nap, NULL);
    }
    return false;
}

/* in_progress while a second of work is queued, outside graphs and in one; then when it is done. */
static void running_operators_are_known(void **state) {
    enum { TIMES = 400 };
    struct backend *b = p->b[GPU];
    const struct backend_ops *ops = b->ops;
    const int64_t n = (int64_t)1 << 29;
    struct err e = { 0 };
    void *memory;
    char in[160] = "";
    assert_int_equal(ops->memory_create(b, "x", n * 4, &memory, &e), OK);
    struct tensor x = tensor_1d(memory, F, n);
    ops->graph_drop(b);
    assert_int_equal(ops->sync(b, &e), OK);
    assert_true(is_idle(b));
    for (int i = 0; i < TIMES; i++) assert_int_equal(ops->fill(b, LANE_COMPUTE, &x, 1, &e), OK);
    assert_true(ops->in_progress(b, in, sizeof in));
    assert_non_null(strstr(in, "fill")); /* the group of four also has operators queued before */
    assert_true(ops->in_progress(b, in, 3));
    assert_int_equal(strlen(in), 2);
    assert_int_equal(ops->sync(b, &e), OK);
    assert_true(is_idle(b));
    for (int round = 0; round < 3; round++) { /* uncaptured, captured, replayed */
        bool replayed;
        assert_int_equal(ops->graph_replay(b, GRAPH_UPDATE, &replayed, &e), OK);
        assert_int_equal(replayed, round == 2);
        if (!replayed) {
            assert_int_equal(ops->graph_begin(b, GRAPH_UPDATE, &e), OK);
            for (int i = 0; i < TIMES; i++)
                assert_int_equal(ops->zero(b, LANE_COMPUTE, &x, &e), OK);
            assert_int_equal(ops->graph_end(b, GRAPH_UPDATE, &e), OK);
        }
        /* A graph reports nothing before it has begun. */
        for (int i = 0; i < 100000 && !ops->in_progress(b, in, sizeof in); i++) continue;
        assert_non_null(strstr(in, "zero"));
        assert_int_equal(ops->sync(b, &e), OK);
        assert_true(is_idle(b));
    }
    assert_false(p->ops[CPU]->in_progress(p->b[CPU], in, sizeof in));
    ops->graph_drop(b);
    ops->memory_destroy(b, memory);
}

/* ---- faults: each in a process of its own, since the device's context dies with them ---- */

static struct tensor block(struct backend *b, int64_t n) {
    void *data;
    struct err e = { 0 };
    if (b->ops->memory_create(b, "a test", n * 4, &data, &e) != OK) exit(2);
    return tensor_1d(data, F, n);
}

/* A fill of an invalid address between other operators; returns the status of the sync. */
static enum status fault_outside_graphs(struct backend *b, struct err *e) {
    struct tensor good = block(b, 1 << 20), one = block(b, 1);
    struct tensor bad = tensor_1d((void *)(uintptr_t)0x7000000000, F, 1 << 20);
    for (int i = 0; i < 5; i++) TRY(b->ops->sum(b, LANE_COMPUTE, &one, &good, 1, 0, e));
    TRY(b->ops->fill(b, LANE_COMPUTE, &bad, 1, e));
    for (int i = 0; i < 5; i++) TRY(b->ops->sum(b, LANE_COMPUTE, &one, &good, 1, 0, e));
    return b->ops->sync(b, e);
}

/* The same in a graph that was valid until its memory was freed. */
static enum status fault_in_a_graph(struct backend *b, struct err *e) {
    struct tensor good = block(b, 1 << 20), one = block(b, 1), gone = block(b, 1 << 26);
    bool replayed = false;
    for (int step = 0; step < 4; step++) {
        if (step == 3) b->ops->memory_destroy(b, gone.data);
        TRY(b->ops->graph_replay(b, GRAPH_UPDATE, &replayed, e));
        if (!replayed) {
            TRY(b->ops->graph_begin(b, GRAPH_UPDATE, e));
            for (int i = 0; i < 9; i++) TRY(b->ops->sum(b, LANE_COMPUTE, &one, &good, 1, 0, e));
            TRY(b->ops->fill(b, LANE_COMPUTE, &gone, 1, e));
            for (int i = 0; i < 9; i++) TRY(b->ops->sum(b, LANE_COMPUTE, &one, &good, 1, 0, e));
            TRY(b->ops->graph_end(b, GRAPH_UPDATE, e));
        }
        TRY(b->ops->sync(b, e));
    }
    return OK;
}

/* Runs it in a child process; returns its status and error text. */
static enum status in_a_child(enum status (*fault)(struct backend *, struct err *),
                              char text[1024]) {
    int end[2], code = 0;
    assert_int_equal(pipe(end), 0);
    pid_t child = fork();
    if (child == 0) {
        struct backend_handle handle = { 0 };
        struct err e = { .text = "" };
        enum status st = backend_open("cuda", 0, 0, &handle, &e);
        if (st == OK) st = fault(handle.backend, &e);
        if (write(end[1], e.text, strlen(e.text) + 1) < 0) st = ERR_IO;
        _exit(st);
    }
    close(end[1]);
    ssize_t n = read(end[0], text, 1023);
    text[n > 0 ? n : 0] = 0;
    close(end[0]);
    assert_int_equal(waitpid(child, &code, 0), child);
    return WIFEXITED(code) ? (enum status)WEXITSTATUS(code) : ERR_PEER;
}

static void a_fault_names_its_operator(void **state) {
    char text[1024];
    enum status st = in_a_child(fault_outside_graphs, text);
    print_message("%s\n", text);
    assert_int_equal(st, ERR_DEVICE);
    assert_non_null(strstr(text, "the device failed in "));
    assert_non_null(strstr(text, "fill"));
    st = in_a_child(fault_in_a_graph, text);
    print_message("%s\n", text);
    assert_int_equal(st, ERR_DEVICE);
    assert_non_null(strstr(text, "the device failed in "));
    assert_non_null(strstr(text, "fill"));
}

int main(void) {
    const struct CMUnitTest faults[] = { cmocka_unit_test(a_fault_names_its_operator) };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_arguments_are_refused_alike),
        cmocka_unit_test(too_much_memory_is_an_error),
        cmocka_unit_test(failed_capture_is_abandoned),
        cmocka_unit_test(running_operators_are_known),
    };
    /* Faults first: a process that has opened a device cannot fork one that does. */
    int failed = cmocka_run_group_tests(faults, NULL, NULL);
    return failed + cmocka_run_group_tests(tests, setup, teardown);
}
