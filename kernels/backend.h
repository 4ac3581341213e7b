/* THE operator interface: one table of functions per backend. kernels/cpu defines what each means;
 * kernels/cuda does the same, faster, and is tested against it.
 *
 * Conventions that hold for every operator unless its comment says otherwise
 *   shapes   legend in tensor.h. "act" is the activation dtype of the recipe: BF16, or F32 in the
 *            f32 recipe; all act operands of one call agree. "grad" is F32 or BF16 (main
 *            gradients).
 *   rounding inputs are widened to f32, arithmetic and sums are f32, one rounding at each output.
 *   layout   packed row-major; matmul operands may be transposed views, qkv slices strided.
 *   aliasing outputs alias no input unless the comment allows it.
 *   queueing an operator is queued on `lane` and may not have run on return; operators of one lane
 *            run in order, lanes are ordered by signal/wait only. sync() waits for all lanes.
 *   values   that change between steps (learning rate, clip factor, step) are tensors, never
 *            arguments, so that a captured graph can be replayed.
 *   errors   ERR_ARG (a shape or dtype that the comment excludes, named in the text), ERR_DEVICE.
 *            A backend lacking an operator's mode answers ERR_UNSUPPORTED and says what has it.
 *   NaN      is kept, never hidden, and canonical in every output (dtype.h). */
#ifndef FP8LAB_KERNELS_BACKEND_H
#define FP8LAB_KERNELS_BACKEND_H

#include "kernels/comm.h"
#include "kernels/quant.h"
#include "kernels/rng.h"
#include "kernels/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum lane { LANE_COMPUTE, LANE_COMM, LANE_COPY, LANE_COUNT };

/* What a captured graph is of. */
enum graph_key {
    GRAPH_FIRST_MICRO, GRAPH_LATER_MICRO,
    GRAPH_LAST_MICRO, /* of several, where its end differs: gradients are reduced over ranks */
    GRAPH_UPDATE, GRAPH_EVAL, GRAPH_COUNT
};

enum { EVENT_COUNT = 64 }; /* events are small integers, chosen by the model */
enum { TIMER_MARKS = 1 << 15 }; /* so are the marks of timer_mark; the last 4 are the trainer's */
enum { READBACK_SLOTS = 4, READBACK_BYTES = 1 << 20 };

struct backend_ops;
struct backend { const struct backend_ops *ops; }; /* first member of each concrete backend */

struct device_info {
    char name[128];         /* "cpu: AVX-512, 2 threads"; the exact product name for a GPU */
    char architecture[32];  /* "x86_64-avx512", "aarch64-neon", "sm_90" */
    int64_t memory_bytes;   /* total */
    int64_t memory_free;    /* at the call */
};

/* out = round(A B^T * scales + bias + beta * out + residual), one rounding, in this order.
 *   a [M,K], b [N,K], out [M,N]. act/act, or FP8/FP8 with scales (not E5M2 with E5M2).
 *   a, b: one of the two strides is 1. FP8 operands are K-contiguous (stride[1] == 1).
 *   out act or grad; bias [N] act or F32 or NULL; residual [M,N] of out's dtype or NULL (may alias
 *   out when beta is 0). beta is 0 or 1; with beta 1, no residual and a BF16 out a device may round
 *   A B^T * scales + bias before it adds out (cuBLASLt in place does).
 *   Reference sum, for each output: acc = fma(a_k, b_k, acc) over k ascending from +0. Tensor and
 *   row scales: acc * (s_a * s_b) at the end. Block scales along K: that chain within each block
 *   where both factors are constant (128, or 32 for MXFP8), then total = fma(chain, s_a * s_b,
 *   total), blocks ascending. 128x128 by 128x128 is refused: no recipe and no library has it.
 *   fast_accumulate: the device may keep fewer accumulator bits (cuBLASLt FAST_ACCUM); the
 *   reference has only one way to add and ignores it. */
enum gemm_direction { GEMM_FPROP, GEMM_DGRAD, GEMM_WGRAD };
struct matmul_args {
    const struct tensor *out, *a, *b, *bias, *residual;
    float beta;
    bool fast_accumulate;
    const char *name; /* of the weight, or NULL: under it a backend records what it did */
    enum gemm_direction direction;
};

/* One parameter's AdamW update (Loshchilov & Hutter, arXiv:1711.05101), n elements:
 *   g = grad * clip;  m = m + (1-beta1)(g-m);  v = v + (1-beta2)(g*g-v)
 *   w = w - lr * (m*bias1 / (sqrt(v*bias2) + eps) + weight_decay * w)
 * where bias1 = 1/(1-beta1^t), bias2 = 1/(1-beta2^t). Nothing at all is written when flag[0] >= 0.
 *   weight  value [n] or [rows,K]: BF16 or F32, in place; codes (and amax) are made from the new
 *           value as for any producer: call quantise_finish.
 *   master  [n] f32 or NULL. With it, w above is the master and value = round(master). Without it,
 *           w is the stored value and BF16 is stored with stochastic rounding.
 *   m, v    [n] F32; or BF16; or E4M3 with SCALE_1X128 over [1, n], where v holds sqrt(v). The
 *           narrow ones are rounded stochastically, since a moving average with beta near 1 would
 *           else stand still; a positive v never becomes 0. Both have one dtype.
 *   Draws: rng_bits(rng_key(seed, RNG_ROUND, *step, tensor_id), element_base + i), of which each
 *   rounding has its part (rng_round.h). */
struct adamw_args {
    struct sink *weight;
    struct tensor *master, *m, *v;
    const struct tensor *grad;                             /* F32 or BF16 */
    const struct tensor *lr, *clip, *bias1, *bias2;        /* [1] f32 */
    const struct tensor *step;                             /* [1] i32 */
    const struct tensor *flag;                             /* [2] i32 */
    float beta1, beta2, eps, weight_decay;
    uint64_t seed;
    uint32_t tensor_id;
    int64_t element_base; /* of this shard in the whole tensor */
};

/* Delayed scaling's state, S slots (TransformerEngine delayed_scaling.cu; kernels/README.md). */
struct delayed_args {
    struct tensor *history;    /* [H, S] f32; row 0 is cleared staging, rows 1.. oldest first */
    struct tensor *multiplier; /* [S] f32, starts at 1 */
    struct tensor *factor;     /* [S] f32 = 1/multiplier: what the GEMM reads, so a stride[0] of 4
                                  or more keeps each on the 16 bytes that scales stand on */
    struct tensor *amax;       /* [S] u32 bits of this region; cleared */
    const float *code_max;     /* [S] host memory: 448 or 57344 by the slot's format */
    int margin;                /* multiplier = code_max * 2^-margin / amax */
    bool most_recent;          /* else the maximum over the history */
};

/* A library that a backend is made of, loads, or looked for in vain: see library(). */
struct library {
    char name[16];     /* "cuda.runtime", "cublaslt", "cudnn", "nccl" */
    char version[32];  /* "13.1.0"; "" where it was not found */
    char path[512];    /* of the file; "" where it is linked in or was not found */
    char problem[256]; /* why it is not used; "" where it is */
};

/* What a backend made of one call of the model: see decision(). */
struct decision {
    char section[16];   /* "gemm", "attention" */
    char name[96];      /* the weight's; the shape of an attention */
    char direction[16]; /* "fprop", "dgrad", "wgrad"; "forward", "backward" */
    char way[16];       /* "native" (FP8 operands), "emulated", "bf16", "refused"; "cudnn", "mma" */
    char detail[64];    /* what the library was given: "e4m3 1x128 x e4m3 128x128"; why it was this
                           way: "cudnn 302.1 us, wgmma 310.4 us" */
    int64_t calls;      /* queued or captured; replays are not counted */
};

struct backend_ops {
    int64_t size;               /* sizeof(struct backend_ops): checked first */
    const char *kernels_sha256; /* of the sources of kernels/: a plugin of others is refused */
    const char *name;           /* "cpu", "cuda" */
    bool rehearses; /* first uses choose, compile and allocate: they belong before step 0 */
    struct comm_ops comm;

    void (*close)(struct backend *b); /* NULL is fine */
    enum status (*info)(struct backend *b, struct device_info *info, struct err *e);

    /* ---- memory, order ---- */
    /* Zeroed, ARENA_ALIGN-aligned. Done on return. ERR_MEMORY names `what`, the bytes and what is
     * free. */
    enum status (*memory_create)(struct backend *b, const char *what, int64_t bytes, void **out,
                                 struct err *e);
    /* The same in the host's memory, locked to it: operators reach it in place, as fast as the link
     * between host and device is. */
    enum status (*memory_create_pinned)(struct backend *b, const char *what, int64_t bytes,
                                        void **out, struct err *e);
    void (*memory_destroy)(struct backend *b, void *memory); /* of either kind */
    /* Host to device and back, packed bytes. upload: `host` may be reused on return, which does not
     * wait for what is queued; outside captures only. download: done on return, after everything
     * queued on `lane` before it. */
    enum status (*upload)(struct backend *b, int lane, void *data, const void *host, int64_t bytes,
                          struct err *e);
    enum status (*download)(struct backend *b, int lane, void *host, const void *data,
                            int64_t bytes, struct err *e);
    /* A step's record without a stall: queues a copy of at most READBACK_BYTES into one of
     * READBACK_SLOTS slots, each with one copy at a time; ready says whether it is there, fetch
     * waits for it. ERR_STATE for a slot that nothing was read back into. */
    enum status (*readback)(struct backend *b, int lane, int slot, const void *data, int64_t bytes,
                            struct err *e);
    enum status (*readback_ready)(struct backend *b, int slot, bool *ready, struct err *e);
    enum status (*readback_fetch)(struct backend *b, int slot, void *host, struct err *e);
    enum status (*zero)(struct backend *b, int lane, const struct tensor *x, struct err *e);
    /* Same shape; dtypes are equal or F32 and BF16 (one rounding). Strided views allowed: of FP8
     * codes and their transposed view this makes the twin. */
    enum status (*copy)(struct backend *b, int lane, const struct tensor *out,
                        const struct tensor *x, struct err *e);
    /* A wait is for what was queued on a lane before the event's last signal, and for nothing if
     * there was none. */
    enum status (*signal)(struct backend *b, int lane, int event, struct err *e);
    enum status (*wait)(struct backend *b, int lane, int event, struct err *e);
    enum status (*sync)(struct backend *b, struct err *e);

    /* ---- graphs ---- replay sets *replayed false when nothing is captured under key: the caller
     * then runs the operators itself, between begin and end if it wants them captured. Keys are
     * dropped by graph_drop (a shape or address changed). The CPU captures nothing. */
    enum status (*graph_replay)(struct backend *b, enum graph_key key, bool *replayed,
                                struct err *e);
    enum status (*graph_begin)(struct backend *b, enum graph_key key, struct err *e);
    enum status (*graph_end)(struct backend *b, enum graph_key key, struct err *e);
    void (*graph_drop)(struct backend *b);

    /* ---- time ---- for measuring only. Mark `mark` is where `lane` stands; set again, it moves.
     * read gives the device's microseconds between two marks, once both have passed. ERR_STATE for
     * marking inside a capture and for reading a mark that was never set. */
    enum status (*timer_mark)(struct backend *b, int lane, int mark, struct err *e);
    enum status (*timer_read)(struct backend *b, int from, int to, double *us, struct err *e);

    /* ---- GEMM and quantisation ---- */
    enum status (*matmul)(struct backend *b, int lane, const struct matmul_args *args,
                          struct err *e);
    /* Whether matmul would multiply these FP8 operands as they are, or widen them first: args as
     * there, of views that need no data. The CPU, which is the reference of every mode, always
     * does. A device may have to measure for it. */
    enum status (*matmul_native)(struct backend *b, const struct matmul_args *args, bool *native,
                                 struct err *e);
    /* Emits x [rows,K] act into the sink as if an operator had produced it. value may alias x. */
    enum status (*quantise)(struct backend *b, int lane, const struct sink *out,
                            const struct tensor *x, struct err *e);
    /* Completes codes after their producer: reads the amax for SCALE_SOURCE_AMAX; nothing for the
     * rest. With ranks that share the tensor, all_reduce the amax slot before. */
    enum status (*quantise_finish)(struct backend *b, int lane, const struct sink *out,
                                   struct err *e);
    /* End of a forward or backward region under delayed scaling, per slot s: a = amax[s];
     * if a == 0 nothing changes, neither history nor scale. Else amax_used = most_recent ? a :
     * max(a, older rows); history rolls (oldest dropped, a appended last, row 0 cleared); if
     * amax_used is finite and > 0, multiplier = code_max*2^-margin/amax_used (FLT_MAX if that is
     * infinite), else it is kept. factor = 1/multiplier. amax <- 0. With H == 1 there are no older
     * rows. */
    enum status (*delayed_update)(struct backend *b, int lane, const struct delayed_args *args,
                                  struct err *e);

    /* ---- transformer ---- */
    /* x [R,C] act = table[token] (+ position[r % T]). tokens [R] i32 in [0,V). table [V,C],
     * position [T,C] or NULL, act. */
    enum status (*embedding_fwd)(struct backend *b, int lane, const struct tensor *x,
                                 const struct tensor *tokens, const struct tensor *table,
                                 const struct tensor *position, struct err *e);
    /* d_table[token] += dx, rows ascending; d_position[t] += sum over B (d_position may be NULL).
     * grad. */
    enum status (*embedding_bwd)(struct backend *b, int lane, const struct tensor *d_table,
                                 const struct tensor *d_position, const struct tensor *dx,
                                 const struct tensor *tokens, struct err *e);

    /* y = x / sqrt(mean(x^2 over C) + eps) * gain     arXiv:1910.07467, plus eps.
     * x [R,C] act, gain [C] act, rstd [R] f32 kept for backward. */
    enum status (*rmsnorm_fwd)(struct backend *b, int lane, const struct sink *y,
                               const struct tensor *rstd, const struct tensor *x,
                               const struct tensor *gain, float eps, struct err *e);
    /* dx = residual + d(rmsnorm)/dx, d_gain += sum over R. residual [R,C] act or NULL; dx may alias
     * residual or dy; the value in dx is rounded once. amax [1] u32 or NULL: as a sink's, of dx. */
    enum status (*rmsnorm_bwd)(struct backend *b, int lane, const struct sink *dx,
                               const struct tensor *d_gain, const struct tensor *dy,
                               const struct tensor *x, const struct tensor *gain,
                               const struct tensor *rstd, const struct tensor *residual,
                               struct err *e);
    /* y = (x - mean) * rstd * gain + bias     arXiv:1607.06450; variance is of the centred values.
     * bias and d_bias may be NULL. The rest as rmsnorm. */
    enum status (*layernorm_fwd)(struct backend *b, int lane, const struct sink *y,
                                 const struct tensor *mean, const struct tensor *rstd,
                                 const struct tensor *x, const struct tensor *gain,
                                 const struct tensor *bias, float eps, struct err *e);
    enum status (*layernorm_bwd)(struct backend *b, int lane, const struct sink *dx,
                                 const struct tensor *d_gain, const struct tensor *d_bias,
                                 const struct tensor *dy, const struct tensor *x,
                                 const struct tensor *gain, const struct tensor *mean,
                                 const struct tensor *rstd, const struct tensor *residual,
                                 struct err *e);

    /* What stands between the qkv GEMM and attention: per head RMSNorm of q and k (QK-norm,
     * arXiv:2010.04245 as Qwen3 and Gemma3 do it), then rotation; v is copied.
     *   out, in [B,T,H+2G,D] act, heads in the order q, k, v; out may alias in when gain_q is NULL.
     *   gain_q, gain_k [D] act, both or none; rstd [B,T,H+G] f32, only with them.
     *   rope [T,D] f32 (cos then sin, D/2 each) or NULL; rotates the pairs (i, i + D/2) as Llama in
     *   Hugging Face's layout: (x1,x2) -> (x1 c - x2 s, x2 c + x1 s). The norm stays f32 until
     *   rotated. */
    enum status (*qk_fwd)(struct backend *b, int lane, const struct tensor *out,
                          const struct tensor *rstd, const struct tensor *in,
                          const struct tensor *gain_q, const struct tensor *gain_k,
                          const struct tensor *rope, int64_t heads, int64_t kv_heads, float eps,
                          struct err *e);
    /* d_in through dx [B,T,H+2G,D] (a sink: the qkv GEMM's backward reads it; seen as [R,(H+2G)D]),
     * d_gain_q, d_gain_k += . d_out is act; dx->value may alias d_out. */
    enum status (*qk_bwd)(struct backend *b, int lane, const struct sink *dx,
                          const struct tensor *d_gain_q, const struct tensor *d_gain_k,
                          const struct tensor *d_out, const struct tensor *in,
                          const struct tensor *gain_q, const struct tensor *gain_k,
                          const struct tensor *rstd, const struct tensor *rope, int64_t heads,
                          int64_t kv_heads, struct err *e);

    /* Causal softmax attention with grouped key/value heads: head h reads key/value head h*G/H.
     * o = softmax(q k^T / sqrt(D)) v     arXiv:1706.03762, 2305.13245.  S x S is never stored.
     *   qkv [B,T,H+2G,D] act; o: value [B*T, H*D] act, kept for backward; lse [B,H,T] f32 kept.
     *   Reference: one row's scores are fma chains over D times the scale; the row maximum is
     *   subtracted; probabilities stay f32; H % G == 0. */
    enum status (*attention_fwd)(struct backend *b, int lane, const struct sink *o,
                                 const struct tensor *lse, const struct tensor *qkv, int64_t heads,
                                 int64_t kv_heads, struct err *e);
    /* d_qkv: value [B*T,(H+2G)*D] act, packed as qkv. d_o, o [B*T,H*D] act. delta [B,H,T] f32 is
     * scratch. Key/value gradients are summed over their query heads in head order. */
    enum status (*attention_bwd)(struct backend *b, int lane, const struct sink *d_qkv,
                                 const struct tensor *delta, const struct tensor *d_o,
                                 const struct tensor *o, const struct tensor *qkv,
                                 const struct tensor *lse, int64_t heads, int64_t kv_heads,
                                 struct err *e);

    /* h = silu(gate) * up     arXiv:2002.05202.  gate_up [R,2F] act, gate first; h [R,F]. */
    enum status (*swiglu_fwd)(struct backend *b, int lane, const struct sink *h,
                              const struct tensor *gate_up, struct err *e);
    /* d_gate_up [R,2F]; its value may alias gate_up. */
    enum status (*swiglu_bwd)(struct backend *b, int lane, const struct sink *d_gate_up,
                              const struct tensor *dh, const struct tensor *gate_up, struct err *e);
    /* h = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), GPT-2's GELU.  x, h [R,F]. */
    enum status (*gelu_fwd)(struct backend *b, int lane, const struct sink *h,
                            const struct tensor *x, struct err *e);
    enum status (*gelu_bwd)(struct backend *b, int lane, const struct sink *dx,
                            const struct tensor *dh, const struct tensor *x, struct err *e);

    /* ---- loss ---- rows of logits [n, Vp] act; columns >= vocab are padding: masked, gradient 0.
     * loss[i] = logsumexp(row) - row[target], in nats, f32. target < 0: loss and gradient 0.
     * d_logits (NULL in evaluation): value [n,Vp] = (softmax - onehot) * *grad_scale; may alias
     * logits. */
    enum status (*cross_entropy)(struct backend *b, int lane, const struct tensor *loss,
                                 const struct sink *d_logits, const struct tensor *logits,
                                 const struct tensor *targets, int64_t vocab,
                                 const struct tensor *grad_scale, struct err *e);
    /* total [1] f32 = beta * total + factor * sum(x), x f32. */
    enum status (*sum)(struct backend *b, int lane, const struct tensor *total,
                       const struct tensor *x, float factor, float beta, struct err *e);

    /* ---- update ---- */
    /* out += x, packed, as many elements; each F32 or BF16. */
    enum status (*add)(struct backend *b, int lane, const struct tensor *out,
                       const struct tensor *x, struct err *e);
    /* out[i] f32 = sum of squares of x[i] (packed, F32 or BF16, all alike), i < n; x is an array.
     * Of an empty one it is 0. */
    enum status (*sum_squares)(struct backend *b, int lane, const struct tensor *out,
                               const struct tensor *x, int64_t n, struct err *e);
    /* norm = sqrt(sum of squares [n]); clip = max_norm > 0 && norm > max_norm ? max_norm/norm : 1.
     * norm, clip [1] f32. */
    enum status (*clip_factor)(struct backend *b, int lane, const struct tensor *norm,
                               const struct tensor *clip, const struct tensor *squares,
                               float max_norm, struct err *e);
    /* The updates args[i], i < n; args is an array, and no tensor stands in two of them. */
    enum status (*adamw)(struct backend *b, int lane, const struct adamw_args *args, int64_t n,
                         struct err *e);
    /* If flag[0] < 0 and some x[i] (F32, or U32 holding f32 bits) is not finite: flag = {*step,
     * base + i} for the smallest such i. flag [2] i32; {-1,-1} means nothing yet. step [1] i32. */
    enum status (*flag_nonfinite)(struct backend *b, int lane, const struct tensor *flag,
                                  const struct tensor *step, const struct tensor *x, int32_t base,
                                  struct err *e);

    /* ---- randomness, observation ---- */
    /* x (F32 or BF16) ~ N(0, std), element i from rng_bits(rng_key(seed, RNG_INIT, 0, tensor_id),
     * element_base + i) by Box-Muller in exactmath.h. */
    enum status (*fill_normal)(struct backend *b, int lane, const struct tensor *x, float std,
                               uint64_t seed, uint32_t tensor_id, int64_t element_base,
                               struct err *e);
    /* x (F32 or BF16) = value everywhere. */
    enum status (*fill)(struct backend *b, int lane, const struct tensor *x, float value,
                        struct err *e);
    /* out [1] u64 = sum over i of (bits(x_i) + 1) * (2*rng_mix(i) + 1) modulo 2^64, i the row-major
     * index of the element: any changed, moved or missing element changes it. x of any dtype,
     * strided allowed. */
    enum status (*fingerprint)(struct backend *b, int lane, const struct tensor *out,
                               const struct tensor *x, struct err *e);

    /* ---- what the backend chose ---- */
    /* The choice table (kernels/choices.h) so far, "" where nothing was chosen; *text is the
     * caller's: free(). Choices are made on first use, outside graphs, and stay. */
    enum status (*choices_save)(struct backend *b, char **text, struct err *e);
    /* Takes a table before anything is chosen (ERR_STATE after); "" is every backend's. ERR_CONFIG
     * for one of another device or library, naming both, and for what is no table. */
    enum status (*choices_load)(struct backend *b, const char *text, struct err *e);
    /* The i-th library; false after the last. Those that are opened on demand are looked for now.
     * Not inside a capture. The CPU has none. */
    bool (*library)(struct backend *b, int64_t i, struct library *out);
    /* The i-th decision, in order of first use; false after the last. The CPU decides nothing. */
    bool (*decision)(struct backend *b, int64_t i, struct decision *out);
    /* The operators that the device may be in, as far as it has told: "qk_fwd, attention_fwd or
     * matmul layers.0.qkv fprop" into out [size], true; false: none, or that is not known. Asks the
     * device nothing, so it answers while that hangs. Not queued; from any one thread. The CPU runs
     * where it is called, and says nothing. */
    bool (*under_way)(struct backend *b, char *out, size_t size);
    /* From here on only what a device of `architecture` ("sm_121") can do is used, the rest is
     * emulated. Before anything is chosen. ERR_UNSUPPORTED names what can be asked for. */
    enum status (*pretend)(struct backend *b, const char *architecture, struct err *e);
};

/* The name of the first slot that a table leaves empty, "comm.init" or "matmul", or NULL: a table
 * has them all. */
const char *backend_missing(const struct backend_ops *ops);

#ifdef __cplusplus
}
#endif
#endif
