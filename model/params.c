#include "model/params.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the table ---- */

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
    return x;
}

static void add_norm(struct params *p, const struct model_config *c, const char *name) {
    add(p, INIT_ONE, c->width, 0, false, "%s.weight", name);
    if (c->norm == NORM_LAYER && c->bias) add(p, INIT_ZERO, c->width, 0, false, "%s.bias", name);
}

static void add_linear(struct params *p, const struct model_config *c, enum param_init init,
                       int64_t rows, int64_t cols, int64_t layer, const char *name) {
    add(p, init, rows, cols, true, "layers.%lld.%s.weight", (long long)layer, name);
    if (c->bias) add(p, INIT_ZERO, rows, 0, false, "layers.%lld.%s.bias", (long long)layer, name);
}

static void add_layer(struct params *p, const struct model_config *c, int64_t l) {
    char name[64];
    int64_t attention = c->heads * c->head_dim;
    snprintf(name, sizeof name, "layers.%lld.norm1", (long long)l);
    add_norm(p, c, name);
    add_linear(p, c, INIT_NORMAL, model_qkv_width(c), c->width, l, "qkv");
    if (c->qk_norm) {
        add(p, INIT_ONE, c->head_dim, 0, false, "layers.%lld.q_norm.weight", (long long)l);
        add(p, INIT_ONE, c->head_dim, 0, false, "layers.%lld.k_norm.weight", (long long)l);
    }
    add_linear(p, c, INIT_RESIDUAL, c->width, attention, l, "attn_out");
    snprintf(name, sizeof name, "layers.%lld.norm2", (long long)l);
    add_norm(p, c, name);
    add_linear(p, c, INIT_NORMAL, model_ffn_in_width(c), c->width, l, "ffn_in");
    add_linear(p, c, INIT_RESIDUAL, c->width, c->ffn, l, "ffn_out");
}

enum status params_init(struct params *p, const struct model_config *c,
                        const struct param_options *o, struct err *e) {
    memset(p, 0, sizeof *p);
    p->options = *o;
    int64_t most = 5 + 14 * c->layers;
    p->param = calloc((size_t)most, sizeof *p->param);
    p->grads = calloc((size_t)most, sizeof *p->grads);
    if (!p->param || !p->grads)
        return FAIL(e, ERR_MEMORY, "no host memory for %lld parameters", (long long)most);
    struct param *embed = add(p, INIT_NORMAL, c->vocab, c->width, false, "embed.weight");
    embed->rows_padded = model_vocab_padded(c);
    embed->gemm = c->tied; /* the head's wgrad writes it first, then the embedding adds */
    if (c->positions == POSITION_LEARNED)
        add(p, INIT_NORMAL, c->seq_len, c->width, false, "position.weight");
    for (int64_t l = 0; l < c->layers; l++) add_layer(p, c, l);
    add_norm(p, c, "final_norm");
    if (!c->tied)
        add(p, INIT_NORMAL, c->vocab, c->width, true, "head.weight")->rows_padded =
            model_vocab_padded(c);
    assert(p->count <= most);
    return OK;
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

/* ---- memory ---- */

static void layout_moment(struct tensor *t, struct memory *m, enum state_kind kind, int64_t n) {
    if (kind == STATE_8BIT) {
        *t = tensor_fp8(NULL, DTYPE_E4M3, 1, n);
        t->scale = scale_make(NULL, SCALE_1X128, 1, n);
        memory_reserve(m, MEMORY_MOMENTS, "m, v", tensor_fp8_bytes(1, n), &t->data);
        memory_reserve(m, MEMORY_MOMENTS, "scales", scale_bytes(&t->scale), &t->scale.data);
        return;
    }
    *t = tensor_1d(NULL, kind == STATE_BF16 ? DTYPE_BF16 : DTYPE_F32, n);
    memory_reserve(m, MEMORY_MOMENTS, "m, v", n * dtype_bytes(t->dtype), &t->data);
}

static void layout_value(struct param *p, struct memory *m, struct slots *slots, enum dtype act) {
    int64_t rows = p->rows_padded, cols = param_cols(p);
    const struct gemm_spec *spec = p->spec;
    bool fp8 = spec && spec->fp8, split = fp8 && spec->split_weight;
    struct operand_place place = { MEMORY_WEIGHTS, MEMORY_CODES, p->cols ? "matrices" : "vectors",
                                   PLACE_OWN, PLACE_OWN, PLACE_OWN };
    struct operand_use use = { .value = true, .codes = true, .twin = !split };
    int slot = slots_add(slots, SLOT_WEIGHT, fp8 ? &spec->w : NULL, fp8 ? spec->options : NULL,
                         rows * cols, "%s", p->name);
    operand_layout(&p->weight, m, fp8 ? &spec->w : NULL, use, place, act, rows, cols, NULL, slot);
    if (!p->cols) { /* a vector [n], not a matrix of one column */
        void *data = p->weight.value.data;
        p->weight.value = tensor_1d(data, act, rows);
    }
    if (!split) return;
    use.codes = false;
    use.twin = true;
    slot = slots_add(slots, SLOT_WEIGHT, &spec->w_dgrad, spec->options, rows * cols, "%s.dgrad",
                     p->name);
    operand_layout(&p->dgrad, m, &spec->w_dgrad, use, place, act, rows, cols, &p->weight.value,
                   slot);
}

static void layout_grad(struct param *p, struct memory *m, enum dtype grad) {
    p->grad = p->cols ? tensor_2d(NULL, grad, p->rows_padded, p->cols)
                      : tensor_1d(NULL, grad, p->rows);
    memory_reserve(m, MEMORY_GRADIENTS, p->cols ? "matrices" : "vectors",
                   param_count_padded(p) * dtype_bytes(grad), &p->grad.data);
}

void params_layout(struct params *p, struct memory *m, struct slots *slots) {
    const struct param_options *o = &p->options;
    /* Slots of GEMM weights are neighbours, so that delayed scaling updates them in one run; and so
     * are the gradients that operators add to, so that one call clears them. */
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < p->count; i++)
            if ((p->param[i].spec != NULL) == (pass == 0))
                layout_value(&p->param[i], m, slots, o->act);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < p->count; i++)
            if (p->param[i].gemm == (pass == 1)) layout_grad(&p->param[i], m, o->grad);
        if (pass == 0) p->grad_added_bytes = m->arena[MEMORY_GRADIENTS].bytes;
    }
    for (int i = 0; i < p->count; i++) {
        struct param *x = &p->param[i];
        int64_t n = param_count_padded(x);
        layout_moment(&x->m, m, o->state, n);
        layout_moment(&x->v, m, o->state, n);
        if (!o->master) continue;
        x->master = tensor_1d(NULL, DTYPE_F32, n);
        memory_reserve(m, MEMORY_MASTER, "f32 copies", 4 * n, &x->master.data);
    }
}

void params_bind(struct params *p, struct memory *m, const struct slots *slots) {
    const struct arena *a = &m->arena[MEMORY_GRADIENTS];
    int64_t size = dtype_bytes(p->options.grad);
    p->grad_added = tensor_1d(a->base, p->options.grad, p->grad_added_bytes / size);
    p->grad_all = tensor_1d(a->base, p->options.grad, a->bytes / size);
    for (int i = 0; i < p->count; i++) {
        operand_bind(&p->param[i].weight, slots);
        operand_bind(&p->param[i].dgrad, slots);
        p->grads[i] = p->param[i].grad;
    }
}

void params_destroy(struct params *p) {
    free(p->param);
    free(p->grads);
    memset(p, 0, sizeof *p);
}

/* ---- values ---- */

static enum status fill_one(struct param *p, struct backend *b, double std, uint64_t seed,
                            uint32_t id, struct err *e) {
    struct tensor value = param_canonical(p, &p->weight.value);
    struct tensor master = p->master.data ? param_canonical(p, &p->master) : value;
    if (p->init == INIT_ZERO) return OK; /* memory is created zeroed */
    if (p->init == INIT_ONE)
        TRY(b->ops->fill(b, LANE_COMPUTE, &master, 1.0f, e));
    else
        TRY(b->ops->fill_normal(b, LANE_COMPUTE, &master, (float)std, seed, id, 0, e));
    return p->master.data ? b->ops->copy(b, LANE_COMPUTE, &value, &master, e) : OK;
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

enum status param_quantise_dgrad(struct param *p, struct backend *b, struct slots *slots,
                                 struct err *e) {
    if (!p->spec || !p->spec->split_weight) return OK;
    struct sink sink = operand_sink(&p->dgrad, slots, PASS_TRAIN);
    TRY(b->ops->quantise(b, LANE_COMPUTE, &sink, &p->weight.value, e));
    return b->ops->quantise_finish(b, LANE_COMPUTE, &sink, e);
}

enum status params_quantise(struct params *p, struct backend *b, struct slots *slots,
                            struct err *e) {
    for (int i = 0; i < p->count; i++) {
        struct param *x = &p->param[i];
        struct sink sink = operand_sink(&x->weight, slots, PASS_TRAIN);
        TRY(b->ops->quantise(b, LANE_COMPUTE, &sink, &x->weight.value, e));
        TRY(b->ops->quantise_finish(b, LANE_COMPUTE, &sink, e));
        TRY(param_quantise_dgrad(x, b, slots, e));
    }
    return OK;
}
