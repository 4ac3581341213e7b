/* Backward against forward: directional derivatives from gradients and from finite differences of
 * the loss, in the f32 recipe, for every architecture option. */
#include <math.h>
#include <stdlib.h>

#include "kernels/rng.h"
#include "model/trainer.h"
#include "tests/support/must.h"
#include "tests/support/tiny.h"

/* Forward, and backward if asked, of the batch in the buffers. Returns the mean loss in double. */
static double loss_of(struct tiny_run *r, bool gradients) {
    struct trainer *t = r->trainer;
    struct transformer *tf = &t->transformer;
    MUST(slots_begin_micro(&t->slots, t->backend, true, E));
    t->exchange.first = true;
    MUST(reduce_begin(&t->exchange, E));
    MUST(transformer_forward(tf, PASS_TRAIN, E));
    MUST(transformer_head(tf, PASS_TRAIN, true, E));
    if (gradients) MUST(transformer_backward(tf, true, E));
    float losses[4096];
    assert_true(tf->rows <= 4096);
    MUST(t->backend->ops->download(t->backend, LANE_COMPUTE, losses, tf->losses.data, 4 * tf->rows,
                                   E));
    double total = 0;
    for (int64_t i = 0; i < tf->rows; i++) total += (double)losses[i];
    return total / (double)tf->rows;
}

static void put(struct tiny_run *r, void *data, const void *host, int64_t bytes) {
    MUST(r->backend->ops->upload(r->backend, LANE_COMPUTE, data, host, bytes, E));
}

static void load_batch(struct tiny_run *r) {
    struct transformer *tf = &r->trainer->transformer;
    int32_t tokens[4096], targets[4096];
    MUST(data_batch(r->data, SPLIT_TRAIN, 0, tf->batch, tokens, targets, NULL, E));
    put(r, tf->tokens.data, tokens, 4 * tf->rows);
    put(r, tf->targets.data, targets, 4 * tf->rows);
    float one = (float)(1.0 / (double)tf->rows);
    put(r, tf->grad_scale.data, &one, 4);
}

/* A unit vector, half the gradient's direction and half random, so that the loss changes along
 * it. */
static double *direction(const float *gradient, int64_t n, uint64_t key) {
    double *d = malloc((size_t)n * sizeof *d), norm = 0, length = 0, total = 0;
    for (int64_t i = 0; i < n; i++) norm += (double)gradient[i] * gradient[i];
    for (int64_t i = 0; i < n; i++) {
        d[i] = (double)rng_uniform(rng_bits(key, (uint64_t)i)) - 0.5;
        length += d[i] * d[i];
    }
    for (int64_t i = 0; i < n; i++) {
        d[i] = d[i] / sqrt(length) + (norm > 0 ? gradient[i] / sqrt(norm) : 0);
        total += d[i] * d[i];
    }
    for (int64_t i = 0; i < n; i++) d[i] /= sqrt(total);
    return d;
}

/* The loss with the parameter moved by `by` along d. */
static double moved(struct tiny_run *r, const struct param *p, const float *w, const double *d,
                    double by) {
    int64_t n = param_count(p);
    float *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(w[i] + by * d[i]);
    put(r, p->weight.value.data, x, 4 * n);
    free(x);
    return loss_of(r, false);
}

/* The relative difference of the two derivatives of one parameter. A five-point formula: its error
 * is of fourth order in the step. */
static double check_param(struct tiny_run *r, const struct param *p, uint64_t key) {
    int64_t n = param_count(p);
    float *w = malloc((size_t)n * sizeof *w), *g = malloc((size_t)n * sizeof *g);
    struct backend *b = r->backend;
    MUST(b->ops->download(b, LANE_COMPUTE, w, p->weight.value.data, 4 * n, E));
    loss_of(r, true);
    MUST(b->ops->download(b, LANE_COMPUTE, g, p->grad.data, 4 * n, E));
    double *d = direction(g, n, key), expected = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        expected += d[i] * (double)g[i];
        size += (double)w[i] * w[i];
    }
    double h = fmin(0.02 / fabs(expected), 0.03 * sqrt(size) + 0.02);
    double near = moved(r, p, w, d, h) - moved(r, p, w, d, -h);
    double far = moved(r, p, w, d, 2 * h) - moved(r, p, w, d, -2 * h);
    double found = (8 * near - far) / (12 * h);
    put(r, p->weight.value.data, w, 4 * n);
    free(w);
    free(g);
    free(d);
    return fabs(found - expected) / fabs(expected);
}

struct gradient_case {
    const char *name;
    enum norm_kind norm;
    enum activation_kind activation;
    enum position_kind positions;
    int64_t vocab, width, heads, kv_heads, head_dim, ffn, seq_len, head_chunk;
    bool qk_norm, bias, tied;
    double rope_factor;
    enum recompute_kind recompute;
    int64_t window;
    bool qkv_bias;
};

#define RMS NORM_RMS, ACTIVATION_SWIGLU, POSITION_ROPE
static const struct gradient_case CASES[] = {
    /* name, norm, activation, positions, V, C, H, G, D, F, T, chunk, qk_norm, bias, tied, factor,
     * recompute, window, qkv_bias */
    { "llama", RMS, 96, 48, 4, 2, 12, 80, 16, 0, false, false, false, 0, RECOMPUTE_NONE, 0, false },
    { "llama 3.1 rope", RMS, 96, 48, 4, 1, 12, 80, 16, 0, false, false, false, 8, RECOMPUTE_NONE,
      0, false },
    { "multi-head", RMS, 96, 48, 4, 4, 12, 80, 16, 0, false, false, false, 0, RECOMPUTE_NONE, 0,
      false },
    { "QK-norm", RMS, 96, 48, 4, 2, 12, 80, 16, 0, true, false, false, 0, RECOMPUTE_NONE, 0,
      false },
    { "biases", RMS, 96, 48, 4, 2, 12, 80, 16, 0, true, true, false, 0, RECOMPUTE_NONE, 0, false },
    { "tied", RMS, 96, 48, 4, 2, 12, 80, 16, 0, false, false, true, 0, RECOMPUTE_NONE, 0, false },
    { "layernorm", NORM_LAYER, ACTIVATION_SWIGLU, POSITION_ROPE, 96, 48, 4, 2, 12, 80, 16, 0,
      false, false, false, 0, RECOMPUTE_NONE, 0, false },
    { "layernorm, bias", NORM_LAYER, ACTIVATION_SWIGLU, POSITION_ROPE, 96, 48, 4, 2, 12, 80, 16, 0,
      false, true, false, 0, RECOMPUTE_NONE, 0, false },
    { "gelu", NORM_RMS, ACTIVATION_GELU, POSITION_ROPE, 96, 48, 4, 2, 12, 80, 16, 0, false, false,
      false, 0, RECOMPUTE_NONE, 0, false },
    { "learned positions", NORM_RMS, ACTIVATION_SWIGLU, POSITION_LEARNED, 96, 48, 4, 2, 12, 80, 16,
      0, false, false, false, 0, RECOMPUTE_NONE, 0, false },
    { "QK-norm, no rope", NORM_RMS, ACTIVATION_SWIGLU, POSITION_LEARNED, 96, 48, 4, 2, 12, 80, 16,
      0, true, false, false, 0, RECOMPUTE_NONE, 0, false },
    { "gpt-2", NORM_LAYER, ACTIVATION_GELU, POSITION_LEARNED, 131, 40, 2, 2, 20, 96, 15, 16, false,
      true, true, 0, RECOMPUTE_NONE, 0, false },
    { "gpt-2, block", NORM_LAYER, ACTIVATION_GELU, POSITION_LEARNED, 131, 40, 2, 2, 20, 96, 15, 16,
      false, true, true, 0, RECOMPUTE_BLOCK, 0, false },
    { "odd sizes", RMS, 77, 35, 5, 5, 6, 37, 11, 16, true, true, false, 0, RECOMPUTE_FFN, 0,
      false },
    { "one head of one token", RMS, 50, 16, 1, 1, 8, 24, 1, 0, false, false, false, 0,
      RECOMPUTE_BLOCK, 0, false },
    { "window", RMS, 96, 48, 4, 2, 12, 80, 16, 0, false, false, false, 0, RECOMPUTE_NONE, 5,
      false },
    { "window, block", NORM_LAYER, ACTIVATION_GELU, POSITION_LEARNED, 131, 40, 2, 2, 20, 96, 15, 16,
      false, true, true, 0, RECOMPUTE_BLOCK, 1, false },
    { "biases of q, k, v", RMS, 96, 48, 4, 2, 12, 80, 16, 0, false, false, false, 0, RECOMPUTE_NONE,
      0, true },
    { "the same, block", RMS, 96, 48, 4, 2, 12, 80, 16, 0, false, false, true, 0, RECOMPUTE_BLOCK,
      0, true },
};

static void open_case(struct tiny_run *r, const struct gradient_case *c) {
    tiny_run_init(r, RECIPE_F32, 10);
    struct model_config model = {
        .vocab = c->vocab, .seq_len = c->seq_len, .layers = 2, .width = c->width, .heads = c->heads,
        .kv_heads = c->kv_heads, .head_dim = c->head_dim, .ffn = c->ffn, .norm = c->norm,
        .activation = c->activation, .positions = c->positions, .norm_eps = 1e-5, .init_std = 0.15,
        .qk_norm = c->qk_norm, .bias = c->bias, .qkv_bias = c->qkv_bias, .tied = c->tied,
        .window = c->window,
        .rope = { .theta = 500, .factor = c->rope_factor, .low_freq_factor = 1,
                  .high_freq_factor = 4, .original_seq_len = 8 },
    };
    r->model = model;
    r->train.recompute = c->recompute;
    r->train.head_chunk = c->head_chunk;
    MUST(tiny_run_open(r, E));
    load_batch(r);
}

static void gradients_agree(void **state) {
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct tiny_run r;
        open_case(&r, &CASES[i]);
        double worst = 0;
        const char *where = "";
        for (int k = 0; k < r.trainer->params.count; k++) {
            const struct param *p = &r.trainer->params.param[k];
            double difference = check_param(&r, p, (uint64_t)k + 1);
            if (difference > worst) { worst = difference; where = p->name; }
        }
        print_message("%-24s worst of %d parameters %.1e (%s)\n", CASES[i].name,
                      r.trainer->params.count, worst, where);
        assert_true(worst < 1e-3);
        tiny_run_close(&r);
    }
}

/* The losses [T] of one sequence of 24 tokens in a model of two layers; `first` replaces its first
 * token. */
static void losses_of(int64_t window, int32_t first, float losses[24]) {
    struct tiny_run r;
    struct gradient_case c = CASES[0];
    c.seq_len = 24;
    c.window = window;
    open_case(&r, &c);
    put(&r, r.trainer->transformer.tokens.data, &first, 4);
    loss_of(&r, false);
    MUST(r.backend->ops->download(r.backend, LANE_COMPUTE, losses,
                                  r.trainer->transformer.losses.data, 24 * 4, E));
    tiny_run_close(&r);
}

/* Two layers with a window of 4 see the last 7 tokens, 3 before each layer's own. */
static void a_window_hides_what_is_before_it(void **state) {
    float with[2][24], without[2][24], wide[24];
    for (int i = 0; i < 2; i++) {
        losses_of(4, 3 + i, with[i]);
        losses_of(0, 3 + i, without[i]);
    }
    for (int t = 0; t < 24; t++) {
        assert_int_equal(with[0][t] != with[1][t], t < 7);
        assert_true(without[0][t] != without[1][t]);
        assert_int_equal(with[0][t] != without[0][t], t >= 4);
    }
    losses_of(24, 3, wide); /* as long as the sequence: hides nothing */
    assert_memory_equal(wide, without[0], sizeof wide);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_agree), cmocka_unit_test(a_window_hides_what_is_before_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
