/* Sharding over 2 and 4 ranks: every mode gives the same bits. They are those of one rank, except
 * for the order of sums. */
/* long: 20 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "kernels/histogram.h"
#include "model/checkpoint.h"
#include "model/trainer.h"
#include "tests/support/cases.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny.h"

enum { STEPS = 4, RANKS_MAX = 4, SECONDS = 120, SLOTS_MAX = 128, TRACED_MAX = 128 };

/* ---- one run ---- */

struct way {
    const char *name;
    enum recipe_kind kind;
    bool param_gather, per_step, fp8_head, tied, learned, bf16_ends;
    unsigned bf16; /* GEMMs */
    enum state_kind state;
    bool no_master, bf16_grad, coded_grad, no_clip;
    enum recompute_kind recompute;
    struct selection selection;
    bool makes_codes;
};

/* The results that all ranks must agree on. */
struct record {
    float loss[STEPS], norm[STEPS], eval;
    char weights[65];
    uint64_t prints[STEPS][TRACED_MAX];
    struct fp8_slot slot[SLOTS_MAX];
    uint64_t histograms; /* of weights and gradients in the second step, as one number */
    int forward, slots; /* the first slot of a forward operand; all */
};

struct job {
    const struct way *way;
    enum shard_kind shard;
    int64_t global_batch, micro_batch;
    int steps;              /* after loading, if a checkpoint is loaded */
    const char *load, *save; /* directories of checkpoints, or NULL */
    struct record rank[RANKS_MAX];
};

static void init_way(struct tiny_run *r, const struct job *job) {
    const struct way *w = job->way;
    tiny_run_init(r, w->kind, STEPS);
    r->model.layers = w->bf16_ends ? 4 : 3;
    r->model.tied = w->tied;
    if (w->learned) r->model.positions = POSITION_LEARNED;
    struct recipe_options o = tiny_recipe_options(w->kind);
    o.param_gather = w->param_gather;
    tiny_gemms_bf16(&o, w->bf16);
    o.history = 3;
    if (w->per_step) o.roll = ROLL_STEP;
    tiny_run_recipe(r, &o);
    struct recipe_options bf16 = tiny_recipe_options(RECIPE_BF16);
    for (int s = 0; w->bf16_ends && s < GEMM_SITE_COUNT; s++)
        r->site[s] = r->site[3 * GEMM_SITE_COUNT + s] = bf16;
    if (w->fp8_head) r->recipe.head = o;
    r->train.head_chunk = 48; /* a second, shorter chunk */
    r->train.optimizer.state = w->state;
    r->train.optimizer.master = !w->no_master;
    if (w->no_clip) r->train.optimizer.clip = 0;
    r->train.grad_dtype = w->bf16_grad ? DTYPE_BF16 : DTYPE_F32;
    r->train.grad_codes = w->coded_grad;
    r->train.recompute = w->recompute;
    r->train.makes_codes = w->makes_codes;
    r->train.selection = w->selection;
    r->train.global_batch = job->global_batch;
    r->train.micro_batch = job->micro_batch;
    r->train.shard = job->shard;
    r->train.histograms = true;
}

/* Weights and gradients; a block's outputs are of the rank's own sequences. */
static enum status trace(struct tiny_run *r, uint64_t *out, struct err *e) {
    int64_t count;
    const char *const *name = trainer_trace_tensors(r->trainer, &count);
    TRY(trainer_trace(r->trainer, out, e));
    for (int64_t i = 0; i < count; i++)
        if (!strncmp(name[i], "out:", 4)) out[i] = 0;
    return OK;
}

static enum status mix_histograms(struct tiny_run *r, uint64_t *out, struct err *e) {
    static int64_t counts[TRACED_MAX][HISTOGRAM_COUNTS];
    int64_t count;
    const char *const *name = trainer_trace_tensors(r->trainer, &count);
    TRY(trainer_histograms(r->trainer, counts[0], e));
    for (int64_t i = 0; i < count; i++)
        for (int k = 0; k < HISTOGRAM_COUNTS && strncmp(name[i], "out:", 4) != 0; k++)
            *out = rng_mix(*out + (uint64_t)counts[i][k]);
    return OK;
}

static enum status run_steps(struct tiny_run *r, int steps, struct record *out, struct err *e) {
    int begin = (int)trainer_step_count(r->trainer);
    for (int i = begin; i < begin + steps; i++) {
        struct step_result s;
        if (i == 1) trainer_ask_histograms(r->trainer);
        TRY(trainer_step(r->trainer, i != 2, &s, e)); /* one of them is not traced */
        out->loss[i] = s.loss;
        out->norm[i] = s.grad_norm;
        if (s.traced) TRY(trace(r, out->prints[i], e));
        if (i != 1) continue; /* an evaluation in between must change nothing */
        TRY(mix_histograms(r, &out->histograms, e));
        struct eval_result eval;
        TRY(trainer_eval(r->trainer, 2, &eval, e));
        out->eval = eval.loss;
    }
    if (steps) trainer_read_fp8(r->trainer, out->slot);
    out->forward = r->trainer->slots.first[SLOT_FORWARD];
    out->slots = r->trainer->slots.count;
    return trainer_weights_sha256(r->trainer, out->weights, e);
}

static int one_rank(struct rank_test *t) {
    struct job *job = t->user;
    struct tiny_run r;
    init_way(&r, job);
    r.backend = t->backend;
    RANK_MUST(data_open(&r.data, &r.data_options, r.model.vocab, r.model.seq_len, r.train.seed,
                        &must_));
    RANK_MUST(trainer_create(&r.trainer, r.backend, &r.model, &r.recipe, &r.train, r.data, &must_));
    struct checkpoint_info info = { .step = 0 }, newest;
    if (job->load) RANK_MUST(checkpoint_latest(job->load, NULL, &newest, &must_));
    if (job->load) RANK_MUST(checkpoint_load(r.trainer, newest.path, &info, &must_));
    RANK_CHECK(info.step == trainer_step_count(r.trainer));
    RANK_MUST(run_steps(&r, job->steps, &job->rank[t->group.rank], &must_));
    if (job->save) RANK_MUST(checkpoint_save(r.trainer, job->save, &info, &must_));
    trainer_destroy(r.trainer);
    data_close(r.data);
    return 0;
}

/* Runs the job in `world` processes; its records are in memory shared with them. */
static struct job *run_job(const struct job *what, int world) {
    struct job *job = ranks_share(what, sizeof *job);
    int code[RANKS_MAX];
    ranks_run("cpu", world, one_rank, job, SECONDS, code);
    for (int r = 0; r < world; r++)
        if (code[r])
            fail_msg("%s: rank %d of %d ended with %d", what->way->name, r, world, code[r]);
    return job;
}

static struct job *run(const struct way *way, enum shard_kind shard, int world, int64_t global,
                       int64_t micro) {
    return run_job(&(struct job){ .way = way, .shard = shard, .global_batch = global,
                                  .micro_batch = micro, .steps = STEPS }, world);
}

static void drop(struct job *job) { munmap(job, sizeof *job); }

/* ---- comparing ---- */

static void assert_same(const struct record *a, const struct record *b, const char *what) {
    for (int i = 0; i < STEPS; i++) {
        for (int k = 0; k < TRACED_MAX; k++)
            if (a->prints[i][k] != b->prints[i][k])
                fail_msg("%s: step %d, traced tensor %d differs", what, i + 1, k);
        if (f32_bits(a->loss[i]) != f32_bits(b->loss[i]) ||
            f32_bits(a->norm[i]) != f32_bits(b->norm[i]))
            fail_msg("%s: step %d: loss %a and %a, norm %a and %a", what, i + 1,
                     (double)a->loss[i], (double)b->loss[i], (double)a->norm[i],
                     (double)b->norm[i]);
    }
    if (strcmp(a->weights, b->weights) != 0) fail_msg("%s: the weights differ", what);
    if (a->histograms != b->histograms) fail_msg("%s: the histograms differ", what);
    if (f32_bits(a->eval) != f32_bits(b->eval)) fail_msg("%s: the evaluations differ", what);
    for (int k = 0; k < SLOTS_MAX; k++)
        if (a->slot[k].amax_bits != b->slot[k].amax_bits ||
            f32_bits(a->slot[k].scale) != f32_bits(b->slot[k].scale))
            fail_msg("%s: slot %d: amax %08X and %08X", what, k, a->slot[k].amax_bits,
                     b->slot[k].amax_bits);
}

static const struct selection_rule LOWER_FROZEN[] = {
    { .names = "embed", .frozen = true }, { .names = "layers.0", .frozen = true },
};
static const struct selection_rule PARTS_FROZEN[] = {
    { .names = "embed", .frozen = true }, { .names = "layers.1", .frozen = true },
    { .names = "layers.*.qkv", .frozen = true }, { .names = "layers.2", .lr_scale = 0.25 },
};
static const struct selection_rule BODY_FROZEN[] = {
    { .names = "embed", .frozen = true }, { .names = "layers", .frozen = true },
    { .names = "final_norm", .frozen = true },
};

static const struct way WAYS[] = {
    { .name = "f32", .kind = RECIPE_F32 },
    { .name = "bf16", .kind = RECIPE_BF16 },
    { .name = "delayed", .kind = RECIPE_DELAYED, .fp8_head = true },
    { .name = "tensorwise", .kind = RECIPE_TENSORWISE },
    { .name = "blockwise", .kind = RECIPE_BLOCKWISE, .fp8_head = true },
    { .name = "bf16, tied, learned positions, 8-bit state, no master", .kind = RECIPE_BF16,
      .tied = true, .learned = true, .state = STATE_8BIT, .no_master = true },
    { .name = "delayed, codes gathered, bf16 gradients and state", .kind = RECIPE_DELAYED,
      .param_gather = true, .fp8_head = true, .bf16_grad = true, .state = STATE_BF16 },
    { .name = "tensorwise, codes gathered but at the ends, no master", .kind = RECIPE_TENSORWISE,
      .param_gather = true, .bf16_ends = true, .no_master = true, .state = STATE_8BIT },
    { .name = "tensorwise, codes gathered, tied, recomputed", .kind = RECIPE_TENSORWISE,
      .param_gather = true, .fp8_head = true, .tied = true, .recompute = RECOMPUTE_BLOCK },
    { .name = "delayed per step, recomputed", .kind = RECIPE_DELAYED, .per_step = true,
      .recompute = RECOMPUTE_FFN },
    { .name = "rowwise, wgrad in bf16", .kind = RECIPE_ROWWISE, .bf16 = WGRAD_BF16,
      .fp8_head = true },
    { .name = "mxfp8", .kind = RECIPE_MXFP8 },
    { .name = "tensorwise, codes gathered, embedding and a layer frozen", .param_gather = true,
      .kind = RECIPE_TENSORWISE, .fp8_head = true, .selection = { LOWER_FROZEN, 2 } },
    { .name = "delayed, tied, parts frozen, factors, 8-bit state", .kind = RECIPE_DELAYED,
      .tied = true, .learned = true, .state = STATE_8BIT, .selection = { PARTS_FROZEN, 4 } },
    { .name = "bf16, all but the head frozen", .kind = RECIPE_BF16,
      .selection = { BODY_FROZEN, 3 } },
    { .name = "bf16, gradients sent as codes", .kind = RECIPE_BF16, .coded_grad = true },
    { .name = "nvfp4", .kind = RECIPE_NVFP4, .fp8_head = true },
    { .name = "tensorwise, dgrad in bf16", .kind = RECIPE_TENSORWISE, .bf16 = DGRAD_BF16 },
    { .name = "delayed, fprop in bf16", .kind = RECIPE_DELAYED, .bf16 = FPROP_BF16,
      .fp8_head = true, .tied = true },
};
enum { WAY_COUNT = sizeof WAYS / sizeof *WAYS };

static const char *const NAME[] = { "none", "optimizer", "gradients", "parameters" };

static void assert_modes_agree(const struct way *way, int world, int64_t global,
                               enum shard_kind from, enum shard_kind to) {
    struct job *first = run(way, from, world, global, 2);
    for (int k = from; k <= (int)to; k++) {
        struct job *job = run(way, (enum shard_kind)k, world, global, 2); /* the first run twice */
        for (int r = 0; r < world; r++) {
            char what[128];
            snprintf(what, sizeof what, "%s, %s, rank %d of %d", way->name, NAME[k], r, world);
            assert_same(&first->rank[0], &job->rank[r], what);
        }
        drop(job);
    }
    drop(first);
}

/* With one micro-batch a step all modes have the same order of sums. With several, modes that first
 * sum over ranks agree with each other, and modes that first sum over micro-batches do. Unless all
 * cases run, the ways take turns at these three. */
static void every_mode_gives_the_same_bits(void **state) {
    int step = cases_step(2, 4);
    for (int i = 0; i < WAY_COUNT; i += step) {
        int turn = cases_all() ? -1 : i / step % 3;
        if (turn < 0 || turn == 0)
            assert_modes_agree(&WAYS[i], 2, 12, SHARD_GRADIENTS, SHARD_PARAMETERS);
        if (turn < 0 || turn == 1)
            assert_modes_agree(&WAYS[i], 2, 12, SHARD_NONE, SHARD_OPTIMIZER);
        if (turn < 0 || turn == 2)
            assert_modes_agree(&WAYS[i], 2, 4, SHARD_NONE, SHARD_PARAMETERS);
    }
}

static void four_ranks_and_three(void **state) {
    static const struct { int way, world, global; enum shard_kind from; } CASE[] = {
        { 8, 3, 12, SHARD_GRADIENTS }, { 4, 4, 8, SHARD_NONE }, { 6, 4, 8, SHARD_NONE },
    };
    for (int i = 0; i < 3; i += cases_step(1, 3))
        assert_modes_agree(&WAYS[CASE[i].way], CASE[i].world, CASE[i].global, CASE[i].from,
                           SHARD_PARAMETERS);
}

/* param_gather decides whether ranks send codes or values. Delayed scaling's codes have the lagged
 * scale either way. train.weight_codes decides how long a rank keeps codes. */
static void gathered_or_passing_codes_change_no_bit(void **state) {
    static const enum recipe_kind KIND[] = { RECIPE_DELAYED, RECIPE_TENSORWISE };
    for (size_t i = 0; i < sizeof KIND / sizeof *KIND; i += (size_t)cases_step(1, 2)) {
        struct way values = { .name = "values gathered", .kind = KIND[i], .fp8_head = true };
        struct way other[] = { values, values };
        other[0].param_gather = true;
        other[1].makes_codes = true;
        struct job *whole = run(&values, SHARD_NONE, 2, 4, 2);
        for (int way = 0; way < 2; way++)
            for (int k = SHARD_NONE; k <= SHARD_PARAMETERS; k++) {
                struct job *job = run(&other[way], (enum shard_kind)k, 2, 4, 2);
                for (int r = 0; r < 2; r++) assert_same(&whole->rank[0], &job->rank[r], NAME[k]);
                drop(job);
            }
        drop(whole);
    }
}

/* The same sequences in micro-batches of the same size: only the order of sums differs. Measured:
 * at most 5e-7, and 4e-5 in FP8, where a differently rounded sum may change a code; gradient norms
 * within 1.2e-7 relative, and 7e-4. Delayed scaling per micro-batch is excluded: its scales follow
 * the order of micro-batches. */
static void the_loss_does_not_depend_on_the_number_of_ranks(void **state) {
    static const struct way WAY[] = {
        { .name = "f32", .kind = RECIPE_F32 },
        { .name = "bf16", .kind = RECIPE_BF16 },
        { .name = "delayed per step", .kind = RECIPE_DELAYED, .per_step = true },
        { .name = "tensorwise", .kind = RECIPE_TENSORWISE, .param_gather = true },
        { .name = "blockwise", .kind = RECIPE_BLOCKWISE },
        { .name = "nvfp4", .kind = RECIPE_NVFP4 },
        { .name = "bf16, frozen", .kind = RECIPE_BF16, .selection = { LOWER_FROZEN, 2 } },
    };
    for (size_t w = 0; w < sizeof WAY / sizeof *WAY; w += (size_t)cases_step(1, 2)) {
        struct job *one = run(&WAY[w], SHARD_OPTIMIZER, 1, 4, 1);
        for (int world = 2; world <= 4; world += 2) {
            struct job *job = run(&WAY[w], SHARD_PARAMETERS, world, 4, 1);
            float most = 0, norm = 0;
            for (int i = 0; i < STEPS; i++) {
                most = fmaxf(most, fabsf(job->rank[0].loss[i] - one->rank[0].loss[i]));
                norm = fmaxf(norm, fabsf(job->rank[0].norm[i] / one->rank[0].norm[i] - 1));
            }
            print_message("%-20s %d ranks: losses differ by at most %.1e, norms by %.1e of them\n",
                          WAY[w].name, world, (double)most, (double)norm);
            assert_true(most < (WAY[w].kind == RECIPE_F32 ? 2e-6f : 2e-4f));
            assert_true(norm < (WAY[w].kind == RECIPE_F32 ? 1e-6f : 2e-3f));
            assert_true(one->rank[0].loss[0] > one->rank[0].loss[STEPS - 1]);
            drop(job);
        }
        drop(one);
    }
}

/* Gradients sent as codes train nearly as well: the first loss is the same, since no gradient came
 * before it, and the gradients of that step are other bits. One rank sends nothing. */
static void codes_change_gradients_a_little(void **state) {
    struct way exact = { .name = "exact gradients", .kind = RECIPE_BF16 }, codes = exact;
    codes.name = "gradients sent as codes";
    codes.coded_grad = true;
    for (int world = 1; world <= 2; world++) {
        struct job *want = run(&exact, SHARD_OPTIMIZER, world, 4, 2);
        struct job *got = run(&codes, SHARD_OPTIMIZER, world, 4, 2);
        const struct record *a = &want->rank[0], *b = &got->rank[0];
        assert_true(f32_bits(a->loss[0]) == f32_bits(b->loss[0]));
        assert_true((strcmp(a->weights, b->weights) == 0) == (world == 1));
        assert_true((f32_bits(a->norm[0]) == f32_bits(b->norm[0])) == (world == 1));
        assert_true(fabsf(a->norm[0] - b->norm[0]) < 0.01f * a->norm[0]);
        assert_true(fabsf(a->loss[STEPS - 1] - b->loss[STEPS - 1]) < 0.01f);
        drop(want);
        drop(got);
    }
}

/* ---- saturation counts ---- */

static void assert_same_counts(const struct job *want, const struct job *got, int world, int from,
                               int to) {
    for (int r = 0; r < world; r++)
        for (int k = from; k < to; k++) {
            const struct fp8_slot *a = &want->rank[0].slot[k], *b = &got->rank[r].slot[k];
            if (a->saturated != b->saturated || a->underflow != b->underflow ||
                a->elements != b->elements)
                fail_msg("%s, rank %d of %d, slot %d: %lld and %lld of %lld; with one rank %lld "
                         "and %lld of %lld", want->way->name, r, world, k, (long long)b->saturated,
                         (long long)b->underflow, (long long)b->elements, (long long)a->saturated,
                         (long long)a->underflow, (long long)a->elements);
        }
}

/* A step's counts equal those of one rank that takes the same micro-batches one after another. In
 * the first step each has the same weights, and its own scale (or a known one). */
static void counts_are_of_all_ranks(void **state) {
    static const struct way WAY[] = {
        { .name = "delayed per step", .kind = RECIPE_DELAYED, .per_step = true, .fp8_head = true },
        { .name = "tensorwise", .kind = RECIPE_TENSORWISE, .param_gather = true, .fp8_head = true },
        { .name = "blockwise", .kind = RECIPE_BLOCKWISE },
        { .name = "rowwise", .kind = RECIPE_ROWWISE },
    };
    for (size_t w = 0; w < sizeof WAY / sizeof *WAY; w += (size_t)cases_step(1, 2)) {
        struct job what = { .way = &WAY[w], .global_batch = 12, .micro_batch = 1, .steps = 1 };
        struct job *one = run_job(&what, 1);
        int64_t lost = 0;
        for (int k = one->rank[0].forward; k < one->rank[0].slots; k++)
            lost += one->rank[0].slot[k].saturated + one->rank[0].slot[k].underflow;
        assert_true(lost > 100);
        for (int world = 2; world <= 4; world++) {
            what.shard = (enum shard_kind)(world - 1);
            struct job *job = run_job(&what, world);
            assert_same_counts(one, job, world, one->rank[0].forward, one->rank[0].slots);
            drop(job);
        }
        drop(one);
    }
}

/* If a weight's codes are gathered, its counts cover all shards. So they equal the counts of one
 * rank's codes of the whole, for any sharding. */
static void parts_of_weights_are_counted_together(void **state) {
    static const struct way WAY[] = {
        { .name = "delayed", .kind = RECIPE_DELAYED, .param_gather = true, .fp8_head = true },
        { .name = "tensorwise", .kind = RECIPE_TENSORWISE, .param_gather = true, .fp8_head = true },
    };
    for (size_t w = 0; w < sizeof WAY / sizeof *WAY; w++) {
        struct job *whole = run(&WAY[w], SHARD_NONE, 4, 4, 1);
        struct job *parts = run(&WAY[w], SHARD_PARAMETERS, 4, 4, 1);
        int64_t lost = 0, gathered = 0;
        for (int k = 0; k < whole->rank[0].forward; k++) {
            struct fp8_slot *a = &whole->rank[0].slot[k], *b = &parts->rank[0].slot[k];
            if (a->elements == 0) continue;
            assert_int_equal(a->elements, 4 * b->elements);
            assert_int_equal(a->saturated, 4 * b->saturated);
            assert_int_equal(a->underflow, 4 * b->underflow);
            lost += b->saturated + b->underflow;
            gathered++;
        }
        assert_int_equal(gathered, 3 * GEMM_SITE_COUNT + 1);
        assert_true(lost > 0);
        assert_same_counts(parts, parts, 4, 0, parts->rank[0].slots);
        drop(whole);
        drop(parts);
    }
}

/* Slots without codes, with all the memory that they need. */
static enum status open_slots(struct slots *s, struct memory *m, int count, int64_t room,
                              struct backend *b, struct err *e) {
    memory_init(m);
    TRY(slots_init(s, count, e));
    for (int i = 0; i < count; i++) slots_add(s, SLOT_FORWARD, NULL, NULL, 0, "slot %d", i);
    int record = memory_share_open(m, MEMORY_STATE, "record of a step");
    TRY(slots_layout(s, m, record, e));
    slots_layout_gathered(s, m, record, b->ops->comm.world(b), room);
    TRY(memory_finish(m, e));
    TRY(memory_allocate(m, b, e));
    return slots_start(s, b, e);
}

/* The result of slots_gather_counts: with counts, and without if the record has no room for
 * them. */
static int one_rank_requests_counts(struct rank_test *t) {
    const struct backend_ops *ops = t->backend->ops;
    enum { SLOTS = 5 };
    int world = t->group.world, rank = t->group.rank, rows = 1 + SLOTS;
    for (int pass = 0; pass < 2; pass++) {
        int64_t room = 16 * rows * world - pass;
        struct slots s;
        struct memory m;
        uint64_t own[2 * SLOTS], all[2 * RANKS_MAX * (1 + SLOTS)];
        RANK_MUST(open_slots(&s, &m, SLOTS, room, t->backend, &must_));
        RANK_CHECK(s.gathers_counts == (pass == 0) && s.gathered_rows == (pass == 0 ? rows : 1));
        for (int i = 0; i < 2 * SLOTS; i++) own[i] = ((uint64_t)rank << 40) + (uint64_t)i;
        RANK_MUST(ops->upload(t->backend, LANE_COMPUTE, s.stats.data, own, sizeof own, &must_));
        for (int asks = 1; asks >= 0; asks--) { /* requested, then not */
            RANK_MUST(slots_gather_counts(&s, t->backend, asks && rank == 1, &must_));
            RANK_MUST(ops->download(t->backend, LANE_COMPUTE, all, s.gathered.data,
                                    16 * s.gathered_rows * world, &must_));
            for (int r = 0; r < world; r++) {
                const uint64_t *of = all + 2 * s.gathered_rows * r;
                RANK_CHECK(of[0] == (asks && r == 1));
                for (int i = 0; pass == 0 && i < 2 * SLOTS; i++)
                    RANK_CHECK(of[2 + i] == ((uint64_t)r << 40) + (uint64_t)i);
            }
        }
        RANK_MUST(ops->download(t->backend, LANE_COMPUTE, all, s.stats.data, sizeof own, &must_));
        RANK_CHECK(memcmp(all, own, sizeof own) == 0); /* a step may continue to count */
        memory_destroy(&m);
        slots_destroy(&s);
    }
    return 0;
}

static void ranks_tell_what_a_record_has_room_for(void **state) {
    int code[RANKS_MAX];
    ranks_run("cpu", 3, one_rank_requests_counts, NULL, SECONDS, code);
    for (int r = 0; r < 3; r++) assert_int_equal(code[r], 0);
}

/* ---- values that are not finite ---- */

/* A loss may be a little below 0 by rounding. The sign does not hide another rank's infinity. */
static int one_rank_shares_its_loss(struct rank_test *t) {
    static const struct { float of[2]; bool finite; } CASE[] = {
        { { -1e-7f, INFINITY }, false }, { { NAN, -0.0f }, false }, { { -1e-7f, 2.5f }, true },
        { { -INFINITY, 1.0f }, false },  { { -0.0f, -3e38f }, true },
    };
    const struct backend_ops *ops = t->backend->ops;
    struct slots s;
    struct memory m;
    void *memory;
    RANK_MUST(open_slots(&s, &m, 3, 1 << 10, t->backend, &must_));
    RANK_MUST(ops->memory_create(t->backend, "a loss", 4, &memory, &must_));
    struct tensor loss = tensor_1d(memory, DTYPE_F32, 1);
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        float shared;
        RANK_MUST(ops->upload(t->backend, LANE_COMPUTE, memory, &CASE[i].of[t->group.rank], 4,
                              &must_));
        RANK_MUST(slots_share(&s, t->backend, &loss, &must_));
        RANK_MUST(ops->download(t->backend, LANE_COMPUTE, &shared, s.loss.data, 4, &must_));
        RANK_CHECK((isfinite(shared) != 0) == CASE[i].finite);
    }
    ops->memory_destroy(t->backend, memory);
    memory_destroy(&m);
    slots_destroy(&s);
    return 0;
}

static void no_sign_hides_a_loss_that_is_not_finite(void **state) {
    int code[RANKS_MAX];
    ranks_run("cpu", 2, one_rank_shares_its_loss, NULL, SECONDS, code);
    for (int r = 0; r < 2; r++) assert_int_equal(code[r], 0);
}

static int one_rank_breaks(struct rank_test *t) {
    struct job *job = t->user;
    struct tiny_run r;
    struct step_result s;
    struct err e = { 0 };
    init_way(&r, job);
    r.backend = t->backend;
    RANK_MUST(data_open(&r.data, &r.data_options, r.model.vocab, r.model.seq_len, r.train.seed,
                        &must_));
    RANK_MUST(trainer_create(&r.trainer, r.backend, &r.model, &r.recipe, &r.train, r.data, &must_));
    RANK_MUST(trainer_step(r.trainer, false, &s, &must_));
    char before[65], after[65];
    RANK_MUST(trainer_weights_sha256(r.trainer, before, &must_));
    const struct tensor *scale = &r.trainer->transformer.grad_scale;
    if (t->group.rank == 1)
        RANK_MUST(r.backend->ops->fill(r.backend, LANE_COMPUTE, scale, NAN, &must_));
    RANK_CHECK(trainer_step(r.trainer, false, &s, &e) == ERR_NUMERIC);
    if (strcmp(s.tensor, "head.dy") != 0) fprintf(stderr, "rank %d: %s\n", t->group.rank, e.text);
    RANK_CHECK(strcmp(s.tensor, "head.dy") == 0);
    RANK_MUST(trainer_weights_sha256(r.trainer, after, &must_));
    RANK_CHECK(strcmp(before, after) == 0);
    trainer_destroy(r.trainer);
    data_close(r.data);
    return 0;
}

/* A non-finite value on one rank stops all ranks in the same step. All name the same tensor, and no
 * rank's shard has changed. */
static void one_bad_rank_stops_all(void **state) {
    for (int k = SHARD_NONE; k <= SHARD_PARAMETERS; k += cases_step(1, 3))
        for (int i = 1; i <= 3; i++) {
            struct job job = { .way = &WAYS[i], .shard = (enum shard_kind)k, .global_batch = 6,
                               .micro_batch = 1 };
            int code[RANKS_MAX];
            ranks_run("cpu", 3, one_rank_breaks, &job, SECONDS, code);
            for (int r = 0; r < 3; r++) assert_int_equal(code[r], 0);
        }
}

/* ---- checkpoints ---- */

/* The two files of a checkpoint and their description, to the byte. */
static void assert_same_files(const char *a, const char *b) {
    char command[512];
    snprintf(command, sizeof command, "diff -r %s %s >/dev/null", a, b);
    if (system(command) != 0) fail_msg("%s and %s differ", a, b);
}

static void remove_all(const char *dir) {
    char command[256];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

/* Two steps, saved. Other numbers of ranks, in other modes, load them, save the same bytes again,
 * and continue as if there had been no interruption. */
static void checkpoints_fit_any_number_of_ranks(void **state) {
    for (int i = 0; i < WAY_COUNT; i += cases_step(4, 8)) {
        char dir[] = "/tmp/fp8lab-shard-XXXXXX", first[64], again[64];
        assert_non_null(mkdtemp(dir));
        snprintf(first, sizeof first, "%s/first", dir);
        snprintf(again, sizeof again, "%s/again", dir);
        struct job job = { .way = &WAYS[i], .shard = SHARD_GRADIENTS, .global_batch = 4,
                           .micro_batch = 1, .steps = 2, .save = first };
        drop(run_job(&job, 4));
        for (int world = 1; world <= 4; world++) {
            struct job copy = { .way = &WAYS[i], .shard = (enum shard_kind)((world + i) % 4),
                                .global_batch = 12, .micro_batch = 1, .load = first,
                                .save = again };
            drop(run_job(&copy, world));
            assert_same_files(first, again);
        }
        struct job rest = { .way = &WAYS[i], .shard = (enum shard_kind)(i % 4), .global_batch = 4,
                            .micro_batch = 1, .steps = STEPS - 2, .load = again };
        struct job *whole = run(&WAYS[i], SHARD_OPTIMIZER, 4, 4, 1), *resumed = run_job(&rest, 4);
        struct record *w = &whole->rank[0];
        w->eval = 0; /* only the first half was evaluated, traced, counted */
        w->histograms = 0;
        memset(w->prints, 0, 2 * sizeof w->prints[0]);
        memset(w->loss, 0, 2 * sizeof w->loss[0]);
        memset(w->norm, 0, 2 * sizeof w->norm[0]);
        assert_same(w, &resumed->rank[3], WAYS[i].name);
        drop(whole);
        drop(resumed);
        remove_all(dir);
    }
}

/* ---- frozen weights ---- */

/* They are made once, where others are made and gathered in each step: the bits and the counts are
 * those of a learning rate of 0. */
static void frozen_weights_have_the_bits_of_a_rate_of_zero(void **state) {
    static const struct selection_rule STILL[] = {
        { .names = "embed" }, { .names = "layers.0" }, { .names = "layers.2.qkv" },
    };
    static const struct selection_rule FROZEN[] = {
        { .names = "embed", .frozen = true }, { .names = "layers.0", .frozen = true },
        { .names = "layers.2.qkv", .frozen = true },
    };
    static const struct way WAY[] = {
        { .name = "tensorwise, codes gathered", .kind = RECIPE_TENSORWISE, .param_gather = true },
        { .name = "delayed", .kind = RECIPE_DELAYED },
        { .name = "rowwise", .kind = RECIPE_ROWWISE },
        { .name = "delayed, codes gathered", .kind = RECIPE_DELAYED, .param_gather = true },
        { .name = "blockwise", .kind = RECIPE_BLOCKWISE },
    };
    for (size_t w = 0; w < sizeof WAY / sizeof *WAY; w += (size_t)cases_step(1, 3))
        for (int k = SHARD_OPTIMIZER; k <= SHARD_PARAMETERS; k += 2) {
            struct way still = WAY[w], frozen = WAY[w];
            still.no_clip = frozen.no_clip = true; /* frozen gradients are not of the norm */
            still.selection = (struct selection){ STILL, 3 };
            frozen.selection = (struct selection){ FROZEN, 3 };
            struct job *a = run(&still, (enum shard_kind)k, 2, 8, 2);
            struct job *b = run(&frozen, (enum shard_kind)k, 2, 8, 2);
            const struct record *x = &a->rank[0], *y = &b->rank[1];
            if (memcmp(x->loss, y->loss, sizeof x->loss) ||
                f32_bits(x->eval) != f32_bits(y->eval) ||
                strcmp(x->weights, y->weights))
                fail_msg("%s, %s: other bits than with a rate of 0", WAY[w].name, NAME[k]);
            for (int i = 0; i < x->forward; i++)
                if (memcmp(&x->slot[i], &y->slot[i], sizeof x->slot[i]) != 0)
                    fail_msg("%s, %s: slot %d", WAY[w].name, NAME[k], i);
            drop(a);
            drop(b);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mode_gives_the_same_bits),
        cmocka_unit_test(four_ranks_and_three),
        cmocka_unit_test(gathered_or_passing_codes_change_no_bit),
        cmocka_unit_test(the_loss_does_not_depend_on_the_number_of_ranks),
        cmocka_unit_test(codes_change_gradients_a_little),
        cmocka_unit_test(counts_are_of_all_ranks),
        cmocka_unit_test(parts_of_weights_are_counted_together),
        cmocka_unit_test(ranks_tell_what_a_record_has_room_for),
        cmocka_unit_test(no_sign_hides_a_loss_that_is_not_finite),
        cmocka_unit_test(one_bad_rank_stops_all),
        cmocka_unit_test(frozen_weights_have_the_bits_of_a_rate_of_zero),
        cmocka_unit_test(checkpoints_fit_any_number_of_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
