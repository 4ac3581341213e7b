/* out = A B^T with scales and epilogue: selects the library call or the emulation.
 *
 * The library is column-major: its A is our b, its B our a, its D our out, all without a copy.
 *   native     FP8 operands as they are. Row and block scales are first copied into the library's
 *              layout (4 bytes for 128 codes), unless our own kernel serves the shape. MXFP8 and
 *              NVFP4: byte_scales.cuh. Products are TN; those of untransposed twins NN and NT.
 *              A device that lacks the mode, but multiplies FP8 by mma.sync: our kernel of
 *              gemm_sync.cu.
 *   emulated   if the device or the library lacks the mode or the shape. Tensor and row scales:
 *              codes are widened to BF16, which is exact, and factors are applied to the f32
 *              product. Block scales: codes times factors, exact for powers of two, otherwise
 *              rounded to BF16. NVFP4: codes times the blocks' scales, exact; the tensors' factor
 *              is applied to the f32 product.
 * A kernel of ours computes an epilogue that the library rejects, from the f32 product. */
#include "kernels/arithmetic.h"
#include "kernels/cuda/byte_scales.cuh"
#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/native.h"
#include "kernels/nvfp4.h"

/* ---- checks ---- */

static bool is_fp8(const struct tensor *x) { return dtype_is_fp8(x->dtype); }

static enum status check_operand(const struct tensor *x, const char *what, struct err *e) {
    if (!x || !x->data) return FAIL(e, ERR_ARG, "matmul: %s is missing", what);
    if (x->dtype == DTYPE_F32)
        return FAIL(e, ERR_UNSUPPORTED, "matmul: %s is f32: the f32 recipe runs on the CPU backend",
                    what);
    if (!is_fp8(x)) {
        if (x->dtype != DTYPE_BF16)
            return FAIL(e, ERR_ARG, "matmul: %s is %s", what, dtype_name(x->dtype));
        if (x->scale.kind != SCALE_NONE)
            return FAIL(e, ERR_ARG, "matmul: %s is bf16 and has a scale", what);
        bool strided = x->stride[1] != 1 && x->dim[1] != 1 && x->stride[0] != 1 && x->dim[0] != 1;
        return strided ? FAIL(e, ERR_ARG, "matmul: neither stride of %s is 1", what) : OK;
    }
    if (fp8_is_untransposed(x) && (x->stride[0] != 1 || !scale_is_mxfp8(x->scale.kind)))
        return FAIL(e, ERR_ARG, "matmul: %s is FP8 and not contiguous along K: an untransposed "
                    "twin has MXFP8's scales and rows of stride 1", what);
    if (fp8_line(x) % FP8_ROW_ALIGN || (uintptr_t)x->data % 16)
        return FAIL(e, ERR_ARG, "matmul: %s is FP8 and its rows are not 16-byte aligned", what);
    if (scale_is_nvfp4(x->scale.kind) != (x->dtype == DTYPE_E2M1))
        return FAIL(e, ERR_ARG, "matmul: %s is %s and does not have NVFP4's scales, or has", what,
                    dtype_name(x->dtype));
    struct scale expect = scale_make(x->scale.data, x->scale.kind, x->dim[0], x->dim[1]);
    if (x->scale.kind == SCALE_NONE || !x->scale.data)
        return FAIL(e, ERR_ARG, "matmul: %s is FP8 without a scale", what);
    if (x->scale.dim[0] != expect.dim[0] || x->scale.dim[1] != expect.dim[1] ||
        x->scale.dtype != expect.dtype || (uintptr_t)x->scale.data % 16)
        return FAIL(e, ERR_ARG, "matmul: the scale of %s has a wrong shape or dtype", what);
    return OK;
}

static enum status check_args(const struct matmul_args *t, struct err *e) {
    TRY(check_operand(t->a, "a", e));
    TRY(check_operand(t->b, "b", e));
    const struct tensor *a = t->a, *b = t->b;
    TRY(cuda_check(t->out, "matmul: out", IS_GRAD, a->dim[0], b->dim[0], e));
    if (a->dim[1] != b->dim[1])
        return FAIL(e, ERR_ARG, "matmul: a has K %lld, b %lld", (long long)a->dim[1],
                    (long long)b->dim[1]);
    if (is_fp8(a) != is_fp8(b))
        return FAIL(e, ERR_ARG, "matmul: %s with %s", dtype_name(a->dtype), dtype_name(b->dtype));
    if (a->dtype == DTYPE_E5M2 && b->dtype == DTYPE_E5M2)
        return FAIL(e, ERR_ARG, "matmul: e5m2 with e5m2, which no library multiplies");
    if (a->scale.kind == SCALE_128X128 && b->scale.kind == SCALE_128X128)
        return FAIL(e, ERR_ARG, "matmul: 128x128 with 128x128 scales, which no library multiplies");
    if (scale_block(a->scale.kind) != scale_block(b->scale.kind))
        return FAIL(e, ERR_ARG, "matmul: scale blocks of %lld along K in a, %lld in b",
                    (long long)scale_block(a->scale.kind), (long long)scale_block(b->scale.kind));
    if (t->bias) TRY(cuda_check_packed(t->bias, "matmul: bias", IS_GRAD, b->dim[0], 1, e));
    if (t->residual) {
        TRY(cuda_check(t->residual, "matmul: residual", IS_GRAD, a->dim[0], b->dim[0], e));
        if (t->residual->dtype != t->out->dtype)
            return FAIL(e, ERR_ARG, "matmul: residual is %s, out %s",
                        dtype_name(t->residual->dtype), dtype_name(t->out->dtype));
    }
    if (t->beta != 0.0f && t->beta != 1.0f) return FAIL(e, ERR_ARG, "matmul: beta %g", t->beta);
    return OK;
}

/* ---- our own epilogue ---- */

struct epilogue {
    void *out;
    const float *product; /* [rows, cols] packed */
    const float *scale_a, *scale_b; /* NULL: 1 */
    const void *bias, *residual;
    int64_t rows, cols, ld, ld_residual;
    int a_rows, b_rows; /* one factor a row, or one in all */
    bool bf16, bias_bf16, beta, nvfp4; /* nvfp4: the scales are the tensors' amax */
};

__global__ void epilogue_kernel(struct epilogue p) {
    int64_t n = p.rows * p.cols, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += step) {
        int64_t row = i / p.cols, col = i % p.cols, at = row * p.ld + col;
        float x = p.product[i];
        if (p.nvfp4) x = x * nvfp4_product_factor(*p.scale_a, *p.scale_b);
        else if (p.scale_a) x = x * (p.scale_a[p.a_rows ? row : 0] * p.scale_b[p.b_rows ? col : 0]);
        struct grad_view out = { p.out, p.bf16 };
        if (p.bias) {
            struct grad_view bias = { (void *)p.bias, p.bias_bf16 };
            x += grad_load(bias, col);
        }
        if (p.beta) x += grad_load(out, at);
        if (p.residual) {
            struct grad_view residual = { (void *)p.residual, p.bf16 };
            x += grad_load(residual, row * p.ld_residual + col);
        }
        grad_store(out, at, x);
    }
}

static enum status run_epilogue(struct backend *b, int lane, const struct matmul_args *t,
                                const float *product, bool scaled, struct err *e) {
    struct epilogue p = {};
    p.out = t->out->data;
    p.product = product;
    p.rows = t->out->dim[0];
    p.cols = tensor_cols(t->out);
    p.ld = t->out->stride[0];
    p.bf16 = t->out->dtype == DTYPE_BF16;
    p.beta = t->beta != 0.0f;
    if (scaled) {
        p.scale_a = (const float *)t->a->scale.data;
        p.scale_b = (const float *)t->b->scale.data;
        p.nvfp4 = scale_is_nvfp4(t->a->scale.kind);
        p.a_rows = t->a->scale.kind == SCALE_ROW;
        p.b_rows = t->b->scale.kind == SCALE_ROW;
    }
    if (t->bias) {
        p.bias = t->bias->data;
        p.bias_bf16 = t->bias->dtype == DTYPE_BF16;
    }
    if (t->residual) {
        p.residual = t->residual->data;
        p.ld_residual = t->residual->stride[0];
    }
    epilogue_kernel<<<grid_for(b, p.rows * p.cols, 1024), 256, 0, cuda_lane(b, lane)>>>(p);
    return cuda_launched("matmul", e);
}

/* ---- the library's problem ---- */

static struct gemm_operand bf16_operand(const struct tensor *x) {
    struct gemm_operand o = {};
    o.data = x->data;
    o.type = CUDA_R_16BF;
    o.transposed = x->stride[1] == 1 || x->dim[1] == 1;
    o.ld = max_i64(o.transposed ? x->stride[0] : x->stride[1], 1);
    return o;
}

static void set_out(struct gemm_problem *p, const struct tensor *out) {
    p->d = out->data;
    p->ld = out->stride[0];
    p->type = out->dtype == DTYPE_F32 ? CUDA_R_32F : CUDA_R_16BF;
}

/* The shape alone; its operands are not set. */
static struct gemm_problem shape_of(const struct matmul_args *t) {
    struct gemm_problem p = {};
    p.m = t->b->dim[0];
    p.n = t->a->dim[0];
    p.k = t->a->dim[1];
    return p;
}

static struct gemm_kind kind_of(const struct cuda_backend *cb, const struct matmul_args *t) {
    struct gemm_kind g = {};
    g.cc = cb->caps;
    g.library = (int64_t)cublasLtGetVersion();
    g.a = t->a->scale.kind;
    g.b = t->b->scale.kind;
    g.m = t->out->dim[0];
    g.n = tensor_cols(t->out);
    g.k = t->a->dim[1];
    g.untransposed_a = fp8_is_untransposed(t->a);
    g.untransposed_b = fp8_is_untransposed(t->b);
    return g;
}

/* Whether the library can do the whole epilogue: one addend with the layout of out. Its kernels for
 * BF16 rows that are not a multiple of 16 bytes round the product before they add: not usable. */
static bool epilogue_fits(const struct matmul_args *t) {
    if (!t->residual) return true;
    if (t->beta != 0.0f || t->residual->stride[0] != t->out->stride[0]) return false;
    return t->out->dtype == DTYPE_F32 || t->out->stride[0] % 8 == 0;
}

/* The product with its epilogue, for which epilogue_fits() is true. */
static struct gemm_problem whole_problem(const struct matmul_args *t,
                                         const struct gemm_problem *p) {
    struct gemm_problem whole = *p;
    set_out(&whole, t->out);
    whole.beta = t->residual ? 1.0f : t->beta;
    whole.c = t->residual ? t->residual->data : t->out->data;
    if (t->bias) {
        whole.bias = t->bias->data;
        whole.bias_type = t->bias->dtype == DTYPE_F32 ? CUDA_R_32F : CUDA_R_16BF;
    }
    return whole;
}

/* The product alone, into f32 at `product`. */
static struct gemm_problem plain_problem(const struct gemm_problem *p, void *product) {
    struct gemm_problem plain = *p;
    plain.d = product;
    plain.c = product;
    plain.ld = p->m;
    plain.type = CUDA_R_32F;
    return plain;
}

/* The product and its epilogue: wholly by the library, or the product by the library into f32 and
 * the epilogue by our kernel. `unscaled`: factors are still to be applied, so always the second. */
static enum status run_product(struct backend *b, int lane, const struct matmul_args *t,
                               struct gemm_problem *p, bool unscaled, struct gemm_way *by,
                               bool *found, struct err *e) {
    struct cuda_backend *cb = cuda_of(b);
    *found = false;
    struct gemm_kind kind = kind_of(cuda_of(b), t);
    if (!unscaled && epilogue_fits(t) && (!t->bias || gemm_adds_bias(&kind))) {
        struct gemm_problem whole = whole_problem(t, p);
        TRY(gemm_run(cb, lane, &whole, &by->why, found, e));
        if (*found) return OK;
    }
    void *product;
    TRY(cuda_scratch(b, lane, SCRATCH_RESULT, p->m * p->n * 4, &product, e));
    struct gemm_problem plain = plain_problem(p, product);
    TRY(gemm_run(cb, lane, &plain, &by->why, found, e));
    return *found ? run_epilogue(b, lane, t, (const float *)product, unscaled, e) : OK;
}

/* ---- scales in the library's layout ---- */

/* One operand's factors: from [outer or its blocks][K blocks] to the library's layout. */
struct scale_copy {
    const float *from;
    float *to;
    int64_t outer, blocks, stride; /* of `to`: between K blocks (1D) or block rows (2D) */
    int kind;
};
struct scale_copies { struct scale_copy side[2]; };

enum { SQUARE = 32, SQUARE_ROWS = 8, SQUARES_MAX = 2048 };

/* 1x128: [outer][K blocks] transposed by tiles, so that reads and writes are both coalesced: a
 * wgrad may have millions of factors. */
__device__ static void transpose_scales(const struct scale_copy &c) {
    __shared__ float tile[SQUARE][SQUARE + 1];
    int64_t across = (c.blocks + SQUARE - 1) / SQUARE;
    int64_t tiles = (c.outer + SQUARE - 1) / SQUARE * across;
    for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        int64_t outer = t / across * SQUARE, block = t % across * SQUARE;
        for (int i = threadIdx.y; i < SQUARE; i += SQUARE_ROWS)
            if (outer + i < c.outer && block + threadIdx.x < c.blocks)
                tile[i][threadIdx.x] = c.from[(outer + i) * c.blocks + block + threadIdx.x];
        __syncthreads();
        for (int i = threadIdx.y; i < SQUARE; i += SQUARE_ROWS)
            if (block + i < c.blocks && outer + threadIdx.x < c.outer)
                c.to[(block + i) * c.stride + outer + threadIdx.x] = tile[threadIdx.x][i];
        __syncthreads();
    }
}

/* Grid: x over tiles or factors, y the operand. The padding of 2D factors is zeroed, since the
 * library reads it. */
__global__ void scale_layout_kernel(struct scale_copies copies) {
    const struct scale_copy &c = copies.side[blockIdx.y];
    if (!c.to) return;
    if (c.kind == SCALE_1X128) {
        transpose_scales(c);
        return;
    }
    int64_t step = (int64_t)gridDim.x * SQUARE * SQUARE_ROWS;
    int64_t start = ((int64_t)blockIdx.x * SQUARE_ROWS + threadIdx.y) * SQUARE + threadIdx.x;
    if (c.kind == SCALE_TENSOR) {
        for (int64_t i = start; i < c.outer; i += step) c.to[i] = *c.from;
    } else {
        for (int64_t i = start; i < c.outer * c.stride; i += step) {
            int64_t block = i % c.stride;
            c.to[i] = block < c.blocks ? c.from[i / c.stride * c.blocks + block] : 0.0f;
        }
    }
}

/* How many blocks of threads one operand's factors occupy. */
static int64_t scale_tiles(const struct scale_copy *c) {
    if (!c->to) return 0;
    if (c->kind == SCALE_1X128) return ceil_div(c->outer, SQUARE) * ceil_div(c->blocks, SQUARE);
    int64_t factors = c->kind == SCALE_TENSOR ? c->outer : c->outer * c->stride;
    return ceil_div(factors, SQUARE * SQUARE_ROWS);
}

static enum status lay_out_scales(struct backend *b, int lane, const struct scale_copies *copies,
                                  struct err *e) {
    int64_t tiles = max_i64(scale_tiles(&copies->side[0]), scale_tiles(&copies->side[1]));
    if (!tiles) return OK;
    dim3 grid(tiles < SQUARES_MAX ? (unsigned)tiles : (unsigned)SQUARES_MAX, 2);
    scale_layout_kernel<<<grid, dim3(SQUARE, SQUARE_ROWS), 0, cuda_lane(b, lane)>>>(*copies);
    return cuda_launched("matmul", e);
}

/* rows: one of the two operands has a factor for each row; the library then needs both as rows. */
static cublasLtMatmulMatrixScale_t scale_mode_of(const struct tensor *x, bool rows) {
    switch (x->scale.kind) {
    case SCALE_1X128: return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case SCALE_128X128: return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    default:
        return rows ? CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F
                    : CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
    }
}

/* Fills the scale of one operand; *copy says what must be copied first (to == NULL: nothing). */
static enum status plan_scale(struct backend *b, int lane, enum scratch_use use,
                              const struct tensor *x, bool rows, struct gemm_operand *o,
                              struct scale_copy *copy, struct err *e) {
    copy->from = (const float *)x->scale.data;
    copy->to = NULL;
    copy->kind = x->scale.kind;
    int64_t floats = 0;
    switch (x->scale.kind) {
    case SCALE_TENSOR:
        if (!rows) return OK;
        floats = copy->outer = x->dim[0];
        break;
    case SCALE_ROW:
        return OK;
    case SCALE_1X128:
        copy->outer = x->dim[0];
        copy->blocks = x->scale.dim[1];
        copy->stride = round_up(copy->outer, 4);
        floats = copy->blocks * copy->stride;
        break;
    default: /* SCALE_128X128 */
        copy->outer = x->scale.dim[0];
        copy->blocks = x->scale.dim[1];
        copy->stride = round_up(copy->blocks, 4);
        floats = copy->outer * copy->stride;
    }
    void *to;
    TRY(cuda_scratch(b, lane, use, floats * 4, &to, e));
    copy->to = (float *)to;
    o->scale = to;
    return OK;
}

/* ---- FP8 on FP8 hardware ---- */

static enum gemm_by multiplied_by(const struct cuda_backend *cb, const struct matmul_args *t) {
    char way[FORBIDDEN_WAY_CAP];
    gemm_way_name(t, way);
    if (cuda_is_forbidden(cb, "gemm", way)) return GEMM_EMULATED;
    struct gemm_kind kind = kind_of(cb, t);
    return gemm_by_of(&kind);
}

static cudaDataType_t fp8_type(const struct tensor *x) {
    return x->dtype == DTYPE_E5M2 ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3;
}

static struct gemm_operand fp8_operand(const struct tensor *x, bool rows) {
    struct gemm_operand o = {};
    o.data = x->data;
    o.type = fp8_type(x);
    o.ld = x->stride[0];
    o.transposed = true;
    o.one_factor = x->scale.kind == SCALE_TENSOR;
    o.scale_mode = scale_mode_of(x, rows);
    return o;
}

static bool has_rows(const struct matmul_args *t) {
    return t->a->scale.kind == SCALE_ROW || t->b->scale.kind == SCALE_ROW;
}

/* Native operands; their scales are still to be laid out, and NVFP4's codes to be packed. */
static void set_native(struct gemm_problem *p, const struct matmul_args *t) {
    if (scale_is_byte(t->a->scale.kind)) {
        byte_scales_describe(t, p);
        return;
    }
    p->a = fp8_operand(t->b, has_rows(t));
    p->b = fp8_operand(t->a, has_rows(t));
    p->k = round_up(t->a->dim[1], FP8_ROW_ALIGN); /* the padding is zero */
    p->fast_accumulate = t->fast_accumulate && !scale_block(t->a->scale.kind);
    p->a.scale = t->b->scale.data; /* in the library's layout unless plan_scale copies it */
    p->b.scale = t->a->scale.data;
    p->a.factors = (const float *)t->b->scale.data;
    p->b.factors = (const float *)t->a->scale.data;
}

/* The library lacks the mode: our kernel on mma.sync, whose chains are always of 128. */
static void set_own(struct gemm_problem *p) {
    p->own = true;
    p->fast_accumulate = false;
}

/* Runs block scales by our own kernel on wgmma, if that is the shape's choice. */
static enum status run_own(struct backend *b, int lane, const struct matmul_args *t,
                           const struct gemm_problem *p, struct gemm_way *way, bool *found,
                           struct err *e) {
    if (scale_block(t->a->scale.kind) != 128 || !epilogue_fits(t)) return OK;
    struct gemm_problem whole = whole_problem(t, p);
    TRY(gemm_way_of(cuda_of(b), lane, &whole, way, e));
    return way->own ? gemm_run(cuda_of(b), lane, &whole, &way->why, found, e) : OK;
}

static enum status run_native(struct backend *b, int lane, const struct matmul_args *t,
                              struct gemm_problem *p, struct gemm_way *way, bool *found,
                              struct err *e) {
    *found = false;
    enum gemm_by by = multiplied_by(cuda_of(b), t);
    if (by == GEMM_EMULATED) return OK;
    struct scale_copies copies = {};
    set_native(p, t);
    if (by == GEMM_BY_SYNC) {
        set_own(p);
        return run_product(b, lane, t, p, false, way, found, e);
    }
    if (scale_is_byte(t->a->scale.kind)) {
        TRY(byte_scales_operands(b, lane, t, p, e));
        return run_product(b, lane, t, p, false, way, found, e);
    }
    TRY(run_own(b, lane, t, p, way, found, e));
    if (*found) return OK;
    TRY(plan_scale(b, lane, SCRATCH_SCALE_A, t->b, has_rows(t), &p->a, &copies.side[0], e));
    TRY(plan_scale(b, lane, SCRATCH_SCALE_B, t->a, has_rows(t), &p->b, &copies.side[1], e));
    TRY(lay_out_scales(b, lane, &copies, e));
    return run_product(b, lane, t, p, false, way, found, e);
}

bool cuda_twins_untransposed(struct backend *b, enum scale_kind kind) {
    return device_twins_untransposed(cuda_of(b)->caps, kind);
}

enum status cuda_matmul_native(struct backend *b, const struct matmul_args *args, bool *native,
                               struct err *e) {
    *native = false;
    if (!is_fp8(args->a) || !is_fp8(args->b)) return OK;
    enum gemm_by by = multiplied_by(cuda_of(b), args);
    if (by == GEMM_EMULATED) return OK;
    struct gemm_problem p = shape_of(args);
    set_native(&p, args);
    if (by == GEMM_BY_SYNC) set_own(&p);
    set_out(&p, args->out);
    p.a.scale = p.b.scale = &p; /* any address but NULL: the scales exist, but not their data */
    if (scale_is_nvfp4(args->a->scale.kind)) p.alpha = &p.beta; /* likewise */
    p.beta = args->beta;
    p.c = p.d;
    return gemm_found(cuda_of(b), LANE_COMPUTE, &p, native, e);
}

/* ---- FP8 on BF16 hardware ---- */

/* The view of x widened to BF16 at `data`, in the order of its codes, and its bytes. */
static struct tensor wide_view(const struct tensor *x, void *data, int64_t *bytes) {
    bool untransposed = fp8_is_untransposed(x);
    int64_t line = x->dim[untransposed ? 0 : 1], lines = x->dim[untransposed ? 1 : 0];
    struct tensor wide = tensor_2d(data, DTYPE_BF16, x->dim[0], x->dim[1]);
    wide.stride[untransposed ? 1 : 0] = round_up(line, 8);
    wide.stride[untransposed ? 0 : 1] = 1;
    *bytes = 2 * lines * round_up(line, 8);
    return wide;
}

/* x widened to BF16 in scratch; without its factors if `plain`. */
static enum status widen(struct backend *b, int lane, enum scratch_use use, const struct tensor *x,
                         bool plain, struct gemm_operand *o, struct err *e) {
    struct tensor codes = *x;
    int64_t bytes;
    void *data;
    wide_view(x, NULL, &bytes);
    TRY(cuda_scratch(b, lane, use, bytes, &data, e));
    struct tensor wide = wide_view(x, data, &bytes);
    if (plain) codes.scale.kind = SCALE_NONE;
    TRY(cuda_dequantise(b, lane, &wide, &codes, e));
    *o = bf16_operand(&wide);
    return OK;
}

static enum status run_emulated(struct backend *b, int lane, const struct matmul_args *t,
                                struct gemm_problem *p, struct gemm_way *way, bool *found,
                                struct err *e) {
    bool plain = scale_block(t->a->scale.kind) == 0;
    bool unscaled = plain || scale_is_nvfp4(t->a->scale.kind);
    TRY(widen(b, lane, SCRATCH_OPERAND_A, t->b, plain, &p->a, e));
    TRY(widen(b, lane, SCRATCH_OPERAND_B, t->a, plain, &p->b, e));
    return run_product(b, lane, t, p, unscaled, way, found, e);
}

/* ---- the way of a product ---- */

/* Which call of gemm.cu run_product would make: that of the whole problem or of the plain one. */
static enum status way_of_product(struct cuda_backend *cb, const struct matmul_args *t,
                                  const struct gemm_problem *p, bool unscaled,
                                  struct gemm_way *way, struct err *e) {
    *way = {};
    if (!unscaled && epilogue_fits(t)) {
        struct gemm_problem whole = whole_problem(t, p);
        TRY(gemm_way_of(cb, LANE_COMPUTE, &whole, way, e));
        if (way->found) return OK;
    }
    struct gemm_problem plain = plain_problem(p, NULL); /* scratch is aligned */
    return gemm_way_of(cb, LANE_COMPUTE, &plain, way, e);
}

/* x as widen() gives it; without data, since only alignment counts. */
static struct gemm_operand wide_operand(const struct tensor *x) {
    int64_t bytes;
    struct tensor wide = wide_view(x, NULL, &bytes);
    return bf16_operand(&wide);
}

/* The arithmetic of this device; NULL if it was never compared with one. */
static const struct arithmetic *arithmetic_of_device(const struct cuda_backend *cb) {
    struct err ignored = {};
    const struct arithmetic *m = NULL;
    bool found = cb->cc == 90 && arithmetic_find("hopper", &m, &ignored) == OK;
    return found && m->verified ? m : NULL;
}

enum status cuda_product_way(struct backend *b, const struct matmul_args *args,
                             struct mma_way *way, bool *known, struct err *e) {
    struct cuda_backend *cb = cuda_of(b);
    const struct arithmetic *m = arithmetic_of_device(cb);
    *known = false;
    enum gemm_by multiplier = multiplied_by(cb, args);
    if (!m || !arithmetic_describes(m, args)) return OK;
    if (is_fp8(args->a) && multiplier == GEMM_BY_SYNC) return OK;
    struct gemm_problem p = shape_of(args);
    struct gemm_way by = {};
    bool fp8 = is_fp8(args->a), native = fp8;
    if (fp8 && multiplier == GEMM_BY_LIBRARY) {
        set_native(&p, args);
        p.a.scale = p.b.scale = &p; /* any address but NULL */
        TRY(way_of_product(cb, args, &p, false, &by, e));
    }
    if (fp8 && !by.found) {
        native = false;
        p = shape_of(args);
        p.a = wide_operand(args->b);
        p.b = wide_operand(args->a);
        bool unscaled = scale_block(args->a->scale.kind) == 0;
        TRY(way_of_product(cb, args, &p, unscaled, &by, e));
    } else if (!fp8) {
        p.a = bf16_operand(args->b);
        p.b = bf16_operand(args->a);
        TRY(way_of_product(cb, args, &p, false, &by, e));
    }
    if (!by.found || !by.known) return OK;
    TRY(arithmetic_way_as(m, args, native, way, e));
    way->order = by.way.order;
    way->mma.group = by.way.mma.group;
    way->rounded = by.way.rounded;
    way->fused = by.way.fused;
    way->bias_last = by.way.bias_last;
    if (native) way->factors = by.way.factors;
    *known = true;
    return OK;
}

/* ---- the record ---- */

/* An operand's type as the library got it: BF16 if emulated. */
static const char *library_type(cudaDataType_t type) {
    if (type == CUDA_R_4F_E2M1) return "e2m1";
    return type == CUDA_R_8F_E4M3 ? "e4m3" : type == CUDA_R_8F_E5M2 ? "e5m2" : "bf16";
}

static enum status record(struct backend *b, const struct matmul_args *t,
                          const struct gemm_problem *p, const char *way,
                          const struct gemm_way *by, struct err *e) {
    static const char *const DIRECTION[] = { "fprop", "dgrad", "wgrad" };
    if (!t->name) return OK;
    struct decision d = {};
    snprintf(d.section, sizeof d.section, "gemm");
    snprintf(d.name, sizeof d.name, "%s", t->name);
    snprintf(d.direction, sizeof d.direction, "%s", DIRECTION[t->direction]);
    snprintf(d.way, sizeof d.way, "%s", way);
    const char *a = scale_kind_name(t->a->scale.kind), *w = scale_kind_name(t->b->scale.kind);
    snprintf(d.detail, sizeof d.detail, "%s%s%s x %s%s%s%s%s%s", library_type(p->b.type),
             *a ? " " : "", a, library_type(p->a.type), *w ? " " : "", w,
             p->fast_accumulate ? ", fast" : "", *by->why ? ", " : "", by->why);
    return cuda_decided(cuda_of(b), &d, e);
}

enum status cuda_matmul(struct backend *b, int lane, const struct matmul_args *args,
                        struct err *e) {
    TRY(check_args(args, e));
    struct gemm_problem p = shape_of(args);
    if (p.m == 0 || p.n == 0) return OK;
    bool found = false;
    const char *way = "bf16";
    struct gemm_way by = {};
    by.why = "";
    if (is_fp8(args->a)) {
        way = "native";
        TRY(run_native(b, lane, args, &p, &by, &found, e));
        if (!found) {
            struct gemm_kind kind = kind_of(cuda_of(b), args);
            way = "emulated";
            p = shape_of(args); /* the native attempt may have set scales, and NVFP4's alpha */
            TRY(run_emulated(b, lane, args, &p, &by, &found, e));
            if (gemm_refused_by_version(&kind)) by.why = gemm_refusal(&kind);
        }
    } else {
        p.a = bf16_operand(args->b);
        p.b = bf16_operand(args->a);
        TRY(run_product(b, lane, args, &p, false, &by, &found, e));
    }
    TRY(record(b, args, &p, found ? way : "refused", &by, e));
    if (found) return OK;
    return FAIL(e, ERR_UNSUPPORTED, "matmul: cuBLASLt has no algorithm for M %lld, N %lld, K %lld",
                (long long)p.n, (long long)p.m, (long long)p.k);
}
