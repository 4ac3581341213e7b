#include "kernels/certify/certify.h"

#include <stdio.h>

#include "kernels/certify/attention_check.h"
#include "kernels/certify/cast_check.h"
#include "kernels/certify/gemm_check.h"

/* ---- a GEMM ---- */

enum { EDGES = 4 };
/* Small shapes: three, and of FP8 with one factor a tensor or a row a fourth, whose M and N are
 * odd. Blocks of codes have sides of at least 8. */
static int edge_count(const struct certify_way *w) {
    return dtype_is_fp8(w->a) && !trial_block(w->scale_a) ? EDGES : EDGES - 1;
}

/* One block along K, tails in each direction, the worst alignment that is allowed. `native`: the
 * library multiplies the codes, and for scales of one byte it wants M and N in eights and K in 32s,
 * M or N of an untransposed twin in 16s (kernels/cuda/native.h). */
static void edge_shapes(const struct certify_way *w, bool native, int64_t shape[EDGES][3]) {
    static const int64_t BF16[EDGES][3] = { { 37, 53, 100 }, { 8, 8, 8 }, { 130, 264, 72 } };
    static const int64_t FP8[EDGES][3] = { { 80, 144, 0 }, { 48, 272, 400 }, { 144, 16, 656 },
                                           { 37, 53, 112 } };
    static const int64_t BYTES[EDGES][3] = { { 72, 136, 32 }, { 40, 264, 416 }, { 136, 24, 672 } };
    int64_t block = trial_block(w->scale_a);
    bool bytes = native && (block == 32 || block == 16);
    memcpy(shape, bytes ? BYTES : dtype_is_fp8(w->a) ? FP8 : BF16, sizeof BF16);
    if (dtype_is_fp8(w->a) && !bytes) shape[0][2] = block ? block : FP8_ROW_ALIGN;
    for (int i = 0; i < edge_count(w) && bytes; i++) { /* the lines of an untransposed twin */
        if (w->transposed_a) shape[i][0] = round_up(shape[i][0], FP8_ROW_ALIGN);
        if (w->transposed_b) shape[i][1] = round_up(shape[i][1], FP8_ROW_ALIGN);
    }
}

static enum status is_native(const struct gemm_trial *t, bool *native, struct err *e) {
    struct matmul_args args = gemm_trial_args(t);
    *native = false;
    if (!dtype_is_fp8(t->way->a)) return OK;
    return t->b->ops->matmul_native(t->b, &args, native, e);
}

/* One trial; `native`: the way of the run's own shape, others are skipped (*ran false). */
static enum status try_shape(struct backend *b, const struct certify_way *way,
                             const int64_t shape[3], enum trial_fill fill,
                             const struct arithmetic *known, const bool *native,
                             struct certificate *out, struct err *e) {
    struct gemm_trial t;
    bool same = true;
    enum status st = gemm_trial_open(&t, b, way, shape, fill, e);
    if (st == OK) st = is_native(&t, &same, e);
    bool runs = !dtype_is_fp8(way->a) || same == *native;
    out->shapes += runs && fill == TRIAL_WHOLE;
    if (st == OK && runs)
        st = fill == TRIAL_WHOLE ? gemm_check_whole(&t, out, e)
                                 : gemm_check_noise(&t, known, *native, out, e);
    gemm_trial_free(&t);
    return st;
}

/* Sets `how` and the name for forbid(). */
static enum status name_way(struct backend *b, const struct certify_way *way, bool *native,
                            struct certificate *out, struct err *e) {
    const int64_t shape[3] = { way->m, way->n, way->k };
    struct gemm_trial t = { .b = b, .way = way, .m = shape[0], .n = shape[1], .k = shape[2] };
    t.a.view = certify_operand(way, false, way->m, way->k);
    t.w.view = certify_operand(way, true, way->n, way->k);
    t.out = tensor_2d(NULL, way->out, way->m, way->n);
    TRY(is_native(&t, native, e));
    const char *fp8 = *native ? "native" : "emulated";
    snprintf(out->how, sizeof out->how, "%s", dtype_is_fp8(way->a) ? fp8 : dtype_name(way->a));
    if (*native) certify_gemm_name(way, out->forbid);
    return OK;
}

static enum status certify_gemm(struct backend *b, const struct arithmetic *known,
                                const struct certify_way *way, struct certificate *out,
                                struct err *e) {
    int64_t shape[EDGES][3];
    const int64_t own[3] = { way->m, way->n, way->k };
    bool native;
    TRY(name_way(b, way, &native, out, e));
    edge_shapes(way, native, shape);
    for (int i = 0; i < edge_count(way) && out->outcome == CERTIFY_PASSED; i++)
        TRY(try_shape(b, way, shape[i], TRIAL_WHOLE, known, &native, out, e));
    if (out->outcome == CERTIFY_PASSED)
        TRY(try_shape(b, way, own, TRIAL_WHOLE, known, &native, out, e));
    if (out->outcome != CERTIFY_PASSED) return OK;
    return try_shape(b, way, own, TRIAL_NOISE, known, &native, out, e);
}

/* ---- any way ---- */

/* Of a GEMM also how many shapes ran: a library may lack the mode for some of the small ones. */
static void say_passed(struct certificate *out) {
    const bool gemm = out->way.section == WAY_GEMM, bits = gemm && out->bound == 0;
    const int all = edge_count(&out->way) + 1;
    char shapes[48] = "", lacks[64] = "";
    if (gemm) snprintf(shapes, sizeof shapes, " of %d of %d shapes", out->shapes, all);
    if (gemm && out->shapes < all)
        snprintf(lacks, sizeof lacks, ", other shapes are not %s here", out->how);
    snprintf(out->found, sizeof out->found, "%lld outputs%s are right%s; %s %.3g",
             (long long)out->outputs, shapes, lacks,
             bits ? "those on noise have the bits of its arithmetic, the worst off the exact sum by"
                  : "the largest error on noise is", out->error);
}

enum status certify(struct backend *b, struct backend *reference, const struct certify_way *way,
                    struct certificate *out, struct err *e) {
    struct device_info info;
    memset(out, 0, sizeof *out);
    out->way = *way;
    TRY(b->ops->info(b, &info, e));
    enum status st = OK;
    if (way->section == WAY_GEMM)
        st = certify_gemm(b, certify_known(info.architecture), way, out, e);
    else if (way->section == WAY_CAST) st = certify_cast(b, reference, way, out, e);
    else st = certify_attention(b, way, out, e);
    if (st == ERR_UNSUPPORTED) {
        out->outcome = CERTIFY_ABSENT;
        snprintf(out->found, sizeof out->found, "%.250s", e->text);
        return OK;
    }
    if (st == OK && out->outcome == CERTIFY_PASSED) say_passed(out);
    return st;
}
