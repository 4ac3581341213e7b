#include "kernels/cuda/hopper_copy.cuh"

/* Finds the driver's function through the runtime: this library is not linked to the driver. */
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

/* A map of `rank` dimensions, innermost first; strides in bytes from the second on. */
static enum status encode(CUtensorMap *out, CUtensorMapDataType type, CUtensorMapSwizzle swizzle,
                          const void *data, unsigned rank, const cuuint64_t *dim,
                          const cuuint64_t *stride, const cuuint32_t *box, struct err *e) {
    decltype(&cuTensorMapEncodeTiled) driver = NULL;
    TRY(encoder(&driver, e));
    const cuuint32_t step[4] = { 1, 1, 1, 1 };
    CUresult result = driver(out, type, rank, (void *)data, dim, stride, box, step,
                             CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result == CUDA_SUCCESS) return OK;
    unsigned long long size[4] = { 1, 1, 1, 1 };
    for (unsigned i = 0; i < rank; i++) size[i] = dim[i];
    return FAIL(e, ERR_DEVICE, "a tensor map of [%llu, %llu, %llu, %llu]: driver status %d",
                size[3], size[2], size[1], size[0], (int)result);
}

enum status hopper_map(CUtensorMap *out, const void *data, int64_t batch, int64_t length,
                       int64_t heads, int64_t head_dim, int64_t row, int rows, struct err *e) {
    const cuuint64_t dim[4] = { (cuuint64_t)head_dim, (cuuint64_t)heads, (cuuint64_t)length,
                                (cuuint64_t)batch };
    const cuuint64_t stride[3] = { (cuuint64_t)head_dim * 2, (cuuint64_t)row * 2,
                                   (cuuint64_t)(length * row) * 2 };
    const cuuint32_t box[4] = { 64, 1, (cuuint32_t)rows, 1 };
    return encode(out, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_SWIZZLE_128B, data, 4, dim,
                  stride, box, e);
}

enum status hopper_rows_map(CUtensorMap *out, const void *data, int64_t rows, int64_t bytes,
                            int64_t stride, int piece, struct err *e) {
    const cuuint64_t dim[2] = { (cuuint64_t)(bytes / PIECE_WORD), (cuuint64_t)rows };
    const cuuint64_t apart[1] = { (cuuint64_t)stride };
    const cuuint32_t box[2] = { (cuuint32_t)(piece / PIECE_WORD), 1 };
    return encode(out, CU_TENSOR_MAP_DATA_TYPE_INT64, CU_TENSOR_MAP_SWIZZLE_NONE, data, 2, dim,
                  apart, box, e);
}

enum status hopper_codes_map(CUtensorMap *out, const void *data, int64_t rows, int64_t k,
                             int64_t stride, int box, struct err *e) {
    const cuuint64_t dim[2] = { (cuuint64_t)k, (cuuint64_t)rows };
    const cuuint64_t apart[1] = { (cuuint64_t)stride };
    const cuuint32_t size[2] = { 128, (cuuint32_t)box };
    return encode(out, CU_TENSOR_MAP_DATA_TYPE_UINT8, CU_TENSOR_MAP_SWIZZLE_128B, data, 2, dim,
                  apart, size, e);
}
