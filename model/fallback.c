#include "model/fallback.h"

#include <stdio.h>


/* A view of an operand without data, to ask the backend about. */
static struct tensor codes_of(const struct operand_spec *spec, bool twin, int64_t rows, int64_t k) {
    struct tensor x = twin && spec->untransposed
                          ? tensor_fp8_untransposed(NULL, spec->code, rows, k)
                          : tensor_fp8(NULL, spec->code, rows, k);
    x.scale = scale_make(NULL, spec->kind, rows, k);
    return x;
}

/* twins: of the operands, the last so many. */
static enum status ask(struct backend *b, const struct operand_spec *sa,
                       const struct operand_spec *sb, int twins, enum dtype out_dtype, int64_t m,
                       int64_t n, int64_t k, bool fast, bool *all, struct err *e) {
    struct tensor a = codes_of(sa, twins == 2, m, k), w = codes_of(sb, twins >= 1, n, k);
    struct tensor out = tensor_2d(NULL, out_dtype, m, n);
    struct matmul_args args = { .out = &out, .a = &a, .b = &w, .fast_accumulate = fast };
    bool native = false;
    TRY(b->ops->matmul_native(b, &args, &native, e));
    *all = *all && native;
    return OK;
}

/* One linear layer applied to `rows` rows. */
static enum status fall_back(struct recipe_options *site, struct backend *b, int64_t rows,
                             struct gemm_size size, enum dtype grad, struct err *e) {
    const int64_t in = size.inputs, out = size.outputs;
    struct gemm_spec s;
    bool native = true;
    gemm_spec_resolve(&s, site);
    if (!site->fall_back || !s.fp8) return OK;
    if (s.fprop_fp8)
        TRY(ask(b, &s.x, &s.w, 0, DTYPE_BF16, rows, out, in, s.fprop_fast, &native, e));
    if (s.dgrad_fp8)
        TRY(ask(b, &s.dy, &s.w_dgrad, 1, DTYPE_BF16, rows, in, out, s.dgrad_fast, &native, e));
    if (s.wgrad_fp8) TRY(ask(b, &s.dy, &s.x, 2, grad, out, in, rows, s.wgrad_fast, &native, e));
    if (native) return OK;
    site->kind = RECIPE_BF16;
    site->fell_back = true;
    return OK;
}

enum status recipe_fall_back(struct recipe *r, const struct model_config *c,
                             const struct train_options *o, struct backend *b, struct err *e) {
    int64_t rows = o->micro_batch * c->seq_len;
    struct head_rows head = model_head_rows(c->vocab, rows, o->head_chunk);
    for (int64_t l = 0; l < r->layers; l++)
        for (int s = 0; s < GEMM_SITE_COUNT; s++)
            TRY(fall_back(&r->site[l * GEMM_SITE_COUNT + s], b, rows,
                          gemm_site_size(c, (enum gemm_site)s), o->grad_dtype, e));
    const struct gemm_size size = { c->width, model_vocab_padded(c) };
    TRY(fall_back(&r->head, b, head.each, size, o->grad_dtype, e));
    return fall_back(&r->head, b, head.last, size, o->grad_dtype, e);
}

bool recipe_fell_back(const struct recipe *r, int64_t i, char name[64]) {
    for (int64_t at = 0; at < r->layers * GEMM_SITE_COUNT; at++) {
        if (!r->site[at].fell_back || i--) continue;
        snprintf(name, 64, "layers.%lld.%s", (long long)(at / GEMM_SITE_COUNT),
                 GEMM_SITE_NAMES[at % GEMM_SITE_COUNT]);
        return true;
    }
    snprintf(name, 64, "head");
    return r->head.fell_back && i == 0;
}
