/* Slots without arithmetic: opening, memory, copies between dtypes and strides, read-back,
 * order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/support/op_tensor.h"

static void test_open(void **state) {
    struct backend *b = NULL;
    struct device_info info;
    struct err e;
    assert_int_equal(cpu_backend_open(&b, -1, &e), ERR_ARG);
    assert_null(b);
    assert_int_equal(cpu_backend_open(&b, 1000000, &e), ERR_ARG);
    assert_int_equal(cpu_backend_open(&b, 3, &e), OK);
    assert_int_equal(b->ops->size, sizeof(struct backend_ops));
    assert_int_equal(strlen(b->ops->kernels_sha256), 64);
    assert_string_equal(b->ops->name, "cpu");
    assert_int_equal(b->ops->info(b, &info, &e), OK);
    assert_non_null(strstr(info.name, "3 threads"));
    assert_true(info.memory_bytes >= info.memory_free && info.memory_free > 0);
    assert_int_equal(cpu_backend_use(b, "mmx", &e), ERR_UNSUPPORTED);
    assert_int_equal(cpu_backend_use(b, "portable", &e), OK);
    assert_int_equal(b->ops->info(b, &info, &e), OK);
    assert_string_equal(info.name, "cpu: portable C, 3 threads");
    void (*close)(struct backend *) = b->ops->close; /* closing frees the table */
    close(b);
    close(NULL);
}

/* An empty slot would crash in the middle of a step. Pointers follow size, hash and name. */
static void test_every_slot_is_filled(void **state) {
    struct backend *b = op_backend(1, NULL);
    const unsigned char *p = (const unsigned char *)b->ops;
    size_t at = offsetof(struct backend_ops, comm);
    for (; at < sizeof *b->ops; at += sizeof(void *)) {
        void *slot;
        memcpy(&slot, p + at, sizeof slot);
        if (!slot) fail_msg("the slot at byte %zu is empty", at);
    }
    op_free();
}

static void test_memory(void **state) {
    struct backend *b = op_backend(1, NULL);
    unsigned char out[300], in[300];
    void *memory = NULL;
    struct err e;
    assert_int_equal(b->ops->memory_create(b, "weights", 300, &memory, &e), OK);
    assert_int_equal((uintptr_t)memory % ARENA_ALIGN, 0);
    assert_int_equal(b->ops->download(b, LANE_COMPUTE, out, memory, 300, &e), OK);
    for (int i = 0; i < 300; i++) assert_int_equal(out[i], 0);
    for (int i = 0; i < 300; i++) in[i] = (unsigned char)i;
    assert_int_equal(b->ops->upload(b, LANE_COPY, memory, in, 300, &e), OK);
    assert_int_equal(b->ops->download(b, LANE_COMPUTE, out, memory, 300, &e), OK);
    assert_memory_equal(in, out, 300);
    b->ops->memory_destroy(b, memory);
    assert_int_equal(b->ops->memory_create(b, "nothing", 0, &memory, &e), OK);
    assert_non_null(memory);
    b->ops->memory_destroy(b, memory);
    assert_int_equal(b->ops->memory_create(b, "weights", -1, &memory, &e), ERR_ARG);
    assert_int_equal(b->ops->upload(b, LANE_COPY, out, in, -1, &e), ERR_ARG);
    assert_int_equal(b->ops->download(b, LANE_COPY, out, in, -1, &e), ERR_ARG);
    op_free();
}

static void test_memory_that_is_not_there(void **state) {
#if defined(__SANITIZE_ADDRESS__)
    skip(); /* the address sanitizer ends the program at such a request by default */
#endif
    struct backend *b = op_backend(1, NULL);
    void *memory = &memory;
    struct err e;
    int64_t huge = (int64_t)1 << 55;
    assert_int_equal(b->ops->memory_create(b, "activations", huge, &memory, &e), ERR_MEMORY);
    assert_null(memory);
    assert_non_null(strstr(e.text, "activations"));
    assert_non_null(strstr(e.text, "36028797018963968"));
    op_free();
}

static void test_readback(void **state) {
    struct backend *b = op_backend(1, NULL);
    struct err e;
    float loss = 2.5f, got = 0;
    assert_int_equal(b->ops->readback_fetch(b, 1, &got, &e), ERR_STATE);
    assert_int_equal(b->ops->readback(b, LANE_COMPUTE, 1, &loss, sizeof loss, &e), OK);
    loss = 0;
    assert_int_equal(b->ops->readback_fetch(b, 1, &got, &e), OK);
    assert_true(got == 2.5f);
    assert_int_equal(b->ops->readback(b, LANE_COMPUTE, 4, &loss, sizeof loss, &e), ERR_ARG);
    assert_int_equal(b->ops->readback(b, LANE_COMPUTE, -1, &loss, sizeof loss, &e), ERR_ARG);
    assert_int_equal(b->ops->readback(b, LANE_COMPUTE, 0, &loss, READBACK_BYTES + 1, &e), ERR_ARG);
    assert_int_equal(b->ops->readback_fetch(b, 4, &got, &e), ERR_ARG);
    bool ready = false;
    assert_int_equal(b->ops->readback_ready(b, 1, &ready, &e), OK);
    assert_true(ready);
    assert_int_equal(b->ops->readback_ready(b, 2, &ready, &e), ERR_STATE);
    op_free();
}

/* Every pair of act dtypes, packed and through transposed views on either side. Codes are copied to
 * their twin. */
static void test_copy(void **state) {
    static const enum dtype ACT[] = { DTYPE_F32, DTYPE_BF16 };
    struct backend *b = op_backend(2, NULL);
    struct err e;
    for (int c = 0; c < 16; c++) {
        enum dtype from = ACT[c & 1], to = ACT[c >> 1 & 1];
        struct tensor *x = op_tensor(from, 37, 21, SCALE_NONE);
        struct tensor *y = op_tensor(to, 37, 21, SCALE_NONE), in = *x, out = *y;
        op_fill(x, 1, 3);
        op_set(x, 5, 5, NAN);
        if (c & 4) in = op_transposed_view(x);
        if (c & 8) out = op_transposed_view(y);
        bool fits = !(c & 4) == !(c & 8);
        assert_int_equal(b->ops->copy(b, LANE_COMPUTE, &out, &in, &e), fits ? OK : ERR_ARG);
        for (int64_t i = 0; fits && i < 37; i++)
            for (int64_t j = 0; j < 21; j++) {
                float want = op_stored(x, i, j);
                if (to == DTYPE_BF16) want = bf16_decode(bf16_encode(want));
                assert_int_equal(f32_bits(op_stored(y, i, j)), f32_bits(want));
            }
    }
    struct tensor *codes = op_tensor(DTYPE_E4M3, 37, 21, SCALE_TENSOR);
    struct tensor *twin = op_tensor(DTYPE_E4M3, 21, 37, SCALE_TENSOR);
    struct tensor transposed = op_transposed_view(codes);
    op_fill(codes, 2, 3);
    assert_int_equal(b->ops->copy(b, LANE_COMPUTE, twin, &transposed, &e), OK);
    for (int64_t i = 0; i < 37; i++)
        for (int64_t j = 0; j < 21; j++)
            assert_true(op_stored(twin, j, i) == op_stored(codes, i, j));
    struct tensor *tokens = op_tensor(DTYPE_I32, 4, 4, SCALE_NONE);
    struct tensor *other = op_tensor(DTYPE_I32, 4, 4, SCALE_NONE);
    struct tensor *f32 = op_tensor(DTYPE_F32, 4, 4, SCALE_NONE);
    ((int32_t *)tokens->data)[7] = 42;
    assert_int_equal(b->ops->copy(b, LANE_COMPUTE, other, tokens, &e), OK);
    assert_int_equal(((int32_t *)other->data)[7], 42);
    assert_int_equal(b->ops->copy(b, LANE_COMPUTE, f32, tokens, &e), ERR_ARG);
    op_free();
}

/* zero() writes only the elements of the view. */
static void test_zero(void **state) {
    struct backend *b = op_backend(1, NULL);
    struct tensor *x = op_tensor(DTYPE_BF16, 10, 12, SCALE_NONE), view = *x;
    struct err e;
    op_fill(x, 1, 3);
    view.dim[0] = 3;
    view.dim[1] = 5;
    assert_int_equal(b->ops->zero(b, LANE_COMPUTE, &view, &e), OK);
    for (int64_t i = 0; i < 10; i++)
        for (int64_t j = 0; j < 12; j++)
            assert_int_equal(op_stored(x, i, j) == 0, i < 3 && j < 5);
    assert_int_equal(b->ops->zero(b, LANE_COMPUTE, x, &e), OK);
    for (int64_t i = 0; i < 120; i++) assert_int_equal(((uint16_t *)x->data)[i], 0);
    op_free();
}

static void test_order_and_graphs(void **state) {
    struct backend *b = op_backend(1, NULL);
    struct err e;
    bool replayed = true;
    assert_int_equal(b->ops->signal(b, LANE_COMPUTE, 0, &e), OK);
    assert_int_equal(b->ops->wait(b, LANE_COMM, EVENT_COUNT - 1, &e), OK);
    assert_int_equal(b->ops->signal(b, LANE_COMPUTE, EVENT_COUNT, &e), ERR_ARG);
    assert_int_equal(b->ops->wait(b, LANE_COMPUTE, -1, &e), ERR_ARG);
    assert_int_equal(b->ops->sync(b, &e), OK);
    assert_int_equal(b->ops->graph_begin(b, GRAPH_UPDATE, &e), OK);
    assert_int_equal(b->ops->graph_end(b, GRAPH_UPDATE, &e), OK);
    assert_int_equal(b->ops->graph_replay(b, GRAPH_UPDATE, &replayed, &e), OK);
    assert_false(replayed); /* the CPU captures nothing */
    b->ops->graph_drop(b);
    op_free();
}

static void test_timer(void **state) {
    struct backend *b = op_backend(1, NULL);
    struct err e;
    double us = -1;
    assert_int_equal(b->ops->timer_mark(b, LANE_COMPUTE, TIMER_MARKS, &e), ERR_ARG);
    assert_int_equal(b->ops->timer_read(b, 0, -1, &us, &e), ERR_ARG);
    assert_int_equal(b->ops->timer_mark(b, LANE_COMPUTE, 0, &e), OK);
    assert_int_equal(b->ops->timer_read(b, 0, 1, &us, &e), ERR_STATE);
    assert_non_null(strstr(e.text, "mark 1"));
    assert_int_equal(b->ops->timer_mark(b, LANE_COMPUTE, 1, &e), OK);
    assert_int_equal(b->ops->timer_read(b, 0, 1, &us, &e), OK);
    assert_true(us >= 0 && us < 60e6);
    op_free();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_every_slot_is_filled),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_memory_that_is_not_there),
        cmocka_unit_test(test_readback),
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_zero),
        cmocka_unit_test(test_order_and_graphs),
        cmocka_unit_test(test_timer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
