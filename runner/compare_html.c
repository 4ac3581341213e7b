/* The comparison as one HTML file: tables and plots, no script, nothing fetched. Everything that
 * came out of a bundle is escaped: a stranger's run may be called "<script>". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/json_safe.h"
#include "runner/compare.h"
#include "runner/svg_plot.h"
#include "runner/text_stream.h"

static const char HEAD[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
    "<meta name=\"viewport\" content=\"width=device-width\">"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
    "style-src 'unsafe-inline'\"><title>fp8lab compare</title>\n<style>\n"
    "body{font:15px/1.45 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em;"
    "color:#222;background:#fff}\n"
    "table{border-collapse:collapse;margin:.5em 0 1.5em}td,th{padding:.2em .8em .2em 0;"
    "text-align:left;border-bottom:1px solid #ddd;vertical-align:top}td.n{text-align:right}\n"
    "code{font-size:90%}figure{margin:1.5em 0}figcaption{font-weight:600}svg{width:100%}\n"
    "svg text{font:12px system-ui,sans-serif;fill:#555}.grid{stroke:#ddd}"
    ".data{fill:none;stroke-width:1.4}.legend span{margin-right:1.2em}\n"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}"
    "td,th{border-color:#444}.grid{stroke:#3a3a3a}svg text{fill:#aaa}}\n"
    "</style></head><body>\n<h1>fp8lab compare</h1>\n";

static void put_json(FILE *out, const json_t *value) {
    if (json_is_null(value) || !value) {
        fputs("–", out);
    } else if (json_is_string(value)) {
        html_escape(out, json_string_value(value));
    } else {
        char *text = json_dump_text(value, JSON_ENCODE_ANY | JSON_COMPACT |
                                               JSON_REAL_PRECISION(10));
        html_escape(out, text ? text : "(no memory)");
        free(text);
    }
}

static void put_differences(FILE *out, const json_t *report) {
    size_t i, k;
    const json_t *row, *value;
    fputs("<h2>What differs</h2>\n<p><strong>", out);
    html_escape(out, json_text(report, "verdict", ""));
    fputs("</strong></p>\n<table><tr><th></th><th>key</th>", out);
    json_array_foreach(json_object_get(report, "runs"), i, row)
        fprintf(out, "<th style=\"color:%s\">%zu</th>", svg_color((int64_t)i), i + 1);
    fputs("</tr>\n", out);
    json_array_foreach(json_object_get(report, "differences"), i, row) {
        bool detail = json_is_true(json_object_get(row, "detail"));
        fputs(detail ? "<tr style=\"color:#888\"><td>" : "<tr><td>", out);
        html_escape(out, json_text(row, "section", ""));
        fputs("</td><td><code>", out);
        html_escape(out, json_text(row, "key", ""));
        fputs("</code></td>", out);
        json_array_foreach(json_object_get(row, "values"), k, value) {
            fputs("<td>", out);
            put_json(out, value);
            fputs("</td>", out);
        }
        fputs("</tr>\n", out);
    }
    fputs("</table>\n", out);
}

static void put_number(FILE *out, const json_t *row, const char *key, const char *ratio,
                       int decimals, double scale) {
    const json_t *value = json_object_get(row, key);
    const json_t *r = json_object_get(json_object_get(row, "ratio"), ratio);
    fputs("<td class=\"n\">", out);
    if (!json_is_number(value)) fputs("–", out);
    else fprintf(out, "%.*f", decimals, json_number_value(value) * scale);
    if (json_is_number(r)) fprintf(out, " <small>%.3f×</small>", json_number_value(r));
    fputs("</td>", out);
}

static void put_numbers(FILE *out, const json_t *runs) {
    size_t i;
    const json_t *row;
    fputs("<h2>Numbers</h2>\n<table><tr><th></th><th>run</th><th>status</th><th>recipe</th>"
          "<th>seed</th><th>steps</th><th>loss</th><th>eval loss</th><th>step ms</th>"
          "<th>tokens/s</th><th>MFU %</th><th>memory MiB</th></tr>\n", out);
    json_array_foreach(runs, i, row) {
        fprintf(out, "<tr><td style=\"color:%s\">%zu</td>", svg_color((int64_t)i), i + 1);
        static const char *const KEYS[] = { "id", "status", "recipe", "seed", "steps" };
        for (size_t k = 0; k < sizeof KEYS / sizeof *KEYS; k++) {
            fputs("<td>", out);
            put_json(out, json_object_get(row, KEYS[k]));
            fputs("</td>", out);
        }
        put_number(out, row, "loss_final", "loss", 5, 1);
        put_number(out, row, "eval_loss_final", "eval_loss", 5, 1);
        put_number(out, row, "step_time_us_median", "step_time", 2, 1e-3);
        put_number(out, row, "tokens_per_s_median", "tokens_per_s", 0, 1);
        put_number(out, row, "mfu_peak_median", "", 1, 100);
        put_number(out, row, "memory_bytes_peak", "memory", 1, 1e-6);
        fputs("</tr>\n", out);
    }
    fputs("</table>\n<p>Ratios are to run 1; step time and tokens/s are medians of a steady "
          "window.</p>\n", out);
}

static void put_table(FILE *out, const char *title, const json_t *rows, const char *const *keys,
                      size_t count) {
    size_t i;
    const json_t *row;
    if (json_array_size(rows) == 0) return;
    fprintf(out, "<h2>%s</h2>\n<table><tr>", title);
    for (size_t k = 0; k < count; k++) fprintf(out, "<th>%s</th>", keys[k]);
    fputs("</tr>\n", out);
    json_array_foreach(rows, i, row) {
        fputs("<tr>", out);
        for (size_t k = 0; k < count; k++) {
            fputs("<td>", out);
            put_json(out, json_object_get(row, keys[k]));
            fputs("</td>", out);
        }
        fputs("</tr>\n", out);
    }
    fputs("</table>\n", out);
}

/* ---- plots --------------------------------------------------------------------------------- */

static const struct columns *stream_of(const struct run_view *v, int stream) {
    return stream == 0 ? v->columns.train : v->columns.eval;
}

static enum status put_plots(FILE *out, const struct comparison *c, struct err *e) {
    static const struct {
        const char *title, *column;
        int stream;
    } PLOTS[] = {
        { "Training loss, nats", "loss", 0 },
        { "Evaluation loss, nats", "loss", 1 },
        { "Tokens/s", "tokens_per_s", 0 },
        { "Gradient norm", "grad_norm", 0 },
    };
    struct svg_line *lines = calloc((size_t)c->count, sizeof *lines);
    if (!lines) return FAIL(e, ERR_MEMORY, "%lld lines of a plot", (long long)c->count);
    for (size_t p = 0; p < sizeof PLOTS / sizeof *PLOTS; p++) {
        for (int64_t i = 0; i < c->count; i++) {
            const struct columns *t = stream_of(&c->run[i], PLOTS[p].stream);
            const struct column *x = columns_find(t, "step"), *y = columns_find(t, PLOTS[p].column);
            bool usable = x && y && x->width == 1 && y->width == 1;
            lines[i] = (struct svg_line){ json_text(c->run[i].run, "id", "?"), x, y,
                                          usable ? t->rows : 0 };
        }
        svg_plot(out, PLOTS[p].title, lines, c->count);
    }
    free(lines);
    return OK;
}

enum status compare_html(const struct comparison *c, const char *path, struct err *e) {
    static const char *const DIVERGENCE[] = { "b", "equal", "common_steps", "step", "stream",
                                              "tensor", "a_bits", "b_bits", "note" };
    static const char *const TEST[] = { "metric", "group", "n", "m", "median_a", "median_b",
                                        "effect", "effect_low", "effect_high", "p", "verdict" };
    struct text text = { 0 };
    FILE *out = text_stream_open(&text);
    if (!out) return FAIL(e, ERR_MEMORY, "no memory for %s", path);
    const json_t *statistics = json_object_get(c->report, "statistics");
    fputs(HEAD, out);
    put_numbers(out, json_object_get(c->report, "runs"));
    put_differences(out, c->report);
    put_table(out, "Bit by bit, against run 1 (b counts from 0)",
              json_object_get(c->report, "divergences"), DIVERGENCE,
              sizeof DIVERGENCE / sizeof *DIVERGENCE);
    put_table(out, "Repeats", json_object_get(statistics, "tests"), TEST,
              sizeof TEST / sizeof *TEST);
    enum status st = put_plots(out, c, e);
    fputs("</body></html>\n", out);
    if (!text_stream_close(out, &text) && st == OK)
        st = FAIL(e, ERR_MEMORY, "no memory for %s", path);
    if (st == OK) st = file_replace(path, text.bytes, text.size, e);
    text_free(&text);
    return st;
}
