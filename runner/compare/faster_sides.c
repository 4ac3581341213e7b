/* Which runs of a baseline and of its rows count for their speed. */
#include "runner/compare/faster_sides.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"

enum status speeds_open(struct speeds *s, struct err *e) {
    s->counts = calloc((size_t)s->c->count + 1, sizeof *s->counts);
    s->left_out = json_array();
    return s->counts && s->left_out ? OK : FAIL(e, ERR_MEMORY, "speeds");
}

void speeds_close(struct speeds *s) {
    free(s->counts);
    json_decref(s->left_out);
}

int64_t speeds_first(const struct speeds *s, int64_t side) {
    for (int64_t i = 0; i < s->c->count; i++)
        if (s->of[i] == side) return i;
    return -1;
}

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

/* ---- settings and builds ------------------------------------------------------------------- */

bool speeds_same_build(const struct comparison *c, int64_t a, int64_t b) {
    const json_t *x = json_object_get(json_object_get(c->run[a].run, "inputs"), "code");
    const json_t *y = json_object_get(json_object_get(c->run[b].run, "inputs"), "code");
    return x == y || json_equal(x, y);
}

static bool other_setting(const struct speeds *s, int64_t model, int64_t run,
                          char why[SPEED_WHY_CAP]) {
    char name[8];
    return run_speed_other(&s->c->run[model], &s->c->run[run], &s->c->speed[model],
                           &s->c->speed[run], compare_letter(model, name), why);
}

/* With the settings of `model` the runs of a side may be of several builds. Runs of several builds
 * may share a group, since their bits are equal; their speeds are not. The run whose build counts:
 * the first of the build with most runs; -1: none. */
static int64_t build_of_side(const struct speeds *s, int64_t model, int64_t side) {
    int64_t best = -1, most = 0;
    char why[SPEED_WHY_CAP];
    for (int64_t i = 0; i < s->c->count; i++) {
        int64_t n = 0;
        if (!s->counts[i] || s->of[i] != side || other_setting(s, model, i, why)) continue;
        for (int64_t k = 0; k < s->c->count; k++)
            n += s->counts[k] && s->of[k] == side && speeds_same_build(s->c, i, k) &&
                 !other_setting(s, model, k, why);
        if (n > most) most = n, best = i;
    }
    return best;
}

/* The run whose build a run of the side must have; -1: none of them counts. */
static int64_t build_model(const struct speeds *s, int64_t model, int64_t side) {
    if (s->any_build[side]) return build_of_side(s, model, side);
    return s->any_build[s->of[model]] ? build_of_side(s, model, s->baseline) : model;
}

static int64_t count_with(const struct speeds *s, int64_t model, int64_t side) {
    int64_t n = 0, build = build_model(s, model, side);
    char why[SPEED_WHY_CAP];
    for (int64_t i = 0; build >= 0 && i < s->c->count; i++)
        n += s->counts[i] && s->of[i] == side && speeds_same_build(s->c, build, i) &&
             !other_setting(s, model, i, why);
    return n;
}

/* What the settings of a run give: rows that can have a verdict, runs that have a partner on the
 * other side, and runs. */
struct yield { int64_t verdicts, partners, runs; };

static struct yield yield_of(const struct speeds *s, int64_t model) {
    int64_t n = count_with(s, model, s->baseline);
    struct yield y = { .runs = n };
    for (int64_t k = 0; k < s->sides; k++) {
        int64_t m = k == s->baseline ? 0 : count_with(s, model, k);
        y.verdicts += n >= SPEED_RUNS_MIN && m >= SPEED_RUNS_MIN;
        y.partners += m < n ? m : n;
        y.runs += m;
    }
    return y;
}

static bool is_more(struct yield a, struct yield b) {
    if (a.verdicts != b.verdicts) return a.verdicts > b.verdicts;
    if (a.partners != b.partners) return a.partners > b.partners;
    return a.runs > b.runs;
}

/* Whether a run before it has the same settings and build, and so the same yield. */
static bool is_known(const struct speeds *s, int64_t run) {
    char why[SPEED_WHY_CAP];
    for (int64_t i = 0; i < run; i++)
        if (s->counts[i] && s->of[i] == s->of[run] && speeds_same_build(s->c, i, run) &&
            !other_setting(s, i, run, why))
            return true;
    return false;
}

/* The run whose settings count: of those that give most, the first of the baseline, else the first
 * one; -1: no run counts. */
static int64_t model_run(const struct speeds *s) {
    int64_t best = -1;
    struct yield most = { 0 };
    for (int baseline = 1; baseline >= 0; baseline--)
        for (int64_t i = 0; i < s->c->count; i++) {
            if (!s->counts[i] || (s->of[i] == s->baseline) != (baseline == 1) || is_known(s, i))
                continue;
            struct yield y = yield_of(s, i);
            if (best < 0 || is_more(y, most)) best = i, most = y;
        }
    return best;
}

static void drop_others(struct speeds *s, int64_t model, const int64_t *build, bool *failed) {
    char name[8], why[SPEED_WHY_CAP];
    for (int64_t i = 0; i < s->c->count; i++) {
        if (!s->counts[i] || i == model) continue;
        int64_t of = build[s->of[i]];
        if (other_setting(s, model, i, why)) leave_out(s, i, why, failed);
        else if (of >= 0 && !speeds_same_build(s->c, of, i)) {
            snprintf(why, sizeof why, "it is of another build than %s", compare_letter(of, name));
            leave_out(s, i, why, failed);
        }
    }
}

enum status speeds_choose(struct speeds *s, struct err *e) {
    bool failed = false;
    int64_t *build = calloc((size_t)s->sides + 1, sizeof *build);
    if (!build) return FAIL(e, ERR_MEMORY, "speeds");
    for (int64_t i = 0; i < s->c->count; i++) {
        s->counts[i] = s->of[i] >= 0;
        if (s->counts[i] && *s->c->speed[i].why) leave_out(s, i, s->c->speed[i].why, &failed);
    }
    drop_copies(s, &failed);
    int64_t model = model_run(s);
    for (int64_t k = 0; model >= 0 && k < s->sides; k++) build[k] = build_model(s, model, k);
    if (model >= 0) drop_others(s, model, build, &failed);
    free(build);
    return failed ? FAIL(e, ERR_MEMORY, "speeds") : OK;
}

/* ---- a side -------------------------------------------------------------------------------- */

enum status speeds_take(const struct speeds *s, int64_t side, struct side *out, struct err *e) {
    int64_t clocks = 0;
    double clock = 0;
    *out = (struct side){ .log = calloc((size_t)s->c->count + 1, sizeof *out->log), .from = "",
                          .to = "", .gpus = json_array() };
    bool failed = !out->log || !out->gpus;
    for (int64_t i = 0; i < s->c->count && !failed; i++) {
        const struct run_speed *speed = &s->c->speed[i];
        const char *started = json_text(s->c->run[i].run, "started", "");
        char gpus[SPEED_GPUS_CAP];
        if (!s->counts[i] || s->of[i] != side) continue;
        run_speed_gpus(&s->c->run[i], gpus);
        if (*gpus) json_append(out->gpus, json_string(gpus), &failed);
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
    if (!failed) return OK;
    speeds_side_free(out);
    return FAIL(e, ERR_MEMORY, "speeds of %lld runs", (long long)s->c->count);
}

void speeds_side_free(struct side *side) {
    free(side->log);
    json_decref(side->gpus);
    *side = (struct side){ 0 };
}
