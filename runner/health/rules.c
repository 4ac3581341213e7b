/* The table of rules: conditions with their thresholds, why these, and what to try.
 *
 * A rule must not mislead. tests/bundle/test_health.c has the cases that came first: zeros that
 * are no underflow, the first steps of delayed scaling, one spike, a tensor that does not change,
 * values that vanish without a loss. Where errors were measured, they decide: clipped or vanished
 * values that cost nothing are no symptom. Advice names its source, so that a reader can judge
 * it. */
#include <math.h>

#include "runner/health/health.h"

/* The largest 0.01 % of normally distributed values hold 0.17 % of their energy: losing them all is
 * noise of 28 dB, near E4M3's own rounding. */
static const double SATURATED_LEAST = 1e-4;
/* Without a measurement, ten times as much: a weight that grows clips an element in each step. */
static const double SATURATED_SURELY = 1e-3;
/* A spike: the scale was of an amax far below. */
static const double SPIKE_LEAST = 1e-2;
/* Half of the non-zero values vanish. They are small, so it counts only beside a low SNR, or if
 * nothing was measured. */
static const double UNDERFLOW_LEAST = 0.5;
/* 1/256: of E4M3's 15 octaves of normal values 7 are left below the largest value. */
static const double RANGE_LEAST = 0x1p-8;
/* With one scale the root mean square is then below twice E4M3's smallest normal number (2^-6,
 * beside 448): most values lose bits of their mantissa. */
static const double CREST_LEAST = 0x1p14;
/* A power ratio of 2 in a run is no chance. */
static const double FALL_LEAST_DB = 3;

/* Rounding to n bits of mantissa gives 6 n + 13.5 dB over an even mantissa: 31.5 and 25.5. A floor
 * 6 dB below is as much as one bit of every mantissa. An unknown format: the lower one. */
double health_snr_format(const struct health_tensor *t) {
    if (t->known && t->code == DTYPE_E2M1) return 20.4;
    return t->known && t->code == DTYPE_E4M3 ? 31.5 : 25.5;
}
bool health_can_saturate(const struct health_tensor *t) { return !t->known || t->delayed; }
double health_snr_floor(const struct health_tensor *t) { return health_snr_format(t) - 6; }

static bool is_low(const struct health_tensor *t, double snr_db) {
    return snr_db < health_snr_floor(t); /* false for NaN: not measured, or all zeros */
}

/* ---- conditions: of one tensor at one step ---- */

static bool not_finite(const struct health_tensor *t, const struct health_row *r) {
    return !isfinite(r->amax);
}

static bool saturates(const struct health_tensor *t, const struct health_row *r) {
    return health_can_saturate(t) && r->saturated > SATURATED_LEAST;
}

static bool spikes(const struct health_tensor *t, const struct health_row *r) {
    return health_can_saturate(t) && r->saturated > SPIKE_LEAST;
}

static bool underflows(const struct health_tensor *t, const struct health_row *r) {
    return r->amax > 0 && r->underflow > UNDERFLOW_LEAST;
}

static bool leaves_range(const struct health_tensor *t, const struct health_row *r) {
    if (!t->known || !t->delayed || !(r->amax > 0)) return false;
    return r->amax * r->scale / (double)dtype_max(t->code) < RANGE_LEAST;
}

static bool has_outliers(const struct health_tensor *t, const struct health_row *r) {
    bool wide = !t->known || t->kind == SCALE_TENSOR || t->kind == SCALE_ROW;
    return wide && is_low(t, r->snr_db) && r->amax > CREST_LEAST * r->rms;
}

static bool is_noisy(const struct health_tensor *t, const struct health_row *r) {
    return is_low(t, r->snr_db) && !has_outliers(t, r);
}

/* From above the format's own to the format's own is no loss: an untrained head's gradient has few
 * values. False if too little was measured for a first third. */
static bool falls(const struct health_tensor *t, const struct health_row *r) {
    return r->snr_db < fmin(t->snr_first, health_snr_format(t)) - FALL_LEAST_DB &&
           !isnan(t->snr_first);
}

/* ---- second looks ---- */

static enum health_level fine_if_precise(const struct health_tensor *t) {
    if (isnan(t->snr_db)) return HEALTH_WATCH;
    return is_low(t, t->snr_db) ? HEALTH_TROUBLE : HEALTH_FINE;
}

static enum health_level saturated_surely(const struct health_tensor *t) {
    if (isnan(t->snr_db) && t->saturated <= SATURATED_SURELY) return HEALTH_FINE;
    return fine_if_precise(t);
}

const struct health_rule HEALTH_RULES[] = {
    { "not finite", HEALTH_TROUBLE, .any = true, .holds = not_finite,
      .means = "a value of the tensor is infinite or NaN",
      .why = "a cast saturates, so it makes neither: the value was not finite before it",
      .advice = "look at the losses and gradient norms of the steps before: a lower learning rate "
                "or a smaller train.optimizer.clip; the same run in BF16 shows whether FP8 is part "
                "of it",
      .source = "kernels/RECIPES.md (casts saturate); FP8 Formats for Deep Learning, "
                "arXiv:2209.05433" },
    { "saturated", HEALTH_TROUBLE, .holds = saturates, .confirm = saturated_surely,
      .means = "more than 0.01 % of the elements do not fit the format, step after step",
      .why = "the largest 0.01 % of normal values hold 0.17 % of the energy: noise of 28 dB",
      .advice = "recipe.margin = 1 keeps a factor of 2 free; fp8.tensorwise scales by the tensor's "
                "own amax and cannot saturate",
      .source = "TransformerEngine, recipe.DelayedScaling (margin) and Float8CurrentScaling" },
    { "saturates now and then", HEALTH_WATCH, .seldom = 3, .holds = spikes,
      .means = "more than 1 % of the elements do not fit the format in some steps",
      .why = "one spike is normal with delayed scales; the third in a window is a pattern",
      .advice = "recipe.margin = 1, or roll = \"step\"; watch the losses of those steps",
      .source = "TransformerEngine, recipe.DelayedScaling (margin)" },
    { "underflow", HEALTH_TROUBLE, .holds = underflows, .confirm = fine_if_precise,
      .means = "more than half of the non-zero elements become 0",
      .why = "small values carry little energy: this counts only if the SNR is low or not measured",
      .advice = "a finer scale: fp8.blockwise or fp8.mxfp8; for gradients in E4M3, format = "
                "\"hybrid\" has 2^14 times the range below",
      .source = "FP8 Formats for Deep Learning, arXiv:2209.05433; DeepSeek-V3, arXiv:2412.19437, "
                "section 3.3.2" },
    { "range unused", HEALTH_TROUBLE, .holds = leaves_range, .confirm = fine_if_precise,
      .means = "the scale is of an amax far above today's: less than 1/256 of the range is used",
      .why = "7 of E4M3's 15 octaves of normal values are left below the largest value",
      .advice = "a shorter recipe.history, or algo = \"most_recent\"; fp8.tensorwise keeps no "
                "history",
      .source = "TransformerEngine, recipe.DelayedScaling (amax_history_len, amax_compute_algo)" },
    { "outliers", HEALTH_TROUBLE, .measured = true, .holds = has_outliers,
      .means = "the largest value is over 16384 times the root mean square, and the SNR is 6 dB "
               "below the format's",
      .why = "with one scale most values are then near E4M3's smallest normal number, or below",
      .advice = "a scale for each block keeps an outlier to its block: fp8.blockwise or fp8.mxfp8, "
                "for this GEMM alone through the recipe's function layers; or BF16 for it. The "
                "input of ffn_out grows outliers with SwiGLU over long runs",
      .source = "DeepSeek-V3, arXiv:2412.19437, section 3.3.2; Scaling FP8 training to "
                "trillion-token LLMs, arXiv:2409.12517, section 4" },
    { "low SNR", HEALTH_TROUBLE, .measured = true, .holds = is_noisy,
      .means = "the SNR of the cast is 6 dB below the format's own, as if it had a bit less",
      .why = "rounding a uniformly distributed mantissa gives 31.5 dB in E4M3, 25.5 dB in E5M2",
      .advice = "if saturation or unused range is reported too, fix that first; else a finer "
                "scale, or BF16 for the layer (first_bf16, last_bf16, layers); gradients in E5M2: "
                "format = \"e4m3\" with block scales",
      .source = "Recipes for Pre-training LLMs with MXFP8, arXiv:2506.08027 (E4M3 for all "
                "tensors)" },
    { "SNR falls", HEALTH_WATCH, .measured = true, .holds = falls,
      .means = "the SNR is over 3 dB below that of the first third of the run, and below the "
               "format's",
      .why = "twice the noise; a tensor that keeps its shape keeps its SNR",
      .advice = "look at amax and rms over the steps (data/metrics): growing outliers took "
                "200 billion tokens to end a published run",
      .source = "Scaling FP8 training to trillion-token LLMs, arXiv:2409.12517, section 4" },
};
const int HEALTH_RULE_COUNT = sizeof HEALTH_RULES / sizeof *HEALTH_RULES;
