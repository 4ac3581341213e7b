#include "runner/repro/repro_verdict.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/cli.h"
#include "runner/base/json_number.h"
#include "runner/repro/repro_config.h"

static const char *backend_of(const struct run_view *v) {
    return json_text(v->decisions, "backend", "unknown");
}

static int64_t step_count(const struct run_view *v) {
    return v->columns.of[STREAM_TRAIN] ? v->columns.of[STREAM_TRAIN]->rows : 0;
}

/* ---- why the bits may differ ----------------------------------------------------------------- */

/* Whether a difference breaks the promise of equal bits, which is for the same inputs on the same
 * GPU model with the same library versions. CPU results are the same on every CPU. */
static bool breaks_promise(const struct comparison *c, const json_t *row) {
    static const char *const MACHINE[] = { "gpu.product_name", "gpu.cc", "cuda.runtime",
                                           "cublaslt.version", "cudnn.version" };
    const char *key = json_text(row, "key", "");
    if (!json_text(row, "factor", NULL)) return false;
    if (strcmp(json_text(row, "section", ""), "machine") != 0) return true;
    if (strcmp(backend_of(&c->run[0]), "cuda") != 0) return false;
    for (size_t i = 0; i < sizeof MACHINE / sizeof *MACHINE; i++)
        if (!strcmp(key, MACHINE[i])) return true;
    return false;
}

/* A value for a sentence: hashes are shortened, an absent value is "none". New reference to a
 * text. */
static json_t *value_text(const json_t *value) {
    if (!value || json_is_null(value)) return json_string("none");
    const char *text = json_string_value(value);
    if (text) return json_sprintf("%.*s", sha256_is_hex(text) ? 12 : 120, text);
    char *dump = json_dump_text(value, JSON_ENCODE_ANY | JSON_COMPACT);
    json_t *out = dump ? json_sprintf("%.120s", dump) : NULL;
    free(dump);
    return out;
}

static json_t *reason_text(const json_t *row, bool newer) {
    const json_t *values = json_object_get(row, "values");
    const char *section = json_text(row, "section", "?"), *key = json_text(row, "key", "?");
    json_t *then = value_text(json_array_get(values, 0)),
           *now = value_text(json_array_get(values, 1)), *text = NULL;
    if (then && now && newer)
        text = json_sprintf("%s.%s is newer than the bundle; its default is %s", section, key,
                            json_string_value(now));
    else if (then && now)
        text = json_sprintf("%s: %s.%s was %s and is %s", json_text(row, "factor", "?"), section,
                            key, json_string_value(then), json_string_value(now));
    json_decref(then);
    json_decref(now);
    return text;
}

/* Lists the reasons why bits may differ. *config: the configurations differ, not only in keys newer
 * than the bundle. */
static enum status find_reasons(const struct comparison *c, json_t **out, bool *config,
                                struct err *e) {
    const json_t *differences = json_object_get(c->report, "differences"), *row;
    struct config_change change;
    json_t *reasons = json_array();
    enum status st = config_change_find(c->run[0].resolved, c->run[1].resolved, &change, e);
    bool failed = st != OK;
    size_t i;
    *config = false;
    json_array_foreach(differences, i, row) {
        if (!breaks_promise(c, row)) continue;
        bool of_config = !strcmp(json_text(row, "section", ""), "config");
        bool newer = of_config && config_change_is_newer(&change, json_text(row, "key", ""));
        json_append(reasons, reason_text(row, newer), &failed);
        *config = *config || (of_config && !newer);
    }
    config_change_free(&change);
    *out = json_whole(reasons, failed);
    return *out ? OK : FAIL(e, ERR_MEMORY, "the reasons of a verdict");
}

/* ---- losses ---------------------------------------------------------------------------------- */

/* Compares the loss at every common step where both runs have tokens with loss. A loss that is not
 * finite is never within the tolerance. */
static void measure_losses(const struct comparison *c, const struct seed_band *band,
                           struct repro_verdict *v) {
    const struct columns *a = c->run[0].columns.of[STREAM_TRAIN];
    const struct columns *b = c->run[1].columns.of[STREAM_TRAIN];
    const struct column *step_a = columns_scalar(a, "step"), *step_b = columns_scalar(b, "step"),
                        *loss_a = columns_scalar(a, "loss"), *loss_b = columns_scalar(b, "loss");
    if (!step_a || !step_b || !loss_a || !loss_b) return;
    double worst_share = -1;
    for (int64_t i = 0, j = 0; i < a->rows && j < b->rows;) {
        double sa = column_value(step_a, i, 0), sb = column_value(step_b, j, 0);
        if (sa != sb) {
            if (sa < sb) i++;
            else j++;
            continue;
        }
        bool none = step_lacks_loss(a, i) && step_lacks_loss(b, j);
        double x = column_value(loss_a, i++, 0), y = column_value(loss_b, j++, 0);
        if (none) continue;
        struct loss_distance d = { .step = (int64_t)sa, .nats = fabs(x - y) };
        d.relative = d.nats / fabs(x);
        d.allowed_nats = REPRO_LOSS_RELATIVE * fabs(x);
        if (v->band_counts)
            d.allowed_nats = fmax(d.allowed_nats, REPRO_SEED_BANDS * seed_band_at(band, d.step));
        double share = d.nats > 0 ? d.nats / d.allowed_nats : 0;
        bool inside = d.nats <= d.allowed_nats;
        if (isnan(d.nats)) share = (double)INFINITY;
        if (share > worst_share) {
            v->worst = d;
            worst_share = share;
        }
        if (!inside && v->first_outside.step == 0) v->first_outside = d;
    }
}

/* ---- the verdict ----------------------------------------------------------------------------- */

static bool is_done(const struct run_view *v) {
    return !strcmp(json_text(v->run, "status", ""), "done");
}

/* Whether two finished runs also agree in results_sha256, which covers the final weights. */
static bool same_results(const struct comparison *c) {
    if (!is_done(&c->run[0]) || !is_done(&c->run[1])) return true;
    return !strcmp(json_text(c->run[0].run, "results_sha256", "?"),
                   json_text(c->run[1].run, "results_sha256", ""));
}

static enum repro_kind decide(const struct comparison *c, bool config, int64_t only_steps,
                              struct repro_verdict *v) {
    int64_t all = step_count(&c->run[0]), now = step_count(&c->run[1]);
    int64_t then = only_steps && only_steps < all ? only_steps : all;
    size_t size = sizeof v->note;
    if (then == 0) {
        snprintf(v->note, size, "the bundle holds no step to compare with");
        return REPRO_INCOMPARABLE;
    }
    if (v->steps < then) {
        snprintf(v->note, size, "the new run has %" PRId64 " of the bundle's %" PRId64 " steps",
                 v->steps, then);
        return REPRO_INCOMPARABLE;
    }
    if (then < all)
        snprintf(v->note, size, "steps after %" PRId64 " and the final weights were not compared",
                 then);
    else if (now > then)
        snprintf(v->note, size, "compared over the %" PRId64 " steps that the bundle has: it ended "
                 "as %.40s", then, json_text(c->run[0].run, "status", "?"));
    if (!v->first.found && same_results(c)) return REPRO_BITWISE;
    if (!v->first.found && now == all)
        snprintf(v->note, size, "all records are equal, results_sha256 is not: the final weights "
                 "differ, or what the two programs record");
    if (!v->first.found && now != all)
        snprintf(v->note, size, "the bundle has records of %" PRId64 " steps, the new run of %"
                 PRId64 ": those of the same steps are equal", all, now);
    if (config) {
        snprintf(v->note, size, "the script resolves to another configuration here");
        return REPRO_INCOMPARABLE;
    }
    return v->first_outside.step ? REPRO_DIFFERENT : REPRO_TOLERANCE;
}

enum status repro_judge(const struct comparison *c, const struct seed_band *band,
                        int64_t only_steps, struct repro_verdict *out, struct err *e) {
    bool config;
    *out = (struct repro_verdict){ .kind = REPRO_INCOMPARABLE };
    TRY(find_reasons(c, &out->reasons, &config, e));
    out->first = c->divergence[1];
    out->steps = out->first.common_steps;
    out->of_steps = step_count(&c->run[0]);
    out->band = band->steps ? band->path : NULL;
    out->band_counts = band->steps && (!band->found || json_array_size(out->reasons) > 0);
    measure_losses(c, band, out);
    out->kind = decide(c, config, only_steps, out);
    return OK;
}

void repro_verdict_free(struct repro_verdict *v) {
    json_decref(v->reasons);
    v->reasons = NULL;
}

const char *repro_kind_name(enum repro_kind kind) {
    switch (kind) {
    case REPRO_BITWISE: return "bitwise equal";
    case REPRO_TOLERANCE: return "within tolerance";
    case REPRO_DIFFERENT: return "different";
    case REPRO_INCOMPARABLE: break;
    }
    return "not comparable";
}

int repro_exit_code(enum repro_kind kind, bool exact) {
    switch (kind) {
    case REPRO_BITWISE: return EXIT_OK;
    case REPRO_TOLERANCE: return exact ? EXIT_DIFFERS : EXIT_OK;
    case REPRO_DIFFERENT: return EXIT_DIFFERS;
    case REPRO_INCOMPARABLE: break;
    }
    return EXIT_HARDWARE;
}

/* ---- as JSON --------------------------------------------------------------------------------- */

static json_t *distance_json(const struct loss_distance *d) {
    if (d->step == 0) return json_null();
    return json_pack("{s:I,s:o,s:o,s:o}", "step", (json_int_t)d->step, "nats",
                     json_finite(d->nats), "relative", json_finite(d->relative), "allowed_nats",
                     json_finite(d->allowed_nats));
}

static json_t *divergence_json(const struct divergence *d) {
    if (!d->found) return json_null();
    return json_pack("{s:I,s:s,s:o,s:s,s:s}", "step", (json_int_t)d->step, "stream", d->stream,
                     "tensor", *d->tensor ? json_string(d->tensor) : json_null(), "bundle_bits",
                     d->a_bits, "run_bits", d->b_bits);
}

json_t *repro_verdict_json(const struct repro_verdict *v) {
    json_t *band = v->band ? json_from_text(v->band) : json_null();
    return json_pack("{s:s,s:o,s:b,s:I,s:I,s:O,s:b,s:o,s:o,s:o,s:s}", "verdict",
                     repro_kind_name(v->kind), "band", band, "band_counts", v->band_counts, "steps",
                     (json_int_t)v->steps, "of_steps", (json_int_t)v->of_steps, "reasons",
                     v->reasons, "bits_expected", json_array_size(v->reasons) == 0, "divergence",
                     divergence_json(&v->first), "loss_worst", distance_json(&v->worst),
                     "loss_first_outside", distance_json(&v->first_outside), "note", v->note);
}
