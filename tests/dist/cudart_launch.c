/* The functions of the CUDA runtime that products need, without a GPU, for cublaslt_calls.cu and
 * gemm_class.cu. The device's memory is the host's, and a launched kernel goes to stand_in_launch()
 * by its name. No header of CUDA is included, since its inline definitions would clash. */
#include <stdlib.h>
#include <string.h>

void stand_in_launch(const char *name, void **args);

struct dim3 { unsigned x, y, z; };

enum { KERNELS = 32 };
static struct { const void *host; const char *name; } kernel[KERNELS];
static int kernels;
static struct { struct dim3 grid, block; size_t shared; void *stream; } pushed;

int cudaMalloc(void **out, size_t bytes) {
    *out = aligned_alloc(256, (bytes + 255) / 256 * 256);
    return *out ? 0 : 2;
}
int cudaFree(void *memory) {
    free(memory);
    return 0;
}
int cudaMemsetAsync(void *at, int value, size_t bytes, void *stream) {
    memset(at, value, bytes);
    return 0;
}
int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
    memcpy(to, from, bytes);
    return 0;
}
int cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                      size_t height, int kind, void *stream) {
    for (size_t i = 0; i < height; i++)
        memcpy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
    return 0;
}
int cudaFuncSetAttribute(const void *kernel, int attribute, int value) { return 0; }
int cudaStreamSynchronize(void *stream) { return 0; }
int cudaEventCreate(void **event) {
    *event = NULL;
    return 0;
}
int cudaEventDestroy(void *event) { return 0; }
int cudaEventRecord(void *event, void *stream) { return 0; }
int cudaEventElapsedTime(float *ms, void *start, void *stop) {
    *ms = 1.0f;
    return 0;
}
int cudaGetLastError(void) { return 0; }
const char *cudaGetErrorString(int error) { return "an error of the stand-in"; }

unsigned __cudaPushCallConfiguration(struct dim3 grid, struct dim3 block, size_t shared,
                                     void *stream) {
    pushed.grid = grid;
    pushed.block = block;
    return 0;
}
int __cudaPopCallConfiguration(struct dim3 *grid, struct dim3 *block, size_t *shared,
                               void *stream) {
    *grid = pushed.grid;
    *block = pushed.block;
    *shared = 0;
    memset(stream, 0, sizeof(void *));
    return 0;
}
int cudaLaunchKernel(const void *host, struct dim3 grid, struct dim3 block, void **args,
                     size_t shared, void *stream) {
    for (int i = 0; i < kernels; i++)
        if (kernel[i].host == host) stand_in_launch(kernel[i].name, args);
    return 0;
}
/* A kernel's host function finds its device function through a handle. */
int __cudaGetKernel(const void **out, const void *host) {
    *out = host;
    return 0;
}
int __cudaLaunchKernel(const void *host, struct dim3 grid, struct dim3 block, void **args,
                       size_t shared, void *stream) {
    return cudaLaunchKernel(host, grid, block, args, shared, stream);
}

/* What code compiled by nvcc calls before main. */
void **__cudaRegisterFatBinary(void *binary) { return NULL; }
void __cudaRegisterFatBinaryEnd(void **handle) {}
void __cudaUnregisterFatBinary(void **handle) {}
char __cudaInitModule(void **handle) { return 1; }
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
                            int limit, void *tid, void *bid, void *block, void *grid, int *size) {
    if (kernels == KERNELS) abort();
    kernel[kernels].host = host;
    kernel[kernels++].name = name;
}
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external,
                       size_t size, int constant, int global) {}
