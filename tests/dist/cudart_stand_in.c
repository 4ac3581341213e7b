/* The functions of the CUDA runtime that kernels/cuda/cuda_progress.cu calls, without a GPU, for
 * progress_threads.cu. Streams and events do nothing. A memset of the device is queued in
 * progress_threads.cu. No header of CUDA is included, since its inline definitions would clash. */
#include <stdlib.h>

void queue_mark(unsigned char *at, int value);

int cudaHostAlloc(void **out, size_t bytes, unsigned flags) {
    *out = malloc(bytes);
    return *out ? 0 : 2;
}
int cudaFreeHost(void *memory) {
    free(memory);
    return 0;
}
int cudaMemsetAsync(void *at, int value, size_t bytes, void *stream) {
    queue_mark(at, value);
    return 0;
}
int cudaStreamCreateWithFlags(void **out, unsigned flags) { return 0; }
int cudaStreamDestroy(void *stream) { return 0; }
int cudaStreamQuery(void *stream) { return 0; }
int cudaStreamWaitEvent(void *stream, void *event, unsigned flags) { return 0; }
int cudaEventCreateWithFlags(void **out, unsigned flags) { return 0; }
int cudaEventRecord(void *event, void *stream) { return 0; }
int cudaEventDestroy(void *event) { return 0; }
const char *cudaGetErrorString(int error) { return "an error of the stand-in"; }

/* What code compiled by nvcc calls before main. */
void **__cudaRegisterFatBinary(void *binary) { return NULL; }
void __cudaRegisterFatBinaryEnd(void **handle) {}
void __cudaUnregisterFatBinary(void **handle) {}
char __cudaInitModule(void **handle) { return 1; }
