/* Sums over the rows of a matrix, for gain and bias gradients. Lane r % 16 adds row r, rows
 * ascending; the 16 lanes are joined as in sum16_join, per column. A lane is also the unit of
 * parallel work, so one pass gives both the rows' own results and these sums. */
#ifndef FP8LAB_KERNELS_CPU_LANES_H
#define FP8LAB_KERNELS_CPU_LANES_H

#include "kernels/cpu/clones.h"
#include "kernels/cpu/cpu.h"

enum { LANES = 16 };

/* Zeroed sums [LANES][n], at the start of the first thread's scratch. */
float *lanes_start(struct backend *b, int64_t n);

/* out [n] (F32 or BF16) += the join of the lanes, which are `stride` floats apart; rounded
 * once. */
void lanes_finish(const struct tensor *out, const float *lanes, int64_t stride, int64_t n);

/* out [n] += the column sums of x [rows,n]; lanes_check(n, n) must have passed. */
void lanes_column_sums(struct backend *b, const struct tensor *out, const struct tensor *x);

/* ERR_ARG unless `lane_floats` lane sums a column set and `row_floats` of row buffers fit in
 * scratch. */
NODISCARD enum status lanes_check(const char *what, int64_t lane_floats, int64_t row_floats,
                                  struct err *e);

/* Row buffers of `thread`; they follow the lane sums of `lane_floats` columns. */
static inline float *lanes_rows(struct backend *b, int thread, int64_t lane_floats) {
    return cpu_scratch(b, thread) + LANES * round_up(lane_floats, 16);
}

#endif
