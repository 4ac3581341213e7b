/* Constants, initial weights, fingerprints, and the collectives of one rank. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "kernels/histogram.h"
#include "tests/support/ops_support.h"

static void test_fill(void **state) {
    struct ops *o = ops_open(2);
    struct tensor x = ops_tensor(o, DTYPE_BF16, 1030, 2, 1, 1);
    struct tensor y = ops_tensor(o, DTYPE_F32, 5, 1, 1, 1);
    OPS_OK(o, o->table->fill(o->b, LANE_COMPUTE, &x, 1.01f, &o->e));
    OPS_OK(o, o->table->fill(o->b, LANE_COMPUTE, &y, -NAN, &o->e));
    double rounded = bf16_decode(bf16_encode(1.01f));
    for (int64_t i = 0; i < 2060; i++) assert_true(ops_get(&x, i) == rounded);
    for (int i = 0; i < 5; i++) assert_int_equal(((uint32_t *)y.data)[i], 0x7FC00000u);
    ops_close(o);
}

static void test_normal_moments_and_bits(void **state) {
    enum { COUNT = 300000 };
    for (int threads = 1; threads <= 3; threads++) {
        struct ops *o = ops_open(threads);
        struct tensor x = ops_tensor(o, DTYPE_F32, COUNT, 1, 1, 1);
        OPS_OK(o, o->table->fill_normal(o->b, LANE_COMPUTE, &x, 0.02f, 1, 2, 0, &o->e));
        double sum = 0, square = 0;
        for (int64_t i = 0; i < COUNT; i++) {
            double z = ops_get(&x, i) / 0.02;
            sum += z / COUNT;
            square += z * z / COUNT;
        }
        assert_true(fabs(sum) < 5 / sqrt(COUNT));               /* 5 sigma */
        assert_true(fabs(square - 1) < 5 * sqrt(2.0 / COUNT));
        if (ops_hash(&x) != 0x75DB09923C79772Du)
            fail_msg("%d threads: hash 0x%016llX", threads, (unsigned long long)ops_hash(&x));
        ops_close(o);
    }
}

/* A shard has the values of the whole tensor at its place. Seed and tensor id matter. bf16 is the
 * f32 draw, rounded. */
static void test_normal_is_counter_based(void **state) {
    struct ops *o = ops_open(2);
    struct tensor whole = ops_tensor(o, DTYPE_F32, 3000, 1, 1, 1);
    struct tensor part = ops_tensor(o, DTYPE_BF16, 1700, 1, 1, 1);
    struct tensor other = ops_tensor(o, DTYPE_F32, 3000, 1, 1, 1);
    OPS_OK(o, o->table->fill_normal(o->b, 0, &whole, 1, 9, 4, 0, &o->e));
    OPS_OK(o, o->table->fill_normal(o->b, 0, &part, 1, 9, 4, 1300, &o->e));
    for (int64_t i = 0; i < 1700; i++)
        assert_int_equal(((uint16_t *)part.data)[i], bf16_encode(((float *)whole.data)[1300 + i]));
    OPS_OK(o, o->table->fill_normal(o->b, 0, &other, 1, 10, 4, 0, &o->e));
    assert_true(ops_hash(&other) != ops_hash(&whole));
    OPS_OK(o, o->table->fill_normal(o->b, 0, &other, 1, 9, 5, 0, &o->e));
    assert_true(ops_hash(&other) != ops_hash(&whole));
    ops_close(o);
}

static uint64_t fingerprint(struct ops *o, const struct tensor *x) {
    struct tensor out = ops_tensor(o, DTYPE_U64, 1, 1, 1, 1);
    OPS_OK(o, o->table->fingerprint(o->b, LANE_COMPUTE, &out, x, &o->e));
    return *(uint64_t *)out.data;
}

static void test_fingerprint_is_the_definition(void **state) {
    static const enum dtype TYPES[] = { DTYPE_F32, DTYPE_BF16, DTYPE_E4M3, DTYPE_U64 };
    for (int t = 0; t < 4; t++)
        for (int threads = 1; threads <= 3; threads++) {
            struct ops *o = ops_open(threads);
            struct tensor x = ops_tensor(o, TYPES[t], 211, 100, 1, 1);
            int64_t bytes = dtype_bytes(TYPES[t]);
            unsigned char *data = x.data;
            for (int64_t i = 0; i < 21100 * bytes; i++)
                data[i] = (unsigned char)rng_bits(1, (uint64_t)i);
            uint64_t want = 0, strided = 0;
            for (int64_t i = 0; i < 21100; i++) {
                uint64_t bits = 0;
                memcpy(&bits, data + i * bytes, (size_t)bytes);
                want += (bits + 1) * (2 * rng_mix((uint64_t)i) + 1);
                int64_t at = i / 100 * 40 + i % 100; /* the first 40 columns, as their own tensor */
                if (i % 100 < 40) strided += (bits + 1) * (2 * rng_mix((uint64_t)at) + 1);
            }
            assert_true(fingerprint(o, &x) == want);
            x.dim[1] = 40;
            assert_true(fingerprint(o, &x) == strided);
            ops_close(o);
        }
}

/* The fingerprint changes if a bit changes, two different neighbours swap, or an element is
 * missing. */
static void test_fingerprint_sensitivity(void **state) {
    struct ops *o = ops_open(1);
    struct tensor x = ops_tensor(o, DTYPE_BF16, 50, 1, 1, 1);
    uint16_t *data = x.data;
    uint64_t zeros = fingerprint(o, &x);
    for (int i = 0; i < 50; i++) data[i] = (uint16_t)(i * 257);
    uint64_t before = fingerprint(o, &x);
    for (int i = 0; i < 50; i += 7)
        for (int bit = 0; bit < 16; bit++) {
            data[i] ^= (uint16_t)(1 << bit);
            assert_true(fingerprint(o, &x) != before);
            data[i] ^= (uint16_t)(1 << bit);
        }
    for (int i = 1; i < 50; i++) {
        uint16_t kept = data[i];
        data[i] = data[i - 1], data[i - 1] = kept;
        assert_true(fingerprint(o, &x) != before);
        kept = data[i];
        data[i] = data[i - 1], data[i - 1] = kept;
    }
    assert_true(fingerprint(o, &x) == before);
    memset(data, 0, 100);
    x.dim[0] = 49;
    assert_true(fingerprint(o, &x) != zeros);
    ops_close(o);
}

/* The bucket of a value by comparing it with the edges. */
static int bucket_by_edges(float x) {
    if (isnan(x)) return HISTOGRAM_NAN;
    for (int i = 1; i < HISTOGRAM_NAN; i++) {
        double edge = histogram_edge(i);
        /* A bucket of negative values has its upper edge, not its lower one. */
        if (i <= HISTOGRAM_ZERO ? (double)x <= edge : (double)x < edge) return i - 1;
    }
    return HISTOGRAM_NAN - 1;
}

static void expect_histogram(struct ops *o, const struct tensor *x, const uint64_t *want) {
    struct tensor counts = ops_tensor(o, DTYPE_U64, HISTOGRAM_COUNTS, 1, 1, 1);
    OPS_OK(o, o->table->histogram(o->b, LANE_COMPUTE, &counts, x, &o->e));
    for (int i = 0; i < HISTOGRAM_COUNTS; i++)
        if (((uint64_t *)counts.data)[i] != want[i])
            fail_msg("bucket %d has %llu, not %llu", i,
                     (unsigned long long)((uint64_t *)counts.data)[i], (unsigned long long)want[i]);
}

/* Any bits: every power of two, subnormal numbers, infinity, NaN. */
static void test_histogram_is_the_definition(void **state) {
    for (int c = 0; c < 4; c++) {
        bool bf16 = c % 2;
        struct ops *o = ops_open(1 + 2 * (c / 2));
        struct tensor x = ops_tensor(o, bf16 ? DTYPE_BF16 : DTYPE_F32, 211, 100, 1, 1);
        uint64_t want[HISTOGRAM_COUNTS] = { 0 }, part[HISTOGRAM_COUNTS] = { 0 };
        for (int64_t i = 0; i < 21100; i++) {
            uint32_t bits = (uint32_t)rng_bits(1, (uint64_t)i);
            if (i % 3 == 0) bits &= 0xFF800000u; /* a power of two */
            if (i % 7 == 0) bits &= 0x80000000u;
            if (bf16) bits &= 0xFFFF0000u;
            if (bf16) ((uint16_t *)x.data)[i] = (uint16_t)(bits >> 16);
            else ((uint32_t *)x.data)[i] = bits;
            int bucket = bucket_by_edges(f32_from_bits(bits));
            want[bucket]++;
            if (i % 100 < 40) part[bucket]++;
        }
        assert_true(want[0] && want[HISTOGRAM_ZERO] && want[HISTOGRAM_NAN - 1] &&
                    want[HISTOGRAM_NAN]);
        expect_histogram(o, &x, want);
        x.dim[1] = 40; /* the first 40 columns, as their own tensor */
        expect_histogram(o, &x, part);
        ops_close(o);
    }
}

static void test_collectives_of_one_rank(void **state) {
    struct ops *o = ops_open(1);
    const struct comm_ops *c = &o->table->comm;
    struct tensor x = ops_tensor(o, DTYPE_F32, 16, 1, 1, 1);
    struct tensor y = ops_tensor(o, DTYPE_F32, 16, 1, 1, 1);
    struct tensor amax = ops_tensor(o, DTYPE_U32, 4, 1, 1, 1);
    struct tensor few = ops_tensor(o, DTYPE_F32, 8, 1, 1, 1);
    ops_fill(&x, 1, 1);
    uint64_t before = ops_hash(&x);
    OPS_OK(o, c->init(o->b, NULL, &o->e));
    assert_true(c->rank(o->b) == 0 && c->world(o->b) == 1);
    OPS_OK(o, c->all_reduce(o->b, LANE_COMM, &x, REDUCE_SUM, &o->e));
    OPS_OK(o, c->all_reduce(o->b, LANE_COMM, &amax, REDUCE_MAX, &o->e));
    OPS_OK(o, c->broadcast(o->b, LANE_COMM, &x, 0, &o->e));
    assert_int_equal(ops_hash(&x), before);
    OPS_OK(o, c->all_gather(o->b, LANE_COMM, &y, &x, &o->e));
    assert_int_equal(ops_hash(&y), before);
    memset(y.data, 0, 64);
    OPS_OK(o, c->reduce_scatter(o->b, LANE_COMM, &y, &x, &o->e));
    assert_int_equal(ops_hash(&y), before);
    OPS_OK(o, c->reduce_scatter(o->b, LANE_COMM, &x, &x, &o->e));
    memset(y.data, 0, 64);
    OPS_OK(o, c->reduce_scatter_codes(o->b, LANE_COMM, &y, &x, &o->e));
    assert_int_equal(ops_hash(&y), before);
    OPS_OK(o, c->poll(o->b, &o->e));
    c->abort(o->b);
    const struct comm_group unlinked = { .rank = 0, .world = 2 };
    const struct comm_group outside = { .rank = 2, .world = 2 };
    OPS_ERR(o, c->init(o->b, &unlinked, &o->e), ERR_ARG, "without a link to rank 1");
    OPS_ERR(o, c->init(o->b, &outside, &o->e), ERR_ARG, "rank 2 of 2");
    OPS_ERR(o, c->all_reduce(o->b, 0, &x, REDUCE_MAX, &o->e), ERR_ARG, "x is f32");
    OPS_ERR(o, c->all_reduce(o->b, 0, &amax, REDUCE_SUM, &o->e), ERR_ARG, "x is u32");
    OPS_ERR(o, c->all_gather(o->b, 0, &few, &x, &o->e), ERR_ARG, "16 f32 and 8 f32, with 1 ranks");
    OPS_ERR(o, c->reduce_scatter(o->b, 0, &few, &x, &o->e), ERR_ARG,
            "8 f32 and 16 f32, with 1 ranks");
    OPS_ERR(o, c->reduce_scatter_codes(o->b, 0, &amax, &amax, &o->e), ERR_ARG, "u32");
    OPS_ERR(o, c->broadcast(o->b, 0, &x, 1, &o->e), ERR_ARG, "root 1 of 1 ranks");
    ops_close(o);
}

/* A row of codes, a column of values, one number: each from the next 16 bytes on. */
static void test_gather(void **state) {
    struct ops *o = ops_open(1);
    struct tensor codes = ops_tensor(o, DTYPE_E4M3, 3, 5, 1, 1);
    struct tensor values = ops_tensor(o, DTYPE_BF16, 4, 6, 1, 1);
    struct tensor one = ops_tensor(o, DTYPE_F32, 1, 1, 1, 1);
    struct tensor out = ops_tensor(o, DTYPE_U64, 5, 1, 1, 1);
    for (int i = 0; i < 15; i++) ((uint8_t *)codes.data)[i] = (uint8_t)(i + 1);
    for (int i = 0; i < 24; i++) ((uint16_t *)values.data)[i] = (uint16_t)(0x100 + i);
    *(float *)one.data = 2.5f;
    memset(out.data, 0xEE, 40);
    struct tensor row = codes, column = values, x[3];
    row.data = (char *)codes.data + 5;
    row.dim[0] = 1;
    column.data = (char *)values.data + 2 * 2;
    column.dim[1] = 1;
    x[0] = row, x[1] = column, x[2] = one;
    OPS_OK(o, o->table->gather(o->b, LANE_COMPUTE, &out, x, 3, &o->e));
    const uint8_t *bytes = out.data;
    for (int i = 0; i < 5; i++) assert_int_equal(bytes[i], 6 + i);
    assert_int_equal(bytes[5], 0xEE); /* a gap */
    for (int i = 0; i < 4; i++)
        assert_int_equal(((const uint16_t *)(bytes + 16))[i], 0x100 + 6 * i + 2);
    assert_float_equal(*(const float *)(bytes + 32), 2.5f, 0);
    out.dim[0] = 4;
    OPS_ERR(o, o->table->gather(o->b, 0, &out, x, 3, &o->e), ERR_ARG, "x[2] ends at 36");
    x[1].data = NULL;
    OPS_ERR(o, o->table->gather(o->b, 0, &out, x, 3, &o->e), ERR_ARG, "x[1] is missing");
    OPS_ERR(o, o->table->gather(o->b, 0, &out, x, -1, &o->e), ERR_ARG, "-1 pieces");
    OPS_ERR(o, o->table->gather(o->b, 0, NULL, x, 1, &o->e), ERR_ARG, "out is missing");
    ops_close(o);
}

static void test_arguments(void **state) {
    struct ops *o = ops_open(1);
    const struct backend_ops *t = o->table;
    struct tensor i32 = ops_i32(o, 0), x = ops_tensor(o, DTYPE_F32, 4, 4, 1, 1), gaps = x;
    gaps.dim[1] = 3;
    OPS_ERR(o, t->fill(o->b, 0, &i32, 1, &o->e), ERR_ARG, "x is i32");
    OPS_ERR(o, t->fill(o->b, 0, &gaps, 1, &o->e), ERR_ARG, "not packed");
    OPS_ERR(o, t->fill_normal(o->b, 0, &i32, 1, 1, 1, 0, &o->e), ERR_ARG, "x is i32");
    OPS_ERR(o, t->fill_normal(o->b, 0, &x, 1, 1, 1, -1, &o->e), ERR_ARG, "element_base -1");
    OPS_ERR(o, t->fingerprint(o->b, 0, &i32, &x, &o->e), ERR_ARG, "out is i32");
    OPS_ERR(o, t->fingerprint(o->b, 0, &x, NULL, &o->e), ERR_ARG, "out is f32");
    struct tensor counts = ops_tensor(o, DTYPE_U64, HISTOGRAM_COUNTS, 1, 1, 1);
    OPS_ERR(o, t->histogram(o->b, 0, &counts, &i32, &o->e), ERR_ARG, "x is i32");
    OPS_ERR(o, t->histogram(o->b, 0, &counts, NULL, &o->e), ERR_ARG, "x is missing");
    counts.stride[0] = 2;
    OPS_ERR(o, t->histogram(o->b, 0, &counts, &x, &o->e), ERR_ARG, "not packed");
    counts.stride[0] = 1;
    counts.dim[0] = 9;
    OPS_ERR(o, t->histogram(o->b, 0, &counts, &x, &o->e), ERR_ARG, "counts is [9, 1]");
    ops_close(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fill), cmocka_unit_test(test_normal_moments_and_bits),
        cmocka_unit_test(test_normal_is_counter_based),
        cmocka_unit_test(test_fingerprint_is_the_definition),
        cmocka_unit_test(test_fingerprint_sensitivity),
        cmocka_unit_test(test_histogram_is_the_definition),
        cmocka_unit_test(test_collectives_of_one_rank), cmocka_unit_test(test_gather),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
