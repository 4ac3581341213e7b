#include "runner/record/streams.h"
#include "kernels/f32_bits.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef const struct stream_source *source;
typedef union stream_value value;

static uint64_t float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double share(int64_t part, int64_t of) { return of > 0 ? (double)part / (double)of : 0; }

static int64_t unix_time(void) { return (int64_t)time(NULL); }

/* Resident memory of this process in bytes, or -1. Source: proc(5), statm. */
static int64_t resident_bytes(void) {
    FILE *f = fopen("/proc/self/statm", "re");
    int64_t pages = -1;
    if (!f) return -1;
    if (fscanf(f, "%*s %" SCNd64, &pages) != 1) pages = -1;
    fclose(f);
    return pages < 0 ? -1 : pages * sysconf(_SC_PAGESIZE);
}

/* Functions from a source to the value of one metric. */
#define WHOLE(name, x) static value name(source s, int64_t label) { return (value){ .i = (x) }; }
#define REAL(name, x) static value name(source s, int64_t label) { return (value){ .f = (x) }; }
#define BITS(name, x) static value name(source s, int64_t label) { return (value){ .u = (x) }; }

/* When a record has a metric that some runs lack. */
static bool is_masked(source s) { return s->masked; }
static bool has_accuracy(source s) { return s->eval && !isnan(s->eval->accuracy); }

/* The runner adds the metric to the record, in the file that a comment names. */
#define BY_RUNNER .value = NULL

WHOLE(step_number, s->step_number)

/* ---- train ---------------------------------------------------------------------------------- */

BITS(train_loss, float_bits(s->step->loss))
BITS(train_grad_norm, float_bits(s->step->grad_norm))
REAL(train_lr, (double)s->step->lr)
WHOLE(train_tokens, s->step->tokens)
WHOLE(train_loss_tokens, s->step->loss_tokens)
WHOLE(train_time, s->step->time_us)
REAL(train_speed, s->step->time_us > 0
                      ? 1e6 * (double)s->step->tokens / (double)s->step->time_us : 0)

static const struct metric TRAIN[] = {
    { "step", "", COLUMN_I64, .value = step_number, .key = true },
    { "loss", "nats per token", COLUMN_U32, .value = train_loss, .result = 4 },
    { "grad_norm", "", COLUMN_U32, .value = train_grad_norm, .result = 5 },
    { "lr", "", COLUMN_F64, .value = train_lr },
    { "tokens", "tokens in the step, all ranks", COLUMN_I64, .value = train_tokens },
    { "loss_tokens", "of them, the ones with loss", COLUMN_I64, .value = train_loss_tokens,
      .recorded = is_masked },
    { "step_time_us", "us", COLUMN_I64, .value = train_time },
    { "tokens_per_s", "tokens/s", COLUMN_F64, .value = train_speed },
    /* of a GPU: plan/mfu.h */
    { "model_tflops", "TFLOP/s of one GPU", COLUMN_F64, BY_RUNNER },
    { "mfu_peak", "share of the data sheet's peak", COLUMN_F64, BY_RUNNER },
    { "mfu_gemm", "share of a large GEMM's rate", COLUMN_F64, BY_RUNNER },
};

/* ---- eval ----------------------------------------------------------------------------------- */

BITS(eval_loss, float_bits(s->eval->loss))
WHOLE(eval_tokens, s->eval->tokens)
WHOLE(eval_loss_tokens, s->eval->loss_tokens)
REAL(eval_accuracy, s->eval->accuracy)

static const struct metric EVAL[] = {
    { "step", "", COLUMN_I64, .value = step_number, .key = true },
    { "loss", "nats per token", COLUMN_U32, .value = eval_loss, .result = 6 },
    { "tokens", "tokens evaluated", COLUMN_I64, .value = eval_tokens },
    { "loss_tokens", "of them, the ones with loss", COLUMN_I64, .value = eval_loss_tokens,
      .recorded = is_masked },
    { "accuracy", "share of the tokens with loss that have the largest logit", COLUMN_F64,
      .value = eval_accuracy, .recorded = has_accuracy },
};

/* ---- samples: one record a prompt ----------------------------------------------------------- */

WHOLE(sample_number, s->sample->number)
WHOLE(sample_prompt_tokens, s->sample->prompt_tokens)
WHOLE(sample_tokens, s->sample->tokens)

static const struct metric SAMPLES[] = {
    { "step", "", COLUMN_I64, .value = step_number, .key = true },
    { "number", "of the prompt, from 0", COLUMN_I64, .value = sample_number, .key = true },
    { "prompt_tokens", "tokens of the prompt", COLUMN_I64, .value = sample_prompt_tokens },
    { "tokens", "tokens generated", COLUMN_I64, .value = sample_tokens },
};

/* ---- telemetry: one record a rank, at most once a second ------------------------------------ */

WHOLE(telemetry_time, unix_time())
WHOLE(telemetry_rank, s->rank)
WHOLE(telemetry_device, s->device)
WHOLE(telemetry_comm, s->step->comm_us)
WHOLE(telemetry_rss, resident_bytes())
WHOLE(telemetry_arenas, s->device_bytes)
WHOLE(telemetry_dropped, s->dropped)

static const struct metric TELEMETRY[] = {
    { "step", "", COLUMN_I64, .value = step_number, .key = true },
    { "time", "s since 1970", COLUMN_I64, .value = telemetry_time, .key = true },
    { "rank", "", COLUMN_I64, .value = telemetry_rank, .key = true },
    { "device", "index of the GPU on its host", COLUMN_I64, .value = telemetry_device,
      .key = true },
    { "comm_us", "us of the step in collectives", COLUMN_I64, .value = telemetry_comm },
    { "rss_bytes", "bytes of host memory", COLUMN_I64, .value = telemetry_rss },
    { "device_bytes", "bytes of the arenas", COLUMN_I64, .value = telemetry_arenas },
    { "dropped", "telemetry records dropped so far", COLUMN_I64, .value = telemetry_dropped },
    /* from the driver: hardware/telemetry.h */
    { "gpu_clock_sm_mhz", "MHz", COLUMN_I64, BY_RUNNER },
    { "gpu_clock_mem_mhz", "MHz", COLUMN_I64, BY_RUNNER },
    { "gpu_power_mw", "mW", COLUMN_I64, BY_RUNNER },
    { "gpu_temperature_c", "C", COLUMN_I64, BY_RUNNER },
    { "gpu_utilization", "% of the time with a kernel", COLUMN_I64, BY_RUNNER },
    { "gpu_memory_used_bytes", "bytes, all processes", COLUMN_I64, BY_RUNNER },
    { "gpu_throttle", "NVML's bits of reasons", COLUMN_I64, BY_RUNNER },
    { "gpu_processes", "processes on the GPU", COLUMN_I64, BY_RUNNER },
    { "gpu_processes_other", "processes of others", COLUMN_I64, BY_RUNNER },
    { "gpu_nvlink_tx_kib", "KiB, all links", COLUMN_I64, BY_RUNNER },
    { "gpu_nvlink_rx_kib", "KiB, all links", COLUMN_I64, BY_RUNNER },
};

/* ---- ranks: one record a step of several ranks (job/pace.h) --------------------------------- */

static const struct metric RANKS[] = {
    { "step", "", COLUMN_I64, BY_RUNNER, .key = true },
    { "ranks", "number of ranks", COLUMN_I64, BY_RUNNER },
    { "slowest_rank", "", COLUMN_I64, BY_RUNNER },
    { "wait_share", "mean wait of the ranks / step time", COLUMN_F64, BY_RUNNER },
    { "wait_us_max", "us", COLUMN_I64, BY_RUNNER },
    { "comm_us_least", "us, of the slowest rank", COLUMN_I64, BY_RUNNER },
    { "exposed_share", "mean idle time of the ranks / step time", COLUMN_F64, BY_RUNNER },
    { "exposed_us_least", "us, of the slowest rank", COLUMN_I64, BY_RUNNER },
    { "step_time_us_max", "us", COLUMN_I64, BY_RUNNER },
};

/* ---- fp8, trace: one value a label ---------------------------------------------------------- */

BITS(fp8_amax, s->slot[label].amax_bits)
BITS(fp8_scale, float_bits(s->slot[label].scale))
REAL(fp8_saturated, share(s->slot[label].saturated, s->slot[label].elements))
REAL(fp8_underflow, share(s->slot[label].underflow, s->slot[label].elements))
REAL(fp8_snr, s->slot[label].snr_db)
REAL(fp8_rms, s->slot[label].rms)
BITS(trace_fingerprint, s->fingerprint[label])

static const struct metric FP8[] = {
    { "step", "", COLUMN_I64, .value = step_number, .key = true },
    { "amax", "", COLUMN_U32, true, .value = fp8_amax, .result = 3 },
    { "scale", "", COLUMN_U32, true, .value = fp8_scale, .result = 2 },
    { "saturated", "share of the elements", COLUMN_F64, true, .value = fp8_saturated },
    { "underflow", "share of the elements", COLUMN_F64, true, .value = fp8_underflow },
};

/* Shares of squares that f64 adds: figures to look at, no results. */
static const struct metric FP8_ERROR[] = {
    { "step", "", COLUMN_I64, .value = step_number },
    { "snr_db", "dB", COLUMN_F64, true, .value = fp8_snr },
    { "rms", "", COLUMN_F64, true, .value = fp8_rms },
};

static const struct metric TRACE[] = {
    { "step", "", COLUMN_I64, .value = step_number, .key = true },
    /* compared first: the labels are in the order of execution */
    { "fingerprints", "", COLUMN_U64, true, .value = trace_fingerprint, .result = 1 },
};

/* ---- histograms: one record a counted step, with the counts by tensor (bucket_text.h) -------- */

static const struct metric HISTOGRAMS[] = {
    { "step", "", COLUMN_I64, BY_RUNNER, .key = true },
};

/* ---- audit: one record an audited step and rank (model/train.h) ------------------------------ */

WHOLE(audit_products, s->audit->products)
WHOLE(audit_codes, s->audit->codes)
WHOLE(audit_unknown, s->audit->unknown)
WHOLE(audit_rank, s->rank)
static bool is_audited(source s) { return s->audit; }

/* None is in the records of other runs. */
static const struct metric AUDIT[] = {
    { "step", "", COLUMN_I64, .value = step_number, .key = true },
    { "rank", "", COLUMN_I64, .value = audit_rank, .key = true },
    { "products", "outputs of GEMMs, equal to the bit", COLUMN_I64, .value = audit_products,
      .recorded = is_audited },
    { "codes", "FP8 codes, equal to the bit", COLUMN_I64, .value = audit_codes,
      .recorded = is_audited },
    { "unknown", "outputs that cannot be computed again", COLUMN_I64, .value = audit_unknown,
      .recorded = is_audited },
};

/* ---- eval_sets: one value a set of eval.also, in the order of the names ---------------------- */

BITS(set_loss, float_bits(s->set[label].loss))
WHOLE(set_tokens, s->set[label].tokens)
WHOLE(set_loss_tokens, s->set[label].loss_tokens)

static const struct metric EVAL_SETS[] = {
    { "step", "", COLUMN_I64, .value = step_number, .key = true },
    { "loss", "nats per token", COLUMN_U32, true, .value = set_loss, .result = 7 },
    { "tokens", "tokens evaluated", COLUMN_I64, true, .value = set_tokens, .key = true },
    { "loss_tokens", "of them, the ones with loss", COLUMN_I64, true, .value = set_loss_tokens,
      .key = true },
};

/* ---- the tables ----------------------------------------------------------------------------- */

#define METRICS(list) .metric = list, .metric_count = sizeof(list) / sizeof *(list)

const struct stream STREAMS[STREAM_COUNT] = {
    [STREAM_TRAIN] = { "train", "step", "data/metrics/train.jsonl", METRICS(TRAIN),
                       .old_columns = "data/metrics/train.cols" },
    [STREAM_EVAL] = { "eval", "eval", "data/metrics/eval.jsonl", METRICS(EVAL),
                      .old_columns = "data/metrics/eval.cols" },
    [STREAM_SAMPLES] = { "samples", "sample", "data/metrics/samples.jsonl", METRICS(SAMPLES),
                         .old_columns = "data/metrics/samples.cols" },
    [STREAM_TELEMETRY] = { "telemetry", "telemetry", "data/metrics/telemetry.jsonl",
                           METRICS(TELEMETRY), .old_columns = "data/metrics/telemetry.cols" },
    [STREAM_RANKS] = { "ranks", "ranks", "data/metrics/ranks.jsonl", METRICS(RANKS),
                       .old_columns = "data/metrics/ranks.cols" },
    [STREAM_FP8] = { "fp8", "fp8", "data/metrics/fp8.npy", "data/metrics/fp8_slots.json", "slots",
                     METRICS(FP8), .old_columns = "data/fp8/fp8.cols",
                     .old_lines = "data/metrics/fp8.jsonl" },
    [STREAM_TRACE] = { "trace", "trace", "data/metrics/trace.npy",
                       "data/metrics/trace_tensors.json", "tensors", METRICS(TRACE),
                       .old_columns = "data/trace.cols",
                       .old_lines = "data/metrics/trace.jsonl" },
    /* The same labels; the file lacks if no step measured, and in runs of older versions. */
    [STREAM_FP8_ERROR] = { "fp8_error", "fp8_error", "data/metrics/fp8_error.npy",
                           "data/metrics/fp8_slots.json", "slots", METRICS(FP8_ERROR),
                           .old_columns = "data/metrics/fp8_error.cols",
                           .old_lines = "data/metrics/fp8_error.jsonl" },
    [STREAM_HISTOGRAMS] = { "histograms", "histograms", "data/metrics/histograms.jsonl",
                            METRICS(HISTOGRAMS), .old_columns = "data/metrics/histograms.cols" },
    [STREAM_AUDIT] = { "audit", "audit", "data/metrics/audit.jsonl", METRICS(AUDIT),
                       .old_columns = "data/metrics/audit.cols" },
    [STREAM_EVAL_SETS] = { "eval_sets", "eval_sets", "data/metrics/eval_sets.npy",
                           "data/metrics/eval_sets.json", "sets", METRICS(EVAL_SETS),
                           .old_columns = "data/metrics/eval_sets.cols",
                           .old_lines = "data/metrics/eval_sets.jsonl" },
};

const struct figure FIGURES[] = {
    { "loss_final", STREAM_TRAIN, "loss", FIGURE_LAST, 1 },
    { "loss_final_bits", STREAM_TRAIN, "loss_bits", FIGURE_LAST_BITS, 1 },
    { "eval_loss_final", STREAM_EVAL, "loss", FIGURE_LAST, 1 },
    { "eval_loss_final_bits", STREAM_EVAL, "loss_bits", FIGURE_LAST_BITS, 1 },
    { "eval_loss_best", STREAM_EVAL, "loss", FIGURE_LEAST, 1 },
    { "step_time_us_median", STREAM_TRAIN, "step_time_us", FIGURE_MEDIAN, 1 },
    { "tokens_per_s_median", STREAM_TRAIN, "tokens_per_s", FIGURE_MEDIAN, 1 },
    { "tokens", STREAM_TRAIN, "tokens", FIGURE_SUM, 1 },
    { "loss_tokens", STREAM_TRAIN, "loss_tokens", FIGURE_SUM, 1 },
    { "eval_loss_tokens", STREAM_EVAL, "loss_tokens", FIGURE_LAST, 1 },
    { "eval_accuracy_final", STREAM_EVAL, "accuracy", FIGURE_LAST, 1 },
    { "model_tflops_median", STREAM_TRAIN, "model_tflops", FIGURE_MEDIAN, 1 },
    { "mfu_peak_median", STREAM_TRAIN, "mfu_peak", FIGURE_MEDIAN, 1 },
    { "mfu_gemm_median", STREAM_TRAIN, "mfu_gemm", FIGURE_MEDIAN, 1 },
    { "rss_bytes_peak", STREAM_TELEMETRY, "rss_bytes", FIGURE_PEAK, 1 },
    { "device_bytes_peak", STREAM_TELEMETRY, "device_bytes", FIGURE_PEAK, 1 },
    { "gpu_clock_sm_mhz_median", STREAM_TELEMETRY, "gpu_clock_sm_mhz", FIGURE_MEDIAN_ALL, 1 },
    { "gpu_power_w_median", STREAM_TELEMETRY, "gpu_power_mw", FIGURE_MEDIAN_ALL, 1e-3 },
    { "gpu_temperature_c_max", STREAM_TELEMETRY, "gpu_temperature_c", FIGURE_LARGEST, 1 },
    { "gpu_processes_other_max", STREAM_TELEMETRY, "gpu_processes_other", FIGURE_LARGEST, 1 },
    { "wait_share_median", STREAM_RANKS, "wait_share", FIGURE_MEDIAN, 1 },
    { "exposed_share_median", STREAM_RANKS, "exposed_share", FIGURE_MEDIAN, 1 },
    { "saturated_max", STREAM_FP8, "saturated", FIGURE_LARGEST, 1 },
    { "underflow_max", STREAM_FP8, "underflow", FIGURE_LARGEST, 1 },
    { "audit_products", STREAM_AUDIT, "products", FIGURE_SUM, 1 },
    { "audit_codes", STREAM_AUDIT, "codes", FIGURE_SUM, 1 },
    { "audit_unknown", STREAM_AUDIT, "unknown", FIGURE_SUM, 1 },
};
const int64_t FIGURE_COUNT = sizeof FIGURES / sizeof *FIGURES;

double stream_number(enum stream_id stream, const char *metric, const struct stream_source *s) {
    const struct stream *of = &STREAMS[stream];
    for (int64_t i = 0; i < of->metric_count; i++) {
        const struct metric *m = &of->metric[i];
        if (strcmp(m->name, metric) != 0 || !m->value) continue;
        union stream_value v = m->value(s, 0);
        if (m->type == COLUMN_F64) return v.f;
        return m->type == COLUMN_I64 ? (double)v.i : (double)f32_from_bits((uint32_t)v.u);
    }
    return (double)NAN;
}

int stream_of_event(const char *event) {
    for (int i = 0; i < STREAM_COUNT; i++)
        if (strcmp(event, STREAMS[i].event) == 0) return i;
    return -1;
}

int stream_of_file(const char *file) {
    for (int i = 0; i < STREAM_COUNT; i++)
        if (strcmp(file, STREAMS[i].file) == 0) return i;
    return -1;
}

void result_column(const struct stream *s, const struct metric *m, char out[COLUMN_NAME_CAP]) {
    bool in_line = !s->labels && m->type == COLUMN_U32;
    snprintf(out, COLUMN_NAME_CAP, "%s%s", m->name, in_line ? "_bits" : "");
}
