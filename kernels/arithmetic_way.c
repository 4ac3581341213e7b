/* In which way an arithmetic adds a product, from the product's kind alone. */
#include "kernels/arithmetic.h"

enum { SYNC_CHAIN = 128 }; /* of kernels/cuda/gemm_sync.cu, with fast accumulation too */

static int least_of(enum dtype t) {
    if (t == DTYPE_E4M3) return -6;
    return t == DTYPE_E5M2 ? -14 : MMA_LEAST;
}

/* One fma chain; or one a block, and the factors with the chain's sum into the total. */
static struct mma_way reference_way(const struct matmul_args *args) {
    int64_t block = arithmetic_block(args->a->scale.kind);
    struct mma_way way = { .block = block, .order = { .chain = block } };
    way.last_factor = !block && dtype_is_fp8(args->a->dtype);
    return way;
}

bool arithmetic_describes(const struct matmul_args *args) {
    return args->a->dtype != DTYPE_F32 && !scale_is_nvfp4(args->a->scale.kind);
}

enum status arithmetic_way(const struct arithmetic *m, const struct matmul_args *args,
                           struct mma_way *way, struct err *e) {
    const struct tensor *a = args->a, *b = args->b;
    if (arithmetic_is_reference(m)) {
        *way = reference_way(args);
        return OK;
    }
    *way = (struct mma_way){ .mma = m->bf16, .least_a = MMA_LEAST, .least_b = MMA_LEAST };
    if (a->dtype == DTYPE_F32)
        return FAIL(e, ERR_UNSUPPORTED, "matmul: a is f32, and %s multiplies bf16 and FP8 only: "
                    "use a recipe without f32, or the arithmetic reference", m->name);
    if (scale_is_nvfp4(a->scale.kind))
        return FAIL(e, ERR_UNSUPPORTED, "matmul: a has scales of NVFP4, whose products %s does not "
                    "describe: use another recipe, or the arithmetic reference", m->name);
    if (!dtype_is_fp8(a->dtype)) return OK;
    int64_t block = arithmetic_block(a->scale.kind);
    unsigned both = 1u << a->scale.kind | 1u << b->scale.kind;
    bool library = (m->native & both) == both;
    way->last_factor = block == 0;
    if (!library && (m->by_sync & both) != both) {
        way->widened = block != 0;
        return OK;
    }
    way->mma = m->fp8;
    way->least_a = least_of(a->dtype);
    way->least_b = least_of(b->dtype);
    way->scaled = block == 32;
    if (block == 128) way->block = way->order.chain = block;
    else if (!library) way->order.chain = SYNC_CHAIN;
    else if (!args->fast_accumulate && !block) way->order.chain = m->promoted;
    if (library && both >> SCALE_ROW & 1) way->factors = FACTOR_B_FIRST;
    return OK;
}
