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
#define CLOCK_SHARE 0.1

enum { TURNS_CAP = 80, GPUS_CAP = 64 };

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
    double spread, clock; /* the largest spread; the mean clock, NaN if one is not known */
    bool capped;
    const char *from, *to; /* when the first and the last of them started; "" */
    json_t *gpus;          /* owned: of each run that was one of several rows at once, as
                            * run_speed_gpus() names them */
};

static void side_free(struct side *side) {
    free(side->log);
    json_decref(side->gpus);
}

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
    double clock = 0;
    *out = (struct side){ .log = calloc((size_t)s->c->count + 1, sizeof *out->log), .spread = 0,
                          .from = "", .to = "", .gpus = json_array() };
    bool failed = !out->log || !out->gpus;
    for (int64_t i = 0; i < s->c->count && !failed; i++) {
        const struct run_speed *speed = &s->c->speed[i];
        const char *started = json_text(s->c->run[i].run, "started", "");
        char gpus[SPEED_GPUS_CAP];
        if (!s->counts[i] || s->g->of[i] != group) continue;
        run_speed_gpus(&s->c->run[i], gpus);
        if (*gpus) json_append(out->gpus, json_string(gpus), &failed);
        if (!out->count || strcmp(started, out->from) < 0) out->from = started;
        if (!out->count || strcmp(started, out->to) > 0) out->to = started;
        out->log[out->count++] = log(speed->tokens_per_s);
        out->spread = fmax(out->spread, speed->spread);
        out->capped = out->capped || speed->capped;
        clock += speed->clock_mhz;
    }
    out->clock = out->count ? clock / (double)out->count : (double)NAN;
    if (!failed) return OK;
    side_free(out);
    *out = (struct side){ 0 };
    return FAIL(e, ERR_MEMORY, "speeds of %lld runs", (long long)s->c->count);
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

static bool on_cpu(const struct run_view *v) {
    return strcmp(json_text(v->decisions, "backend", "cpu"), "cpu") == 0;
}

/* GEMMs in FP8 that the GPU lacks: its time is that of other kernels. */
static int64_t emulated(const struct run_view *v) {
    return json_int(json_object_get(v->decisions, "gemm_ways"), "emulated");
}

/* Whether the word is one of two flags; *value: its value is the next word. */
static bool is_replaced(const char *text, bool *value) {
    static const char *const FLAGS[] = { "--repeat", "--side-by-side" };
    bool found = false;
    *value = false;
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(FLAGS[i]);
        if (strncmp(text, FLAGS[i], n) != 0) continue;
        *value = *value || !text[n];
        found = found || !text[n] || text[n] == '=';
    }
    return found;
}

/* Appends the words of a command without those that are replaced or that --repeat takes the place
 * of, and without --smoke, since no smoke run counts. */
static void put_words(const json_t *argv, struct text *out) {
    const json_t *word;
    size_t i;
    bool skip = false, value;
    json_array_foreach(argv, i, word) {
        const char *text = json_is_string(word) ? json_string_value(word) : "?";
        bool replaced = is_replaced(text, &value);
        if (i < 2 || skip || replaced || !strcmp(text, "--again") || !strcmp(text, "--smoke")) {
            skip = value;
            continue;
        }
        char *quoted = shell_word(text);
        text_puts(out, " ");
        text_puts(out, quoted ? quoted : "?");
        free(quoted);
    }
}

/* The flags of a command that gives each GPU every row as often; at least three times in all. */
static void put_turns(const struct speeds *s, int64_t group, char out[TURNS_CAP]) {
    int64_t at_once = run_speed_at_once(first_of(s, group));
    if (at_once < 2) snprintf(out, TURNS_CAP, "--repeat 3");
    else
        snprintf(out, TURNS_CAP, "--repeat %lld --side-by-side %lld",
                 (long long)(at_once == 2 ? 4 : at_once), (long long)at_once);
}

/* Adds the command that makes three runs of each row, if one command made both rows. A command that
 * is cut may be another one, so a long one is not shown. */
static void add_command(const struct speeds *s, int64_t group, char why[FAMILY_WHY_CAP]) {
    const json_t *argv = json_object_get(first_of(s, group)->argv, "argv");
    size_t at = strlen(why), room = FAMILY_WHY_CAP - at;
    struct text words = { 0 };
    char turns[TURNS_CAP];
    const char *verb = json_string_value(json_array_get(argv, 1));
    if (!json_equal(argv, json_object_get(first_of(s, s->baseline)->argv, "argv")) || !verb ||
        strcmp(verb, "run") != 0) {
        snprintf(why + at, room, "; run both three times, in turns");
        return;
    }
    put_words(argv, &words);
    put_turns(s, group, turns);
    if (words.failed || words.size + strlen(turns) + 22 > room)
        snprintf(why + at, room, "; run the command of both again with %s", turns);
    else
        snprintf(why + at, room, "; fp8lab run %s%.*s", turns, (int)words.size, words.bytes);
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

/* How many of the runs were on these GPUs. */
static int64_t runs_on(const struct side *side, const char *gpus) {
    int64_t n = 0;
    size_t i;
    const json_t *one;
    json_array_foreach(side->gpus, i, one) n += !strcmp(json_string_value(one), gpus);
    return n;
}

/* Whether all runs of the side were on the same GPUs. */
static bool on_one_gpu(const struct side *side) {
    const char *first = json_string_value(json_array_get(side->gpus, 0));
    return first && runs_on(side, first) == (int64_t)json_array_size(side->gpus);
}

/* "0, 1, 1", or "0" if all are the same. */
static void gpus_text(const struct side *side, char out[GPUS_CAP]) {
    size_t i, used = 0, n = on_one_gpu(side) ? 1 : json_array_size(side->gpus);
    *out = '\0';
    for (i = 0; i < n && used < GPUS_CAP - 14; i++)
        used += (size_t)snprintf(out + used, GPUS_CAP - used, "%s%.8s", i ? ", " : "",
                                 json_string_value(json_array_get(side->gpus, i)));
    if (i < n) snprintf(out + used, GPUS_CAP - used, ", ...");
}

/* Of rows that ran side by side: how far the sides share their GPUs. */
enum sharing { SHARING_EQUAL, SHARING_PART, SHARING_NONE };

static enum sharing share_of(const struct side *x, const struct side *y) {
    size_t i, n = json_array_size(x->gpus), m = json_array_size(y->gpus);
    const json_t *one;
    bool equal = true, common = false;
    if (!n || !m) return SHARING_EQUAL; /* not known */
    json_array_foreach(x->gpus, i, one) {
        int64_t there = runs_on(y, json_string_value(one));
        equal = equal && runs_on(x, json_string_value(one)) * (int64_t)m == there * (int64_t)n;
        common = common || there;
    }
    return equal ? SHARING_EQUAL : common ? SHARING_PART : SHARING_NONE;
}

static void note_gpus(const struct side *x, const struct side *y, char why[FAMILY_WHY_CAP]) {
    char of_x[GPUS_CAP], of_y[GPUS_CAP];
    size_t at = strlen(why);
    if (share_of(x, y) == SHARING_EQUAL) return;
    gpus_text(x, of_x);
    gpus_text(y, of_y);
    snprintf(why + at, FAMILY_WHY_CAP - at, "%sits runs were on GPU %s, the baseline's on GPU %s: "
             "two chips of one product may differ by some percent", at ? "; " : "", of_y, of_x);
}

/* A side on one chip has no scatter of chips, so the bounds do not know of them. */
static bool other_gpus(const struct speeds *s, int64_t group, const struct side *x,
                       const struct side *y, char why[FAMILY_WHY_CAP]) {
    if (share_of(x, y) != SHARING_NONE || !(on_one_gpu(x) || on_one_gpu(y))) return false;
    note_gpus(x, y, why);
    add_command(s, group, why);
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

static const char *judge_bounds(const struct side *x, const struct side *y, const struct gain *gain,
                                char why[FAMILY_WHY_CAP]) {
    double spread = fmax(x->spread, y->spread);
    const char *verdict = gain->low > 1 ? "faster" : gain->high < 1 ? "slower" : "not shown";
    if (strcmp(verdict, "not shown") != 0 && spread > fabs(log(gain->ratio))) {
        snprintf(why, FAMILY_WHY_CAP, "within a run the quartiles of the step times are %.1f %% "
                 "apart, more than the difference", 100 * spread);
        verdict = "not shown";
    }
    note_order(x, y, why);
    note_gpus(x, y, why);
    return verdict;
}

/* The verdict and its reason; NULL: none is given. */
static const char *judge(const struct speeds *s, int64_t group, const struct side *x,
                         const struct side *y, const struct gain *gain, char why[FAMILY_WHY_CAP]) {
    const struct run_view *base = first_of(s, s->baseline), *row = first_of(s, group);
    int64_t n = emulated(row) ? emulated(row) : emulated(base);
    why[0] = '\0';
    if (on_cpu(base) || on_cpu(row))
        snprintf(why, FAMILY_WHY_CAP, "a CPU emulates FP8: its times say nothing about FP8's "
                 "speed");
    else if (other_work(s, group, why)) return NULL;
    else if (n)
        snprintf(why, FAMILY_WHY_CAP, "%lld GEMMs are emulated, since this GPU lacks their FP8 "
                 "(fp8lab doctor)", (long long)n);
    else if (x->count < SPEED_RUNS_MIN || y->count < SPEED_RUNS_MIN) {
        snprintf(why, FAMILY_WHY_CAP, "row and baseline need %d runs each that count; here are "
                 "%lld and %lld", SPEED_RUNS_MIN, (long long)y->count, (long long)x->count);
        note_gpus(x, y, why);
        add_command(s, group, why);
    } else if (!other_clocks(x, y, why) && !other_gpus(s, group, x, y, why))
        return judge_bounds(x, y, gain, why);
    return NULL;
}

/* ---- the report ---------------------------------------------------------------------------- */

/* The ratio of geometric means, with its one-sided 95 % bounds. */
static struct gain gain_of(const struct side *x, const struct side *y) {
    struct stats_scatter scatter = stats_scatter_apart(x->log, x->count, y->log, y->count);
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
    bool failed = false, cpu = on_cpu(first_of(s, s->baseline)) || on_cpu(first_of(s, group));
    TRY(take_side(s, group, &y, e));
    struct gain gain = gain_of(x, &y);
    const char *verdict = judge(s, group, x, &y, &gain, why);
    if (cpu) gain = (struct gain){ (double)NAN, (double)NAN, (double)NAN };
    json_append(rows, json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:s?, s:o}", "group",
                                (json_int_t)group, "runs", (json_int_t)y.count, "tokens_per_s",
                                mean_json(&y), "ratio", json_finite(gain.ratio), "low",
                                json_finite(gain.low), "high", json_finite(gain.high), "verdict",
                                verdict, "why", json_from_text(why)), &failed);
    side_free(&y);
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
    side_free(&x);
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
