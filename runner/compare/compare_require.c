#include "runner/compare/compare_require.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/json_number.h"

enum { FOUND_CAP = 640 };

/* ---- what is asked ------------------------------------------------------------------------- */

#define FORMS "write holds, speed>=1.15x or eval_loss<=1.01x"

enum status requirement_read(const char *text, struct requirement *out, struct err *e) {
    static const struct { const char *head; enum require_kind kind; } RATIOS[] = {
        { "speed>=", REQUIRE_SPEED }, { "eval_loss<=", REQUIRE_LOSS },
    };
    *out = (struct requirement){ .text = text, .kind = REQUIRE_HOLDS };
    if (!strcmp(text, "holds")) return OK;
    for (size_t i = 0; i < sizeof RATIOS / sizeof *RATIOS; i++) {
        size_t n = strlen(RATIOS[i].head);
        char *end = NULL;
        if (strncmp(text, RATIOS[i].head, n) != 0) continue;
        out->kind = RATIOS[i].kind;
        out->bound = strtod(text + n, &end);
        size_t digits = strspn(text + n, "0123456789."); /* no sign, no exponent, no 0x */
        bool decimal = digits > 0 && end == text + n + digits;
        if (decimal && !strcmp(end, "x") && out->bound > 0 && isfinite(out->bound)) return OK;
        return FAIL(e, ERR_ARG, "--require %.60s: '%.40s' is no ratio to the baseline; " FORMS,
                    text, text + n);
    }
    return FAIL(e, ERR_ARG, "--require %.60s: there is no such requirement; " FORMS, text);
}

/* ---- one row ------------------------------------------------------------------------------- */

/* The value in four digits; in more if it would else look like what is asked, or its other side. */
static int digits(double value, double bound) {
    int n = 4;
    for (char text[32]; n < 16; n++) {
        snprintf(text, sizeof text, "%.*g", n, value);
        double said = strtod(text, NULL);
        if ((said < bound) == (value < bound) && (said > bound) == (value > bound)) break;
    }
    return n;
}

/* "1.2x (95 % bounds 1.15 to 1.25)" */
static void say_ratio(double ratio, double low, double high, double bound, char out[FOUND_CAP]) {
    int n = snprintf(out, FOUND_CAP, "%.*gx", digits(ratio, bound), ratio);
    if (isfinite(low) && isfinite(high))
        snprintf(out + n, FOUND_CAP - (size_t)n, " (95 %% bounds %.*g to %.*g)",
                 digits(low, bound), low, digits(high, bound), high);
}

static void say_why(const json_t *row, char out[FOUND_CAP]) {
    size_t n = strlen(out);
    const char *why = json_text(row, "why", "");
    if (*why) snprintf(out + n, FOUND_CAP - n, "%s%s", n ? ": " : "", why);
}

/* Whether all of the interval is on the side that is asked; else `found` says how it lies. */
static bool beyond(double ratio, double low, double high, double bound, bool above,
                   char found[FOUND_CAP]) {
    bool met = above ? low >= bound : high <= bound;
    bool broken = above ? high < bound : low > bound;
    say_ratio(ratio, low, high, bound, found);
    size_t n = strlen(found);
    if (!met && !broken)
        snprintf(found + n, FOUND_CAP - n, ", undecided: %.9gx is between the bounds", bound);
    return met;
}

static bool holds(const json_t *row, char found[FOUND_CAP]) {
    const char *verdict = json_text(row, "verdict", "no verdict");
    snprintf(found, FOUND_CAP, "%s", verdict);
    say_why(row, found);
    return !strcmp(verdict, "holds");
}

/* Whether a run of the row that is left out was further above than what is asked, or than "holds"
 * allows; says so. Whoever stops such a run must not get the ratio of the others. */
static bool stopped_above(const json_t *row, double bound, char found[FOUND_CAP]) {
    const json_t *stopped = json_object_get(row, "stopped");
    double relative = json_double(json_object_get(stopped, "relative"));
    double allowed = json_double(json_object_get(row, "tolerance"));
    size_t n = strlen(found);
    char name[8];
    if (!(relative > fmin(fmax(bound - 1, 0), allowed))) return false;
    snprintf(found + n, FOUND_CAP - n, "; but %s, which is left out, was at %+.2f %% from %s at "
             "step %lld%s", compare_letter(json_int(stopped, "run"), name), 100 * relative,
             json_is_true(json_object_get(stopped, "paired")) ? "the baseline of its seed"
                                                              : "its own lowest loss",
             (long long)json_int(stopped, "step"),
             json_is_true(json_object_get(stopped, "ended")) ? ""
                 : ": let it go on (fp8lab run --resume RUN)");
    return true;
}

/* A verdict on the loss is needed, whatever it is; a run that diverged has none on its mean. What
 * withholds "holds" withholds the ratio, too: no noisy row must pass where a quiet one fails. */
static bool low_loss(const json_t *row, double bound, char found[FOUND_CAP]) {
    double low = json_double(json_object_get(row, "low"));
    double high = json_double(json_object_get(row, "high"));
    if (!json_text(row, "verdict", NULL) || json_is_true(json_object_get(row, "diverged")))
        return holds(row, found) && false;
    double relative = json_double(json_object_get(row, "relative"));
    bool met = beyond(1 + relative, 1 + low, 1 + high, bound, false, found);
    if (json_is_true(json_object_get(row, "doubted"))) {
        say_why(row, found);
        return false;
    }
    return !stopped_above(row, bound, found) && met;
}

/* "not shown" although the bounds exclude 1: the scatter within a run exceeds the difference. */
static bool fast(const json_t *row, double bound, char found[FOUND_CAP]) {
    const char *verdict = json_text(row, "verdict", NULL);
    double low = json_double(json_object_get(row, "low"));
    double high = json_double(json_object_get(row, "high"));
    bool scattered = verdict && !strcmp(verdict, "not shown") && (low > 1 || high < 1);
    if (!verdict || scattered) {
        snprintf(found, FOUND_CAP, "%s", verdict ? verdict : "no verdict");
        say_why(row, found);
        return false;
    }
    return beyond(json_double(json_object_get(row, "ratio")), low, high, bound, true, found);
}

static bool row_meets(const struct requirement *r, const json_t *row, char found[FOUND_CAP]) {
    if (r->kind == REQUIRE_SPEED) return fast(row, r->bound, found);
    return r->kind == REQUIRE_LOSS ? low_loss(row, r->bound, found) : holds(row, found);
}

/* ---- all rows ------------------------------------------------------------------------------ */

struct answer {
    const json_t *report;     /* borrowed */
    const json_t *statistics; /* of the report */
    json_t *rows;             /* borrowed */
    bool met, failed;
};

static void add_row(struct answer *a, int64_t group, const char *label, bool met,
                    const char *found) {
    json_append(a->rows, json_pack("{s:I, s:s, s:b, s:o}", "group", (json_int_t)group, "label",
                                   label, "met", met, "found", json_from_text(found)),
                &a->failed);
    a->met = a->met && met;
}

static const char *label_of(const struct answer *a, int64_t group) {
    return json_text(json_array_get(json_object_get(a->statistics, "groups"), (size_t)group),
                     "label", "-");
}

/* The builds of rows of which nothing else is compared: beside another recipe they are no
 * question. */
static void ask_builds(struct answer *a, const struct requirement *r) {
    const json_t *entry, *row;
    char found[FOUND_CAP], label[32];
    size_t i, k;
    json_array_foreach(json_object_get(a->statistics, "speed_builds"), i, entry)
        json_array_foreach(json_object_get(entry, "rows"), k, row) {
            bool met = row_meets(r, row, found);
            snprintf(label, sizeof label, "build %.12s", json_text(row, "build", "?"));
            add_row(a, compare_group_of(a->report, json_int(row, "run")), label, met, found);
        }
}

static void ask(struct answer *a, const struct requirement *r) {
    const json_t *family, *row;
    const char *table = r->kind == REQUIRE_SPEED ? "speed" : "losses";
    char found[FOUND_CAP];
    size_t i, k;
    json_array_foreach(json_object_get(a->statistics, table), i, family)
        json_array_foreach(json_object_get(family, "rows"), k, row) {
            int64_t group = json_int(row, "group");
            bool met = row_meets(r, row, found);
            add_row(a, group, label_of(a, group), met, found);
        }
    if (r->kind == REQUIRE_SPEED && json_array_size(a->rows) == 0) ask_builds(a, r);
    bool builds = r->kind == REQUIRE_SPEED && i == 0 && json_array_size(a->rows) > 0;
    json_array_foreach(json_object_get(a->statistics, "losses_missing"), i, row) {
        int64_t group = json_int(row, "group");
        const json_t *of = json_array_get(json_object_get(a->statistics, "groups"), (size_t)group);
        if (builds && json_int(of, "builds") > 1) continue; /* its builds were asked */
        snprintf(found, sizeof found, "no verdict");
        say_why(row, found);
        add_row(a, group, label_of(a, group), false, found);
    }
}

enum status compare_require(struct comparison *c, const struct requirement *list, int64_t count,
                            bool *met, struct err *e) {
    json_t *all = json_array();
    bool failed = false;
    *met = true;
    for (int64_t i = 0; i < count; i++) {
        struct answer a = { .report = c->report, .rows = json_array(), .met = true,
                            .statistics = json_object_get(c->report, "statistics") };
        ask(&a, &list[i]);
        if (json_array_size(a.rows) == 0) a.met = false; /* nothing was compared */
        json_append(all, json_pack("{s:s, s:b, s:o}", "requirement", list[i].text, "met", a.met,
                                   "rows", json_whole(a.rows, a.failed)), &failed);
        *met = *met && a.met;
    }
    json_put(c->report, "requirements", all, &failed);
    return failed ? FAIL(e, ERR_MEMORY, "requirements") : OK;
}
