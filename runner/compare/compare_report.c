/* The comparison as text for a terminal. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/json_number.h"
#include "runner/base/plain_text.h"
#include "runner/base/text_stream.h"
#include "runner/compare/compare.h"
#include "runner/compare/compare_faster.h"
#include "runner/compare/compare_loss.h"

enum { DIFFERENCES_SHOWN = 40, VALUE_WIDTH = 30 };

static int64_t whole(const json_t *object, const char *key) {
    return json_integer_value(json_object_get(object, key));
}

static void put_runs(FILE *out, const json_t *runs) {
    size_t i;
    const json_t *row;
    char name[8];
    json_array_foreach(runs, i, row) {
        fprintf(out, "%-3s %s  %s%s%s\n", compare_letter((int64_t)i, name),
                json_text(row, "id", "?"), json_text(row, "status", "?"),
                json_is_true(json_object_get(row, "smoke")) ? "  (smoke run)" : "",
                json_is_true(json_object_get(row, "verified")) ? "" : "  (" RUN_NOT_VERIFIED ")");
    }
}

static void put_value(FILE *out, const json_t *value) {
    char *text = json_is_null(value)     ? strdup("-")
                 : json_is_string(value) ? strdup(json_string_value(value))
                                         : json_dump_text(value, JSON_ENCODE_ANY | JSON_COMPACT |
                                                                     JSON_REAL_PRECISION(10));
    if (!text) {
        fputs("(no memory)", out);
        return;
    }
    size_t n = strlen(text);
    if (n > VALUE_WIDTH) fprintf(out, "%.*s…", VALUE_WIDTH - 1, text);
    else fputs(text, out);
    free(text);
}

static bool has_value(const json_t *values, size_t run, const json_t *value) {
    return run < json_array_size(values) && json_equal(json_array_get(values, run), value);
}

/* The runs from `first` on with this value: "A,C", and for three or more in a row "A-C,E". */
static void put_holders(FILE *out, const json_t *values, size_t first) {
    const json_t *value = json_array_get(values, first);
    char name[8];
    bool comma = false;
    for (size_t j = first, last; j < json_array_size(values); j = last + 1) {
        last = j;
        if (!has_value(values, j, value)) continue;
        while (has_value(values, last + 1, value)) last++;
        if (last == j + 1) last = j;
        fprintf(out, "%s%s", comma ? "," : "", compare_letter((int64_t)j, name));
        if (last > j) fprintf(out, "-%s", compare_letter((int64_t)last, name));
        comma = true;
    }
}

/* Every value once, with its runs: "A,B 0 · C 1". */
static void put_values(FILE *out, const json_t *values) {
    bool first = true;
    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *value = json_array_get(values, i);
        bool earlier = false;
        for (size_t j = 0; j < i; j++) earlier = earlier || has_value(values, j, value);
        if (earlier) continue;
        fputs(first ? "" : " · ", out);
        first = false;
        put_holders(out, values, i);
        fputc(' ', out);
        put_value(out, value);
    }
}

static void put_differences(FILE *out, const json_t *report, bool all) {
    const json_t *list = json_object_get(report, "differences");
    size_t n = json_array_size(list), shown = 0, i;
    const json_t *row;
    const char *section = "";
    fprintf(out, "\nWhat differs\n");
    if (n == 0) fprintf(out, "  nothing that was recorded\n");
    json_array_foreach(list, i, row) {
        bool detail = json_is_true(json_object_get(row, "detail"));
        if (!all && (detail || shown == DIFFERENCES_SHOWN)) continue;
        shown++;
        const char *name = json_text(row, "section", ""), *key = json_text(row, "key", "");
        bool kind = !all && !strcmp(key, "recipe.kind");
        fprintf(out, "  %-11s %-28s ", strcmp(name, section) ? name : "", kind ? "recipe" : key);
        section = name;
        put_values(out, json_object_get(row, "values"));
        fputc('\n', out);
    }
    if (shown < n)
        fprintf(out, "  (%zu more with --all: names, PATH, what a recipe's kind implies)\n",
                n - shown);
    fprintf(out, "  => %s\n", json_text(report, "verdict", ""));
}

/* ---- numbers ------------------------------------------------------------------------------- */

static void put_cell(FILE *out, const json_t *value, int decimals, double scale, const char *unit) {
    char text[64] = "-";
    if (json_is_number(value))
        snprintf(text, sizeof text, "%.*f%s", decimals, json_number_value(value) * scale, unit);
    fprintf(out, " %11s", text);
}

/* The line below a run's numbers: their ratios to the first run's. Nothing without a ratio, for
 * example for a run without a step. */
static void put_ratios(FILE *out, const json_t *ratio, const struct compare_cell *const *cell,
                       int64_t cells, int width) {
    bool any = false;
    for (int64_t k = 0; k < cells; k++)
        any = any || json_is_number(json_object_get(ratio, cell[k]->ratio));
    if (!any) return;
    fprintf(out, "%*s", width + 19, "");
    for (int64_t k = 0; k < cells; k++)
        if (!*cell[k]->ratio) fprintf(out, " %11s", "");
        else put_cell(out, json_object_get(ratio, cell[k]->ratio), 3, 1, "x");
    fputc('\n', out);
}

/* Text and the spaces that fill it up to `width` columns. */
static void put_padded(FILE *out, const char *text, int width) {
    int columns = compare_columns(text);
    fprintf(out, "%s%*s", text, columns < width ? width - columns : 0, "");
}

static bool all_alike(const json_t *rows, const char *key) {
    size_t i;
    const json_t *row, *first = json_object_get(json_array_get(rows, 0), key);
    json_array_foreach(rows, i, row)
        if (!json_equal(json_object_get(row, key), first)) return false;
    return true;
}

/* Which spikes each run had; nothing without any. */
static void put_spikes(FILE *out, const json_t *runs) {
    const json_t *row;
    size_t i;
    char name[8];
    json_array_foreach(runs, i, row) {
        const char *found = json_text(row, "spikes", NULL);
        if (found)
            fprintf(out, "    spikes of %s: %s\n", compare_letter((int64_t)i, name), found);
    }
}

static void put_number_notes(FILE *out, const json_t *runs, int64_t reference) {
    const json_t *row = json_array_get(runs, (size_t)reference);
    char name[8];
    compare_letter(reference, name);
    if (json_is_integer(json_object_get(row, "steady_from")))
        fprintf(out,
                "    step ms and tokens/s: medians of a steady window (%s: steps %lld to %lld); x: "
                "to %s\n", name,
                (long long)whole(row, "steady_from"), (long long)whole(row, "steady_to"), name);
    put_spikes(out, runs);
    if (compare_has(runs, "eval_loss_byte"))
        fputs("    eval/byte: " COMPARE_BYTE "\n", out);
    if (!all_alike(runs, "step_last") || !all_alike(runs, "eval_step"))
        fprintf(out, "    losses are of each run's own last step and last evaluation: no x where "
                     "that is another step\n");
}

/* One line of numbers a run; below it, but for the reference, the ratios to the reference. */
static void put_numbers(FILE *out, const json_t *runs, int64_t reference) {
    size_t i;
    const json_t *row;
    char name[8];
    const struct compare_cell *cell[COMPARE_CELLS];
    int64_t cells = compare_cells(runs, cell);
    int width = compare_label_width(runs);
    fprintf(out, "\n%-3s %-*s %6s %7s", "", width, "recipe", "seed", "steps");
    for (int64_t k = 0; k < cells; k++) fprintf(out, " %11s", cell[k]->title);
    fputc('\n', out);
    json_array_foreach(runs, i, row) {
        fprintf(out, "%-3s ", compare_letter((int64_t)i, name));
        put_padded(out, json_text(row, "label", "-"), width);
        fprintf(out, " %6lld %7lld", (long long)whole(row, "seed"), (long long)whole(row, "steps"));
        for (int64_t k = 0; k < cells; k++)
            put_cell(out, json_object_get(row, cell[k]->key), cell[k]->decimals, cell[k]->scale,
                     "");
        fputc('\n', out);
        if ((int64_t)i != reference)
            put_ratios(out, json_object_get(row, "ratio"), cell, cells, width);
    }
    put_number_notes(out, runs, reference);
}

/* ---- statistics ---------------------------------------------------------------------------- */

static double percent(const json_t *row, const char *key) {
    return 100 * json_number_value(json_object_get(row, key));
}

/* ---- does the loss hold? ------------------------------------------------------------------- */

static const char *group_name(const json_t *statistics, int64_t group) {
    return json_text(json_array_get(json_object_get(statistics, "groups"), (size_t)group), "label",
                     "-");
}

/* One figure of a row in `width` columns and a space; '-' if it is unknown. */
static void put_figure(FILE *out, const json_t *row, const char *key, double scale, int width,
                       const char *format) {
    char text[32] = "-";
    const json_t *value = json_object_get(row, key);
    if (json_is_number(value))
        snprintf(text, sizeof text, format, scale * json_number_value(value));
    fprintf(out, " %*s", width, text);
}

/* Two bounds in `width` columns and a space; "-" if there are none. */
static void put_bounds(FILE *out, const json_t *row, double scale, int width, const char *format) {
    char text[64] = "-";
    const json_t *low = json_object_get(row, "low"), *high = json_object_get(row, "high");
    if (json_is_number(low) && json_is_number(high))
        snprintf(text, sizeof text, format, scale * json_number_value(low),
                 scale * json_number_value(high));
    fprintf(out, " %*s", width, text);
}

static void put_loss_row(FILE *out, const json_t *statistics, const json_t *row, int width) {
    char name[8];
    const char *verdict = json_text(row, "verdict", NULL), *why = json_text(row, "why", "");
    fprintf(out, "%-4s ", compare_group_letter(statistics, whole(row, "group"), name));
    put_padded(out, group_name(statistics, whole(row, "group")), width);
    fprintf(out, " %6lld", (long long)whole(row, "seeds"));
    put_figure(out, row, "mean", 1, 14, "%.5f");
    put_figure(out, row, "relative", 100, 9, "%+.2f %%");
    put_bounds(out, row, 100, 19, "%+.2f to %+.2f %%");
    put_figure(out, row, "tolerance", 100, 8, "%.2f %%");
    fprintf(out, "  %s%s%s\n", verdict ? verdict : "no verdict", *why ? ": " : "", why);
}

/* The step of the comparison, and the runs that are left out, or whose later evaluations are. */
static void put_loss_step(FILE *out, const json_t *family) {
    const json_t *cut = json_object_get(family, "cut"), *row;
    size_t i;
    char name[8];
    if (!json_is_integer(json_object_get(family, "step"))) return;
    fprintf(out, "    evaluation losses at step %lld, after %.0f tokens",
            (long long)whole(family, "step"),
            json_number_value(json_object_get(family, "tokens")));
    if (json_array_size(cut))
        fprintf(out, ", the last that all evaluated; later evaluations are left out, of");
    json_array_foreach(cut, i, row)
        fprintf(out, "%s %s (to step %lld)", i ? "," : "",
                compare_letter(whole(row, "run"), name), (long long)whole(row, "step"));
    fputc('\n', out);
    json_array_foreach(json_object_get(family, "left_out"), i, row)
        fprintf(out, "    %s is left out: %s\n", compare_letter(whole(row, "run"), name),
                json_text(row, "why", ""));
    if (json_is_true(json_object_get(family, "parted"))) fputs("    " COMPARE_PARTED "\n", out);
}

void compare_counted(const json_t *family, char out[COMPARE_COUNTED_CAP]) {
    double n = json_double(json_object_get(family, "counted"));
    out[0] = '\0';
    if (isnan(n) || !json_is_integer(json_object_get(family, "step"))) return;
    snprintf(out, COMPARE_COUNTED_CAP, "each loss is the mean of %.0f tokens of held-out data%s", n,
             n >= LOSS_TOKENS_FEW ? "" : "; so few that other data may give another verdict: raise "
             "eval.batches if more is held out, else data.holdout");
}

static void put_counted(FILE *out, const json_t *family) {
    char text[COMPARE_COUNTED_CAP];
    compare_counted(family, text);
    if (*text) fprintf(out, "    %s\n", text);
}

/* The factor by which the baseline was found; other factors of a chosen baseline. */
static void put_other_factors(FILE *out, const json_t *statistics, const json_t *row) {
    const json_t *others = json_object_get(row, "differs_in"), *factor;
    const char *only = json_text(row, "factor", NULL);
    size_t i;
    char name[8];
    if (only)
        fprintf(out, "    %s differs from the baseline only in %s\n",
                compare_group_letter(statistics, whole(row, "group"), name), only);
    if (!json_array_size(others)) return;
    fprintf(out, "    %s differs from the baseline also in",
            compare_group_letter(statistics, whole(row, "group"), name));
    json_array_foreach(others, i, factor)
        fprintf(out, "%s %s", i ? "," : "", json_string_value(factor));
    fputc('\n', out);
}

/* A second table: losses after equal time, and time and tokens to an equal loss. */
static void put_speed(FILE *out, const json_t *statistics, const json_t *family, int width) {
    const json_t *rows = json_object_get(family, "rows"), *row, *same, *time;
    size_t i;
    char name[8], from[16], at[40];
    if (json_is_true(json_object_get(family, "diverged")))
        fputs("    " COMPARE_NO_SPEED "\n", out);
    if (!compare_has_speed(family)) return;
    snprintf(from, sizeof from, "from %s",
             compare_group_letter(statistics, whole(family, "baseline"), name));
    snprintf(at, sizeof at, "at %.4g s", json_number_value(json_object_get(family, "seconds")));
    fprintf(out, "%-4s %-*s %14s %9s %19s %10s %8s %14s %8s %14s\n", "", width, "at equal time",
            at, from, "95 % bounds", "same loss", "time", "bounds", "tokens", "bounds");
    json_array_foreach(rows, i, row) {
        time = json_object_get(row, "at_time");
        same = json_object_get(row, "same_loss");
        fprintf(out, "%-4s ", compare_group_letter(statistics, whole(row, "group"), name));
        put_padded(out, group_name(statistics, whole(row, "group")), width);
        put_figure(out, time, "mean", 1, 14, "%.5f");
        put_figure(out, time, "relative", 100, 9, "%+.2f %%");
        put_bounds(out, time, 100, 19, "%+.2f to %+.2f %%");
        put_figure(out, same, "loss", 1, 10, "%.5f");
        put_figure(out, json_object_get(same, "time"), "factor", 1, 8, "%.3fx");
        put_bounds(out, json_object_get(same, "time"), 1, 14, "%.3f to %.3f");
        put_figure(out, json_object_get(same, "tokens"), "factor", 1, 8, "%.3fx");
        put_bounds(out, json_object_get(same, "tokens"), 1, 14, "%.3f to %.3f");
        fputc('\n', out);
    }
    fputs(COMPARE_SPEED("    ", "\n"), out);
    if (json_is_true(json_object_get(family, "cpu"))) fputs("    " COMPARE_CPU_TIMES "\n", out);
}

static void put_spike_warnings(FILE *out, const json_t *statistics, const json_t *family,
                               const json_t *row) {
    char text[COMPARE_SPIKES_CAP];
    for (int loss = 1; loss >= 0; loss--)
        if (compare_spikes_warning(statistics, family, row, loss, text))
            fprintf(out, "    warning: %s\n", text);
}

static void put_family(FILE *out, const json_t *statistics, const json_t *family) {
    const json_t *rows = json_object_get(family, "rows"), *row;
    int width = compare_label_width(json_object_get(statistics, "groups"));
    size_t i;
    char name[8], from[16];
    bool undecided = false;
    const char *letter = compare_group_letter(statistics, whole(family, "baseline"), name);
    snprintf(from, sizeof from, "from %s", letter);
    fprintf(out, "%-4s %-*s %6s %14s %9s %19s %8s\n", "", width, "recipe", "seeds",
            "mean eval loss", from, "95 % bounds", "allowed");
    fprintf(out, "%-4s ", letter);
    put_padded(out, group_name(statistics, whole(family, "baseline")), width);
    fprintf(out, " %6lld", (long long)whole(family, "seeds"));
    put_figure(out, family, "mean", 1, 14, "%.5f");
    fputc('\n', out);
    json_array_foreach(rows, i, row) {
        put_loss_row(out, statistics, row, width);
        undecided = undecided || !strcmp(json_text(row, "verdict", ""), "undecided");
    }
    json_array_foreach(rows, i, row) put_spike_warnings(out, statistics, family, row);
    put_loss_step(out, family);
    put_counted(out, family);
    fputs("    " COMPARE_BOUNDS "\n", out);
    json_array_foreach(rows, i, row) put_other_factors(out, statistics, row);
    if (undecided) fputs("    " COMPARE_UNDECIDED "\n    " COMPARE_SEEDS_NEEDED "\n", out);
    if (compare_joined_builds(statistics)) fputs("    " COMPARE_BUILDS "\n", out);
    put_speed(out, statistics, family, width);
}

/* Groups without a BF16 group; groups with the same reason share a line. */
static void put_missing(FILE *out, const json_t *statistics) {
    const json_t *list = json_object_get(statistics, "losses_missing"), *row, *other;
    size_t i, k;
    char name[8];
    json_array_foreach(list, i, row) {
        const char *why = json_text(row, "why", "");
        bool first = true, earlier = false;
        for (k = 0; k < i; k++)
            earlier = earlier || !strcmp(json_text(json_array_get(list, k), "why", ""), why);
        if (earlier) continue;
        fprintf(out, "    no verdict on");
        json_array_foreach(list, k, other) {
            if (strcmp(json_text(other, "why", ""), why) != 0) continue;
            fprintf(out, "%s %s", first ? "" : ",",
                    compare_group_letter(statistics, whole(other, "group"), name));
            first = false;
        }
        fprintf(out, ": %s\n", why);
    }
}

static void put_losses(FILE *out, const json_t *statistics) {
    const json_t *losses = json_object_get(statistics, "losses"), *family;
    size_t i;
    if (!json_array_size(losses) && !json_array_size(json_object_get(statistics, "losses_missing")))
        return;
    fprintf(out, "\nDoes the loss hold?\n");
    json_array_foreach(losses, i, family) put_family(out, statistics, family);
    put_missing(out, statistics);
}

/* ---- tests --------------------------------------------------------------------------------- */

static void put_tests(FILE *out, const json_t *report) {
    const json_t *statistics = json_object_get(report, "statistics");
    int64_t base = compare_group_of(report, compare_reference(report));
    size_t i;
    const json_t *row;
    const json_t *list = json_object_get(statistics, "tests");
    const char *note = json_text(statistics, "note", "");
    if (json_array_size(list) > 0) fprintf(out, "\nRepeats\n");
    json_array_foreach(list, i, row) {
        char a[8], b[8];
        fprintf(out, "  %s… to %s… %s, %s at step %lld: median %+.2f %% (95 %% interval %+.2f to "
                     "%+.2f), Mann-Whitney p = %.3g, n = %lld and %lld: %s\n",
                compare_group_letter(statistics, base, a),
                compare_group_letter(statistics, whole(row, "group"), b),
                group_name(statistics, whole(row, "group")),
                compare_metric(json_text(row, "metric", "")), (long long)whole(row, "step"),
                percent(row, "effect"), percent(row, "effect_low"), percent(row, "effect_high"),
                json_number_value(json_object_get(row, "p")), (long long)whole(row, "n"),
                (long long)whole(row, "m"), json_text(row, "verdict", ""));
    }
    if (*note) fprintf(out, "    %s\n", note);
}

/* ---- divergence ---------------------------------------------------------------------------- */

/* Whether both first differ from the reference at the same step and tensor. */
static bool same_place(const json_t *x, const json_t *y) {
    static const char *const KEYS[] = { "a", "step", "stream", "tensor", "note" };
    if (!json_is_integer(json_object_get(x, "step"))) return false;
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++)
        if (!json_equal(json_object_get(x, KEYS[i]), json_object_get(y, KEYS[i]))) return false;
    return true;
}

/* A row and the `more` rows after it with the same first difference. */
static void put_divergence(FILE *out, const json_t *rows, size_t at, size_t more) {
    const json_t *row = json_array_get(rows, at);
    char name[8];
    const char *tensor = json_text(row, "tensor", NULL), *note = json_text(row, "note", "");
    fprintf(out, "  %s and ", compare_letter(whole(row, "a"), name));
    for (size_t k = 0; k <= more; k++)
        fprintf(out, "%s%s", k ? ", " : "",
                compare_letter(whole(json_array_get(rows, at + k), "b"), name));
    if (json_is_integer(json_object_get(row, "step"))) {
        const char *stream = json_text(row, "stream", "?");
        fprintf(out, ": first differ at step %lld, in %s", (long long)whole(row, "step"),
                tensor ? tensor : stream);
        if (!more)
            fprintf(out, " (%s%s%s, %s)", tensor ? stream : "", tensor ? ": " : "",
                    json_text(row, "a_bits", ""), json_text(row, "b_bits", ""));
        else if (tensor) fprintf(out, " (%s)", stream);
    } else if (json_is_true(json_object_get(row, "equal"))) {
        fprintf(out, ": equal bit for bit over %lld steps", (long long)whole(row, "common_steps"));
    } else {
        fprintf(out, ": not equal");
    }
    fprintf(out, "%s%s\n", *note ? "; " : "", note);
}

static void put_divergences(FILE *out, const json_t *rows) {
    fprintf(out, "\nBit by bit\n");
    for (size_t i = 0, more = 0; i < json_array_size(rows); i += more + 1) {
        const json_t *row = json_array_get(rows, i), *next;
        more = 0;
        while ((next = json_array_get(rows, i + more + 1)) && same_place(row, next)) more++;
        put_divergence(out, rows, i, more);
    }
}

enum status compare_text(const struct comparison *c, bool all, char **out, struct err *e) {
    struct text text = { 0 };
    json_t *report = plain_tree(c->report); /* ids, names and values are foreign text */
    const json_t *runs = json_object_get(report, "runs");
    FILE *stream = report ? text_stream_open(&text) : NULL;
    if (!stream) {
        json_decref(report);
        return FAIL(e, ERR_MEMORY, "no memory for the comparison's text");
    }
    put_runs(stream, runs);
    put_differences(stream, report, all);
    put_numbers(stream, runs, compare_reference(report));
    put_losses(stream, json_object_get(report, "statistics"));
    compare_sets_text(stream, report);
    compare_faster_text(stream, json_object_get(report, "statistics"));
    put_tests(stream, report);
    put_divergences(stream, json_object_get(report, "divergences"));
    json_decref(report);
    if (!text_stream_close(stream, &text)) {
        text_free(&text);
        return FAIL(e, ERR_MEMORY, "no memory for the comparison's text");
    }
    *out = plain_lines(text.bytes);
    return OK;
}
