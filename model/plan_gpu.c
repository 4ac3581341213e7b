/* GPU memory beside the arenas, computed without a GPU: the GEMMs and attention of a configuration,
 * and the scratch of the CUDA backend for each (kernels/scratch.h). tests/gpu/plan_peak.py compares
 * the result with nvidia-smi. */
#include <stdlib.h>

#include "kernels/scratch.h"
#include "model/operand.h"
#include "model/train.h"

/* A CUDA context with the machine code of this program, cuBLASLt and cuDNN, streams, graphs, and
 * the rounding of allocations. Measured: NVIDIA H200, driver 580.159, CUDA 13.0, cuBLASLt 13.1,
 * cuDNN 9.19: 532 MiB once open, 28 to 36 MiB more after the rehearsal of 8 to 32 layers. */
static const int64_t CONTEXT_BYTES = (int64_t)564 << 20;

/* A communicator of NCCL 2.28.9: buffers, machine code, and buffers for each peer. Measured per
 * rank over NVLink: 1,112 MiB with two H200, 2,138 MiB with four. */
static const int64_t NCCL_BYTES = (int64_t)600 << 20, NCCL_PEER_BYTES = (int64_t)512 << 20;

/* out [m,n] = a [m,k] . b [n,k]^T */
struct product {
    int64_t m, n, k, out_bytes; /* of one element of out */
    bool fp8;
    enum scale_kind a, b;
};

/* Bytes. Products that use a buffer in turn need the largest. */
struct need {
    int cc;
    int64_t factors[2];      /* scales in the library's layout */
    int64_t wide[2], result; /* emulated: operands in BF16, the product in f32 */
    int64_t trial[2];        /* timing: before, after attention's backward */
};

static void most(int64_t *x, int64_t y) {
    if (y > *x) *x = y;
}

/* One operand with `outer` rows. Scales of a tensor or a row need no copy. */
static int64_t factor_bytes(enum scale_kind kind, int64_t outer, int64_t k) {
    if (kind == SCALE_1X128) return 4 * round_up(outer, 4) * ceil_div(k, 128);
    if (kind == SCALE_128X128) return 4 * ceil_div(outer, 128) * round_up(ceil_div(k, 128), 4);
    return 0;
}

/* Algorithm candidates are timed on copies of the operands and the output. */
static void count(struct need *need, const struct product *p, bool late) {
    int64_t size = p->fp8 ? 1 : 2, out = p->out_bytes;
    if (p->fp8 && gemm_is_native(need->cc, p->a, p->b, p->m, p->n)) {
        most(&need->factors[0], factor_bytes(p->a, p->m, p->k));
        most(&need->factors[1], factor_bytes(p->b, p->n, p->k));
    } else if (p->fp8) {
        size = 2;
        most(&need->wide[0], 2 * p->m * round_up(p->k, 8));
        most(&need->wide[1], 2 * p->n * round_up(p->k, 8));
        if (scale_block(p->a) == 0) {
            out = 4; /* factors are applied to the f32 product */
            most(&need->result, 4 * p->m * p->n);
        }
    }
    most(&need->trial[late], size * (p->m * p->k + p->n * p->k) + out * p->m * p->n);
}

/* The three products of a linear layer with `rows` rows. `late`: dgrad and wgrad are timed after
 * attention's backward has allocated scratch. `again`: wgrad that adds is timed too, late. */
static void count_linear(struct need *need, const struct gemm_spec *s, int64_t rows,
                         struct gemm_size of, int64_t grad_bytes, bool late, bool again) {
    const int64_t inputs = of.inputs, outputs = of.outputs;
    struct product fprop = { rows, outputs, inputs, 2, s->fp8, s->x.kind, s->w.kind };
    struct product dgrad = { rows, inputs, outputs, 2, s->fp8, s->dy.kind,
                             s->split_weight ? s->w_dgrad.kind : s->w.kind };
    struct product wgrad = { outputs, inputs, rows, grad_bytes, s->wgrad_fp8, s->dy.kind,
                             s->x.kind };
    count(need, &fprop, false);
    count(need, &dgrad, late);
    count(need, &wgrad, late);
    if (again) count(need, &wgrad, true);
}

static void count_layer(struct need *need, const struct model_config *c, const struct recipe *r,
                        const struct train_options *o, int64_t l, bool again) {
    for (int s = 0; s < GEMM_SITE_COUNT; s++) {
        struct gemm_spec spec;
        gemm_spec_resolve(&spec, recipe_at(r, l, (enum gemm_site)s));
        /* Backward begins with the last layer, whose attention comes before its qkv. */
        bool late = s == GEMM_QKV || l + 1 < c->layers;
        const struct recipe_options *last = recipe_at(r, c->layers - 1, (enum gemm_site)s);
        if (late && s != GEMM_QKV && last->kind == recipe_at(r, l, (enum gemm_site)s)->kind)
            late = false; /* timed in the last layer already */
        count_linear(need, &spec, o->micro_batch * c->seq_len,
                     gemm_site_size(c, (enum gemm_site)s), dtype_bytes(o->grad_dtype), late, again);
    }
    /* If a row is not a multiple of 16 bytes, our kernel adds the residual, from f32. */
    if (c->width % 8) most(&need->result, 4 * o->micro_batch * c->seq_len * c->width);
}

static void count_head(struct need *need, const struct model_config *c, const struct recipe *r,
                       const struct train_options *o) {
    struct gemm_spec spec;
    struct head_rows rows = model_head_rows(c->vocab, o->micro_batch * c->seq_len, o->head_chunk);
    const struct gemm_size head = { c->width, model_vocab_padded(c) };
    int64_t bytes = dtype_bytes(o->grad_dtype);
    gemm_spec_resolve(&spec, &r->head);
    count_linear(need, &spec, rows.each, head, bytes, false, false);
    count_linear(need, &spec, rows.last, head, bytes, false, false);
}

static enum status add_row(struct plan *p, const char *item, int64_t bytes, struct err *e) {
    if (bytes == 0) return OK;
    struct plan_row *rows = realloc(p->row, (size_t)(p->row_count + 1) * sizeof *rows);
    if (!rows) return FAIL(e, ERR_MEMORY, "no host memory for the plan");
    p->row = rows;
    p->row[p->row_count++] = (struct plan_row){ "beside the arenas", item, bytes, 1 };
    p->gpu_bytes += bytes;
    return OK;
}

enum status plan_add_gpu(struct plan *p, const struct model_config *c, const struct recipe *r,
                         const struct train_options *o, int world, const struct plan_gpu *gpu,
                         struct err *e) {
    struct need need = { .cc = gpu->cc };
    int64_t rows = o->micro_batch * c->seq_len;
    bool again = o->global_batch > o->micro_batch * world;
    for (int64_t l = 0; l < c->layers; l++) count_layer(&need, c, r, o, l, again);
    count_head(&need, c, r, o);
    struct attention_size a = { o->micro_batch, c->seq_len, c->heads, c->kv_heads, c->head_dim };
    int64_t scores = attention_scratch_bytes(gpu->cc, &a);
    int64_t timing = need.trial[0] - scores;
    most(&timing, need.trial[1]);
    TRY(add_row(p, "context, modules, graphs", CONTEXT_BYTES, e));
    TRY(add_row(p, "GEMM workspace", GEMM_WORKSPACE_BYTES, e));
    TRY(add_row(p, "attention's backward", scores, e));
    if (scores > 0 && c->bias && c->positions == POSITION_LEARNED && !c->qk_norm)
        TRY(add_row(p, "sums of its columns", attention_partial_bytes(&a), e));
    TRY(add_row(p, "operands widened to BF16", need.wide[0] + need.wide[1] + need.result, e));
    TRY(add_row(p, "scales for cuBLASLt", need.factors[0] + need.factors[1], e));
    TRY(add_row(p, "tokens sorted", 32 * rows, e));
    int64_t terms = world * collective_stride(p->shard_max, world, dtype_bytes(o->grad_dtype));
    if (world > 1) TRY(add_row(p, "terms of a sum over ranks", terms, e));
    if (world > 1) TRY(add_row(p, "NCCL", NCCL_BYTES + (world - 1) * NCCL_PEER_BYTES, e));
    return add_row(p, "timing GEMMs, before step 0", timing, e);
}
