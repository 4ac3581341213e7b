/* What may overlap in a step of several ranks: reductions with backward, gathers with forward; each
 * after the operators that it depends on. A CPU runs every operator when it is queued. So this test
 * records the calls: each operator's lane, and the events that order it, as vector clocks. It also
 * records the traffic: dtypes and sizes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/trainer.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny.h"

enum { LAYERS = 4, HEAD = BUCKET_LAYER + LAYERS, BUCKETS = HEAD + 1, SECONDS = 60 };

/* How many operators of each lane are done when one begins. BY_EVENTS: ordered by lanes and events.
 * BY_TURNS_TOO: collectives also run one at a time in the order of the calls, on any lane. A device
 * does so, but no code may rely on it. */
enum order { BY_EVENTS, BY_TURNS_TOO, ORDERS };
struct clock { int64_t of[ORDERS][LANE_COUNT]; };
struct op { int lane; struct clock clock; int64_t count; enum dtype dtype; };

static struct {
    const struct backend_ops *real;
    struct backend_ops ops; /* the real table with wrapped operators */
    struct clock lane[LANE_COUNT], event[EVENT_COUNT], turn;
    struct op forward[LAYERS], backward[LAYERS]; /* attention of each layer */
    struct op gather[BUCKETS], reduce[BUCKETS];  /* in forward, and in backward */
    struct op update;
    int forwards, backwards, gathers, reduces, maxima, updates;
} seen; /* of one step of one rank, in a separate process */

static void merge(struct clock *into, const struct clock *other, enum order from) {
    for (int o = from; o < ORDERS; o++)
        for (int i = 0; i < LANE_COUNT; i++)
            if (other->of[o][i] > into->of[o][i]) into->of[o][i] = other->of[o][i];
}

static struct op queue(int lane) {
    for (int o = 0; o < ORDERS; o++) seen.lane[lane].of[o][lane]++;
    return (struct op){ .lane = lane, .clock = seen.lane[lane] };
}

static struct op queue_collective(int lane, const struct tensor *x) {
    merge(&seen.lane[lane], &seen.turn, BY_TURNS_TOO);
    struct op op = queue(lane);
    seen.turn = op.clock;
    op.count = tensor_count(x);
    op.dtype = x->dtype;
    return op;
}

static bool ordered(const struct op *a, const struct op *b, enum order by) {
    return b->clock.of[by][a->lane] >= a->clock.of[by][a->lane];
}
static bool before(const struct op *a, const struct op *b) { return ordered(a, b, BY_EVENTS); }
static bool overlaps(const struct op *a, const struct op *b) {
    return !ordered(a, b, BY_TURNS_TOO) && !ordered(b, a, BY_TURNS_TOO);
}

/* ---- the wrapped operators --------------------------------------------------------------------*/

static enum status see_signal(struct backend *b, int lane, int event, struct err *e) {
    seen.event[event] = seen.lane[lane];
    return seen.real->signal(b, lane, event, e);
}
static enum status see_wait(struct backend *b, int lane, int event, struct err *e) {
    merge(&seen.lane[lane], &seen.event[event], BY_EVENTS);
    return seen.real->wait(b, lane, event, e);
}
static enum status see_sync(struct backend *b, struct err *e) {
    for (int i = 0; i < LANE_COUNT; i++)
        for (int k = 0; k < LANE_COUNT; k++) merge(&seen.lane[i], &seen.lane[k], BY_EVENTS);
    return seen.real->sync(b, e);
}
static enum status see_forward(struct backend *b, int lane, const struct attention_fwd_args *args,
                               struct err *e) {
    if (seen.forwards < LAYERS) seen.forward[seen.forwards++] = queue(lane);
    return seen.real->attention_fwd(b, lane, args, e);
}
static enum status see_backward(struct backend *b, int lane, const struct attention_bwd_args *args,
                                struct err *e) {
    if (seen.backwards < LAYERS) seen.backward[LAYERS - ++seen.backwards] = queue(lane);
    return seen.real->attention_bwd(b, lane, args, e);
}
static enum status see_update(struct backend *b, int lane, const struct adamw_args *args,
                              int64_t n, struct err *e) {
    if (!seen.updates++) seen.update = queue(lane);
    return seen.real->adamw(b, lane, args, n, e);
}
static enum status see_gather(struct backend *b, int lane, const struct tensor *out,
                              const struct tensor *x, struct err *e) {
    struct op op = queue_collective(lane, out);
    bool weights = x->dtype != DTYPE_U64; /* not the counts of all ranks */
    if (weights && seen.gathers < BUCKETS) seen.gather[seen.gathers++] = op;
    return seen.real->comm.all_gather(b, lane, out, x, e);
}
static enum status see_reduce(struct backend *b, int lane, const struct tensor *out,
                              const struct tensor *x, struct err *e) {
    struct op op = queue_collective(lane, x);
    if (seen.reduces < BUCKETS) seen.reduce[BUCKETS - ++seen.reduces] = op;
    return seen.real->comm.reduce_scatter(b, lane, out, x, e);
}
static enum status see_sum(struct backend *b, int lane, const struct tensor *x, enum reduce_op op,
                           struct err *e) {
    (void)queue_collective(lane, x);
    seen.maxima += op == REDUCE_MAX && tensor_count(x) > 1;
    return seen.real->comm.all_reduce(b, lane, x, op, e);
}

static void wrap_operators(struct backend *b) {
    seen.real = b->ops;
    seen.ops = *b->ops;
    seen.ops.signal = see_signal;
    seen.ops.wait = see_wait;
    seen.ops.sync = see_sync;
    seen.ops.attention_fwd = see_forward;
    seen.ops.attention_bwd = see_backward;
    seen.ops.adamw = see_update;
    seen.ops.comm.all_gather = see_gather;
    seen.ops.comm.reduce_scatter = see_reduce;
    seen.ops.comm.all_reduce = see_sum;
    b->ops = &seen.ops;
}

/* ---- a step ---------------------------------------------------------------------------------- */

struct way {
    enum recipe_kind kind;
    enum shard_kind shard;
    bool param_gather;
    enum dtype grad;
    struct selection selection;
    int gathers; /* in a step of frozen parameters */
};

static int check_order(struct rank_test *t, const struct way *way) {
    RANK_CHECK(seen.forwards == LAYERS && seen.backwards == LAYERS);
    RANK_CHECK(seen.gathers == BUCKETS && seen.reduces == BUCKETS);
    for (int l = 0; l < LAYERS; l++) {
        const struct op *weights = &seen.gather[BUCKET_LAYER + l];
        const struct op *gradients = &seen.reduce[BUCKET_LAYER + l];
        RANK_CHECK(before(weights, &seen.forward[l]));
        RANK_CHECK(before(&seen.backward[l], gradients));
        if (l > 0) RANK_CHECK(overlaps(weights, &seen.forward[l - 1]));
        if (l > 0) RANK_CHECK(overlaps(gradients, &seen.backward[l - 1]));
        if (l < 2) continue; /* every second bucket shares a buffer */
        if (way->shard >= SHARD_GRADIENTS) RANK_CHECK(before(gradients, &seen.backward[l - 2]));
        if (way->shard == SHARD_PARAMETERS) RANK_CHECK(before(&seen.forward[l - 2], weights));
    }
    RANK_CHECK(overlaps(&seen.gather[HEAD], &seen.forward[LAYERS - 1]));
    RANK_CHECK(overlaps(&seen.reduce[HEAD], &seen.backward[LAYERS - 1]));
    for (int k = 0; k < BUCKETS; k++) RANK_CHECK(before(&seen.reduce[k], &seen.update));
    return 0;
}

/* Each bucket is transferred once each way: gradients in their dtype; weights as BF16, or one byte
 * an element if codes are gathered. The codes' amax are one more collective beside all slots'. */
static int check_wire(struct rank_test *t, const struct way *way, const struct params *p) {
    RANK_CHECK(p->bucket_count == BUCKETS);
    for (int k = 0; k < BUCKETS; k++) {
        bool codes = way->param_gather && k >= BUCKET_LAYER && k < HEAD;
        int64_t n = p->bucket[k].shard * t->group.world;
        RANK_CHECK(seen.gather[k].count == n && seen.reduce[k].count == n);
        RANK_CHECK(seen.gather[k].dtype == (codes ? DTYPE_E4M3 : DTYPE_BF16));
        RANK_CHECK(seen.reduce[k].dtype == way->grad);
    }
    RANK_CHECK(seen.maxima == 2);
    return 0;
}

/* Frozen buckets have crossed before the first step. */
static int check_frozen(struct rank_test *t, const struct way *way) {
    RANK_CHECK(seen.gathers == way->gathers && seen.reduces == BUCKETS - 2);
    return 0;
}

static int one_step(struct rank_test *t) {
    const struct way *way = t->user;
    struct tiny_run r;
    struct step_result s;
    tiny_run_init(&r, way->kind, 2);
    r.model.layers = LAYERS;
    struct recipe_options o = tiny_recipe_options(way->kind);
    o.param_gather = way->param_gather;
    tiny_run_recipe(&r, &o);
    r.train.shard = way->shard;
    r.train.grad_dtype = way->grad;
    r.train.selection = way->selection;
    r.backend = t->backend;
    RANK_MUST(data_open(&r.data, &r.data_options, r.model.vocab, r.model.seq_len, r.train.seed,
                        &must_));
    RANK_MUST(trainer_create(&r.trainer, r.backend, &r.model, &r.recipe, &r.train, r.data, &must_));
    RANK_MUST(trainer_step(r.trainer, false, &s, &must_));
    wrap_operators(t->backend); /* the second step: its gathers follow an update */
    RANK_MUST(trainer_step(r.trainer, false, &s, &must_));
    t->backend->ops = seen.real;
    int code = way->selection.count ? check_frozen(t, way) : check_order(t, way);
    if (code == 0 && !way->selection.count) code = check_wire(t, way, &r.trainer->params);
    trainer_destroy(r.trainer);
    data_close(r.data);
    return code;
}

static void run(struct way way) {
    int code[2];
    ranks_run("cpu", 2, one_step, &way, SECONDS, code);
    assert_int_equal(code[0], 0);
    assert_int_equal(code[1], 0);
}

static void weights_and_gradients_move_beside_arithmetic(void **state) {
    for (int k = SHARD_OPTIMIZER; k <= SHARD_PARAMETERS; k++)
        run((struct way){ .kind = RECIPE_BF16, .shard = (enum shard_kind)k, .grad = DTYPE_F32 });
}

static void gradients_cross_in_bf16(void **state) {
    run((struct way){ .kind = RECIPE_BF16, .shard = SHARD_OPTIMIZER, .grad = DTYPE_BF16 });
}

static void codes_cross_as_a_byte_an_element(void **state) {
    for (int k = SHARD_OPTIMIZER; k <= SHARD_PARAMETERS; k++)
        run((struct way){ .kind = RECIPE_TENSORWISE, .shard = (enum shard_kind)k,
                          .param_gather = true, .grad = DTYPE_F32 });
    run((struct way){ .kind = RECIPE_DELAYED, .shard = SHARD_OPTIMIZER, .param_gather = true,
                       .grad = DTYPE_BF16 });
}

static void frozen_weights_cross_once(void **state) {
    static const struct selection_rule RULES[] = {
        { .names = "embed", .frozen = true }, { .names = "layers.0", .frozen = true },
    };
    static const struct way WAYS[] = {
        { .kind = RECIPE_BF16, .shard = SHARD_OPTIMIZER, .gathers = BUCKETS - 2 },
        { .kind = RECIPE_TENSORWISE, .shard = SHARD_GRADIENTS, .param_gather = true,
          .gathers = BUCKETS - 2 },
        { .kind = RECIPE_DELAYED, .shard = SHARD_OPTIMIZER, .gathers = BUCKETS - 2 },
        /* The first step's update has made the last scale. */
        { .kind = RECIPE_DELAYED, .shard = SHARD_OPTIMIZER, .param_gather = true,
          .gathers = BUCKETS - 2 },
        /* No rank keeps what it gathers. */
        { .kind = RECIPE_BF16, .shard = SHARD_PARAMETERS, .gathers = BUCKETS },
    };
    for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++) {
        struct way way = WAYS[i];
        way.grad = DTYPE_F32;
        way.selection = (struct selection){ RULES, 2 };
        run(way);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_and_gradients_move_beside_arithmetic),
        cmocka_unit_test(gradients_cross_in_bf16),
        cmocka_unit_test(codes_cross_as_a_byte_an_element),
        cmocka_unit_test(frozen_weights_cross_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
