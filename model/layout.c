/* The placement of the transformer's buffers: kept for each layer, or shared by layers in turn. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/exactmath.h"
#include "model/transformer.h"
#include "model/window.h"

/* ---- structure ---- */

static void find_norm(struct norm *n, const struct params *p, const char *prefix,
                      const char *name) {
    n->gain = params_find(p, "%s%s.weight", prefix, name);
    n->bias = params_find(p, "%s%s.bias", prefix, name);
}

static void init_layer(struct transformer *t, int64_t l, const struct recipe *r, struct params *p) {
    struct layer *layer = &t->layer[l];
    char prefix[32];
    snprintf(prefix, sizeof prefix, "layers.%lld.", (long long)l);
    find_norm(&layer->norm1, p, prefix, "norm1");
    find_norm(&layer->norm2, p, prefix, "norm2");
    attention_spec_resolve(&layer->attention.spec, r, l);
    if (t->forward_only) layer->attention.spec.o_codes = false;
    layer->q_norm = params_find(p, "%sq_norm.weight", prefix);
    layer->k_norm = params_find(p, "%sk_norm.weight", prefix);
    for (int s = 0; s < GEMM_SITE_COUNT; s++) {
        struct linear *lin = &layer->linear[s];
        gemm_spec_resolve(&lin->spec, recipe_at(r, l, (enum gemm_site)s));
        lin->weight = params_find(p, "%s%s.weight", prefix, GEMM_SITE_NAMES[s]);
        lin->bias = params_find(p, "%s%s.bias", prefix, GEMM_SITE_NAMES[s]);
        lin->weight->spec = &lin->spec;
        lin->spec.name = lin->weight->name;
    }
}

enum status transformer_init(struct transformer *t, const struct model_config *c,
                             const struct recipe *r, const struct transformer_options *o,
                             struct params *p, struct err *e) {
    memset(t, 0, sizeof *t);
    t->config = *c;
    /* Without a backward, layers share in turn what a backward would recompute. */
    t->recompute = o->forward_only ? RECOMPUTE_BLOCK : o->recompute;
    t->recompute_layers = o->forward_only || !o->recompute_layers ? c->layers
                                                                  : o->recompute_layers;
    t->forward_only = o->forward_only;
    t->accuracy = o->accuracy;
    t->act = o->act;
    t->documents = o->documents;
    t->batch = o->batch;
    t->rows = o->batch * c->seq_len;
    t->chunk_rows = model_head_rows(c->vocab, t->rows, o->head_chunk).each;
    t->chunk_count = ceil_div(t->rows, t->chunk_rows);
    t->layer = calloc((size_t)c->layers, sizeof *t->layer);
    t->x = calloc((size_t)c->layers + 1, sizeof *t->x);
    t->chunk = calloc((size_t)t->chunk_count, sizeof *t->chunk);
    if (!t->layer || !t->x || !t->chunk)
        return FAIL(e, ERR_MEMORY, "no host memory for %lld layers", (long long)c->layers);
    t->embed = params_find(p, "embed.weight");
    t->position = params_find(p, "position.weight");
    t->lowest = p->lowest;
    for (int64_t l = 0; l < c->layers; l++) init_layer(t, l, r, p);
    find_norm(&t->final_norm, p, "", "final_norm");
    gemm_spec_resolve(&t->head.spec, &r->head);
    t->head.weight = c->tied ? t->embed : params_find(p, "head.weight");
    t->head.weight->spec = &t->head.spec;
    t->head.spec.name = "head.weight"; /* also if tied to the embedding */
    return OK;
}

static bool set_forward(struct gemm_spec *spec, int64_t step) {
    int64_t after = spec->fp8 ? spec->options->forward_bf16_after : 0;
    bool before = spec->late_bf16;
    spec->late_bf16 = after > 0 && step > after;
    return spec->late_bf16 != before;
}

bool transformer_set_forward(struct transformer *t, int64_t step) {
    bool changed = set_forward(&t->head.spec, step);
    for (int64_t l = 0; l < t->config.layers; l++)
        for (int s = 0; s < GEMM_SITE_COUNT; s++)
            if (set_forward(&t->layer[l].linear[s].spec, step)) changed = true;
    return changed;
}

enum { ATTENTION_SLOTS = 4 }; /* of a layer with FP8 attention */

int transformer_slots_max(const struct transformer *t, const struct params *p) {
    return (int)(2 * p->count + (2 * GEMM_SITE_COUNT + ATTENTION_SLOTS) * t->config.layers +
                 2 * t->chunk_count + 2);
}

void transformer_destroy(struct transformer *t) {
    free(t->layer);
    free(t->x);
    free(t->chunk);
    memset(t, 0, sizeof *t);
}

/* ---- memory ---- */

/* Regions that layers share in turn. */
struct regions {
    int staging;                 /* values that are read only to make codes */
    int x_codes, dy_codes, dy_twin;
    int x_kept[GEMM_SITE_COUNT]; /* recomputed, one layer at a time */
    int x_twin[GEMM_SITE_COUNT];
    int qkv, qkv_raw, x_mid, gate_up;
    int qkv_codes, d_o_codes; /* of FP8 attention */
    int x[2]; /* the residual stream, without a backward */
};

static void open_regions(struct regions *g, struct memory *m) {
    g->staging = memory_share_open(m, MEMORY_WORKSPACE, "values before quantisation");
    g->x_codes = memory_share_open(m, MEMORY_WORKSPACE, "forward codes");
    g->dy_codes = memory_share_open(m, MEMORY_WORKSPACE, "gradient codes");
    g->dy_twin = memory_share_open(m, MEMORY_WORKSPACE, "gradient codes, transposed");
    for (int s = 0; s < GEMM_SITE_COUNT; s++) {
        g->x_kept[s] = memory_share_open(m, MEMORY_WORKSPACE, "recomputed");
        g->x_twin[s] = memory_share_open(m, MEMORY_WORKSPACE, "recomputed");
    }
    g->qkv = memory_share_open(m, MEMORY_WORKSPACE, "recomputed");
    g->qkv_raw = memory_share_open(m, MEMORY_WORKSPACE, "recomputed");
    g->qkv_codes = memory_share_open(m, MEMORY_WORKSPACE, "recomputed");
    g->d_o_codes = memory_share_open(m, MEMORY_WORKSPACE, "gradient codes");
    g->x_mid = memory_share_open(m, MEMORY_WORKSPACE, "recomputed");
    g->gate_up = memory_share_open(m, MEMORY_WORKSPACE, "recomputed");
    for (int i = 0; i < 2; i++)
        g->x[i] = memory_share_open(m, MEMORY_WORKSPACE, "residual stream");
}

static void reserve_act(struct tensor *x, struct memory *m, enum memory_arena arena,
                        const char *item, enum dtype dtype, int64_t rows, int64_t cols) {
    *x = tensor_2d(NULL, dtype, rows, cols);
    memory_reserve(m, arena, item, tensor_count(x) * dtype_bytes(dtype), &x->data);
}

/* Kept for each layer; with `again`, one shared buffer, because backward recomputes it. */
static void keep(struct tensor *x, struct memory *m, bool again, int shared, const char *item,
                 enum dtype dtype, int64_t rows, int64_t cols) {
    *x = tensor_2d(NULL, dtype, rows, cols);
    int64_t bytes = tensor_count(x) * dtype_bytes(dtype);
    if (again) memory_share(m, shared, 0, bytes, &x->data);
    else memory_reserve(m, MEMORY_ACTIVATIONS, item, bytes, &x->data);
}

static void layout_norm(struct norm *n, struct memory *m, enum norm_kind kind, int64_t rows) {
    n->rstd = tensor_1d(NULL, DTYPE_F32, rows);
    memory_reserve(m, MEMORY_ACTIVATIONS, "norm statistics", 4 * rows, &n->rstd.data);
    if (kind == NORM_RMS) return;
    n->mean = n->rstd;
    memory_reserve(m, MEMORY_ACTIVATIONS, "norm statistics", 4 * rows, &n->mean.data);
}

/* The input of one linear layer: codes for fprop, the twin or the value for wgrad. */
static void layout_x(struct transformer *t, struct memory *m, const struct regions *g, int64_t l,
                     int site) {
    static const char *const ITEM[GEMM_SITE_COUNT] = { "norm1 output", "attention output",
                                                       "norm2 output", "ffn activation" };
    struct linear *lin = &t->layer[l].linear[site];
    const struct gemm_spec *spec = &lin->spec;
    enum recompute_kind kind = transformer_recompute(t, l);
    bool again = kind == RECOMPUTE_BLOCK ||
                 (kind == RECOMPUTE_FFN && (site == GEMM_FFN_IN || site == GEMM_FFN_OUT));
    bool wgrad = l >= t->lowest && !lin->weight->frozen; /* else only fprop reads it */
    if (!wgrad && (site != GEMM_ATTN_OUT || l < t->lowest)) again = true;
    /* attention_bwd reads attention's output */
    bool output = site == GEMM_ATTN_OUT, o_codes = output && t->layer[l].attention.spec.o_codes;
    struct operand_use use = { .value = !spec->wgrad_fp8 || (output && !o_codes),
                               .codes = spec->fprop_fp8, .twin = spec->wgrad_fp8 };
    if (t->forward_only)
        use = (struct operand_use){ .value = !spec->fprop_fp8, .codes = spec->fprop_fp8 };
    struct operand_place place = { .value_arena = MEMORY_ACTIVATIONS,
                                   .code_arena = MEMORY_ACTIVATIONS, .item = ITEM[site],
                                   .value = PLACE_OWN, .codes = g->x_codes, .twin = PLACE_OWN };
    use.twin = use.twin && wgrad;
    if (o_codes) place.codes = PLACE_OWN;
    if (again) {
        if (o_codes) place.codes = g->x_kept[site];
        else place.value = g->x_kept[site];
        place.twin = g->x_twin[site];
    }
    if (!use.value) place.value = g->staging;
    if (spec->fp8 && (!spec->fprop_fp8 || spec->options->forward_bf16_after > 0))
        use.value = true; /* for fprop */
    int64_t k = gemm_site_size(&t->config, (enum gemm_site)site).inputs;
    int slot = slots_add(t->slots, SLOT_FORWARD, &spec->x, spec->options, t->rows * k,
                         "layers.%lld.%s.x", (long long)l, GEMM_SITE_NAMES[site]);
    operand_layout(&lin->x, m, &spec->x, use, place, t->act, t->rows, k, NULL, slot);
}

static void layout_dy(struct transformer *t, struct memory *m, const struct regions *g, int64_t l,
                      int site) {
    struct layer *layer = &t->layer[l];
    struct linear *lin = &layer->linear[site];
    const struct gemm_spec *spec = &lin->spec;
    bool residual = site == GEMM_ATTN_OUT || site == GEMM_FFN_OUT;
    const struct tensor *value = residual           ? &t->d_x
                                 : site == GEMM_QKV ? &t->d_qkv
                                 : t->d_gate_up.dim[0] ? &t->d_gate_up
                                                       : &layer->gate_up;
    struct operand_use use = { .value = !spec->dgrad_fp8 || !spec->wgrad_fp8 || residual,
                               .codes = spec->dgrad_fp8, .twin = spec->wgrad_fp8 };
    struct operand_place place = { .value_arena = MEMORY_WORKSPACE,
                                   .code_arena = MEMORY_WORKSPACE, .item = "gradient codes",
                                   .value = PLACE_OWN, .codes = g->dy_codes, .twin = g->dy_twin };
    int64_t n = gemm_site_size(&t->config, (enum gemm_site)site).outputs;
    int slot = slots_add(t->slots, SLOT_BACKWARD, &spec->dy, spec->options, t->rows * n,
                         "layers.%lld.%s.dy", (long long)l, GEMM_SITE_NAMES[site]);
    operand_layout(&lin->dy, m, &spec->dy, use, place, t->act, t->rows, n, value, slot);
}

/* The codes of qkv are kept instead of its value. Slot p counts the pairs that a window or a
 * document may hide, too. */
static void layout_attention(struct transformer *t, struct memory *m, const struct regions *g,
                             int64_t l, bool again) {
    struct attention_state *a = &t->layer[l].attention;
    const struct attention_spec *spec = &a->spec;
    const struct model_config *c = &t->config;
    int64_t W = model_qkv_width(c), pairs = t->batch * c->heads * c->seq_len * (c->seq_len + 1) / 2;
    struct operand_place place = { .code_arena = MEMORY_ACTIVATIONS, .item = "qkv codes",
                                   .codes = again ? g->qkv_codes : PLACE_OWN };
    if (!spec->fp8) return;
    int slot = slots_add(t->slots, SLOT_FORWARD, &spec->qkv, spec->options, t->rows * W,
                         "layers.%lld.attention.qkv", (long long)l);
    operand_layout(&a->qkv, m, &spec->qkv, (struct operand_use){ .value = true, .codes = true },
                   place, t->act, t->rows, W, &t->layer[l].qkv, slot);
    a->slot_p = slots_add(t->slots, SLOT_FORWARD, &spec->p, spec->inner, pairs,
                          "layers.%lld.attention.p", (long long)l);
}

static void layout_attention_dy(struct transformer *t, struct memory *m, const struct regions *g,
                                int64_t l) {
    struct attention_state *a = &t->layer[l].attention;
    const struct attention_spec *spec = &a->spec;
    const struct model_config *c = &t->config;
    int64_t HD = c->heads * c->head_dim, T = c->seq_len;
    struct operand_place place = { .code_arena = MEMORY_WORKSPACE, .codes = g->d_o_codes };
    if (!spec->fp8) return;
    int slot = slots_add(t->slots, SLOT_BACKWARD, &spec->d_o, spec->options, t->rows * HD,
                         "layers.%lld.attention.do", (long long)l);
    operand_layout(&a->d_o, m, &spec->d_o, (struct operand_use){ .value = true, .codes = true },
                   place, t->act, t->rows, HD, &t->d_o, slot);
    a->slot_ds = slots_add(t->slots, SLOT_BACKWARD, &spec->ds, spec->inner,
                           t->batch * c->heads * T * (T + 1) / 2, "layers.%lld.attention.ds",
                           (long long)l);
}

static void layout_layer(struct transformer *t, struct memory *m, const struct regions *g,
                         int64_t l) {
    const struct model_config *c = &t->config;
    struct layer *layer = &t->layer[l];
    int64_t R = t->rows, W = model_qkv_width(c);
    /* Layers below the lowest trained one have no backward, and share like recomputed ones. */
    enum recompute_kind kind = transformer_recompute(t, l);
    bool block = kind == RECOMPUTE_BLOCK || l < t->lowest;
    bool ffn = block || kind == RECOMPUTE_FFN;
    layout_norm(&layer->norm1, m, c->norm, R);
    keep(&layer->qkv, m, block || layer->attention.spec.fp8, g->qkv, "qkv", t->act, R, W);
    if (c->qk_norm) {
        keep(&layer->qkv_raw, m, block, g->qkv_raw, "qkv before QK-norm", t->act, R, W);
        reserve_act(&layer->rstd_qk, m, MEMORY_ACTIVATIONS, "norm statistics", DTYPE_F32, R,
                    c->heads + c->kv_heads);
    }
    reserve_act(&layer->lse, m, MEMORY_ACTIVATIONS, "softmax statistics", DTYPE_F32, R, c->heads);
    keep(&layer->x_mid, m, block, g->x_mid, "residual stream", t->act, R, c->width);
    layout_norm(&layer->norm2, m, c->norm, R);
    keep(&layer->gate_up, m, ffn, g->gate_up, "ffn input", t->act, R, model_ffn_in_width(c));
    for (int s = 0; s < GEMM_SITE_COUNT; s++) {
        layout_x(t, m, g, l, s);
        if (s == GEMM_QKV) layout_attention(t, m, g, l, block);
    }
}

/* One slot per chunk if a chunk's scale comes from its own amax; otherwise one slot for all. */
static int chunk_slot(struct transformer *t, enum slot_region region,
                      const struct operand_spec *spec, int64_t i, int first, int64_t cols,
                      const char *suffix) {
    bool own = spec->kind != SCALE_NONE && spec->source == SCALE_SOURCE_AMAX && t->chunk_count > 1;
    const struct recipe_options *o = t->head.spec.options;
    if (own)
        return slots_add(t->slots, region, spec, o, t->chunk[i].rows * cols, "head.%lld.%s",
                         (long long)i, suffix);
    return i > 0 ? first : slots_add(t->slots, region, spec, o, t->rows * cols, "head.%s", suffix);
}

static void layout_head(struct transformer *t, struct memory *m) {
    const struct model_config *c = &t->config;
    const struct gemm_spec *spec = &t->head.spec;
    int64_t C = c->width, Vp = model_vocab_padded(c);
    struct operand_place place = {
        .value_arena = MEMORY_ACTIVATIONS, .code_arena = MEMORY_HEAD, .item = "head input",
        .value = PLACE_OWN, .codes = memory_share_open(m, MEMORY_HEAD, "chunk codes"),
        .twin = memory_share_open(m, MEMORY_HEAD, "chunk codes, transposed") };
    struct operand_use value = { .value = true };
    struct operand_use use = { .value = true, .codes = spec->fprop_fp8,
                               .twin = spec->wgrad_fp8 && !t->forward_only };
    int first = -1;
    for (int64_t i = 0; i < t->chunk_count; i++) {
        struct head_chunk *k = &t->chunk[i];
        k->first = i * t->chunk_rows;
        k->rows = i + 1 < t->chunk_count ? t->chunk_rows : t->rows - k->first;
        k->normed = tensor_2d(NULL, t->act, k->rows, C);
        k->logits = tensor_2d(NULL, t->act, k->rows, Vp);
        int slot = chunk_slot(t, SLOT_FORWARD, &spec->x, i, first, C, "x");
        if (i == 0) first = slot;
        operand_layout(&k->x, m, &spec->x, use, place, t->act, k->rows, C, &k->normed, slot);
    }
    layout_norm(&t->final_norm, m, c->norm, t->rows);
    operand_layout(&t->normed, m, NULL, value, place, t->act, t->rows, C, NULL,
                   spec->x.kind != SCALE_NONE ? -1 : first);
    reserve_act(&t->logits, m, MEMORY_HEAD, "logits", t->act, t->chunk_rows, Vp);
}

static void layout_head_dy(struct transformer *t, struct memory *m) {
    const struct gemm_spec *spec = &t->head.spec;
    int64_t Vp = model_vocab_padded(&t->config);
    struct operand_place place = {
        .value_arena = MEMORY_HEAD, .code_arena = MEMORY_HEAD, .item = "logits",
        .value = PLACE_OWN, .codes = memory_share_open(m, MEMORY_HEAD, "chunk gradient codes"),
        .twin = memory_share_open(m, MEMORY_HEAD, "chunk gradient codes") };
    struct operand_use use = { .value = !spec->dgrad_fp8 || !spec->wgrad_fp8,
                               .codes = spec->dgrad_fp8, .twin = spec->wgrad_fp8 };
    int first = -1;
    for (int64_t i = 0; i < t->chunk_count; i++) {
        struct head_chunk *k = &t->chunk[i];
        int slot = chunk_slot(t, SLOT_BACKWARD, &spec->dy, i, first, Vp, "dy");
        if (i == 0) first = slot;
        operand_layout(&k->dy, m, &spec->dy, use, place, t->act, k->rows, Vp, &k->logits, slot);
    }
}

static void layout_backward(struct transformer *t, struct memory *m) {
    const struct model_config *c = &t->config;
    int64_t R = t->rows, HD = c->heads * c->head_dim;
    reserve_act(&t->d_x, m, MEMORY_WORKSPACE, "d residual stream", t->act, R, c->width);
    reserve_act(&t->d_h, m, MEMORY_WORKSPACE, "d ffn activation", t->act, R, c->ffn);
    reserve_act(&t->d_normed, m, MEMORY_WORKSPACE, "d norm output", t->act, R, c->width);
    if (c->activation == ACTIVATION_GELU)
        reserve_act(&t->d_gate_up, m, MEMORY_WORKSPACE, "d ffn input", t->act, R, c->ffn);
    reserve_act(&t->d_o, m, MEMORY_WORKSPACE, "d attention output", t->act, R, HD);
    reserve_act(&t->d_qkv, m, MEMORY_WORKSPACE, "d qkv", t->act, R, model_qkv_width(c));
    reserve_act(&t->delta, m, MEMORY_WORKSPACE, "attention delta", DTYPE_F32, R, c->heads);
}

static bool rounds_gradients(const struct transformer *t) {
    bool rounds = t->head.spec.dy.stochastic;
    for (int64_t l = 0; l < t->config.layers; l++)
        for (int s = 0; s < GEMM_SITE_COUNT; s++)
            rounds = rounds || t->layer[l].linear[s].spec.dy.stochastic;
    return rounds && !t->forward_only;
}

static void layout_tokens(struct transformer *t, struct memory *m) {
    const struct model_config *c = &t->config;
    int64_t R = t->rows;
    t->tokens = t->targets = tensor_1d(NULL, DTYPE_I32, R);
    t->losses = tensor_1d(NULL, DTYPE_F32, R);
    memory_reserve(m, MEMORY_STATE, "tokens", 4 * R, &t->tokens.data);
    memory_reserve(m, MEMORY_STATE, "tokens", 4 * R, &t->targets.data);
    memory_reserve(m, MEMORY_STATE, "losses", 4 * R, &t->losses.data);
    t->right = tensor_1d(NULL, DTYPE_F32, R);
    if (t->accuracy) memory_reserve(m, MEMORY_STATE, "right tokens", 4 * R, &t->right.data);
    t->grad_scale = tensor_1d(NULL, DTYPE_F32, 1);
    memory_reserve(m, MEMORY_STATE, "scalars", 4, &t->grad_scale.data);
    t->sequence = tensor_1d(NULL, DTYPE_I32, 1);
    if (rounds_gradients(t)) memory_reserve(m, MEMORY_STATE, "scalars", 4, &t->sequence.data);
    if (c->positions == POSITION_ROPE)
        reserve_act(&t->rope, m, MEMORY_STATE, "rope table", DTYPE_F32, c->seq_len, c->head_dim);
    if (model_has_window(c) || t->documents.mask)
        reserve_act(&t->first_key, m, MEMORY_STATE, "first keys", DTYPE_I32, t->batch, c->seq_len);
    if (t->documents.restart)
        reserve_act(&t->positions, m, MEMORY_STATE, "positions", DTYPE_I32, t->batch, c->seq_len);
}

void transformer_layout(struct transformer *t, struct memory *m, struct slots *slots) {
    t->slots = slots;
    struct regions g;
    open_regions(&g, m);
    if (!t->forward_only) layout_backward(t, m);
    layout_tokens(t, m);
    for (int64_t l = 0; l <= t->config.layers; l++)
        keep(&t->x[l], m, t->forward_only, g.x[l % 2], "residual stream", t->act, t->rows,
             t->config.width);
    for (int64_t l = 0; l < t->config.layers; l++) layout_layer(t, m, &g, l);
    layout_head(t, m);
    t->slot_embed = -1;
    if (t->forward_only) return;
    layout_head_dy(t, m);
    for (int64_t l = t->config.layers; l-- > 0;)
        for (int s = GEMM_SITE_COUNT; s-- > 0;) {
            layout_dy(t, m, &g, l, s);
            if (s == GEMM_ATTN_OUT) layout_attention_dy(t, m, &g, l);
        }
    t->slot_embed = slots_add(slots, SLOT_BACKWARD, NULL, NULL, 0, "embed.dy");
}

/* ---- start ---- */

/* The angle per token of pair i, with Llama-3.1's scaling (model/config.h). */
static double rope_frequency(const struct rope_config *r, int64_t i, int64_t head_dim) {
    const double PI = 3.14159265358979323846;
    double f = exact_pow(r->theta, -2.0 * (double)i / (double)head_dim);
    if (r->factor == 0) return f;
    double wavelength = 2 * PI / f, length = (double)r->original_seq_len;
    if (wavelength < length / r->high_freq_factor) return f;
    if (wavelength > length / r->low_freq_factor) return f / r->factor;
    double smooth = (length / wavelength - r->low_freq_factor) /
                    (r->high_freq_factor - r->low_freq_factor);
    return (1 - smooth) * f / r->factor + smooth * f;
}

static enum status upload_rope(struct transformer *t, struct err *e) {
    int64_t T = t->config.seq_len, D = t->config.head_dim;
    if (t->b->ops->forgets) return OK;
    float *table = malloc((size_t)(T * D) * sizeof *table);
    if (!table) return FAIL(e, ERR_MEMORY, "no host memory for the RoPE table");
    for (int64_t i = 0; i < D / 2; i++) {
        double f = rope_frequency(&t->config.rope, i, D);
        for (int64_t p = 0; p < T; p++) {
            table[p * D + i] = (float)exact_cos((double)p * f);
            table[p * D + D / 2 + i] = (float)exact_sin((double)p * f);
        }
    }
    enum status st = t->b->ops->upload(t->b, LANE_COMPUTE, t->rope.data, table, T * D * 4, e);
    free(table);
    return st;
}

static struct tensor rows_of(const struct tensor *x, int64_t first, int64_t rows) {
    struct tensor v = *x;
    v.data = (char *)x->data + first * x->stride[0] * dtype_bytes(x->dtype);
    v.dim[0] = rows;
    return v;
}

/* Linear layer `id` of the model, whose rows begin with `row` of the micro-batch. */
static void bind_draws(struct transformer *t, struct operand *dy, int64_t id, int64_t row) {
    dy->draws = (struct round_draws){ .step = t->step, .sequence = &t->sequence,
                                      .sequence_rows = t->config.seq_len, .row = row,
                                      .seed = t->seed, .tensor = (uint32_t)id };
}

static void bind_chunk(struct transformer *t, struct head_chunk *k) {
    k->normed = rows_of(&t->normed.value, k->first, k->rows);
    if (!t->forward_only) k->d_normed = rows_of(&t->d_normed, k->first, k->rows);
    k->logits = rows_of(&t->logits, 0, k->rows);
    k->losses = rows_of(&t->losses, k->first, k->rows);
    if (t->accuracy) k->right = rows_of(&t->right, k->first, k->rows);
    k->targets = rows_of(&t->targets, k->first, k->rows);
    operand_bind(&k->x, t->slots);
    operand_bind(&k->dy, t->slots);
    bind_draws(t, &k->dy, t->config.layers * GEMM_SITE_COUNT, k->first);
}

enum status transformer_start(struct transformer *t, struct backend *b, struct slots *slots,
                              struct exchange *exchange, struct err *e) {
    t->b = b;
    t->slots = slots;
    t->exchange = exchange;
    for (int64_t l = 0; l < t->config.layers; l++)
        for (int s = 0; s < GEMM_SITE_COUNT; s++) {
            operand_bind(&t->layer[l].linear[s].x, slots);
            operand_bind(&t->layer[l].linear[s].dy, slots);
            bind_draws(t, &t->layer[l].linear[s].dy, l * GEMM_SITE_COUNT + s, 0);
        }
    for (int64_t l = 0; l < t->config.layers; l++) {
        struct attention_state *a = &t->layer[l].attention;
        if (a->spec.fp8) operand_bind(&a->qkv, slots);
        if (a->spec.fp8 && !t->forward_only) operand_bind(&a->d_o, slots);
    }
    operand_bind(&t->normed, slots);
    for (int64_t i = 0; i < t->chunk_count; i++) bind_chunk(t, &t->chunk[i]);
    if (t->rope.data) TRY(upload_rope(t, e));
    return t->first_key.data ? window_upload(b, &t->first_key, t->config.window, e) : OK;
}
