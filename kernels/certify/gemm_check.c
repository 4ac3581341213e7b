#include "kernels/certify/gemm_check.h"

#include <math.h>
#include <stdio.h>

#include "kernels/nvfp4.h"

enum { GARBAGE_NAN = 0xFF, GARBAGE_NUMBER = 0x42 };

/* Mistakes of a kernel that the outputs can tell. */
enum mistake_kind { NO_MISTAKE, IGNORED, SWAPPED, TRANSPOSED, CUT, TENSOR_IGNORED, K_TAIL,
                    CODES_TRANSPOSED };
enum { OF_A = 1, OF_W = 2, OF_BOTH = OF_A | OF_W };

/* Of which operands; its name, and what the outputs equal then. */
struct mistake { enum mistake_kind kind; unsigned of; const char *name, *text; };
static const struct mistake RIGHT = { NO_MISTAKE, 0, "", "" };
static const struct mistake MISTAKES[] = {
    { IGNORED, OF_A, "ignored scale", "as without the scale of a" },
    { IGNORED, OF_W, "ignored scale", "as without the scale of b" },
    { IGNORED, OF_BOTH, "ignored scale", "as without scales" },
    { SWAPPED, OF_A, "swapped blocks", "as with neighbouring scale blocks of a exchanged" },
    { SWAPPED, OF_W, "swapped blocks", "as with neighbouring scale blocks of b exchanged" },
    { SWAPPED, OF_BOTH, "swapped blocks", "as with neighbouring scale blocks exchanged" },
    { TRANSPOSED, OF_A, "transposed scales", "as with the scale of a read column by column" },
    { TRANSPOSED, OF_W, "transposed scales", "as with the scale of b read column by column" },
    { TRANSPOSED, OF_BOTH, "transposed scales", "as with both scales read column by column" },
    { CUT, OF_A, "cut scale", "as with the scale of a cut to powers of two" },
    { CUT, OF_W, "cut scale", "as with the scale of b cut to powers of two" },
    { CUT, OF_BOTH, "cut scale", "as with both scales cut to powers of two" },
    { TENSOR_IGNORED, OF_A, "ignored tensor factor", "as without the factor of tensor a" },
    { TENSOR_IGNORED, OF_W, "ignored tensor factor", "as without the factor of tensor b" },
    { TENSOR_IGNORED, OF_BOTH, "ignored tensor factor", "as without the factors of both tensors" },
    { K_TAIL, OF_BOTH, "tail of K", "as without the last products along K" },
    { CODES_TRANSPOSED, OF_A, "transposed codes", "as with the twin a read as a transposed one" },
    { CODES_TRANSPOSED, OF_W, "transposed codes", "as with the twin b read as a transposed one" },
    { CODES_TRANSPOSED, OF_BOTH, "transposed codes", "as with twins read as transposed ones" },
};
enum { MISTAKE_COUNT = sizeof MISTAKES / sizeof *MISTAKES };

/* ---- the value ---- */

/* x without its mantissa; a NaN stays. */
static float power_of_two(float x) {
    return isnan(x) ? x : f32_from_bits(f32_bits(x) & 0xFF800000u);
}

/* The factor of block `at` of a row, with a mistake. */
static float factor(const struct trial_operand *o, int64_t row, int64_t at, enum mistake_kind m) {
    int64_t count = o->view.scale.dim[1];
    if (m == IGNORED) return 1.0f;
    if (m == SWAPPED && (at ^ 1) < count) at ^= 1;
    int64_t index = trial_factor_index(o, row, at);
    if (m == TRANSPOSED) index = index % count * o->view.scale.dim[0] + index / count;
    float x = trial_factor_at(o, index);
    return m == CUT ? power_of_two(x) : x;
}

static float value(const struct trial_operand *o, int64_t row, int64_t k, enum mistake_kind m) {
    return m == CODES_TRANSPOSED ? trial_value_of_rows(o, row, k) : trial_value(o, row, k);
}

/* The last products along K that one instruction of the widest group does not fill. */
static int64_t k_end(const struct gemm_trial *t, enum mistake_kind m) {
    const int64_t group = 32, rest = t->k % group;
    if (m != K_TAIL) return t->k;
    return t->k - (rest ? rest : t->k < group ? t->k : group);
}

/* A block whose scale is NaN makes the output NaN, whatever its codes are. */
static bool has_nan_factor(const struct trial_operand *o, int64_t row, int64_t end,
                           enum mistake_kind m) {
    if (!scale_is_nvfp4(o->view.scale.kind)) return false;
    for (int64_t k = 0; k < end; k += NVFP4_BLOCK)
        if (isnan(factor(o, row, k / NVFP4_BLOCK, m))) return true;
    return false;
}

/* NVFP4's factor of both tensors. */
static double tensor_factor(const struct gemm_trial *t, const struct mistake *m) {
    double all = (double)trial_tensor_factor(t);
    if (m->kind != TENSOR_IGNORED || !scale_is_nvfp4(t->way->scale_a)) return all;
    if (m->of == OF_BOTH) return 1.0;
    return (double)nvfp4_tensor_factor(m->of == OF_A ? t->w.amax : t->a.amax);
}

static double sum_with(const struct gemm_trial *t, int64_t row, int64_t col,
                       const struct mistake *m) {
    const struct trial_operand *a = &t->a, *w = &t->w;
    enum mistake_kind of_a = m->of & OF_A ? m->kind : NO_MISTAKE;
    enum mistake_kind of_w = m->of & OF_W ? m->kind : NO_MISTAKE;
    int64_t end = k_end(t, m->kind);
    int64_t block_a = trial_block(a->view.scale.kind), block_w = trial_block(w->view.scale.kind);
    double sum = 0;
    if (has_nan_factor(a, row, end, of_a) || has_nan_factor(w, col, end, of_w)) return (double)NAN;
    for (int64_t k = 0; k < end; k++) {
        float x = value(a, row, k, of_a), y = value(w, col, k, of_w);
        if (x * y == 0.0f) continue; /* a NaN is not */
        float fx = factor(a, row, block_a ? k / block_a : 0, of_a);
        float fy = factor(w, col, block_w ? k / block_w : 0, of_w);
        sum += (double)x * (double)fx * ((double)y * (double)fy);
    }
    return sum * tensor_factor(t, m);
}

double gemm_sum(const struct gemm_trial *t, int64_t row, int64_t col) {
    return sum_with(t, row, col, &RIGHT);
}

/* Whether `bits` are the output's. In place in BF16 a device may round before it adds. */
static bool is_output(const struct gemm_trial *t, double sum, int64_t row, int64_t col,
                      uint32_t bits) {
    const struct certify_way *w = t->way;
    float before = (float)sum, rounded, x = before;
    if (w->bias) x = before = x + trial_added(t, ADD_BIAS, row, col);
    if (w->beta) x += trial_added(t, ADD_OUT, row, col);
    if (w->residual) x += trial_added(t, ADD_RESIDUAL, row, col);
    if (isnan(x)) /* which NaN, a device may choose */
        return isnan(w->out == DTYPE_F32 ? f32_from_bits(bits) : bf16_decode((uint16_t)bits));
    if (w->out == DTYPE_F32) /* the sign of a zero is not defined */
        return bits == f32_bits(f32_canonical(x)) || (x == 0.0f && (bits & 0x7FFFFFFFu) == 0);
    rounded = bf16_decode(bf16_encode(before)) + trial_added(t, ADD_OUT, row, col);
    return bits == bf16_encode(x) || (x == 0.0f && (bits & 0x7FFFu) == 0) ||
           (w->beta && bits == bf16_encode(rounded));
}

/* ---- what is wrong ---- */

static uint32_t garbage_bits(const struct gemm_trial *t, int garbage) {
    uint32_t bits = (uint32_t)garbage * 0x01010101u;
    return t->way->out == DTYPE_F32 ? bits : bits & 0xFFFFu;
}

/* Whether the outputs of the first run are all those of mistake m. */
static bool explains(const struct gemm_trial *t, const struct mistake *m) {
    for (int i = 0; i < t->rows; i++)
        for (int j = 0; j < t->cols; j++) {
            uint32_t bits;
            (void)gemm_trial_got(t, 0, i, j, &bits);
            if (!is_output(t, sum_with(t, t->row[i], t->col[j], m), t->row[i], t->col[j], bits))
                return false;
        }
    return true;
}

struct wrong {
    int64_t count, old, nan_lost; /* wrong outputs; those that hold the garbage; numbers for NaN */
    int64_t row, col;             /* of the first */
    int64_t inner;                /* wrong ones that are in neither the last rows nor columns */
    float got;
    double sum;
};

static struct wrong compare(const struct gemm_trial *t) {
    struct wrong w = { 0 };
    double sums[TRIAL_ROWS * TRIAL_COLS];
#pragma omp parallel for schedule(static) if (t->k >= TRIAL_LONG)
    for (int n = 0; n < t->rows * t->cols; n++)
        sums[n] = gemm_sum(t, t->row[n / t->cols], t->col[n % t->cols]);
    for (int i = 0; i < t->rows; i++)
        for (int j = 0; j < t->cols; j++) {
            uint32_t bits;
            int64_t row = t->row[i], col = t->col[j];
            float got = gemm_trial_got(t, 0, i, j, &bits);
            double sum = sums[i * t->cols + j];
            if (is_output(t, sum, row, col, bits)) continue;
            if (!w.count) {
                w.row = row; w.col = col; w.got = got; w.sum = sum;
            }
            w.count++;
            w.old += !t->way->beta && bits == garbage_bits(t, GARBAGE_NAN);
            w.nan_lost += isnan(sum) && !isnan(got);
            w.inner += row < t->m - 16 && col < t->n - 16;
        }
    return w;
}

static void name_fault(const struct gemm_trial *t, const struct wrong *w,
                       struct certificate *out) {
    char shape[80], where[160];
    snprintf(shape, sizeof shape, "%lld x %lld x %lld", (long long)t->m, (long long)t->n,
             (long long)t->k);
    snprintf(where, sizeof where, "%lld of %d sampled outputs of %s are wrong", (long long)w->count,
             t->rows * t->cols, shape);
    for (const struct mistake *m = MISTAKES; m < MISTAKES + MISTAKE_COUNT; m++)
        if (explains(t, m)) {
            certify_fail(out, m->name, "%s: all outputs are %s", where, m->text);
            return;
        }
    const char *fault = "wrong output";
    if (w->old == w->count) fault = w->inner ? "stale output" : "tail not written";
    else if (w->nan_lost == w->count) fault = "NaN swallowed";
    certify_fail(out, fault, "%s%s: row %lld, column %lld is %.9g, and %.9g is exact", where,
                 w->old == w->count ? ", they hold what was there before" : "", (long long)w->row,
                 (long long)w->col, (double)w->got, w->sum);
}

enum status gemm_check_whole(struct gemm_trial *t, struct certificate *out, struct err *e) {
    TRY(gemm_trial_run(t, 0, GARBAGE_NAN, e));
    TRY(gemm_trial_run(t, 1, GARBAGE_NUMBER, e));
    out->outputs += 2 * (int64_t)t->rows * t->cols;
    struct wrong w = compare(t);
    if (w.count) {
        name_fault(t, &w, out);
        return OK;
    }
    int64_t bytes = t->n * dtype_bytes(t->way->out);
    for (int i = 0; i < t->rows; i++)
        if (memcmp(t->got[0] + i * bytes, t->got[1] + i * bytes, (size_t)bytes) != 0) {
            certify_fail(out, "stale output", "%lld x %lld x %lld: row %lld differs when the same "
                         "product is written over other bytes", (long long)t->m, (long long)t->n,
                         (long long)t->k, (long long)t->row[i]);
            return OK;
        }
    return OK;
}
