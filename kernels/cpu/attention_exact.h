/* Attention as our GPU kernels compute it, to the bit (kernels/attention_order.h): what its forward
 * and backward share.
 *
 * A product is [rows][columns], mma_mr rows at a time: `left` panels [k][mr], `right` panels
 * [k][nr], both with the exponents of their values (isa.h). */
#ifndef FP8LAB_KERNELS_CPU_ATTENTION_EXACT_H
#define FP8LAB_KERNELS_CPU_ATTENTION_EXACT_H

#include "kernels/attention_order.h"
#include "kernels/cpu/attention.h"

struct exact_panels { float *value; int32_t *exponent; };

/* One call. */
struct exact {
    const struct attention *a;
    const struct isa *isa;
    struct mma mma;
    bool wgmma;      /* the order of the kernels on wgmma; else of those on mma.sync */
    int64_t mr, nr;
    int64_t columns; /* head_dim rounded up to nr */
    float scale_log2;
};

struct exact exact_open(struct backend *b, const struct attention *a);

/* The next n floats of a thread's scratch memory, of which *used have been taken. Aligned. */
float *exact_take(float *base, int64_t *used, int64_t n);
struct exact_panels exact_take_panels(float *base, int64_t *used, int64_t n);

/* `count` rows of D as panels of `width` rows: [count / width][D][width]. Rows from r.n on are
 * 0. */
void exact_pack_rows(const struct exact *x, struct exact_panels to, struct rows r, int64_t count,
                     int64_t width);
/* The same rows as the right side of a sum over rows: [columns / nr][count][nr]. */
void exact_pack_across(const struct exact *x, struct exact_panels to, struct rows r, int64_t count);
/* in [mr][n], rounded to BF16, as a left panel [n][mr]. */
void exact_pack_left(const struct exact *x, struct exact_panels to, const float *in, int64_t n);

/* sums [panels][mr][nr] continue over k, for one left panel and `panels` right panels. */
void exact_add(const struct exact *x, int64_t k, struct exact_panels left,
               struct exact_panels right, int64_t panels, float *sums);
/* out [mr][n] = left * right over D, from 0. sums: scratch of mr * n floats. */
void exact_scores(const struct exact *x, struct exact_panels left, struct exact_panels right,
                  int64_t n, float *sums, float *out);
/* Rows first .. first + mr - 1 of `to`, if it has them = sums [columns / nr][mr][nr] * factor[row],
 * rounded to BF16. */
void exact_store(const struct exact *x, struct rows to, int64_t first, const float *sums,
                 const float *factor);

#endif
