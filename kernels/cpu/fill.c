/* Constants and initial weights. */
#include <omp.h>

#include "kernels/cpu/clones.h"
#include "kernels/cpu/cpu.h"
#include "kernels/exactmath_f32.h"

enum { SPAN = 1024 };

CLONES static void normal_span(const struct tensor *x, int64_t at, int64_t n, float std,
                               uint64_t key, int64_t element) {
    float v[SPAN];
    for (int64_t i = 0; i < n; i++)
        v[i] = std * exact_normalf(rng_bits(key, (uint64_t)(element + i)));
    store_span(x, at, v, n);
}

enum status cpu_fill_normal(struct backend *b, int lane, const struct tensor *x, float std,
                            uint64_t seed, uint32_t tensor_id, int64_t element_base,
                            struct err *e) {
    TRY(cpu_check_packed(x, "fill_normal: x", IS_ACT, -1, -1, e));
    if (element_base < 0)
        return FAIL(e, ERR_ARG, "fill_normal: element_base %lld", (long long)element_base);
    uint64_t key = rng_key(seed, RNG_INIT, 0, tensor_id);
    int64_t count = tensor_count(x);
    #pragma omp parallel for schedule(static) num_threads(cpu_of(b)->threads)
    for (int64_t at = 0; at < count; at += SPAN)
        normal_span(x, at, count - at < SPAN ? count - at : SPAN, std, key, element_base + at);
    return OK;
}

enum status cpu_fill(struct backend *b, int lane, const struct tensor *x, float value,
                     struct err *e) {
    TRY(cpu_check_packed(x, "fill: x", IS_ACT, -1, -1, e));
    int64_t count = tensor_count(x);
    float v[SPAN];
    for (int i = 0; i < SPAN; i++) v[i] = value;
    for (int64_t at = 0; at < count; at += SPAN)
        store_span(x, at, v, count - at < SPAN ? count - at : SPAN);
    return OK;
}
