#include "kernels/certify/gemm_check.h"

#include <math.h>
#include <stdio.h>

#include "kernels/nvfp4.h"

enum { GARBAGE_NAN = 0xFF, GARBAGE_NUMBER = 0x42 };

/* Mistakes of a kernel that the outputs can tell. */
enum mistake {
    NO_MISTAKE, A_IGNORED, B_IGNORED, BOTH_IGNORED, A_SWAPPED, B_SWAPPED, BOTH_SWAPPED,
    A_TRANSPOSED, B_TRANSPOSED, BOTH_TRANSPOSED, K_TAIL, MISTAKE_COUNT
};

/* Names of the mistakes, and what the outputs equal then. */
static const struct { const char *name, *text; } MISTAKES[] = {
    [NO_MISTAKE] = { "", "" },
    [A_IGNORED] = { "ignored scale", "as without the scale of a" },
    [B_IGNORED] = { "ignored scale", "as without the scale of b" },
    [BOTH_IGNORED] = { "ignored scale", "as without scales" },
    [A_SWAPPED] = { "swapped blocks", "as with neighbouring scale blocks of a exchanged" },
    [B_SWAPPED] = { "swapped blocks", "as with neighbouring scale blocks of b exchanged" },
    [BOTH_SWAPPED] = { "swapped blocks", "as with neighbouring scale blocks exchanged" },
    [A_TRANSPOSED] = { "transposed scales", "as with the scale of a read column by column" },
    [B_TRANSPOSED] = { "transposed scales", "as with the scale of b read column by column" },
    [BOTH_TRANSPOSED] = { "transposed scales", "as with both scales read column by column" },
    [K_TAIL] = { "tail of K", "as without the last products along K" },
};

/* ---- the value ---- */

static float factor(const struct trial_operand *o, int64_t row, int64_t k, bool ignored,
                    bool swapped, bool transposed) {
    int64_t block = trial_block(o->view.scale.kind), count = o->view.scale.dim[1];
    int64_t at = block ? k / block : 0;
    if (ignored) return 1.0f;
    if (swapped && (at ^ 1) < count) at ^= 1;
    int64_t index = trial_factor_index(o, row, at);
    if (transposed) {
        int64_t rows = o->view.scale.dim[0];
        index = index % count * rows + index / count;
    }
    return trial_factor_at(o, index);
}

/* The last products along K that one instruction of the widest group does not fill. */
static int64_t k_end(const struct gemm_trial *t, enum mistake m) {
    const int64_t group = 32, rest = t->k % group;
    if (m != K_TAIL) return t->k;
    return t->k - (rest ? rest : t->k < group ? t->k : group);
}

static double sum_with(const struct gemm_trial *t, int64_t row, int64_t col, enum mistake m) {
    const struct trial_operand *a = &t->a, *w = &t->w;
    double sum = 0;
    int64_t end = k_end(t, m);
    for (int64_t k = 0; k < end; k++) {
        float x = trial_value(a, row, k), y = trial_value(w, col, k);
        if (x * y == 0.0f) continue; /* a NaN is not */
        float fx = factor(a, row, k, m == A_IGNORED || m == BOTH_IGNORED,
                          m == A_SWAPPED || m == BOTH_SWAPPED,
                          m == A_TRANSPOSED || m == BOTH_TRANSPOSED);
        float fy = factor(w, col, k, m == B_IGNORED || m == BOTH_IGNORED,
                          m == B_SWAPPED || m == BOTH_SWAPPED,
                          m == B_TRANSPOSED || m == BOTH_TRANSPOSED);
        sum += (double)x * (double)fx * ((double)y * (double)fy);
    }
    if (scale_is_nvfp4(a->view.scale.kind)) sum *= (double)nvfp4_product_factor(2688.0f, 2688.0f);
    return sum;
}

double gemm_sum(const struct gemm_trial *t, int64_t row, int64_t col) {
    return sum_with(t, row, col, NO_MISTAKE);
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
static bool explains(const struct gemm_trial *t, enum mistake m) {
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
    for (int m = A_IGNORED; m < MISTAKE_COUNT; m++)
        if (explains(t, (enum mistake)m)) {
            certify_fail(out, MISTAKES[m].name, "%s: all outputs are %s", where, MISTAKES[m].text);
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
