#include "runner/compare/seed_band.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"

static const double LOSS_MAX = 1e100; /* above any float; its square is finite in a double */

/* ---- making ---------------------------------------------------------------------------------- */

/* The losses of one run, one a step from step 1 on. */
static const struct column *losses_of(const struct run_view *v, int64_t *steps) {
    const struct columns *train = v->columns.of[STREAM_TRAIN];
    const struct column *step = columns_scalar(train, "step");
    const struct column *loss = columns_scalar(train, "loss");
    *steps = 0;
    if (!step || !loss) return NULL;
    while (*steps < train->rows && column_value(step, *steps, 0) == (double)(*steps + 1)) ++*steps;
    return *steps == train->rows ? loss : NULL;
}

static enum status check_repeats(const struct comparison *c, struct err *e) {
    const json_t *factors = json_object_get(c->report, "factors");
    size_t i;
    const json_t *item;
    json_array_foreach(factors, i, item) {
        const char *name = json_string_value(item);
        if (!strcmp(name, "seed")) continue;
        return FAIL(e, ERR_CONFIG, "no seed band: the runs differ in %s too, not in their seed "
                    "alone", name);
    }
    int64_t seeds = 0;
    for (int64_t a = 0; a < c->count; a++) {
        bool known = false;
        for (int64_t b = 0; b < a; b++)
            known = known || json_equal(json_object_get(c->run[a].run, "seed"),
                                        json_object_get(c->run[b].run, "seed"));
        seeds += !known;
    }
    if (seeds == c->count && seeds >= SEED_BAND_SEEDS_MIN) return OK;
    return FAIL(e, ERR_CONFIG, "no seed band: %" PRId64 " runs with %" PRId64 " seeds; it takes "
                "at least %d runs, each with a seed of its own", c->count, seeds,
                SEED_BAND_SEEDS_MIN);
}

/* The variance over the runs at one step. */
static double variance(const struct column *const *loss, int64_t runs, int64_t step) {
    double mean = 0, squares = 0;
    for (int64_t r = 0; r < runs; r++) mean += column_value(loss[r], step, 0) / (double)runs;
    for (int64_t r = 0; r < runs; r++) {
        double d = column_value(loss[r], step, 0) - mean;
        squares += d * d;
    }
    return squares / (double)(runs - 1);
}

/* A spread over a few seeds has fewer than four significant digits. */
static double rounded(double x) {
    char text[32];
    snprintf(text, sizeof text, "%.4g", x);
    return strtod(text, NULL);
}

static json_t *pooled(const struct column *const *loss, int64_t runs, int64_t steps) {
    json_t *band = json_array();
    bool failed = false;
    for (int64_t s = 0; s < steps; s++) {
        int64_t from = s - SEED_BAND_WINDOW / 2, to = s + SEED_BAND_WINDOW / 2;
        if (from < 0) from = 0;
        if (to > steps - 1) to = steps - 1;
        double sum = 0;
        for (int64_t k = from; k <= to; k++) sum += variance(loss, runs, k);
        json_append(band, json_real(rounded(sqrt(sum / (double)(to - from + 1)))), &failed);
    }
    return json_whole(band, failed);
}

static json_t *describe(const struct comparison *c, json_t *band) {
    json_t *seeds = json_array(), *bundles = json_array();
    bool failed = false;
    for (int64_t i = 0; i < c->count; i++) {
        json_t *seed = json_object_get(c->run[i].run, "seed");
        json_append(seeds, seed ? json_incref(seed) : NULL, &failed);
        json_append(bundles, json_string(c->run[i].identity), &failed);
    }
    json_t *out = json_pack("{s:s,s:s,s:s,s:o,s:o,s:i,s:o}", "schema", SEED_BAND_SCHEMA, "name",
                            json_text(c->run[0].run, "name", "?"), "reference",
                            c->run[0].identity, "seeds", seeds, "bundles", bundles, "window",
                            SEED_BAND_WINDOW, "band", band);
    return json_whole(out, failed);
}

enum status seed_band_make(const struct comparison *c, json_t **out, struct err *e) {
    TRY(check_repeats(c, e));
    const struct column **loss = calloc((size_t)c->count, sizeof *loss);
    if (!loss) return FAIL(e, ERR_MEMORY, "the losses of %" PRId64 " runs", c->count);
    enum status st = OK;
    int64_t steps = 0;
    for (int64_t i = 0; st == OK && i < c->count; i++) {
        int64_t n;
        loss[i] = losses_of(&c->run[i], &n);
        if (i == 0) steps = n;
        if (!loss[i] || n != steps || n == 0)
            st = FAIL(e, ERR_CONFIG, "no seed band: %s has %" PRId64 " steps, the first run %"
                      PRId64, c->run[i].path, n, steps);
        for (int64_t k = 0; st == OK && k < n; k++)
            if (!(fabs(column_value(loss[i], k, 0)) < LOSS_MAX))
                st = FAIL(e, ERR_CONFIG, "no seed band: %s has no loss at step %" PRId64 " that a "
                          "spread could be made of", c->run[i].path, k + 1);
    }
    if (st == OK) {
        *out = describe(c, pooled(loss, c->count, steps));
        if (!*out) st = FAIL(e, ERR_MEMORY, "a seed band");
    }
    free(loss);
    return st;
}

/* ---- reading --------------------------------------------------------------------------------- */

static enum status parse(const json_t *file, const char *path, const char *identity,
                         struct seed_band *out, struct err *e) {
    const json_t *band = json_object_get(file, "band");
    size_t n = json_array_size(band);
    if (strcmp(json_text(file, "schema", ""), SEED_BAND_SCHEMA) != 0 || n == 0)
        return FAIL(e, ERR_FORMAT, "%s is not a seed band (schema %s)", path, SEED_BAND_SCHEMA);
    if (strcmp(json_text(file, "reference", ""), identity) != 0)
        return FAIL(e, ERR_CONFIG, "%s is the seed band of bundle %.12s, not of %.12s", path,
                    json_text(file, "reference", "?"), identity);
    out->nats = calloc(n, sizeof *out->nats);
    if (!out->nats) return FAIL(e, ERR_MEMORY, "a seed band of %zu steps", n);
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(band, i);
        out->nats[i] = json_number_value(value);
        if (!json_is_number(value) || !(out->nats[i] >= 0))
            return FAIL(e, ERR_FORMAT, "%s: the band of step %zu is no number from 0 on", path,
                        i + 1);
    }
    out->steps = (int64_t)n;
    return OK;
}

/* A band as wide as the losses would make any losses equal. */
static enum status check_width(const struct seed_band *band, const struct columns *train,
                               const char *path, struct err *e) {
    static const char ADVICE[] = "no spread of seeds that could judge a run: leave the file out, "
                                 "or make one from longer or stabler runs";
    const struct column *step = columns_scalar(train, "step"),
                        *loss = columns_scalar(train, "loss");
    double bands = 0, losses = 0;
    for (int64_t i = 0; step && loss && i < train->rows; i++) {
        double at = column_value(step, i, 0), value = fabs(column_value(loss, i, 0));
        if (!(at >= 1 && at <= (double)band->steps) || !(value < LOSS_MAX)) continue;
        double nats = seed_band_at(band, (int64_t)at);
        if (nats > SEED_BAND_SHARE_MAX * value)
            return FAIL(e, ERR_CONFIG, "%s: the band of step %.0f is %.3g, above %g of the loss, "
                        "%.3g: %s", path, at, nats, SEED_BAND_SHARE_MAX, value, ADVICE);
        bands += nats;
        losses += value;
    }
    if (bands <= SEED_BAND_MEAN_MAX * losses) return OK;
    return FAIL(e, ERR_CONFIG, "%s: the band is %.3g of the losses on average, and %g at most is "
                "read: %s", path, bands / losses, SEED_BAND_MEAN_MAX, ADVICE);
}

enum status seed_band_read(const char *path, const char *identity, const struct columns *train,
                           struct seed_band *out, struct err *e) {
    json_t *file = NULL;
    *out = (struct seed_band){ 0 };
    TRY(json_file_read(path, &file, e));
    enum status st = parse(file, path, identity, out, e);
    json_decref(file);
    if (st == OK) st = check_width(out, train, path, e);
    if (st == OK) snprintf(out->path, sizeof out->path, "%s", path);
    if (st != OK) seed_band_free(out);
    return st;
}

void seed_band_free(struct seed_band *band) {
    free(band->nats);
    *band = (struct seed_band){ 0 };
}

double seed_band_at(const struct seed_band *band, int64_t step) {
    return step >= 1 && step <= band->steps ? band->nats[step - 1] : 0;
}

enum status seed_band_path(const char *bundle, char out[PATH_CAP], struct err *e) {
    static const char SUFFIX[] = ".tar.zst";
    size_t n = strlen(bundle), tail = sizeof SUFFIX - 1;
    if (n > tail && !strcmp(bundle + n - tail, SUFFIX)) n -= tail;
    int wrote = snprintf(out, PATH_CAP, "%.*s.band.json", (int)n, bundle);
    return wrote > 0 && wrote < PATH_CAP ? OK : FAIL(e, ERR_ARG, "path too long: %.200s…", bundle);
}
