/* The 64-bit fingerprint of a tensor. Integer sums modulo 2^64 are the same in any order, so
 * threads and lanes need no fixed tree here. */
#include <omp.h>

#include "kernels/cpu/clones.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/spans.h"

#define TERM(bits, i) (((uint64_t)(bits) + 1u) * (2u * rng_mix((uint64_t)(i)) + 1u))

/* n elements, `step` apart. `first` is the row-major index of the first one. */
CLONES static uint64_t span_fingerprint(const void *data, int64_t bytes, int64_t step, int64_t n,
                                        int64_t first) {
    const uint8_t *x1 = data;
    const uint16_t *x2 = data;
    const uint32_t *x4 = data;
    const uint64_t *x8 = data;
    uint64_t sum = 0;
    switch (bytes) {
    case 1: for (int64_t i = 0; i < n; i++) sum += TERM(x1[i * step], first + i); break;
    case 2: for (int64_t i = 0; i < n; i++) sum += TERM(x2[i * step], first + i); break;
    case 4: for (int64_t i = 0; i < n; i++) sum += TERM(x4[i * step], first + i); break;
    default: for (int64_t i = 0; i < n; i++) sum += TERM(x8[i * step], first + i); break;
    }
    return sum;
}

enum status cpu_fingerprint(struct backend *b, int lane, const struct tensor *out,
                            const struct tensor *x, struct err *e) {
    TRY(cpu_check(out, "fingerprint: out", IS_U64, 1, 1, e));
    if (!x || !x->data) return FAIL(e, ERR_ARG, "fingerprint: x is missing");
    int64_t bytes = dtype_bytes(x->dtype);
    struct spans s = spans_of(x);
    uint64_t sum = 0;
    #pragma omp parallel for schedule(static) num_threads(cpu_of(b)->threads) reduction(+ : sum)
    for (int64_t first = 0; first < s.count; first += s.span) {
        int64_t n, at = spans_at(&s, x, first, &n);
        sum += span_fingerprint((const char *)x->data + at * bytes, bytes, s.step, n, first);
    }
    *(uint64_t *)out->data = sum;
    return OK;
}
