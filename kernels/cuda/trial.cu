/* Candidates run in turn; events time several runs in a row of each. */
#include "kernels/cuda/trial.cuh"

#include "kernels/rng.h"

enum { HOLD_NS = 200000 /* enough for the host to queue RUNS of any candidate */ };

enum status trial_open(struct trial *t, struct err *e) {
    CUDA_TRY(e, cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking));
    CUDA_TRY(e, cudaEventCreate(&t->start));
    CUDA_TRY(e, cudaEventCreate(&t->stop));
    return OK;
}

void trial_close(struct trial *t) {
    if (t->start) cudaEventDestroy(t->start);
    if (t->stop) cudaEventDestroy(t->stop);
    if (t->stream) cudaStreamDestroy(t->stream);
    t->start = t->stop = NULL;
    t->stream = NULL;
}

__global__ static void hold_kernel(uint64_t ns) {
    uint64_t start = clock_ns();
    while (clock_ns() - start < ns) continue;
}

struct turns {
    const struct trial *trial;
    trial_queue queue;
    void *context;
};

static float time_runs(void *context, int i, int runs) {
    const struct turns *of = (const struct turns *)context;
    const struct trial *t = of->trial;
    float ms = -1.0f;
    if (t->held) hold_kernel<<<1, 1, 0, t->stream>>>(HOLD_NS);
    if (cudaEventRecord(t->start, t->stream) != cudaSuccess) return -1.0f;
    for (int run = 0; run < runs; run++)
        if (!of->queue(of->context, i, t->stream)) return -1.0f;
    if (cudaEventRecord(t->stop, t->stream) != cudaSuccess ||
        cudaEventSynchronize(t->stop) != cudaSuccess ||
        cudaEventElapsedTime(&ms, t->start, t->stop) != cudaSuccess)
        return -1.0f;
    return ms * 1000.0f / (float)runs;
}

void trial_run(const struct trial *t, trial_queue queue, void *context, int count,
               const struct trial_hint *hint, float *us) {
    struct turns turns = { t, queue, context };
    rounds_run(time_runs, &turns, count, hint, us);
}

void trial_settled(const struct trial *t, trial_queue queue, void *context, int count, float *us) {
    struct turns turns = { t, queue, context };
    float sum[TRIAL_SETTLED_MAX];
    rounds_settled(time_runs, &turns, count, sum, us);
}

__global__ static void noise_kernel(uint32_t *x, int64_t words, uint32_t keep, uint32_t set) {
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < words; i += step)
        x[i] = ((uint32_t)rng_mix((uint64_t)i) & keep) | set;
}

cudaError_t trial_noise(const struct trial *t, void *data, int64_t bytes, uint32_t keep,
                        uint32_t set) {
    noise_kernel<<<1024, 256, 0, t->stream>>>((uint32_t *)data, bytes / 4, keep, set);
    return cudaGetLastError();
}
