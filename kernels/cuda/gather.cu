/* Copies pieces of several tensors into one buffer. out may be pinned host memory. A block copies
 * elements of one piece; the views are kernel arguments, so no upload comes before. */
#include "kernels/cuda/strided.cuh"

enum { GATHER_PIECES = 32, GATHER_THREADS = 256, GATHER_BLOCKS = 64 };

struct gather_pieces {
    struct strided_view view[GATHER_PIECES];
    int64_t at[GATHER_PIECES], count[GATHER_PIECES]; /* byte in out; elements */
    uint8_t bytes[GATHER_PIECES];                    /* of an element */
};
static_assert(sizeof(struct gather_pieces) <= 4000, "kernel arguments have 4 KiB");

__global__ void gather_kernel(char *out, struct gather_pieces p) {
    int piece = blockIdx.y, bytes = p.bytes[piece];
    char *to = out + p.at[piece];
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < p.count[piece];
         i += step) {
        int64_t from = strided_at(p.view[piece], i);
        const void *data = p.view[piece].data;
        switch (bytes) {
        case 1: ((uint8_t *)to)[i] = ((const uint8_t *)data)[from]; break;
        case 2: ((uint16_t *)to)[i] = ((const uint16_t *)data)[from]; break;
        case 4: ((uint32_t *)to)[i] = ((const uint32_t *)data)[from]; break;
        default: ((uint64_t *)to)[i] = ((const uint64_t *)data)[from]; break;
        }
    }
}

/* Up to GATHER_PIECES of them; *at: the end of the pieces before. */
static enum status gather_some(struct backend *b, int lane, const struct tensor *out,
                               const struct tensor *x, int64_t first, int n, int64_t *at,
                               struct err *e) {
    int64_t room = tensor_count(out) * dtype_bytes(out->dtype), longest = 0;
    struct gather_pieces p;
    for (int i = 0; i < n; i++) {
        const struct tensor *piece = &x[first + i];
        int64_t count = tensor_count(piece), bytes = dtype_bytes(piece->dtype);
        if (!piece->data)
            return FAIL(e, ERR_ARG, "gather: x[%lld] is missing", (long long)(first + i));
        *at = round_up(*at, GATHER_ALIGN);
        p.view[i] = strided_of(piece);
        p.at[i] = *at;
        p.count[i] = count;
        p.bytes[i] = (uint8_t)bytes;
        *at += count * bytes;
        if (*at > room)
            return FAIL(e, ERR_ARG, "gather: out has %lld bytes; x[%lld] ends at %lld",
                        (long long)room, (long long)(first + i), (long long)*at);
        longest = max_i64(longest, count);
    }
    int64_t blocks = min_i64(ceil_div(max_i64(longest, 1), GATHER_THREADS), GATHER_BLOCKS);
    dim3 grid((unsigned)blocks, (unsigned)n);
    gather_kernel<<<grid, GATHER_THREADS, 0, cuda_lane(b, lane)>>>((char *)out->data, p);
    return cuda_launched("gather", e);
}

enum status cuda_gather(struct backend *b, int lane, const struct tensor *out,
                        const struct tensor *x, int64_t n, struct err *e) {
    if (!out || !out->data || !cuda_is_packed(out))
        return FAIL(e, ERR_ARG, "gather: out is missing or not packed");
    if (n < 0) return FAIL(e, ERR_ARG, "gather: %lld pieces", (long long)n);
    int64_t at = 0;
    for (int64_t i = 0; i < n; i += GATHER_PIECES)
        TRY(gather_some(b, lane, out, x, i, (int)min_i64(n - i, GATHER_PIECES), &at, e));
    return OK;
}
