/* What was compared and what came of it, in sentences at the top of the page. The tables below have
 * the same numbers; the sentences are for readers who read nothing else. */
#include <math.h>
#include <string.h>

#include "runner/base/json_number.h"
#include "runner/compare/compare_faster.h"
#include "runner/compare/page.h"
#include "runner/compare/svg_plot.h"
#include "runner/plan/options.h"

/* The row of the group in a table of losses, and its table; NULL: it is in none. */
static const json_t *row_of(const json_t *statistics, int64_t group, const json_t **family) {
    const json_t *table, *row;
    size_t i, k;
    json_array_foreach(json_object_get(statistics, "losses"), i, table)
        json_array_foreach(json_object_get(table, "rows"), k, row)
            if (json_int(row, "group") == group) {
                *family = table;
                return row;
            }
    return NULL;
}

static bool is_baseline(const json_t *statistics, int64_t group) {
    const json_t *table;
    size_t i;
    json_array_foreach(json_object_get(statistics, "losses"), i, table)
        if (json_int(table, "baseline") == group) return true;
    return false;
}

/* The mean of a ratio over the runs of the group; NaN if a run has none. */
static double ratio_of(const json_t *report, const json_t *group, const char *key) {
    const json_t *members = json_object_get(group, "runs"), *run;
    double sum = 0;
    size_t i;
    json_array_foreach(members, i, run) {
        const json_t *row = json_array_get(json_object_get(report, "runs"),
                                           (size_t)json_integer_value(run));
        const json_t *value = json_object_get(json_object_get(row, "ratio"), key);
        sum += json_double(value);
    }
    return sum / (double)json_array_size(members);
}

/* "1.310 × the tokens/s of A and 0.830 × its memory". */
static void put_ratios(FILE *out, const json_t *report, const json_t *group) {
    double speed = ratio_of(report, group, "tokens_per_s");
    double memory = ratio_of(report, group, "memory");
    char name[8];
    compare_letter(compare_reference(report), name);
    if (isfinite(speed)) fprintf(out, " It ran at %.3f × the tokens/s of %s", speed, name);
    if (isfinite(speed) && isfinite(memory)) fprintf(out, ", in %.3f × its memory", memory);
    if (isfinite(speed)) fputs(".", out);
}

static void put_why(FILE *out, const char *before, const char *why) {
    fputs(before, out);
    html_escape(out, why);
    fputs(".", out);
}

/* How far the mean loss is from the baseline's, and the verdict on it. */
static void put_verdict(FILE *out, const json_t *report, const json_t *row, const json_t *family) {
    const char *verdict = json_text(row, "verdict", NULL), *why = json_text(row, "why", "");
    if (!*why) why = json_text(family, "why", "");
    const json_t *relative = json_object_get(row, "relative"), *high = json_object_get(row, "high");
    const json_t *seeds = json_object_get(row, "seeds_needed");
    const json_t *groups = json_object_get(json_object_get(report, "statistics"), "groups");
    const json_t *base = json_array_get(groups, (size_t)json_int(family, "baseline"));
    int64_t first = json_integer_value(json_array_get(json_object_get(base, "runs"), 0));
    char name[8];
    if (verdict && !strcmp(verdict, "undecided"))
        fprintf(out, "it is <strong class=\"soft\">undecided</strong> whether it holds the loss "
                "of %s.", compare_letter(first, name));
    else if (verdict)
        fprintf(out, "it <strong class=\"%s\">%s</strong> the loss of %s.",
                !strcmp(verdict, "holds") ? "good" : "bad", verdict, compare_letter(first, name));
    else fputs("<strong class=\"soft\">no verdict</strong>.", out);
    if (json_is_number(relative)) {
        double percent = 100 * json_number_value(relative);
        fprintf(out, " Its mean evaluation loss is %.2f %% %s %s's after %.0f tokens",
                fabs(percent), percent < 0 ? "below" : "above", compare_letter(first, name),
                json_number_value(json_object_get(family, "tokens")));
        if (json_is_number(high))
            fprintf(out, " (95 %% bounds %+.2f to %+.2f %%)",
                    100 * json_number_value(json_object_get(row, "low")),
                    100 * json_number_value(high));
        if (json_is_number(json_object_get(row, "tolerance")))
            fprintf(out, "; %.2f %% above is allowed",
                    100 * json_number_value(json_object_get(row, "tolerance")));
        fputs(".", out);
    }
    if (json_is_integer(seeds)) /* which is the reason, too */
        fprintf(out, " About %lld seeds per side would decide, if difference and scatter stay as "
                "they are.", (long long)json_integer_value(seeds));
    else if (*why) put_why(out, verdict ? " The reason: " : " Missing for a verdict: ", why);
}

static void put_item(FILE *out, const json_t *report, int64_t g, const json_t *group,
                     bool *failed) {
    const json_t *statistics = json_object_get(report, "statistics"), *family = NULL, *lost;
    const json_t *row = row_of(statistics, g, &family);
    bool missing = false;
    size_t i;
    fputs("<li>", out);
    page_group(out, report, g, failed);
    fputs(": ", out);
    if (row) put_verdict(out, report, row, family);
    else if (is_baseline(statistics, g)) fputs("the baseline.", out);
    json_array_foreach(json_object_get(statistics, "losses_missing"), i, lost)
        if (json_int(lost, "group") == g) {
            missing = true;
            fputs("<strong class=\"soft\">no verdict</strong>.", out);
            put_why(out, " Missing for a verdict: ", json_text(lost, "why", ""));
        }
    if (g != compare_group_of(report, compare_reference(report))) put_ratios(out, report, group);
    else if (!row && !is_baseline(statistics, g))
        fputs(missing ? " The others' ratios are to it." : "the others' ratios are to it.", out);
    compare_faster_words(out, report, g);
    fputs("</li>\n", out);
}

/* Runs that did not end as planned, or that nothing vouches for. */
static void put_caution(FILE *out, const json_t *report) {
    const json_t *row;
    char name[8];
    size_t i;
    json_array_foreach(json_object_get(report, "runs"), i, row) {
        const char *status = json_text(row, "status", "?");
        bool good = !strcmp(status, "done") || !strcmp(status, "time_limit");
        bool smoke = json_is_true(json_object_get(row, "smoke"));
        bool verified = json_is_true(json_object_get(row, "verified"));
        if (good && verified && !smoke) continue;
        fprintf(out, "<li>Run %s ", compare_letter((int64_t)i, name));
        if (!good) {
            fputs("ended as ", out);
            html_escape(out, status);
        }
        if (smoke) fprintf(out, "%sis a smoke run: its numbers mean nothing", good ? "" : ", ");
        if (!verified) fprintf(out, "%sis " RUN_NOT_VERIFIED, good && !smoke ? "" : ", ");
        fputs(".</li>\n", out);
    }
}

void page_words(FILE *out, const struct comparison *c, bool *failed) {
    const json_t *statistics = json_object_get(c->report, "statistics"), *group;
    const json_t *groups = json_object_get(statistics, "groups");
    const char *note = json_text(statistics, "note", "");
    size_t g, count = json_array_size(groups);
    fprintf(out, "<p>%lld runs in %zu group%s (runs of a group differ in their seed alone); "
                 "<strong>", (long long)c->count, count,
            count == 1 ? "" : "s");
    html_escape(out, json_text(c->report, "verdict", ""));
    fputs("</strong>", out);
    if (*note) {
        fputs("; ", out);
        html_escape(out, note);
    }
    fputs(".</p>\n<ul class=\"words\">\n", out);
    json_array_foreach(groups, g, group) put_item(out, c->report, (int64_t)g, group, failed);
    put_caution(out, c->report);
    fputs("</ul>\n", out);
}

/* ---- one run ------------------------------------------------------------------------------- */

/* `format` takes one double. */
static void put_figure(FILE *out, const json_t *object, const char *key, double scale,
                       const char *format) {
    const json_t *value = json_object_get(object, key);
    if (json_is_number(value)) fprintf(out, format, scale * json_number_value(value));
}

/* What the casts to FP8 lost. */
static void put_lost(FILE *out, const struct run_view *v) {
    const json_t *recipe = json_object_get(v->resolved, "recipe");
    if (recipe && !options_recipe_is_fp8(recipe)) return;
    if (!recipe || options_recipe_can_saturate(recipe))
        put_figure(out, v->summary, "saturated_max", 100,
                   "<li>Of an FP8 tensor at most %.3g %% saturated.</li>\n");
    put_figure(out, v->summary, "underflow_max", 100,
               "<li>Of an FP8 tensor at most %.3g %% became zero.</li>\n");
}

void page_one(FILE *out, const struct comparison *c) {
    const json_t *run = json_array_get(json_object_get(c->report, "runs"), 0);
    const json_t *s = c->run[0].summary, *error = json_object_get(c->run[0].run, "error");
    fputs("<ul class=\"words\">\n<li>", out);
    html_escape(out, json_text(run, "label", "?"));
    fputs(": <strong>", out);
    html_escape(out, json_text(run, "status", "?"));
    fputs("</strong>", out);
    put_figure(out, s, "step_last", 1, ", after %.0f steps");
    put_figure(out, s, "tokens", 1, " and %.0f tokens");
    fputs(".</li>\n<li>", out);
    put_figure(out, s, "loss_final", 1, "The last training loss is %.5f nats per token");
    put_figure(out, s, "eval_loss_final", 1, ", the last evaluation loss %.5f");
    put_figure(out, s, "eval_loss_best", 1, ", the lowest %.5f");
    fputs(".</li>\n<li>", out);
    put_figure(out, s, "tokens_per_s_median", 1, "It ran at %.0f tokens/s");
    put_figure(out, s, "step_time_us_median", 1e-3, ", %.2f ms per step");
    put_figure(out, s, "mfu_peak_median", 100, ", %.1f %% of the device's dense peak");
    put_figure(out, run, "memory_bytes_peak", 0x1p-20, ", in %.0f MiB of memory");
    fputs(".</li>\n", out);
    put_lost(out, &c->run[0]);
    if (json_is_string(json_object_get(error, "text"))) {
        fputs("<li>The error: ", out);
        html_escape(out, json_text(error, "text", ""));
        fputs("</li>\n", out);
    }
    put_caution(out, c->report);
    fputs("</ul>\n", out);
}
