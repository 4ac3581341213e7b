/* Device memory beside the arenas, computed without a device. This file lists the GEMMs and the
 * attention of a configuration. The backend says what it allocates for them (kernels/device.h). */
#include <stdlib.h>

#include "kernels/device.h"
#include "model/train.h"

/* The GEMMs of a step; at most GEMMS_EACH for each linear layer and number of rows. */
enum { GEMMS_EACH = 4 };
struct gemms { struct device_gemm *of; int64_t n; };

/* The three products of a linear layer with `rows` rows. `late`: dgrad and wgrad are first called
 * after attention's backward. `again`: wgrad is also called to add, late. */
static void add_linear(struct gemms *list, const struct gemm_spec *s, int64_t rows,
                       struct gemm_size of, int64_t grad_bytes, bool late, bool again) {
    const struct device_gemm fprop = {
        .m = rows, .n = of.outputs, .k = of.inputs, .out_bytes = 2, .fp8 = s->fprop_fp8,
        .a = s->x.kind, .b = s->w.kind,
    };
    const struct device_gemm dgrad = {
        .m = rows, .n = of.inputs, .k = of.outputs, .out_bytes = 2, .fp8 = s->dgrad_fp8,
        .a = s->dy.kind, .b = s->w_dgrad.kind, .twin_b = true,
        .late = late,
    };
    struct device_gemm wgrad = {
        .m = of.outputs, .n = of.inputs, .k = rows, .out_bytes = grad_bytes, .fp8 = s->wgrad_fp8,
        .a = s->dy.kind, .b = s->x.kind, .twin_a = true, .twin_b = true, .late = late,
    };
    list->of[list->n++] = fprop;
    list->of[list->n++] = dgrad;
    list->of[list->n++] = wgrad;
    wgrad.late = true;
    if (again) list->of[list->n++] = wgrad;
}

/* Whether two sites have products of the same kinds. */
static bool same_products(const struct recipe_options *a, const struct recipe_options *b) {
    return a->kind == b->kind && a->fprop_bf16 == b->fprop_bf16 &&
           a->dgrad_bf16 == b->dgrad_bf16 && a->wgrad_bf16 == b->wgrad_bf16;
}

static void add_layer(struct gemms *list, const struct model_config *c, const struct recipe *r,
                      const struct train_options *o, int64_t l, bool again) {
    for (int s = 0; s < GEMM_SITE_COUNT; s++) {
        struct gemm_spec spec;
        gemm_spec_resolve(&spec, recipe_at(r, l, (enum gemm_site)s));
        /* Backward begins with the last layer, whose attention comes before its qkv. */
        bool late = s == GEMM_QKV || l + 1 < c->layers;
        const struct recipe_options *last = recipe_at(r, c->layers - 1, (enum gemm_site)s);
        if (late && s != GEMM_QKV && same_products(last, recipe_at(r, l, (enum gemm_site)s)))
            late = false; /* called in the last layer already */
        int64_t fprop = list->n;
        add_linear(list, &spec, o->micro_batch * c->seq_len, gemm_site_size(c, (enum gemm_site)s),
                   dtype_bytes(o->grad_dtype), late, again);
        list->of[fprop].residual = s == GEMM_ATTN_OUT || s == GEMM_FFN_OUT;
    }
}

static void add_head(struct gemms *list, const struct model_config *c, const struct recipe *r,
                     const struct train_options *o) {
    struct gemm_spec spec;
    struct head_rows rows = model_head_rows(c->vocab, o->micro_batch * c->seq_len, o->head_chunk);
    const struct gemm_size head = { c->width, model_vocab_padded(c) };
    int64_t bytes = dtype_bytes(o->grad_dtype);
    gemm_spec_resolve(&spec, &r->head);
    add_linear(list, &spec, rows.each, head, bytes, false, false);
    add_linear(list, &spec, rows.last, head, bytes, false, false);
}

static enum status add_rows(struct plan *p, const struct device_item *item, int items,
                            struct err *e) {
    struct plan_row *rows = realloc(p->row, (size_t)(p->row_count + items) * sizeof *rows);
    if (!rows) return FAIL(e, ERR_MEMORY, "no host memory for the plan");
    p->row = rows;
    for (int i = 0; i < items; i++) {
        p->row[p->row_count++] = (struct plan_row){ "beside the arenas", item[i].name,
                                                    item[i].bytes, 1 };
        p->gpu_bytes += item[i].bytes;
    }
    return OK;
}

enum status plan_add_gpu(struct plan *p, const struct model_config *c, const struct recipe *r,
                         const struct train_options *o, int world, int cc, struct err *e) {
    int64_t most = (c->layers * GEMM_SITE_COUNT + 2) * GEMMS_EACH;
    struct gemms list = { .of = malloc((size_t)most * sizeof *list.of) };
    if (!list.of) return FAIL(e, ERR_MEMORY, "no host memory for the plan");
    bool again = o->global_batch > o->micro_batch * world;
    for (int64_t l = 0; l < c->layers; l++) add_layer(&list, c, r, o, l, again);
    add_head(&list, c, r, o);
    int64_t fp8 = 0;
    for (int64_t l = 0; l < c->layers; l++) {
        struct attention_spec spec;
        attention_spec_resolve(&spec, r, l);
        fp8 += spec.fp8;
    }
    const struct device_work work = {
        .gemm = list.of, .gemms = list.n,
        .attention = { o->micro_batch, c->seq_len, c->heads, c->kv_heads, c->head_dim },
        .attention_fp8 = fp8, .attention_bf16 = c->layers - fp8,
        /* Without rotation and QK-norm attention's backward writes the gradient of the GEMM. */
        .attention_sums = gemm_site_has_bias(c, GEMM_QKV) && c->positions == POSITION_LEARNED &&
                          !c->qk_norm,
        .tokens = o->micro_batch * c->seq_len,
        .world = world, .shard = p->shard_max, .shard_bytes = dtype_bytes(o->grad_dtype),
        .shard_codes = o->grad_codes,
    };
    struct device_item item[DEVICE_ITEMS_MAX];
    enum status st = add_rows(p, item, device_memory(cc, &work, item), e);
    free(list.of);
    return st;
}
