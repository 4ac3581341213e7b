#include "kernels/certify/certificate.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- names ---- */

static const char *spaced(enum scale_kind kind, char out[16]) {
    const char *name = scale_kind_name(kind);
    snprintf(out, 16, "%s%s", *name ? " " : "", name);
    return out;
}

/* Whose rows are not contiguous. */
static const char *order_text(enum dtype t, bool by_k) {
    if (!by_k) return "";
    return dtype_is_fp8(t) ? " untransposed" : " transposed";
}

static void gemm_text(const struct certify_way *w, char *out) {
    char a[16], b[16];
    snprintf(out, WAY_TEXT_CAP, "gemm %s%s%s x %s%s%s -> %s, %lld x %lld x %lld%s%s%s%s%s",
             dtype_name(w->a), spaced(w->scale_a, a), order_text(w->a, w->transposed_a),
             dtype_name(w->b), spaced(w->scale_b, b), order_text(w->b, w->transposed_b),
             dtype_name(w->out), (long long)w->m, (long long)w->n, (long long)w->k,
             w->fast ? ", fast" : "", w->beta ? ", in place" : "",
             w->bias ? ", bias " : "", w->bias ? dtype_name(w->bias_dtype) : "",
             w->residual ? ", residual" : "");
}

static void cast_text(const struct certify_way *w, char *out) {
    static const char *const RULES[] = { "te", "torchao", "deepseek", "mx", "te block", "nvfp4" };
    static const char *const SOURCES[] = { "none", "known", "amax", "block" };
    char kind[16];
    const char *copies = w->codes ? w->twin ? ", both copies" : "" : ", transposed copy";
    if (w->untransposed)
        copies = w->codes ? ", both copies untransposed" : ", untransposed copy";
    snprintf(out, WAY_TEXT_CAP, "cast %s to %s%s by %s, %s%s, epsilon %g, %lld x %lld%s%s%s%s",
             dtype_name(w->a), dtype_name(w->b), spaced(w->scale_b, kind), SOURCES[w->source],
             RULES[w->rule.constants], w->rule.pow2 ? ", powers of two" : "",
             (double)w->rule.amax_min, (long long)w->m, (long long)w->k,
             copies, w->own_amax ? ", own amax" : "", w->rotate ? ", rotated" : "",
             w->draws ? ", stochastic" : "");
}

static void attention_text(const struct certify_way *w, char *out) {
    static const char *const KERNELS[] = { "", ", own kernel", ", cudnn" };
    char window[32] = "", fp8[64] = "";
    if (dtype_is_fp8(w->a))
        snprintf(fp8, sizeof fp8, " by known scales, gradients %s, output %s", dtype_name(w->b),
                 dtype_name(w->out));
    if (w->window) snprintf(window, sizeof window, ", window %lld", (long long)w->window);
    snprintf(out, WAY_TEXT_CAP, "attention %s%s, %lld x %lld, heads %lld/%lld of %lld%s%s%s",
             dtype_name(w->a), fp8, (long long)w->batch, (long long)w->length, (long long)w->heads,
             (long long)w->kv_heads, (long long)w->head_dim, window,
             w->documents ? ", documents" : "", KERNELS[w->kernel]);
}

void certify_way_text(const struct certify_way *way, char out[WAY_TEXT_CAP]) {
    switch (way->section) {
    case WAY_GEMM: gemm_text(way, out); break;
    case WAY_CAST: cast_text(way, out); break;
    case WAY_ATTENTION: attention_text(way, out); break;
    }
}

/* ---- operands ---- */

struct tensor certify_operand(const struct certify_way *way, bool second, int64_t rows, int64_t k) {
    enum dtype t = second ? way->b : way->a;
    bool fp8 = dtype_is_fp8(t), by_k = second ? way->transposed_b : way->transposed_a;
    struct tensor x = fp8 ? tensor_fp8(NULL, t, rows, k) : tensor_2d(NULL, t, rows, k);
    if (by_k && fp8) x = tensor_fp8_untransposed(NULL, t, rows, k);
    if (by_k && !fp8) {
        x.stride[0] = 1;
        x.stride[1] = rows;
    }
    x.scale = scale_make(NULL, second ? way->scale_b : way->scale_a, rows, k);
    return x;
}

void certify_gemm_name(const struct certify_way *way, char out[FORBIDDEN_WAY_CAP]) {
    const struct tensor a = certify_operand(way, false, way->m, way->k);
    const struct tensor b = certify_operand(way, true, way->n, way->k);
    gemm_way_name(&(struct matmul_args){ .a = &a, .b = &b }, out);
}

const struct arithmetic *certify_known(const char *architecture) {
    static const struct { const char *architecture, *name; } KNOWN[] = {
        { "sm_90", "hopper" }, { "x86_64", "reference" }, { "aarch64", "reference" },
    };
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) {
        const struct arithmetic *m;
        struct err ignored;
        if (strncmp(architecture, KNOWN[i].architecture, strlen(KNOWN[i].architecture)) != 0)
            continue;
        return arithmetic_find(KNOWN[i].name, &m, &ignored) == OK && m->verified ? m : NULL;
    }
    return NULL;
}

void certify_fail(struct certificate *out, const char *fault, const char *format, ...) {
    va_list list;
    out->outcome = CERTIFY_FAILED;
    snprintf(out->fault, sizeof out->fault, "%s", fault);
    va_start(list, format);
    vsnprintf(out->found, sizeof out->found, format, list);
    va_end(list);
}
