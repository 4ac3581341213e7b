#include "model/checkpoint_adopt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/dtype.h"
#include "kernels/quant.h"
#include "model/checkpoint_content.h"
#include "model/import.h"

enum { CHUNK = 1 << 20, BLOCK = 128 }; /* elements read at a time; those that share a factor */

/* ---- moments ---- */

/* A moment of one parameter, in the checkpoint and here. */
struct moment {
    const struct state_source *source;
    struct backend *b;
    const struct tensor *out;
    char name[96], scale_name[96];
    enum dtype type; /* in the checkpoint */
    bool is_square;  /* v: its codes are of the square root, and never 0 for a value above 0 */
    float *values, *scales; /* [CHUNK], [CHUNK / BLOCK]: borrowed */
};

/* E4M3 in both: the codes and factors as they are. */
static enum status copy_codes(const struct moment *m, int64_t at, int64_t n, struct err *e) {
    uint8_t *code = (uint8_t *)m->values;
    for (int64_t i = 0; i < n; i++) {
        float value = m->values[i];
        code[i] = e4m3_encode(value); /* one byte of the four that were read */
    }
    TRY(m->b->ops->upload(m->b, LANE_COMPUTE, (char *)m->out->data + at, code, n, e));
    return m->b->ops->upload(m->b, LANE_COMPUTE, (char *)m->out->scale.data + at / BLOCK * 4,
                             m->scales, ceil_div(n, BLOCK) * 4, e);
}

static void dequantise(const struct moment *m, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float value = m->values[i] * m->scales[i / BLOCK];
        m->values[i] = m->is_square ? value * value : value;
    }
}

/* Blocks of 8-bit state as adamw defines them (kernels/cpu/adamw.c), rounded to nearest. */
static void quantise(const struct moment *m, int64_t n) {
    static const struct quant_rule RULE = { QUANT_TE, 0.0f, false };
    for (int64_t i = 0; i < n; i++)
        if (m->is_square) m->values[i] = sqrtf(m->values[i]);
    for (int64_t block = 0; block < n; block += BLOCK) {
        int64_t end = n < block + BLOCK ? n : block + BLOCK;
        float amax = 0;
        for (int64_t i = block; i < end; i++) amax = fmaxf(amax, fabsf(m->values[i]));
        float by = quant_multiplier(&RULE, DTYPE_E4M3, amax, &m->scales[block / BLOCK]);
        for (int64_t i = block; i < end; i++) {
            float code = e4m3_decode(e4m3_encode(m->values[i] * by));
            bool lost = m->is_square && code == 0 && m->values[i] > 0;
            m->values[i] = lost ? e4m3_decode(1) : code;
        }
    }
}

static enum status put_values(const struct moment *m, int64_t at, int64_t n, struct err *e) {
    if (m->out->dtype == DTYPE_E4M3) {
        quantise(m, n);
        return copy_codes(m, at, n, e);
    }
    for (int64_t i = 0; i < n && m->is_square && m->out->dtype == DTYPE_BF16; i++)
        if (m->values[i] > 0 && bf16_encode(m->values[i]) == 0) m->values[i] = bf16_decode(1);
    return import_put(m->b, m->out, at, n, m->values, e);
}

/* Elements at .. at+n-1 of those that this rank updates; they begin at `first` in the parameter. */
static enum status adopt_chunk(const struct moment *m, int64_t first, int64_t at, int64_t n,
                               struct err *e) {
    const struct state_source *s = m->source;
    TRY(s->read(s->user, m->name, first + at, n, m->values, e));
    if (m->type == DTYPE_E4M3) {
        TRY(s->read(s->user, m->scale_name, (first + at) / BLOCK, ceil_div(n, BLOCK), m->scales,
                    e));
        if (m->out->dtype == DTYPE_E4M3) return copy_codes(m, at, n, e);
        dequantise(m, n);
    }
    return put_values(m, at, n, e);
}

static enum status adopt_moment(struct moment *m, const struct param *p, const char *kind,
                                struct err *e) {
    const struct state_source *s = m->source;
    enum dtype scale_type = DTYPE_F32;
    int64_t left = param_count(p) - p->own.first; /* padding stays 0 */
    int64_t count = left < p->own.count ? left : p->own.count;
    snprintf(m->name, sizeof m->name, "%s:%s", kind, p->name);
    snprintf(m->scale_name, sizeof m->scale_name, "%s.scale:%s", kind, p->name);
    TRY(s->find(s->user, m->name, param_count(p), &m->type, e));
    if (m->type == DTYPE_COUNT) return OK;
    if (m->type == DTYPE_E4M3)
        TRY(s->find(s->user, m->scale_name, ceil_div(param_count(p), BLOCK), &scale_type, e));
    if (scale_type != DTYPE_F32)
        return FAIL(e, ERR_CONFIG, "%s has no factors %s in F32", m->name, m->scale_name);
    for (int64_t at = 0; at < count; at += CHUNK)
        TRY(adopt_chunk(m, p->own.first, at, count - at < CHUNK ? count - at : CHUNK, e));
    return OK;
}

static enum status adopt_moments(struct trainer *t, const struct state_source *source,
                                 struct err *e) {
    struct moment m = { .source = source, .b = t->backend };
    enum status st = OK;
    m.values = malloc(CHUNK * sizeof *m.values);
    m.scales = malloc(CHUNK / BLOCK * sizeof *m.scales);
    if (!m.values || !m.scales) st = FAIL(e, ERR_MEMORY, "no host memory to read moments");
    for (int i = 0; st == OK && i < t->params.count; i++) {
        const struct param *p = &t->params.param[i];
        if (p->frozen) continue;
        m.out = &p->m;
        m.is_square = false;
        st = adopt_moment(&m, p, "m", e);
        m.out = &p->v;
        m.is_square = true;
        if (st == OK) st = adopt_moment(&m, p, "v", e);
    }
    free(m.values);
    free(m.scales);
    return st;
}

/* ---- FP8 state ---- */

static enum status adopt_array(struct trainer *t, const struct state_source *source,
                               const struct tensor *out, const char *name, struct err *e) {
    int64_t n = tensor_count(out);
    enum dtype type;
    TRY(source->find(source->user, name, n, &type, e));
    if (type != DTYPE_F32) return FAIL(e, ERR_CONFIG, "the checkpoint has no %s in F32", name);
    float *host = malloc((size_t)n * sizeof *host);
    if (!host) return FAIL(e, ERR_MEMORY, "no host memory for %s", name);
    enum status st = source->read(source->user, name, 0, n, host, e);
    if (st == OK)
        st = t->backend->ops->upload(t->backend, LANE_COMPUTE, out->data, host, 4 * n, e);
    free(host);
    return st;
}

static enum status adopt_scales(struct trainer *t, const struct state_source *source,
                                struct err *e) {
    for (int r = 0; r < t->slots.run_count; r++) {
        char name[64];
        snprintf(name, sizeof name, "fp8.%d.history", r);
        TRY(adopt_array(t, source, &t->slots.run[r].history, name, e));
        snprintf(name, sizeof name, "fp8.%d.multiplier", r);
        TRY(adopt_array(t, source, &t->slots.run[r].multiplier, name, e));
    }
    return slots_restore_factors(&t->slots, t->backend, e);
}

/* ---- the whole ---- */

static enum status read_state(struct trainer *t, const struct state_source *source, bool same,
                              struct err *e) {
    TRY(adopt_moments(t, source, e));
    return same ? adopt_scales(t, source, e) : OK;
}

enum status checkpoint_adopt(struct trainer *t, const struct state_source *source,
                             struct err *e) {
    char recipe[65];
    TRY(trainer_check_idle(t, e));
    if (t->step) return FAIL(e, ERR_STATE, "a state is read before the first step");
    if (!source->restart && source->step >= t->options.steps)
        return FAIL(e, ERR_CONFIG, "train.steps is %lld, and the state is of step %lld: no step is "
                    "left", (long long)t->options.steps, (long long)source->step);
    TRY(checkpoint_recipe_sha256(&t->recipe, recipe, e));
    bool same = strcmp(recipe, source->recipe_sha256) == 0;
    enum status st = read_state(t, source, same, e);
    st = pieces_agree(&t->pieces, st, "reading the optimizer's state", e);
    /* The import has left the weights' amax. */
    if (st == OK && !same) st = slots_roll_weights(&t->slots, t->backend, e);
    if (st == OK && t->slots.run_count) st = trainer_requantise(t, e);
    if (st != OK) {
        if (!t->failure) t->failure = IMPORT_IN_PART;
        return st;
    }
    t->step = source->restart ? 0 : source->step;
    t->cursor = t->step * t->options.global_batch;
    trainer_draw_from(t, t->cursor);
    t->updates_before = source->updates - t->step;
    return OK;
}
