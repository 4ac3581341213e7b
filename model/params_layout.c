/* The memory of parameters: cuts buckets into shards; places values, codes, gradients and optimizer
 * state. */
#include "model/params.h"

enum { SPARE_BYTES = 2 * ARENA_ALIGN };

/* Shared regions that buckets use in turn: see struct bucket, `ring`. */
struct ring { int value[2], codes[2], twin[2], grad[2], part, made, made_twin; };

static struct ring open_ring(struct memory *m) {
    struct ring g;
    for (int i = 0; i < 2; i++) {
        g.value[i] = memory_share_open(m, MEMORY_EXCHANGE, "gathered weights");
        g.codes[i] = memory_share_open(m, MEMORY_EXCHANGE, "gathered weights");
        g.twin[i] = memory_share_open(m, MEMORY_EXCHANGE, "gathered weights, transposed");
        g.grad[i] = memory_share_open(m, MEMORY_EXCHANGE, "gradients before reduction");
    }
    g.part = memory_share_open(m, MEMORY_EXCHANGE, "gradients of a micro-batch");
    g.made = memory_share_open(m, MEMORY_CODES, "in use");
    g.made_twin = memory_share_open(m, MEMORY_CODES, "in use, transposed");
    return g;
}

/* ---- cutting ---- */

/* Ranks can gather FP8 codes if neither the codes nor their twin have padding in a row, and all
 * codes have one scale. */
static bool gathers_codes(const struct param *p) {
    const struct gemm_spec *s = p->spec;
    return s && s->fprop_fp8 && s->dgrad_fp8 && s->options->param_gather && !s->split_weight &&
           s->w.kind == SCALE_TENSOR && p->cols % FP8_ROW_ALIGN == 0 &&
           p->rows_padded % FP8_ROW_ALIGN == 0;
}

/* Sets offsets. Gradients that operators add to come first, so that one call clears them. */
static void place_params(struct params *p) {
    for (int k = 0; k < p->bucket_count; k++) p->bucket[k].gathers_codes = k >= BUCKET_LAYER;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < p->count; i++) {
            struct param *x = &p->param[i];
            struct bucket *b = &p->bucket[x->bucket];
            if (x->gemm != (pass == 1)) continue;
            if (!gathers_codes(x)) b->gathers_codes = false;
            x->offset = b->elements;
            b->elements += round_up(param_count_padded(x), SHARD_ALIGN);
        }
        for (int k = 0; pass == 0 && k < p->bucket_count; k++)
            p->bucket[k].added = p->bucket[k].elements;
    }
}

static void cut(struct params *p) {
    const struct shard_place *s = &p->options.shard;
    bool tied = p->param[0].gemm; /* the embedding's gradient, written by the head */
    for (int k = 0; k < p->bucket_count; k++) {
        struct bucket *b = &p->bucket[k];
        bool always_whole = k == BUCKET_VECTORS || (k == BUCKET_EMBEDDING && tied);
        b->shard = round_up(ceil_div(b->elements, s->world), SHARD_ALIGN);
        b->ring = k % 2;
        b->gathers_codes = b->gathers_codes && shard_divides(s);
        b->grad_transient = s->world > 1 && s->kind >= SHARD_GRADIENTS && k != BUCKET_VECTORS;
        b->value_transient = s->world > 1 && s->kind == SHARD_PARAMETERS && !always_whole;
        b->codes_transient = p->options.makes_codes && k >= BUCKET_LAYER && !b->value_transient &&
                             !b->gathers_codes;
    }
    for (int i = 0; i < p->count; i++) {
        struct param *x = &p->param[i];
        int64_t n = param_count_padded(x);
        x->part = bucket_span(&p->bucket[x->bucket], s->rank, x->offset, n);
        x->own = shard_divides(s) ? x->part : (struct span){ 0, n };
        if (x->frozen) x->part.count = 0; /* not of the norm */
    }
}

/* ---- values and codes ---- */

static int64_t whole(const struct params *p, const struct bucket *b) {
    return b->shard * p->options.shard.world;
}

/* The flat views of values and codes, and the regions of the parameters' views. */
static void layout_values(const struct params *p, struct bucket *b, struct memory *m,
                          const struct ring *ring) {
    int64_t n = whole(p, b), size = dtype_bytes(p->options.act);
    b->value = tensor_1d(NULL, p->options.act, n);
    b->value_shard = tensor_1d(NULL, p->options.act, b->shard);
    b->codes = tensor_1d(NULL, DTYPE_E4M3, n);
    b->codes_shard = tensor_1d(NULL, DTYPE_E4M3, b->shard);
    b->home.value = PLACE_NONE;
    b->home.codes = b->value_transient   ? ring->codes[b->ring]
                    : b->codes_transient ? ring->made
                                         : PLACE_OWN;
    b->home.twin = b->value_transient   ? ring->twin[b->ring]
                   : b->codes_transient ? ring->made_twin
                                        : PLACE_OWN;
    if (b->gathers_codes && !b->value_transient)
        b->home.codes = memory_share_open(m, MEMORY_CODES, b->name);
    if (b->gathers_codes) memory_share(m, b->home.codes, 0, n, &b->codes.data);
    if (b->gathers_codes && b->value_transient)
        memory_reserve(m, MEMORY_CODES, b->name, b->shard, &b->codes_shard.data);
    if (b->gathers_codes || b->value_transient)
        memory_reserve(m, MEMORY_WEIGHTS, b->name, b->shard * size, &b->value_shard.data);
    if (b->gathers_codes) return;
    b->home.value = b->value_transient ? ring->value[b->ring]
                                    : memory_share_open(m, MEMORY_WEIGHTS, b->name);
    memory_share(m, b->home.value, 0, n * size, &b->value.data);
}

/* Codes of an operand follow the codes laid out before. */
static void advance(struct bucket *b, const struct operand *o) {
    if (o->has_codes) b->home.codes_at += operand_code_bytes(o);
    if (o->has_twin) b->home.twin_at += operand_twin_bytes(o);
}

/* The twin of a split weight: dgrad reads it with another scale than fprop. */
static void layout_split(struct params *p, struct param *x, struct memory *m, struct slots *slots,
                         struct operand_place place) {
    struct bucket *b = &p->bucket[x->bucket];
    const struct gemm_spec *spec = x->spec;
    int64_t rows = x->rows_padded, cols = x->cols;
    struct operand_use use = { .value = true, .twin = true };
    place.twin_at = b->home.twin_at;
    int slot = slots_add(slots, SLOT_WEIGHT, &spec->w_dgrad, spec->options, rows * cols, "%s.dgrad",
                         x->name);
    operand_layout(&x->dgrad, m, &spec->w_dgrad, use, place, p->options.act, rows, cols,
                   &x->weight.value, slot);
    advance(b, &x->dgrad);
    b->slots.count++;
}

static void layout_weight(struct params *p, struct param *x, struct memory *m,
                          struct slots *slots) {
    struct bucket *b = &p->bucket[x->bucket];
    enum dtype act = p->options.act;
    int64_t rows = x->rows_padded, cols = param_cols(x);
    const struct gemm_spec *spec = x->spec;
    bool backward = !p->options.forward_only;
    bool twin = spec && spec->dgrad_fp8 && backward, split = twin && spec->split_weight;
    bool fp8 = twin || (spec && spec->fprop_fp8);
    struct operand_place place = {
        .code_arena = MEMORY_CODES, .item = b->name, .value = b->home.value,
        .codes = b->home.codes, .twin = b->home.twin, .value_at = x->offset * dtype_bytes(act),
        .codes_at = b->gathers_codes ? x->offset : b->home.codes_at, .twin_at = b->home.twin_at };
    struct operand_use use = { .value = true, .codes = fp8 && spec->fprop_fp8,
                               .twin = twin && !split };
    int slot = slots_add(slots, SLOT_WEIGHT, fp8 ? &spec->w : NULL, fp8 ? spec->options : NULL,
                         b->gathers_codes ? x->own.count : rows * cols, "%s", x->name);
    if (b->gathers_codes) slots->slot[slot].divided = rows * cols;
    operand_layout(&x->weight, m, fp8 ? &spec->w : NULL, use, place, act, rows, cols, NULL, slot);
    advance(b, &x->weight);
    if (!x->cols) /* a vector [n], not a matrix of one column */
        x->weight.value = tensor_1d(NULL, act, rows);
    if (spec && b->slots.count++ == 0) b->slots.first = slot;
    if (split) layout_split(p, x, m, slots, place);
}

/* ---- gradients and state ---- */

static void layout_gradients(struct params *p, int k, struct memory *m, const struct ring *ring) {
    struct bucket *b = &p->bucket[k];
    enum dtype grad = p->options.grad;
    int64_t n = whole(p, b), size = dtype_bytes(grad);
    if (b->frozen && !b->gathers_codes) return; /* exchange_whole_value reads codes into them */
    int region = ring->grad[b->ring];
    if (!b->grad_transient) region = memory_share_open(m, MEMORY_GRADIENTS, b->name);
    else if (k == BUCKET_EMBEDDING && b->added < b->elements) /* tied: backward adds to the end */
        region = memory_share_open(m, MEMORY_EXCHANGE, "gradients before reduction");
    b->grad = tensor_1d(NULL, grad, n);
    b->grad_shard = b->grad_part = tensor_1d(NULL, grad, b->shard);
    memory_share(m, region, 0, n * size, &b->grad.data);
    if (b->grad_transient)
        memory_reserve(m, MEMORY_GRADIENTS, b->name, b->shard * size, &b->grad_shard.data);
    if (b->grad_transient && p->options.accumulates)
        memory_share(m, ring->part, 0, b->shard * size, &b->grad_part.data);
    for (int i = 0; i < p->count; i++) {
        struct param *x = &p->param[i];
        if (x->bucket != k) continue;
        x->grad = x->cols ? tensor_2d(NULL, grad, x->rows_padded, x->cols)
                          : tensor_1d(NULL, grad, x->rows);
        memory_share(m, region, x->offset * size, param_count_padded(x) * size, &x->grad.data);
    }
}

/* One moment of n elements; n may be 0. */
static void layout_moment(struct tensor *t, struct memory *m, enum state_kind kind, int64_t n) {
    if (kind == STATE_8BIT) {
        *t = tensor_fp8(NULL, DTYPE_E4M3, 1, n);
        t->scale = scale_make(NULL, SCALE_1X128, 1, n);
        if (n == 0) return;
        memory_reserve(m, MEMORY_MOMENTS, "m, v", tensor_fp8_bytes(1, n), &t->data);
        memory_reserve(m, MEMORY_MOMENTS, "scales", scale_bytes(&t->scale), &t->scale.data);
        return;
    }
    *t = tensor_1d(NULL, kind == STATE_BF16 ? DTYPE_BF16 : DTYPE_F32, n);
    if (n > 0) memory_reserve(m, MEMORY_MOMENTS, "m, v", n * dtype_bytes(t->dtype), &t->data);
}

static void layout_state(const struct params *p, struct param *x, struct memory *m) {
    const struct param_options *o = &p->options;
    int64_t n = x->own.count;
    if (x->frozen) return;
    layout_moment(&x->m, m, o->state, n);
    layout_moment(&x->v, m, o->state, n);
    if (!o->master || n == 0) return;
    x->master = tensor_1d(NULL, DTYPE_F32, n);
    memory_reserve(m, MEMORY_MASTER, "f32 copies", 4 * n, &x->master.data);
}

/* Which parameters and buckets no step need make or gather again. */
static void settle(struct params *p, struct slots *slots) {
    for (int k = 0; k < p->bucket_count; k++)
        p->bucket[k].stays = p->bucket[k].frozen && !p->bucket[k].value_transient;
    for (int i = 0; i < p->count; i++) {
        struct param *x = &p->param[i];
        bool second = x->spec && x->spec->fp8 && x->spec->split_weight && !p->options.forward_only;
        x->settled = x->frozen;
        x->follows = x->frozen && (slots->slot[x->weight.slot].delayed ||
                                   (second && slots->slot[x->dgrad.slot].delayed));
        slots->slot[x->weight.slot].settled = x->settled;
        if (second) slots->slot[x->dgrad.slot].settled = x->settled;
    }
}

void params_layout(struct params *p, struct memory *m, struct slots *slots) {
    place_params(p);
    cut(p);
    struct ring ring = open_ring(m);
    for (int k = 0; k < p->bucket_count; k++) layout_values(p, &p->bucket[k], m, &ring);
    /* Slots of GEMM weights are neighbours, so that delayed scaling updates them in one run. */
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < p->count; i++)
            if ((p->param[i].spec != NULL) == (pass == 0))
                layout_weight(p, &p->param[i], m, slots);
    settle(p, slots);
    if (shard_divides(&p->options.shard))
        memory_reserve(m, MEMORY_EXCHANGE, "spare", SPARE_BYTES, &p->spare);
    if (p->options.forward_only) return;
    for (int k = 0; k < p->bucket_count; k++) layout_gradients(p, k, m, &ring);
    for (int i = 0; i < p->count; i++) layout_state(p, &p->param[i], m);
}

/* ---- addresses ---- */

struct tensor param_span(const struct params *p, const struct param *x, const struct tensor *shard,
                         struct span span) {
    int64_t begin = p->options.shard.rank * p->bucket[x->bucket].shard;
    return tensor_span(shard, x->offset + span.first - begin, span.count);
}

/* Quantisation makes the scale, and every rank reads the scale of gathered codes. So a rank that
 * holds no part of a weight quantises a few spare elements. */
static void bind_own(const struct params *p, struct param *x, const struct slots *slots) {
    const struct bucket *b = &p->bucket[x->bucket];
    int64_t n = x->own.count, cols = SHARD_ALIGN, rows = n / cols;
    struct tensor value = x->weight.value, codes;
    if (shard_divides(&p->options.shard)) value = param_span(p, x, &b->value_shard, x->own);
    x->own_value = tensor_2d(value.data, p->options.act, 1, n);
    if (!b->gathers_codes) return;
    /* Quantisation works in tiles: rows of a tile's width are faster than one long row. */
    codes = param_span(p, x, &b->codes_shard, x->own);
    if (n == 0) {
        rows = 1;
        cols = FP8_ROW_ALIGN;
        value.data = p->spare;
        codes.data = (char *)p->spare + SPARE_BYTES / 2;
    }
    x->own_value = tensor_2d(value.data, p->options.act, rows, cols);
    x->own_codes = tensor_fp8(codes.data, DTYPE_E4M3, rows, cols);
    x->own_codes.scale = scale_make(slots->slot[x->weight.slot].factor, SCALE_TENSOR, rows, cols);
}

/* An empty part also gets an address, because operators require one. A frozen bucket has none. */
static struct tensor bind_part(const struct params *p, const struct param *x) {
    const struct tensor *shard = &p->bucket[x->bucket].grad_shard;
    if (x->part.count) return param_span(p, x, shard, x->part);
    return tensor_span(&p->bucket[BUCKET_VECTORS].grad_shard, 0, 0);
}

struct sink param_own_sink(struct params *p, struct param *x, const struct slots *slots) {
    struct sink s = operand_sink(&x->weight, slots, PASS_TRAIN);
    if (params_made_in_use(p, x->bucket)) return sink_value(&x->own_value, s.amax);
    if (!p->bucket[x->bucket].gathers_codes) return s;
    s.value = &x->own_value;
    s.codes = &x->own_codes;
    s.keep_value = true;
    return s;
}

void params_bind(struct params *p, const struct slots *slots) {
    int rank = p->options.shard.rank;
    for (int k = 0; k < p->bucket_count; k++) {
        struct bucket *b = &p->bucket[k];
        int64_t first = rank * b->shard;
        if (!b->value_shard.data) b->value_shard = tensor_span(&b->value, first, b->shard);
        if (!b->codes_shard.data) b->codes_shard = tensor_span(&b->codes, first, b->shard);
        if (!b->grad_shard.data) b->grad_shard = tensor_span(&b->grad, first, b->shard);
    }
    for (int i = 0; i < p->count; i++) {
        operand_bind(&p->param[i].weight, slots);
        operand_bind(&p->param[i].dgrad, slots);
        bind_own(p, &p->param[i], slots);
        p->grads[i] = bind_part(p, &p->param[i]);
    }
}
