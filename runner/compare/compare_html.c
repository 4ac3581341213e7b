/* The comparison as one HTML file without an external resource: sentences, tables, plots. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/text_stream.h"
#include "runner/compare/compare_faster.h"
#include "runner/compare/page.h"
#include "runner/compare/plots.h"
#include "runner/compare/svg_plot.h"

static void put_json(FILE *out, const json_t *value, bool *failed) {
    if (json_is_null(value) || !value) {
        fputs("–", out);
    } else if (json_is_string(value)) {
        html_escape(out, json_string_value(value));
    } else {
        char *text = json_dump_text(value, JSON_ENCODE_ANY | JSON_COMPACT |
                                               JSON_REAL_PRECISION(10));
        if (text) html_escape(out, text);
        *failed = *failed || !text;
        free(text);
    }
}

/* ---- what it is about, and the answer -------------------------------------------------------- */

/* The question of the experiment, if all runs have the same one; else "". */
static const char *question(const struct comparison *c) {
    const char *about = json_text(c->run[0].resolved, "about", "");
    for (int64_t i = 1; i < c->count; i++)
        if (strcmp(about, json_text(c->run[i].resolved, "about", "")) != 0) return "";
    return about;
}

static void put_heading(FILE *out, const struct comparison *c) {
    const char *about = question(c);
    fputs("<h1>", out);
    html_escape(out, *about ? about : c->count > 1 ? "fp8lab compare"
                                   : json_text(c->run[0].run, "id", "fp8lab show"));
    fputs("</h1>\n", out);
}

static void put_percent(FILE *out, const json_t *row, const char *key, const char *format) {
    const json_t *value = json_object_get(row, key);
    if (json_is_number(value)) fprintf(out, format, 100 * json_number_value(value));
    else fputs("–", out);
}

static void put_mean(FILE *out, const json_t *row) {
    const json_t *mean = json_object_get(row, "mean");
    if (json_is_number(mean)) fprintf(out, "%.5f", json_number_value(mean));
    else fputs("–", out);
}

/* Two cells: how far a mean is from the baseline's, and the bounds. */
static void put_deviation(FILE *out, const json_t *row) {
    fputs("<td class=\"n\">", out);
    put_percent(out, row, "relative", "%+.2f %%");
    fputs("</td><td class=\"n\">", out);
    put_percent(out, row, "low", "%+.2f to ");
    if (json_is_number(json_object_get(row, "high"))) put_percent(out, row, "high", "%+.2f %%");
    fputs("</td>", out);
}

static void put_loss_row(FILE *out, const json_t *report, const json_t *row, bool *failed) {
    const char *verdict = json_text(row, "verdict", NULL);
    bool holds = verdict && !strcmp(verdict, "holds");
    bool breaks = verdict && !strcmp(verdict, "does not hold");
    fputs("<tr><th scope=\"row\">", out);
    page_group(out, report, json_integer_value(json_object_get(row, "group")), failed);
    fprintf(out, "</th><td class=\"%s\">%s</td><td class=\"n\">",
            holds ? "good" : breaks ? "bad" : "soft", verdict ? verdict : "no verdict");
    put_mean(out, row);
    fputs("</td>", out);
    put_deviation(out, row);
    fputs("<td class=\"n\">", out);
    put_percent(out, row, "tolerance", "%.2f %%");
    fputs("</td><td class=\"long\">", out);
    html_escape(out, json_text(row, "why", ""));
    fputs("</td></tr>\n", out);
}

/* The step of the comparison, and the runs that are left out, or whose later evaluations are. */
static void put_loss_step(FILE *out, const json_t *report, const json_t *family) {
    const json_t *cut = json_object_get(family, "cut"), *step = json_object_get(family, "step");
    const json_t *row;
    size_t i;
    if (!json_is_integer(step)) return;
    fprintf(out, "<p class=\"soft\">Evaluation losses at step %lld, after %.0f tokens",
            (long long)json_integer_value(step),
            json_number_value(json_object_get(family, "tokens")));
    if (json_array_size(cut)) fputs(", the last that all evaluated; later evaluations are "
                                    "left out, of", out);
    json_array_foreach(cut, i, row) {
        fputs(i ? ", " : " ", out);
        page_run(out, report, json_integer_value(json_object_get(row, "run")));
        fprintf(out, " (to step %lld)",
                (long long)json_integer_value(json_object_get(row, "step")));
    }
    char counted[COMPARE_COUNTED_CAP];
    compare_counted(family, counted);
    fprintf(out, "%s%s.</p>\n", *counted ? "; " : "", counted);
    json_array_foreach(json_object_get(family, "left_out"), i, row) {
        fputs("<p class=\"soft\">", out);
        page_run(out, report, json_integer_value(json_object_get(row, "run")));
        fputs(" is left out: ", out);
        html_escape(out, json_text(row, "why", ""));
        fputs(".</p>\n", out);
    }
    if (json_is_true(json_object_get(family, "parted")))
        fputs("<p class=\"soft\">" COMPARE_PARTED ".</p>\n", out);
}

static void put_figure(FILE *out, const json_t *row, const char *key, const char *format) {
    const json_t *value = json_object_get(row, key);
    fputs("<td class=\"n\">", out);
    if (json_is_number(value)) fprintf(out, format, json_number_value(value));
    else fputs("–", out);
    fputs("</td>", out);
}

/* How many times less than the baseline, and its bounds. */
static void put_factor(FILE *out, const json_t *row) {
    const json_t *low = json_object_get(row, "low"), *high = json_object_get(row, "high");
    put_figure(out, row, "factor", "%.3f×");
    fputs("<td>", out);
    if (json_is_number(low) && json_is_number(high))
        fprintf(out, "%.3f to %.3f", json_number_value(low), json_number_value(high));
    else fputs("–", out);
    fputs("</td>", out);
}

/* A second table: losses after equal time, and time and tokens to an equal loss. */
static void put_speed(FILE *out, const json_t *report, const json_t *family, bool *failed) {
    static const char *const TITLES[] = { "", "loss then", "to the baseline", "95 % bounds",
                                          "same loss", "time to it", "bounds", "tokens to it",
                                          "bounds" };
    const json_t *seconds = json_object_get(family, "seconds"), *row, *time, *same;
    size_t i;
    if (json_is_true(json_object_get(family, "diverged")))
        fputs("<p class=\"soft\">" COMPARE_NO_SPEED ".</p>\n", out);
    if (!compare_has_speed(family)) return;
    fprintf(out, "<h3>At equal time: after %.4g s of training</h3>\n", json_number_value(seconds));
    page_table(out, "Losses after equal time; time and tokens to one loss", TITLES,
               sizeof TITLES / sizeof *TITLES);
    json_array_foreach(json_object_get(family, "rows"), i, row) {
        time = json_object_get(row, "at_time");
        same = json_object_get(row, "same_loss");
        fputs("<tr><th scope=\"row\">", out);
        page_group(out, report, json_integer_value(json_object_get(row, "group")), failed);
        fputs("</th>", out);
        put_figure(out, time, "mean", "%.5f");
        put_deviation(out, time);
        put_figure(out, same, "loss", "%.5f");
        put_factor(out, json_object_get(same, "time"));
        put_factor(out, json_object_get(same, "tokens"));
        fputs("</tr>\n", out);
    }
    page_table_end(out);
    fputs("<p class=\"soft\">" COMPARE_SPEED("", ". ") "</p>\n", out);
    if (json_is_true(json_object_get(family, "cpu")))
        fputs("<p>" COMPARE_CPU_TIMES ".</p>\n", out);
}

/* The factor by which the baseline was found; other factors of a chosen baseline. */
static void put_other_factors(FILE *out, const json_t *report, const json_t *row, bool *failed) {
    const json_t *others = json_object_get(row, "differs_in"), *factor;
    const char *only = json_text(row, "factor", NULL);
    size_t i;
    if (!only && !json_array_size(others)) return;
    fputs("<p class=\"soft\">", out);
    page_group(out, report, json_integer_value(json_object_get(row, "group")), failed);
    fputs(only ? " differs from the baseline only in " : " differs from the baseline also in", out);
    if (only) html_escape(out, only);
    json_array_foreach(others, i, factor) {
        fputs(i ? ", " : " ", out);
        html_escape(out, json_string_value(factor));
    }
    fputs(".</p>\n", out);
}

static void put_spike_warnings(FILE *out, const json_t *report, const json_t *family,
                               const json_t *row) {
    const json_t *statistics = json_object_get(report, "statistics");
    char text[COMPARE_SPIKES_CAP];
    for (int loss = 1; loss >= 0; loss--)
        if (compare_spikes_warning(statistics, family, row, loss, text))
            fprintf(out, "<p><strong>Warning:</strong> %s.</p>\n", text);
}

static void put_family(FILE *out, const json_t *report, const json_t *family, bool *failed) {
    static const char *const TITLES[] = { "", "verdict", "mean eval loss", "to the baseline",
                                          "95 % bounds",
                                          "allowed", "" };
    size_t i;
    const json_t *row;
    bool undecided = false;
    page_table(out, "Evaluation losses after equal tokens", TITLES,
               sizeof TITLES / sizeof *TITLES);
    fputs("<tr><th scope=\"row\">", out);
    page_group(out, report, json_integer_value(json_object_get(family, "baseline")), failed);
    fputs("</th><td></td><td class=\"n\">", out);
    put_mean(out, family);
    fputs("</td><td></td><td></td><td></td><td></td></tr>\n", out);
    json_array_foreach(json_object_get(family, "rows"), i, row) {
        put_loss_row(out, report, row, failed);
        undecided = undecided || !strcmp(json_text(row, "verdict", ""), "undecided");
    }
    page_table_end(out);
    json_array_foreach(json_object_get(family, "rows"), i, row)
        put_spike_warnings(out, report, family, row);
    put_loss_step(out, report, family);
    fputs("<p class=\"soft\">" COMPARE_BOUNDS ".</p>\n", out);
    json_array_foreach(json_object_get(family, "rows"), i, row)
        put_other_factors(out, report, row, failed);
    if (undecided)
        fputs("<p class=\"soft\">" COMPARE_UNDECIDED "; " COMPARE_SEEDS_NEEDED ".</p>\n", out);
    if (compare_joined_builds(json_object_get(report, "statistics")))
        fputs("<p class=\"soft\">" COMPARE_BUILDS ".</p>\n", out);
    put_speed(out, report, family, failed);
}

static void put_losses(FILE *out, const json_t *report, bool *failed) {
    const json_t *statistics = json_object_get(report, "statistics"), *row;
    const json_t *losses = json_object_get(statistics, "losses");
    const json_t *missing = json_object_get(statistics, "losses_missing");
    size_t i;
    if (!json_array_size(losses) && !json_array_size(missing)) return;
    fputs("<h2>Does the loss hold?</h2>\n", out);
    json_array_foreach(losses, i, row) put_family(out, report, row, failed);
    json_array_foreach(missing, i, row) {
        fputs("<p>", out);
        page_group(out, report, json_integer_value(json_object_get(row, "group")), failed);
        fputs(": no verdict, ", out);
        html_escape(out, json_text(row, "why", ""));
        fputs("</p>\n", out);
    }
}

/* ---- numbers ------------------------------------------------------------------------------- */

static void put_number(FILE *out, const json_t *row, const struct compare_cell *cell,
                       bool reference) {
    const json_t *value = json_object_get(row, cell->key);
    const json_t *ratio = json_object_get(json_object_get(row, "ratio"), cell->ratio);
    fputs("<td class=\"n\">", out);
    if (!json_is_number(value)) fputs("–", out);
    else fprintf(out, "%.*f", cell->decimals, json_number_value(value) * cell->scale);
    if (json_is_number(ratio) && !reference)
        fprintf(out, "<small>%.3f×</small>", json_number_value(ratio));
    fputs("</td>", out);
}

static void put_identity(FILE *out, const json_t *row) {
    const char *identity = json_text(row, "identity", "");
    fputs("<td class=\"long\"><code>", out);
    html_escape(out, json_text(row, "id", "?"));
    fputs("</code><small>", out);
    html_escape(out, json_text(row, "status", "?"));
    if (json_is_true(json_object_get(row, "smoke"))) fputs(" (smoke run)", out);
    if (json_is_true(json_object_get(row, "verified"))) fprintf(out, ", bundle %.12s", identity);
    else fputs(", " RUN_NOT_VERIFIED, out);
    fputs("</small></td>", out);
}

static void put_numbers(FILE *out, const json_t *report, bool *failed) {
    static const char *const KEYS[] = { "label", "seed", "steps" };
    const json_t *runs = json_object_get(report, "runs"), *row;
    const struct compare_cell *cell[COMPARE_CELLS];
    int64_t cells = compare_cells(runs, cell);
    size_t i;
    fputs("<h2>Numbers</h2>\n", out);
    page_table_begin(out, "The figures of each run");
    fputs("<td></td><th scope=\"col\">recipe</th><th scope=\"col\">seed</th>"
          "<th scope=\"col\">steps</th>", out);
    for (int64_t k = 0; k < cells; k++)
        fprintf(out, "<th scope=\"col\" class=\"n\">%s</th>", cell[k]->title);
    fputs("<th scope=\"col\">run</th></tr>\n", out);
    json_array_foreach(runs, i, row) {
        fputs("<tr><th scope=\"row\">", out);
        page_run(out, report, (int64_t)i);
        fputs("</th>", out);
        for (size_t k = 0; k < sizeof KEYS / sizeof *KEYS; k++) {
            fputs("<td>", out);
            put_json(out, json_object_get(row, KEYS[k]), failed);
            fputs("</td>", out);
        }
        bool reference = (int64_t)i == compare_reference(report);
        for (int64_t k = 0; k < cells; k++) put_number(out, row, cell[k], reference);
        put_identity(out, row);
        fputs("</tr>\n", out);
    }
    page_table_end(out);
    char name[8];
    json_array_foreach(runs, i, row) {
        const char *found = json_text(row, "spikes", NULL);
        if (found)
            fprintf(out, "<p class=\"soft\">Spikes of %s: %s.</p>\n",
                    compare_letter((int64_t)i, name), found);
    }
    compare_letter(compare_reference(report), name);
    fputs("<p class=\"soft\">", out);
    if (json_array_size(runs) > 1)
        fprintf(out, "×: to %s; no × where a loss is of another step than %s's. ", name, name);
    fputs("Step time and tokens/s are medians of a steady window, losses nats per token, each of "
          "its run's last step or evaluation.", out);
    if (compare_has(runs, "eval_loss_byte")) fputs(" Eval/byte: " COMPARE_BYTE ".", out);
    fputs("</p>\n", out);
}

static void put_tests(FILE *out, const json_t *report, bool *failed) {
    static const char *const TITLES[] = { "", "", "seeds", "median", "baseline's", "to it",
                                          "95 % interval", "Mann-Whitney p", "verdict" };
    const json_t *list = json_object_get(json_object_get(report, "statistics"), "tests"), *row;
    size_t i;
    if (json_array_size(list) == 0) return;
    fputs("<h2>Repeats</h2>\n", out);
    page_table(out, "Seeds beside the baseline's", TITLES, sizeof TITLES / sizeof *TITLES);
    json_array_foreach(list, i, row) {
        fputs("<tr><th scope=\"row\">", out);
        page_group(out, report, json_integer_value(json_object_get(row, "group")), failed);
        fprintf(out,
                "</th><td>%s</td><td>%lld and %lld</td><td class=\"n\">%.6g</td>"
                "<td class=\"n\">%.6g</td><td class=\"n\">%+.2f %%</td>"
                "<td>%+.2f to %+.2f %%</td><td class=\"n\">%.3g</td><td>",
                compare_metric(json_text(row, "metric", "")),
                (long long)json_integer_value(json_object_get(row, "m")),
                (long long)json_integer_value(json_object_get(row, "n")),
                json_number_value(json_object_get(row, "median_b")),
                json_number_value(json_object_get(row, "median_a")),
                100 * json_number_value(json_object_get(row, "effect")),
                100 * json_number_value(json_object_get(row, "effect_low")),
                100 * json_number_value(json_object_get(row, "effect_high")),
                json_number_value(json_object_get(row, "p")));
        html_escape(out, json_text(row, "verdict", ""));
        fputs("</td></tr>\n", out);
    }
    page_table_end(out);
}

/* ---- what differs -------------------------------------------------------------------------- */

static void put_difference(FILE *out, const json_t *row, bool *failed) {
    size_t k;
    const json_t *value;
    fputs("<tr><td>", out);
    html_escape(out, json_text(row, "section", ""));
    fputs("</td><td><code>", out);
    html_escape(out, json_text(row, "key", ""));
    fputs("</code></td>", out);
    json_array_foreach(json_object_get(row, "values"), k, value) {
        fputs("<td class=\"v\">", out);
        put_json(out, value, failed);
        fputs("</td>", out);
    }
    fputs("</tr>\n", out);
}

/* Writes the rows of detail (`details`) or the others; returns their number. */
static int64_t put_differences(FILE *out, const json_t *report, bool details, bool *failed) {
    size_t i, count = json_array_size(json_object_get(report, "runs"));
    const json_t *row;
    int64_t shown = 0;
    json_array_foreach(json_object_get(report, "differences"), i, row) {
        if (json_is_true(json_object_get(row, "detail")) != details) continue;
        if (shown++ == 0) {
            if (details) fputs("<details><summary>Names, paths, and what a recipe's kind implies"
                               "</summary>\n", out);
            page_table_begin(out, details ? "Names and paths with several values"
                                          : "Inputs with several values");
            fputs("<td></td><th scope=\"col\">key</th>", out);
            for (size_t k = 0; k < count; k++) {
                fputs("<th scope=\"col\">", out);
                page_run(out, report, (int64_t)k);
                fputs("</th>", out);
            }
            fputs("</tr>\n", out);
        }
        put_difference(out, row, failed);
    }
    if (shown) page_table_end(out);
    if (shown && details) fputs("</details>\n", out);
    return shown;
}

/* ---- bits ---------------------------------------------------------------------------------- */

static void put_divergences(FILE *out, const json_t *report, bool *failed) {
    static const char *const TITLES[] = { "", "first differs at step", "in", "stream", "bits of A",
                                          "its bits", "" };
    static const char *const KEYS[] = { "tensor", "stream", "a_bits", "b_bits", "note" };
    size_t i;
    const json_t *row;
    fputs("<h2>Bit by bit, against run A</h2>\n", out);
    page_table(out, "The first result that differs", TITLES, sizeof TITLES / sizeof *TITLES);
    json_array_foreach(json_object_get(report, "divergences"), i, row) {
        bool equal = json_is_true(json_object_get(row, "equal"));
        fputs("<tr><th scope=\"row\">", out);
        page_run(out, report, json_integer_value(json_object_get(row, "b")));
        fputs("</th><td class=\"n\">", out);
        if (equal)
            fprintf(out, "equal over all %lld steps",
                    (long long)json_integer_value(json_object_get(row, "common_steps")));
        else put_json(out, json_object_get(row, "step"), failed);
        fputs("</td>", out);
        for (size_t k = 0; k < sizeof KEYS / sizeof *KEYS; k++) {
            fputs("<td>", out);
            if (!equal) put_json(out, json_object_get(row, KEYS[k]), failed);
            fputs("</td>", out);
        }
        fputs("</tr>\n", out);
    }
    page_table_end(out);
}

/* ---- the page ------------------------------------------------------------------------------ */

static void put_curves_heading(FILE *out, bool several) {
    fputs("<h2>Curves</h2>\n", out);
    if (several)
        fputs("<p class=\"soft\">Runs of one colour differ in their seed alone; what is subtracted "
              "is the mean of the baseline's. The band: the spread of its seeds.</p>\n", out);
}

static void put_all_differences(FILE *out, const json_t *report, bool *failed) {
    fputs("<h2>What differs</h2>\n", out);
    if (put_differences(out, report, false, failed) +
            put_differences(out, report, true, failed) == 0)
        fputs("<p>Nothing that was recorded.</p>\n", out);
    put_divergences(out, report, failed);
}

/* A page of one run has its settings in place of what compares. */
static enum status put_page(FILE *out, const struct comparison *c, bool *failed, struct err *e) {
    bool several = c->count > 1;
    TRY(page_open(out, several ? "fp8lab compare" : "fp8lab show", e));
    put_heading(out, c);
    if (several) {
        page_words(out, c, failed);
        put_losses(out, c->report, failed);
        compare_sets_page(out, c->report, failed);
        compare_faster_page(out, c->report, failed);
    } else {
        page_one(out, c);
        compare_sets_page(out, c->report, failed);
    }
    put_numbers(out, c->report, failed);
    page_times(out, c);
    put_tests(out, c->report, failed);
    put_curves_heading(out, several);
    TRY(compare_plots(out, c, e));
    compare_heat(out, c);
    compare_spread(out, c);
    if (several) put_all_differences(out, c->report, failed);
    else page_settings(out, &c->run[0], failed);
    page_scripts(out, c);
    page_repeat(out, c, failed);
    page_close(out);
    return OK;
}

enum status compare_html(const struct comparison *c, const char *path, struct err *e) {
    struct text text = { 0 };
    bool failed = false;
    FILE *out = text_stream_open(&text);
    if (!out) return FAIL(e, ERR_MEMORY, "no memory for %s", path);
    enum status st = put_page(out, c, &failed, e);
    failed = !text_stream_close(out, &text) || failed;
    if (failed && st == OK) st = FAIL(e, ERR_MEMORY, "no memory for %s", path);
    if (st == OK) st = file_replace(path, text.bytes, text.size, e);
    text_free(&text);
    return st;
}
