/* Candidates run in turn; events time several runs in a row of each. */
#include "kernels/cuda/trial.cuh"

#include <float.h>
#include <math.h>

#include "kernels/rng.h"

enum {
    ROUNDS = 4,         /* timings of each candidate; its best time counts */
    RUNS = 3,           /* runs in one timing; one in the first */
    LONG_US = 1000,     /* runs this long: two timings of one run each are enough */
    HOPELESS = 2,       /* times slower than the best: not timed again */
    CLEAR_PERCENT = 10, /* a greater lead than the clock of a hot device turns (LOG.md: 8 %) */
    HOLD_NS = 200000,   /* enough for the host to queue RUNS of any candidate */
    SHORT_US = 20,      /* runs this short do not heat the device: their clock does not fall */
    SETTLE_US = 60000,  /* run time of each candidate until the clock has adapted to its power */
    SLICE_US = 12000,   /* run time of a candidate's turn after that */
    SLICES = 4,
    RUNS_MAX = 2000,
};

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

/* Microseconds for one of `runs` runs in a row; negative if it failed. */
static float time_runs(const struct trial *t, trial_queue queue, void *context, int i, int runs) {
    float ms = -1.0f;
    if (t->held) hold_kernel<<<1, 1, 0, t->stream>>>(HOLD_NS);
    if (cudaEventRecord(t->start, t->stream) != cudaSuccess) return -1.0f;
    for (int run = 0; run < runs; run++)
        if (!queue(context, i, t->stream)) return -1.0f;
    if (cudaEventRecord(t->stop, t->stream) != cudaSuccess ||
        cudaEventSynchronize(t->stop) != cudaSuccess ||
        cudaEventElapsedTime(&ms, t->start, t->stop) != cudaSuccess)
        return -1.0f;
    return ms * 1000.0f / (float)runs;
}

void trial_run(const struct trial *t, trial_queue queue, void *context, int count, float *us) {
    float best = FLT_MAX;
    int rounds = ROUNDS, runs = 1;
    for (int i = 0; i < count; i++) us[i] = FLT_MAX;
    for (int round = -1; round < rounds; round++) { /* the first warms up */
        for (int i = 0; i < count; i++) {
            if (us[i] < 0.0f || (round > 0 && us[i] / HOPELESS > best)) continue;
            float time = time_runs(t, queue, context, i, runs);
            if (time < 0.0f) us[i] = time;
            else if (round >= 0) us[i] = fminf(us[i], time);
            if (round >= 0 && time >= 0.0f) best = fminf(best, time);
        }
        if (round == 0 && best > LONG_US) rounds = 2;
        else if (round == 0) runs = RUNS;
    }
}

/* How many runs take slice_us: at least one, at most what the host queues in a moment. */
static int runs_within(int slice_us, float us) {
    return 1 + (int)fminf((float)slice_us / fmaxf(us, 1.0f), RUNS_MAX);
}

/* Whether short bursts have decided: too short to heat the device, or one leads clearly. */
static bool is_decided(int count, const float *us) {
    float best = FLT_MAX, second = FLT_MAX, longest = 0.0f;
    for (int i = 0; i < count; i++) {
        if (us[i] < 0.0f) continue;
        longest = fmaxf(longest, us[i]);
        second = fminf(second, fmaxf(best, us[i]));
        best = fminf(best, us[i]);
    }
    return longest < SHORT_US || second * 100 > best * (100 + CLEAR_PERCENT);
}

void trial_settled(const struct trial *t, trial_queue queue, void *context, int count, float *us) {
    trial_run(t, queue, context, count, us);
    if (is_decided(count, us)) return;
    for (int i = 0; i < count; i++) {
        if (us[i] < 0.0f) continue;
        us[i] = time_runs(t, queue, context, i, runs_within(SETTLE_US, us[i]));
    }
    float sum[TRIAL_SETTLED_MAX] = {};
    for (int slice = 0; slice < SLICES; slice++)
        for (int i = 0; i < count; i++) {
            if (us[i] < 0.0f) continue;
            float time = time_runs(t, queue, context, i, runs_within(SLICE_US, us[i]));
            if (time < 0.0f) us[i] = time;
            else sum[i] += time;
        }
    for (int i = 0; i < count; i++)
        if (us[i] >= 0.0f) us[i] = sum[i] / SLICES;
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
