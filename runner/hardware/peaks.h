/* Peak figures of GPUs from NVIDIA's data sheets: dense, with f32 accumulation, as training uses
 * them. The key is the driver's exact product string together with the compute capability. */
#ifndef FP8LAB_RUNNER_HARDWARE_PEAKS_H
#define FP8LAB_RUNNER_HARDWARE_PEAKS_H

#include "kernels/base.h"

struct peak {
    const char *product; /* exact */
    const char *cc;      /* "9.0" */
    double bf16_tflops, fp8_tflops, fp4_tflops; /* dense; 0: the chip does not multiply it */
    double memory_gb_s;
    const char *source;
    bool derived; /* computed from another figure, because the data sheet has none of these */
    double mxfp8_tflops; /* where block scales are faster than other FP8 products; 0: nowhere */
};
/* FP8's peak with or without the block scales of MXFP8. */
static inline double peak_fp8_tflops(const struct peak *p, bool mxfp8) {
    return mxfp8 && p->mxfp8_tflops > 0 ? p->mxfp8_tflops : p->fp8_tflops;
}

/* NULL if the product is not in the table. */
const struct peak *peak_find(const char *product, const char *cc);

#endif
