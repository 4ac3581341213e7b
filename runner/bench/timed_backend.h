/* A backend whose operators are timed, call by call, on the device: what `bench step` looks
 * through.
 *
 * The backend stays itself: while a timing is on, its table is a copy whose operators set a mark,
 * call the real one, and set another. Graphs are off meanwhile (a replay has no operators to time),
 * so the host queues every call; what that costs shows as the difference to a step with replay. */
#ifndef FP8LAB_RUNNER_BENCH_TIMED_BACKEND_H
#define FP8LAB_RUNNER_BENCH_TIMED_BACKEND_H

#include "kernels/backend.h"

/* Where the time of a step goes. Codes that a producer writes in its own pass count as its part. */
enum timed_part {
    PART_GEMM,
    PART_ATTENTION,
    PART_QUANTISE, /* passes of their own: quantise, quantise_finish, delayed scaling */
    PART_NORM,     /* norms, activations, rotation, bias gradients; their fused codes */
    PART_HEAD,     /* the head's GEMMs, its codes, cross-entropy, the sum of the loss */
    PART_OPTIMIZER, /* gradient norm, AdamW, codes of the new weights */
    PART_OTHER,    /* embedding, search for non-finite values, copies and fills */
    PART_COUNT
};
const char *timed_part_name(enum timed_part part);

/* One matmul apart from its addresses: mode and shape. */
struct gemm_shape {
    int64_t m, n, k;
    enum dtype a, b, out;
    enum scale_kind a_scale, b_scale;
    bool a_transposed, b_transposed; /* views whose rows are not contiguous */
    bool fast_accumulate;
    bool beta, bias, residual; /* what the epilogue adds; a ceiling is measured without */
    enum gemm_direction direction;
};

struct attention_shape {
    int64_t batch, seq_len, heads, kv_heads, head_dim;
    enum dtype act;
    bool backward;
};

enum { SHAPES_MAX = 128 };

struct timed_call {
    const char *op; /* "matmul": static */
    enum timed_part part;
    int gemm, attention; /* index of its shape, -1: neither */
    double bytes;        /* each operand moved once */
    double time_us;      /* mean over the steps that were timed */
};

struct timed_record {
    struct timed_call *call; /* owned, in the order of the first step */
    int64_t call_count;
    struct gemm_shape gemm[SHAPES_MAX];
    struct attention_shape attention[SHAPES_MAX];
    int gemm_count, attention_count;
    int64_t steps; /* that were timed */
};

struct timed; /* opaque */

/* From here to timed_stop the backend is timed; b is borrowed until then. */
NODISCARD enum status timed_start(struct backend *b, struct timed **out, struct err *e);
/* After each step: reads its marks. ERR_STATE if it did not call what the first one called, or more
 * operators than there are marks for. */
NODISCARD enum status timed_step_done(struct timed *t, struct err *e);
/* The backend is itself again; the record is the caller's. NULL is fine. */
void timed_stop(struct timed *t, struct timed_record *out);
void timed_record_free(struct timed_record *r);

double gemm_flop(const struct gemm_shape *s); /* 2 m n k */
/* Causal, counted once: two products of T*T/2*D a head forward, five backward. */
double attention_flop(const struct attention_shape *s);

#endif
