#include "runner/doctor/recipe_check.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "model/train.h"
#include "runner/base/canonical.h"
#include "runner/base/json_number.h"
#include "runner/bench/bench_measure.h"
#include "runner/plan/backends.h"
#include "runner/plan/options.h"

enum { GEMM_SIDE = 256, LAYERS = 2 };

/* ---- the GEMM ---------------------------------------------------------------------------------*/

/* Operands as the forward GEMM of a recipe has them. */
static enum status multiply(struct backend *b, enum recipe_kind kind, uint16_t *product,
                            uint64_t *print, struct err *e) {
    const struct recipe_info *info = recipe_info(kind);
    const int64_t n = GEMM_SIDE;
    struct bench_memory m = { .b = b };
    struct tensor left, right, out, sum = tensor_1d(NULL, DTYPE_U64, 1);
    struct matmul_args args = { .out = &out, .a = &left, .b = &right };
    enum dtype t = recipe_is_fp8(kind) ? DTYPE_E4M3 : DTYPE_BF16;
    if (scale_is_nvfp4(info->scale_x)) t = DTYPE_E2M1;
    enum status st = bench_operand(&m, &left, t, n, n, info->scale_x, false, e);
    if (st == OK) st = bench_operand(&m, &right, t, n, n, info->scale_w, false, e);
    if (st == OK) st = bench_tensor(&m, &out, DTYPE_BF16, n, n, 1, 1, e);
    if (st == OK) st = bench_zeros(&m, 8, &sum.data, e);
    if (st == OK) st = b->ops->matmul(b, LANE_COMPUTE, &args, e);
    if (st == OK) st = b->ops->fingerprint(b, LANE_COMPUTE, &sum, &out, e);
    if (st == OK) st = b->ops->download(b, LANE_COMPUTE, print, sum.data, 8, e);
    if (st == OK) st = b->ops->download(b, LANE_COMPUTE, product, out.data, n * n * 2, e);
    bench_free(&m);
    return st;
}

static double nmse(const uint16_t *got, const uint16_t *wanted, int64_t n) {
    double wrong = 0, all = 0;
    for (int64_t i = 0; i < n; i++) {
        double w = (double)bf16_decode(wanted[i]), g = (double)bf16_decode(got[i]);
        wrong += (g - w) * (g - w);
        all += w * w;
    }
    return wrong / all;
}

/* Computes the product here and, unless this is the reference, on the reference. */
static enum status check_gemm(struct backend *b, struct recipe_check *c, struct err *e) {
    const int64_t count = (int64_t)GEMM_SIDE * GEMM_SIDE;
    uint16_t *here = malloc((size_t)count * 4), *there = here ? here + count : NULL;
    if (!here) return FAIL(e, ERR_MEMORY, "two products of %d x %d", GEMM_SIDE, GEMM_SIDE);
    struct backend_handle cpu = { 0 };
    uint64_t ignored;
    enum status st = multiply(b, c->kind, here, &c->gemm_print, e);
    if (st == OK && strcmp(b->ops->name, "cpu") != 0) {
        st = backend_open("cpu", 0, 0, &cpu, e);
        if (st == OK) st = multiply(cpu.backend, c->kind, there, &ignored, e);
        if (st == OK) c->gemm_nmse = nmse(here, there, count);
        backend_close(&cpu);
    }
    free(here);
    return st;
}

/* ---- the training -----------------------------------------------------------------------------*/

/* A small model in which every GEMM of every recipe can run natively on some device. Dimensions are
 * multiples of 128 and 16, as blocks and codes need. Head sizes are as attention kernels need. */
static const struct model_config MODEL = {
    .vocab = 256, .seq_len = 64, .layers = LAYERS, .width = 128, .heads = 2, .kv_heads = 1,
    .head_dim = 64, .ffn = 256, .norm = NORM_RMS, .activation = ACTIVATION_SWIGLU,
    .positions = POSITION_ROPE, .rope = { .theta = 10000 }, .norm_eps = 1e-5, .init_std = 0.02,
};
static const struct train_options TRAIN = {
    .steps = RECIPE_CHECK_STEPS, .global_batch = 4, .micro_batch = 4, .seed = 1234,
    .grad_dtype = DTYPE_F32,
    .optimizer = { .lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1,
                   .clip = 1, .state = STATE_F32, .master = true },
    .schedule = { .kind = SCHEDULE_CONSTANT, .warmup = 2, .final = 1 },
};

static enum status train(struct trainer *t, struct recipe_check *c, struct err *e) {
    for (int i = 0; i < RECIPE_CHECK_STEPS; i++) {
        struct step_result r;
        TRY(trainer_step(t, false, &r, e));
        c->loss[i] = r.loss;
    }
    return trainer_weights_sha256(t, c->weights_sha256, e);
}

static enum status check_training(struct backend *b, struct recipe_check *c, struct err *e) {
    struct recipe_options site[LAYERS * GEMM_SITE_COUNT], base = recipe_info(c->kind)->defaults;
    for (int i = 0; i < LAYERS * GEMM_SITE_COUNT; i++) site[i] = base;
    const struct recipe recipe = { .site = site, .layers = LAYERS,
                                   .head = { .kind = RECIPE_BF16 } };
    const struct data_options tokens = { .kind = DATA_SYNTHETIC, .seed = 7 };
    struct data *data = NULL;
    struct trainer *t = NULL;
    TRY(b->ops->comm.init(b, NULL, e));
    TRY(data_open(&data, &tokens, MODEL.vocab, MODEL.seq_len, TRAIN.seed, e));
    enum status st = trainer_create(&t, b, &MODEL, &recipe, &TRAIN, data, e);
    if (st == OK) st = train(t, c, e);
    trainer_destroy(t);
    data_close(data);
    return st;
}

/* Counts the backend's decisions on the model's own GEMMs. */
static void count_ways(struct backend *b, struct recipe_check *c) {
    struct decision d;
    for (int64_t i = 0; b->ops->decision(b, i, &d); i++) {
        if (strcmp(d.section, "gemm") != 0 || !strncmp(d.name, "head", 4)) continue;
        /* BF16 is right for a BF16 recipe and wrong for an FP8 one */
        c->native += !strcmp(d.way, "native") || (c->kind == RECIPE_BF16 && !strcmp(d.way, "bf16"));
        c->emulated += !strcmp(d.way, "emulated");
    }
}

/* ---- the whole --------------------------------------------------------------------------------*/

void recipe_check_run(enum recipe_kind kind, const char *backend, int64_t device, const char *caps,
                      struct recipe_check *out) {
    struct backend_handle h = { 0 };
    struct err e;
    *out = (struct recipe_check){ .kind = kind };
    enum status st = backend_open(backend, 0, device, &h, &e);
    if (st == OK && caps) st = h.backend->ops->assume_architecture(h.backend, caps, &e);
    if (st == OK) st = check_gemm(h.backend, out, &e);
    if (st == OK) st = check_training(h.backend, out, &e);
    if (st == OK) count_ways(h.backend, out);
    out->status = st;
    if (st != OK) snprintf(out->problem, sizeof out->problem, "%.500s", e.text);
    backend_close(&h);
}

json_t *recipe_check_json(const struct recipe_check *c) {
    json_t *losses = json_array(), *bits = json_array();
    bool failed = false;
    for (int i = 0; i < RECIPE_CHECK_STEPS; i++) {
        uint32_t word;
        memcpy(&word, &c->loss[i], sizeof word);
        json_append(bits, json_sprintf("%08" PRIx32, word), &failed);
        json_append(losses, json_finite((double)c->loss[i]),
                    &failed);
    }
    json_t *object = json_pack(
        "{s:s,s:s,s:o,s:I,s:I,s:f,s:o,s:o,s:o,s:s}", "recipe", RECIPE_KIND_NAMES[c->kind], "status",
        status_name(c->status), "problem", *c->problem ? json_from_text(c->problem) : json_null(),
        "native", (json_int_t)c->native, "emulated", (json_int_t)c->emulated, "gemm_nmse",
        isfinite(c->gemm_nmse) ? c->gemm_nmse : 1.0, "gemm_print",
        json_sprintf("%016" PRIx64, c->gemm_print), "losses", losses, "loss_bits", bits,
        "weights_sha256", c->weights_sha256);
    return json_whole(object, failed);
}
