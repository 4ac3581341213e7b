/* Which runs of a group and of its baseline count for speed, and the verdict on their ratio. */
#include "runner/compare/compare_faster.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/json_number.h"
#include "runner/base/shell_word.h"
#include "runner/compare/compare_family.h"
#include "runner/compare/stats.h"

/* Clocks that differ by more than this share need a reason. */
#define CLOCK_SHARE 0.02

/* For runs with too few steady steps: enough for these and for some evaluations. */
#define MORE_STEPS " --set train.steps=60"

struct speeds {
    const struct comparison *c;
    const struct compare_groups *g;
    const struct kinship *kin; /* borrowed */
    int64_t baseline;          /* group */
    bool *counts;              /* for each run; owned */
    json_t *left_out;          /* [{run, why}] of this family; owned */
};

/* The runs of a group that count. */
struct side {
    double *log;   /* of their tokens/s; owned */
    int64_t count;
    double spread, grain; /* the largest of the runs' */
    double clock;         /* the mean of the known ones; NaN: there is none */
    bool capped;
    const char *from, *to; /* when the first and the last of them started; "" */
};

static const struct run_view *first_of(const struct speeds *s, int64_t group) {
    return &s->c->run[s->g->first[group]];
}

static bool is_member(const struct speeds *s, int64_t run) {
    int64_t group = s->g->of[run];
    return group == s->baseline || s->kin->of[group] == s->baseline;
}

/* ---- which runs count ---------------------------------------------------------------------- */

static void leave_out(struct speeds *s, int64_t run, const char *why, bool *failed) {
    s->counts[run] = false;
    json_append(s->left_out, json_pack("{s:I, s:o}", "run", (json_int_t)run, "why",
                                       json_from_text(why)), failed);
}

/* A copy of a run is no repeat: bounds of equal numbers would have no width. */
static void drop_copies(struct speeds *s, bool *failed) {
    for (int64_t i = 0; i < s->c->count; i++)
        for (int64_t k = 0; k < i && s->counts[i]; k++) {
            char why[SPEED_WHY_CAP], name[8];
            if (!s->counts[k] || !run_speed_same_run(&s->c->run[k], &s->c->run[i])) continue;
            snprintf(why, sizeof why, "it is the same run as %s", compare_letter(k, name));
            leave_out(s, i, why, failed);
        }
}

/* The run whose settings count: the first of the baseline that counts, else of any group. */
static int64_t model_run(const struct speeds *s) {
    int64_t first = -1;
    for (int64_t i = 0; i < s->c->count; i++) {
        if (s->counts[i] && s->g->of[i] == s->baseline) return i;
        if (s->counts[i] && first < 0) first = i;
    }
    return first;
}

static const json_t *build_of(const struct speeds *s, int64_t run) {
    return json_object_get(json_object_get(s->c->run[run].run, "inputs"), "code");
}

/* Whether the group differs from its baseline in nothing but the build. */
static bool asks_build(const struct speeds *s, int64_t group) {
    const json_t *others = json_array_get(s->kin->others, (size_t)group);
    return json_array_size(others) == 1 &&
           !strcmp(json_string_value(json_array_get(others, 0)), "code");
}

/* Runs of several builds may share a group, since their bits are equal; their speeds are not. */
static bool other_build(const struct speeds *s, int64_t model, int64_t run) {
    return !asks_build(s, s->g->of[run]) && !json_equal(build_of(s, model), build_of(s, run));
}

static void choose_runs(struct speeds *s, bool *failed) {
    const struct comparison *c = s->c;
    char name[8], why[SPEED_WHY_CAP];
    for (int64_t i = 0; i < c->count; i++) {
        s->counts[i] = is_member(s, i);
        if (s->counts[i] && *c->speed[i].why) leave_out(s, i, c->speed[i].why, failed);
    }
    drop_copies(s, failed);
    int64_t model = model_run(s);
    if (model < 0) return;
    compare_letter(model, name);
    for (int64_t i = 0; i < c->count; i++) {
        if (!s->counts[i] || i == model) continue;
        if (run_speed_other(&c->run[model], &c->run[i], &c->speed[model], &c->speed[i], name, why))
            leave_out(s, i, why, failed);
        else if (other_build(s, model, i)) {
            snprintf(why, sizeof why, "it is of another build than %s", name);
            leave_out(s, i, why, failed);
        }
    }
}

static enum status take_side(const struct speeds *s, int64_t group, struct side *out,
                             struct err *e) {
    int64_t clocks = 0;
    double clock = 0;
    *out = (struct side){ .log = calloc((size_t)s->c->count + 1, sizeof *out->log), .from = "",
                          .to = "" };
    if (!out->log) return FAIL(e, ERR_MEMORY, "speeds of %lld runs", (long long)s->c->count);
    for (int64_t i = 0; i < s->c->count; i++) {
        const struct run_speed *speed = &s->c->speed[i];
        const char *started = json_text(s->c->run[i].run, "started", "");
        if (!s->counts[i] || s->g->of[i] != group) continue;
        if (!out->count || strcmp(started, out->from) < 0) out->from = started;
        if (!out->count || strcmp(started, out->to) > 0) out->to = started;
        out->log[out->count++] = log(speed->tokens_per_s);
        out->spread = fmax(out->spread, speed->spread);
        out->grain = fmax(out->grain, speed->grain);
        out->capped = out->capped || speed->capped;
        if (isnan(speed->clock_mhz)) continue;
        clock += speed->clock_mhz;
        clocks++;
    }
    out->clock = clocks ? clock / (double)clocks : (double)NAN;
    return OK;
}

/* ---- the verdict --------------------------------------------------------------------------- */

/* Factors in which the work or the machine is another one. */
static bool is_other_work(const char *factor) {
    static const char *const WHOLE[] = { "gpu", "cpu", "backend", "ranks", "data" };
    for (size_t i = 0; i < sizeof WHOLE / sizeof *WHOLE; i++)
        if (!strcmp(factor, WHOLE[i])) return true;
    return !strncmp(factor, "model", 5);
}

/* Whether more than one thing, or the work itself, differs; `why` says what. */
static bool other_work(const struct speeds *s, int64_t group, char why[FAMILY_WHY_CAP]) {
    const json_t *others = json_array_get(s->kin->others, (size_t)group), *factor;
    const char *only = json_string_value(json_array_get(s->kin->only, (size_t)group));
    bool recipes = !json_equal(json_object_get(first_of(s, group)->resolved, "recipe"),
                               json_object_get(first_of(s, s->baseline)->resolved, "recipe"));
    size_t i, n = json_array_size(others) + (recipes && !only);
    if (only && is_other_work(only)) {
        snprintf(why, FAMILY_WHY_CAP, "tokens/s of another %.60s is no measure", only);
        return true;
    }
    json_array_foreach(others, i, factor) {
        const char *name = json_string_value(factor);
        if (n < 2 && !is_other_work(name)) continue;
        snprintf(why, FAMILY_WHY_CAP, "it differs from the baseline %sin %.60s", recipes ? "also "
                 : "", name);
        return true;
    }
    return false;
}

/* GEMMs in FP8 that the GPU lacks: its time is that of other kernels. */
static int64_t emulated(const struct run_view *v) {
    return json_int(json_object_get(v->decisions, "gemm_ways"), "emulated");
}

/* What must change so that there are runs that count. */
struct remedy {
    bool runs;  /* three of each row */
    bool steps; /* more of them in each run */
    bool time;  /* for more steps */
};

/* How many runs of the group would count if they had more steps. */
static int64_t short_runs(const struct speeds *s, int64_t group, struct remedy *r) {
    int64_t n = 0;
    for (int64_t i = 0; i < s->c->count; i++) {
        if (s->g->of[i] != group || !s->c->speed[i].few_steps) continue;
        r->steps = true;
        r->time = r->time || run_speed_timed_out(&s->c->run[i]);
        n++;
    }
    return n;
}

static struct remedy remedy_of(const struct speeds *s, int64_t group, const struct side *x,
                               const struct side *y) {
    struct remedy r = { 0 };
    int64_t n = x->count + short_runs(s, s->baseline, &r);
    int64_t m = y->count + short_runs(s, group, &r);
    r.runs = n < SPEED_RUNS_MIN || m < SPEED_RUNS_MIN;
    return r;
}

/* Appends the words of a command without those that another --repeat takes the place of, and
 * without --smoke, since no smoke run counts. */
static void put_words(const json_t *argv, const struct remedy *r, struct text *out) {
    const json_t *word;
    size_t i;
    bool skip = false;
    json_array_foreach(argv, i, word) {
        const char *text = json_is_string(word) ? json_string_value(word) : "?";
        bool value = r->runs && !strcmp(text, "--repeat");
        if (i < 2 || skip || value || !strcmp(text, "--again") || !strcmp(text, "--smoke") ||
            (r->runs && !strncmp(text, "--repeat=", 9))) {
            skip = value;
            continue;
        }
        char *quoted = shell_word(text);
        text_puts(out, " ");
        text_puts(out, quoted ? quoted : "?");
        free(quoted);
    }
    if (r->steps) text_puts(out, MORE_STEPS); /* of two values the last one counts */
}

/* Adds the command that makes what is missing, if one command made both rows. A command that is cut
 * may be another one, so a long one is not shown. */
static void add_command(const struct speeds *s, int64_t group, const struct remedy *r,
                        char why[FAMILY_WHY_CAP]) {
    const json_t *argv = json_object_get(first_of(s, group)->argv, "argv");
    size_t at = strlen(why), room = FAMILY_WHY_CAP - at;
    struct text words = { 0 };
    const char *verb = json_string_value(json_array_get(argv, 1));
    const char *repeat = r->runs ? " --repeat 3" : "", *steps = r->steps ? MORE_STEPS : "";
    if (r->time) {
        snprintf(why + at, room, "; raise time_limit: the runs have too few steps");
        return;
    }
    if (!json_equal(argv, json_object_get(first_of(s, s->baseline)->argv, "argv")) || !verb ||
        strcmp(verb, "run") != 0) {
        snprintf(why + at, room, "; run both%s%s%s", r->runs ? " three times, in turns" : "",
                 *steps ? " with" : "", steps);
        return;
    }
    put_words(argv, r, &words);
    if (words.failed || words.size + 32 > room)
        snprintf(why + at, room, "; run the command of both again with%s%s", repeat, steps);
    else
        snprintf(why + at, room, "; fp8lab run%s%.*s", repeat, (int)words.size, words.bytes);
    text_free(&words);
}

/* Clocks that no power cap explains were set or limited outside of the recipe. */
static bool other_clocks(const struct side *x, const struct side *y, char why[FAMILY_WHY_CAP]) {
    const struct side *slow = x->clock < y->clock ? x : y;
    double high = fmax(x->clock, y->clock);
    if (!(slow->clock < (1 - CLOCK_SHARE) * high) || slow->capped) return false;
    snprintf(why, FAMILY_WHY_CAP, "its GPU clock was %.0f MHz, the baseline's %.0f MHz, and the "
             "driver reports no power cap that explains it", y->clock, x->clock);
    return true;
}

/* A GPU that warms up gets slower, so the side that ran first has an advantage. */
static void note_order(const struct side *x, const struct side *y, char why[FAMILY_WHY_CAP]) {
    size_t at = strlen(why);
    const char *first = strcmp(x->to, y->from) < 0   ? "the baseline's runs were first"
                        : strcmp(y->to, x->from) < 0 ? "its runs were first"
                                                     : NULL;
    if (first)
        snprintf(why + at, FAMILY_WHY_CAP - at, "%s%s, on a colder GPU: run --repeat takes turns",
                 at ? "; " : "", first);
}

struct gain { double ratio, low, high; };

/* Whether a small difference of the clocks, without a power cap, is as large as what is shown. */
static bool clocks_explain(const struct side *x, const struct side *y, const struct gain *gain) {
    const struct side *slow = x->clock < y->clock ? x : y;
    double clocks = y->clock / x->clock;
    if (!(x->clock > 0 && y->clock > 0) || slow->capped) return false;
    return gain->low > 1 ? clocks > 1 && gain->low <= clocks : clocks < 1 && gain->high >= clocks;
}

static const char *judge_bounds(const struct side *x, const struct side *y, const struct gain *gain,
                                char why[FAMILY_WHY_CAP]) {
    double spread = fmax(x->spread, y->spread);
    const char *verdict = gain->low > 1 ? "faster" : gain->high < 1 ? "slower" : "not shown";
    bool shown = strcmp(verdict, "not shown") != 0;
    if (shown && spread > fabs(log(gain->ratio)))
        snprintf(why, FAMILY_WHY_CAP, "within a run the quartiles of the step times are %.1f %% "
                 "apart, more than the difference", 100 * spread);
    else if (shown && clocks_explain(x, y, gain))
        snprintf(why, FAMILY_WHY_CAP, "its GPU clock was %.0f MHz, the baseline's %.0f MHz, which "
                 "may be the difference", y->clock, x->clock);
    if (*why) verdict = "not shown";
    note_order(x, y, why);
    return verdict;
}

/* The verdict and its reason; NULL: none is given. */
static const char *judge(const struct speeds *s, int64_t group, const struct side *x,
                         const struct side *y, const struct gain *gain, char why[FAMILY_WHY_CAP]) {
    const struct run_view *base = first_of(s, s->baseline), *row = first_of(s, group);
    int64_t n = emulated(row) ? emulated(row) : emulated(base);
    why[0] = '\0';
    if (compare_on_cpu(base) || compare_on_cpu(row))
        snprintf(why, FAMILY_WHY_CAP, "a CPU emulates FP8: its times say nothing about FP8's "
                 "speed");
    else if (other_work(s, group, why)) return NULL;
    else if (n)
        snprintf(why, FAMILY_WHY_CAP, "%lld GEMMs are emulated, since this GPU lacks their FP8 "
                 "(fp8lab doctor)", (long long)n);
    else if (x->count < SPEED_RUNS_MIN || y->count < SPEED_RUNS_MIN) {
        snprintf(why, FAMILY_WHY_CAP, "row and baseline need %d runs each that count; here are "
                 "%lld and %lld", SPEED_RUNS_MIN, (long long)y->count, (long long)x->count);
        const struct remedy remedy = remedy_of(s, group, x, y);
        add_command(s, group, &remedy, why);
    } else if (!other_clocks(x, y, why)) return judge_bounds(x, y, gain, why);
    return NULL;
}

/* ---- the report ---------------------------------------------------------------------------- */

/* Step times are whole microseconds. Runs whose medians are equal may still differ by one, so they
 * are taken to scatter by that. */
static void raise_to_grain(double *variance, double grain) {
    if (*variance < grain * grain) *variance = grain * grain;
}

/* The ratio of geometric means, with its one-sided 95 % bounds. */
static struct gain gain_of(const struct side *x, const struct side *y) {
    struct stats_scatter scatter = stats_scatter_apart(x->log, x->count, y->log, y->count);
    raise_to_grain(&scatter.x, x->grain);
    raise_to_grain(&scatter.y, y->grain);
    double middle = stats_mean(y->log, y->count) - stats_mean(x->log, x->count);
    double half = stats_half(&scatter);
    return (struct gain){ exp(middle), exp(middle - half), exp(middle + half) };
}

static json_t *mean_json(const struct side *side) {
    return json_finite(exp(stats_mean(side->log, side->count)));
}

static enum status put_row(const struct speeds *s, int64_t group, const struct side *x,
                           json_t *rows, struct err *e) {
    struct side y;
    char why[FAMILY_WHY_CAP];
    bool failed = false, cpu = compare_on_cpu(first_of(s, s->baseline)) ||
                               compare_on_cpu(first_of(s, group));
    TRY(take_side(s, group, &y, e));
    struct gain gain = gain_of(x, &y);
    const char *verdict = judge(s, group, x, &y, &gain, why);
    if (cpu) gain = (struct gain){ (double)NAN, (double)NAN, (double)NAN };
    json_append(rows, json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:s?, s:o}", "group",
                                (json_int_t)group, "runs", (json_int_t)y.count, "tokens_per_s",
                                mean_json(&y), "ratio", json_finite(gain.ratio), "low",
                                json_finite(gain.low), "high", json_finite(gain.high), "verdict",
                                verdict, "why", json_from_text(why)), &failed);
    free(y.log);
    return failed ? FAIL(e, ERR_MEMORY, "a row of speeds") : OK;
}

static enum status put_family(struct speeds *s, json_t *list, struct err *e) {
    struct side x = { 0 };
    bool failed = false;
    json_t *rows = json_array();
    choose_runs(s, &failed);
    enum status st = failed || !rows ? FAIL(e, ERR_MEMORY, "speeds") : OK;
    if (st == OK) st = take_side(s, s->baseline, &x, e);
    for (int64_t k = 0; st == OK && k < s->g->count; k++)
        if (s->kin->of[k] == s->baseline) st = put_row(s, k, &x, rows, e);
    if (st == OK)
        json_append(list, json_pack("{s:I, s:I, s:o, s:O, s:O}", "baseline",
                                    (json_int_t)s->baseline, "runs", (json_int_t)x.count,
                                    "tokens_per_s", mean_json(&x), "left_out", s->left_out, "rows",
                                    rows), &failed);
    free(x.log);
    json_decref(rows);
    return failed && st == OK ? FAIL(e, ERR_MEMORY, "speeds") : st;
}

static enum status put_families(const struct comparison *c, const struct compare_groups *g,
                                const struct kinship *kin, json_t *list, struct err *e) {
    enum status st = OK;
    for (int64_t b = 0; st == OK && b < g->count; b++) {
        bool has = false;
        for (int64_t k = 0; k < g->count; k++) has = has || kin->of[k] == b;
        if (!has) continue;
        struct speeds s = { .c = c, .g = g, .kin = kin, .baseline = b,
                            .counts = calloc((size_t)c->count, sizeof *s.counts),
                            .left_out = json_array() };
        st = s.counts && s.left_out ? put_family(&s, list, e) : FAIL(e, ERR_MEMORY, "speeds");
        free(s.counts);
        json_decref(s.left_out);
    }
    return st;
}

enum status compare_faster(const struct comparison *c, const struct compare_groups *g,
                           const json_t *names, json_t **out, struct err *e) {
    struct kinship kin = { 0 };
    json_t *missing = json_array(); /* "losses_missing" has the same groups */
    *out = json_array();
    enum status st = *out && missing ? kinship_find(c, g, names, &kin, missing, e)
                                     : FAIL(e, ERR_MEMORY, "speeds");
    if (st == OK) st = put_families(c, g, &kin, *out, e);
    kinship_free(&kin);
    json_decref(missing);
    if (st == OK) return OK;
    json_decref(*out);
    *out = NULL;
    return st;
}

const json_t *compare_speed_row(const json_t *statistics, int64_t group, const json_t **family) {
    size_t i, k;
    const json_t *table, *row;
    json_array_foreach(json_object_get(statistics, "speed"), i, table)
        json_array_foreach(json_object_get(table, "rows"), k, row)
            if (json_int(row, "group") == group) {
                *family = table;
                return row;
            }
    return NULL;
}
