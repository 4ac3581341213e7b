/* The audit of steps. Every product and cast of every recipe is found equal, and all GEMMs come
 * round. No bit of the run changes. A fault in a product, a weight, a code or a factor ends the
 * run, by name. The faults are made by a table of operators around the CPU's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/cpu/cpu_backend.h"
#include "model/checkpoint.h"
#include "model/trainer.h"
#include "runner/worker/audit_report.h"
#include "tests/support/must.h"
#include "tests/support/tiny.h"

enum { STEPS = 3, OUTPUTS = 48 };

static const struct kind_case {
    const char *name;
    enum recipe_kind kind;
    unsigned bf16;                /* GEMMs */
    bool weight_2d, codes; /* codes: casts are compared too */
    const char *arithmetic;
    bool makes_codes;
} KINDS[] = {
    { "f32", RECIPE_F32, 0, false, false, NULL, false },
    { "bf16", RECIPE_BF16, 0, false, false, NULL, false },
    { "bf16, hopper", RECIPE_BF16, 0, false, false, "hopper", false },
    { "delayed", RECIPE_DELAYED, 0, false, true, NULL, false },
    { "delayed, hopper", RECIPE_DELAYED, 0, false, true, "hopper", false },
    { "tensorwise", RECIPE_TENSORWISE, 0, false, true, NULL, false },
    { "tensorwise, codes not kept", RECIPE_TENSORWISE, 0, false, true, "hopper", true },
    { "blockwise, codes not kept", RECIPE_BLOCKWISE, 0, false, true, NULL, true },
    { "rowwise, wgrad in BF16", RECIPE_ROWWISE, WGRAD_BF16, false, true, "hopper", false },
    { "rowwise", RECIPE_ROWWISE, 0, false, true, NULL, false },
    { "blockwise", RECIPE_BLOCKWISE, 0, false, true, NULL, false },
    { "tensorwise, fprop in BF16", RECIPE_TENSORWISE, FPROP_BF16, false, true, "hopper", false },
    { "blockwise, dgrad in BF16", RECIPE_BLOCKWISE, DGRAD_BF16, false, true, "hopper", false },
    { "blockwise, hopper", RECIPE_BLOCKWISE, 0, false, true, "hopper", false },
    { "mxfp8", RECIPE_MXFP8, 0, false, true, "sm_100", false },
    { "mxfp8, 2-D weights", RECIPE_MXFP8, 0, true, true, NULL, false },
    { "nvfp4, 2-D weights", RECIPE_NVFP4, 0, true, false, NULL, false },
};
enum { KIND_COUNT = sizeof KINDS / sizeof *KINDS };

static void open_run(struct tiny_run *r, const struct kind_case *c, int64_t every) {
    struct recipe_options o = tiny_recipe_options(c->kind);
    tiny_gemms_bf16(&o, c->bf16);
    if (c->weight_2d) o.weight_2d = true;
    tiny_run_init(r, c->kind, STEPS);
    tiny_run_recipe(r, &o);
    r->train.makes_codes = c->makes_codes;
    r->train.audit = (struct audit_options){ .every = every, .outputs = OUTPUTS };
    MUST(cpu_backend_open(&r->backend, 1, E));
    if (c->arithmetic) MUST(cpu_backend_calculate(r->backend, c->arithmetic, E));
    MUST(tiny_run_open(r, E));
}

/* ---- without a fault ---- */

static void audited_steps_are_equal_and_change_no_bit(void **state) {
    for (size_t c = 0; c < KIND_COUNT; c++) {
        struct tiny_run plain, audited;
        struct audit_record a;
        char hash[2][65];
        int64_t records = 0;
        open_run(&plain, &KINDS[c], 0);
        open_run(&audited, &KINDS[c], 1);
        assert_null(plain.trainer->audit);
        for (int64_t step = 1; step <= STEPS; step++) {
            struct step_result x, y;
            MUST(trainer_step(plain.trainer, false, &x, E));
            MUST(trainer_step(audited.trainer, false, &y, E));
            assert_memory_equal(&x.loss, &y.loss, sizeof x.loss);
            assert_memory_equal(&x.grad_norm, &y.grad_norm, sizeof x.grad_norm);
        }
        MUST(trainer_audit_settle(audited.trainer, E));
        for (; trainer_audited(audited.trainer, &a); records++) {
            assert_int_equal(a.step, records + 1);
            if (a.products != OUTPUTS || a.unknown || (a.codes > 0) != KINDS[c].codes)
                fail_msg("%s, step %lld: %lld products, %lld codes, %lld unknown", KINDS[c].name,
                         (long long)a.step, (long long)a.products, (long long)a.codes,
                         (long long)a.unknown);
        }
        assert_int_equal(records, STEPS);
        assert_null(trainer_audit_fault(audited.trainer));
        MUST(trainer_weights_sha256(plain.trainer, hash[0], E));
        MUST(trainer_weights_sha256(audited.trainer, hash[1], E));
        assert_string_equal(hash[0], hash[1]);
        tiny_run_close(&plain);
        tiny_run_close(&audited);
    }
}

/* The names of all GEMMs that were compared, each once. */
static int names_seen(struct tiny_run *r, char name[][96], int count, int most) {
    const struct audit_batch *b = &r->trainer->audit->batch[r->trainer->step % AUDIT_BATCHES];
    for (int i = 0; i < b->count; i++) {
        int j = 0;
        while (j < count && strcmp(name[j], b->entry[i].name)) j++;
        if (j < count || b->entry[i].cast) continue;
        assert_true(count < most);
        memcpy(name[count++], b->entry[i].name, 96);
    }
    return count;
}

/* 2 layers of 4 weights, and the head: three directions each. `layers` recompute. */
static void products_come_round(int64_t layers) {
    enum { MOST = 64 };
    char name[MOST][96];
    struct tiny_run r;
    struct step_result s;
    int count = 0;
    tiny_run_init(&r, RECIPE_BF16, 40);
    r.train.audit = (struct audit_options){ .every = 1, .outputs = 3 };
    r.train.recompute = RECOMPUTE_BLOCK;
    r.train.recompute_layers = layers;
    MUST(tiny_run_open(&r, E));
    for (int i = 0; i < r.trainer->audit->calls; i++) {
        MUST(trainer_step(r.trainer, false, &s, E));
        MUST(trainer_audit_settle(r.trainer, E));
        count = names_seen(&r, name, count, MOST);
        assert_true(r.trainer->audit->call == r.trainer->audit->calls); /* the count is right */
    }
    assert_int_equal(count, 3 * (2 * GEMM_SITE_COUNT + 1));
    tiny_run_close(&r);
}

static void all_products_come_round(void **state) {
    for (int64_t layers = 1; layers <= 2; layers++) products_come_round(layers);
}

/* A run without data, or that only evaluates, has no audit; the CPU has none by default. */
static void who_is_audited(void **state) {
    struct tiny_run r;
    tiny_run_init(&r, RECIPE_BF16, 2);
    r.train.audit = (struct audit_options){ AUDIT_BY_BACKEND, AUDIT_OUTPUTS };
    MUST(tiny_run_open(&r, E));
    assert_null(r.trainer->audit);
    tiny_run_close(&r);
    tiny_run_init(&r, RECIPE_BF16, 2);
    r.train.audit = (struct audit_options){ 1, AUDIT_OUTPUTS_MAX + 1 };
    struct err e = { 0 };
    assert_int_equal(tiny_run_open(&r, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "train.audit is every 1 steps 1025 outputs"));
    tiny_run_close(&r);
}

/* ---- faults ---- */

enum fault_kind { FAULT_PRODUCT, FAULT_WEIGHT, FAULT_WEIGHT_SCALE, FAULT_CODE,
                  FAULT_FACTOR, FAULT_AMAX };

/* A backend that is wrong in one way, from step 2 on. Its table is around the CPU's. */
static struct faulty {
    struct backend_ops ops;
    const struct backend_ops *inner;
    struct backend *b;
    struct trainer *t;
    enum fault_kind kind;
} faulty;

static bool strikes(void) { return faulty.t && faulty.t->step >= 1; }
static bool is_target(const struct matmul_args *a) {
    return a->name && !strcmp(a->name, "layers.1.ffn_in.weight") && a->direction == GEMM_FPROP;
}

/* The lowest bit of each of n bytes, but not of those that would become a NaN. */
static void flip(void *data, int64_t n) {
    unsigned char *x = data;
    for (int64_t i = 0; i < n; i++)
        if ((x[i] & 0x7F) < 0x7B) x[i] ^= 1;
}

static void flip_codes(const struct tensor *x) { flip(x->data, x->dim[0] * x->stride[0]); }

static void flip_factors(const struct tensor *x) {
    int64_t bytes = dtype_bytes(x->scale.dtype);
    for (int64_t at = 0; at < scale_bytes(&x->scale); at += bytes)
        flip((char *)x->scale.data + at, 1);
}

static enum status wrong_matmul(struct backend *b, int lane, const struct matmul_args *args,
                                struct err *e) {
    bool target = strikes() && is_target(args);
    int64_t bytes = tensor_count(args->out) * dtype_bytes(args->out->dtype);
    enum status st = faulty.inner->matmul(b, lane, args, e);
    if (target && faulty.kind == FAULT_PRODUCT) flip(args->out->data, bytes);
    return st;
}

/* Called just before an audited step's first GEMM: here bits of weights flip, after their cast. */
static enum status wrong_embedding(struct backend *b, int lane, const struct tensor *x,
                                   const struct tensor *tokens, const struct tensor *table,
                                   const struct tensor *position, const struct tensor *positions,
                                   struct err *e) {
    if (strikes() && faulty.t->audit) {
        const struct param *p = params_find(&faulty.t->params, "layers.1.ffn_in.weight");
        const struct tensor *codes = &p->weight.codes;
        if (faulty.kind == FAULT_WEIGHT) flip_codes(codes);
        if (faulty.kind == FAULT_WEIGHT_SCALE) flip_factors(codes);
    }
    return faulty.inner->embedding_fwd(b, lane, x, tokens, table, position, positions, e);
}

static enum status wrong_finish(struct backend *b, int lane, const struct sink *s, struct err *e) {
    TRY(faulty.inner->quantise_finish(b, lane, s, e));
    if (!strikes() || !s->codes) return OK;
    const struct tensor *twin = s->codes->transposed, *codes = s->codes->data ? s->codes : twin;
    if (faulty.kind == FAULT_CODE) {
        flip_codes(codes);
        if (twin && twin != codes) flip_codes(twin);
    }
    if (faulty.kind == FAULT_FACTOR) flip_factors(codes);
    if (faulty.kind == FAULT_FACTOR && twin && twin->scale.data != codes->scale.data)
        flip_factors(twin);
    if (faulty.kind == FAULT_AMAX && s->amax) *(uint32_t *)s->amax->data = 0x3A000000;
    return OK;
}

static void install(struct tiny_run *r, enum fault_kind kind) {
    faulty = (struct faulty){ .ops = *r->backend->ops, .inner = r->backend->ops, .b = r->backend,
                              .t = r->trainer, .kind = kind };
    faulty.ops.matmul = wrong_matmul;
    faulty.ops.quantise_finish = wrong_finish;
    faulty.ops.embedding_fwd = wrong_embedding;
    r->backend->ops = &faulty.ops;
}

static const struct fault_case {
    enum fault_kind fault;
    const char *name, *what; /* of the report */
    int kind;                /* of KINDS */
} FAULTS[] = {
    { FAULT_PRODUCT, "layers.1.ffn_in.weight fprop", "product", 1 },
    { FAULT_PRODUCT, "layers.1.ffn_in.weight fprop", "product", 4 },
    { FAULT_WEIGHT, "layers.1.ffn_in.weight codes", "code", 3 },
    { FAULT_WEIGHT, "layers.1.ffn_in.weight codes", "code", 8 },
    { FAULT_WEIGHT_SCALE, "layers.1.ffn_in.weight codes", "factor", 8 },
    { FAULT_CODE, "codes", "code", 5 },
    { FAULT_CODE, "codes", "code", 9 },
    { FAULT_FACTOR, "codes", "factor", 10 },
    { FAULT_FACTOR, "codes", "factor", 7 },
    { FAULT_AMAX, "codes", "", 5 },
};

/* The worker names the device and keeps what the value was computed from. */
static void check_report(struct tiny_run *r, const struct err *found) {
    char folder[] = "/tmp/fp8lab-audit-XXXXXX", path[128], text[4096] = "";
    struct err e = *found;
    assert_non_null(mkdtemp(folder));
    const struct audit_place o = { .run_path = folder };
    snprintf(path, sizeof path, "%s/data", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    audit_explain(&o, r->backend, r->trainer, &e);
    assert_non_null(strstr(e.text, "audit: the CPU: step "));
    assert_non_null(strstr(e.text, "its operands are in data/audit_fault.json"));
    snprintf(path, sizeof path, "%s/data/audit_fault.json", folder);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    static const char *const WORDS[] = {
        "fp8lab.audit_fault/1", "layers.1.ffn_in.weight fprop", "\"column\"", "\"expected\"",
        "\"name\": \"a\"", "\"name\": \"b\"", "\"shape\"", "\"way\"", "\"group\": 0",
    };
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++)
        if (n == 0 || !strstr(text, WORDS[i])) fail_msg("no %s in %s", WORDS[i], text);
    assert_int_equal(remove(path), 0);
    e = *found;
    e.code = ERR_IO; /* another error is left alone */
    audit_explain(&o, r->backend, r->trainer, &e);
    assert_string_equal(e.text, found->text);
    *strrchr(path, '/') = '\0';
    assert_true(rmdir(path) == 0 && rmdir(folder) == 0);
}

static void a_fault_ends_the_run(void **state) {
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
        const struct fault_case *c = &FAULTS[i];
        struct tiny_run r;
        struct step_result s;
        struct err e = { 0 };
        struct checkpoint_info info;
        open_run(&r, &KINDS[c->kind], 1);
        r.trainer->options.steps = 60;
        install(&r, c->fault);
        enum status st = OK;
        for (int step = 0; step < 30 && st == OK; step++) {
            st = trainer_step(r.trainer, false, &s, &e);
            /* Nothing is saved after a fault. */
            if (st == OK && i == 0) st = checkpoint_save(r.trainer, "/dev/null", &info, &e);
            else if (st == OK) st = trainer_audit_settle(r.trainer, &e);
            if (st == ERR_IO) st = OK;
        }
        const struct audit_fault *f = trainer_audit_fault(r.trainer);
        if (st != ERR_VERIFY || !f)
            fail_msg("fault %zu was not found: %s", i, st == OK ? "" : e.text);
        if (!strstr(f->name, c->name) || !strstr(f->what, c->what) || f->step < 2)
            fail_msg("fault %zu: %s", i, e.text);
        assert_true(f->found != f->expected && f->operand[0].x->data && f->operand[1].x->data);
        assert_non_null(strstr(e.text, "0x"));
        assert_true((f->way != NULL) == (c->fault == FAULT_PRODUCT));
        if (i == 0) check_report(&r, &e);
        assert_int_equal(checkpoint_save(r.trainer, "/dev/null", &info, &e), ERR_STATE);
        assert_int_equal(trainer_queue(r.trainer, false, &e), ERR_STATE);
        assert_non_null(strstr(e.text, "an audit found a difference"));
        r.backend->ops = faulty.inner;
        tiny_run_close(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(audited_steps_are_equal_and_change_no_bit),
        cmocka_unit_test(all_products_come_round),
        cmocka_unit_test(who_is_audited),
        cmocka_unit_test(a_fault_ends_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
