/* AdamW of weights that become FP8 codes in the same pass, a tile of 128 x 128 at a time. The
 * result equals, to the bit, the span kernel of adamw.cu followed by quantise.cu, without reading
 * the new weights again.
 *
 * Bound by memory: 14 bytes an element with BF16 throughout, and 2 of codes with a transposed copy.
 * A thread processes the eight rows of its patch one at a time, since registers limit the loads in
 * flight. The new weights wait in shared memory until the tile is complete and its multiplier is
 * known. Half a warp has 128 elements of a row: one block of 8-bit state. */
#include "kernels/cuda/adamw.cuh"
#include "kernels/cuda/cast_tile.cuh"

struct adamw_tiles {
    struct adamw_tensor tensor[ADAMW_TILE_TENSORS];
    struct tile_args codes[ADAMW_TILE_TENSORS];
    int count;
    struct adamw_step step;
};
static_assert(sizeof(struct adamw_tiles) <= 4096, "a kernel's parameters");
static_assert((int)ADAMW_THREADS == TILE_THREADS && (int)PER_LANE == PATCH &&
              (int)STATE_BLOCK == TILE,
              "a lane's eight elements are a row of its patch");

struct tile_memory {
    union {
        uint4 weight[TILE][TILE / PATCH]; /* [row][8 columns]; each read by its writer */
        struct tile_shared transposed;
    };
    uint32_t top[TILE_WARPS]; /* SCALE_128X128: the largest |bits| of a warp's rows */
};

struct by_tile {
    __device__ static int64_t at(int64_t element) { return element; }
    __device__ static uint4 from_weights(uint4 weights) { return weights; }
};

/* Updates one tile. Returns this thread's largest |bits|, packed as two 16-bit maxima. */
template <int STATE, bool MASTER, int GRAD>
__device__ static uint32_t update_tile(const struct adamw_tensor &t, const struct scalars &s,
                                       uint64_t key, struct tile_at at, int64_t cols,
                                       struct tile_memory &memory) {
    int64_t first = (at.row0 + patch_row()) * cols + at.col0 + patch_col();
    uint32_t top = 0;
#pragma unroll 1
    for (int j = 0; j < PATCH; j++, first += cols) {
        uint4 weight = update<by_tile, STATE, MASTER, GRAD>(t, s, key, first);
        memory.weight[patch_row() + j][patch_col() / PATCH] = weight;
        top = __vmaxu2(top, bf16x8_largest(weight));
    }
    return top;
}

/* SCALE_128X128: the multiplier of a tile, from every thread's largest |bits|. Contains a block
 * barrier. */
__device__ static float block_multiplier(const struct tile_args &c, struct tile_at at,
                                         uint32_t top, struct tile_memory &memory) {
    top = warp_max(max(top & 0xFFFFu, top >> 16));
    if (threadIdx.x % WARP == 0) memory.top[threadIdx.x / WARP] = top;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE_WARPS; i++) top = max(top, memory.top[i]);
    struct multiplier r = quant_multiplier_of(c.rule, false, f32_from_bits(top << 16));
    int64_t down = at.row0 / TILE, across = at.col0 / TILE;
    if (threadIdx.x == 0) {
        if (c.row.codes) ((float *)c.row.scale)[down * c.row.scale_cols + across] = r.factor;
        if (c.col.codes) ((float *)c.col.scale)[across * c.col.scale_cols + down] = r.factor;
    }
    return r.m;
}

/* Codes of an updated tile, all with one multiplier, and the transposed codes. */
__device__ static void emit_updated(const struct tile_args &c, struct tile_at at, float multiplier,
                                    struct tile_memory &memory, struct counts &n) {
    uint4 v[PATCH];
    uint2 codes[PATCH];
    float m[PATCH];
#pragma unroll
    for (int j = 0; j < PATCH; j++) v[j] = memory.weight[patch_row() + j][patch_col() / PATCH];
    struct patch_range r = range_of(v);
#pragma unroll
    for (int j = 0; j < PATCH; j++) m[j] = marked<false>(multiplier, r.top);
    if (c.stats) count_patch<false, true>(v, r.least, m, n);
    encode_patch<false, SIDES_SAME, true>(c, at, v, m, m, codes);
    if (!c.col.codes) return;
    __syncthreads(); /* all weights have been read */
    store_transposed<true>(c, at, memory.transposed, codes);
}

/* Like adamw_kernel, but a block takes tiles instead of a warp taking spans. */
template <int STATE, bool MASTER, int GRAD>
__global__ void __launch_bounds__(TILE_THREADS, adamw_blocks(STATE, MASTER))
    adamw_tile_kernel(const __grid_constant__ struct adamw_tiles a) {
    __shared__ struct tile_memory memory;
    __shared__ struct scalars s;
    __shared__ uint64_t key[ADAMW_TILE_TENSORS];
    if (*a.step.flag >= 0) return;
    adamw_begin(s, key, a.step, a.tensor, a.count);
    int64_t tile = blockIdx.x;
    for (int i = 0; i < a.count; i++) { /* tile counts from the first of tensor i */
        const struct tile_args &c = a.codes[i];
        uint32_t across = (uint32_t)(c.cols / TILE), largest = 0;
        int64_t tiles = c.rows / TILE * across;
        bool any = tile < tiles;
        struct counts n = { 0, 0 };
        for (; tile < tiles; tile += gridDim.x) {
            struct tile_at at = { (uint32_t)tile / across * (int64_t)TILE,
                                  (uint32_t)tile % across * (int64_t)TILE };
            uint32_t top = update_tile<STATE, MASTER, GRAD>(a.tensor[i], s, key[i], at, c.cols,
                                                            memory);
            float m = c.multiplier ? *c.multiplier : block_multiplier(c, at, top, memory);
            emit_updated(c, at, m, memory, n);
            __syncthreads(); /* all transposed codes have been read */
            largest = __vmaxu2(largest, top);
        }
        if (any) warp_amax_into(a.tensor[i].amax, max(largest << 16, largest & 0xFFFF0000u));
        if (any && c.stats) add_counts(c, n);
        tile -= tiles;
    }
}

struct tile_kernels {
    template <int STATE, bool MASTER, int GRAD> static auto of() {
        return adamw_tile_kernel<STATE, MASTER, GRAD>;
    }
};

/* True if this side is not wanted, or has one multiplier for a tile or for the tensor. */
static bool side_fuses(const struct tensor *codes) {
    if (!codes || !codes->data) return true;
    return codes->dtype == DTYPE_E4M3 &&
           (codes->scale.kind == SCALE_TENSOR || codes->scale.kind == SCALE_128X128);
}

bool adamw_fuses(const struct adamw_args *args) {
    const struct sink *s = args->weight;
    return cast_fuses(s) && side_fuses(s->codes) && side_fuses(s->codes->transposed);
}

void adamw_launch_tiles(struct backend *b, int lane, const struct adamw_group *group) {
    struct adamw_tiles a = {};
    int64_t tiles = 0;
    for (; a.count < group->count; a.count++) {
        a.tensor[a.count] = adamw_tensor_of(group->of[a.count]);
        a.codes[a.count] = tile_args_of(group->of[a.count]->weight, NULL);
        tiles += a.tensor[a.count].n / (TILE * TILE);
    }
    a.step = adamw_step_of(group->of[0]);
    auto kernel = adamw_kernel_for<tile_kernels>(group->of[0]);
    unsigned blocks = adamw_grid(b, group->of[0], tiles);
    if (blocks) kernel<<<blocks, TILE_THREADS, 0, cuda_lane(b, lane)>>>(a);
}
