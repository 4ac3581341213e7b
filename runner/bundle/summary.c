#include "runner/bundle/summary.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/f32_bits.h"
#include "model/ground/json_safe.h"
#include "runner/base/json_number.h"
#include "runner/cache/eval_sets.h"
#include "runner/hardware/telemetry.h"

void run_columns_free(struct run_columns *c) {
    for (int i = 0; i < STREAM_COUNT; i++) columns_destroy(c->of[i]);
    *c = (struct run_columns){ 0 };
}

bool step_lacks_loss(const struct columns *train, int64_t row) {
    const struct column *tokens = columns_scalar(train, "loss_tokens");
    return tokens && column_value(tokens, row, 0) == 0;
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

/* Row i of a column that is not wide, in a walk over its rows. */
static double walk_value(const struct columns *t, const struct column *c, int64_t i) {
    columns_pass(t, c, i);
    return column_value(c, i, 0);
}

enum { VALUES_AT_ONCE = 512 };

/* The next values of a walk that ends before row `last`; returns how many. The type is tested once
 * for all of them. */
static int64_t walk_values(const struct columns *t, const struct column *c, int64_t from,
                           int64_t last, double out[VALUES_AT_ONCE]) {
    int64_t n = last - from < VALUES_AT_ONCE ? last - from : VALUES_AT_ONCE;
    if (!t->mapped && c->type == COLUMN_F64)
        for (int64_t i = 0; i < n; i++) memcpy(&out[i], column_row(c, from + i), sizeof *out);
    else
        for (int64_t i = 0; i < n; i++) out[i] = walk_value(t, c, from + i);
    return n;
}

/* The value of rank `rank` (from 0) in the window. Each of four passes finds 16 bits of its key, so
 * a run of any length needs one table and no copy. counts has RADIX entries. */
static double select_rank(const struct columns *t, const struct column *c, struct window w,
                          int64_t rank, int64_t *counts) {
    uint64_t prefix = 0;
    double v[VALUES_AT_ONCE];
    for (int shift = 64 - RADIX_BITS; shift >= 0; shift -= RADIX_BITS) {
        memset(counts, 0, RADIX * sizeof *counts);
        for (int64_t i = w.first, n; i < w.last; i += n) {
            n = walk_values(t, c, i, w.last, v);
            for (int64_t k = 0; k < n; k++) {
                uint64_t key = order_key(v[k]);
                bool inside = shift + RADIX_BITS == 64 || key >> (shift + RADIX_BITS) == prefix;
                if (inside && !isnan(v[k])) counts[key >> shift & (RADIX - 1)]++;
            }
        }
        uint64_t digit = 0;
        while (rank >= counts[digit]) rank -= counts[digit++];
        prefix = prefix << RADIX_BITS | digit;
    }
    return order_value(prefix);
}

/* The value of rank `rank` - 1, given that of `rank`: in one pass instead of four. */
static double rank_below(const struct columns *t, const struct column *c, struct window w,
                         int64_t rank, double value) {
    int64_t less = 0;
    uint64_t limit = order_key(value), largest = 0;
    double v[VALUES_AT_ONCE];
    for (int64_t i = w.first, n; i < w.last; i += n) {
        n = walk_values(t, c, i, w.last, v);
        for (int64_t k = 0; k < n; k++) {
            uint64_t key = order_key(v[k]);
            if (key >= limit || isnan(v[k])) continue;
            less++;
            if (key > largest) largest = key;
        }
    }
    return less == rank ? order_value(largest) : value;
}

enum status window_median(const struct columns *t, const char *name, struct window w, double *out,
                          struct err *e) {
    const struct column *c = columns_scalar(t, name);
    int64_t n = 0;
    *out = (double)NAN;
    if (!c) return OK;
    for (int64_t i = w.first; i < w.last; i++) n += !isnan(walk_value(t, c, i));
    if (n == 0) return OK;
    int64_t *counts = malloc(RADIX * sizeof *counts);
    if (!counts) return FAIL(e, ERR_MEMORY, "%d counters for a median", RADIX);
    *out = select_rank(t, c, w, n / 2, counts);
    if (n % 2 == 0) *out = 0.5 * (*out + rank_below(t, c, w, n / 2, *out));
    free(counts);
    return OK;
}

/* ---- summary.json -------------------------------------------------------------------------- */

/* Whether v, rounded towards zero, fits int64_t; a foreign column may hold any double. */
static bool is_whole(double v) { return v >= -0x1p63 && v < 0x1p63; }

static json_t *integer(double v) { return is_whole(v) ? json_integer((json_int_t)v) : json_null(); }

static json_t *whole(const struct column *c, int64_t row) {
    return c && row >= 0 ? integer(column_value(c, row, 0)) : json_null();
}

struct extreme column_extreme(const struct columns *t, const char *name, double sign) {
    const struct column *c = columns_find(t, name);
    struct extreme best = { .row = -1, .value = (double)NAN };
    for (int64_t i = 0; c && i < t->rows; i++) {
        columns_pass(t, c, i);
        for (int64_t k = 0; k < c->width; k++) {
            double v = column_value(c, i, k);
            if (isnan(v) || (best.row >= 0 && sign * v <= sign * best.value)) continue;
            best = (struct extreme){ i, k, v };
        }
    }
    return best;
}

/* The OR of all samples. */
static json_t *throttle_reasons(const struct columns *t) {
    const struct column *c = columns_scalar(t, "gpu_throttle");
    char text[192];
    int64_t seen = 0;
    for (int64_t i = 0; c && i < t->rows; i++) {
        double v = walk_value(t, c, i);
        if (is_whole(v)) seen |= (int64_t)v;
    }
    throttle_text(seen, text, sizeof text);
    return c ? json_string(text) : json_null();
}

static double column_sum(const struct columns *t, const char *name) {
    const struct column *c = columns_scalar(t, name);
    double sum = c && t->rows > 0 ? 0 : (double)NAN;
    for (int64_t i = 0; c && i < t->rows; i++) sum += walk_value(t, c, i);
    return sum;
}

/* The digits of the last value, null if there is none. */
static json_t *last_bits(const struct columns *t, const char *name) {
    const struct column *c = columns_scalar(t, name);
    if (!c || c->type != COLUMN_U32 || t->rows == 0) return json_null();
    return json_sprintf("%08" PRIx32, (uint32_t)column_bits(c, t->rows - 1, 0));
}

static double last_value(const struct columns *t, const char *name) {
    const struct column *c = columns_scalar(t, name);
    return c && t->rows > 0 ? column_value(c, t->rows - 1, 0) : (double)NAN;
}

static enum status make_figure(const struct figure *f, const struct columns *t, json_t **out,
                               struct err *e) {
    struct window all = { 0, t ? t->rows : 0 };
    double median = (double)NAN;
    if (f->kind == FIGURE_MEDIAN)
        TRY(window_median(t, f->column, steady_window(all.last), &median, e));
    if (f->kind == FIGURE_MEDIAN_ALL) TRY(window_median(t, f->column, all, &median, e));
    switch (f->kind) {
    case FIGURE_MEDIAN:
    case FIGURE_MEDIAN_ALL: *out = json_finite(median * f->scale); break;
    case FIGURE_LAST: *out = json_finite(last_value(t, f->column) * f->scale); break;
    case FIGURE_LAST_BITS: *out = last_bits(t, f->column); break;
    case FIGURE_LEAST:
        *out = json_finite(column_extreme(t, f->column, -1).value * f->scale);
        break;
    case FIGURE_LARGEST:
        *out = json_finite(column_extreme(t, f->column, 1).value * f->scale);
        break;
    case FIGURE_PEAK: *out = integer(column_extreme(t, f->column, 1).value * f->scale); break;
    case FIGURE_SUM: *out = integer(column_sum(t, f->column) * f->scale); break;
    }
    return OK;
}

static bool is_optional(const struct figure *f) {
    const struct stream *s = &STREAMS[f->stream];
    for (int64_t i = 0; i < s->metric_count; i++)
        if (!strcmp(s->metric[i].name, f->column)) return s->metric[i].recorded != NULL;
    return false;
}

static enum status put_figures(json_t *s, const struct run_columns *c, struct err *e) {
    for (int64_t i = 0; i < FIGURE_COUNT; i++) {
        const struct columns *t = c->of[FIGURES[i].stream];
        json_t *value = NULL;
        if (is_optional(&FIGURES[i]) && !columns_scalar(t, FIGURES[i].column)) continue;
        TRY(make_figure(&FIGURES[i], t, &value, e));
        if (json_object_set_new(s, FIGURES[i].key, value) != 0)
            return FAIL(e, ERR_MEMORY, "no memory for the summary");
    }
    return OK;
}

/* The number of steps that several ranks made. A step counts for the last attempt that began before
 * it: a new attempt cuts off the later steps of earlier ones. */
static int64_t steps_of_several(const struct columns *train, const json_t *attempts) {
    const struct column *step = columns_scalar(train, "step");
    int64_t rows = step ? train->rows : 0, n = rows;
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

/* The rank that was most often the slowest; -1: none. */
static int64_t slowest_rank(const struct columns *t) {
    enum { RANKS = 64 };
    struct window w = steady_window(t ? t->rows : 0);
    const struct column *slowest = columns_scalar(t, "slowest_rank");
    int64_t times[RANKS] = { 0 }, most = -1;
    for (int64_t i = w.first; slowest && i < w.last; i++) {
        double v = walk_value(t, slowest, i);
        int64_t rank = v >= 0 && v < RANKS ? (int64_t)v : 0;
        times[rank]++;
        if (most < 0 || times[rank] > times[most]) most = rank;
    }
    return most;
}

static enum status put_others(json_t *s, const struct run_columns *c, const json_t *attempts,
                              struct err *e) {
    const struct columns *train = c->of[STREAM_TRAIN], *ranks = c->of[STREAM_RANKS];
    const struct column *step = columns_scalar(train, "step");
    int64_t rows = train ? train->rows : 0, slowest = slowest_rank(ranks);
    struct window w = steady_window(rows);
    bool failed = false, steady = w.first < w.last;
    json_put(s, "schema", json_string("fp8lab.summary/1"), &failed);
    json_put(s, "steps", json_integer(rows), &failed);
    json_put(s, "step_first", whole(step, rows ? 0 : -1), &failed);
    json_put(s, "step_last", whole(step, rows - 1), &failed);
    json_put(s, "steady_from", whole(step, steady ? w.first : -1), &failed);
    json_put(s, "steady_to", whole(step, steady ? rows - 1 : -1), &failed);
    json_put(s, "gpu_throttle_reasons", throttle_reasons(c->of[STREAM_TELEMETRY]), &failed);
    json_put(s, "slowest_rank", slowest < 0 ? json_null() : json_integer(slowest), &failed);
    json_t *missing =
        ranks ? json_integer(steps_of_several(train, attempts) - ranks->rows) : json_null();
    json_put(s, "ranks_steps_missing", missing, &failed);
    return failed ? FAIL(e, ERR_MEMORY, "no memory for the summary") : OK;
}

int64_t eval_set_count(const struct columns *sets) {
    const struct column *loss = columns_find(sets, "loss"), *step = columns_scalar(sets, "step");
    bool whole = loss && step && loss->type == COLUMN_U32 && step->type == COLUMN_I64;
    if (!whole || json_array_size(sets->labels) != (size_t)loss->width) return 0;
    for (int64_t i = 0; i < loss->width; i++)
        if (!columns_label(sets, i) || !eval_set_is_name(columns_label(sets, i))) return 0;
    return loss->width;
}

double eval_set_loss(const struct columns *sets, int64_t row, int64_t set) {
    float loss = f32_from_bits((uint32_t)column_bits(columns_find(sets, "loss"), row, set));
    return isfinite(loss) ? (double)loss : (double)NAN;
}

/* The last value of a set in a column of whole numbers. */
static json_t *last_whole(const struct columns *t, const char *name, int64_t set) {
    const struct column *c = columns_find(t, name);
    return c && set < c->width ? integer(column_value(c, t->rows - 1, set)) : json_null();
}

static enum status put_sets(json_t *s, const struct columns *t, struct err *e) {
    int64_t count = eval_set_count(t);
    bool failed = false;
    if (count == 0 || t->rows == 0) return OK;
    json_t *sets = json_object();
    for (int64_t i = 0; i < count; i++) {
        const struct column *loss = columns_find(t, "loss");
        json_t *row = json_object();
        uint32_t bits = (uint32_t)column_bits(loss, t->rows - 1, i);
        json_put(row, "step", last_whole(t, "step", 0), &failed);
        json_put(row, "loss", json_finite(eval_set_loss(t, t->rows - 1, i)), &failed);
        json_put(row, "loss_bits", json_sprintf("%08" PRIx32, bits), &failed);
        json_put(row, "tokens", last_whole(t, "tokens", i), &failed);
        json_put(row, "loss_tokens", last_whole(t, "loss_tokens", i), &failed);
        json_put(sets, columns_label(t, i), row, &failed);
    }
    json_put(s, "eval_sets", sets, &failed);
    return failed ? FAIL(e, ERR_MEMORY, "no memory for the summary") : OK;
}

enum status summary_make(const struct run_columns *c, const json_t *attempts, json_t **out,
                         struct err *e) {
    json_t *s = json_object();
    enum status st = put_others(s, c, attempts, e);
    if (st == OK) st = put_sets(s, c->of[STREAM_EVAL_SETS], e);
    if (st == OK) st = put_figures(s, c, e);
    if (st == OK) *out = s;
    else json_decref(s);
    return st;
}

/* ---- results_sha256 ------------------------------------------------------------------------ */

/* Adds the values of a column, row after row. */
static void hash_values(struct sha256 *sha, const struct columns *t, const struct column *c) {
    char block[1 << 14];
    size_t row = (size_t)(c->width * column_type_bytes(c->type)), n = 0;
    if (!t->mapped && (size_t)c->stride == row) {
        sha256_add(sha, c->data, row * (size_t)t->rows);
        return;
    }
    for (int64_t i = 0; i < t->rows; i++) {
        columns_pass(t, c, i);
        if (n + row > sizeof block) {
            sha256_add(sha, block, n);
            n = 0;
        }
        const char *values = column_row(c, i);
        if (row > sizeof block) {
            sha256_add(sha, values, row);
            continue;
        }
        if (row == 4) memcpy(block + n, values, 4); /* of known size: no call */
        else if (row == 8) memcpy(block + n, values, 8);
        else memcpy(block + n, values, row);
        n += row;
    }
    sha256_add(sha, block, n);
}

static void hash_result(struct sha256 *sha, const struct stream *s, const struct metric *m,
                        const struct columns *t) {
    char name[COLUMN_NAME_CAP], head[256];
    result_column(s, m, name);
    const struct column *step = columns_scalar(t, "step"), *c = columns_find(t, name);
    if (!c || !step || step->type != COLUMN_I64) return;
    int length = snprintf(head, sizeof head, "%s %s %lld %lld\n", s->name, name,
                          (long long)t->rows, (long long)c->width);
    sha256_add(sha, head, (size_t)length);
    hash_values(sha, t, step);
    hash_values(sha, t, c);
}

enum status results_hash(const struct run_columns *c, const char *final_weights_sha256,
                         char hex[SHA256_HEX], struct err *e) {
    struct sha256 *sha = NULL;
    TRY(sha256_create(&sha, e));
    sha256_add(sha, "fp8lab.results/1\n", 17);
    for (int i = 0; i < STREAM_COUNT; i++)
        for (int64_t k = 0; k < STREAMS[i].metric_count; k++)
            if (STREAMS[i].metric[k].result)
                hash_result(sha, &STREAMS[i], &STREAMS[i].metric[k], c->of[i]);
    const char *weights = final_weights_sha256 ? final_weights_sha256 : "-";
    sha256_add(sha, "weights ", 8);
    sha256_add(sha, weights, strlen(weights));
    sha256_add(sha, "\n", 1);
    sha256_finish(sha, hex);
    sha256_destroy(sha);
    return OK;
}
