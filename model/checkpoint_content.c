#include "model/checkpoint_content.h"

#include <stdio.h>
#include <stdlib.h>

#include "model/ground/json_safe.h"

/* The tensor added last is sharded: `bytes` bytes for each `elements` elements of x->own. */
static void held(struct safetensors *s, const struct trainer *t, const struct param *p, void *data,
                 int64_t bytes, int64_t elements) {
    s->tensor[s->count - 1].held = holding_of(&t->params, p, data, bytes, elements);
}

enum status checkpoint_list_weights(const struct trainer *t, struct safetensors *s,
                                    struct err *e) {
    for (int i = 0; i < t->params.count; i++) {
        const struct param *p = &t->params.param[i];
        const struct tensor *x = &p->own_value;
        TRY(safetensors_add(s, x->dtype, p->rows, p->cols, NULL, e, "%s", p->name));
        held(s, t, p, x->data, dtype_bytes(x->dtype), 1);
    }
    return OK;
}

static enum status list_moment(const struct trainer *t, const struct param *p,
                               const struct tensor *x, const char *kind, struct safetensors *s,
                               struct err *e) {
    TRY(safetensors_add(s, x->dtype, p->rows, p->cols, NULL, e, "%s:%s", kind, p->name));
    held(s, t, p, x->data, dtype_bytes(x->dtype), 1);
    if (!dtype_is_fp8(x->dtype)) return OK;
    int64_t scales = ceil_div(param_count(p), 128);
    TRY(safetensors_add(s, DTYPE_F32, scales, 0, NULL, e, "%s.scale:%s", kind, p->name));
    held(s, t, p, x->scale.data, 4, 128);
    return OK;
}

enum status checkpoint_list_state(const struct trainer *t, struct safetensors *s, struct err *e) {
    s->partial = t->options.forward_only; /* which has the scales alone */
    for (int i = 0; i < t->params.count && !t->options.forward_only; i++) {
        const struct param *p = &t->params.param[i];
        if (p->frozen) continue;
        if (t->params.options.master) {
            TRY(safetensors_add(s, DTYPE_F32, p->rows, p->cols, NULL, e, "master:%s", p->name));
            held(s, t, p, p->master.data, 4, 1);
        }
        TRY(list_moment(t, p, &p->m, "m", s, e));
        TRY(list_moment(t, p, &p->v, "v", s, e));
    }
    for (int r = 0; r < t->slots.run_count; r++) {
        const struct slot_run *run = &t->slots.run[r];
        TRY(safetensors_add(s, DTYPE_F32, run->history.dim[0], run->count, run->history.data, e,
                            "fp8.%d.history", r));
        TRY(safetensors_add(s, DTYPE_F32, run->count, 0, run->multiplier.data, e,
                            "fp8.%d.multiplier", r));
    }
    return OK;
}

enum status checkpoint_recipe_sha256(const struct recipe *r, char hex[65], struct err *e) {
    struct sha256 *sha = NULL;
    char line[160];
    TRY(sha256_create(&sha, e));
    for (int64_t i = 0; i <= r->layers * GEMM_SITE_COUNT; i++) {
        const struct recipe_options *o = i ? &r->site[i - 1] : &r->head;
        int n = snprintf(line, sizeof line, "%d %d %d %d %d %d %d %d %d %d %d %d\n", o->kind,
                         o->format, o->constants, o->pow2, o->margin, o->history, o->algo, o->roll,
                         o->wgrad_bf16, o->weight_2d, o->param_gather,
                         o->fprop_fast | o->dgrad_fast << 1 | o->wgrad_fast << 2);
        sha256_add(sha, line, (size_t)n);
        if (o->fprop_bf16 || o->dgrad_bf16) { /* older checkpoints have none */
            n = snprintf(line, sizeof line, "bf16 %d %d\n", o->fprop_bf16, o->dgrad_bf16);
            sha256_add(sha, line, (size_t)n);
        }
        if (o->kind != RECIPE_NVFP4) continue; /* the others have none of these */
        n = snprintf(line, sizeof line, "%d %d %lld\n", o->hadamard, o->stochastic,
                     (long long)o->forward_bf16_after);
        sha256_add(sha, line, (size_t)n);
    }
    if (r->attention_fp8) sha256_add(sha, "attention fp8\n", 14);
    sha256_finish(sha, hex);
    sha256_destroy(sha);
    return OK;
}

/* null with learned positions; owned by the caller. */
static json_t *rope_meaning(const struct model_config *c) {
    const struct rope_config *r = &c->rope;
    if (c->positions != POSITION_ROPE) return json_null();
    if (r->factor == 0) return json_pack("{sf}", "theta", r->theta);
    return json_pack("{sf sf sf sf sI}", "theta", r->theta, "factor", r->factor, "low_freq_factor",
                     r->low_freq_factor, "high_freq_factor", r->high_freq_factor,
                     "original_seq_len", (json_int_t)r->original_seq_len);
}

/* The names of frozen parameters, which have no state; NULL: there are none. Owned by the
 * caller. */
static json_t *frozen_names(const struct trainer *t, bool *failed) {
    json_t *names = NULL;
    for (int i = 0; i < t->params.count; i++) {
        if (!t->params.param[i].frozen) continue;
        if (!names) names = json_array();
        json_append(names, json_string(t->params.param[i].name), failed);
    }
    return names;
}

json_t *checkpoint_meaning(const struct trainer *t, const char *recipe) {
    static const char *const STATE[] = { "f32", "bf16", "8bit" };
    const struct model_config *c = &t->model;
    json_t *all = json_pack("{sI sI sI sI sI sI sI sI sb sb sb ss ss sf so sI ss ss sb}",
                            "vocab", (json_int_t)c->vocab, "seq_len", (json_int_t)c->seq_len,
                            "layers", (json_int_t)c->layers, "width", (json_int_t)c->width,
                            "heads", (json_int_t)c->heads, "kv_heads", (json_int_t)c->kv_heads,
                            "head_dim", (json_int_t)c->head_dim, "ffn", (json_int_t)c->ffn,
                            "tied", c->tied, "bias", c->bias, "qk_norm", c->qk_norm,
                            "norm", c->norm == NORM_RMS ? "rmsnorm" : "layernorm",
                            "activation", c->activation == ACTIVATION_SWIGLU ? "swiglu" : "gelu",
                            "norm_eps", c->norm_eps, "rope", rope_meaning(c),
                            "seed", (json_int_t)t->options.seed, "recipe_sha256", recipe,
                            "optimizer_state", STATE[t->options.optimizer.state],
                            "master", t->params.options.master);
    /* Without these there is no key, as in checkpoints from before there were windows. */
    bool failed = false;
    if (c->window) json_put(all, "window", json_integer(c->window), &failed);
    if (c->qkv_bias) json_put(all, "qkv_bias", json_true(), &failed);
    json_t *frozen = frozen_names(t, &failed);
    if (frozen) json_put(all, "frozen", frozen, &failed);
    return json_whole(all, failed);
}

enum status checkpoint_begin_file(const struct trainer *t, const char *dir, const char *name,
                                  checkpoint_lister list, char path[CHECKPOINT_PATH_CAP],
                                  struct safetensors *s, struct err *e) {
    enum status st = checkpoint_join(path, dir, name, e);
    if (st == OK) st = list(t, s, e);
    return pieces_agree(&t->pieces, st, name, e);
}
