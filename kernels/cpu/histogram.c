/* How many elements of a tensor lie in each bucket. Counts are the same in any order, so threads
 * need no fixed tree. */
#include <omp.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/spans.h"
#include "kernels/histogram.h"

static void count_span(uint64_t *counts, const void *data, bool bf16, int64_t step, int64_t n) {
    const uint16_t *x2 = data;
    const uint32_t *x4 = data;
    for (int64_t i = 0; i < n; i++)
        counts[histogram_bucket(bf16 ? (uint32_t)x2[i * step] << 16 : x4[i * step])]++;
}

enum status cpu_histogram(struct backend *b, int lane, const struct tensor *counts,
                          const struct tensor *x, struct err *e) {
    TRY(cpu_check_packed(counts, "histogram: counts", IS_U64, HISTOGRAM_COUNTS, 1, e));
    if (!x || !x->data) return FAIL(e, ERR_ARG, "histogram: x is missing");
    if (x->dtype != DTYPE_F32 && x->dtype != DTYPE_BF16)
        return FAIL(e, ERR_ARG, "histogram: x is %s", dtype_name(x->dtype));
    bool bf16 = x->dtype == DTYPE_BF16;
    struct spans s = spans_of(x);
    uint64_t *out = counts->data;
    for (int i = 0; i < HISTOGRAM_COUNTS; i++) out[i] = 0;
    #pragma omp parallel num_threads(cpu_of(b)->threads)
    {
        uint64_t own[HISTOGRAM_COUNTS] = { 0 };
        #pragma omp for schedule(static)
        for (int64_t first = 0; first < s.count; first += s.span) {
            int64_t n, at = spans_at(&s, x, first, &n);
            count_span(own, (const char *)x->data + at * (bf16 ? 2 : 4), bf16, s.step, n);
        }
        for (int i = 0; i < HISTOGRAM_COUNTS; i++)
            if (own[i]) {
                #pragma omp atomic
                out[i] += own[i];
            }
    }
    return OK;
}
