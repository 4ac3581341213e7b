#include "runner/compare/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/json_number.h"

/* ---- one run's row ------------------------------------------------------------------------- */

/* New reference to a member, null where it is absent. */
static json_t *member(const json_t *object, const char *key) {
    json_t *value = json_object_get(object, key);
    return value ? json_incref(value) : json_null();
}

/* The ratio of this run's value to the reference's; null unless both are numbers and the ratio is
 * finite. */
static json_t *ratio(const json_t *row, const json_t *first, const char *key) {
    const json_t *a = json_object_get(first, key), *b = json_object_get(row, key);
    if (!json_is_number(a) || !json_is_number(b)) return json_null();
    double value = json_number_value(b) / json_number_value(a);
    return json_finite(value);
}

/* The same for a loss; null if the two losses are of different steps. */
static json_t *loss_ratio(const json_t *row, const json_t *first, const char *key,
                          const char *step) {
    bool same = json_equal(json_object_get(row, step), json_object_get(first, step));
    return same ? ratio(row, first, key) : json_null();
}

/* The same for an evaluation; null also if the two are of different numbers of tokens. */
static json_t *eval_ratio(const json_t *row, const json_t *first) {
    static const char TOKENS[] = "eval_tokens";
    bool same = json_equal(json_object_get(row, TOKENS), json_object_get(first, TOKENS));
    return same ? loss_ratio(row, first, "eval_loss_final", "eval_step") : json_null();
}

static json_t *peak_memory(const json_t *summary) {
    json_t *device = json_object_get(summary, "device_bytes_peak");
    return json_is_number(device) ? json_incref(device) : member(summary, "rss_bytes_peak");
}

/* The evaluation loss a byte of text: runs on bytes and on tokens can be compared by it. */
static json_t *loss_of_byte(const struct run_view *v) {
    double bytes = run_view_bytes_a_token(v);
    const json_t *loss = json_object_get(v->summary, "eval_loss_final");
    return bytes > 0 && json_is_number(loss) ? json_real(json_number_value(loss) / bytes)
                                             : json_null();
}

/* GPU energy a token in J: the mean power of a GPU in the steady window, times the ranks, by the
 * median speed. Null without the driver's figures. */
static json_t *energy_of_token(const struct run_view *v) {
    const struct columns *t = v->columns.of[STREAM_TELEMETRY];
    const struct column *power = columns_scalar(t, "gpu_power_mw");
    const struct column *step = columns_scalar(t, "step"), *rank = columns_scalar(t, "rank");
    double speed = json_number_value(json_object_get(v->summary, "tokens_per_s_median"));
    double from = json_number_value(json_object_get(v->summary, "steady_from"));
    double sum = 0, samples = 0, ranks = 1;
    for (int64_t i = 0; power && i < t->rows; i++) {
        double mw = column_value(power, i, 0);
        if (rank) ranks = fmax(ranks, column_value(rank, i, 0) + 1);
        if (!(mw > 0) || (step && column_value(step, i, 0) < from)) continue;
        sum += mw;
        samples++;
    }
    return samples > 0 && speed > 0 ? json_real(1e-3 * sum / samples * ranks / speed)
                                    : json_null();
}

/* The number of tokens of the last evaluation; -1: there is none, or it is not known. */
static int64_t last_evaluated(const struct run_view *v) {
    const struct columns *t = v->columns.of[STREAM_EVAL];
    const struct column *tokens = t && t->rows ? columns_scalar(t, "tokens") : NULL;
    return tokens ? (int64_t)column_value(tokens, t->rows - 1, 0) : -1;
}

static json_t *run_row(const struct run_view *v, bool tokenised) {
    json_t *row = json_object();
    const json_t *s = v->summary;
    int64_t evaluated = compare_last_step(v->columns.of[STREAM_EVAL]), tokens = last_evaluated(v);
    bool failed = false;
    json_put(row, "id", member(v->run, "id"), &failed);
    json_put(row, "path", json_from_text(v->path), &failed);
    json_put(row, "name", member(v->run, "name"), &failed);
    json_put(row, "status", member(v->run, "status"), &failed);
    json_put(row, "recipe", member(json_object_get(v->resolved, "recipe"), "kind"), &failed);
    json_put(row, "seed", member(v->run, "seed"), &failed);
    json_put(row, "smoke", member(v->run, "smoke"), &failed);
    json_put(row, "identity", json_string(v->identity), &failed);
    json_put(row, "verified", json_boolean(v->verified), &failed);
    json_put(row, "inputs_sha256", member(v->run, "inputs_sha256"), &failed);
    json_put(row, "results_sha256", member(v->run, "results_sha256"), &failed);
    json_put(row, "eval_step", evaluated < 0 ? json_null() : json_integer(evaluated), &failed);
    json_put(row, "eval_tokens", tokens < 0 ? json_null() : json_integer(tokens), &failed);
    static const char *const KEYS[] = { "steps", "step_last", "steady_from", "steady_to",
                                        "model_tflops_median" };
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++)
        json_put(row, KEYS[i], member(s, KEYS[i]), &failed);
    for (int64_t i = 0; i < COMPARE_CELLS; i++)
        json_put(row, compare_cell(i)->key, member(s, compare_cell(i)->key), &failed);
    json_put(row, "memory_bytes_peak", peak_memory(s), &failed);
    json_put(row, "energy_j_per_token", energy_of_token(v), &failed);
    json_put(row, "eval_loss_byte", tokenised ? loss_of_byte(v) : json_null(), &failed);
    return json_whole(row, failed);
}

/* The label of the run's group. */
static json_t *label_of(const json_t *statistics, int64_t run) {
    size_t i, k;
    const json_t *group, *member;
    json_array_foreach(json_object_get(statistics, "groups"), i, group)
        json_array_foreach(json_object_get(group, "runs"), k, member)
            if (json_integer_value(member) == run)
                return json_incref(json_object_get(group, "label"));
    return json_null();
}

/* The first run of the baseline if there is exactly one baseline, else run 0. */
static int64_t reference_of(const json_t *statistics) {
    int64_t group = compare_only_baseline(json_object_get(statistics, "losses"));
    const json_t *groups = json_object_get(statistics, "groups");
    if (group < 0) return 0;
    const json_t *runs = json_object_get(json_array_get(groups, (size_t)group), "runs");
    return json_integer_value(json_array_get(runs, 0));
}

static json_t *run_rows(const struct comparison *c, const json_t *statistics) {
    json_t *rows = json_array();
    bool failed = false, tokenised = false;
    for (int64_t i = 0; i < c->count; i++) tokenised |= run_view_is_tokenised(&c->run[i]);
    for (int64_t i = 0; i < c->count; i++)
        json_append(rows, run_row(&c->run[i], tokenised), &failed);
    for (int64_t i = 0; i < c->count; i++)
        compare_put_spikes(c, i, json_array_get(rows, (size_t)i), &failed);
    compare_put_sets(c, rows, reference_of(statistics), &failed);
    const json_t *first = json_array_get(rows, (size_t)reference_of(statistics));
    for (int64_t i = 0; i < c->count; i++) {
        json_t *row = json_array_get(rows, (size_t)i);
        json_t *all = json_object();
        const json_t *inputs = json_object_get(c->run[i].run, "inputs");
        json_put(row, "label", label_of(statistics, i), &failed);
        json_put(row, "build", json_string(json_text(inputs, "code", "?")), &failed);
        json_put(all, "loss", loss_ratio(row, first, "loss_final", "step_last"), &failed);
        json_put(all, "eval_loss", eval_ratio(row, first), &failed);
        json_put(all, "eval_loss_byte", loss_ratio(row, first, "eval_loss_byte", "eval_step"),
                 &failed);
        json_put(all, "step_time", ratio(row, first, "step_time_us_median"), &failed);
        json_put(all, "tokens_per_s", ratio(row, first, "tokens_per_s_median"), &failed);
        json_put(all, "energy", ratio(row, first, "energy_j_per_token"), &failed);
        json_put(all, "memory", ratio(row, first, "memory_bytes_peak"), &failed);
        json_put(row, "ratio", all, &failed);
    }
    return json_whole(rows, failed);
}

/* ---- the verdict --------------------------------------------------------------------------- */

static bool same_text(const struct run_view *a, const struct run_view *b, const char *key) {
    const char *x = json_text(a->run, key, NULL), *y = json_text(b->run, key, NULL);
    return x && y && strcmp(x, y) == 0;
}

static int64_t step_count(const struct run_view *v) {
    return v->columns.of[STREAM_TRAIN] ? v->columns.of[STREAM_TRAIN]->rows : 0;
}

enum { NOTE_CAP = 192 };

/* Adds "WORDS 35 to 48 WHAT" if the values of the runs differ; negative: not known. */
static void say_range(const struct comparison *c, int64_t (*value)(const struct run_view *),
                      const char *words, const char *what, char out[NOTE_CAP]) {
    int64_t least = INT64_MAX, most = 0;
    size_t n = strlen(out);
    for (int64_t i = 0; i < c->count; i++) {
        int64_t x = value(&c->run[i]);
        if (x >= 0 && x < least) least = x;
        if (x > most) most = x;
    }
    if (least < most)
        snprintf(out + n, NOTE_CAP - n, "; but %s %lld to %lld %s", words, (long long)least,
                 (long long)most, what);
}

static json_t *verdict(const struct comparison *c, const json_t *factors) {
    size_t n = json_array_size(factors);
    bool inputs = true;
    const char *factor = json_string_value(json_array_get(factors, 0));
    char notes[NOTE_CAP] = "";
    if (n != 1 || strcmp(factor, "train.steps") != 0)
        say_range(c, step_count, "the runs made", "steps", notes);
    say_range(c, last_evaluated, "the last evaluations are of", "tokens", notes);
    for (int64_t i = 1; i < c->count; i++)
        inputs = inputs && same_text(&c->run[0], &c->run[i], "inputs_sha256");
    if (n == 0 && inputs)
        return json_sprintf("same inputs: the results must be equal bit for bit%s", notes);
    if (n == 0)
        return json_string("no factor that is known to change results, but inputs_sha256 differs");
    if (n == 1) return json_sprintf("one factor: %s%s", factor, notes);
    char list[512] = "";
    for (size_t i = 0, at = 0; i < n && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "",
                               json_string_value(json_array_get(factors, i)));
    return json_sprintf("many factors (%d): %s: no single cause can be named", (int)n, list);
}

/* ---- divergence ---------------------------------------------------------------------------- */

/* The first result that the comparison prints for both runs with two values. Such runs are not
 * reported as equal. It happens if a number and its bits disagree (checked in verified runs only),
 * or if the last evaluations are of different steps. */
static const char *printed_apart(const struct run_view *x, const struct run_view *y) {
    static const char *const KEYS[] = { "steps", "loss_final", "eval_loss_final" };
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++) {
        const json_t *a = json_object_get(x->summary, KEYS[i]),
                     *b = json_object_get(y->summary, KEYS[i]);
        if (json_is_number(a) && json_is_number(b) && json_number_value(a) != json_number_value(b))
            return KEYS[i];
    }
    return NULL;
}

/* Whether two runs of the same inputs have other results: one of them has records that the other
 * one lacks. Of other inputs, such as more evaluations, that is no difference. */
static bool results_apart(const struct run_view *x, const struct run_view *y) {
    const char *asked = json_text(x->run, "inputs_sha256", ""),
               *a = json_text(x->run, "results_sha256", ""),
               *b = json_text(y->run, "results_sha256", "");
    return *asked && *a && *b && !strcmp(asked, json_text(y->run, "inputs_sha256", "")) &&
           strcmp(a, b) != 0;
}

static const char *note_of(const struct comparison *c, int64_t b, const struct divergence *d,
                           bool weights_differ, char text[160]) {
    const struct run_view *x = &c->run[0], *y = &c->run[b];
    if (d->found && strcmp(d->stream, "trace") != 0 && d->traced >= 0)
        snprintf(text, 160, "all traced tensors were still equal at step %lld",
                 (long long)d->traced);
    else if (d->found) return "";
    else if (d->common_steps == 0) snprintf(text, 160, "the runs have no step in common");
    else if (step_count(x) != step_count(y))
        snprintf(text, 160, "equal as far as both went; one has %lld steps, the other %lld",
                 (long long)step_count(x), (long long)step_count(y));
    else if (weights_differ) snprintf(text, 160, "all records are equal, the final weights differ");
    else if (printed_apart(x, y))
        snprintf(text, 160, "the bits of all common steps are equal, but the last %s is not",
                 compare_metric(printed_apart(x, y)));
    else if (results_apart(x, y))
        snprintf(text, 160, "all common records are equal, results_sha256 is not: one run has "
                 "records that the other lacks");
    else return "";
    return text;
}

static json_t *divergence_row(const struct comparison *c, int64_t b, bool *equal) {
    const struct divergence d = c->divergence[b];
    char note[160];
    const struct run_view *x = &c->run[0], *y = &c->run[b];
    const char *wx = json_text(x->run, "final_weights_sha256", ""),
               *wy = json_text(y->run, "final_weights_sha256", "");
    bool weights_differ = *wx && *wy && strcmp(wx, wy) != 0;
    *equal = !d.found && d.common_steps > 0 && !weights_differ && step_count(x) == step_count(y) &&
             !printed_apart(x, y) && !results_apart(x, y);
    json_t *row = json_pack("{s:i, s:I, s:b, s:I, s:s}", "a", 0, "b", (json_int_t)b, "equal",
                            *equal, "common_steps", (json_int_t)d.common_steps, "note",
                            note_of(c, b, &d, weights_differ, note));
    bool failed = false;
    json_put(row, "step", d.found ? json_integer(d.step) : json_null(), &failed);
    json_put(row, "stream", d.found ? json_string(d.stream) : json_null(), &failed);
    json_put(row, "tensor", d.found && d.tensor[0] ? json_string(d.tensor) : json_null(), &failed);
    json_put(row, "a_bits", d.found ? json_string(d.a_bits) : json_null(), &failed);
    json_put(row, "b_bits", d.found ? json_string(d.b_bits) : json_null(), &failed);
    return json_whole(row, failed);
}

static void drop_factor(json_t *factors, const char *name) {
    for (size_t i = json_array_size(factors); i-- > 0;)
        if (strcmp(json_string_value(json_array_get(factors, i)), name) == 0)
            json_array_remove(factors, i);
}

/* Removes factors that only follow from another factor. "choices": each run measures a table of
 * algorithms for its own GEMMs. Two recipes or two models cannot have one table, and it only
 * changes the rounding of sums. It stays a factor if no other one but the code is there, since
 * `--choices` could have fixed it. "seed": runs that repeat others with another seed differ in it
 * on purpose. "code": of several groups each has runs of all builds, and their bits are the same.
 * In one group it stays, since a build's speed may be what is asked. */
static void drop_company(const struct comparison *c, json_t *factors, const json_t *statistics) {
    size_t groups = json_array_size(json_object_get(statistics, "groups")), others = 0, i;
    const json_t *factor;
    json_array_foreach(factors, i, factor) {
        const char *name = json_string_value(factor);
        others += strcmp(name, "choices") != 0 && strcmp(name, "code") != 0;
    }
    if (others > 0) drop_factor(factors, "choices");
    if (groups < (size_t)c->count && json_array_size(factors) > 1) drop_factor(factors, "seed");
    bool alike = groups > 1 && compare_joined_builds(statistics);
    const json_t *group;
    json_array_foreach(json_object_get(statistics, "groups"), i, group)
        alike = alike && json_int(group, "builds") == json_int(statistics, "builds");
    if (alike) drop_factor(factors, "code");
}

/* ---- all together -------------------------------------------------------------------------- */

static enum status make_report(struct comparison *c, struct err *e) {
    json_t *differences = NULL, *factors = NULL, *statistics = NULL, *divergences = json_array();
    const struct run_view **runs = malloc((size_t)c->count * sizeof *runs);
    if (!runs) {
        json_decref(divergences);
        return FAIL(e, ERR_MEMORY, "%lld runs", (long long)c->count);
    }
    for (int64_t i = 0; i < c->count; i++) runs[i] = &c->run[i];
    enum status st = compare_differences(runs, c->count, &differences, &factors, e);
    free(runs);
    if (st != OK) {
        json_decref(divergences);
        return st;
    }
    c->equal = true;
    bool failed = false;
    for (int64_t b = 1; b < c->count; b++) {
        bool equal = false;
        json_append(divergences, divergence_row(c, b, &equal), &failed);
        c->equal = c->equal && equal;
    }
    st = compare_statistics(c, differences, &statistics, e);
    if (st == OK) drop_company(c, factors, statistics);
    if (st == OK)
        c->report = json_pack("{s:s, s:I, s:o, s:O, s:O, s:o, s:O, s:O, s:b}", "schema",
                              "fp8lab.compare/1", "reference",
                              (json_int_t)reference_of(statistics), "runs",
                              run_rows(c, statistics), "differences", differences,
                              "factors", factors, "verdict", verdict(c, factors), "divergences",
                              divergences, "statistics", statistics, "equal", c->equal);
    c->report = json_whole(c->report, failed);
    if (st == OK && !c->report) st = FAIL(e, ERR_MEMORY, "no memory for the report");
    json_decref(differences);
    json_decref(factors);
    json_decref(statistics);
    json_decref(divergences);
    return st;
}

enum status compare_runs(const char *const *paths, int64_t count,
                         const struct compare_options *options, struct comparison *out,
                         struct err *e) {
    *out = (struct comparison){ .count = count };
    if (options) out->options = *options;
    enum status st = compare_load(out, paths, e);
    if (st == OK) st = make_report(out, e);
    if (st != OK) compare_free(out);
    return st;
}
