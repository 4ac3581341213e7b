/* Untransposed twins, as on a device that multiplies MXFP8 along either axis: the same codes in
 * another order. A run has the same bits with them, takes the memory that is planned, and its audit
 * finds the same operands. The CPU asks for none, so a table around its own says that it does. */
#include <sys/mman.h>

#include "kernels/cpu/cpu_backend.h"
#include "model/trainer.h"
#include "tests/support/must.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny.h"

enum { STEPS = 3, OUTPUTS = 48, SLOTS_MAX = 128, WORLD = 2, SECONDS = 120 };

static const struct twin_case {
    const char *name;
    enum recipe_kind kind;
    bool weight_2d, fp8_head;
    enum recompute_kind recompute;
    const char *arithmetic;
    bool turns; /* some twin is untransposed then */
} CASES[] = {
    { "mxfp8", RECIPE_MXFP8, false, false, RECOMPUTE_NONE, NULL, true },
    { "mxfp8, sm_100, block", RECIPE_MXFP8, false, true, RECOMPUTE_BLOCK, "sm_100", true },
    { "mxfp8, 2-D weights", RECIPE_MXFP8, true, true, RECOMPUTE_NONE, NULL, true },
    { "mxfp8, 2-D weights, sm_100, ffn", RECIPE_MXFP8, true, true, RECOMPUTE_FFN, "sm_100", true },
    { "blockwise", RECIPE_BLOCKWISE, false, true, RECOMPUTE_NONE, NULL, false },
    { "tensorwise", RECIPE_TENSORWISE, false, false, RECOMPUTE_NONE, NULL, false },
    { "nvfp4, 2-D weights", RECIPE_NVFP4, true, false, RECOMPUTE_NONE, NULL, false },
};

/* ---- a backend that reads them ---- */

static struct {
    const struct backend_ops *real;
    struct backend_ops ops;
    int64_t twins;    /* operands of matmul that were untransposed */
    int64_t products; /* of FP8 */
    int64_t aliased;  /* twins with the memory of codes that fprop has read */
    const void *codes[64];
    int codes_read;
} asks; /* of this test program only */

static bool twins_are_untransposed(struct backend *b, enum scale_kind kind) {
    return scale_is_mxfp8(kind);
}

static bool is_read(const void *codes) {
    for (int i = 0; i < asks.codes_read; i++)
        if (asks.codes[i] == codes) return true;
    return false;
}

static enum status watching_matmul(struct backend *b, int lane, const struct matmul_args *args,
                                   struct err *e) {
    const struct tensor *side[2] = { args->a, args->b };
    bool fp8 = dtype_is_fp8(args->a->dtype);
    asks.products += fp8;
    for (int i = 0; i < 2 && fp8; i++) {
        if (!fp8_is_untransposed(side[i])) continue;
        asks.twins++;
        asks.aliased += is_read(side[i]->data);
        /* fprop reads no twin, dgrad one, wgrad two */
        assert_true(args->direction == GEMM_WGRAD || (args->direction == GEMM_DGRAD && i == 1));
    }
    if (fp8 && args->direction == GEMM_FPROP && !is_read(args->b->data) && asks.codes_read < 64)
        asks.codes[asks.codes_read++] = args->b->data;
    return asks.real->matmul(b, lane, args, e);
}

static void ask_for_them(struct backend *b) {
    memset(&asks, 0, sizeof asks);
    asks.real = b->ops;
    asks.ops = *b->ops;
    asks.ops.twins_untransposed = twins_are_untransposed;
    asks.ops.matmul = watching_matmul;
    b->ops = &asks.ops;
}

/* ---- a run ---- */

static void init_run(struct tiny_run *r, const struct twin_case *c) {
    struct recipe_options o = tiny_recipe_options(c->kind);
    o.weight_2d = c->weight_2d;
    tiny_run_init(r, c->kind, STEPS);
    tiny_run_recipe(r, &o);
    if (c->fp8_head) r->recipe.head = o;
    r->train.head_chunk = 48; /* a second, shorter chunk */
    r->train.recompute = c->recompute;
    r->train.fp8_error = 1;
}

struct record {
    float loss[STEPS], norm[STEPS], eval;
    struct fp8_slot slot[STEPS][SLOTS_MAX];
    char weights[65];
    int64_t bytes, planned;
};

static enum status take_record(struct tiny_run *r, struct record *out, struct err *e) {
    struct plan plan = { 0 };
    struct train_options train = r->train;
    train.untransposed = r->backend->ops->twins_untransposed(r->backend, SCALE_1X32);
    for (int i = 0; i < STEPS; i++) {
        struct step_result s;
        struct eval_result eval;
        TRY(trainer_step(r->trainer, false, &s, e));
        out->loss[i] = s.loss;
        out->norm[i] = s.grad_norm;
        trainer_read_fp8(r->trainer, out->slot[i]);
        if (i != 1) continue; /* an evaluation makes no twin, and leaves the codes' memory */
        TRY(trainer_eval(r->trainer, 2, &eval, e));
        out->eval = eval.loss;
    }
    TRY(trainer_weights_sha256(r->trainer, out->weights, e));
    TRY(trainer_plan(&plan, &r->model, &r->recipe, &train, r->trainer->world, e));
    out->planned = plan.bytes;
    out->bytes = trainer_memory_bytes(r->trainer);
    plan_free(&plan);
    return OK;
}

static void run(const struct twin_case *c, bool asks_for_them, struct record *out) {
    struct tiny_run r;
    struct audit_record a;
    int64_t steps = 0;
    memset(out, 0, sizeof *out);
    init_run(&r, c);
    r.train.audit = (struct audit_options){ .every = asks_for_them, .outputs = OUTPUTS };
    MUST(cpu_backend_open(&r.backend, 2, E));
    if (c->arithmetic) MUST(cpu_backend_calculate(r.backend, c->arithmetic, E));
    if (asks_for_them) ask_for_them(r.backend);
    MUST(tiny_run_open(&r, E));
    MUST(take_record(&r, out, E));
    if (asks_for_them) {
        MUST(trainer_audit_settle(r.trainer, E));
        assert_null(trainer_audit_fault(r.trainer));
        for (; trainer_audited(r.trainer, &a); steps++)
            assert_true(a.products == OUTPUTS && !a.unknown &&
                        (a.codes > 0) == (c->kind != RECIPE_NVFP4));
        assert_int_equal(steps, STEPS);
    }
    tiny_run_close(&r);
}

static void assert_same(const struct twin_case *c, const struct record *x, const struct record *y) {
    if (memcmp(x->loss, y->loss, sizeof x->loss) || memcmp(x->norm, y->norm, sizeof x->norm) ||
        memcmp(&x->eval, &y->eval, sizeof x->eval) || strcmp(x->weights, y->weights))
        fail_msg("%s: losses %g and %g, weights %.8s and %.8s", c->name, (double)x->loss[STEPS - 1],
                 (double)y->loss[STEPS - 1], x->weights, y->weights);
    if (memcmp(x->slot, y->slot, sizeof x->slot)) fail_msg("%s: the FP8 slots differ", c->name);
}

/* Bytes of one direction's codes of the GEMM weights; the tied table or the head apart. */
static int64_t weight_bytes(const struct twin_case *c) {
    struct model_config m = tiny_model();
    int64_t bytes = 0;
    for (int s = 0; s < GEMM_SITE_COUNT; s++) {
        struct gemm_size size = gemm_site_size(&m, (enum gemm_site)s);
        bytes += m.layers * size.inputs * size.outputs;
    }
    return bytes + (c->fp8_head ? m.width * model_vocab_padded(&m) : 0);
}

static void runs_have_the_same_bits(void **state) {
    static struct record plain, turned;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const struct twin_case *c = &CASES[i];
        run(c, false, &plain);
        run(c, true, &turned);
        assert_same(c, &plain, &turned);
        assert_true(plain.planned == plain.bytes && turned.planned == turned.bytes);
        if (!c->turns) {
            assert_int_equal(asks.twins, 0);
            assert_int_equal(plain.bytes, turned.bytes);
            continue;
        }
        /* A third of the FP8 products has none, a third one, a third two; an evaluation adds
         * fprops. */
        assert_true(asks.twins > asks.products / 2 && asks.twins < asks.products);
        /* One array of codes serves both directions where blocks are square, and no other twin. */
        assert_int_equal(asks.aliased > 0, c->weight_2d);
        int64_t saved = plain.bytes - turned.bytes;
        if (c->weight_2d ? saved < weight_bytes(c) : saved != 0)
            fail_msg("%s: %lld bytes saved", c->name, (long long)saved);
    }
}

/* ---- the audit sees a fault in them ---- */

static enum status flipping_finish(struct backend *b, int lane, const struct sink *s,
                                   struct err *e) {
    const struct tensor *twin = s->codes ? s->codes->transposed : NULL;
    TRY(asks.real->quantise_finish(b, lane, s, e));
    for (int64_t i = 0; twin && s->codes->data && i < tensor_code_bytes(twin); i++)
        ((uint8_t *)twin->data)[i] ^= 0x80;
    return OK;
}

/* The sign of each code of the twins is wrong, and no code beside them is. */
static void wrong_codes_are_found(void **state) {
    const struct audit_fault *fault = NULL;
    struct tiny_run r;
    init_run(&r, &CASES[0]);
    r.train.audit = (struct audit_options){ .every = 1, .outputs = OUTPUTS };
    MUST(cpu_backend_open(&r.backend, 1, E));
    ask_for_them(r.backend);
    asks.ops.quantise_finish = flipping_finish;
    MUST(tiny_run_open(&r, E));
    for (int i = 0; i < STEPS && !fault; i++) {
        struct step_result s;
        struct err e = { .text = "" };
        enum status st = trainer_step(r.trainer, false, &s, &e);
        if (st == OK) st = trainer_audit_settle(r.trainer, &e);
        fault = trainer_audit_fault(r.trainer);
        assert_true(st == OK || fault);
    }
    assert_non_null(fault);
    assert_string_equal(fault->what, "code");
    assert_non_null(strstr(fault->name, "transposed codes"));
    assert_int_equal(fault->found ^ fault->expected, 0x80);
    tiny_run_close(&r);
}

/* ---- several ranks ---- */

struct job {
    const struct twin_case *c;
    enum shard_kind shard;
    bool asks;
    struct record rank[WORLD];
};

static int rank_run(struct rank_test *t) {
    struct job *job = t->user;
    struct tiny_run r;
    init_run(&r, job->c);
    r.train.shard = job->shard;
    r.backend = t->backend;
    if (job->asks) ask_for_them(r.backend);
    RANK_MUST(data_open(&r.data, &r.data_options, r.model.vocab, r.model.seq_len, r.train.seed,
                        &must_));
    RANK_MUST(trainer_create(&r.trainer, r.backend, &r.model, &r.recipe, &r.train, r.data, &must_));
    RANK_MUST(take_record(&r, &job->rank[t->group.rank], &must_));
    RANK_CHECK(!job->asks || asks.twins > 0);
    trainer_destroy(r.trainer);
    data_close(r.data);
    return 0;
}

static void ranks_have_the_same_bits(void **state) {
    static struct job job;
    for (size_t i = 0; i < 3; i += 2)
        for (enum shard_kind shard = SHARD_NONE; shard <= SHARD_PARAMETERS; shard++) {
            struct job *of[2];
            for (int k = 0; k < 2; k++) {
                int code[WORLD];
                memset(&job, 0, sizeof job);
                job.c = &CASES[i];
                job.shard = shard;
                job.asks = k;
                of[k] = ranks_share(&job, sizeof job);
                ranks_run("cpu", WORLD, rank_run, of[k], SECONDS, code);
                for (int rank = 0; rank < WORLD; rank++) assert_int_equal(code[rank], 0);
            }
            for (int rank = 0; rank < WORLD; rank++)
                assert_same(&CASES[i], &of[0]->rank[rank], &of[1]->rank[rank]);
            for (int k = 0; k < 2; k++) munmap(of[k], sizeof job);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_have_the_same_bits),
        cmocka_unit_test(wrong_codes_are_found),
        cmocka_unit_test(ranks_have_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
