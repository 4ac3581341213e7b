#include "runner/bench/timed_backend.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

#include "kernels/tensor.h"

enum { CALLS_MAX = TIMER_MARKS / 2 - 4 /* number of marks for operators; the trainer has the last
                                          ones */,
       SCOPES_MAX = 16 /* depth of nested scopes */ };

struct timed {
    struct backend_ops ops;           /* first: the table of the backend during a timing */
    const struct backend_ops *inner;  /* the real table */
    struct backend *backend;
    struct watch watch;
    struct { enum timed_phase phase; bool inside; } scope[SCOPES_MAX]; /* the open ones; inside: it
                               is a phase, or in one */
    int scopes;            /* number of open scopes */
    struct timed_record record;
    int64_t at;            /* number of calls in this step so far */
    int depth;             /* depth of nested operators: only the outer call is timed */
    enum timed_part last;  /* part of the producer before a quantise_finish */
    const void *codes;     /* codes of the last quantise, NULL: none; its call */
    int64_t quantise_at;
    int64_t repeated; /* number of the call that timed_repeat named */
    enum status (*more)(void *context, bool *again, struct err *e); /* NULL: none is repeated */
    void *context; /* borrowed, of `more` */
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

const char *timed_phase_name(enum timed_phase phase) {
    static const char *const NAMES[PHASE_COUNT] = { "forward", "backward", "update" };
    return NAMES[phase];
}

double gemm_flop(const struct gemm_shape *s) {
    return 2.0 * (double)s->m * (double)s->n * (double)s->k;
}

double attention_keys(const struct attention_shape *s) {
    double length = (double)s->seq_len, window = s->window ? (double)s->window : length;
    return window - window * window / (2 * length);
}

double attention_flop(const struct attention_shape *s) {
    double pairs = (double)(s->batch * s->heads * s->seq_len) * attention_keys(s);
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

static enum timed_phase phase_of(const struct timed *t) { return t->scope[t->scopes].phase; }

static enum timed_part part_of(const struct timed *t, enum timed_part part) {
    return phase_of(t) == PHASE_UPDATE ? PART_OPTIMIZER : part;
}

/* The cost of one call. PART_COUNT: the operator is not timed, since only some steps call it. */
struct cost {
    enum timed_part part;
    double bytes;
    int gemm, attention; /* index of its shape, -1: neither */
};

static struct cost cost(enum timed_part part, double bytes) {
    return (struct cost){ .part = part, .bytes = bytes, .gemm = -1, .attention = -1 };
}

/* The entry of the call that begins now; in later steps the entry of the first step. */
static enum status call_begin(struct timed *t, int lane, const char *op, const struct cost *what,
                              struct err *e) {
    if (t->depth++) return OK;
    if (t->at >= CALLS_MAX)
        return FAIL(e, ERR_STATE, "a step of more than %d operators cannot be timed", CALLS_MAX);
    struct timed_call *c = &t->record.call[t->at];
    if (t->record.steps == 0) {
        *c = (struct timed_call){ .op = op, .part = part_of(t, what->part), .phase = phase_of(t),
                                  .gemm = what->gemm, .attention = what->attention,
                                  .bytes = what->bytes };
        t->record.call_count = t->at + 1;
    } else if (t->at >= t->record.call_count || strcmp(c->op, op)) {
        return FAIL(e, ERR_STATE, "operator %lld of this step is %s; in the first step it was "
                    "another one", (long long)t->at, op);
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

/* Whether the call that just ended is to be made again. */
static bool call_again(struct timed *t, enum status *st, struct err *e) {
    bool again = false;
    if (*st == OK && t->more && t->depth == 1 && t->at == t->repeated)
        *st = t->more(t->context, &again, e);
    return *st == OK && again;
}

/* ---- what each operator costs -----------------------------------------------------------------*/

/* The codes that a GEMM of the head reads count as the head's. A step makes these codes apart from
 * their producer, chunk by chunk, in the calls just before. */
static void head_reads(struct timed *t, const void *codes) {
    if (t->record.steps || !t->codes || t->codes != codes) return;
    for (int64_t i = t->quantise_at; i < t->at; i++) t->record.call[i].part = PART_HEAD;
    t->codes = NULL;
}

static enum status matmul_cost(struct timed *t, const struct matmul_args *args, struct cost *out,
                               struct err *e) {
    struct timed_record *r = &t->record;
    bool head = args->name && !strncmp(args->name, "head", 4);
    struct gemm_shape shape = shape_of(args);
    *out = cost(head ? PART_HEAD : PART_GEMM, matmul_bytes(args));
    out->gemm = shape_index("GEMM", &shape, r->gemm, sizeof shape, &r->gemm_count, e);
    if (out->gemm < 0) return ERR_ARG;
    if (head) head_reads(t, args->a->data);
    return OK;
}

/* The scales of the codes that a producer makes in its own call. */
static enum scale_kind codes_of(const struct sink *s) {
    return s && s->codes && !sink_waits(s) ? s->codes->scale.kind : SCALE_NONE;
}

/* qkv: queries, keys and values of one call, as attention reads them: [B,T,H+2G,D]; made: the sink
 * of its result; d_o: NULL in forward. */
static enum status attention_cost(struct timed *t, bool backward, const struct tensor *qkv,
                                  const struct sink *made, const struct tensor *d_o,
                                  int64_t heads, int64_t kv_heads, double bytes,
                                  struct cost *out, struct err *e) {
    struct timed_record *r = &t->record;
    struct attention_shape s;
    memset(&s, 0, sizeof s); /* padding too: shapes are compared as bytes */
    s.batch = qkv->dim[0];
    s.seq_len = qkv->dim[1];
    s.head_dim = qkv->dim[3];
    s.heads = heads;
    s.kv_heads = kv_heads;
    s.act = qkv->dtype;
    s.out = made->value->dtype;
    s.d_o = d_o ? d_o->dtype : s.out;
    s.codes = codes_of(made);
    s.backward = backward;
    *out = cost(PART_ATTENTION, bytes);
    out->attention = shape_index("attention", &s, r->attention, sizeof s, &r->attention_count, e);
    return out->attention < 0 ? ERR_ARG : OK;
}

/* A pass of its own that makes codes. */
static struct cost quantise_cost(struct timed *t, const struct sink *out, const struct tensor *x) {
    if (t->depth == 0) {
        t->codes = out->codes ? out->codes->data : NULL;
        t->quantise_at = t->at;
    }
    return cost(PART_QUANTISE, quantise_bytes(out, x));
}

/* Codes that waited for the amax belong to the head where their producer does. */
static struct cost finish_cost(const struct timed *t, const struct sink *out) {
    return cost(t->last == PART_HEAD ? PART_HEAD : PART_QUANTISE, finish_bytes(out));
}

/* The words in which kernels/operators.inc states a cost. Each sets c and has a status. */
#define MOVES(part, bytes)   (c = cost(PART_##part, (bytes)), OK)
#define UNTIMED              (c = cost(PART_COUNT, 0), OK)
#define MATMUL(args)         matmul_cost(t, args, &c, e)
#define QUANTISES(out, x)    (c = quantise_cost(t, out, x), OK)
#define FINISHES(out)        (c = finish_cost(t, out), OK)
#define ATTENTION(backward, args, made, d_o, bytes)                                        \
    attention_cost(t, backward, (args)->qkv, (args)->made, (d_o), (args)->heads,           \
                   (args)->kv_heads, (bytes), &c, e)

/* The wrapper of each operator: a mark, the call, another mark. */
#define OPERATOR(op, parameters, arguments, cost_of_call)                                      \
    static enum status timed_##op OPERATOR_PARAMETERS parameters {                             \
        struct timed *t = timed_of(b);                                                         \
        struct cost c;                                                                         \
        TRY(cost_of_call);                                                                     \
        if (c.part == PART_COUNT) return t->inner->op OPERATOR_ARGUMENTS arguments;            \
        enum status st;                                                                        \
        TRY(call_begin(t, lane, #op, &c, e));                                                  \
        do st = t->inner->op OPERATOR_ARGUMENTS arguments;                                     \
        while (call_again(t, &st, e));                                                         \
        return call_end(t, lane, st, e);                                                       \
    }
#include "kernels/operators.inc"

/* ---- phases -----------------------------------------------------------------------------------*/

static struct timed *timed_of_watch(struct watch *w) {
    return (struct timed *)(void *)((char *)w - offsetof(struct timed, watch));
}

static void timed_enter(struct watch *w, enum scope scope, int64_t index) {
    struct timed *t = timed_of_watch(w);
    assert(t->scopes + 1 < SCOPES_MAX);
    int outer = t->scopes++;
    t->scope[t->scopes] = t->scope[outer];
    if (scope != SCOPE_FORWARD && scope != SCOPE_BACKWARD && scope != SCOPE_UPDATE) return;
    t->scope[t->scopes].inside = true;
    t->scope[t->scopes].phase = scope == SCOPE_FORWARD    ? PHASE_FORWARD
                                : scope == SCOPE_BACKWARD ? PHASE_BACKWARD
                                                          : PHASE_UPDATE;
}

/* What follows a phase outside of all phases counts for it: it finishes the phase. */
static void timed_leave(struct watch *w) {
    struct timed *t = timed_of_watch(w);
    enum timed_phase left = phase_of(t);
    t->scopes--;
    if (!t->scope[t->scopes].inside) t->scope[t->scopes].phase = left;
}

/* ---- no graphs --------------------------------------------------------------------------------*/

static enum status timed_graph_replay(struct backend *b, enum graph_key key, bool *replayed,
                                      struct err *e) {
    *replayed = false;
    return OK;
}
static enum status timed_graph_mark(struct backend *b, enum graph_key key, struct err *e) {
    return OK;
}

/* ---- life -------------------------------------------------------------------------------------*/

static void replace_operators(struct timed *t) {
    t->ops.graph_replay = timed_graph_replay;
    t->ops.graph_begin = timed_graph_mark;
    t->ops.graph_end = timed_graph_mark;
#define OPERATOR(op, parameters, arguments, cost_of_call) t->ops.op = timed_##op;
#include "kernels/operators.inc"
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
    t->watch = (struct watch){ timed_enter, timed_leave, b->watch };
    b->watch = &t->watch;
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

void timed_repeat(struct timed *t, int64_t call,
                  enum status (*more)(void *context, bool *again, struct err *e), void *context) {
    t->repeated = call;
    t->more = more;
    t->context = context;
}

void timed_stop(struct timed *t, struct timed_record *out) {
    if (!t) return;
    t->backend->ops = t->inner;
    t->backend->watch = t->watch.next;
    *out = t->record;
    free(t);
}

void timed_record_free(struct timed_record *r) {
    free(r->call);
    *r = (struct timed_record){ 0 };
}
