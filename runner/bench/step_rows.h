/* The rows of a suite beside each other, for `bench step`: where the time of each differs from that
 * of a row in BF16, and one line for each. */
#ifndef FP8LAB_RUNNER_BENCH_STEP_ROWS_H
#define FP8LAB_RUNNER_BENCH_STEP_ROWS_H

#include "model/config.h"
#include "runner/bench/step_bench.h"

/* The GEMMs of one direction and shape in a step. */
struct step_gemm {
    enum gemm_direction direction;
    bool head; /* of the head, not of a layer */
    int64_t m, n, k;
    int64_t calls, low_calls; /* low: operands of 8 or 4 bits */
    enum dtype low;           /* of low calls */
    double us;                /* of all calls */
};

/* What is kept of a measured run. */
struct step_row {
    char name[sizeof ((struct step_bench *)0)->name];
    char recipe[sizeof ((struct step_bench *)0)->recipe];
    struct model_config model;
    bool cpu;                    /* which emulates FP8 */
    int64_t tokens, micro_batch; /* of a step; of a micro-step, in sequences */
    double step_us, floor_us, joules; /* joules 0: not measured */
    double part_us[PART_COUNT], parts_us;
    struct step_gemm gemm[SHAPES_MAX];
    int gemm_count;
};

void step_row_of(const struct step_bench *s, const struct model_config *model,
                 struct step_row *out);

/* The row in BF16 with which row `at` is compared: the first with the same model and batch. NULL:
 * there is none, or row `at` is itself in BF16. */
const struct step_row *step_row_beside(const struct step_row *row, int64_t count, int64_t at);

/* How much faster `row` would be than `base` if each GEMM with operands of 8 bits took half of its
 * time in `base`, of 4 bits a quarter, and all else as long as there. 1: it has no such GEMM. */
double step_row_limit(const struct step_row *base, const struct step_row *row);

/* Prints the tables. `energy`: with joules. */
void step_rows_print(const struct cli *cli, const struct step_row *row, int64_t count,
                     bool energy);
/* Sets "beside" of each object in `list`, which has one for each row: null, or the comparison.
 * ERR_MEMORY. */
NODISCARD enum status step_rows_json(const struct step_row *row, int64_t count,
                                     struct json_t *list, struct err *e);

#endif
