#include "runner/plan/mfu.h"

#include <jansson.h>
#include <stdio.h>

#include "model/ground/json_safe.h"
#include "runner/hardware/peaks.h"
#include "runner/plan/options.h"

static bool any_fp8(const struct recipe *r) {
    for (int64_t i = 0; i < r->layers * GEMM_SITE_COUNT; i++)
        if (recipe_is_fp8(r->site[i].kind)) return true;
    return recipe_is_fp8(r->head.kind);
}

static bool any_mxfp8(const struct recipe *r) {
    for (int64_t i = 0; i < r->layers * GEMM_SITE_COUNT; i++)
        if (r->site[i].kind == RECIPE_MXFP8) return true;
    return r->head.kind == RECIPE_MXFP8;
}

void mfu_of_device(struct mfu *out, const struct run_options *run, const char *product,
                   const char *cc, int64_t world) {
    const struct peak *peak = product && cc ? peak_find(product, cc) : NULL;
    struct err ignored; /* of a selection that no trainer accepts: nothing is reported */
    *out = (struct mfu){ .world = world, .fp8 = any_fp8(&run->recipe), .product = product };
    if (selection_flops_per_token(&run->model, &run->train.selection, &out->flop_per_token,
                                  &ignored) != OK)
        out->flop_per_token = 0;
    if (!peak) return;
    out->peak_tflops = out->fp8 ? peak_fp8_tflops(peak, any_mxfp8(&run->recipe))
                                : peak->bf16_tflops;
    out->source = peak->source;
    out->derived = peak->derived;
}

enum status mfu_make(struct mfu *out, const json_t *config, const json_t *facts, int64_t world,
                     struct err *e) {
    struct run_options run;
    *out = (struct mfu){ .world = world };
    TRY(options_read(config, &run, e));
    mfu_of_device(out, &run, json_string_value(json_object_get(facts, "gpu.product_name")),
                  json_string_value(json_object_get(facts, "gpu.cc")), world);
    const char *measured = out->fp8 ? "gpu.gemm_fp8_tflops" : "gpu.gemm_bf16_tflops";
    out->ceiling_tflops = json_number_value(json_object_get(facts, measured));
    options_free(&run);
    return OK;
}

enum status mfu_add(const struct mfu *m, json_t *record, struct err *e) {
    double us = json_number_value(json_object_get(record, "step_time_us"));
    double tokens = json_number_value(json_object_get(record, "tokens"));
    if (m->flop_per_token <= 0 || us <= 0) return OK;
    double tflops = m->flop_per_token * tokens / (double)m->world / us * 1e-6;
    bool failed = false;
    json_put(record, "model_tflops", json_real(tflops), &failed);
    if (m->peak_tflops > 0)
        json_put(record, "mfu_peak", json_real(tflops / m->peak_tflops), &failed);
    if (m->ceiling_tflops > 0)
        json_put(record, "mfu_gemm", json_real(tflops / m->ceiling_tflops), &failed);
    return failed ? FAIL(e, ERR_MEMORY, "the record of a step") : OK;
}

struct flop_rate flop_rate_of(double tflops) {
    return tflops < 1 ? (struct flop_rate){ tflops * 1e3, "GFLOP/s" }
                      : (struct flop_rate){ tflops, "TFLOP/s" };
}

void mfu_text(const struct mfu *m, char *out, size_t size) {
    const char *mode = m->fp8 ? "FP8" : "BF16";
    struct flop_rate ceiling = flop_rate_of(m->ceiling_tflops);
    int n = snprintf(out, size, "%.4g FLOP per token", m->flop_per_token);
    if (n > 0 && (size_t)n < size && m->peak_tflops > 0)
        n += snprintf(out + n, size - (size_t)n, "; peak %.5g TFLOP/s dense %s%s (%s: %s)",
                      m->peak_tflops, mode, m->derived ? ", derived" : "", m->product, m->source);
    if (n > 0 && (size_t)n < size && m->ceiling_tflops > 0)
        snprintf(out + n, size - (size_t)n, "; measured GEMM %.4g %s %s", ceiling.value,
                 ceiling.unit, mode);
}
