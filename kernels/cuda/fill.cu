/* Constants, initial weights, zeros, copies between dtypes and strides. */
#include "kernels/cuda/cuda_common.cuh"
#include "kernels/exactmath_f32.h"

__global__ void fill_normal_kernel(struct grad_view x, int64_t n, float std, uint64_t key,
                                   int64_t element) {
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += step)
        grad_store(x, i, std * exact_normalf(rng_bits(key, (uint64_t)(element + i))));
}

enum status cuda_fill_normal(struct backend *b, int lane, const struct tensor *x, float std,
                             uint64_t seed, uint32_t tensor_id, int64_t element_base,
                             struct err *e) {
    TRY(cuda_check_packed(x, "fill_normal: x", IS_GRAD, -1, -1, e));
    if (element_base < 0)
        return FAIL(e, ERR_ARG, "fill_normal: element_base %lld", (long long)element_base);
    int64_t n = tensor_count(x);
    fill_normal_kernel<<<grid_for(b, n, 256), 256, 0, cuda_lane(b, lane)>>>(
        grad_of(x), n, std, rng_key(seed, RNG_INIT, 0, tensor_id), element_base);
    return cuda_launched("fill_normal", e);
}

__global__ void fill_kernel(struct grad_view x, int64_t n, float value) {
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += step)
        grad_store(x, i, value);
}

enum status cuda_fill(struct backend *b, int lane, const struct tensor *x, float value,
                      struct err *e) {
    TRY(cuda_check_packed(x, "fill: x", IS_GRAD, -1, -1, e));
    int64_t n = tensor_count(x);
    fill_kernel<<<grid_for(b, n, 256), 256, 0, cuda_lane(b, lane)>>>(grad_of(x), n, value);
    return cuda_launched("fill", e);
}

/* ---- any strides ---- */

struct shape { int64_t dim[4], stride_out[4], stride_in[4]; };

static struct shape shape_of(const struct tensor *out, const struct tensor *x) {
    struct shape s;
    for (int d = 0; d < 4; d++) {
        s.dim[d] = out->dim[d];
        s.stride_out[d] = out->stride[d];
        s.stride_in[d] = x ? x->stride[d] : 0;
    }
    return s;
}

/* Offsets of row-major element i in both tensors. */
__device__ static void offsets_of(const struct shape &s, int64_t i, int64_t *out, int64_t *in) {
    *out = *in = 0;
#pragma unroll
    for (int d = 3; d >= 0; d--) {
        int64_t index = i % s.dim[d];
        i /= s.dim[d];
        *out += index * s.stride_out[d];
        *in += index * s.stride_in[d];
    }
}

template <class T>
__global__ void zero_kernel(T *x, struct shape s, int64_t n) {
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += step) {
        int64_t out, in;
        offsets_of(s, i, &out, &in);
        x[out] = 0;
    }
}

enum status cuda_zero(struct backend *b, int lane, const struct tensor *x, struct err *e) {
    int64_t n = tensor_count(x), bytes = dtype_bytes(x->dtype);
    if (n == 0) return OK;
    if (cuda_is_packed(x)) {
        CUDA_TRY(e, cudaMemsetAsync(x->data, 0, (size_t)(n * bytes), cuda_lane(b, lane)));
        return OK;
    }
    struct shape s = shape_of(x, NULL);
    unsigned grid = grid_for(b, n, 256);
    cudaStream_t stream = cuda_lane(b, lane);
    if (bytes == 1) zero_kernel<<<grid, 256, 0, stream>>>((uint8_t *)x->data, s, n);
    else if (bytes == 2) zero_kernel<<<grid, 256, 0, stream>>>((uint16_t *)x->data, s, n);
    else if (bytes == 4) zero_kernel<<<grid, 256, 0, stream>>>((uint32_t *)x->data, s, n);
    else zero_kernel<<<grid, 256, 0, stream>>>((uint64_t *)x->data, s, n);
    return cuda_launched("zero", e);
}

template <class T>
__global__ void move_kernel(T *out, const T *x, struct shape s, int64_t n) {
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += step) {
        int64_t to, from;
        offsets_of(s, i, &to, &from);
        out[to] = x[from];
    }
}

__global__ void convert_kernel(struct grad_view out, struct grad_view x, struct shape s, int64_t n,
                               bool packed) {
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += step) {
        int64_t to = i, from = i;
        if (!packed) offsets_of(s, i, &to, &from);
        grad_store(out, to, grad_load(x, from));
    }
}

template <class T>
static void launch_move(struct backend *b, int lane, const struct tensor *out,
                        const struct tensor *x, int64_t n) {
    move_kernel<<<grid_for(b, n, 256), 256, 0, cuda_lane(b, lane)>>>(
        (T *)out->data, (const T *)x->data, shape_of(out, x), n);
}

enum status cuda_copy(struct backend *b, int lane, const struct tensor *out, const struct tensor *x,
                      struct err *e) {
    for (int d = 0; d < 4; d++)
        if (out->dim[d] != x->dim[d]) return FAIL(e, ERR_ARG, "copy: the shapes differ");
    if ((!out->data || !x->data) && tensor_count(x))
        return FAIL(e, ERR_ARG, "copy: %s is missing", out->data ? "x" : "out");
    bool floats = (IS_GRAD & 1 << out->dtype) && (IS_GRAD & 1 << x->dtype);
    if (out->dtype != x->dtype && !floats)
        return FAIL(e, ERR_ARG, "copy: from %s to %s", dtype_name(x->dtype),
                    dtype_name(out->dtype));
    int64_t n = tensor_count(x);
    bool packed = cuda_is_packed(out) && cuda_is_packed(x);
    if (n == 0) return OK;
    if (out->dtype == x->dtype && cuda_is_transposed_copy(out, x))
        return cuda_transpose(b, lane, out, x, e);
    if (out->dtype != x->dtype)
        convert_kernel<<<grid_for(b, n, 512), 256, 0, cuda_lane(b, lane)>>>(
            grad_of(out), grad_of(x), shape_of(out, x), n, packed);
    else if (!packed && dtype_bytes(x->dtype) == 1) launch_move<uint8_t>(b, lane, out, x, n);
    else if (!packed && dtype_bytes(x->dtype) == 2) launch_move<uint16_t>(b, lane, out, x, n);
    else if (!packed && dtype_bytes(x->dtype) == 4) launch_move<uint32_t>(b, lane, out, x, n);
    else if (!packed) launch_move<uint64_t>(b, lane, out, x, n);
    else
        CUDA_TRY(e, cudaMemcpyAsync(out->data, x->data, (size_t)(n * dtype_bytes(x->dtype)),
                                    cudaMemcpyDeviceToDevice, cuda_lane(b, lane)));
    return cuda_launched("copy", e);
}
