/* Times the candidates for a call against each other. gemm.cu and attention_choice.cu do this on
 * the first use of a shape. */
#ifndef FP8LAB_KERNELS_CUDA_TRIAL_CUH
#define FP8LAB_KERNELS_CUDA_TRIAL_CUH

#include <time.h>

#include "kernels/cuda/cuda_common.cuh"
#include "kernels/cuda/trial_rounds.h"

/* Counts the host's time of its scope as spent on choices (choosing_seconds). */
struct choosing_time {
    struct cuda_backend *backend;
    double begin;

    explicit choosing_time(struct cuda_backend *b) : backend(b), begin(now()) {}
    choosing_time(const choosing_time &) = delete;
    ~choosing_time() { backend->choosing_seconds += now() - begin; }
    static double now() {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
    }
};

/* A stream for trials, and timing marks on it. */
struct trial {
    cudaStream_t stream;
    cudaEvent_t start, stop;
    bool held; /* queue behind a pause, so that the host's launches are not timed */
};

NODISCARD enum status trial_open(struct trial *t, struct err *e);
void trial_close(struct trial *t); /* also for a zeroed trial, or after trial_open failed */

/* Queues candidate i once on t->stream; false if that failed. */
typedef bool (*trial_queue)(void *context, int i, cudaStream_t stream);

/* us [count] <- the best time of each in microseconds, negative if it failed. Candidates take
 * turns: all of them once, then those that are not far slower than the best. hint [count]: those
 * that were seen to be far slower just before are not timed, and have a very large time. NULL, or
 * if nothing was seen: a warm-up round comes first. Waits for t->stream alone. */
void trial_run(const struct trial *t, trial_queue queue, void *context, int count,
               const struct trial_hint *hint, float *us);

/* us [count] <- the mean time of each at the power-limited clock, which short bursts do not show.
 * Candidates take turns of some ms after a while at work: 36 ms for two. Where short bursts decide,
 * because one candidate leads clearly, us has their times, as trial_run. */
enum { TRIAL_SETTLED_MAX = 4 };
void trial_settled(const struct trial *t, trial_queue queue, void *context, int count, float *us);

/* Fills stand-ins for operands with words of noise: (noise & keep) | set. Zeros would run faster
 * than real data. Queued on t->stream. */
NODISCARD cudaError_t trial_noise(const struct trial *t, void *data, int64_t bytes, uint32_t keep,
                                  uint32_t set);
/* BF16 values of either sign between a half and one. */
static const uint32_t NOISE_BF16_KEEP = 0x807F807Fu, NOISE_BF16_SET = 0x3F003F00u;

#endif
