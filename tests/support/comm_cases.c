#include "tests/support/comm_cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/comm_codes.h"

float comm_value(int r, int64_t i) {
    uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)r * 40503u + 12345u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    float unit = (float)(x >> 8) * 0x1p-23f - 1.0f;
    return unit * (x & 1 ? 1.0f : 3000.0f);
}

float comm_sum(int world, int64_t i, enum dtype dtype) {
    float sum = 0;
    for (int r = 0; r < world; r++) {
        float v = comm_value(r, i);
        if (dtype == DTYPE_BF16) v = bf16_decode(bf16_encode(v));
        sum = r ? sum + v : v;
    }
    return dtype == DTYPE_BF16 ? bf16_decode(bf16_encode(sum)) : sum;
}

/* ---- tensors in the backend's memory ----------------------------------------------------------*/

/* `bytes` of device memory that hold `host`. */
static void *place(struct rank_test *t, const void *host, int64_t bytes) {
    const struct backend_ops *ops = t->backend->ops;
    void *data = NULL;
    struct err e = { 0 };
    if (ops->memory_create(t->backend, "test", bytes, &data, &e) == OK &&
        ops->upload(t->backend, LANE_COMM, data, host, bytes, &e) == OK &&
        ops->sync(t->backend, &e) == OK) /* any lane may use it next */
        return data;
    fprintf(stderr, "rank %d: %s\n", t->group.rank, e.text);
    return NULL;
}

static void *fetch(struct rank_test *t, const void *data, int64_t bytes) {
    struct err e = { 0 };
    void *host = malloc((size_t)bytes);
    if (host && t->backend->ops->download(t->backend, LANE_COMM, host, data, bytes, &e) == OK)
        return host;
    fprintf(stderr, "rank %d: %s\n", t->group.rank, e.text);
    free(host);
    return NULL;
}

static void drop(struct rank_test *t, void *data) {
    t->backend->ops->memory_destroy(t->backend, data);
}

struct tensor comm_tensor(struct rank_test *t, enum dtype dtype, int64_t n) {
    unsigned char *host = calloc((size_t)n, 4);
    for (int64_t i = 0; i < n; i++) {
        float v = comm_value(t->group.rank, i);
        uint16_t narrow = bf16_encode(v);
        if (dtype == DTYPE_F32) memcpy(host + 4 * i, &v, 4);
        else memcpy(host + 2 * i, &narrow, 2);
    }
    struct tensor x = tensor_1d(place(t, host, n * dtype_bytes(dtype)), dtype, n);
    free(host);
    return x;
}

float *comm_values(struct rank_test *t, const struct tensor *x) {
    int64_t n = tensor_count(x);
    float *out = malloc((size_t)n * sizeof *out);
    void *host = fetch(t, x->data, n * dtype_bytes(x->dtype));
    for (int64_t i = 0; host && i < n; i++)
        out[i] = x->dtype == DTYPE_F32 ? ((float *)host)[i] : bf16_decode(((uint16_t *)host)[i]);
    if (!host) {
        free(out);
        out = NULL;
    }
    free(host);
    return out;
}

/* ---- cases ------------------------------------------------------------------------------------*/

/* Fewer elements than ranks, uneven slices, several pieces of one slice. */
static const int64_t SIZES[] = { 1, 3, 64, 1000, 1000003 };
static const enum dtype DTYPES[] = { DTYPE_F32, DTYPE_BF16 };

static int one_sum(struct rank_test *t, enum dtype dtype, int64_t n) {
    struct tensor x = comm_tensor(t, dtype, n);
    RANK_CHECK(x.data);
    RANK_MUST(t->backend->ops->comm.all_reduce(t->backend, LANE_COMM, &x, REDUCE_SUM, &must_));
    float *value = comm_values(t, &x);
    RANK_CHECK(value);
    for (int64_t i = 0; i < n; i++) RANK_CHECK(value[i] == comm_sum(t->group.world, i, dtype));
    free(value);
    drop(t, x.data);
    return 0;
}

int comm_sums(struct rank_test *t) {
    for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; s++)
        for (int d = 0; d < 2; d++) RANK_CHECK(one_sum(t, DTYPES[d], SIZES[s]) == 0);
    RANK_MUST(t->backend->ops->comm.poll(t->backend, &must_)); /* reads its position now */
    struct comm_at at = comm_note_read(&t->note).at;
    RANK_CHECK(at.count == 10 && !strcmp(at.what, "all_reduce sum of 1000003 bf16"));
    return 0;
}

int comm_maxima(struct rank_test *t) {
    const uint32_t special[3] = { 0x7F800000u, 0x7FC00000u, 0 }; /* infinity, NaN, zero */
    uint32_t bits[8] = { 0 };
    bits[t->group.rank % 3] = special[t->group.rank % 3];
    bits[3] = 1u << t->group.rank;
    struct tensor x = tensor_1d(place(t, bits, sizeof bits), DTYPE_U32, 8);
    RANK_MUST(t->backend->ops->comm.all_reduce(t->backend, LANE_COMM, &x, REDUCE_MAX, &must_));
    uint32_t *got = fetch(t, x.data, sizeof bits);
    bool nan = t->group.world > 1; /* rank 1 has it */
    RANK_CHECK(got && got[0] == special[0] && got[1] == (nan ? special[1] : 0) && got[2] == 0);
    RANK_CHECK(got[3] == 1u << (t->group.world - 1));
    free(got);
    drop(t, x.data);
    return 0;
}

int comm_scatters(struct rank_test *t) {
    int world = t->group.world, rank = t->group.rank;
    for (int in_place = 0; in_place < 2; in_place++)
        for (int d = 0; d < 2; d++) {
            int64_t n = 300000, bytes = dtype_bytes(DTYPES[d]);
            struct tensor x = comm_tensor(t, DTYPES[d], n * world);
            struct tensor own = comm_tensor(t, DTYPES[d], n);
            struct tensor out = tensor_1d((char *)x.data + rank * n * bytes, DTYPES[d], n);
            if (!in_place) out.data = own.data;
            RANK_MUST(t->backend->ops->comm.reduce_scatter(t->backend, LANE_COMM, &out, &x,
                                                           &must_));
            float *value = comm_values(t, &out);
            RANK_CHECK(value);
            for (int64_t i = 0; i < n; i++)
                RANK_CHECK(value[i] == comm_sum(world, rank * n + i, DTYPES[d]));
            free(value);
            drop(t, own.data);
            drop(t, x.data);
        }
    return 0;
}

/* ---- terms of 8 bits ---- */

enum { ZEROS = 1, INFINITE, NAN_BLOCK }; /* blocks of a slice that begin or are like that */

/* The value of rank r at element i of a slice, n elements each. Each rank's blocks have scales of
 * their own. */
static float coded_value(int r, int64_t slice, int64_t i, int64_t n, enum dtype dtype) {
    int64_t block = i / COMM_BLOCK;
    if (n > 4 * COMM_BLOCK && slice == 0) {
        if (block == ZEROS) return 0;
        if (i == INFINITE * COMM_BLOCK && r == 1) return INFINITY;
        if (i == NAN_BLOCK * COMM_BLOCK + 5 && r == 0) return NAN;
    }
    float v = comm_value(r, slice * n + i) * (block % 3 == 2 ? 0x1p-140f : 1.0f);
    return dtype == DTYPE_BF16 ? bf16_decode(bf16_encode(v)) : v;
}

/* Element i of that slice's sum, by the definition of kernels/comm_codes.h. */
static float coded_sum(int world, int64_t slice, int64_t i, int64_t n, enum dtype dtype) {
    int64_t first = i / COMM_BLOCK * COMM_BLOCK;
    float sum = 0;
    for (int r = 0; r < world; r++) {
        uint32_t top = 0;
        for (int64_t k = first; k < n && k < first + COMM_BLOCK; k++) {
            uint32_t bits = f32_bits(coded_value(r, slice, k, n, dtype)) & 0x7FFFFFFFu;
            top = bits > top ? bits : top;
        }
        uint8_t scale = comm_block_scale(top);
        float x = coded_value(r, slice, i, n, dtype) * e8m0_decode_inverse(scale);
        float term = fp8_decode(DTYPE_E4M3, fp8_encode(DTYPE_E4M3, x)) * e8m0_decode(scale);
        sum = r ? sum + term : term;
    }
    return dtype == DTYPE_BF16 ? bf16_decode(bf16_encode(sum)) : sum;
}

static int one_coded(struct rank_test *t, enum dtype dtype, int64_t n, bool in_place) {
    int world = t->group.world, rank = t->group.rank;
    int64_t bytes = dtype_bytes(dtype);
    unsigned char *host = calloc((size_t)(n * world), (size_t)bytes);
    for (int64_t i = 0; i < n * world; i++) {
        float v = coded_value(rank, i / n, i % n, n, dtype);
        uint16_t narrow = bf16_encode(v);
        memcpy(host + bytes * i, dtype == DTYPE_F32 ? (void *)&v : (void *)&narrow, (size_t)bytes);
    }
    struct tensor x = tensor_1d(place(t, host, n * world * bytes), dtype, n * world);
    struct tensor own = tensor_1d(place(t, host, n * bytes), dtype, n), out = own;
    free(host);
    RANK_CHECK(x.data && own.data);
    if (in_place) out.data = (char *)x.data + rank * n * bytes;
    RANK_MUST(t->backend->ops->comm.reduce_scatter_codes(t->backend, LANE_COMM, &out, &x, &must_));
    float *value = comm_values(t, &out);
    RANK_CHECK(value);
    int64_t step = n > 10000 ? 373 : 1; /* a sum by the definition reads its whole block */
    for (int64_t i = 0; i < n; i += step) {
        float want = coded_sum(world, rank, i, n, dtype);
        RANK_CHECK(want != want ? value[i] != value[i] : f32_bits(value[i]) == f32_bits(want));
    }
    free(value);
    drop(t, own.data);
    drop(t, x.data);
    return 0;
}

int comm_scatters_codes(struct rank_test *t) {
    static const int64_t N[] = { 1, 128, 1000, 140000 }; /* short blocks, several pieces */
    for (size_t s = 0; s < sizeof N / sizeof *N; s++)
        for (int d = 0; d < 2; d++)
            RANK_CHECK(one_coded(t, DTYPES[d], N[s], (s + (size_t)d) % 2) == 0);
    return 0;
}

/* Rank r's byte i is i*7 + r. */
static int one_gather(struct rank_test *t, enum dtype dtype, int64_t n, bool in_place) {
    int world = t->group.world, rank = t->group.rank;
    int64_t bytes = n * dtype_bytes(dtype);
    unsigned char *host = calloc((size_t)(bytes * world), 1);
    for (int64_t i = 0; i < bytes; i++) host[rank * bytes + i] = (unsigned char)(i * 7 + rank);
    void *own = place(t, host + rank * bytes, bytes);
    if (!in_place) memset(host, 0, (size_t)(bytes * world));
    char *all = place(t, host, bytes * world);
    RANK_CHECK(own && all);
    struct tensor out = tensor_1d(all, dtype, n * world);
    struct tensor x = tensor_1d(in_place ? all + rank * bytes : own, dtype, n);
    RANK_MUST(t->backend->ops->comm.all_gather(t->backend, LANE_COMM, &out, &x, &must_));
    free(host);
    host = fetch(t, all, bytes * world);
    for (int r = 0; r < world; r++)
        for (int64_t i = 0; i < bytes; i++)
            RANK_CHECK(host && host[r * bytes + i] == (unsigned char)(i * 7 + r));
    free(host);
    drop(t, own);
    drop(t, all);
    return 0;
}

int comm_gathers(struct rank_test *t) {
    const enum dtype moved[] = { DTYPE_F32, DTYPE_E4M3, DTYPE_U64 };
    for (int in_place = 0; in_place < 2; in_place++)
        for (int d = 0; d < 3; d++) RANK_CHECK(one_gather(t, moved[d], 100001, in_place) == 0);
    return 0;
}

int comm_broadcasts(struct rank_test *t) {
    for (int root = 0; root < t->group.world; root++) {
        int64_t n = 70001;
        struct tensor x = comm_tensor(t, DTYPE_F32, n);
        RANK_MUST(t->backend->ops->comm.broadcast(t->backend, LANE_COMM, &x, root, &must_));
        float *value = comm_values(t, &x);
        for (int64_t i = 0; i < n; i++) RANK_CHECK(value && value[i] == comm_value(root, i));
        free(value);
        drop(t, x.data);
    }
    return 0;
}
