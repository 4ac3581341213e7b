/* In which way an arithmetic adds a product: from the product's kind and shape alone, never from a
 * time. The CUDA backend chooses among algorithms that add in this way (kernels/cuda/gemm.cu). */
#include "kernels/arithmetic.h"

enum { SYNC_CHAIN = 128 }; /* of kernels/cuda/gemm_sync.cu, with fast accumulation too */

static int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- split-K ---- */

/* An estimate of the time of a product in parts, in ns, from integers: the same on every machine.
 * Tiles of outputs go to MULTIPROCESSORS in waves. The sum of parts goes through memory once. The
 * constants are an H200's, rounded. Results depend on them: whoever changes them changes bits. */
enum {
    MULTIPROCESSORS = 132,
    BYTES_A_NS = 3500,
    SUM_NS = 4000,     /* to start the sum */
    PARTS_MAX = 32,
    PART_LEAST = 512,  /* shorter parts spend their time in prologues */
    FLOATS_MAX = 16 << 20, /* of all parts: cuBLASLt's workspace, 64 MiB */
    UNIT = 64 * 64     /* outputs */
};

static const struct { int64_t rows, cols; } TILES[] = {
    { 128, 256 }, { 256, 128 }, { 128, 192 }, { 192, 128 }, { 128, 128 }, { 128, 160 },
    { 160, 128 }, { 64, 192 }, { 192, 64 }, { 64, 128 }, { 128, 64 }, { 64, 64 } };
enum { SQUARE_TILE = 4, LAST_TILE = sizeof TILES / sizeof *TILES - 1 };

/* How fast a multiprocessor is: for each step of K, a tile takes step_ps, and unit_ps for each unit
 * of its outputs. `step`: what a library divides K by. Sums of chains need registers beside those
 * of the chain, so their tiles are small. */
struct pace { int64_t step, first_tile, last_tile, unit_ps, step_ps, start_ns; };
static const struct pace BF16 = { 64, 0, SQUARE_TILE, 1550, 0, 0 },
                         FP8_FAST = { 128, 0, SQUARE_TILE, 775, 0, 0 },
                         FP8_PROMOTED = { 128, SQUARE_TILE, LAST_TILE, 600, 250, 3000 };

static int64_t estimate(int64_t rows, int64_t cols, int64_t part, int64_t parts,
                        const struct pace *pace) {
    int64_t least = INT64_MAX;
    for (int64_t i = pace->first_tile; i <= pace->last_tile; i++) {
        int64_t tiles = ceil_div(rows, TILES[i].rows) * ceil_div(cols, TILES[i].cols);
        int64_t waves = ceil_div(tiles * parts, MULTIPROCESSORS);
        int64_t units = TILES[i].rows * TILES[i].cols / UNIT;
        least = min_i64(least, waves * (units * pace->unit_ps + pace->step_ps));
    }
    int64_t ns = least * part / 1000 + pace->start_ns;
    return parts > 1 ? ns + SUM_NS + parts * rows * cols * 8 / BYTES_A_NS : ns;
}

/* The number of parts that saves the most time, if that is an eighth; 0: one part. A library gives
 * each part the same number of its steps along K, the last part the rest. */
static int64_t part_of(int64_t rows, int64_t cols, int64_t k, const struct pace *pace) {
    const int64_t outputs_max = (int64_t)MULTIPROCESSORS * 128 * 256;
    if (rows > outputs_max / 128 || cols > outputs_max / 128 || rows * cols > outputs_max) return 0;
    int64_t best = 0, least = estimate(rows, cols, k, 1, pace) * 7 / 8;
    for (int64_t parts = 2; parts <= PARTS_MAX && k / parts >= PART_LEAST; parts++) {
        int64_t part = round_up(ceil_div(k, parts), pace->step);
        if (ceil_div(k, part) != parts || parts * rows * cols > FLOATS_MAX) continue;
        int64_t time = estimate(rows, cols, part, parts, pace);
        if (time >= least) continue;
        least = time;
        best = part;
    }
    return best;
}

/* ---- the kind of a product ---- */

static int least_of(enum dtype t) {
    if (t == DTYPE_E4M3) return MMA_LEAST_E4M3;
    return t == DTYPE_E5M2 ? -14 : MMA_LEAST;
}

/* One fma chain; or one a block, and the factors with the chain's sum into the total. */
static struct mma_way reference_way(const struct matmul_args *args) {
    int64_t block = arithmetic_block(args->a->scale.kind);
    struct mma_way way = { .block = block, .order = { .chain = block } };
    way.last_factor = !block && dtype_is_fp8(args->a->dtype);
    return way;
}

bool arithmetic_describes(const struct arithmetic *m, const struct matmul_args *args) {
    if (arithmetic_is_reference(m)) return true;
    return args->a->dtype != DTYPE_F32 && (!scale_is_nvfp4(args->a->scale.kind) || m->fp4.group);
}

/* Whether both scales are among `kinds` (1 << enum scale_kind). */
static bool is_among(unsigned kinds, const struct matmul_args *args) {
    return kinds >> args->a->scale.kind & kinds >> args->b->scale.kind & 1;
}

/* Whether a device multiplies these FP8 operands as they are. Hopper's library lists no algorithm
 * for some shapes. */
static bool is_native(const struct arithmetic *m, const struct matmul_args *args) {
    enum { NATIVE_COLS = 4 };
    int64_t rows = args->a->dim[0], cols = args->b->dim[0];
    if (!is_among(m->native, args)) return is_among(m->by_sync, args);
    if (!m->by_shape) return true;
    bool blocks = arithmetic_block(args->a->scale.kind) != 0;
    return blocks ? rows % 8 == 0 && cols % 8 == 0 : cols % NATIVE_COLS == 0;
}

/* Whether bias, C and residual are added to the f32 product in a pass of their own. Factors of
 * widened operands are then, too. */
static bool is_apart(const struct matmul_args *args, bool factors_left) {
    const struct tensor *r = args->residual, *out = args->out;
    if (factors_left || !r) return factors_left;
    bool fits = args->beta == 0.0f && r->stride[0] == out->stride[0] &&
                (out->dtype == DTYPE_F32 || out->stride[0] % 8 == 0);
    return !fits;
}

/* Hopper's block-scaled kernel of this project (kernels/cuda/gemm_hopper.cu). */
static bool is_own(const struct matmul_args *args, const struct mma_way *way) {
    const struct tensor *a = args->a, *b = args->b;
    return way->block == 128 && a->dtype == DTYPE_E4M3 && b->dtype == DTYPE_E4M3 &&
           a->scale.kind == SCALE_1X128 &&
           args->out->stride[0] * dtype_bytes(args->out->dtype) % 16 == 0;
}

/* What depends on the shape and the addends: the class in which algorithms are chosen. */
static void set_class(const struct matmul_args *args, bool native, struct mma_way *way) {
    bool apart = is_apart(args, way->last_factor && !native);
    bool alone = apart || (!args->bias && !args->residual);
    const struct pace *pace = !native ? &BF16 : way->order.chain ? &FP8_PROMOTED : &FP8_FAST;
    bool rows = args->a->scale.kind == SCALE_ROW || args->b->scale.kind == SCALE_ROW;
    /* The library has one algorithm for row scales, and it does not split. */
    if (alone && !way->block && !(native && rows))
        way->order.part = part_of(args->a->dim[0], args->b->dim[0], args->a->dim[1], pace);
    bool in_place = args->beta != 0.0f && args->out->dtype == DTYPE_BF16;
    /* The library's epilogue: alpha AB + C in one rounding, then the bias. */
    way->fused = native && way->last_factor && way->factors == FACTORS_TOGETHER &&
                 args->residual && !apart;
    way->rounded = in_place && !apart && !way->order.part && !is_own(args, way);
    way->bias_last = !apart && !way->rounded && args->bias &&
                     (args->residual || args->beta != 0.0f);
    if (way->block && args->a->scale.kind == SCALE_1X128 && args->b->scale.kind == SCALE_1X128)
        way->factors = FACTOR_A_FIRST;
}

enum status arithmetic_way_as(const struct arithmetic *m, const struct matmul_args *args,
                              bool native, struct mma_way *way, struct err *e) {
    const struct tensor *a = args->a, *b = args->b;
    if (arithmetic_is_reference(m)) {
        *way = reference_way(args);
        return OK;
    }
    *way = (struct mma_way){ .mma = m->bf16, .least_a = MMA_LEAST, .least_b = MMA_LEAST };
    if (a->dtype == DTYPE_F32)
        return FAIL(e, ERR_UNSUPPORTED, "matmul: a is f32, and %s multiplies bf16 and FP8 only: "
                    "use a recipe without f32, or the arithmetic reference", m->name);
    bool nvfp4 = scale_is_nvfp4(a->scale.kind);
    if (nvfp4 && !m->fp4.group)
        return FAIL(e, ERR_UNSUPPORTED, "matmul: a has scales of NVFP4, whose products %s does not "
                    "describe: use another recipe, or the arithmetic reference", m->name);
    int64_t block = arithmetic_block(a->scale.kind);
    bool fp8 = dtype_is_fp8(a->dtype), library = is_among(m->native, args);
    native = native && fp8;
    way->last_factor = fp8 && block == 0;
    way->widened = fp8 && !native && block != 0;
    if (native) {
        way->mma = nvfp4 ? m->fp4 : m->fp8;
        way->term = nvfp4 ? block : 0;
        way->least_a = least_of(a->dtype);
        way->least_b = least_of(b->dtype);
        way->scaled = block == 32;
        if (block == 128) way->block = way->order.chain = block;
        else if (!library) way->order.chain = SYNC_CHAIN;
        else if (!args->fast_accumulate && !block) way->order.chain = m->promoted;
        bool rows = a->scale.kind == SCALE_ROW || b->scale.kind == SCALE_ROW;
        if (library && rows) way->factors = FACTOR_B_FIRST;
    }
    if (m->by_shape) set_class(args, native, way);
    return OK;
}

enum status arithmetic_way(const struct arithmetic *m, const struct matmul_args *args,
                           struct mma_way *way, struct err *e) {
    return arithmetic_way_as(m, args, is_native(m, args), way, e);
}
