#include "runner/doctor/audit_check.h"

#include <jansson.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "model/train.h"
#include "runner/base/canonical.h"
#include "runner/base/clock.h"
#include "runner/plan/backends.h"

enum { LAYERS = 2, OUTPUTS = 256, KINDS = RECIPE_KIND_COUNT - RECIPE_BF16 };

/* GEMMs of usual sizes on a GPU; on a CPU a step takes milliseconds. Dimensions fit every recipe's
 * blocks and native GEMMs. */
static struct model_config model_for(bool gpu) {
    struct model_config m = {
        .vocab = 256, .seq_len = 64, .layers = LAYERS, .width = 128, .heads = 2, .kv_heads = 1,
        .head_dim = 64, .ffn = 256, .norm = NORM_RMS, .activation = ACTIVATION_SWIGLU,
        .positions = POSITION_ROPE, .rope = { .theta = 10000 }, .norm_eps = 1e-5, .init_std = 0.02,
    };
    if (!gpu) return m;
    m.vocab = 8192;
    m.seq_len = 512;
    m.width = 1024;
    m.heads = 8;
    m.kv_heads = 4;
    m.head_dim = 128;
    m.ffn = 2816;
    return m;
}

static struct train_options options_for(void) {
    return (struct train_options){
        .steps = INT32_MAX, .global_batch = 8, .micro_batch = 4, .seed = 1234,
        .grad_dtype = DTYPE_F32, .audit = { .every = 1, .outputs = OUTPUTS },
        .optimizer = { .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1,
                       .clip = 1, .state = STATE_F32, .master = true },
        .schedule = { .kind = SCHEDULE_CONSTANT, .warmup = 2, .final = 1 },
    };
}

/* Steps until the time has passed, at least one; adds what was equal to `sum`. */
static enum status train(struct trainer *t, int64_t until_ms, struct audit_record *sum,
                         struct err *e) {
    enum status st = OK;
    do {
        struct step_result r;
        struct audit_record a;
        st = trainer_step(t, false, &r, e);
        if (st == OK) st = trainer_audit_settle(t, e);
        while (trainer_audited(t, &a)) {
            sum->products += a.products;
            sum->codes += a.codes;
            sum->unknown += a.unknown;
        }
    } while (st == OK && clock_ms() < until_ms);
    return st;
}

static enum status train_recipe(struct backend *b, enum recipe_kind kind, int64_t milliseconds,
                                struct audit_record *sum, struct err *e) {
    struct recipe_options site[LAYERS * GEMM_SITE_COUNT];
    for (int i = 0; i < LAYERS * GEMM_SITE_COUNT; i++) site[i] = recipe_info(kind)->defaults;
    const struct recipe recipe = { .site = site, .layers = LAYERS,
                                   .head = { .kind = RECIPE_BF16 } };
    const struct model_config model = model_for(milliseconds > 0);
    const struct train_options options = options_for();
    const struct data_options tokens = { .kind = DATA_SYNTHETIC, .seed = 7 };
    struct data *data = NULL;
    struct trainer *t = NULL;
    TRY(b->ops->comm.init(b, NULL, e));
    TRY(data_open(&data, &tokens, model.vocab, model.seq_len, options.seed, e));
    enum status st = trainer_create(&t, b, &model, &recipe, &options, data, e);
    if (st == OK) st = train(t, clock_ms() + milliseconds, sum, e);
    trainer_destroy(t);
    data_close(data);
    return st;
}

enum status audit_check_run(const char *backend, int64_t device, int64_t seconds,
                            struct json_t **out, struct err *e) {
    struct audit_record sum = { 0 };
    struct err why = { 0 };
    enum status st = OK;
    int done = 0;
    for (int kind = RECIPE_BF16; kind < RECIPE_KIND_COUNT && st == OK; kind++, done++) {
        struct backend_handle h = { 0 };
        TRY(backend_open(backend, 0, device, &h, e));
        bool gpu = strcmp(h.backend->ops->name, "cpu") != 0;
        st = train_recipe(h.backend, (enum recipe_kind)kind, gpu ? seconds * 1000 / KINDS : 0, &sum,
                          &why);
        backend_close(&h);
    }
    if (st != OK && st != ERR_VERIFY) {
        *e = why;
        return st;
    }
    bool failed = false;
    json_t *object = json_pack("{s:I,s:I,s:I,s:i}", "products", sum.products, "codes", sum.codes,
                               "unknown", sum.unknown, "recipes", done);
    json_put(object, "difference", st == OK ? json_null() : json_from_text(why.text), &failed);
    *out = json_whole(object, failed);
    return *out ? OK : FAIL(e, ERR_MEMORY, "the answer of an audit");
}
