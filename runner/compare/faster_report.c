/* How much faster? The block of the text and of the page. */
#include <math.h>
#include <string.h>

#include "runner/base/json_number.h"
#include "runner/compare/compare_faster.h"
#include "runner/compare/page.h"
#include "runner/compare/svg_plot.h"

#define NOTE \
    "tokens/s: the geometric mean of the runs' medians; each repeat counts, also of one seed"
#define BOUNDS \
    "bounds: one-sided, 95 % each (Welch's t on logarithms), if runs scatter log-normally"

#define WHERE \
    "where the time of a step goes: fp8lab bench step SCRIPT; which GEMMs gain: --each-gemm"

enum { CELL_CAP = 48, BUILD_CAP = 24 };

static const char *label_of(const json_t *statistics, int64_t group) {
    return json_text(json_array_get(json_object_get(statistics, "groups"), (size_t)group), "label",
                     "-");
}

/* A number; `none` if it is unknown. */
static const char *cell(const json_t *row, const char *key, const char *format, const char *none,
                        char out[CELL_CAP]) {
    double value = json_double(json_object_get(row, key));
    if (isnan(value)) snprintf(out, CELL_CAP, "%s", none);
    else snprintf(out, CELL_CAP, format, value);
    return out;
}

static const char *bounds(const json_t *row, const char *none, char out[CELL_CAP]) {
    double low = json_double(json_object_get(row, "low"));
    double high = json_double(json_object_get(row, "high"));
    if (isnan(low) || isnan(high)) snprintf(out, CELL_CAP, "%s", none);
    else snprintf(out, CELL_CAP, "%.3f to %.3f", low, high);
    return out;
}

static const char *verdict_of(const json_t *row) { return json_text(row, "verdict", "no verdict"); }

/* "build 0123456789ab" */
static const char *build_of(const json_t *row, char out[BUILD_CAP]) {
    snprintf(out, BUILD_CAP, "build %.12s", json_text(row, "build", "?"));
    return out;
}

/* ---- text ---------------------------------------------------------------------------------- */

static void put_label(FILE *out, const json_t *statistics, int64_t group, int width) {
    char name[8];
    const char *label = label_of(statistics, group);
    int columns = compare_columns(label);
    fprintf(out, "%-4s %s%*s", compare_group_letter(statistics, group, name), label,
            columns < width ? width - columns : 0, "");
}

/* The figures of a row, and its verdict. */
static void put_figures(FILE *out, const json_t *row) {
    char speed[CELL_CAP], ratio[CELL_CAP], between[CELL_CAP];
    const char *why = json_text(row, "why", "");
    fprintf(out, " %6lld %14s %9s %19s  %s%s%s\n", (long long)json_int(row, "runs"),
            cell(row, "tokens_per_s", "%.0f", "-", speed), cell(row, "ratio", "%.3fx", "-", ratio),
            bounds(row, "-", between), verdict_of(row), *why ? ": " : "", why);
}

static void put_left_out(FILE *out, const json_t *entry) {
    const json_t *row;
    size_t i;
    char name[8];
    json_array_foreach(json_object_get(entry, "left_out"), i, row)
        fprintf(out, "    %s does not count: %s\n", compare_letter(json_int(row, "run"), name),
                json_text(row, "why", ""));
}

static void put_family(FILE *out, const json_t *statistics, const json_t *family) {
    const json_t *row;
    int width = compare_label_width(json_object_get(statistics, "groups"));
    char name[8], from[16], speed[CELL_CAP];
    size_t i;
    int64_t baseline = json_int(family, "baseline");
    snprintf(from, sizeof from, "from %s", compare_group_letter(statistics, baseline, name));
    fprintf(out, "%-4s %-*s %6s %14s %9s %19s\n", "", width, "recipe", "runs", "tokens/s", from,
            "95 % bounds");
    put_label(out, statistics, baseline, width);
    fprintf(out, " %6lld %14s\n", (long long)json_int(family, "runs"),
            cell(family, "tokens_per_s", "%.0f", "-", speed));
    json_array_foreach(json_object_get(family, "rows"), i, row) {
        put_label(out, statistics, json_int(row, "group"), width);
        put_figures(out, row);
    }
    put_left_out(out, family);
}

/* A line of a build; the baseline has no verdict. */
static void put_build(FILE *out, const json_t *row, bool baseline) {
    char name[8], speed[CELL_CAP], build[BUILD_CAP];
    fprintf(out, "%-4s %-*s", compare_letter(json_int(row, "run"), name), BUILD_CAP - 1,
            build_of(row, build));
    if (!baseline) {
        put_figures(out, row);
        return;
    }
    fprintf(out, " %6lld %14s\n", (long long)json_int(row, "runs"),
            cell(row, "tokens_per_s", "%.0f", "-", speed));
}

/* The builds of one row of the other tables. */
static void put_builds(FILE *out, const json_t *entry) {
    const json_t *row;
    size_t i;
    char name[8], from[16];
    snprintf(from, sizeof from, "from %s", compare_letter(json_int(entry, "run"), name));
    fprintf(out, "%-4s %-*s %6s %14s %9s %19s\n", "", BUILD_CAP - 1, "same bits", "runs",
            "tokens/s", from, "95 % bounds");
    put_build(out, entry, true);
    json_array_foreach(json_object_get(entry, "rows"), i, row) put_build(out, row, false);
    put_left_out(out, entry);
}

/* Whether a row that has a verdict is no faster. */
static bool any_not_faster(const json_t *families) {
    const json_t *family, *row;
    size_t i, k;
    json_array_foreach(families, i, family)
        json_array_foreach(json_object_get(family, "rows"), k, row)
            if (strcmp(json_text(row, "verdict", "faster"), "faster") != 0) return true;
    return false;
}

void compare_faster_text(FILE *out, const json_t *statistics) {
    const json_t *list = json_object_get(statistics, "speed"), *entry;
    const json_t *builds = json_object_get(statistics, "speed_builds");
    size_t i, k;
    if (!json_array_size(list) && !json_array_size(builds)) return;
    fputs("\nHow much faster?\n", out);
    json_array_foreach(list, i, entry) put_family(out, statistics, entry);
    json_array_foreach(builds, k, entry) put_builds(out, entry);
    fputs("    " NOTE "\n    " BOUNDS "\n", out);
    if (any_not_faster(list)) fputs("    " WHERE "\n", out);
}

/* ---- page ---------------------------------------------------------------------------------- */

/* The cells behind the name of a row. */
static void page_figures(FILE *out, const json_t *row) {
    char speed[CELL_CAP], ratio[CELL_CAP], between[CELL_CAP];
    const char *verdict = verdict_of(row);
    bool faster = !strcmp(verdict, "faster"), slower = !strcmp(verdict, "slower");
    fprintf(out, "</th><td class=\"%s\">%s</td><td class=\"n\">%lld</td><td class=\"n\">%s</td>"
            "<td class=\"n\">%s</td><td class=\"n\">%s</td><td class=\"long\">",
            faster ? "good" : slower ? "bad" : "soft", verdict, (long long)json_int(row, "runs"),
            cell(row, "tokens_per_s", "%.0f", "–", speed), cell(row, "ratio", "%.3f×", "–", ratio),
            bounds(row, "–", between));
    html_escape(out, json_text(row, "why", ""));
    fputs("</td></tr>\n", out);
}

/* What a row is of: a group, or a build. `key`: of the group. */
static void page_name(FILE *out, const json_t *report, const json_t *row, const char *key,
                      bool *failed) {
    char build[BUILD_CAP];
    fputs("<tr><th scope=\"row\">", out);
    if (json_object_get(row, key)) {
        page_group(out, report, json_int(row, key), failed);
        return;
    }
    page_run(out, report, json_int(row, "run"));
    fputs(" ", out);
    html_escape(out, build_of(row, build));
}

static void page_entry(FILE *out, const json_t *report, const json_t *entry, bool *failed) {
    static const char *const TITLES[] = { "", "verdict", "runs", "tokens/s", "to the baseline",
                                          "95 % bounds", "" };
    const json_t *row;
    char speed[CELL_CAP];
    size_t i;
    page_table(out, json_object_get(entry, "build") ? "Tokens/s of builds with the same bits"
                                                    : "Tokens/s of all runs that count",
               TITLES, sizeof TITLES / sizeof *TITLES);
    page_name(out, report, entry, "baseline", failed);
    fprintf(out, "</th><td></td><td class=\"n\">%lld</td><td class=\"n\">%s</td><td></td><td></td>"
            "<td></td></tr>\n", (long long)json_int(entry, "runs"),
            cell(entry, "tokens_per_s", "%.0f", "–", speed));
    json_array_foreach(json_object_get(entry, "rows"), i, row) {
        page_name(out, report, row, "group", failed);
        page_figures(out, row);
    }
    page_table_end(out);
    json_array_foreach(json_object_get(entry, "left_out"), i, row) {
        fputs("<p class=\"soft\">", out);
        page_run(out, report, json_int(row, "run"));
        fputs(" does not count: ", out);
        html_escape(out, json_text(row, "why", ""));
        fputs(".</p>\n", out);
    }
}

void compare_faster_page(FILE *out, const json_t *report, bool *failed) {
    const json_t *statistics = json_object_get(report, "statistics"), *entry;
    const json_t *list = json_object_get(statistics, "speed");
    const json_t *builds = json_object_get(statistics, "speed_builds");
    size_t i, k;
    if (!json_array_size(list) && !json_array_size(builds)) return;
    fputs("<h2>How much faster?</h2>\n", out);
    json_array_foreach(list, i, entry) page_entry(out, report, entry, failed);
    json_array_foreach(builds, k, entry) page_entry(out, report, entry, failed);
    fputs("<p class=\"soft\">" NOTE "; " BOUNDS ".</p>\n", out);
    if (any_not_faster(list)) fputs("<p class=\"soft\">" WHERE ".</p>\n", out);
}

void compare_faster_words(FILE *out, const json_t *report, int64_t group) {
    const json_t *family, *row = compare_speed_row(json_object_get(report, "statistics"), group,
                                                   &family);
    const char *verdict = row ? json_text(row, "verdict", NULL) : NULL;
    char between[CELL_CAP];
    if (!verdict) return;
    fprintf(out, " Over %lld and %lld runs the speed is <strong>%s</strong> (95 %% bounds %s).",
            (long long)json_int(row, "runs"), (long long)json_int(family, "runs"), verdict,
            bounds(row, "–", between));
}
