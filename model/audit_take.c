/* The operators of an audited micro-batch: those of the backend. Around a chosen GEMM, and after a
 * chosen cast, they copy what the host compares. */
#include <assert.h>
#include <stdio.h>

#include "model/audit.h"

enum { PART_VALUES = 2048 /* of a cast, about */, PIECES_MAX = 512 };

static struct audit *audit_of(struct backend *b) { return (struct audit *)b; }

/* ---- pieces: views of the device, and where the copies will be ---- */

struct pieces {
    struct tensor x[PIECES_MAX];
    int count;
    int64_t start, end; /* bytes of the buffer */
};

static void pieces_begin(struct pieces *p, const struct audit *a) {
    p->count = 0;
    p->start = p->end = round_up(a->now->used, GATHER_ALIGN);
}

static bool pieces_fit(const struct pieces *p, const struct audit *a, int64_t bytes, int count) {
    return p->end + bytes + (int64_t)count * GATHER_ALIGN <= a->bytes &&
           p->count + count <= PIECES_MAX;
}

/* Plans a copy of a view; its address in host memory. */
static void *take(struct pieces *p, const struct audit *a, struct tensor view) {
    int64_t at = round_up(p->end, GATHER_ALIGN);
    p->end = at + tensor_count(&view) * dtype_bytes(view.dtype);
    p->x[p->count++] = view;
    return a->now->buffer + at;
}

/* Queues the copies. */
static enum status pieces_end(struct pieces *p, struct audit *a, int lane, struct err *e) {
    if (!p->count) return OK;
    a->now->used = p->end;
    struct tensor out = tensor_1d(a->now->buffer + p->start, DTYPE_E4M3, p->end - p->start);
    return a->inner->ops->gather(a->inner, lane, &out, p->x, p->count, e);
}

/* ---- views ---- */

static char *element(const struct tensor *x, int64_t row, int64_t col) {
    return (char *)x->data + (row * x->stride[0] + col * x->stride[1]) * dtype_bytes(x->dtype);
}

/* rows x cols of x from (row, col) on. */
static struct tensor window_of(const struct tensor *x, int64_t row, int64_t col, int64_t rows,
                               int64_t cols) {
    struct tensor view = tensor_2d(element(x, row, col), x->dtype, rows, cols);
    view.stride[0] = x->stride[0];
    view.stride[1] = x->stride[1];
    return view;
}

/* The factors of one row of blocks: of the row `row` of x, from column `col` on, `cols` long. */
static struct tensor factors_of(const struct tensor *x, int64_t row, int64_t col, int64_t cols) {
    const struct scale *s = &x->scale;
    int64_t block = arithmetic_block(s->kind), rows = recompute_block(s->kind, 1).rows;
    int64_t count = block ? ceil_div(cols, block) : 1;
    int64_t at = s->kind == SCALE_TENSOR ? 0 : row / rows * s->dim[1] + (block ? col / block : 0);
    return tensor_1d((char *)s->data + at * dtype_bytes(s->dtype), s->dtype, count);
}

/* ---- draws ---- */

static int64_t draw(struct audit *a, int64_t below) {
    uint64_t bits = rng_bits(a->key, a->drawn++);
    return rng_below(bits, (uint32_t)(below < UINT32_MAX ? below : UINT32_MAX));
}

/* ---- GEMMs ---- */

/* How many outputs of call `call` are compared: `sites` of the calls are spread evenly, from
 * `start` on. */
static int outputs_of(const struct audit *a, int64_t call) {
    int64_t place = (call - a->start + a->calls) % a->calls;
    int64_t site = ceil_div(place * a->sites, a->calls);
    if (site >= a->sites || site * a->calls / a->sites != place) return 0;
    return (int)(a->options.outputs * (site + 1) / a->sites - a->options.outputs * site / a->sites);
}

/* Bytes that one row of an operand takes. */
static int64_t row_bytes(const struct tensor *x) {
    int64_t bytes = x->dim[1] * dtype_bytes(x->dtype);
    return dtype_is_fp8(x->dtype) ? bytes + x->dim[1] / 4 + SCALE_HEADER : bytes;
}

/* Plans the copy of one row of an operand, and describes the copy. */
static struct tensor take_row(struct pieces *p, const struct audit *a, const struct tensor *x,
                              int64_t row) {
    int64_t k = x->dim[1];
    struct tensor copy = tensor_2d(take(p, a, window_of(x, row, 0, 1, k)), x->dtype, 1, k);
    if (!dtype_is_fp8(x->dtype)) return copy;
    struct tensor factors = factors_of(x, row, 0, k);
    void *scales = NULL, *header = NULL;
    if (scale_is_nvfp4(x->scale.kind)) { /* a header, and its end is where the next piece begins */
        static_assert((int)SCALE_HEADER == (int)GATHER_ALIGN, "factors follow their header");
        header = take(p, a, tensor_1d(x->scale.data, DTYPE_F32, SCALE_HEADER / 4));
        factors.data = (char *)factors.data + SCALE_HEADER;
    }
    scales = take(p, a, factors);
    copy.scale = scale_make(header ? header : scales, x->scale.kind, 1, k);
    return copy;
}

static struct tensor take_one(struct pieces *p, const struct audit *a, const struct tensor *x,
                              int64_t row, int64_t col) {
    return tensor_2d(take(p, a, window_of(x, row, col, 1, 1)), x->dtype, 1, 1);
}

static void name_product(char name[96], const struct matmul_args *args) {
    static const char *const DIRECTION[] = { "fprop", "dgrad", "wgrad" };
    snprintf(name, 96, "%.80s %s", args->name ? args->name : "a product",
             DIRECTION[args->direction]);
}

/* The operands of one output, before the product. */
static void take_operands(struct pieces *p, struct audit *a, const struct matmul_args *args,
                          const struct mma_way *way) {
    struct audit_entry *entry = &a->now->entry[a->now->count++];
    *entry = (struct audit_entry){ .args = *args, .way = *way };
    name_product(entry->name, args);
    int64_t row = entry->row = draw(a, args->out->dim[0]);
    int64_t col = entry->col = draw(a, args->out->dim[1]);
    entry->a = take_row(p, a, args->a, row);
    entry->b = take_row(p, a, args->b, col);
    entry->out = take_one(p, a, args->out, row, col);
    entry->args.a = &entry->a;
    entry->args.b = &entry->b;
    entry->args.out = &entry->out;
    if (args->bias) entry->bias = take_one(p, a, args->bias, col, 0);
    if (args->residual) entry->residual = take_one(p, a, args->residual, row, col);
    entry->args.bias = args->bias ? &entry->bias : NULL;
    entry->args.residual = args->residual ? &entry->residual : NULL;
    entry->args.name = NULL; /* borrowed */
}

/* Plans the copies before the product; the new entries are [first, now->count). */
static enum status before_product(struct audit *a, int lane, const struct matmul_args *args,
                                  int outputs, struct err *e) {
    struct mma_way way;
    struct pieces p;
    bool known;
    TRY(a->inner->ops->product_way(a->inner, args, &way, &known, e));
    int64_t bytes = row_bytes(args->a) + row_bytes(args->b) + 64;
    pieces_begin(&p, a);
    for (int i = 0; i < outputs; i++) {
        if (known && pieces_fit(&p, a, bytes + 16, 8)) take_operands(&p, a, args, &way);
        else a->now->record.unknown++;
    }
    return pieces_end(&p, a, lane, e);
}

static enum status after_product(struct audit *a, int lane, const struct matmul_args *args,
                                 int first, struct err *e) {
    struct pieces p;
    pieces_begin(&p, a);
    for (int i = first; i < a->now->count; i++) {
        struct audit_entry *entry = &a->now->entry[i];
        entry->found = take(&p, a, window_of(args->out, entry->row, entry->col, 1, 1));
    }
    return pieces_end(&p, a, lane, e);
}

/* ---- casts ---- */

/* Where a cast takes its scale from, and a name for people. */
struct cast {
    const char *name;
    enum scale_source source;
    struct quant_rule rule;
    const struct tensor *multiplier, *amax;
};

/* A part of the codes of x, [rows, k] both: whole blocks, about PART_VALUES of them. */
static enum status take_cast(struct audit *a, int lane, const struct cast *c,
                             const struct tensor *x, const struct tensor *codes, bool transposed,
                             struct err *e) {
    enum scale_kind kind = codes->scale.kind;
    int64_t rows = codes->dim[0], k = codes->dim[1];
    bool wide = kind == SCALE_TENSOR;
    if (!recompute_knows_cast(kind) || a->now->casts == AUDIT_CASTS) return OK;
    if (wide && !(c->source == SCALE_SOURCE_KNOWN ? c->multiplier : c->amax)) return OK;
    struct cast_block block = recompute_block(kind, k);
    int64_t blocks = PART_VALUES / (block.rows * block.cols);
    int64_t row = draw(a, ceil_div(rows, block.rows)) * block.rows;
    int64_t col = draw(a, ceil_div(k, block.cols)) * block.cols;
    int64_t cols = block.cols * (blocks > 1 ? blocks : 1);
    int64_t n = rows - row < block.rows ? rows - row : block.rows;
    if (cols > k - col) cols = k - col;
    struct pieces p;
    pieces_begin(&p, a);
    if (!pieces_fit(&p, a, n * cols * (dtype_bytes(x->dtype) + 2) + 64, 5)) return OK;
    struct audit_entry *entry = &a->now->entry[a->now->count++];
    *entry = (struct audit_entry){ .cast = true, .row = row, .col = col,
                                   .transposed = transposed, .part = { .rule = c->rule } };
    snprintf(entry->name, sizeof entry->name, "%.78s %s", c->name,
             transposed ? "transposed codes" : "codes");
    entry->part.x = tensor_2d(take(&p, a, window_of(x, row, col, n, cols)), x->dtype, n, cols);
    entry->part.codes = tensor_2d(take(&p, a, window_of(codes, row, col, n, cols)), codes->dtype,
                                  n, cols);
    entry->part.codes.scale = scale_make(take(&p, a, factors_of(codes, row, col, cols)), kind, n,
                                         cols);
    if (wide && c->source == SCALE_SOURCE_KNOWN)
        entry->part.multiplier = take(&p, a, *c->multiplier);
    else if (wide) entry->part.amax = take(&p, a, *c->amax);
    a->now->casts++;
    return pieces_end(&p, a, lane, e);
}

/* The codes of a sink that are just made: the codes, or their transposed twin. */
static enum status after_cast(struct audit *a, int lane, const struct sink *s, struct err *e) {
    const struct slots *slots = a->transformer->slots;
    struct cast c = { .name = "a cast", .source = s->source, .rule = s->rule,
                      .multiplier = s->multiplier, .amax = s->amax };
    for (int i = 0; i < slots->count; i++)
        if (s->amax == &slots->slot[i].amax) c.name = slots->slot[i].name;
    struct tensor x = tensor_2d(s->value->data, s->value->dtype, s->codes->dim[0],
                                s->codes->dim[1]);
    struct tensor x_t = tensor_transposed(&x);
    const struct tensor *twin = s->codes->transposed;
    bool transposed = !s->codes->data || (twin && draw(a, 2));
    if (transposed) return take_cast(a, lane, &c, &x_t, twin, true, e);
    return take_cast(a, lane, &c, &x, s->codes, false, e);
}

/* Codes of a weight as a GEMM reads them, beside its value: also a bit that flipped since the cast
 * shows. Nothing to compare if `codes` are no weight's, or its value is not whole on this rank. */
static enum status weight_in_use(struct audit *a, int lane, const struct tensor *codes,
                                 struct err *e) {
    const struct slots *slots = a->transformer->slots;
    for (int i = 0; i < a->params->count; i++) {
        const struct param *x = &a->params->param[i];
        const struct operand *o = codes == &x->dgrad.twin ? &x->dgrad : &x->weight;
        bool transposed = codes == &o->twin;
        if ((!transposed && codes != &o->codes) || !o->value.data || o->slot < 0) continue;
        const struct slot *slot = &slots->slot[o->slot];
        struct cast c = { .name = x->name, .source = o->spec.source, .rule = o->spec.rule,
                          .multiplier = &slot->multiplier, .amax = &slot->amax };
        struct tensor x_t = tensor_transposed(&o->value);
        return take_cast(a, lane, &c, transposed ? &x_t : &o->value, codes, transposed, e);
    }
    return OK;
}

/* ---- the operators ---- */

static enum status audit_matmul(struct backend *b, int lane, const struct matmul_args *args,
                                struct err *e) {
    struct audit *a = audit_of(b);
    int outputs = outputs_of(a, a->call++), first = a->now->count;
    bool empty = args->out->dim[0] == 0 || args->out->dim[1] == 0;
    if (!outputs || empty) return a->inner->ops->matmul(a->inner, lane, args, e);
    if (dtype_is_fp8(args->b->dtype)) TRY(weight_in_use(a, lane, args->b, e));
    first = a->now->count;
    TRY(before_product(a, lane, args, outputs, e));
    TRY(a->inner->ops->matmul(a->inner, lane, args, e));
    return after_product(a, lane, args, first, e);
}

static enum status audit_quantise_finish(struct backend *b, int lane, const struct sink *out,
                                         struct err *e) {
    struct audit *a = audit_of(b);
    TRY(a->inner->ops->quantise_finish(a->inner, lane, out, e));
    if (!out->codes || !out->keep_value) return OK;
    if ((a->finish++ + a->start) % a->every_cast) return OK;
    return after_cast(a, lane, out, e);
}

/* All others call the backend. */
#define OPERATOR(name, parameters, arguments, cost)                    \
    static enum status pass_##name OPERATOR_PARAMETERS parameters {    \
        b = audit_of(b)->inner;                                        \
        return b->ops->name OPERATOR_ARGUMENTS arguments;              \
    }
#include "kernels/operators.inc"

void audit_take_operators(struct audit *a) {
#define OPERATOR(name, parameters, arguments, cost) a->ops.name = pass_##name;
#include "kernels/operators.inc"
    a->ops.matmul = audit_matmul;
    a->ops.quantise_finish = audit_quantise_finish;
    a->backend.ops = &a->ops;
}
