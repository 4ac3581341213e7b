/* Times the candidates for a call against each other, as gemm.cu and attention_choice.cu do on the
 * first use of a shape. */
#ifndef FP8LAB_KERNELS_CUDA_TRIAL_CUH
#define FP8LAB_KERNELS_CUDA_TRIAL_CUH

#include "kernels/cuda/cuda_common.cuh"

/* A stream of its own, and marks on it. */
struct trial {
    cudaStream_t stream;
    cudaEvent_t start, stop;
    bool held; /* queue behind a pause, so that the host's launches are not timed */
};

NODISCARD enum status trial_open(struct trial *t, struct err *e);
void trial_close(struct trial *t); /* also of one that is zero, or did not open */

/* Queues candidate i once on t->stream; false if that failed. */
typedef bool (*trial_queue)(void *context, int i, cudaStream_t stream);

/* us [count] <- the best time of each in microseconds, negative where it failed. They take turns,
 * several rounds after one that warms up. Waits for t->stream alone. */
void trial_run(const struct trial *t, trial_queue queue, void *context, int count, float *us);

/* us [count] <- the mean time of each at the clock that its power leaves, which bursts do not show:
 * after a while at work, by turns of some ms. Takes a quarter of a second for two. */
enum { TRIAL_SETTLED_MAX = 4 };
void trial_settled(const struct trial *t, trial_queue queue, void *context, int count, float *us);

/* Fills stand-ins for operands with words of noise, masked by `keep`, with `set` set: zeros would
 * run faster than data do. Queued on t->stream. */
NODISCARD cudaError_t trial_noise(const struct trial *t, void *data, int64_t bytes, uint32_t keep,
                                  uint32_t set);
/* BF16 values of either sign between a half and one. */
static const uint32_t NOISE_BF16_KEEP = 0x807F807Fu, NOISE_BF16_SET = 0x3F003F00u;

#endif
