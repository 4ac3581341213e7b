#include "runner/certify/ways.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "model/ground/json_safe.h"
#include "model/train.h"
#include "runner/base/run_files.h"
#include "runner/plan/dry_backend.h"
#include "runner/plan/options.h"

enum { FILE_MAX = 1 << 20 };

/* Notes what the operators of a step are called with. */
struct recorder {
    struct dry_backend dry; /* first member, as of each backend */
    struct backend_ops ops;
    struct ways *ways;
    int64_t window; /* of attention; 0: none */
    bool documents; /* attention stays within a document */
    enum attention_backend kernel; /* of attention */
};

void ways_free(struct ways *w) {
    free(w->way);
    *w = (struct ways){ 0 };
}

static enum status add(struct ways *w, const struct certify_way *way, struct err *e) {
    char text[WAY_TEXT_CAP], other[WAY_TEXT_CAP];
    for (int64_t i = 0; i < w->count; i++) /* as in the layer before: no text is needed */
        if (!memcmp(&w->way[i], way, sizeof *way)) return OK;
    certify_way_text(way, text);
    for (int64_t i = 0; i < w->count; i++) {
        certify_way_text(&w->way[i], other);
        if (!strcmp(text, other)) return OK;
    }
    if (w->count == w->cap) {
        int64_t cap = w->cap ? 2 * w->cap : 64;
        struct certify_way *more = realloc(w->way, (size_t)cap * sizeof *more);
        if (!more) return FAIL(e, ERR_MEMORY, "no memory for the ways of a run");
        w->way = more;
        w->cap = cap;
    }
    w->way[w->count++] = *way;
    return OK;
}

/* ---- names ------------------------------------------------------------------------------------*/

const char *way_section_name(enum way_section s) {
    return s == WAY_GEMM ? "gemm" : s == WAY_CAST ? "cast" : "attention";
}

bool way_may_use(const struct certify_way *w, const char *name) {
    char gemm[FORBIDDEN_WAY_CAP];
    const char *section = way_section_name(w->section), *way = name + strlen(section);
    if (strncmp(name, section, strlen(section)) != 0 || *way++ != ' ') return false;
    if (w->section == WAY_CAST) return false;
    if (w->section == WAY_ATTENTION) /* a run that asks for cuDNN is refused without it */
        return !strcmp(way, "cudnn") ? w->kernel == ATTENTION_AUTO
                                     : !strcmp(way, "wgmma") && w->kernel != ATTENTION_CUDNN;
    certify_gemm_name(w, gemm);
    return dtype_is_fp8(w->a) && !strcmp(way, gemm);
}

/* ---- of a configuration -----------------------------------------------------------------------*/

static struct ways *ways_of(struct backend *b) { return ((struct recorder *)b)->ways; }

/* As certify_way has it. */
static bool is_transposed(const struct tensor *x) {
    if (dtype_is_fp8(x->dtype)) return fp8_is_untransposed(x);
    return x->stride[0] == 1 && x->stride[1] != 1;
}

static enum status note_matmul(struct backend *b, int lane, const struct matmul_args *t,
                               struct err *e) {
    struct certify_way w;
    memset(&w, 0, sizeof w);
    if (t->a->dtype == DTYPE_F32 || t->b->dtype == DTYPE_F32) return OK;
    w.section = WAY_GEMM;
    w.m = t->a->dim[0];
    w.n = t->b->dim[0];
    w.k = t->a->dim[1];
    w.a = t->a->dtype;
    w.b = t->b->dtype;
    w.out = t->out->dtype;
    w.scale_a = t->a->scale.kind;
    w.scale_b = t->b->scale.kind;
    w.transposed_a = is_transposed(t->a);
    w.transposed_b = is_transposed(t->b);
    w.fast = t->fast_accumulate && dtype_is_fp8(w.a);
    w.beta = t->beta != 0.0f;
    w.bias = t->bias != NULL;
    w.bias_dtype = t->bias ? t->bias->dtype : DTYPE_F32;
    w.residual = t->residual != NULL;
    return add(ways_of(b), &w, e);
}

/* Every producer's sink comes here before its codes are read. */
static enum status note_finish(struct backend *b, int lane, const struct sink *s, struct err *e) {
    struct certify_way w;
    memset(&w, 0, sizeof w);
    if (!s->codes || s->value->dtype != DTYPE_BF16) return OK;
    w.section = WAY_CAST;
    w.m = tensor_rows(s->value);
    w.k = tensor_cols(s->value);
    w.a = s->value->dtype;
    w.b = s->codes->dtype;
    w.scale_b = s->codes->scale.kind;
    w.source = s->source;
    w.rule = s->rule;
    w.codes = s->codes->data != NULL;
    w.twin = s->codes->transposed != NULL;
    w.untransposed = w.twin && fp8_is_untransposed(s->codes->transposed);
    w.own_amax = s->own_amax;
    w.rotate = s->rotate;
    w.draws = s->draws != NULL;
    return add(ways_of(b), &w, e);
}

static struct certify_way attention_way(struct backend *b, const struct tensor *qkv, int64_t heads,
                                        int64_t kv_heads) {
    const struct recorder *r = (const struct recorder *)b;
    struct certify_way w;
    memset(&w, 0, sizeof w);
    w.section = WAY_ATTENTION;
    w.a = qkv->dtype;
    w.batch = qkv->dim[0];
    w.length = qkv->dim[1];
    w.head_dim = qkv->dim[3];
    w.heads = heads;
    w.kv_heads = kv_heads;
    w.window = r->window;
    w.documents = r->documents;
    w.kernel = r->kernel;
    return w;
}

/* Of a model that only goes forward. */
static enum status note_forward(struct backend *b, int lane, const struct attention_fwd_args *t,
                                struct err *e) {
    struct certify_way w = attention_way(b, t->qkv, t->heads, t->kv_heads);
    return t->qkv->dtype == DTYPE_BF16 ? add(ways_of(b), &w, e) : OK;
}

/* Backward knows the dtypes of both directions. */
static enum status note_attention(struct backend *b, int lane, const struct attention_bwd_args *t,
                                  struct err *e) {
    struct certify_way w = attention_way(b, t->qkv, t->heads, t->kv_heads);
    bool fp8 = t->qkv->dtype == DTYPE_E4M3;
    if (t->qkv->dtype != DTYPE_BF16 && !fp8) return OK;
    if (fp8) w.b = t->ds->code;
    if (fp8) w.out = t->o->dtype;
    return add(ways_of(b), &w, e);
}

/* Forward in BF16 begins with the second step, so that two steps have both. */
static void switch_early(struct recipe *recipe) {
    for (int64_t i = 0; i < recipe->layers * GEMM_SITE_COUNT; i++)
        if (recipe->site[i].forward_bf16_after > 0) recipe->site[i].forward_bf16_after = 1;
    if (recipe->head.forward_bf16_after > 0) recipe->head.forward_bf16_after = 1;
}

/* An evaluation and two steps: whatever differs between the steps of a run. */
static enum status queue_all(struct trainer *t, bool forward_only, struct err *e) {
    struct eval_result ignored;
    TRY(trainer_eval(t, 1, &ignored, e));
    if (forward_only) return OK;
    TRY(trainer_queue(t, false, e));
    return trainer_queue(t, false, e);
}

static bool twins_are_untransposed(struct backend *b, enum scale_kind kind) {
    return scale_is_mxfp8(kind);
}

/* native: whether the device multiplies FP8 itself. */
static enum status record_on(const struct run_options *run, int ranks, bool untransposed,
                             bool native, struct ways *out, struct err *e) {
    const struct data_options tokens = { .kind = DATA_SYNTHETIC, .seed = 1 };
    struct recorder r = { .ways = out, .documents = run->train.documents.mask,
                          .kernel = run->attention,
                          .window = model_has_window(&run->model) ? run->model.window : 0 };
    struct train_options train = run->train;
    struct data *data = NULL;
    struct trainer *t = NULL;
    train.documents = (struct document_options){ 0 };
    dry_backend_open(&r.dry, ranks, native);
    r.ops = *r.dry.base.ops;
    r.ops.matmul = note_matmul;
    r.ops.quantise_finish = note_finish;
    if (train.forward_only) r.ops.attention_fwd = note_forward;
    r.ops.attention_bwd = note_attention;
    if (untransposed) r.ops.twins_untransposed = twins_are_untransposed;
    r.dry.base.ops = &r.ops;
    TRY(data_open(&data, &tokens, run->model.vocab, run->model.seq_len, train.seed, e));
    enum status st = trainer_create(&t, &r.dry.base, &run->model, &run->recipe, &train, data, e);
    if (st == OK) st = queue_all(t, train.forward_only, e);
    trainer_destroy(t);
    data_close(data);
    return st;
}

static bool may_fall_back(const struct recipe *r) {
    bool may = r->head.fall_back;
    for (int64_t i = 0; i < r->layers * GEMM_SITE_COUNT; i++) may = may || r->site[i].fall_back;
    return may;
}

/* A recipe with a fallback may run in BF16 here, or will because a way of its own fails. */
static enum status record(const struct run_options *run, int ranks, bool untransposed,
                          struct ways *out, struct err *e) {
    TRY(record_on(run, ranks, untransposed, true, out, e));
    return may_fall_back(&run->recipe) ? record_on(run, ranks, untransposed, false, out, e) : OK;
}

enum status ways_of_model(const struct run_options *run, struct ways *out, struct err *e) {
    *out = (struct ways){ 0 };
    enum status st = record(run, 1, false, out, e); /* forward reads no twin */
    if (st != OK) ways_free(out);
    return st;
}

unsigned ways_twins(const char *caps, const json_t *facts) {
    struct err ignored;
    int cc, major, minor;
    bool mixed = json_is_true(json_object_get(facts, "gpu.mixed"));
    if (caps) {
        if (device_capability(caps, &cc, &ignored) != OK) return TWINS_TRANSPOSED;
    } else {
        bool known = sscanf(json_text(facts, "gpu.cc", ""), "%d.%d", &major, &minor) == 2;
        if (mixed || !known) return TWINS_TRANSPOSED | TWINS_UNTRANSPOSED;
        cc = 10 * major + minor;
    }
    return device_twins_untransposed(cc, SCALE_1X32) ? TWINS_UNTRANSPOSED : TWINS_TRANSPOSED;
}

enum status ways_of_config(const struct json_t *config, int ranks, unsigned twins,
                           struct ways *out, struct err *e) {
    struct run_options run;
    enum status st = OK;
    *out = (struct ways){ 0 };
    TRY(options_read(config, &run, e));
    int64_t of_micro = run.train.micro_batch * ranks;
    if (run.train.global_batch > of_micro) /* the second of two micro-steps adds to gradients */
        run.train.global_batch = 2 * of_micro;
    switch_early(&run.recipe);
    if (twins & TWINS_TRANSPOSED) st = record(&run, ranks, false, out, e);
    if (st == OK && twins & TWINS_UNTRANSPOSED) st = record(&run, ranks, true, out, e);
    options_free(&run);
    if (st != OK) ways_free(out);
    return st;
}

/* ---- a file -----------------------------------------------------------------------------------*/

enum status ways_write(const struct ways *w, int fd, struct err *e) {
    return write_all(fd, w->way, (size_t)w->count * sizeof *w->way, "the ways of a model", e);
}

enum status ways_read(const char *path, struct ways *out, struct err *e) {
    char *text = NULL;
    size_t bytes = 0;
    *out = (struct ways){ 0 };
    TRY(file_read(path, FILE_MAX, &text, &bytes, e));
    enum status st = bytes % sizeof *out->way
        ? FAIL(e, ERR_FORMAT, "%s is not a file of ways: it has %zu bytes", path, bytes) : OK;
    for (size_t at = 0; at < bytes && st == OK; at += sizeof *out->way) {
        struct certify_way way;
        memcpy(&way, text + at, sizeof way);
        st = add(out, &way, e);
    }
    if (st != OK) ways_free(out);
    free(text);
    return st;
}

/* ---- for doctor -------------------------------------------------------------------------------*/

#define PRODUCT(M, N, K, A, B, OUT, SA, SB, ...)                                                  \
    { .section = WAY_GEMM, .m = M, .n = N, .k = K, .a = DTYPE_##A, .b = DTYPE_##B,                \
      .out = DTYPE_##OUT, .scale_a = SCALE_##SA, .scale_b = SCALE_##SB, __VA_ARGS__ }
#define GEMM(...) PRODUCT(512, 768, 1024, __VA_ARGS__)
#define LONG_GEMM(...) PRODUCT(1024, 1024, 8192, __VA_ARGS__)
#define CAST(CODE, KIND, SOURCE, ...)                                                             \
    { .section = WAY_CAST, .m = 256, .k = 768, .a = DTYPE_BF16, .b = DTYPE_##CODE,                \
      .scale_b = SCALE_##KIND, .source = SCALE_SOURCE_##SOURCE, .codes = true, __VA_ARGS__ }
#define ATTENTION(LENGTH, HEADS, KV, DIM, ...)                                                    \
    { .section = WAY_ATTENTION, .a = DTYPE_BF16, .batch = 2, .length = LENGTH, .heads = HEADS,    \
      .kv_heads = KV, .head_dim = DIM, __VA_ARGS__ }

/* Outputs in f32 where there is a choice: they tell more arithmetics apart. A long K does, too,
 * where scales are bytes: no such device was compared yet, and its report shall say which model it
 * follows. */
static const struct certify_way STANDARD[] = {
    GEMM(BF16, BF16, BF16, NONE, NONE, .fast = false),
    GEMM(BF16, BF16, F32, NONE, NONE, .transposed_a = true, .transposed_b = true, .beta = true),
    GEMM(E4M3, E4M3, F32, TENSOR, TENSOR, .fast = true),
    GEMM(E5M2, E4M3, F32, TENSOR, TENSOR, .fast = false),
    GEMM(E4M3, E4M3, F32, ROW, ROW, .fast = true),
    GEMM(E4M3, E4M3, BF16, 1X128, 128X128, .fast = false),
    GEMM(E4M3, E4M3, F32, 1X128, 1X128, .beta = true),
    LONG_GEMM(E4M3, E4M3, F32, 1X32, 1X32, .fast = false),
    LONG_GEMM(E4M3, E4M3, F32, 1X32, 32X32, .fast = false),
    LONG_GEMM(E4M3, E4M3, F32, 1X32, 1X32, .transposed_b = true),
    LONG_GEMM(E4M3, E4M3, F32, 1X32, 32X32, .transposed_b = true),
    LONG_GEMM(E4M3, E4M3, F32, 1X32, 1X32, .transposed_a = true, .transposed_b = true,
              .beta = true),
    LONG_GEMM(E2M1, E2M1, F32, 1X16, 16X16, .fast = false),
    LONG_GEMM(E2M1, E2M1, F32, 1X16, 1X16, .beta = true),
    CAST(E4M3, TENSOR, KNOWN, .twin = true),
    CAST(E5M2, TENSOR, AMAX, .own_amax = true),
    CAST(E4M3, ROW, BLOCK, .twin = true, .rule = { QUANT_TORCHAO, 1e-12f, false }),
    CAST(E4M3, 1X128, BLOCK, .twin = true, .rule = { QUANT_TE_BLOCK, 0, true }),
    CAST(E4M3, 1X32, BLOCK, .twin = true, .rule = { QUANT_MX, 0, true }),
    CAST(E4M3, 1X32, BLOCK, .twin = true, .untransposed = true, .rule = { QUANT_MX, 0, true }),
    CAST(E4M3, 32X32, BLOCK, .twin = true, .untransposed = true, .rule = { QUANT_MX, 0, true }),
    CAST(E2M1, 1X16, AMAX, .draws = true, .rule = { QUANT_NVFP4, 0, false }),
    CAST(E2M1, 1X16, AMAX, .twin = true, .rotate = true, .draws = true,
         .rule = { QUANT_NVFP4, 0, false }),
    CAST(E2M1, 16X16, AMAX, .twin = true, .rule = { QUANT_NVFP4, 0, false }),
    ATTENTION(192, 4, 2, 64, .window = 0),
    ATTENTION(192, 2, 2, 128, .window = 0),
    ATTENTION(192, 4, 2, 64, .window = 50, .documents = true),
    ATTENTION(512, 2, 2, 128, .window = 0), /* long enough for cuDNN, where it serves */
    { .section = WAY_ATTENTION, .a = DTYPE_E4M3, .b = DTYPE_E5M2, .out = DTYPE_E4M3, .batch = 2,
      .length = 192, .heads = 4, .kv_heads = 2, .head_dim = 64 },
};

static bool has_untransposed(const struct certify_way *w) {
    return w->untransposed ||
           (w->section == WAY_GEMM && w->a == DTYPE_E4M3 && (w->transposed_a || w->transposed_b));
}

enum status ways_standard(unsigned twins, struct ways *out, struct err *e) {
    *out = (struct ways){ 0 };
    for (size_t i = 0; i < sizeof STANDARD / sizeof *STANDARD; i++) {
        if (has_untransposed(&STANDARD[i]) && !(twins & TWINS_UNTRANSPOSED)) continue;
        enum status st = add(out, &STANDARD[i], e);
        if (st != OK) ways_free(out);
        TRY(st);
    }
    return OK;
}
