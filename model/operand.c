#include "model/operand.h"

#include <assert.h>

/* Scales of a tensor are one f32 in the slot. */
static int64_t bytes_with_scales(const struct tensor *t, int64_t codes) {
    if (t->scale.kind == SCALE_TENSOR) return codes;
    return round_up(round_up(codes, ARENA_ALIGN) + scale_bytes(&t->scale), ARENA_ALIGN);
}

int64_t operand_code_bytes(const struct operand *o) {
    return bytes_with_scales(&o->codes, tensor_code_bytes(&o->codes));
}

int64_t operand_twin_bytes(const struct operand *o) {
    return bytes_with_scales(&o->twin, o->shares ? 0 : tensor_code_bytes(&o->twin));
}

/* The codes of one direction, `bytes` of them, and their scales. Scales live as long as their
 * codes, so in a shared region they follow the codes. No bytes: the codes lie elsewhere. */
static void layout_codes(struct tensor *t, struct memory *m, const struct operand_place *place,
                         int shared, int64_t at, int64_t bytes) {
    int64_t scales = scale_bytes(&t->scale);
    if (bytes && shared == PLACE_OWN)
        memory_reserve(m, place->code_arena, place->item, bytes, &t->data);
    else if (bytes)
        memory_share(m, shared, at, bytes, &t->data);
    if (t->scale.kind == SCALE_TENSOR) return;
    if (shared == PLACE_OWN)
        memory_reserve(m, place->code_arena, "scales", scales, &t->scale.data);
    else
        memory_share(m, shared, at + round_up(bytes, ARENA_ALIGN), scales, &t->scale.data);
}

void operand_layout(struct operand *o, struct memory *m, const struct operand_spec *spec,
                    struct operand_use use, struct operand_place place, enum dtype act,
                    int64_t rows, int64_t k, const struct tensor *lender, int slot) {
    memset(o, 0, sizeof *o);
    o->fp8 = spec && spec->kind != SCALE_NONE && (use.codes || use.twin);
    o->lender = lender;
    o->slot = slot;
    o->keep_value = use.value || !o->fp8;
    o->value = tensor_2d(NULL, act, rows, k);
    int64_t bytes = rows * k * dtype_bytes(act);
    if (!lender && place.value == PLACE_OWN)
        memory_reserve(m, place.value_arena, place.item, bytes, &o->value.data);
    else if (!lender && place.value != PLACE_NONE)
        memory_share(m, place.value, place.value_at, bytes, &o->value.data);
    if (!o->fp8) return;
    o->spec = *spec;
    o->has_codes = use.codes;
    o->has_twin = use.twin;
    o->codes = tensor_fp8(NULL, spec->code, rows, k);
    o->codes.scale = scale_make(NULL, spec->kind, rows, k);
    o->twin = spec->untransposed ? tensor_fp8_untransposed(NULL, spec->code, k, rows)
                                 : tensor_fp8(NULL, spec->code, k, rows);
    o->twin.scale = scale_make(NULL, spec->kind, k, rows);
    o->shares = use.codes && use.twin && spec->untransposed && spec->kind == SCALE_32X32;
    int64_t twin = o->shares ? 0 : tensor_code_bytes(&o->twin);
    if (use.codes)
        layout_codes(&o->codes, m, &place, place.codes, place.codes_at,
                     tensor_code_bytes(&o->codes));
    if (use.twin) layout_codes(&o->twin, m, &place, place.twin, place.twin_at, twin);
}

void operand_bind(struct operand *o, const struct slots *slots) {
    if (o->lender) o->value.data = o->lender->data;
    if (!o->fp8) return;
    if (o->spec.kind == SCALE_TENSOR) {
        assert(o->slot >= 0);
        o->codes.scale.data = o->twin.scale.data = slots->slot[o->slot].factor;
    }
    if (o->shares) o->twin.data = o->codes.data;
    o->codes_only = o->codes;
    if (o->has_twin) o->codes.transposed = &o->twin;
}

struct sink operand_sink(struct operand *o, const struct slots *slots, enum pass pass) {
    struct sink s = sink_value(&o->value, NULL);
    s.keep_value = o->keep_value;
    struct slot *slot = o->slot >= 0 ? &slots->slot[o->slot] : NULL;
    if (slot) s.amax = pass == PASS_EVAL ? &slot->amax_eval : &slot->amax;
    if (!o->fp8 || (pass == PASS_EVAL && !o->has_codes)) return s;
    s.codes = pass == PASS_EVAL ? &o->codes_only : &o->codes;
    s.source = o->spec.source;
    s.rule = o->spec.rule;
    s.rotate = o->spec.rotate;
    s.draws = o->spec.stochastic ? &o->draws : NULL;
    if (slot && s.source == SCALE_SOURCE_KNOWN) s.multiplier = &slot->multiplier;
    if (slot && pass == PASS_TRAIN) s.stats = &slot->stats;
    bool comparable = o->has_codes || !o->spec.rotate; /* with the value, which is not rotated */
    if (slot && pass == PASS_TRAIN && slots->measures && comparable) {
        s.error = &slot->error;
        s.keep_value = true;
    }
    return s;
}

struct sink activation_sink(struct operand *o, const struct slots *slots, enum pass pass) {
    struct sink s = operand_sink(o, slots, pass);
    s.own_amax = true;
    if (slots->keeps && pass == PASS_TRAIN) s.keep_value = true;
    return s;
}

/* The codes that the counts of a sink are of: the transposed ones only if there are no others. */
enum status operand_error(struct backend *b, const struct sink *s, struct err *e) {
    if (!s->error) return OK;
    struct tensor x = tensor_2d(s->value->data, s->value->dtype, s->codes->dim[0],
                                s->codes->dim[1]);
    struct tensor transposed = tensor_transposed(&x);
    if (s->codes->data) return b->ops->quant_error(b, LANE_COMPUTE, s->error, &x, s->codes, e);
    return b->ops->quant_error(b, LANE_COMPUTE, s->error, &transposed, s->codes->transposed, e);
}

enum status operand_finish(struct backend *b, const struct sink *s, struct err *e) {
    TRY(b->ops->quantise_finish(b, LANE_COMPUTE, s, e));
    return operand_error(b, s, e);
}

enum status gemm_fprop(struct backend *b, const struct gemm_spec *spec, const struct tensor *y,
                       const struct operand *x, const struct operand *w, const struct tensor *bias,
                       const struct tensor *residual, struct err *e) {
    bool codes = spec->fprop_fp8 && !spec->late_bf16;
    struct matmul_args args = { .out = y, .bias = bias, .residual = residual,
                                .a = codes ? &x->codes : &x->value,
                                .b = codes ? &w->codes : &w->value,
                                .fast_accumulate = spec->fprop_fast, .name = spec->name,
                                .direction = GEMM_FPROP };
    return b->ops->matmul(b, LANE_COMPUTE, &args, e);
}

enum status gemm_dgrad(struct backend *b, const struct gemm_spec *spec, const struct tensor *dx,
                       const struct operand *dy, const struct operand *w, struct err *e) {
    struct tensor w_t = tensor_transposed(&w->value);
    struct matmul_args args = { .out = dx,
                                .a = spec->dgrad_fp8 ? &dy->codes : &dy->value,
                                .b = spec->dgrad_fp8 ? &w->twin : &w_t,
                                .fast_accumulate = spec->dgrad_fast, .name = spec->name,
                                .direction = GEMM_DGRAD };
    return b->ops->matmul(b, LANE_COMPUTE, &args, e);
}

enum status gemm_wgrad(struct backend *b, const struct gemm_spec *spec, const struct tensor *dw,
                       const struct operand *dy, const struct operand *x, float beta,
                       struct err *e) {
    struct tensor dy_t = tensor_transposed(&dy->value), x_t = tensor_transposed(&x->value);
    struct matmul_args args = { .out = dw, .beta = beta,
                                .a = spec->wgrad_fp8 ? &dy->twin : &dy_t,
                                .b = spec->wgrad_fp8 ? &x->twin : &x_t,
                                .fast_accumulate = spec->wgrad_fast, .name = spec->name,
                                .direction = GEMM_WGRAD };
    return b->ops->matmul(b, LANE_COMPUTE, &args, e);
}
