#include "runner/advise/floor.h"

/* TFLOP/s for the operands of an operator. */
static double rate_of(const struct peak *peak, const struct step_work *w, bool native) {
    if (w->kind != WORK_GEMM || !native || !dtype_is_fp8(w->gemm.a)) return peak->bf16_tflops;
    double fp8 = peak_fp8_tflops(peak, scale_is_mxfp8(w->gemm.a_scale));
    double rate = w->gemm.a == DTYPE_E2M1 ? peak->fp4_tflops : fp8;
    return rate > 0 ? rate : peak->bf16_tflops;
}

double floor_step_us(const struct peak *peak, const struct step_works *works, bool native) {
    double us = 0;
    for (int64_t i = 0; i < works->count; i++) {
        const struct step_work *w = &works->work[i];
        double flop = step_work_flop(w) * (double)w->calls;
        double multiply = flop / (rate_of(peak, w, native) * 1e6);
        double move = w->bytes / (peak->memory_gb_s * 1e3);
        us += multiply > move ? multiply : move;
    }
    return us;
}
