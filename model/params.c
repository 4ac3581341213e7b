#include "model/params.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the table ---- */

/* Starts a new bucket for the matrices that are added from now on. */
static void open_bucket(struct params *p, const char *name) {
    p->bucket[p->bucket_count++].name = name;
}

static struct param *add(struct params *p, enum param_init init, int64_t rows, int64_t cols,
                         bool gemm, const char *format, ...) PRINTF_LIKE(6, 7);
static struct param *add(struct params *p, enum param_init init, int64_t rows, int64_t cols,
                         bool gemm, const char *format, ...) {
    struct param *x = &p->param[p->count++];
    va_list args;
    va_start(args, format);
    vsnprintf(x->name, sizeof x->name, format, args);
    va_end(args);
    x->init = init;
    x->rows = x->rows_padded = rows;
    x->cols = cols;
    x->gemm = gemm;
    x->bucket = cols ? p->bucket_count - 1 : BUCKET_VECTORS;
    return x;
}

static void add_norm(struct params *p, const struct model_config *c, const char *name) {
    add(p, INIT_ONE, c->width, 0, false, "%s.weight", name);
    if (c->norm == NORM_LAYER && c->bias) add(p, INIT_ZERO, c->width, 0, false, "%s.bias", name);
}

static void add_linear(struct params *p, const struct model_config *c, enum param_init init,
                       int64_t layer, enum gemm_site site) {
    const char *name = GEMM_SITE_NAMES[site];
    struct gemm_size size = gemm_site_size(c, site);
    add(p, init, size.outputs, size.inputs, true, "layers.%lld.%s.weight", (long long)layer, name);
    if (gemm_site_has_bias(c, site))
        add(p, INIT_ZERO, size.outputs, 0, false, "layers.%lld.%s.bias", (long long)layer, name);
}

static void add_layer(struct params *p, const struct model_config *c, int64_t l) {
    char name[64];
    snprintf(name, sizeof name, "layers.%lld.norm1", (long long)l);
    add_norm(p, c, name);
    add_linear(p, c, INIT_NORMAL, l, GEMM_QKV);
    if (c->qk_norm) {
        add(p, INIT_ONE, c->head_dim, 0, false, "layers.%lld.q_norm.weight", (long long)l);
        add(p, INIT_ONE, c->head_dim, 0, false, "layers.%lld.k_norm.weight", (long long)l);
    }
    add_linear(p, c, INIT_RESIDUAL, l, GEMM_ATTN_OUT);
    snprintf(name, sizeof name, "layers.%lld.norm2", (long long)l);
    add_norm(p, c, name);
    add_linear(p, c, INIT_NORMAL, l, GEMM_FFN_IN);
    add_linear(p, c, INIT_RESIDUAL, l, GEMM_FFN_OUT);
}

enum status params_init(struct params *p, const struct model_config *c,
                        const struct param_options *o, struct err *e) {
    memset(p, 0, sizeof *p);
    p->options = *o;
    p->layers = c->layers;
    p->lowest = LOWEST_EMBEDDING;
    p->lr_scale[p->lr_scales++] = 1;
    int64_t most = 5 + 14 * c->layers;
    p->param = calloc((size_t)most, sizeof *p->param);
    p->grads = calloc((size_t)most, sizeof *p->grads);
    p->bucket = calloc((size_t)c->layers + BUCKET_LAYER + 1, sizeof *p->bucket);
    if (!p->param || !p->grads || !p->bucket)
        return FAIL(e, ERR_MEMORY, "no host memory for %lld parameters", (long long)most);
    open_bucket(p, "gains and biases");
    open_bucket(p, "embedding");
    struct param *embed = add(p, INIT_NORMAL, c->vocab, c->width, false, "embed.weight");
    embed->rows_padded = model_vocab_padded(c);
    embed->gemm = c->tied; /* the head's wgrad writes it first, then the embedding adds */
    if (c->positions == POSITION_LEARNED)
        add(p, INIT_NORMAL, c->seq_len, c->width, false, "position.weight");
    for (int64_t l = 0; l < c->layers; l++) {
        open_bucket(p, "layers");
        add_layer(p, c, l);
    }
    add_norm(p, c, "final_norm");
    if (!c->tied) {
        open_bucket(p, "head");
        add(p, INIT_NORMAL, c->vocab, c->width, true, "head.weight")->rows_padded =
            model_vocab_padded(c);
    }
    assert(p->count <= most);
    return OK;
}

int64_t params_trained(const struct params *p) {
    int64_t elements = 0;
    for (int i = 0; i < p->count; i++)
        if (!p->param[i].frozen) elements += param_count(&p->param[i]);
    return elements;
}

struct param *params_find(const struct params *p, const char *format, ...) {
    char name[64];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    for (int i = 0; i < p->count; i++)
        if (strcmp(p->param[i].name, name) == 0) return &p->param[i];
    return NULL;
}

struct tensor param_canonical(const struct param *p, const struct tensor *x) {
    return p->cols ? tensor_2d(x->data, x->dtype, p->rows, p->cols)
                   : tensor_1d(x->data, x->dtype, p->rows);
}

void params_destroy(struct params *p) {
    free(p->param);
    free(p->grads);
    free(p->bucket);
    memset(p, 0, sizeof *p);
}

/* ---- values ---- */

static enum status fill_one(struct param *p, struct backend *b, double std, uint64_t seed,
                            uint32_t id, struct err *e) {
    struct tensor value = p->own_value, *held = p->master.data ? &p->master : &value;
    int64_t left = param_count(p) - p->own.first; /* padding stays 0 */
    int64_t n = left < p->own.count ? left : p->own.count;
    if (p->init == INIT_ZERO || n <= 0) return OK;
    value = tensor_span(&value, 0, n);
    struct tensor filled = tensor_span(held, 0, n);
    if (p->init == INIT_ONE)
        TRY(b->ops->fill(b, LANE_COMPUTE, &filled, 1.0f, e));
    else
        TRY(b->ops->fill_normal(b, LANE_COMPUTE, &filled, (float)std, seed, id, p->own.first, e));
    return p->master.data ? b->ops->copy(b, LANE_COMPUTE, &value, &filled, e) : OK;
}

enum status params_fill(struct params *p, struct backend *b, const struct model_config *c,
                        uint64_t seed, struct err *e) {
    double residual = c->init_std / sqrt(2.0 * (double)c->layers);
    for (int i = 0; i < p->count; i++) {
        struct param *x = &p->param[i];
        double std = x->init == INIT_RESIDUAL ? residual : c->init_std;
        TRY(fill_one(x, b, std, seed, (uint32_t)i, e));
    }
    return OK;
}

/* Makes the second codes of a split weight from its value. No effect for other weights. */
static enum status quantise_dgrad(struct param *p, struct backend *b, struct slots *slots,
                                  struct err *e) {
    if (!p->dgrad.has_twin) return OK;
    struct sink sink = operand_sink(&p->dgrad, slots, PASS_TRAIN);
    TRY(b->ops->quantise(b, LANE_COMPUTE, &sink, &p->weight.value, e));
    return operand_finish(b, &sink, e);
}

enum status params_begin(struct params *p, struct backend *b, struct slots *slots, bool all,
                         struct err *e) {
    TRY(slots_clear_weights(slots, b, all, e));
    struct span weights = { 0, slots->first[SLOT_FORWARD] };
    if (!shard_divides(&p->options.shard) && !p->options.makes_codes)
        return slots_clear_counts(slots, b, weights, all, e);
    for (int k = 0; k < p->bucket_count; k++)
        if (!params_made_in_use(p, k))
            TRY(slots_clear_counts(slots, b, p->bucket[k].slots, all, e));
    return OK;
}

enum status params_clear_counts(const struct param *x, struct backend *b, struct slots *slots,
                                struct err *e) {
    TRY(slots_clear_counts(slots, b, (struct span){ x->weight.slot, 1 }, true, e));
    if (!x->spec || !x->spec->split_weight) return OK;
    return slots_clear_counts(slots, b, (struct span){ x->dgrad.slot, 1 }, true, e);
}

static enum status quantise_own(struct params *p, struct param *x, struct backend *b,
                                struct slots *slots, struct err *e) {
    struct sink sink = param_own_sink(p, x, slots);
    return x->own.count ? b->ops->quantise(b, LANE_COMPUTE, &sink, sink.value, e) : OK;
}

enum status params_quantise(struct params *p, struct backend *b, struct slots *slots,
                            struct err *e) {
    for (int i = 0; i < p->count; i++) TRY(quantise_own(p, &p->param[i], b, slots, e));
    return params_finish(p, b, slots, true, e);
}

/* Copies the amax of a split weight's first codes to its second codes, which are made later, when
 * the value is whole. Copies as f32: a NaN becomes the canonical NaN. */
static enum status copy_amax(struct param *p, struct backend *b, struct slots *slots,
                             struct err *e) {
    if (!p->spec || !p->spec->split_weight) return OK;
    struct tensor from = slots->slot[p->weight.slot].amax, to = slots->slot[p->dgrad.slot].amax;
    from.dtype = to.dtype = DTYPE_F32;
    return b->ops->copy(b, LANE_COMPUTE, &to, &from, e);
}

/* The error of codes that no step makes. Ranks that divide weights do not measure it. */
static enum status settled_error(struct param *p, struct backend *b, struct slots *slots,
                                 struct err *e) {
    struct sink first = operand_sink(&p->weight, slots, PASS_TRAIN);
    struct sink second = operand_sink(&p->dgrad, slots, PASS_TRAIN);
    TRY(operand_error(b, &first, e));
    return p->dgrad.has_twin ? operand_error(b, &second, e) : OK;
}

static enum status finish_own(struct params *p, struct param *x, struct backend *b,
                              struct slots *slots, struct err *e) {
    bool later = params_made_in_use(p, x->bucket);
    struct sink sink = param_own_sink(p, x, slots);
    TRY(operand_finish(b, &sink, e));
    return later ? copy_amax(x, b, slots, e) : quantise_dgrad(x, b, slots, e);
}

enum status params_finish(struct params *p, struct backend *b, struct slots *slots, bool all,
                          struct err *e) {
    bool divided = shard_divides(&p->options.shard);
    if (divided) TRY(slots_share_weights(slots, b, e));
    for (int i = 0; i < p->count; i++) {
        struct param *x = &p->param[i];
        if (!x->settled || all) TRY(finish_own(p, x, b, slots, e));
        else if (!divided && !params_made_in_use(p, x->bucket))
            TRY(settled_error(x, b, slots, e));
    }
    return OK;
}

enum status params_remake(struct params *p, struct backend *b, struct slots *slots,
                          struct err *e) {
    for (int i = 0; i < p->count; i++) {
        struct param *x = &p->param[i];
        if (!x->follows || params_made_in_use(p, x->bucket)) continue;
        TRY(params_clear_counts(x, b, slots, e));
        TRY(quantise_own(p, x, b, slots, e));
        TRY(finish_own(p, x, b, slots, e));
    }
    return OK;
}
