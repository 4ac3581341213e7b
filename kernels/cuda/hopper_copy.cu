#include "kernels/cuda/hopper_copy.cuh"

/* The driver's function, found through the runtime: this library is not linked to the driver's. */
static enum status encoder(decltype(&cuTensorMapEncodeTiled) *out, struct err *e) {
    void *found = NULL;
    cudaDriverEntryPointQueryResult result;
    CUDA_TRY(e, cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                                 cudaEnableDefault, &result));
    if (result != cudaDriverEntryPointSuccess || !found)
        return FAIL(e, ERR_DEVICE, "the driver has no cuTensorMapEncodeTiled");
    *out = (decltype(&cuTensorMapEncodeTiled))found;
    return OK;
}

enum status hopper_map(CUtensorMap *out, const void *data, int64_t batch, int64_t length,
                       int64_t heads, int64_t head_dim, int64_t row, int rows, struct err *e) {
    decltype(&cuTensorMapEncodeTiled) encode = NULL;
    TRY(encoder(&encode, e));
    const cuuint64_t dim[4] = { (cuuint64_t)head_dim, (cuuint64_t)heads, (cuuint64_t)length,
                                (cuuint64_t)batch };
    const cuuint64_t stride[3] = { (cuuint64_t)head_dim * 2, (cuuint64_t)row * 2,
                                   (cuuint64_t)(length * row) * 2 };
    const cuuint32_t box[4] = { 64, 1, (cuuint32_t)rows, 1 }, step[4] = { 1, 1, 1, 1 };
    CUresult result = encode(out, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, (void *)data, dim, stride,
                             box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result == CUDA_SUCCESS) return OK;
    return FAIL(e, ERR_DEVICE, "a tensor map of [%lld, %lld, %lld, %lld]: driver status %d",
                (long long)batch, (long long)length, (long long)heads, (long long)head_dim,
                (int)result);
}
