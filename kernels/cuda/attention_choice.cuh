/* Which kernel serves attention: private to the attention files and choices.cu. */
#ifndef FP8LAB_KERNELS_CUDA_ATTENTION_CHOICE_CUH
#define FP8LAB_KERNELS_CUDA_ATTENTION_CHOICE_CUH

#include "kernels/choices.h"
#include "kernels/cuda/attention_cudnn.cuh"

struct attention_way {
    const struct cudnn_plan *plan; /* NULL: our own kernel */
    const char *why; /* "cudnn 302.1 us, wgmma 310.4 us", "its plan is deterministic"; "": no
                        alternative */
};

/* The choice table's entry for the shape. If there is none, chooses now: builds a plan (up to
 * seconds), times it against our own kernel on noise, overwrites f->o and f->lse, and waits for the
 * device. *way is valid until the backend is closed. */
NODISCARD enum status attention_choose(struct cuda_backend *b, const struct forward *f,
                                       struct attention_way *way, struct err *e);

/* The same for one direction of FP8, whose a->width is the stride of the codes. Nothing is timed:
 * attention_fp8_rule chooses. packed: other codes have no gaps between rows. */
NODISCARD enum status attention_choose_fp8(struct cuda_backend *b, const struct attention *a,
                                           const struct cudnn_spec *spec, bool packed,
                                           struct attention_way *way, struct err *e);

/* The table, for choices.cu: as gemm.cuh's. */
int64_t attention_choices(const struct cuda_backend *b);
void attention_choices_write(const struct cuda_backend *b, bool timed, FILE *out);
NODISCARD enum status attention_choice_take(struct cuda_backend *b, const struct choice *c,
                                            struct err *e);
#endif
