/* A weight as E4M3 codes with a factor for each 128 x 128 block: the codes that fp8.blockwise
 * trains with. The last blocks of a matrix may be smaller. */
#ifndef FP8LAB_RUNNER_WEIGHTS_BLOCKS_H
#define FP8LAB_RUNNER_WEIGHTS_BLOCKS_H

#include "model/recipe.h"
#include "runner/weights/hf_names.h"

enum { BLOCK_ROWS = 128 };

static inline int64_t blocks_count(int64_t n) { return ceil_div(n, BLOCK_ROWS); }

struct blocks {
    struct quant_rule rule;
    int64_t cols;
    float *factor; /* owned: [blocks of rows][blocks of columns]; value = code * factor */
    float *multiplier; /* owned: of one row of blocks */
};

/* *wanted: the recipe gives this parameter a scale for each 128 x 128 block. ERR_CONFIG if the
 * part, which begins at element `first`, does not begin with a block: its codes would have other
 * factors than those that were trained with. */
NODISCARD enum status blocks_wanted(const struct recipe *r, const char *param, int64_t first,
                                    const struct weight_part *part, bool *wanted, struct err *e);

NODISCARD enum status blocks_begin(struct blocks *b, const struct recipe *r, const char *param,
                                   int64_t rows, int64_t cols, struct err *e);
/* One row of blocks: `rows` rows of values, at most BLOCK_ROWS. `codes` may be the same memory. */
void blocks_quantise(struct blocks *b, int64_t block_row, int64_t rows, const float *values,
                     unsigned char *codes);
void blocks_free(struct blocks *b);

#endif
