/* A way of computing, and the certificate of trying it: certify.h. */
#ifndef FP8LAB_KERNELS_CERTIFY_CERTIFICATE_H
#define FP8LAB_KERNELS_CERTIFY_CERTIFICATE_H

#include "kernels/arithmetic.h"
#include "kernels/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

enum way_section { WAY_GEMM, WAY_CAST, WAY_ATTENTION };
enum { WAY_SECTION_COUNT = WAY_ATTENTION + 1 };

/* What a run asks of a backend. Zero what a section does not use: ways are compared as bytes. */
struct certify_way {
    enum way_section section;
    /* GEMM: out [m,n] = a [m,k] b [n,k]^T. Cast: a [m,k] becomes codes of b, under scale_b. */
    int64_t m, n, k;
    enum dtype a, b, out;
    enum scale_kind scale_a, scale_b;
    /* Rows are not contiguous: a transposed view of BF16, an untransposed twin of FP8. */
    bool transposed_a, transposed_b;
    bool fast, beta, bias, residual;
    enum dtype bias_dtype;
    /* Cast. */
    enum scale_source source;
    struct quant_rule rule;
    bool codes, twin, own_amax, rotate, draws;
    bool untransposed; /* the twin */
    /* Attention: the forward, and the backward beside it. a: of qkv; if that is E4M3, b is that of
     * d_o and of the scores' gradient, and out that of o as backward reads it. */
    int64_t batch, length, heads, kv_heads, head_dim;
    int64_t window;  /* keys that a query sees, its own too; 0: all before it */
    bool documents;  /* a query sees its own document only; the certificate makes documents up */
    enum attention_backend kernel; /* which one the run asks for */
};

enum { WAY_TEXT_CAP = 192 };
/* An operand of a GEMM, of `rows`, without data and scales' data. */
struct tensor certify_operand(const struct certify_way *way, bool second, int64_t rows, int64_t k);
/* What backend_ops.forbid calls a GEMM's way. */
void certify_gemm_name(const struct certify_way *way, char out[FORBIDDEN_WAY_CAP]);
/* "gemm e4m3 1x128 x e4m3 128x128 -> bf16, 8192 x 4096 x 4096": different for different ways. */
void certify_way_text(const struct certify_way *way, char out[WAY_TEXT_CAP]);

enum certify_outcome {
    CERTIFY_PASSED,
    CERTIFY_FAILED,
    CERTIFY_ABSENT /* the backend refuses the way, and says so itself */
};

struct certificate {
    struct certify_way way;
    enum certify_outcome outcome;
    char how[16];      /* "native", "emulated", "bf16"; "cudnn", "wgmma", "mma"; "own" */
    char fault[32];    /* of a failure, in a word or two: "stale output"; "": none */
    char found[256];   /* a sentence with numbers, or the backend's error */
    int64_t outputs;   /* compared */
    int shapes;        /* of a GEMM, that ran on whole numbers: the small ones, and the run's own */
    double error;      /* largest |found - expected| on noise */
    double bound;      /* of that output; 0: bits were compared */
    char reason[160];  /* of the bound, or of equality */
    char order[64];    /* along K, of the arithmetic that was demanded: "chains of 128" */
    unsigned agreed;   /* 1 << i: every sample had the bits of arithmetic_at(i) */
    /* For backend_ops.forbid: the way that failed; "": it has no other. */
    char forbid[FORBIDDEN_WAY_CAP];
};

/* The arithmetic that a device of this architecture must have, or NULL if none was compared with
 * one. */
const struct arithmetic *certify_known(const char *architecture);

/* Fills `out` with a failure. */
void certify_fail(struct certificate *out, const char *fault, const char *format, ...)
    PRINTF_LIKE(3, 4);

#ifdef __cplusplus
}
#endif
#endif
