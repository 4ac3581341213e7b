/* Private to kernels/cpu: the backend's state, the prototype of every operator, and shared helpers.
 * One operator family a file, named as in kernels/operators.inc. */
#ifndef FP8LAB_KERNELS_CPU_CPU_H
#define FP8LAB_KERNELS_CPU_CPU_H

#include "kernels/backend.h"
#include "kernels/cpu/isa.h"

enum {
    SCRATCH_FLOATS = 1 << 23, /* per thread, 32 MiB; untouched pages cost nothing */
    GEMM_FLOATS = 1 << 21     /* each of the three shared GEMM buffers, 8 MiB */
};

struct cpu_group;

struct cpu_backend {
    struct backend base;    /* first: a struct backend * is a struct cpu_backend * */
    struct backend_ops ops; /* what base.ops points to */
    int threads;            /* in every parallel region */
    const struct isa *isa;  /* vector kernels */
    const struct arithmetic *arithmetic; /* of matmul; of all operators if it follows */
    float *scratch;         /* [threads][SCRATCH_FLOATS], 64-byte aligned */
    float *gemm_a, *gemm_b, *gemm_c; /* matmul.c: packed operands, partial sums */
    unsigned char readback[READBACK_SLOTS][READBACK_BYTES];
    int64_t readback_bytes[READBACK_SLOTS]; /* 0: nothing was read back */
    struct cpu_group *group; /* comm.c; NULL with one rank */
    double timer_us[TIMER_MARKS];           /* 0: never marked; untouched pages cost nothing */
};

static inline struct cpu_backend *cpu_of(struct backend *b) { return (struct cpu_backend *)b; }
/* Whether all operators follow a GPU's sums and functions (arithmetic.h). */
static inline bool cpu_follows(struct backend *b) { return cpu_of(b)->arithmetic->follows; }
/* Scratch of one thread of a parallel region, valid until the operator returns. An operator
 * returns ERR_ARG if its rows need more than SCRATCH_FLOATS. */
static inline float *cpu_scratch(struct backend *b, int thread) {
    return cpu_of(b)->scratch + (int64_t)thread * SCRATCH_FLOATS;
}

/* ---- rows of act tensors (F32 or BF16), widened to f32 and rounded back -------------------- */

/* out[0..n) = the n contiguous elements of x that start `offset` elements after its first. */
static inline void load_span(float *out, const struct tensor *x, int64_t offset, int64_t n) {
    if (x->dtype == DTYPE_F32) {
        memcpy(out, (const float *)x->data + offset, (size_t)n * sizeof(float));
        return;
    }
    const uint16_t *in = (const uint16_t *)x->data + offset;
    for (int64_t i = 0; i < n; i++) out[i] = bf16_decode(in[i]);
}
/* The reverse: one rounding to x's dtype, NaN canonical. */
static inline void store_span(const struct tensor *x, int64_t offset, const float *in, int64_t n) {
    if (x->dtype == DTYPE_F32) {
        float *out = (float *)x->data + offset;
        for (int64_t i = 0; i < n; i++) out[i] = f32_canonical(in[i]);
        return;
    }
    uint16_t *out = (uint16_t *)x->data + offset;
    for (int64_t i = 0; i < n; i++) out[i] = bf16_encode(in[i]);
}
/* Row `row` of x seen as [dim 0, the rest]. */
static inline void load_row(float *out, const struct tensor *x, int64_t row) {
    load_span(out, x, row * x->stride[0], tensor_cols(x));
}
static inline void store_row(const struct tensor *x, int64_t row, const float *in) {
    store_span(x, row * x->stride[0], in, tensor_cols(x));
}

/* ---- the one way to add: 16 interleaved partial sums, joined in a fixed tree --------------- */

/* ((0+8)+(4+12)) + ... : lanes j and j+8, then j+4, j+2, j+1. */
static inline float sum16_join(const float lane[16]) {
    float s[16];
    memcpy(s, lane, sizeof s);
    for (int half = 8; half; half /= 2)
        for (int j = 0; j < half; j++) s[j] = s[j] + s[j + half];
    return s[0];
}
/* The 16 lanes as one value, which the compiler splits into the registers that the target has. */
typedef float float16 __attribute__((vector_size(64)));

/* Lane j adds x[j], x[j+16], ... in that order, from +0. */
static inline float sum16(const float *x, int64_t n) {
    float16 sums = { 0 }, v;
    float lane[16];
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        memcpy(&v, x + i, sizeof v);
        sums = sums + v;
    }
    memcpy(lane, &sums, sizeof lane);
    for (int j = 0; i + j < n; j++) lane[j] = lane[j] + x[i + j];
    return sum16_join(lane);
}
/* The same for the products x[i]*y[i], each rounded to f32 before it is added. */
static inline float sum16_dot(const float *x, const float *y, int64_t n) {
    float16 sums = { 0 }, v, w;
    float lane[16];
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        memcpy(&v, x + i, sizeof v);
        memcpy(&w, y + i, sizeof w);
        sums = sums + v * w;
    }
    memcpy(lane, &sums, sizeof lane);
    for (int j = 0; i + j < n; j++) lane[j] = lane[j] + x[i + j] * y[i + j];
    return sum16_join(lane);
}

/* ---- argument checks ------------------------------------------------------------------------ */

enum { /* sets of dtypes */
    IS_F32 = 1 << DTYPE_F32, IS_BF16 = 1 << DTYPE_BF16, IS_ACT = IS_F32 | IS_BF16,
    IS_E4M3 = 1 << DTYPE_E4M3, IS_E5M2 = 1 << DTYPE_E5M2, IS_E2M1 = 1 << DTYPE_E2M1,
    IS_FP8 = IS_E4M3 | IS_E5M2 | IS_E2M1,
    IS_I32 = 1 << DTYPE_I32, IS_U32 = 1 << DTYPE_U32, IS_U64 = 1 << DTYPE_U64
};
/* Whether the elements of x are contiguous in row-major order. */
bool cpu_is_packed(const struct tensor *x);
/* ERR_ARG unless x is not NULL, has one of the dtypes, the shape [rows, cols], and contiguous rows.
 * The shape is seen as [dim 0, the rest]; -1: any extent. `what`: "rmsnorm_fwd: gain". */
NODISCARD enum status cpu_check(const struct tensor *x, const char *what, int dtypes, int64_t rows,
                                int64_t cols, struct err *e);
/* cpu_check, and the whole tensor must be one run of elements. */
NODISCARD enum status cpu_check_packed(const struct tensor *x, const char *what, int dtypes,
                                       int64_t rows, int64_t cols, struct err *e);
/* ERR_ARG unless an FP8 tensor has a scale of its kind's dtype and shape. */
/* `count` packed I32 that are each in [0, limit). */
NODISCARD enum status cpu_check_indices(const struct tensor *x, const char *what, int64_t count,
                                        int64_t limit, struct err *e);
NODISCARD enum status cpu_check_scale(const struct tensor *x, const char *what, struct err *e);
/* FP8 whose stride[1] is not 1: ERR_ARG unless it is an untransposed twin, with its scale. */
NODISCARD enum status cpu_check_untransposed(const struct tensor *x, const char *what,
                                             struct err *e);
/* cpu_check of every part of a sink whose value, packed, holds [rows, cols]: dtypes, shapes, scale
 * kinds, what each source needs. A producer calls it before it writes anything. */
NODISCARD enum status cpu_check_sink(const struct sink *s, const char *what, int64_t rows,
                                     int64_t cols, struct err *e);

/* The value of a checked sink as the [rows, cols] that its producer writes. */
static inline struct tensor sink_rows(const struct sink *s, int64_t rows, int64_t cols) {
    return tensor_2d(s->value->data, s->value->dtype, rows, cols);
}

/* A producer calls this once s->value is complete. It records the amax and makes the codes, unless
 * they must wait for the amax of the whole tensor (quantise_finish). Cannot fail after
 * cpu_check_sink. */
void cpu_sink_emit(struct backend *b, const struct sink *s);
/* Makes the codes of SCALE_SOURCE_AMAX, once its amax is final. */
void cpu_sink_finish(struct backend *b, const struct sink *s);
/* The same for NVFP4's kinds (nvfp4.c). */
void cpu_nvfp4_finish(struct backend *b, const struct sink *s);

/* ---- collectives (comm.c) and the operators -------------------------------------------------- */

extern const struct comm_ops CPU_COMM;
void cpu_group_close(struct cpu_group *g); /* NULL is fine */

#define OPERATOR(name, parameters, arguments, cost) \
    enum status cpu_##name OPERATOR_PARAMETERS parameters;
#include "kernels/operators.inc"

/* ---- cpu_timer.c ---- */
enum status cpu_timer_mark(struct backend *b, int lane, int mark, struct err *e);
enum status cpu_timer_read(struct backend *b, int from, int to, double *us, struct err *e);

/* ---- cpu_choices.c: none ---- */
enum status cpu_choices_save(struct backend *b, char **text, struct err *e);
enum status cpu_choices_load(struct backend *b, const char *text, struct err *e);
double cpu_choosing_seconds(struct backend *b);
enum status cpu_attention_backend(struct backend *b, enum attention_backend which,
                                  struct err *e);
bool cpu_twins_untransposed(struct backend *b, enum scale_kind kind);
bool cpu_library(struct backend *b, int64_t i, struct library *out);
bool cpu_decision(struct backend *b, int64_t i, struct decision *out);
bool cpu_in_progress(struct backend *b, char *out, size_t size);
enum status cpu_assume_architecture(struct backend *b, const char *architecture, struct err *e);
enum status cpu_forbid(struct backend *b, const char *section, const char *way, struct err *e);
enum status cpu_set_exact(struct backend *b, bool exact, struct err *e);

#endif
