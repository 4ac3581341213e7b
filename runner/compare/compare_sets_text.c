/* Further sets of held-out data, for a terminal and for the page. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/json_number.h"
#include "runner/base/run_files.h"
#include "runner/compare/compare_loss.h"
#include "runner/compare/page.h"
#include "runner/compare/svg_plot.h"

/* ---- words of both --------------------------------------------------------------------------- */

void compare_set_counted(const json_t *set, char out[COMPARE_COUNTED_CAP]) {
    double n = json_double(json_object_get(set, "counted"));
    out[0] = '\0';
    if (isnan(n)) return;
    snprintf(out, COMPARE_COUNTED_CAP, "each loss is the mean of %.0f tokens of the set%s", n,
             n >= LOSS_TOKENS_FEW ? "" : "; so few that other text of its kind may give another "
             "verdict: raise eval.batches if its files have more, or give it more files");
}

void compare_set_bounds(const json_t *set, char out[COMPARE_SET_BOUNDS_CAP]) {
    int64_t tests = json_int(set, "tests");
    if (tests < 2)
        snprintf(out, COMPARE_SET_BOUNDS_CAP, "%s", COMPARE_BOUNDS);
    else
        snprintf(out, COMPARE_SET_BOUNDS_CAP, "bounds: one-sided, %.5g %% each: %lld sets are as "
                 "many tests, and share the 5 %% by which bounds may be wrong (Bonferroni)",
                 100 - 5 / (double)tests, (long long)tests);
}

static const json_t *sets_of(const json_t *report) {
    const json_t *row = json_array_get(json_object_get(report, "runs"), 0);
    return json_object_get(row, "eval_sets");
}

static const json_t *families_of(const json_t *report) {
    return json_object_get(json_object_get(report, "statistics"), "losses");
}

static const json_t *label_of(const json_t *report, const json_t *row) {
    const json_t *groups = json_object_get(json_object_get(report, "statistics"), "groups");
    return json_object_get(json_array_get(groups, (size_t)json_int(row, "group")), "label");
}

/* "C: its set has other files than the baseline's under the same name"; neighbours with one reason
 * share it. Returns the index behind them. */
static size_t left_out_words(const json_t *list, size_t at, char out[400]) {
    const char *why = json_text(json_array_get(list, at), "why", "");
    size_t used = 0;
    for (; at < json_array_size(list); at++) {
        const json_t *row = json_array_get(list, at);
        char name[8];
        if (strcmp(json_text(row, "why", ""), why) != 0) break;
        if (used < 200)
            used += (size_t)snprintf(out + used, 400 - used, "%s%s", used ? ", " : "",
                                     compare_letter(json_int(row, "run"), name));
    }
    snprintf(out + used, 400 - used, ": %.120s", why);
    return at;
}

/* ---- text: the last losses ------------------------------------------------------------------- */

/* The title is at least as wide as the numbers below it. */
static int width_of(const char *name) {
    int n = compare_columns(name);
    return n > 11 ? n : 11;
}

static void put_line(FILE *out, const json_t *row, const char *key, const char *format) {
    const char *name;
    json_t *set;
    json_object_foreach(json_object_get(row, "eval_sets"), name, set) {
        const json_t *value = json_object_get(set, key);
        char text[40] = "-";
        if (json_is_number(value)) snprintf(text, sizeof text, format, json_number_value(value));
        fprintf(out, " %*s", width_of(name), text);
    }
    fputc('\n', out);
}

static bool has_ratio(const json_t *row) {
    const char *name;
    json_t *set;
    json_object_foreach(json_object_get(row, "eval_sets"), name, set)
        if (json_is_number(json_object_get(set, "ratio"))) return true;
    return false;
}

/* "    code of C has no x: its loss is of other files". */
static void put_no_ratios(FILE *out, const json_t *runs) {
    const json_t *row;
    const char *name;
    json_t *set;
    char letter[8];
    size_t i;
    json_array_foreach(runs, i, row)
        json_object_foreach(json_object_get(row, "eval_sets"), name, set) {
            const char *why = json_text(set, "why", "");
            if (*why)
                fprintf(out, "    %s of %s has no x: %s\n", name,
                        compare_letter((int64_t)i, letter), why);
        }
}

static void put_losses(FILE *out, const json_t *report) {
    const json_t *runs = json_object_get(report, "runs"), *row;
    int width = compare_label_width(runs);
    int64_t reference = compare_reference(report);
    const char *name;
    json_t *set;
    char letter[8];
    size_t i;
    fprintf(out, "\nFurther sets of held-out data: the last loss on each\n%-3s %-*s %6s", "", width,
            "recipe", "seed");
    json_object_foreach((json_t *)sets_of(report), name, set)
        fprintf(out, " %*s", width_of(name), name);
    fputc('\n', out);
    json_array_foreach(runs, i, row) {
        const char *label = json_text(row, "label", "-");
        fprintf(out, "%-3s %s%*s %6lld", compare_letter((int64_t)i, letter), label,
                width - compare_columns(label), "", (long long)json_int(row, "seed"));
        put_line(out, row, "loss", "%.5f");
        if ((int64_t)i == reference || !has_ratio(row)) continue;
        fprintf(out, "%*s", width + 11, "");
        put_line(out, row, "ratio", "%.3fx");
    }
    fprintf(out, "    nats per token; x: to %s\n", compare_letter(reference, letter));
    put_no_ratios(out, runs);
}

/* ---- text: verdicts -------------------------------------------------------------------------- */

static void put_percent(FILE *out, const json_t *row, const char *key, int width) {
    char text[32] = "-";
    const json_t *value = json_object_get(row, key);
    if (json_is_number(value))
        snprintf(text, sizeof text, "%+.2f %%", 100 * json_number_value(value));
    fprintf(out, " %*s", width, text);
}

static void put_row(FILE *out, const json_t *report, const json_t *row, int width) {
    const char *verdict = json_text(row, "verdict", NULL), *why = json_text(row, "why", "");
    const char *label = json_string_value(label_of(report, row));
    const json_t *low = json_object_get(row, "low"), *high = json_object_get(row, "high");
    const json_t *mean = json_object_get(row, "mean");
    char name[8], value[32] = "-", bounds[64] = "-";
    if (json_is_number(mean)) snprintf(value, sizeof value, "%.5f", json_number_value(mean));
    if (json_is_number(low) && json_is_number(high))
        snprintf(bounds, sizeof bounds, "%+.2f to %+.2f %%", 100 * json_number_value(low),
                 100 * json_number_value(high));
    fprintf(out, "%-4s %s%*s %6lld %14s",
            compare_group_letter(json_object_get(report, "statistics"), json_int(row, "group"),
                                 name), label ? label : "-",
            width - compare_columns(label ? label : "-"), "", (long long)json_int(row, "seeds"),
            value);
    put_percent(out, row, "relative", 9);
    fprintf(out, " %19s", bounds);
    snprintf(value, sizeof value, "%.2f %%",
             100 * json_number_value(json_object_get(row, "tolerance")));
    fprintf(out, " %8s  %s%s%s\n", value, verdict ? verdict : "no verdict", *why ? ": " : "", why);
}

static void put_set(FILE *out, const json_t *report, const json_t *family, const json_t *set) {
    const json_t *groups = json_object_get(json_object_get(report, "statistics"), "groups"), *row;
    const json_t *left_out = json_object_get(set, "left_out");
    const json_t *mean = json_object_get(set, "mean");
    int width = compare_label_width(groups);
    char name[8], from[16], text[400];
    size_t i;
    const json_t *base = json_array_get(groups, (size_t)json_int(family, "baseline"));
    const char *label = json_text(base, "label", "-");
    const char *letter = compare_group_letter(json_object_get(report, "statistics"),
                                              json_int(family, "baseline"), name);
    snprintf(from, sizeof from, "from %s", letter);
    fprintf(out, "%-4s %-*s %6s %14s %9s %19s %8s\n", "", width, "recipe", "seeds", "mean loss",
            from, "bounds", "allowed");
    fprintf(out, "%-4s %s%*s %6lld", letter, label, width - compare_columns(label), "",
            (long long)json_int(set, "seeds"));
    if (json_is_number(mean)) fprintf(out, " %14.5f\n", json_number_value(mean));
    else fprintf(out, " %14s\n", "-");
    json_array_foreach(json_object_get(set, "rows"), i, row) put_row(out, report, row, width);
    compare_set_counted(set, text);
    if (*text) fprintf(out, "    %s\n", text);
    for (i = 0; i < json_array_size(left_out);) {
        i = left_out_words(left_out, i, text);
        fprintf(out, "    left out: %s\n", text);
    }
}

/* The step is that of the verdicts on the run's own data. */
static void put_verdicts(FILE *out, const json_t *report) {
    const json_t *family, *set, *last = NULL;
    char text[COMPARE_SET_BOUNDS_CAP];
    size_t i, k;
    json_array_foreach(families_of(report), i, family)
        json_array_foreach(json_object_get(family, "sets"), k, set) {
            fprintf(out, "\nDoes the loss hold on the further set %s?", json_text(set, "name", ""));
            if (json_is_integer(json_object_get(family, "step")))
                fprintf(out, " At step %lld:", (long long)json_int(family, "step"));
            fputc('\n', out);
            put_set(out, report, family, set);
            last = set;
        }
    if (!last) return;
    compare_set_bounds(last, text);
    fprintf(out, "    %s\n    " COMPARE_SETS_APART "\n", text);
}

void compare_sets_text(FILE *out, const json_t *report) {
    if (json_object_size(sets_of(report)) == 0) return;
    put_losses(out, report);
    put_verdicts(out, report);
}

/* ---- the page -------------------------------------------------------------------------------- */

static void page_cell(FILE *out, const json_t *set, bool reference) {
    const json_t *loss = json_object_get(set, "loss"), *ratio = json_object_get(set, "ratio");
    const char *why = json_text(set, "why", "");
    fputs("<td class=\"n\">", out);
    if (json_is_number(loss)) fprintf(out, "%.5f", json_number_value(loss));
    else fputs("–", out);
    if (json_is_number(ratio) && !reference)
        fprintf(out, "<small>%.3f×</small>", json_number_value(ratio));
    if (*why) {
        fputs("<small>", out);
        html_escape(out, why);
        fputs("</small>", out);
    }
    fputs("</td>", out);
}

static void page_losses(FILE *out, const json_t *report) {
    const json_t *row;
    const char *name;
    json_t *set;
    size_t i;
    fputs("<h2>Further sets of held-out data</h2>\n", out);
    page_table_begin(out, "The last loss on each further set");
    fputs("<td></td>", out);
    json_object_foreach((json_t *)sets_of(report), name, set) {
        fputs("<th scope=\"col\" class=\"n\">", out);
        html_escape(out, name);
        fputs("</th>", out);
    }
    fputs("</tr>\n", out);
    json_array_foreach(json_object_get(report, "runs"), i, row) {
        fputs("<tr><th scope=\"row\">", out);
        page_run(out, report, (int64_t)i);
        fputs("</th>", out);
        bool reference = (int64_t)i == compare_reference(report);
        json_object_foreach(json_object_get(row, "eval_sets"), name, set)
            page_cell(out, set, reference);
        fputs("</tr>\n", out);
    }
    page_table_end(out);
}

static void page_row(FILE *out, const json_t *report, const json_t *row, bool *failed) {
    const char *verdict = json_text(row, "verdict", "no verdict"), *why = json_text(row, "why", "");
    const json_t *low = json_object_get(row, "low"), *high = json_object_get(row, "high");
    const json_t *mean = json_object_get(row, "mean"), *gap = json_object_get(row, "relative");
    fputs("<tr><th scope=\"row\">", out);
    page_group(out, report, json_int(row, "group"), failed);
    fprintf(out, "</th><td>%s</td><td class=\"n\">", verdict);
    if (json_is_number(mean)) fprintf(out, "%.5f", json_number_value(mean));
    else fputs("–", out);
    fputs("</td><td class=\"n\">", out);
    if (json_is_number(gap)) fprintf(out, "%+.2f %%", 100 * json_number_value(gap));
    fputs("</td><td>", out);
    if (json_is_number(low) && json_is_number(high))
        fprintf(out, "%+.2f to %+.2f %%", 100 * json_number_value(low),
                100 * json_number_value(high));
    fprintf(out, "</td><td class=\"n\">%.2f %%</td><td>",
            100 * json_number_value(json_object_get(row, "tolerance")));
    html_escape(out, why);
    fputs("</td></tr>\n", out);
}

static void page_set(FILE *out, const json_t *report, const json_t *family, const json_t *set,
                     bool *failed) {
    static const char *const TITLES[] = { "", "verdict", "mean loss", "to the baseline", "bounds",
                                          "allowed", "" };
    const json_t *left_out = json_object_get(set, "left_out"), *row;
    char text[400];
    size_t i;
    fputs("<h3>Does the loss hold on the further set ", out);
    html_escape(out, json_text(set, "name", ""));
    fputs("?</h3>\n", out);
    page_table(out, "Losses on a further set after equal tokens", TITLES,
               sizeof TITLES / sizeof *TITLES);
    json_array_foreach(json_object_get(set, "rows"), i, row) page_row(out, report, row, failed);
    page_table_end(out);
    compare_set_counted(set, text);
    fputs("<p class=\"soft\">", out);
    if (json_is_integer(json_object_get(family, "step")))
        fprintf(out, "At step %lld. ", (long long)json_int(family, "step"));
    if (*text) fprintf(out, "%s. ", text);
    compare_set_bounds(set, text);
    fprintf(out, "%s; " COMPARE_SETS_APART ".</p>\n", text);
    for (i = 0; i < json_array_size(left_out);) {
        i = left_out_words(left_out, i, text);
        fputs("<p class=\"soft\">Left out: ", out);
        html_escape(out, text);
        fputs(".</p>\n", out);
    }
}

void compare_sets_page(FILE *out, const json_t *report, bool *failed) {
    const json_t *family, *set;
    size_t i, k;
    if (json_object_size(sets_of(report)) == 0) return;
    page_losses(out, report);
    json_array_foreach(families_of(report), i, family)
        json_array_foreach(json_object_get(family, "sets"), k, set)
            page_set(out, report, family, set, failed);
}
