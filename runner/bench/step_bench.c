#include "runner/bench/step_bench.h"

void step_lower_ceilings(struct step_bench *s) {
    for (int64_t i = 0; i < s->record.call_count; i++) {
        const struct timed_call *c = &s->record.call[i];
        struct bench_time *ceiling = c->gemm >= 0        ? &s->gemm[c->gemm]
                                     : c->attention >= 0 ? &s->attention[c->attention]
                                                         : NULL;
        if (ceiling && c->time_us < ceiling->best_us) ceiling->best_us = c->time_us;
    }
}

double step_call_floor_us(const struct step_bench *s, const struct timed_call *c) {
    if (c->gemm >= 0) return s->gemm[c->gemm].best_us;
    if (c->attention >= 0) return s->attention[c->attention].best_us;
    double copy_us = s->copy_bytes_per_s > 0 ? c->bytes / s->copy_bytes_per_s * 1e6 : 0;
    return copy_us < c->time_us ? copy_us : c->time_us;
}
