/* A backend with timed operators, for `bench step`: each call is timed on the device.
 *
 * During a timing, the backend's table is a copy. Each of its operators sets a mark, calls the real
 * operator, and sets another mark. A replay has no operators to time, so graphs are off and the
 * host queues every call. The cost of that is the difference to a step with replay. */
#ifndef FP8LAB_RUNNER_BENCH_TIMED_BACKEND_H
#define FP8LAB_RUNNER_BENCH_TIMED_BACKEND_H

#include "kernels/backend.h"

/* The parts of a step. Codes that a producer writes in its own pass count for its part. */
enum timed_part {
    PART_GEMM,
    PART_ATTENTION,
    PART_QUANTISE, /* separate passes: quantise, quantise_finish, delayed scaling */
    PART_NORM,     /* norms, activations, rotation, bias gradients; their fused codes */
    PART_HEAD,     /* the head's GEMMs, its codes, cross-entropy, the sum of the loss */
    PART_OPTIMIZER, /* gradient norm, AdamW, codes of the new weights */
    PART_OTHER,    /* embedding, search for non-finite values, copies and fills */
    PART_COUNT
};
const char *timed_part_name(enum timed_part part);

/* The phases of a step. The head makes its gradients chunk by chunk, between its losses: they are
 * backward, as is what backward recomputes. */
enum timed_phase { PHASE_FORWARD, PHASE_BACKWARD, PHASE_UPDATE, PHASE_COUNT };
const char *timed_phase_name(enum timed_phase phase);

/* Mode and shape of one matmul. */
struct gemm_shape {
    int64_t m, n, k;
    enum dtype a, b, out;
    enum scale_kind a_scale, b_scale;
    bool a_transposed, b_transposed; /* views whose rows are not contiguous */
    bool fast_accumulate;
    bool beta, bias, residual; /* the epilogue's addition; a ceiling is measured without it */
    enum gemm_direction direction;
};

struct attention_shape {
    int64_t batch, seq_len, heads, kv_heads, head_dim;
    int64_t window; /* keys that a query sees; 0: all before it. bench_step sets it */
    enum dtype act;      /* of queries, keys and values; FP8: FP8 attention */
    enum dtype out, d_o; /* of its result; backward: of the gradient that it reads, else out */
    enum scale_kind codes; /* scales of the codes that it makes; SCALE_NONE: it makes none */
    bool backward;
};

enum { SHAPES_MAX = 128 };

struct timed_call {
    const char *op; /* "matmul": static */
    enum timed_part part;
    enum timed_phase phase;
    int gemm, attention; /* index of its shape; -1: neither a GEMM nor an attention */
    double bytes;        /* bytes with each operand moved once */
    double time_us;      /* mean over the timed steps */
    double joules;       /* of one call, repeated alone (step_energy.h); 0: not measured */
};

struct timed_record {
    struct timed_call *call; /* owned, in the order of the first step */
    int64_t call_count;
    struct gemm_shape gemm[SHAPES_MAX];
    struct attention_shape attention[SHAPES_MAX];
    int gemm_count, attention_count;
    int64_t steps; /* number of timed steps */
};

struct timed; /* opaque */

/* Starts timing; b is borrowed until timed_stop. */
NODISCARD enum status timed_start(struct backend *b, struct timed **out, struct err *e);
/* Call after each step: reads its marks. ERR_STATE if the step's calls differ from the first
 * step's, or if there are more operators than marks. */
NODISCARD enum status timed_step_done(struct timed *t, struct err *e);
/* In the next step, `more` is asked after call number `call` of the step whether to repeat it, with
 * the same arguments. An operator in place then reads its own output. NULL: none is repeated. */
void timed_repeat(struct timed *t, int64_t call,
                  enum status (*more)(void *context, bool *again, struct err *e), void *context);
/* Restores the backend's table; the caller owns the record. t may be NULL. */
void timed_stop(struct timed *t, struct timed_record *out);
void timed_record_free(struct timed_record *r);

double gemm_flop(const struct gemm_shape *s); /* 2 m n k */
double attention_keys(const struct attention_shape *s); /* that a query sees, on average */
/* FLOP of causal attention: two products of T*T/2*D for each head forward, five backward. */
double attention_flop(const struct attention_shape *s);

#endif
