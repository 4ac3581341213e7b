/* Does the loss hold? Takes each family's losses at equal tokens, and asks compare_loss.c.
 *
 * All runs of a family are compared after one number of tokens (compare_place.c), the last after
 * which all of them were evaluated. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/json_number.h"
#include "runner/compare/compare_family.h"

bool family_diverged(const struct family *f, int64_t group, char why[FAMILY_WHY_CAP]) {
    char how[256], name[8];
    for (int64_t i = 0; i < f->c->count; i++) {
        if (f->g->of[i] != group || !loss_diverged(&f->c->run[i], how)) continue;
        snprintf(why, FAMILY_WHY_CAP, "%s diverged: %s", compare_letter(i, name), how);
        return true;
    }
    return false;
}

/* ---- after how many tokens ----------------------------------------------------------------- */

static const struct curve *curve_of(const struct family *f, int64_t at) {
    return &f->curve[f->run[at]];
}

static int64_t last_step(const struct curve *c) {
    return c->points ? (int64_t)c->step[c->points - 1] : -1;
}

/* The reason why no number of tokens was evaluated by all runs. */
static void say_no_step(struct family *f) {
    char name[8];
    for (int64_t i = 0; i < f->runs; i++)
        if (curve_of(f, i)->points == 0) {
            snprintf(f->why, FAMILY_WHY_CAP, "%s was never evaluated; compare without it",
                     compare_letter(f->run[i], name));
            return;
        }
    int at = snprintf(f->why, FAMILY_WHY_CAP,
                      "there is no step at which all were evaluated; the last are");
    for (int64_t i = 0; i < f->runs && at < FAMILY_WHY_CAP - 40; i++)
        at += snprintf(f->why + at, FAMILY_WHY_CAP - (size_t)at, "%s %s %lld", i ? "," : "",
                       compare_letter(f->run[i], name), (long long)last_step(curve_of(f, i)));
}

static double evaluated(const struct family *f, int64_t at) {
    int64_t point = curve_find(curve_of(f, at), f->tokens);
    return point < 0 ? (double)NAN : curve_of(f, at)->evaluated[point];
}

/* The tokens whose mean an evaluation at the place of the comparison is. */
double family_counted(const struct family *f) {
    int64_t point = f->runs && !isnan(f->tokens) ? curve_find(curve_of(f, 0), f->tokens) : -1;
    return point < 0 ? (double)NAN : curve_of(f, 0)->counted[point];
}

/* Evaluations over different numbers of tokens cannot be compared. */
void family_check_evaluations(struct family *f) {
    char a[8], b[8];
    double tokens = evaluated(f, 0);
    for (int64_t i = 1; i < f->runs && !*f->why; i++) {
        double other = evaluated(f, i);
        if (isnan(tokens) || isnan(other) || tokens == other) continue;
        snprintf(f->why, FAMILY_WHY_CAP, "%s was evaluated on %.0f tokens, %s on %.0f",
                 compare_letter(f->run[0], a), tokens, compare_letter(f->run[i], b), other);
        f->apart = true;
        f->seconds = (double)NAN; /* no losses at equal time either */
    }
}

/* The training time that each run had at its last evaluation, at the least. */
static double common_time(const struct family *f) {
    double least = (double)INFINITY;
    for (int64_t i = 0; i < f->runs; i++) {
        const struct curve *c = curve_of(f, i);
        if (c->points == 0 || isnan(c->seconds[c->points - 1])) return (double)NAN;
        least = fmin(least, c->seconds[c->points - 1]);
    }
    return f->runs ? least : (double)NAN;
}

/* Fills the runs of a family, tokens and time of the comparison, and the reason for no verdict. */
static enum status find_place(struct family *f, struct err *e) {
    TRY(family_place(f, e));
    f->seconds = common_time(f);
    bool smoke = false;
    for (int64_t i = 0; i < f->runs; i++)
        smoke = smoke || json_is_true(json_object_get(f->c->run[f->run[i]].run, "smoke"));
    f->diverged = family_diverged(f, f->baseline, f->why);
    if (f->diverged) f->seconds = (double)NAN; /* a loss on the way to a divergence is no measure */
    if (f->diverged) return OK;
    if (smoke) snprintf(f->why, FAMILY_WHY_CAP, "a smoke run, whose sizes and steps are shrunk");
    else if (isnan(f->tokens)) say_no_step(f);
    else family_check_evaluations(f);
    return OK;
}

/* ---- samples ------------------------------------------------------------------------------- */

void loss_sample_free(struct loss_sample *s) {
    free(s->seed);
    free(s->value);
}

enum status family_sample(const struct family *f, int64_t group, const struct family_value *value,
                          struct loss_sample *out, int64_t *seeds, struct err *e) {
    int64_t *run = NULL, runs = 0, n = 0;
    *out = (struct loss_sample){ 0 };
    *seeds = 0;
    TRY(compare_repeats(f->c, f->g, group, &run, &runs, e));
    out->seed = calloc((size_t)runs + 1, sizeof *out->seed);
    out->value = calloc((size_t)runs + 1, sizeof *out->value);
    enum status st = out->seed && out->value ? OK : FAIL(e, ERR_MEMORY, "losses of a verdict");
    for (int64_t i = 0; st == OK && i < runs; i++) {
        if (f->out[run[i]]) continue;
        out->seed[n] = json_integer_value(json_object_get(f->c->run[run[i]].run, "seed"));
        out->value[n] = value->of(&f->curve[run[i]], value);
        if (isfinite(out->value[n++])) out->count++;
    }
    if (out->count < n) out->count = 0;
    *seeds = n;
    free(run);
    return st;
}

static double after_tokens(const struct curve *c, const struct family_value *v) {
    int64_t point = curve_find(c, v->at);
    return point < 0 ? (double)NAN : c->loss[point];
}

enum status family_losses(const struct family *f, int64_t group, struct loss_sample *out,
                          int64_t *seeds, struct err *e) {
    const struct family_value value = { .of = after_tokens, .at = f->tokens };
    return family_sample(f, group, &value, out, seeds, e);
}

/* ---- one group ----------------------------------------------------------------------------- */

/* Whether the groups differ in what they read: then their losses are of two texts. */
static bool other_data(const struct family *f, int64_t group) {
    size_t i;
    const json_t *name;
    json_array_foreach(json_array_get(f->kin->others, (size_t)group), i, name)
        if (!strcmp(json_string_value(name), "data")) return true;
    return false;
}

static const char *factor_of(const struct family *f, int64_t group) {
    return json_string_value(json_array_get(f->kin->only, (size_t)group));
}

/* What distinguishes the group from its baseline, for a sentence. */
static const char *difference_of(const struct family *f, int64_t group) {
    const char *factor = factor_of(f, group);
    return factor ? factor : f->c->options.baseline ? "what differs" : "the recipe";
}

/* Whether each seed has the baseline's bits: then what differs had no effect in these runs, and
 * "holds" would say something about a setting that was never active. */
static bool has_no_effect(const struct family *f, int64_t group) {
    int64_t compared = 0;
    for (int64_t i = 0; i < f->runs; i++)
        for (int64_t k = 0; k < f->runs; k++) {
            const json_t *a = f->c->run[f->run[i]].run, *b = f->c->run[f->run[k]].run;
            const char *bits = json_text(a, "results_sha256", "");
            if (f->g->of[f->run[i]] != f->baseline || f->g->of[f->run[k]] != group ||
                !json_equal(json_object_get(a, "seed"), json_object_get(b, "seed")))
                continue;
            if (!*bits || strcmp(bits, json_text(b, "results_sha256", "")) != 0) return false;
            compared++;
        }
    return compared > 0;
}

/* Whether a run's training, up to the place of the comparison, reached no lower loss than a guess
 * by how often each token occurs. One that overfits did: only its held-out loss is high. */
static bool only_counts(const struct family *f, int64_t at) {
    const struct run_view *v = &f->c->run[f->run[at]];
    int64_t point = curve_find(curve_of(f, at), f->tokens);
    double step = point < 0 ? (double)NAN : curve_of(f, at)->step[point];
    return loss_of_training(v, step) > LOSS_GUESS_SHARE * loss_of_frequencies(v);
}

/* The mean of that guess over the baseline's runs; infinite if one of them learned more, or if none
 * has recorded it. */
static double counts_of_baseline(const struct family *f) {
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < f->runs; i++) {
        const struct run_view *v = &f->c->run[f->run[i]];
        if (f->g->of[f->run[i]] != f->baseline || isinf(loss_of_frequencies(v))) continue;
        if (!only_counts(f, i)) return (double)INFINITY;
        sum += loss_of_frequencies(v);
        n++;
    }
    return n ? sum / (double)n : (double)INFINITY;
}

/* Whether the baseline's loss is that of a guess, uniform or by how often each token occurs: any
 * recipe guesses as well. */
static bool learned_nothing(const struct family *f, double mean, char why[FAMILY_WHY_CAP]) {
    double guess = loss_of_guess(&f->c->run[f->g->first[f->baseline]]);
    double counts = counts_of_baseline(f);
    if (mean > LOSS_GUESS_SHARE * guess)
        snprintf(why, FAMILY_WHY_CAP, "the baseline has learned nothing: its mean loss is %.5g, "
                 "and a uniform guess among %.0f tokens has %.5g; train longer", mean, exp(guess),
                 guess);
    else if (mean > LOSS_GUESS_SHARE * counts)
        snprintf(why, FAMILY_WHY_CAP, "the baseline has learned %s than how often each token "
                 "occurs: its mean loss is %.5g, and a guess by the frequencies in training has "
                 "%.5g; train longer", mean > counts ? "less" : "hardly more", mean, counts);
    else return false;
    return true;
}

/* The mean of the first evaluations of the baseline's runs; NaN if a run has none before the
 * place. */
static double first_of_baseline(const struct family *f) {
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < f->runs; i++) {
        if (f->g->of[f->run[i]] != f->baseline) continue;
        if (curve_of(f, i)->points == 0 || !(curve_of(f, i)->tokens[0] < f->tokens))
            return (double)NAN;
        sum += curve_of(f, i)->loss[0];
        n++;
    }
    return n ? sum / (double)n : (double)NAN;
}

/* Adds a clause to the reason. */
__attribute__((format(printf, 2, 3)))
static void add_clause(char why[FAMILY_WHY_CAP], const char *format, ...) {
    size_t at = strlen(why);
    va_list list;
    if (at && at + 2 < FAMILY_WHY_CAP) at += (size_t)snprintf(why + at, FAMILY_WHY_CAP - at, "; ");
    va_start(list, format);
    vsnprintf(why + at, FAMILY_WHY_CAP - at, format, list);
    va_end(list);
}

/* Whether weights from `init` that no step changed might have this loss as well: the baseline's is
 * not known to have fallen by more than the tolerance. */
static bool add_untrained(const struct family *f, double mean, double tolerance,
                          char why[FAMILY_WHY_CAP]) {
    static const char UNKNOWN[] = "whether the baseline learned anything is not known: the loss of "
                                  "its initial weights is not recorded";
    const json_t *config = f->c->run[f->g->first[f->baseline]].resolved;
    double first = first_of_baseline(f);
    if (!json_is_object(json_object_get(config, "init")) || first > (1 + tolerance) * mean)
        return false;
    if (isnan(first))
        add_clause(why, "%s, and no evaluation is earlier; evaluate more often (eval.every)",
                   UNKNOWN);
    else
        add_clause(why, "%s, and its mean loss was %.5g at the first evaluation and is %.5g; "
                   "evaluate earlier, or train longer", UNKNOWN, first, mean);
    return true;
}

/* Adds the runs of the group and of its baseline that are left out to the reason. */
static void add_left_out(const struct family *f, int64_t group, char why[FAMILY_WHY_CAP]) {
    size_t i, n = 0, at = strlen(why);
    const json_t *row;
    char name[8];
    json_array_foreach(f->left_out, i, row) {
        int64_t run = json_integer_value(json_object_get(row, "run"));
        if (at > FAMILY_WHY_CAP - 60 || (f->g->of[run] != group && f->g->of[run] != f->baseline))
            continue;
        at += (size_t)snprintf(why + at, FAMILY_WHY_CAP - at, "%s%s (to step %lld)",
                               n++ ? ", " : at ? "; without " : "without ",
                               compare_letter(run, name),
                               (long long)json_integer_value(json_object_get(row, "step")));
    }
}

/* Says if runs of this baseline or of its rows went on for more than twice as long. */
static bool add_others(const struct family *f, char why[FAMILY_WHY_CAP]) {
    int64_t step = family_step(f), farthest = f->farthest;
    for (int64_t i = 0; i < f->runs; i++)
        if (last_step(curve_of(f, i)) > farthest) farthest = last_step(curve_of(f, i));
    if (step < 0 || 2 * step >= farthest) return false;
    add_clause(why, "other runs went on to step %lld, and early in training recipes are alike",
               (long long)farthest);
    return true;
}

/* Says if a run of the group that is left out was bad. Who stops such a run must not get "holds"
 * for the others. */
static bool add_stopped(const struct family *f, int64_t group, double tolerance,
                        char why[FAMILY_WHY_CAP]) {
    struct family_stopped worst = family_stopped(f, group);
    char name[8];
    if (!(worst.relative > tolerance)) return false;
    const char *advice = worst.ended ? "" : ": let it go on (fp8lab run --resume RUN)";
    compare_letter(worst.run, name);
    if (worst.paired)
        add_clause(why, "%s was at %+.2f %% from the baseline of its seed there, which is more "
                   "than allowed%s", name, 100 * worst.relative, advice);
    else
        add_clause(why, "%s was %.2f %% above its lowest loss there%s", name, 100 * worst.relative,
                   advice);
    return true;
}

/* Says if the group's evaluations after the place got worse. Whether they contradict "holds". */
static bool add_later(const struct family *f, int64_t group, double tolerance,
                      char why[FAMILY_WHY_CAP]) {
    struct family_later later = family_later(f, group);
    bool worse = later.relative > tolerance;
    if (worse)
        add_clause(why, "later evaluations got worse: %+.2f %% from the baseline at step %lld, on "
                   "%lld seed%s", 100 * later.relative, (long long)later.step,
                   (long long)later.seeds, later.seeds == 1 ? "" : "s");
    else if (isnan(later.relative) && later.rise > tolerance)
        add_clause(why, "later evaluations got worse: the row's loss rises by %.2f %% to step %lld",
                   100 * later.rise, (long long)later.last_step);
    return worse;
}

/* Adds what speaks against a good loss, whatever the bounds say. Whether anything does. */
static bool add_doubts(const struct family *f, int64_t group, double mean, double tolerance,
                       char why[FAMILY_WHY_CAP]) {
    bool untrained = add_untrained(f, mean, tolerance, why);
    add_left_out(f, group, why);
    bool early = add_others(f, why), stopped = add_stopped(f, group, tolerance, why);
    return add_later(f, group, tolerance, why) || untrained || early || stopped;
}

/* The verdict and its reason. Conditions that exclude a verdict come first, the bounds last.
 * *doubted: something speaks against a good loss. */
static const char *judge(const struct family *f, int64_t group, const struct loss_judgement *j,
                         int64_t n, int64_t m, double tolerance, char why[FAMILY_WHY_CAP],
                         bool *doubted) {
    int64_t pairs = j->gap.pairs;
    why[0] = '\0';
    *doubted = false;
    if (*f->why) snprintf(why, FAMILY_WHY_CAP, "%s", f->why);
    else if (other_data(f, group)) snprintf(why, FAMILY_WHY_CAP, "trained on other data");
    else if (has_no_effect(f, group))
        snprintf(why, FAMILY_WHY_CAP, "%s had no effect: each seed has the baseline's bits",
                 difference_of(f, group));
    if (*why) return NULL;
    if (family_diverged(f, group, why)) return loss_verdict_name(LOSS_DOES_NOT_HOLD);
    if (learned_nothing(f, j->gap.baseline_mean, why)) return NULL;
    if (n < LOSS_SEEDS_MIN || m < LOSS_SEEDS_MIN)
        snprintf(why, FAMILY_WHY_CAP,
                 "row and baseline need %d seeds each; here are %lld and %lld", LOSS_SEEDS_MIN,
                 (long long)n, (long long)m);
    else if (j->verdict == LOSS_NONE)
        snprintf(why, FAMILY_WHY_CAP, "the losses have no finite ratio");
    else if (j->needed)
        snprintf(why, FAMILY_WHY_CAP, "it would take %s%lld seeds per side",
                 j->needed < 0 ? "more than " : "about ",
                 j->needed < 0 ? (long long)STATS_SEEDS_MAX : (long long)j->needed);
    else if (pairs && (pairs < n || pairs < m))
        snprintf(why, FAMILY_WHY_CAP, "on the %lld seeds that both have", (long long)pairs);
    *doubted = add_doubts(f, group, j->gap.baseline_mean, tolerance, why);
    if (j->verdict == LOSS_HOLDS && *doubted) return NULL;
    return loss_verdict_name(j->verdict);
}

/* The run that add_stopped() asks about; null: none is left out, or nothing is known of it. */
static json_t *stopped_json(const struct family *f, int64_t group) {
    struct family_stopped worst = family_stopped(f, group);
    if (isinf(worst.relative)) return json_null();
    return json_pack("{s:I, s:I, s:f, s:b, s:b}", "run", (json_int_t)worst.run, "step",
                     (json_int_t)worst.step, "relative", worst.relative, "paired", worst.paired,
                     "ended", worst.ended);
}

static json_t *judged_row(const struct family *f, int64_t group, const struct loss_judgement *j,
                          int64_t n, int64_t m, double tolerance, const char *kind) {
    char why[FAMILY_WHY_CAP], how[FAMILY_WHY_CAP];
    bool doubted;
    const char *verdict = judge(f, group, j, n, m, tolerance, why, &doubted);
    bool undecided = verdict && j->verdict == LOSS_UNDECIDED && j->needed > 0;
    return json_pack("{s:I, s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:f, s:s?, s:o, s:o, s:O, s:O,"
                     " s:b, s:b, s:o}",
                     "group", (json_int_t)group, "recipe", kind, "seeds", (json_int_t)m, "pairs",
                     (json_int_t)j->gap.pairs, "baseline_mean",
                     json_finite(j->gap.baseline_mean), "mean", json_finite(j->gap.mean),
                     "relative", json_finite(j->relative), "low", json_finite(j->low),
                     "high", json_finite(j->high), "tolerance", tolerance, "verdict", verdict,
                     "why", json_from_text(why), "seeds_needed",
                     undecided ? json_integer(j->needed) : json_null(), "differs_in",
                     json_array_get(f->kin->others, (size_t)group), "factor",
                     json_array_get(f->kin->only, (size_t)group), "diverged",
                     family_diverged(f, group, how), "doubted", doubted, "stopped",
                     stopped_json(f, group));
}

enum status family_row(const struct family *f, int64_t group, json_t **row, struct err *e) {
    struct loss_sample x = { 0 }, y = { 0 };
    struct loss_judgement j;
    int64_t n = 0, m = 0;
    const json_t *resolved = f->c->run[f->g->first[group]].resolved;
    const char *kind = json_text(json_object_get(resolved, "recipe"), "kind", "?");
    const double *asked = f->c->options.tolerance;
    double tolerance = asked ? *asked : loss_tolerance(kind);
    *row = NULL;
    enum status st = family_losses(f, f->baseline, &x, &n, e);
    if (st == OK) st = family_losses(f, group, &y, &m, e);
    if (st == OK) st = loss_judge_of(&x, &y, tolerance, f->tests, &j, e);
    if (st == OK) {
        *row = judged_row(f, group, &j, n, m, tolerance, kind);
        st = *row ? OK : FAIL(e, ERR_MEMORY, "a row of losses");
    }
    loss_sample_free(&x);
    loss_sample_free(&y);
    return st;
}

static enum status put_row(const struct family *f, int64_t group, json_t *rows, struct err *e) {
    bool failed = false;
    json_t *row = NULL;
    enum status st = family_row(f, group, &row, e);
    if (st == OK) st = family_speed(f, group, row, e);
    if (st == OK) json_append(rows, json_incref(row), &failed);
    json_decref(row);
    return failed ? FAIL(e, ERR_MEMORY, "a row of losses") : st;
}

/* ---- one family ---------------------------------------------------------------------------- */

/* The runs with evaluations after the place of the comparison. */
static json_t *cut_runs(const struct family *f) {
    json_t *cut = json_array();
    bool failed = false;
    for (int64_t i = 0; !isnan(f->tokens) && i < f->runs; i++) {
        const struct curve *c = curve_of(f, i);
        if (c->tokens[c->points - 1] > f->tokens)
            json_append(cut, json_pack("{s:I, s:I}", "run", (json_int_t)f->run[i], "step",
                                       (json_int_t)last_step(c)), &failed);
    }
    return json_whole(cut, failed);
}

/* The step of the baseline's runs at the place of the comparison, or null. */
static json_t *place_step(const struct family *f) {
    int64_t step = family_step(f);
    return step < 0 ? json_null() : json_integer((json_int_t)step);
}

/* Whether a run computed on a CPU. */
static bool on_cpu(const struct family *f) {
    for (int64_t i = 0; i < f->runs; i++)
        if (compare_on_cpu(&f->c->run[f->run[i]])) return true;
    return false;
}

static enum status family_json(struct family *f, json_t **out, struct err *e) {
    struct loss_sample x = { 0 };
    int64_t seeds = 0;
    json_t *rows = json_array(), *sets = NULL;
    *out = NULL;
    enum status st = rows ? find_place(f, e) : FAIL(e, ERR_MEMORY, "rows of losses");
    if (st == OK) st = family_losses(f, f->baseline, &x, &seeds, e);
    for (int64_t k = 0; st == OK && k < f->g->count; k++)
        if (f->kin->of[k] == f->baseline) st = put_row(f, k, rows, e);
    if (st == OK) st = family_sets(f, &sets, e);
    if (st == OK)
        *out = json_pack("{s:I, s:b, s:b, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:O, s:b, s:O,"
                         " s:O}",
                         "baseline", (json_int_t)f->baseline, "diverged", f->diverged, "cpu",
                         on_cpu(f), "seeds", (json_int_t)seeds, "mean",
                         json_finite(stats_mean(x.value, x.count)),
                         "step", place_step(f), "tokens", json_finite(f->tokens), "counted",
                         json_finite(family_counted(f)), "seconds", json_finite(f->seconds), "why",
                         json_from_text(f->why), "cut", cut_runs(f), "left_out", f->left_out,
                         "parted", f->parted, "rows", rows, "sets", sets);
    if (st == OK && !*out) st = FAIL(e, ERR_MEMORY, "a family of losses");
    json_decref(rows);
    json_decref(sets);
    loss_sample_free(&x);
    family_free(f);
    return st;
}

/* ---- all ----------------------------------------------------------------------------------- */

/* The families of one baseline: rows that were evaluated to about one place, the farthest first. */
static enum status add_parts(const struct comparison *c, const struct compare_groups *g,
                             const struct kinship *kin, int64_t baseline, json_t *losses,
                             struct err *e) {
    struct family_parts parts;
    bool failed = false;
    TRY(family_split(c, g, kin, baseline, &parts, e));
    enum status st = OK;
    for (int64_t p = 0; st == OK && p < parts.count; p++) {
        json_t *family = NULL;
        struct kinship some = { parts.of + p * g->count, kin->others, kin->only };
        struct family f = { .c = c, .g = g, .kin = &some, .curve = c->curve,
                            .baseline = baseline, .farthest = p ? parts.farthest : 0,
                            .parted = p == 0 && parts.count > 1 };
        st = family_json(&f, &family, e);
        if (st == OK) json_append(losses, family, &failed);
    }
    family_parts_free(&parts);
    return failed ? FAIL(e, ERR_MEMORY, "verdicts on losses") : st;
}

static enum status add_families(const struct comparison *c, const struct compare_groups *g,
                                const struct kinship *kin, json_t *losses, struct err *e) {
    for (int64_t b = 0; b < g->count; b++) {
        bool has = false;
        for (int64_t k = 0; k < g->count; k++) has = has || kin->of[k] == b;
        if (has) TRY(add_parts(c, g, kin, b, losses, e));
    }
    return OK;
}

enum status compare_losses(const struct comparison *c, const struct compare_groups *g,
                           const json_t *names, json_t **losses, json_t **missing,
                           struct err *e) {
    struct kinship kin = { 0 };
    *losses = json_array();
    *missing = json_array();
    enum status st = *losses && *missing ? OK : FAIL(e, ERR_MEMORY, "verdicts on losses");
    if (st == OK) st = kinship_find(c, g, names, &kin, *missing, e);
    if (st == OK) st = add_families(c, g, &kin, *losses, e);
    kinship_free(&kin);
    if (st == OK) return OK;
    json_decref(*losses);
    json_decref(*missing);
    *losses = *missing = NULL;
    return st;
}
