#include "runner/bench/timed_backend.h"

#include <stdlib.h>

#include "kernels/tensor.h"

enum { CALLS_MAX = TIMER_MARKS / 2 - 2 /* number of marks for operators; the trainer has the last
                                          ones */ };

struct timed {
    struct backend_ops ops;           /* first: the table of the backend during a timing */
    const struct backend_ops *inner;  /* the real table */
    struct backend *backend;
    struct timed_record record;
    int64_t at;            /* number of calls in this step so far */
    int depth;             /* depth of nested operators: only the outer call is timed */
    enum graph_key region; /* the model's current phase; separates the optimizer's codes from
                              others */
    enum timed_part last;  /* part of the producer before a quantise_finish */
    const void *codes;     /* codes of the last quantise, NULL: none; its call */
    int64_t quantise_at;
};

static struct timed *timed_of(struct backend *b) {
    return (struct timed *)(uintptr_t)b->ops; /* ops is its first member */
}

const char *timed_part_name(enum timed_part part) {
    static const char *const NAMES[PART_COUNT] = {
        "GEMM", "attention", "quantise, transpose", "norm, activation", "head, loss", "optimizer",
        "other",
    };
    return NAMES[part];
}

double gemm_flop(const struct gemm_shape *s) {
    return 2.0 * (double)s->m * (double)s->n * (double)s->k;
}

double attention_flop(const struct attention_shape *s) {
    double length = (double)s->seq_len;
    double pairs = (double)s->batch * (double)s->heads * length * length / 2;
    return (s->backward ? 5 : 2) * 2.0 * pairs * (double)s->head_dim;
}

/* ---- bytes ------------------------------------------------------------------------------------*/

static double bytes_of(const struct tensor *x) {
    return x && x->data ? (double)(tensor_count(x) * dtype_bytes(x->dtype)) : 0;
}

static double bytes_of_all(const struct tensor *x, int64_t n) {
    double bytes = 0;
    for (int64_t i = 0; i < n; i++) bytes += bytes_of(&x[i]);
    return bytes;
}

static double code_bytes(const struct sink *s) {
    if (!s->codes) return 0;
    return bytes_of(s->codes) + bytes_of(s->codes->transposed);
}

/* Whether codes are written without waiting for the amax of the whole value. */
static double prompt_code_bytes(const struct sink *s) {
    return sink_waits(s) ? 0 : code_bytes(s);
}

/* Bytes that a producer writes; includes codes unless they wait for the amax. */
static double sink_bytes(const struct sink *s) {
    if (!s) return 0;
    bool waits = s->codes && sink_waits(s);
    double value = waits || s->keep_value || !s->codes ? bytes_of(s->value) : 0;
    return value + prompt_code_bytes(s);
}

/* An existing value is only read, and not even read if no codes are made of it. */
static double quantise_bytes(const struct sink *s, const struct tensor *x) {
    if (s->value->data != x->data) return bytes_of(x) + sink_bytes(s);
    double codes = prompt_code_bytes(s);
    return codes > 0 || s->sums || s->amax ? bytes_of(x) + codes : 0;
}

static double finish_bytes(const struct sink *s) {
    if (!s->codes || !sink_waits(s)) return 0;
    return bytes_of(s->value) + code_bytes(s);
}

static double matmul_bytes(const struct matmul_args *a) {
    return bytes_of(a->a) + bytes_of(a->b) + bytes_of(a->out) * (a->beta != 0 ? 2 : 1) +
           bytes_of(a->residual);
}

/* Reads and writes parameter and state, reads the gradient. */
static double adamw_bytes(const struct adamw_args *a, int64_t n) {
    double bytes = 0;
    for (; n > 0; a++, n--)
        bytes += (a->master ? bytes_of(a->master) * 2 : bytes_of(a->weight->value)) +
                 sink_bytes(a->weight) + 2 * bytes_of(a->m) + 2 * bytes_of(a->v) +
                 bytes_of(a->grad);
    return bytes;
}

/* ---- shapes -----------------------------------------------------------------------------------*/

static int shape_index(const char *what, const void *shape, void *list, size_t size, int *count,
                       struct err *e) {
    for (int i = 0; i < *count; i++)
        if (!memcmp((char *)list + (size_t)i * size, shape, size)) return i;
    if (*count == SHAPES_MAX) {
        (void)FAIL(e, ERR_ARG, "a step with more than %d shapes of %s", SHAPES_MAX, what);
        return -1;
    }
    memcpy((char *)list + (size_t)*count * size, shape, size);
    return (*count)++;
}

static struct gemm_shape shape_of(const struct matmul_args *a) {
    struct gemm_shape s;
    memset(&s, 0, sizeof s); /* also the padding, since shapes are compared as bytes */
    s.m = a->a->dim[0];
    s.n = a->b->dim[0];
    s.k = a->a->dim[1];
    s.a = a->a->dtype;
    s.b = a->b->dtype;
    s.out = a->out->dtype;
    s.a_scale = a->a->scale.kind;
    s.b_scale = a->b->scale.kind;
    s.a_transposed = a->a->stride[1] != 1;
    s.b_transposed = a->b->stride[1] != 1;
    s.fast_accumulate = a->fast_accumulate;
    s.beta = a->beta != 0;
    s.bias = a->bias;
    s.residual = a->residual;
    s.direction = a->direction;
    return s;
}

/* ---- one call ---------------------------------------------------------------------------------*/

static enum timed_part part_of(struct timed *t, enum timed_part part) {
    return t->region == GRAPH_UPDATE ? PART_OPTIMIZER : part;
}

/* The entry of the call that begins now; in later steps, the entry of the same call in the first
 * step. */
static enum status call_begin(struct timed *t, int lane, const char *op, enum timed_part part,
                              double bytes, struct err *e) {
    if (t->depth++) return OK;
    if (t->at >= CALLS_MAX)
        return FAIL(e, ERR_STATE, "a step of more than %d operators cannot be timed", CALLS_MAX);
    struct timed_call *c = &t->record.call[t->at];
    if (t->record.steps == 0) {
        *c = (struct timed_call){ .op = op, .part = part_of(t, part), .gemm = -1, .attention = -1,
                                  .bytes = bytes };
        t->record.call_count = t->at + 1;
    } else if (t->at >= t->record.call_count || c->op != op) {
        return FAIL(e, ERR_STATE, "operator %lld of this step is %s, which the first step did not "
                    "call there", (long long)t->at, op);
    }
    t->last = c->part;
    return t->inner->timer_mark(t->backend, lane, (int)t->at * 2, e);
}

static enum status call_end(struct timed *t, int lane, enum status st, struct err *e) {
    if (--t->depth || st != OK) return st;
    TRY(t->inner->timer_mark(t->backend, lane, (int)t->at * 2 + 1, e));
    t->at++;
    return OK;
}

/* Counts the codes that a GEMM of the head reads as the head's: a step makes them in the calls just
 * before it, chunk by chunk. */
static void head_reads(struct timed *t, const void *codes) {
    if (t->record.steps || !t->codes || t->codes != codes) return;
    for (int64_t i = t->quantise_at; i < t->at; i++) t->record.call[i].part = PART_HEAD;
    t->codes = NULL;
}

static enum status timed_matmul(struct backend *b, int lane, const struct matmul_args *args,
                                struct err *e) {
    struct timed *t = timed_of(b);
    struct timed_record *r = &t->record;
    bool head = args->name && !strncmp(args->name, "head", 4);
    struct gemm_shape shape = shape_of(args);
    int index = shape_index("GEMM", &shape, r->gemm, sizeof shape, &r->gemm_count, e);
    if (index < 0) return ERR_ARG;
    if (head) head_reads(t, args->a->data);
    TRY(call_begin(t, lane, "matmul", head ? PART_HEAD : PART_GEMM, matmul_bytes(args), e));
    r->call[t->at].gemm = index;
    return call_end(t, lane, t->inner->matmul(b, lane, args, e), e);
}

/* The packed queries, keys and values of one attention call: [B,T,H+2G,D]. */
static enum status attention_begin(struct timed *t, int lane, const char *op, bool backward,
                                   const struct tensor *qkv, int64_t heads, int64_t kv_heads,
                                   double bytes, struct err *e) {
    struct timed_record *r = &t->record;
    struct attention_shape s;
    memset(&s, 0, sizeof s);
    s.batch = qkv->dim[0];
    s.seq_len = qkv->dim[1];
    s.head_dim = qkv->dim[3];
    s.heads = heads;
    s.kv_heads = kv_heads;
    s.act = qkv->dtype;
    s.backward = backward;
    int index = shape_index("attention", &s, r->attention, sizeof s, &r->attention_count, e);
    if (index < 0) return ERR_ARG;
    TRY(call_begin(t, lane, op, PART_ATTENTION, bytes, e));
    r->call[t->at].attention = index;
    return OK;
}

static enum status timed_attention_fwd(struct backend *b, int lane, const struct sink *o,
                                       const struct tensor *lse, const struct tensor *qkv,
                                       int64_t heads, int64_t kv_heads, struct err *e) {
    struct timed *t = timed_of(b);
    TRY(attention_begin(t, lane, "attention_fwd", false, qkv, heads, kv_heads,
                        bytes_of(qkv) + sink_bytes(o) + bytes_of(lse), e));
    return call_end(t, lane, t->inner->attention_fwd(b, lane, o, lse, qkv, heads, kv_heads, e), e);
}

static enum status timed_attention_bwd(struct backend *b, int lane, const struct sink *d_qkv,
                                       const struct tensor *delta, const struct tensor *d_o,
                                       const struct tensor *o, const struct tensor *qkv,
                                       const struct tensor *lse, int64_t heads, int64_t kv_heads,
                                       struct err *e) {
    struct timed *t = timed_of(b);
    double bytes = bytes_of(qkv) + sink_bytes(d_qkv) + bytes_of(d_o) + bytes_of(o) + bytes_of(lse);
    TRY(attention_begin(t, lane, "attention_bwd", true, qkv, heads, kv_heads, bytes, e));
    return call_end(t, lane, t->inner->attention_bwd(b, lane, d_qkv, delta, d_o, o, qkv, lse, heads,
                                                     kv_heads, e), e);
}

/* Codes made in a pass of their own. */
static enum status timed_quantise(struct backend *b, int lane, const struct sink *out,
                                  const struct tensor *x, struct err *e) {
    struct timed *t = timed_of(b);
    if (t->depth == 0) {
        t->codes = out->codes ? out->codes->data : NULL;
        t->quantise_at = t->at;
    }
    TRY(call_begin(t, lane, "quantise", PART_QUANTISE, quantise_bytes(out, x), e));
    return call_end(t, lane, t->inner->quantise(b, lane, out, x, e), e);
}

/* Codes that waited for an amax belong to the head if their producer does. */
static enum status timed_quantise_finish(struct backend *b, int lane, const struct sink *out,
                                         struct err *e) {
    struct timed *t = timed_of(b);
    enum timed_part part = t->last == PART_HEAD ? PART_HEAD : PART_QUANTISE;
    TRY(call_begin(t, lane, "quantise_finish", part, finish_bytes(out), e));
    return call_end(t, lane, t->inner->quantise_finish(b, lane, out, e), e);
}

/* ---- the rest: marks around the call, and what it must move -----------------------------------*/

#define TIMED(op, part, bytes, PARAMETERS, ARGUMENTS)                         \
    static enum status timed_##op PARAMETERS {                               \
        struct timed *t = timed_of(b);                                       \
        TRY(call_begin(t, lane, #op, (part), (bytes), e));                   \
        return call_end(t, lane, t->inner->op ARGUMENTS, e);                 \
    }
#define TENSOR const struct tensor *
#define SINK const struct sink *

TIMED(delayed_update, PART_QUANTISE, 2 * bytes_of(args->history),
      (struct backend *b, int lane, const struct delayed_args *args, struct err *e),
      (b, lane, args, e))
TIMED(embedding_fwd, PART_OTHER, 2 * bytes_of(x),
      (struct backend *b, int lane, TENSOR x, TENSOR tokens, TENSOR table, TENSOR position,
       struct err *e), (b, lane, x, tokens, table, position, e))
TIMED(embedding_bwd, PART_OTHER, 3 * bytes_of(dx),
      (struct backend *b, int lane, TENSOR d_table, TENSOR d_position, TENSOR dx, TENSOR tokens,
       struct err *e), (b, lane, d_table, d_position, dx, tokens, e))
TIMED(rmsnorm_fwd, PART_NORM, bytes_of(x) + sink_bytes(y),
      (struct backend *b, int lane, SINK y, TENSOR rstd, TENSOR x, TENSOR gain, float eps,
       struct err *e), (b, lane, y, rstd, x, gain, eps, e))
TIMED(rmsnorm_bwd, PART_NORM, bytes_of(dy) + bytes_of(x) + bytes_of(residual) + sink_bytes(dx),
      (struct backend *b, int lane, SINK dx, TENSOR d_gain, TENSOR dy, TENSOR x, TENSOR gain,
       TENSOR rstd, TENSOR residual, struct err *e),
      (b, lane, dx, d_gain, dy, x, gain, rstd, residual, e))
TIMED(layernorm_fwd, PART_NORM, bytes_of(x) + sink_bytes(y),
      (struct backend *b, int lane, SINK y, TENSOR mean, TENSOR rstd, TENSOR x, TENSOR gain,
       TENSOR bias, float eps, struct err *e), (b, lane, y, mean, rstd, x, gain, bias, eps, e))
TIMED(layernorm_bwd, PART_NORM, bytes_of(dy) + bytes_of(x) + bytes_of(residual) + sink_bytes(dx),
      (struct backend *b, int lane, SINK dx, TENSOR d_gain, TENSOR d_bias, TENSOR dy, TENSOR x,
       TENSOR gain, TENSOR mean, TENSOR rstd, TENSOR residual, struct err *e),
      (b, lane, dx, d_gain, d_bias, dy, x, gain, mean, rstd, residual, e))
TIMED(qk_fwd, PART_NORM, bytes_of(in) + bytes_of(out),
      (struct backend *b, int lane, TENSOR out, TENSOR rstd, TENSOR in, TENSOR gain_q,
       TENSOR gain_k, TENSOR rope, int64_t heads, int64_t kv_heads, float eps, struct err *e),
      (b, lane, out, rstd, in, gain_q, gain_k, rope, heads, kv_heads, eps, e))
TIMED(qk_bwd, PART_NORM, bytes_of(d_out) + (gain_q ? bytes_of(in) : 0) + sink_bytes(dx),
      (struct backend *b, int lane, SINK dx, TENSOR d_gain_q, TENSOR d_gain_k, TENSOR d_out,
       TENSOR in, TENSOR gain_q, TENSOR gain_k, TENSOR rstd, TENSOR rope, int64_t heads,
       int64_t kv_heads, struct err *e),
      (b, lane, dx, d_gain_q, d_gain_k, d_out, in, gain_q, gain_k, rstd, rope, heads, kv_heads, e))
TIMED(swiglu_fwd, PART_NORM, bytes_of(gate_up) + sink_bytes(h),
      (struct backend *b, int lane, SINK h, TENSOR gate_up, struct err *e),
      (b, lane, h, gate_up, e))
TIMED(swiglu_bwd, PART_NORM, bytes_of(dh) + bytes_of(gate_up) + sink_bytes(d_gate_up),
      (struct backend *b, int lane, SINK d_gate_up, TENSOR dh, TENSOR gate_up, struct err *e),
      (b, lane, d_gate_up, dh, gate_up, e))
TIMED(gelu_fwd, PART_NORM, bytes_of(x) + sink_bytes(h),
      (struct backend *b, int lane, SINK h, TENSOR x, struct err *e), (b, lane, h, x, e))
TIMED(gelu_bwd, PART_NORM, bytes_of(dh) + bytes_of(x) + sink_bytes(dx),
      (struct backend *b, int lane, SINK dx, TENSOR dh, TENSOR x, struct err *e),
      (b, lane, dx, dh, x, e))
TIMED(cross_entropy, PART_HEAD, bytes_of(logits) + sink_bytes(d_logits),
      (struct backend *b, int lane, TENSOR loss, SINK d_logits, TENSOR logits, TENSOR targets,
       int64_t vocab, TENSOR grad_scale, struct err *e),
      (b, lane, loss, d_logits, logits, targets, vocab, grad_scale, e))
TIMED(sum, PART_HEAD, bytes_of(x),
      (struct backend *b, int lane, TENSOR total, TENSOR x, float factor, float beta,
       struct err *e), (b, lane, total, x, factor, beta, e))
TIMED(sum_squares, PART_OPTIMIZER, bytes_of_all(x, n),
      (struct backend *b, int lane, TENSOR out, TENSOR x, int64_t n, struct err *e),
      (b, lane, out, x, n, e))
TIMED(clip_factor, PART_OPTIMIZER, bytes_of(squares),
      (struct backend *b, int lane, TENSOR norm, TENSOR clip, TENSOR squares, float max_norm,
       struct err *e), (b, lane, norm, clip, squares, max_norm, e))
TIMED(adamw, PART_OPTIMIZER, adamw_bytes(args, n),
      (struct backend *b, int lane, const struct adamw_args *args, int64_t n, struct err *e),
      (b, lane, args, n, e))
TIMED(flag_nonfinite, PART_OTHER, bytes_of(x),
      (struct backend *b, int lane, TENSOR flag, TENSOR step, TENSOR x, int32_t base,
       struct err *e), (b, lane, flag, step, x, base, e))
TIMED(zero, PART_OTHER, bytes_of(x), (struct backend *b, int lane, TENSOR x, struct err *e),
      (b, lane, x, e))
TIMED(fill, PART_OTHER, bytes_of(x),
      (struct backend *b, int lane, TENSOR x, float value, struct err *e), (b, lane, x, value, e))
TIMED(add, PART_OTHER, bytes_of(x) + 2 * bytes_of(out),
      (struct backend *b, int lane, TENSOR out, TENSOR x, struct err *e), (b, lane, out, x, e))
TIMED(copy, PART_OTHER, bytes_of(x) + bytes_of(out),
      (struct backend *b, int lane, TENSOR out, TENSOR x, struct err *e), (b, lane, out, x, e))

/* ---- graphs: none; the region tells whose call it is ------------------------------------------*/

static enum status timed_graph_replay(struct backend *b, enum graph_key key, bool *replayed,
                                      struct err *e) {
    *replayed = false;
    return OK;
}
static enum status timed_graph_begin(struct backend *b, enum graph_key key, struct err *e) {
    timed_of(b)->region = key;
    return OK;
}
static enum status timed_graph_end(struct backend *b, enum graph_key key, struct err *e) {
    timed_of(b)->region = GRAPH_COUNT;
    return OK;
}

/* ---- life -------------------------------------------------------------------------------------*/

#define REPLACE(op) t->ops.op = timed_##op

static void replace_operators(struct timed *t) {
    REPLACE(graph_replay); REPLACE(graph_begin); REPLACE(graph_end);
    REPLACE(matmul); REPLACE(quantise); REPLACE(quantise_finish);
    REPLACE(delayed_update); REPLACE(embedding_fwd); REPLACE(embedding_bwd);
    REPLACE(rmsnorm_fwd); REPLACE(rmsnorm_bwd); REPLACE(layernorm_fwd); REPLACE(layernorm_bwd);
    REPLACE(qk_fwd); REPLACE(qk_bwd); REPLACE(attention_fwd); REPLACE(attention_bwd);
    REPLACE(swiglu_fwd); REPLACE(swiglu_bwd); REPLACE(gelu_fwd); REPLACE(gelu_bwd);
    REPLACE(cross_entropy); REPLACE(sum); REPLACE(sum_squares);
    REPLACE(clip_factor); REPLACE(adamw); REPLACE(flag_nonfinite);
    REPLACE(zero); REPLACE(fill); REPLACE(copy); REPLACE(add);
}

enum status timed_start(struct backend *b, struct timed **out, struct err *e) {
    struct timed *t = calloc(1, sizeof *t);
    *out = NULL;
    if (t) t->record.call = calloc(CALLS_MAX, sizeof *t->record.call);
    if (!t || !t->record.call) {
        free(t);
        return FAIL(e, ERR_MEMORY, "the record of a timed step");
    }
    t->inner = b->ops;
    t->ops = *b->ops;
    t->backend = b;
    t->region = GRAPH_COUNT;
    replace_operators(t);
    b->ops = &t->ops;
    *out = t;
    return OK;
}

enum status timed_step_done(struct timed *t, struct err *e) {
    struct timed_record *r = &t->record;
    if (t->at != r->call_count)
        return FAIL(e, ERR_STATE, "this step called %lld operators, the first one %lld",
                    (long long)t->at, (long long)r->call_count);
    for (int64_t i = 0; i < t->at; i++) {
        double us = 0;
        TRY(t->inner->timer_read(t->backend, (int)i * 2, (int)i * 2 + 1, &us, e));
        r->call[i].time_us += (us - r->call[i].time_us) / (double)(r->steps + 1);
    }
    r->steps++;
    t->at = 0;
    return OK;
}

void timed_stop(struct timed *t, struct timed_record *out) {
    if (!t) return;
    t->backend->ops = t->inner;
    *out = t->record;
    free(t);
}

void timed_record_free(struct timed_record *r) {
    free(r->call);
    *r = (struct timed_record){ 0 };
}
