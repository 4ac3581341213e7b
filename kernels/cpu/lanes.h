/* The two sums of the operators that read rows: along a row, and over rows, column by column. Each
 * in the reference's order, or in a GPU's (kernels/sum_order.h) if the arithmetic follows it.
 *
 * Over rows, a lane is the unit of parallel work, so that one pass gives both the rows' own results
 * and these sums. The reference has 16: lane r % 16 adds row r, rows ascending, and the lanes are
 * joined as in sum16_join, per column. A GPU's order has 32, each with every 32nd block of rows. */
#ifndef FP8LAB_KERNELS_CPU_LANES_H
#define FP8LAB_KERNELS_CPU_LANES_H

#include "kernels/cpu/clones.h"
#include "kernels/cpu/cpu.h"
#include "kernels/sum_order.h"

enum { LANES = 16 };

/* ---- along a row ---- */

/* The sum of x, or of the products x * y if y is not NULL, in that order. */
float ordered_sum(const struct row_order *o, const float *x, const float *y, int64_t n);

/* The same; order NULL: the reference's. */
static inline float row_sum(const struct row_order *order, const float *x, int64_t n) {
    return order ? ordered_sum(order, x, NULL, n) : sum16(x, n);
}
static inline float row_dot(const struct row_order *order, const float *x, const float *y,
                            int64_t n) {
    return order ? ordered_sum(order, x, y, n) : sum16_dot(x, y, n);
}

/* `lanes` partial sums of a row, a multiple of 32, joined as a block of a GPU joins them. */
float row_join(const float *lane, int lanes);

/* Rows of n elements, `stride` apart, that a GPU reads eight elements at a time; their memory must
 * be 16-byte aligned there. */
static inline bool rows_are_eights(int64_t n, int64_t stride) {
    return n % 8 == 0 && stride % 8 == 0;
}

/* ---- over rows ---- */

struct lanes {
    float *sums; /* [count][width], zeroed, at the start of the first thread's scratch */
    int64_t rows, width;
    int count;
    struct rows_order order; /* groups 0: the reference's */
};

/* Sums of `width` columns over `rows` rows. order: of the GPU; ignored unless the arithmetic
 * follows it. */
struct lanes lanes_start(struct backend *b, int64_t rows, int64_t width, struct rows_order order);

/* Adds row `row` to sums [width]; buffer: row buffers of this thread. */
typedef void (*lanes_row)(const void *context, int64_t row, float *sums, float *buffer);

/* Calls add for all rows of a lane, in their order. `buffers`: lanes_buffers() of this thread. */
void lanes_each(const struct lanes *l, int lane, float *buffers, lanes_row add,
                const void *context);

/* Buffers of `thread`, which follow the sums; lanes_each() takes their start for itself, and row
 * buffers follow at lanes_rows(). */
float *lanes_buffers(struct backend *b, int thread, const struct lanes *l);
float *lanes_rows(const struct lanes *l, float *buffers);

/* out [n] (F32 or BF16) += the join of the lanes' columns from `at` on; rounded once. */
void lanes_finish(const struct tensor *out, const struct lanes *l, int64_t at, int64_t n);

/* out [n] += the column sums of x [rows,n]; lanes_check(n, n) must have passed. */
void lanes_column_sums(struct backend *b, const struct tensor *out, const struct tensor *x);

/* ERR_ARG unless the sums of `lane_floats` columns and `row_floats` of row buffers fit in
 * scratch. b NULL: in every order. */
NODISCARD enum status lanes_check(struct backend *b, const char *what, int64_t lane_floats,
                                  int64_t row_floats, struct err *e);

#endif
