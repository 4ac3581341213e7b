/* The first update of a run, computed from its gradients: clipping, decay, initial weights. In the
 * f32 recipe, so that values are not rounded. */
#include <math.h>
#include <stdlib.h>

#include "model/trainer.h"
#include "tests/support/must.h"
#include "tests/support/tiny.h"

static float *fetch(struct tiny_run *r, const struct tensor *x, int64_t n) {
    float *host = malloc((size_t)n * sizeof *host);
    assert_non_null(host);
    MUST(r->backend->ops->download(r->backend, LANE_COMPUTE, host, x->data, 4 * n, E));
    return host;
}

static double sum_of_squares(struct tiny_run *r) {
    double sum = 0;
    for (int k = 0; k < r->trainer->params.count; k++) {
        const struct param *p = &r->trainer->params.param[k];
        float *g = fetch(r, &p->grad, param_count(p));
        for (int64_t i = 0; i < param_count(p); i++) sum += (double)g[i] * (double)g[i];
        free(g);
    }
    return sum;
}

/* With bias correction the first step is g / (|g| + eps): m = (1-beta1) g, v = (1-beta2) g^2. */
static void assert_updated(struct tiny_run *r, const struct param *p, const float *before,
                           double clip, double lr) {
    const struct optimizer_options *o = &r->train.optimizer;
    int64_t n = param_count(p);
    float *after = fetch(r, &p->weight.value, n), *m = fetch(r, &p->m, n);
    float *v = fetch(r, &p->v, n), *grad = fetch(r, &p->grad, n);
    double decay = p->cols ? o->weight_decay : 0; /* matrices only */
    for (int64_t i = 0; i < n; i++) {
        double g = (double)grad[i] * clip, w = (double)before[i];
        double wanted = w - lr * (g / (fabs(g) + o->eps) + decay * w);
        if (fabs((double)m[i] - (1 - o->beta1) * g) > 1e-6 * fabs(g) + 1e-30 ||
            fabs((double)v[i] - (1 - o->beta2) * g * g) > 1e-5 * g * g + 1e-30 ||
            fabs((double)after[i] - wanted) > 1e-6 * (lr + fabs(w)))
            fail_msg("%s[%lld]: g %g, m %g, v %g, w %g, wanted %g", p->name, (long long)i, g,
                     (double)m[i], (double)v[i], (double)after[i], wanted);
    }
    free(after); free(m); free(v); free(grad);
}

static void first_update_by_hand(void **state) {
    static const double CLIP[] = { 0, 0.25, 100 }; /* off, active, not reached */
    for (int c = 0; c < 3; c++) {
        struct tiny_run r;
        struct step_result s;
        tiny_run_init(&r, RECIPE_F32, 3);
        r.model.norm = NORM_LAYER;
        r.model.bias = true;
        r.train.optimizer.clip = CLIP[c];
        r.train.optimizer.weight_decay = 0.5;
        r.train.optimizer.eps = 1e-4; /* visible beside small gradients */
        r.train.schedule = (struct schedule_options){ .kind = SCHEDULE_CONSTANT };
        MUST(tiny_run_open(&r, E));
        struct params *p = &r.trainer->params;
        float *before[64];
        assert_true(p->count <= 64);
        for (int k = 0; k < p->count; k++)
            before[k] = fetch(&r, &p->param[k].weight.value, param_count(&p->param[k]));
        MUST(trainer_step(r.trainer, false, &s, E));
        double norm = sqrt(sum_of_squares(&r));
        assert_float_equal(s.grad_norm, norm, 1e-5 * norm);
        assert_true(norm > 0.25 && norm < 100);
        for (int k = 0; k < p->count; k++) {
            assert_updated(&r, &p->param[k], before[k], CLIP[c] == 0.25 ? 0.25 / norm : 1, 3e-3);
            free(before[k]);
        }
        tiny_run_close(&r);
    }
}

/* ---- state in host memory ---- */

/* Offload: the same state in host memory. */
static void offloaded_state_gives_the_same_bits(void **state) {
    char weights[2][65];
    int64_t bytes[2], pinned[2];
    for (int offload = 0; offload < 2; offload++) {
        struct tiny_run r;
        struct step_result s;
        struct plan plan;
        tiny_run_init(&r, RECIPE_TENSORWISE, 3);
        r.train.optimizer.offload = offload;
        MUST(trainer_plan(&plan, &r.model, &r.recipe, &r.train, 1, E));
        bytes[offload] = plan.bytes;
        pinned[offload] = plan.pinned_bytes;
        plan_free(&plan);
        MUST(tiny_run_open(&r, E));
        assert_int_equal(trainer_memory_bytes(r.trainer), bytes[offload]);
        for (int i = 0; i < 3; i++) MUST(trainer_step(r.trainer, false, &s, E));
        MUST(trainer_weights_sha256(r.trainer, weights[offload], E));
        tiny_run_close(&r);
    }
    assert_string_equal(weights[0], weights[1]);
    assert_true(pinned[0] == 0 && pinned[1] > 0 && bytes[0] == bytes[1] + pinned[1]);
}

/* ---- the arguments of AdamW, and memory that it must not change ---- */

static struct {
    const struct backend_ops *real;
    uint64_t seed;
    uint32_t next_id; /* ids are 0, 1, 2, ... in table order: no two share draws */
} watched; /* of this test program only */

static enum status watching_adamw(struct backend *b, int lane, const struct adamw_args *args,
                                  int64_t n, struct err *e) {
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(args[i].seed, watched.seed);
        assert_int_equal(args[i].tensor_id, watched.next_id++);
        assert_int_equal(args[i].element_base, 0);
    }
    return watched.real->adamw(b, lane, args, n, e);
}

static void assert_zero_behind(struct tiny_run *r, const struct param *p, const struct tensor *x) {
    unsigned char bytes[64 * 64 * 4];
    int64_t size = dtype_bytes(x->dtype), n = (param_count_padded(p) - param_count(p)) * size;
    assert_true(n > 0 && n <= (int64_t)sizeof bytes);
    MUST(r->backend->ops->download(r->backend, LANE_COMPUTE, bytes,
                                   (char *)x->data + param_count(p) * size, n, E));
    for (int64_t i = 0; i < n; i++)
        if (bytes[i])
            fail_msg("%s: byte %lld of the padding is %d", p->name, (long long)i, bytes[i]);
}

/* A vocabulary of 96 has 128 rows in memory. The padding is 0 at the start, after updates with
 * decay, rounding and 8-bit state, and in every copy. */
static void padding_stays_zero(void **state) {
    for (int tied = 0; tied < 2; tied++)
        for (int kind = STATE_F32; kind <= STATE_8BIT; kind++) {
            struct tiny_run r;
            struct step_result s;
            tiny_run_init(&r, RECIPE_TENSORWISE, 4);
            struct recipe_options o = tiny_recipe_options(RECIPE_TENSORWISE);
            r.recipe.head = o; /* an FP8 head: padding counts towards its amax */
            r.model.tied = tied;
            r.train.optimizer.state = (enum state_kind)kind;
            r.train.optimizer.master = kind != STATE_BF16;
            MUST(tiny_run_open(&r, E));
            struct backend_ops ops = *r.backend->ops;
            watched.real = r.backend->ops;
            watched.seed = r.train.seed;
            ops.adamw = watching_adamw;
            r.backend->ops = &ops;
            for (int i = 0; i <= 3; i++) {
                for (int k = 0; k < (tied ? 1 : 2); k++) {
                    const char *name = k ? "head.weight" : "embed.weight";
                    const struct param *p = params_find(&r.trainer->params, "%s", name);
                    assert_zero_behind(&r, p, &p->weight.value);
                    assert_zero_behind(&r, p, &p->m);
                    assert_zero_behind(&r, p, &p->v);
                    if (p->master.data) assert_zero_behind(&r, p, &p->master);
                }
                watched.next_id = 0;
                if (i < 3) MUST(trainer_step(r.trainer, false, &s, E));
            }
            r.backend->ops = watched.real;
            tiny_run_close(&r);
        }
}

/* Weights that write to the residual stream start smaller by sqrt(2L), as in GPT-2; gains are 1. */
static void initial_weights_follow_the_options(void **state) {
    struct tiny_run r;
    tiny_run_init(&r, RECIPE_F32, 3);
    r.model.layers = 8;
    r.model.bias = true;
    r.model.norm = NORM_LAYER;
    struct recipe_options o = tiny_recipe_options(RECIPE_F32);
    tiny_run_recipe(&r, &o);
    MUST(tiny_run_open(&r, E));
    for (int k = 0; k < r.trainer->params.count; k++) {
        const struct param *p = &r.trainer->params.param[k];
        int64_t n = param_count(p);
        float *w = fetch(&r, &p->weight.value, n);
        double sum = 0, square = 0;
        for (int64_t i = 0; i < n; i++) {
            sum += (double)w[i];
            square += (double)w[i] * (double)w[i];
        }
        bool residual = strstr(p->name, "attn_out") || strstr(p->name, "ffn_out");
        double std = residual ? 0.02 / 4 : 0.02;
        if (p->cols) {
            assert_float_equal(sqrt(square / (double)n), std, 0.05 * std); /* n is 4096 or more */
            assert_float_equal(sum / (double)n, 0, 0.1 * std);
        } else {
            double all = strstr(p->name, "weight") ? 1 : 0; /* a gain, else a bias */
            assert_true(sum == all * (double)n && square == all * (double)n);
        }
        free(w);
    }
    tiny_run_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_update_by_hand),
        cmocka_unit_test(offloaded_state_gives_the_same_bits),
        cmocka_unit_test(padding_stays_zero),
        cmocka_unit_test(initial_weights_follow_the_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
