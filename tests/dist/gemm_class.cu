/* The test of classes without a GPU: which algorithms are of a product's class, and how often each
 * runs. The algorithms here multiply on the host, right or with one mistake each. The kernels of
 * gemm_class.cu that fill and read memory have a twin below. */
#include <assert.h>

#include "kernels/cuda/gemm_class.cu"

/* ---- the library and the device ---- */

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *,
                                                    cublasLtMatmulAlgoConfigAttributes_t, void *,
                                                    size_t, size_t *) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t *,
                                                    cublasLtMatmulAlgoConfigAttributes_t,
                                                    const void *, size_t) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
}
cudaError_t trial_noise(const struct trial *, void *data, int64_t bytes, uint32_t keep,
                        uint32_t set) {
    for (int64_t i = 0; i < bytes / 4; i++)
        ((uint32_t *)data)[i] = ((uint32_t)rng_mix((uint64_t)i) & keep) | set;
    return cudaSuccess;
}

static void fill_twin(const struct cancel *c) {
    for (int64_t row = 0; row < c->outer; row++)
        for (int64_t i = 0; i < c->k; i++) {
            int64_t at = c->transposed ? row * c->ld + i : i * c->ld + row;
            ((uint16_t *)c->data)[at] = (uint16_t)cancel_noise_at(c->n, c->turned, row, i);
        }
}

static void tiles_twin(const uint16_t *d, int64_t m, int64_t n, int64_t ld, struct tiles t,
                       unsigned long long *out) {
    for (int64_t row = 0; row < n; row++)
        for (int64_t col = 0; col < m; col++)
            out[(row >> t.bits) * t.across + (col >> t.bits)] +=
                rng_mix((uint64_t)d[row * ld + col] << 32 ^ (uint64_t)(row * m + col));
}

extern "C" void stand_in_launch(const char *name, void **args) {
    if (strstr(name, "cancel_kernel")) {
        fill_twin((const struct cancel *)args[0]);
    } else if (strstr(name, "gather_kernel")) {
        const uint16_t *d = *(const uint16_t **)args[0];
        const struct samples *s = (const struct samples *)args[3];
        for (int i = 0; i < s->count; i++)
            (*(uint32_t **)args[4])[i] = d[s->row[i] * *(int64_t *)args[1] + s->col[i]];
    } else {
        assert(strstr(name, "tiles_kernel"));
        tiles_twin(*(const uint16_t **)args[0], *(int64_t *)args[1], *(int64_t *)args[2],
                   *(int64_t *)args[3], *(struct tiles *)args[4],
                   *(unsigned long long **)args[5]);
    }
}

/* ---- algorithms ---- */

enum { M = 72, N = 136, K = 1000, LONG_K = 8192 /* its class has parts */ };
enum kind { RIGHT, IN_PARTS, WRONG, SHORT, REFUSES, PARTS_OF_A_TILE, ONE_CHAIN, KINDS };

struct algorithms {
    const struct gemm_problem *p;
    enum kind kind[GEMM_CANDIDATES];
    int runs[GEMM_CANDIDATES];
};

static bool is_sample(const struct gemm_problem *p, int64_t row, int64_t col) {
    struct samples s;
    choose_places(p, &s);
    for (int i = 0; i < s.count; i++)
        if (s.row[i] == row && s.col[i] == col) return true;
    return false;
}

static bool multiply(void *context, int i, cudaStream_t) {
    struct algorithms *a = (struct algorithms *)context;
    const struct gemm_problem *p = a->p;
    enum kind kind = a->kind[i];
    struct mma_way way, parts;
    a->runs[i]++;
    if (kind == REFUSES) return false;
    assert(gemm_class_of(p, &way));
    parts = way;
    parts.order.part = kind == ONE_CHAIN ? 0 : 512;
    for (int64_t row = 0; row < N; row++)
        for (int64_t col = 0; col < M; col++) {
            bool tile = row < 64 && col < 64, split = kind == IN_PARTS || kind == ONE_CHAIN;
            struct as_matmul m;
            describe_as(p, N, M, p->ld, &m);
            m.a.data = (void *)p->b.data;
            m.b.data = (void *)p->a.data;
            if (kind == PARTS_OF_A_TILE && tile) split = !is_sample(p, row, col);
            if (kind == SHORT && row == N - 1 && col == M - 1) continue;
            float x = arithmetic_output(split ? &parts : &way, &m.args, row, col);
            ((uint16_t *)p->d)[row * p->ld + col] = bf16_encode(kind == WRONG ? x + 1.0f : x);
        }
    return true;
}

/* ---- cases ---- */

struct sort_case {
    const char *title;
    int count;
    enum kind kind[4];
    bool in_class[4];
    int runs[4];
    int64_t k; /* 0: K */
};
/* A run for each noise, and one more where candidates of the class differ. */
static const struct sort_case CASES[] = {
    { "equal ones", 2, { RIGHT, RIGHT }, { true, true }, { 2, 2 } },
    { "another order", 2, { IN_PARTS, RIGHT }, { false, true }, { 2, 2 } },
    { "wrong on the first noise", 2, { WRONG, RIGHT }, { false, true }, { 1, 2 } },
    { "an output that is not written", 2, { RIGHT, SHORT }, { true, false }, { 2, 1 } },
    { "one that fails", 2, { REFUSES, RIGHT }, { false, true }, { 1, 2 } },
    { "another order in one tile", 4, { PARTS_OF_A_TILE, RIGHT, WRONG, RIGHT },
      { false, true, false, true }, { 3, 3, 1, 3 } },
    { "none of the class", 2, { WRONG, IN_PARTS }, { false, false }, { 1, 2 } },
    { "another way, found after the class's", 2, { WRONG, ONE_CHAIN }, { false, true }, { 1, 2 },
      LONG_K },
};

static bool passes(const struct sort_case *c, struct gemm_problem *p) {
    p->k = p->a.ld = p->b.ld = c->k ? c->k : K;
    struct algorithms all = { p, {}, {} };
    const struct trial trial = {};
    bool in_class[GEMM_CANDIDATES], known, want = false, good = true;
    float us[GEMM_CANDIDATES];
    struct mma_way way;
    struct err e;
    memcpy(all.kind, c->kind, sizeof c->kind);
    if (gemm_class_operand(&trial, &p->a, 2 * M * p->k, 0) != cudaSuccess ||
        gemm_class_operand(&trial, &p->b, 2 * N * p->k, 0) != cudaSuccess)
        return false;
    const struct class_trial test = { &trial, p, 2 * M * N, multiply, &all, c->count, false, us };
    if (gemm_class_sort(&test, in_class, &way, &known, &e) != OK) return false;
    for (int i = 0; i < c->count; i++) {
        want = want || c->in_class[i];
        good = good && in_class[i] == c->in_class[i] && all.runs[i] == c->runs[i] &&
               (us[i] >= 0.0f) == (c->runs[i] > 1);
        if (in_class[i] != c->in_class[i] || all.runs[i] != c->runs[i])
            printf("%s: algorithm %d: in class %d, want %d; %d runs, want %d; %.0f us\n", c->title,
                   i, in_class[i], c->in_class[i], all.runs[i], c->runs[i], (double)us[i]);
    }
    if (known != want) printf("%s: a way is %sknown\n", c->title, known ? "" : "not ");
    return good && known == want;
}

int main() {
    struct gemm_problem p = {};
    int failed = 0;
    p.m = M; p.n = N; p.ld = M;
    p.a = { .data = malloc(2 * M * LONG_K), .type = CUDA_R_16BF, .transposed = true };
    p.b = { .data = malloc(2 * N * LONG_K), .type = CUDA_R_16BF, .transposed = true };
    p.d = malloc(2 * M * N);
    p.c = p.d;
    p.type = CUDA_R_16BF;
    assert(p.a.data && p.b.data && p.d);
    for (const struct sort_case &c : CASES) failed += !passes(&c, &p);
    free((void *)p.a.data);
    free((void *)p.b.data);
    free(p.d);
    return failed != 0;
}
