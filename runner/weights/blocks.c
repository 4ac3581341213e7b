#include "runner/weights/blocks.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dtype.h"

/* The options of the GEMM that reads the parameter; NULL: none does. A tied embedding is read by
 * the head and by the embedding, which needs values. */
static const struct recipe_options *options_of(const struct recipe *r, const char *param) {
    char site[16];
    long long layer;
    if (!strcmp(param, "head.weight")) return &r->head;
    if (sscanf(param, "layers.%lld.%15[a-z_].weight", &layer, site) != 2) return NULL;
    if (layer < 0 || layer >= r->layers || !strstr(param, ".weight")) return NULL;
    for (int s = 0; s < GEMM_SITE_COUNT; s++)
        if (!strcmp(site, GEMM_SITE_NAMES[s])) return recipe_at(r, layer, (enum gemm_site)s);
    return NULL;
}

static bool has_blocks(const struct recipe *r, const char *param, struct gemm_spec *spec) {
    const struct recipe_options *o = options_of(r, param);
    if (!o) return false;
    gemm_spec_resolve(spec, o);
    return spec->fprop_fp8 && spec->w.kind == SCALE_128X128 && spec->w.code == DTYPE_E4M3;
}

enum status blocks_wanted(const struct recipe *r, const char *param, int64_t first,
                          const struct weight_part *part, bool *wanted, struct err *e) {
    struct gemm_spec spec;
    *wanted = part->cols > 0 && has_blocks(r, param, &spec);
    if (!*wanted || first / part->cols % BLOCK_ROWS == 0) return OK;
    return FAIL(e, ERR_CONFIG, "%s begins in the middle of a block of %s, at row %" PRId64 "; its "
                "codes have no factor of their own: export bf16, and let the server quantise",
                part->name, param, first / part->cols);
}

enum status blocks_begin(struct blocks *b, const struct recipe *r, const char *param, int64_t rows,
                         int64_t cols, struct err *e) {
    struct gemm_spec spec;
    size_t across = (size_t)blocks_count(cols), count = (size_t)blocks_count(rows) * across;
    if (!has_blocks(r, param, &spec)) return FAIL(e, ERR_ARG, "%s has no blocks", param);
    blocks_free(b);
    *b = (struct blocks){ .rule = spec.w.rule, .cols = cols };
    b->factor = malloc(count * sizeof *b->factor);
    b->multiplier = malloc(across * sizeof *b->multiplier);
    return b->factor && b->multiplier ? OK : FAIL(e, ERR_MEMORY, "%zu factors", count);
}

void blocks_quantise(struct blocks *b, int64_t block_row, int64_t rows, const float *values,
                     unsigned char *codes) {
    int64_t across = blocks_count(b->cols);
    for (int64_t k = 0; k < across; k++) {
        int64_t from = k * BLOCK_ROWS, to = from + BLOCK_ROWS;
        if (to > b->cols) to = b->cols;
        float amax = 0;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = from; c < to; c++) amax = fmaxf(amax, fabsf(values[r * b->cols + c]));
        b->multiplier[k] = quant_multiplier(&b->rule, DTYPE_E4M3, amax,
                                            &b->factor[block_row * across + k]);
    }
    for (int64_t i = 0; i < rows * b->cols; i++)
        codes[i] = e4m3_encode(values[i] * b->multiplier[i % b->cols / BLOCK_ROWS]);
}

void blocks_free(struct blocks *b) {
    free(b->factor);
    free(b->multiplier);
    *b = (struct blocks){ .factor = NULL };
}
