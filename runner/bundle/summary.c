#include "runner/bundle/summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/hardware/telemetry.h"

void run_columns_free(struct run_columns *c) {
    columns_destroy(c->train);
    columns_destroy(c->eval);
    columns_destroy(c->telemetry);
    columns_destroy(c->ranks);
    columns_destroy(c->fp8);
    columns_destroy(c->trace);
    *c = (struct run_columns){ 0 };
}

struct columns **run_columns_slot(struct run_columns *c, const char *path) {
    const struct {
        const char *path;
        struct columns **slot;
    } SLOTS[] = {
        { "data/metrics/train.cols", &c->train },
        { "data/metrics/eval.cols", &c->eval },
        { "data/metrics/telemetry.cols", &c->telemetry },
        { "data/metrics/ranks.cols", &c->ranks },
        { "data/fp8/fp8.cols", &c->fp8 },
        { "data/trace.cols", &c->trace },
    };
    for (size_t i = 0; i < sizeof SLOTS / sizeof *SLOTS; i++)
        if (strcmp(path, SLOTS[i].path) == 0) return SLOTS[i].slot;
    return NULL;
}

struct window steady_window(int64_t rows) {
    int64_t skip = rows / 5;
    if (skip < 1) skip = 1;
    if (skip > 50) skip = 50;
    return (struct window){ .first = skip < rows ? skip : rows, .last = rows };
}

/* ---- medians ------------------------------------------------------------------------------- */

enum { RADIX_BITS = 16, RADIX = 1 << RADIX_BITS };

/* Maps a double to an integer of the same order: negative ones inverted, others above them. */
static uint64_t order_key(double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits >> 63 ? ~bits : bits | (UINT64_C(1) << 63);
}

static double order_value(uint64_t key) {
    double v;
    uint64_t bits = key >> 63 ? key & ~(UINT64_C(1) << 63) : ~key;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* Value i of a column in a sequential walk; releases the pages of a mapping on the way. */
static double walk_value(const struct columns *t, const struct column *c, int64_t i) {
    if (i % COLUMNS_CHUNK == 0) columns_forget(t);
    return column_value(c, i);
}

/* The value of rank `rank` (from 0) in the window. Each of four passes finds 16 bits of its key, so
 * a run of any length needs one table and no copy. counts has RADIX entries. */
static double select_rank(const struct columns *t, const struct column *c, struct window w,
                          int64_t rank, int64_t *counts) {
    uint64_t prefix = 0;
    for (int shift = 64 - RADIX_BITS; shift >= 0; shift -= RADIX_BITS) {
        memset(counts, 0, RADIX * sizeof *counts);
        for (int64_t i = w.first; i < w.last; i++) {
            double v = walk_value(t, c, i);
            uint64_t key = order_key(v);
            bool inside = shift + RADIX_BITS == 64 || key >> (shift + RADIX_BITS) == prefix;
            if (!isnan(v) && inside) counts[key >> shift & (RADIX - 1)]++;
        }
        uint64_t digit = 0;
        while (rank >= counts[digit]) rank -= counts[digit++];
        prefix = prefix << RADIX_BITS | digit;
    }
    return order_value(prefix);
}

enum status window_median(const struct columns *t, const char *name, struct window w, double *out,
                          struct err *e) {
    const struct column *c = columns_find(t, name);
    int64_t n = 0;
    *out = (double)NAN;
    if (!c || c->width != 1) return OK;
    for (int64_t i = w.first; i < w.last; i++) n += !isnan(walk_value(t, c, i));
    if (n == 0) return OK;
    int64_t *counts = malloc(RADIX * sizeof *counts);
    if (!counts) return FAIL(e, ERR_MEMORY, "%d counters for a median", RADIX);
    *out = select_rank(t, c, w, n / 2, counts);
    if (n % 2 == 0) *out = 0.5 * (*out + select_rank(t, c, w, n / 2 - 1, counts));
    free(counts);
    return OK;
}

/* ---- summary.json -------------------------------------------------------------------------- */

static json_t *number(double v) { return isfinite(v) ? json_real(v) : json_null(); }

/* Whether v, rounded towards zero, fits int64_t; a foreign column may hold any double. */
static bool is_whole(double v) { return v >= -0x1p63 && v < 0x1p63; }

static json_t *integer(double v) { return is_whole(v) ? json_integer((json_int_t)v) : json_null(); }

static json_t *whole(const struct column *c, int64_t at) {
    return c && c->width == 1 && at >= 0 ? integer(column_value(c, at)) : json_null();
}

/* The last value of a column, null when there is none or it is not finite. */
static json_t *last_value(const struct columns *t, const char *name) {
    const struct column *c = columns_find(t, name);
    return c && c->width == 1 && t->rows > 0 ? number(column_value(c, t->rows - 1)) : json_null();
}

static json_t *last_bits(const struct columns *t, const char *name) {
    const struct column *c = columns_find(t, name);
    char text[16];
    if (!c || c->type != COLUMN_U32 || c->width != 1 || t->rows == 0) return json_null();
    snprintf(text, sizeof text, "%08x", ((const uint32_t *)c->data)[t->rows - 1]);
    return json_string(text);
}

int64_t column_extreme(const struct columns *t, const char *name, double sign) {
    const struct column *c = columns_find(t, name);
    double best = (double)NAN;
    int64_t at = -1;
    for (int64_t i = 0; c && i < t->rows * c->width; i++) {
        double v = walk_value(t, c, i);
        if (isnan(v) || (at >= 0 && sign * v <= sign * best)) continue;
        best = v;
        at = i;
    }
    return at;
}

/* The same as a double, NaN if there is none. */
static double extreme(const struct columns *t, const char *name, double sign) {
    int64_t at = column_extreme(t, name, sign);
    return at < 0 ? (double)NAN : column_value(columns_find(t, name), at);
}

static json_t *peak_bytes(const struct columns *t, const char *name) {
    return integer(extreme(t, name, 1));
}

/* The OR of all samples. */
static json_t *throttle_reasons(const struct columns *t) {
    const struct column *c = columns_find(t, "gpu_throttle");
    char text[192];
    int64_t seen = 0;
    for (int64_t i = 0; c && c->width == 1 && i < t->rows; i++) {
        double v = walk_value(t, c, i);
        if (is_whole(v)) seen |= (int64_t)v;
    }
    throttle_text(seen, text, sizeof text);
    return c ? json_string(text) : json_null();
}

/* Figures from the driver's telemetry; keys without a sample stay null. */
static enum status put_device(json_t *s, const struct columns *t, struct err *e) {
    struct window all = { 0, t ? t->rows : 0 };
    double clock = (double)NAN, power = (double)NAN;
    TRY(window_median(t, "gpu_clock_sm_mhz", all, &clock, e));
    TRY(window_median(t, "gpu_power_mw", all, &power, e));
    int failed = 0;
    failed |= json_object_set_new(s, "gpu_clock_sm_mhz_median", number(clock));
    failed |= json_object_set_new(s, "gpu_power_w_median", number(power * 1e-3));
    failed |= json_object_set_new(s, "gpu_temperature_c_max",
                                  number(extreme(t, "gpu_temperature_c", 1)));
    failed |= json_object_set_new(s, "gpu_processes_other_max",
                                  number(extreme(t, "gpu_processes_other", 1)));
    failed |= json_object_set_new(s, "gpu_throttle_reasons", throttle_reasons(t));
    return failed ? FAIL(e, ERR_MEMORY, "no memory for the summary") : OK;
}

/* Medians of the steady window for a GPU. */
static enum status put_utilisation(json_t *s, const struct columns *t, struct window w,
                                   struct err *e) {
    static const struct { const char *column, *key; } KEYS[] = {
        { "model_tflops", "model_tflops_median" }, { "mfu_peak", "mfu_peak_median" },
        { "mfu_gemm", "mfu_gemm_median" },
    };
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++) {
        double median = (double)NAN;
        TRY(window_median(t, KEYS[i].column, w, &median, e));
        if (json_object_set_new(s, KEYS[i].key, number(median)) != 0)
            return FAIL(e, ERR_MEMORY, "no memory for the summary");
    }
    return OK;
}

/* The number of steps that several ranks made. A step counts for the last attempt that began before
 * it: a new attempt cuts off the later steps of earlier ones. */
static int64_t steps_of_several(const struct columns *train, const json_t *attempts) {
    const struct column *step = columns_find(train, "step");
    int64_t rows = step && step->width == 1 ? train->rows : 0, n = rows;
    double one = rows ? walk_value(train, step, 0) : 0;
    if (!(fabs(one) < 0x1p62)) return n; /* not a valid step; sums with it would overflow */
    int64_t first = (int64_t)one, end = first + rows;
    for (size_t i = json_array_size(attempts); i-- > 0;) {
        const json_t *attempt = json_array_get(attempts, i);
        int64_t from = json_integer_value(json_object_get(attempt, "from_step"));
        if (from >= end - 1) continue;
        int64_t begin = from + 1 < first ? first : from + 1;
        if (json_integer_value(json_object_get(attempt, "ranks")) == 1) n -= end - begin;
        end = begin;
    }
    return n;
}

/* The rank that was most often the slowest, how long the other ranks waited for the slowest, and
 * for how many of the `steps` made by several ranks that is not known (pace.h). */
static enum status put_ranks(json_t *s, const struct columns *t, int64_t steps, struct err *e) {
    enum { RANKS = 64 };
    struct window w = steady_window(t ? t->rows : 0);
    const struct column *slowest = columns_find(t, "slowest_rank");
    double share = (double)NAN, exposed = (double)NAN;
    int64_t times[RANKS] = { 0 }, most = -1;
    TRY(window_median(t, "wait_share", w, &share, e));
    TRY(window_median(t, "exposed_share", w, &exposed, e));
    for (int64_t i = w.first; slowest && slowest->width == 1 && i < w.last; i++) {
        double v = walk_value(t, slowest, i);
        int64_t rank = v >= 0 && v < RANKS ? (int64_t)v : 0;
        times[rank]++;
        if (most < 0 || times[rank] > times[most]) most = rank;
    }
    int failed = json_object_set_new(s, "wait_share_median", number(share));
    failed |= json_object_set_new(s, "exposed_share_median", number(exposed));
    failed |= json_object_set_new(s, "slowest_rank", most < 0 ? json_null() : json_integer(most));
    failed |= json_object_set_new(s, "ranks_steps_missing",
                                  t ? json_integer(steps - t->rows) : json_null());
    return failed ? FAIL(e, ERR_MEMORY, "no memory for the summary") : OK;
}

static double column_sum(const struct columns *t, const char *name) {
    const struct column *c = columns_find(t, name);
    double sum = c && t->rows > 0 ? 0 : (double)NAN;
    for (int64_t i = 0; c && c->width == 1 && i < t->rows; i++) sum += walk_value(t, c, i);
    return sum;
}

enum status summary_make(const struct run_columns *c, const json_t *attempts, json_t **out,
                         struct err *e) {
    int64_t rows = c->train ? c->train->rows : 0;
    struct window w = steady_window(rows);
    double step_time = (double)NAN, tokens_per_s = (double)NAN;
    const struct column *step = columns_find(c->train, "step");
    TRY(window_median(c->train, "step_time_us", w, &step_time, e));
    TRY(window_median(c->train, "tokens_per_s", w, &tokens_per_s, e));
    json_t *s = json_object();
    int failed = 0;
    failed |= json_object_set_new(s, "schema", json_string("fp8lab.summary/1"));
    failed |= json_object_set_new(s, "steps", json_integer(rows));
    failed |= json_object_set_new(s, "step_first", whole(step, rows ? 0 : -1));
    failed |= json_object_set_new(s, "step_last", whole(step, rows - 1));
    failed |= json_object_set_new(s, "loss_final", last_value(c->train, "loss"));
    failed |= json_object_set_new(s, "loss_final_bits", last_bits(c->train, "loss_bits"));
    failed |= json_object_set_new(s, "eval_loss_final", last_value(c->eval, "loss"));
    failed |= json_object_set_new(s, "eval_loss_final_bits", last_bits(c->eval, "loss_bits"));
    failed |= json_object_set_new(s, "eval_loss_best", number(extreme(c->eval, "loss", -1)));
    failed |= json_object_set_new(s, "step_time_us_median", number(step_time));
    failed |= json_object_set_new(s, "tokens_per_s_median", number(tokens_per_s));
    failed |= json_object_set_new(s, "steady_from", whole(step, w.first < w.last ? w.first : -1));
    failed |= json_object_set_new(s, "steady_to", whole(step, w.first < w.last ? rows - 1 : -1));
    failed |= json_object_set_new(s, "tokens", integer(column_sum(c->train, "tokens")));
    failed |= json_object_set_new(s, "rss_bytes_peak", peak_bytes(c->telemetry, "rss_bytes"));
    failed |= json_object_set_new(s, "device_bytes_peak", peak_bytes(c->telemetry, "device_bytes"));
    failed |= json_object_set_new(s, "saturated_max", number(extreme(c->fp8, "saturated", 1)));
    failed |= json_object_set_new(s, "underflow_max", number(extreme(c->fp8, "underflow", 1)));
    enum status st = failed ? FAIL(e, ERR_MEMORY, "no memory for the summary") : OK;
    if (st == OK) st = put_utilisation(s, c->train, w, e);
    if (st == OK) st = put_device(s, c->telemetry, e);
    if (st == OK) st = put_ranks(s, c->ranks, steps_of_several(c->train, attempts), e);
    if (st != OK) {
        json_decref(s);
        return st;
    }
    *out = s;
    return OK;
}

/* ---- results_sha256 ------------------------------------------------------------------------ */

static void hash_column(struct sha256 *sha, const char *stream, const struct columns *t,
                        const char *name) {
    const struct column *step = columns_find(t, "step"), *c = columns_find(t, name);
    char head[256];
    if (!c || !step || step->type != COLUMN_I64 || step->width != 1) return;
    int length = snprintf(head, sizeof head, "%s %s %lld %lld\n", stream, name, (long long)t->rows,
                          (long long)c->width);
    sha256_add(sha, head, (size_t)length);
    sha256_add(sha, step->data, (size_t)t->rows * 8);
    const char *data = c->data;
    int64_t left = t->rows * c->width * column_type_bytes(c->type);
    while (left > 0) {
        int64_t n = left < COLUMNS_CHUNK ? left : COLUMNS_CHUNK;
        sha256_add(sha, data, (size_t)n);
        columns_forget(t);
        data += n;
        left -= n;
    }
}

enum status results_hash(const struct run_columns *c, const char *final_weights_sha256,
                         char hex[SHA256_HEX], struct err *e) {
    struct sha256 *sha = NULL;
    TRY(sha256_create(&sha, e));
    sha256_add(sha, "fp8lab.results/1\n", 17);
    hash_column(sha, "train", c->train, "loss_bits");
    hash_column(sha, "train", c->train, "grad_norm_bits");
    hash_column(sha, "eval", c->eval, "loss_bits");
    hash_column(sha, "fp8", c->fp8, "amax");
    hash_column(sha, "fp8", c->fp8, "scale");
    hash_column(sha, "trace", c->trace, "fingerprints");
    const char *weights = final_weights_sha256 ? final_weights_sha256 : "-";
    sha256_add(sha, "weights ", 8);
    sha256_add(sha, weights, strlen(weights));
    sha256_add(sha, "\n", 1);
    sha256_finish(sha, hex);
    sha256_destroy(sha);
    return OK;
}
