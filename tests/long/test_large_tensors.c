/* Operators on more elements than 32 bits can count. Elements at both ends and around 2^31 and 2^32
 * must be treated like the rest, which a 32-bit index or count would break. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/must.h"
#include "tests/support/ops_support.h"

enum { COLS = 4096 };
static const int64_t BEYOND_31 = ((int64_t)1 << 31) + 16 * COLS,
                     BEYOND_32 = ((int64_t)1 << 32) + 16 * COLS;

/* Places at which a wrong index would show: the ends, and both sides of 2^31 and 2^32. */
enum { PROBES = 8 };
static int64_t probe(int i, int64_t n) {
    const int64_t at[PROBES] = { 0, (1ll << 31) - 1, 1ll << 31, (1ll << 31) + 1, (1ll << 32) - 1,
                                 1ll << 32, (1ll << 32) + 1, n - 1 };
    return at[i] < n ? at[i] : n - 2; /* shorter than 2^32: the last element but one */
}

/* Skips without enough memory: 32-bit mistakes do not show in smaller tensors. */
static struct ops *open_with(int64_t bytes) {
    char line[128];
    long long available_kib = -1;
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %lld kB", &available_kib) == 1) break;
    if (f) fclose(f);
    int64_t wanted = bytes + ((int64_t)1 << 30);
    if (available_kib * 1024 < wanted) {
        print_message("SKIPPED: needs %lld MiB of memory, %lld MiB are available\n",
                      (long long)(wanted >> 20), available_kib >> 10);
        skip();
    }
    return ops_open(0);
}

static struct tensor large(struct ops *o, enum dtype t, int64_t n) {
    return ops_tensor(o, t, n / COLS, COLS, 1, 1);
}

static uint64_t fingerprint(struct ops *o, const struct tensor *x) {
    uint64_t bits = 0;
    struct tensor out = tensor_1d(&bits, DTYPE_U64, 1);
    OPS_OK(o, o->table->fingerprint(o->b, LANE_COMPUTE, &out, x, &o->e));
    return bits;
}

static void check_constant(const struct tensor *x, double value) {
    int64_t n = tensor_count(x);
    for (int i = 0; i < PROBES; i++) assert_true(ops_get(x, probe(i, n)) == value);
    for (int64_t i = 0; i < n; i += 65537) assert_true(ops_get(x, i) == value);
}

/* Each probe gets its own value; the fingerprint must change as its definition says. */
static void fingerprint_sees_each(struct ops *o, const struct tensor *x) {
    const uint16_t *bits = x->data;
    uint64_t before = fingerprint(o, x), moved = 0;
    for (int i = 0; i < PROBES; i++) {
        int64_t at = probe(i, tensor_count(x));
        uint64_t old = bits[at];
        ops_set(x, at, 131072.0 * (1 + i / 64.0));
        moved += (bits[at] - old) * (2 * rng_mix((uint64_t)at) + 1);
    }
    assert_true(fingerprint(o, x) - before == moved);
}

/* Each probe contributes an eighth of the sum. */
static void sum_of_squares_sees_each(struct ops *o, const struct tensor *x, double rest) {
    int64_t n = tensor_count(x);
    struct tensor out = ops_f32(o, -1);
    double want = (double)(n - PROBES) * rest * rest;
    for (int i = 0; i < PROBES; i++) want += pow(ops_get(x, probe(i, n)), 2);
    OPS_OK(o, o->table->sum_squares(o->b, LANE_COMPUTE, &out, x, 1, &o->e));
    OPS_BELOW(fabs(ops_get(&out, 0) / want - 1), 1e-5, "sum of squares of 2^32 elements");
}

/* Current scaling: the amax is the very last element. All elements but the probes underflow, so the
 * count of underflows exceeds 2^32. */
static void quantise(struct ops *o, struct tensor *x, bool twin) {
    int64_t n = tensor_count(x), rows = n / COLS;
    struct tensor codes = tensor_fp8(ops_memory(o, n), DTYPE_E4M3, rows, COLS), transposed;
    struct tensor amax = ops_tensor(o, DTYPE_U32, 1, 1, 1, 1);
    struct tensor stats = ops_tensor(o, DTYPE_U64, 2, 1, 1, 1);
    codes.scale = scale_make(ops_memory(o, 64), SCALE_TENSOR, rows, COLS);
    if (twin) {
        transposed = tensor_fp8(ops_memory(o, n), DTYPE_E4M3, COLS, rows);
        transposed.scale = scale_make(ops_memory(o, 64), SCALE_TENSOR, COLS, rows);
        codes.transposed = &transposed;
    }
    struct sink sink = { .value = x, .codes = &codes, .amax = &amax, .stats = &stats,
                         .source = SCALE_SOURCE_AMAX, .rule = { .constants = QUANT_TE },
                         .keep_value = true };
    float last = 262144.0f, multiplier = 448.0f / last;
    ops_set(x, n - 1, -last);
    OPS_OK(o, o->table->quantise(o->b, LANE_COMPUTE, &sink, x, &o->e));
    OPS_OK(o, o->table->quantise_finish(o->b, LANE_COMPUTE, &sink, &o->e));
    assert_int_equal(*(uint32_t *)amax.data, f32_bits(last));
    assert_true(((float *)codes.scale.data)[0] == 1 / multiplier);
    const uint8_t *code = codes.data;
    int64_t moved = 0;
    for (int i = 0; i < PROBES; i++) {
        int64_t at = probe(i, n);
        bool seen = i > 0 && probe(i - 1, n) == at;
        moved += !seen;
        uint8_t want = e4m3_encode((float)ops_get(x, at) * multiplier);
        assert_true(want != 0);
        assert_int_equal(code[at], want);
        int64_t mirrored = twin ? at % COLS * transposed.stride[0] + at / COLS : 0;
        if (twin) assert_int_equal(((uint8_t *)transposed.data)[mirrored], want);
    }
    assert_int_equal(((uint64_t *)stats.data)[0], 0);
    assert_true(((uint64_t *)stats.data)[1] == (uint64_t)(n - moved));
    OPS_OK(o, o->table->zero(o->b, LANE_COMPUTE, &codes, &o->e));
    for (int i = 0; i < PROBES; i++) assert_int_equal(code[probe(i, n)], 0);
}

/* 8.6 GB of BF16 and 4.3 GB of codes. */
static void more_than_2_to_the_32(void **state) {
    struct ops *o = open_with(3 * BEYOND_32);
    struct tensor x = large(o, DTYPE_BF16, BEYOND_32);
    OPS_OK(o, o->table->fill(o->b, LANE_COMPUTE, &x, 0.5f, &o->e));
    check_constant(&x, 0.5);
    fingerprint_sees_each(o, &x);
    sum_of_squares_sees_each(o, &x, 0.5);
    quantise(o, &x, false);
    OPS_OK(o, o->table->zero(o->b, LANE_COMPUTE, &x, &o->e));
    check_constant(&x, 0);
    ops_close(o);
}

/* 4.3 GB of BF16 with a copy, then with 4.3 GB of codes in both directions. */
static void more_than_2_to_the_31(void **state) {
    struct ops *o = open_with(6 * BEYOND_31);
    struct tensor x = large(o, DTYPE_BF16, BEYOND_31), y = large(o, DTYPE_BF16, BEYOND_31);
    OPS_OK(o, o->table->fill(o->b, LANE_COMPUTE, &x, 0.5f, &o->e));
    fingerprint_sees_each(o, &x);
    OPS_OK(o, o->table->copy(o->b, LANE_COMPUTE, &y, &x, &o->e));
    assert_true(fingerprint(o, &y) == fingerprint(o, &x));
    for (int i = 0; i < PROBES; i++)
        assert_true(ops_get(&y, probe(i, BEYOND_31)) == ops_get(&x, probe(i, BEYOND_31)));
    quantise(o, &y, true);
    ops_close(o);
}

/* 4.3 GB of BF16 widened into 8.6 GB of F32. */
static void widening_copy(void **state) {
    struct ops *o = open_with(6 * BEYOND_31);
    struct tensor x = large(o, DTYPE_BF16, BEYOND_31), y = large(o, DTYPE_F32, BEYOND_31);
    OPS_OK(o, o->table->fill(o->b, LANE_COMPUTE, &x, 0.5f, &o->e));
    for (int i = 0; i < PROBES; i++) ops_set(&x, probe(i, BEYOND_31), 3.0 + i);
    OPS_OK(o, o->table->copy(o->b, LANE_COMPUTE, &y, &x, &o->e));
    for (int64_t i = 0; i < BEYOND_31; i += 65537) assert_true(ops_get(&y, i) == ops_get(&x, i));
    for (int i = 0; i < PROBES; i++)
        assert_true(ops_get(&y, probe(i, BEYOND_31)) == ops_get(&x, probe(i, BEYOND_31)));
    ops_close(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_than_2_to_the_32),
        cmocka_unit_test(more_than_2_to_the_31),
        cmocka_unit_test(widening_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
