/* What the page says of each run by itself: where its time went, its script, and how to repeat
 * it. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/shell_word.h"
#include "runner/compare/page.h"
#include "runner/compare/svg_plot.h"

/* ---- where the time went ------------------------------------------------------------------- */

/* Seconds of all training steps that were recorded; < 0: no times are known. */
static double seconds_of_steps(const struct run_view *v) {
    const struct columns *train = v->columns.of[STREAM_TRAIN];
    const struct column *time = columns_scalar(train, "step_time_us");
    double us = 0;
    for (int64_t i = 0; time && i < train->rows; i++) us += column_value(time, i, 0);
    return time ? 1e-6 * us : -1;
}

/* Seconds from the start to the end of each attempt, together. */
static double seconds_of_run(const struct run_view *v) {
    const json_t *attempt;
    double seconds = 0;
    size_t i;
    json_array_foreach(json_object_get(v->run, "attempts"), i, attempt)
        seconds += json_number_value(json_object_get(attempt, "seconds"));
    return seconds;
}

static void put_cell(FILE *out, bool known, const char *format, double value) {
    fputs("<td class=\"n\">", out);
    if (known) fprintf(out, format, value);
    else fputs("–", out);
    fputs("</td>", out);
}

static void put_summary(FILE *out, const struct run_view *v, const char *key, double scale,
                        const char *format) {
    const json_t *value = json_object_get(v->summary, key);
    put_cell(out, json_is_number(value), format, scale * json_number_value(value));
}

void page_times(FILE *out, const struct comparison *c) {
    static const char *const TITLES[] = { "", "median step", "of it waiting", "not hidden",
                                          "all steps", "checkpoints", "the rest", "whole run" };
    fputs("<h2>Where the time went</h2>\n", out);
    page_table(out, "Times of each run", TITLES, sizeof TITLES / sizeof *TITLES);
    for (int64_t i = 0; i < c->count; i++) {
        const struct run_view *v = &c->run[i];
        double steps = seconds_of_steps(v), whole = seconds_of_run(v);
        const json_t *stalls = json_object_get(json_object_get(v->run, "saves"), "stall_us_sum");
        double saves = 1e-6 * json_number_value(stalls), rest = whole - steps - saves;
        fputs("<tr><th scope=\"row\">", out);
        page_run(out, c->report, i);
        fputs("</th>", out);
        put_summary(out, v, "step_time_us_median", 1e-3, "%.2f ms");
        put_summary(out, v, "wait_share_median", 100, "%.1f %%");
        put_summary(out, v, "exposed_share_median", 100, "%.1f %%");
        put_cell(out, steps >= 0, "%.1f s", steps);
        put_cell(out, json_is_number(stalls), "%.1f s", saves);
        put_cell(out, steps >= 0 && rest >= 0, "%.1f s", rest);
        put_cell(out, whole > 0, "%.1f s", whole);
        fputs("</tr>\n", out);
    }
    page_table_end(out);
    fputs("<p class=\"soft\">Waiting: for the slowest rank. Not hidden: communication and waiting "
          "during which nothing is computed. Checkpoints: steps waited for them. The rest: start, "
          "evaluations, generated text, the bundle. Whole run: without the time between "
          "attempts.</p>\n", out);
}

/* ---- scripts ------------------------------------------------------------------------------- */

/* Whether no earlier run has the same scripts. */
static bool is_first(const struct comparison *c, int64_t first) {
    for (int64_t i = 0; i < first; i++)
        if (json_equal(c->run[i].scripts, c->run[first].scripts)) return false;
    return true;
}

static void put_script(FILE *out, const char *name, const char *text) {
    enum { SHOWN_MAX = 100000 };
    fputs("<p><code>", out);
    html_escape(out, name);
    if (strlen(text) > SHOWN_MAX) {
        fprintf(out, "</code>: %zu bytes, too long for this page</p>\n", strlen(text));
        return;
    }
    fputs("</code></p>\n", out);
    page_text_begin(out, name);
    html_escape(out, text);
    fputs("</pre>\n", out);
}

void page_scripts(FILE *out, const struct comparison *c) {
    const char *name;
    json_t *text;
    fputs("<h2>Scripts</h2>\n", out);
    for (int64_t i = 0; i < c->count; i++) {
        if (!json_object_size(c->run[i].scripts) || !is_first(c, i)) continue;
        fputs("<details><summary>The script of", out);
        for (int64_t k = i; k < c->count; k++) {
            if (!json_equal(c->run[k].scripts, c->run[i].scripts)) continue;
            fputc(' ', out);
            page_run(out, c->report, k);
        }
        fputs("</summary>\n", out);
        json_object_foreach(c->run[i].scripts, name, text)
            put_script(out, name, json_string_value(text));
        fputs("</details>\n", out);
    }
}

/* ---- how to repeat it ---------------------------------------------------------------------- */

static void put_word(FILE *out, const char *text, bool *failed) {
    char *word = shell_word(text);
    if (word) html_escape(out, word);
    *failed = *failed || !word;
    free(word);
}

/* The command that started the run, as its bundle has it. */
static void put_command(FILE *out, const struct run_view *v, bool *failed) {
    const json_t *argv = json_object_get(v->argv, "argv"), *word;
    size_t i;
    if (!json_array_size(argv)) return;
    fputs("<br>started by <code>", out);
    json_array_foreach(argv, i, word) {
        if (i) fputc(' ', out);
        put_word(out, json_is_string(word) ? json_string_value(word) : "?", failed);
    }
    fputs("</code>", out);
    if (!json_is_string(json_object_get(v->commit, "commit"))) return;
    fputs(" at commit <code>", out);
    html_escape(out, json_text(v->commit, "commit", ""));
    fputs("</code>", out);
    if (json_is_true(json_object_get(v->commit, "dirty"))) fputs(" with changes", out);
}

void page_repeat(FILE *out, const struct comparison *c, bool *failed) {
    fputs("<h2>How to repeat it</h2>\n<p>Each line trains one run again from its bundle, and "
          "compares bit by bit.</p>\n<ul class=\"words\">\n", out);
    for (int64_t i = 0; i < c->count; i++) {
        fputs("<li>", out);
        page_run(out, c->report, i);
        fputs(" <code>fp8lab repro ", out);
        put_word(out, c->run[i].path, failed);
        fputs("</code>", out);
        put_command(out, &c->run[i], failed);
        fputs("</li>\n", out);
    }
    fputs("</ul>\n<p>This page:</p>\n", out);
    page_text_begin(out, "The command of this page");
    fputs("fp8lab ", out);
    fputs(c->count > 1 ? "compare --html page.html" : "show --html page.html", out);
    if (c->options.baseline) {
        fputs(" --baseline ", out);
        put_word(out, c->options.baseline, failed);
    }
    if (c->options.factor) {
        fputs(" --factor ", out);
        put_word(out, c->options.factor, failed);
    }
    if (c->options.tolerance) fprintf(out, " --tolerance %g%%", 100 * *c->options.tolerance);
    for (int64_t i = 0; i < c->count; i++) {
        fputs(" \\\n    ", out);
        put_word(out, c->run[i].path, failed);
    }
    fputs("</pre>\n", out);
}

/* ---- one run ------------------------------------------------------------------------------- */

void page_settings(FILE *out, const struct run_view *v, bool *failed) {
    static const struct {
        const char *title;
        size_t offset;
    } PARTS[] = {
        { "Configuration", offsetof(struct run_view, resolved) },
        { "Machine", offsetof(struct run_view, facts) },
        { "Libraries", offsetof(struct run_view, libraries) },
        { "Figures", offsetof(struct run_view, summary) },
    };
    fputs("<h2>Settings</h2>\n", out);
    for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++) {
        const json_t *part = *(json_t *const *)((const char *)v + PARTS[i].offset);
        char *text = part ? json_dump_text(part, JSON_INDENT(2) | JSON_REAL_PRECISION(10)) : NULL;
        if (!part) continue;
        *failed = *failed || !text;
        fprintf(out, "<details><summary>%s</summary>\n", PARTS[i].title);
        page_text_begin(out, PARTS[i].title);
        if (text) html_escape(out, text);
        fputs("</pre></details>\n", out);
        free(text);
    }
}
