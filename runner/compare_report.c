/* The comparison as a terminal shows it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/json_safe.h"
#include "runner/compare.h"
#include "runner/plain_text.h"
#include "runner/text_stream.h"

enum { DIFFERENCES_SHOWN = 40, VALUE_WIDTH = 30 };

/* Runs are called A, B, C... and, beyond Z, by number. */
static const char *letter(int64_t run, char out[8]) {
    if (run < 26) snprintf(out, 8, "%c", (char)('A' + run));
    else snprintf(out, 8, "#%d", (int)(run + 1) % 10000);
    return out;
}

static int64_t whole(const json_t *object, const char *key) {
    return json_integer_value(json_object_get(object, key));
}

static void put_runs(FILE *out, const json_t *runs) {
    size_t i;
    const json_t *row;
    char name[8];
    json_array_foreach(runs, i, row) {
        fprintf(out, "%-3s %s  %s%s\n", letter((int64_t)i, name), json_text(row, "id", "?"),
                json_text(row, "status", "?"),
                json_is_true(json_object_get(row, "smoke")) ? "  (smoke: a rehearsal)" : "");
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

/* Every value once, with the runs that have it: "A,B 0 · C 1". */
static void put_values(FILE *out, const json_t *values) {
    size_t n = json_array_size(values);
    bool first = true;
    char name[8];
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(values, i);
        bool earlier = false;
        for (size_t j = 0; j < i; j++) earlier |= json_equal(json_array_get(values, j), value) != 0;
        if (earlier) continue;
        fputs(first ? "" : " · ", out);
        first = false;
        bool comma = false;
        for (size_t j = i; j < n; j++) {
            if (!json_equal(json_array_get(values, j), value)) continue;
            fprintf(out, "%s%s", comma ? "," : "", letter((int64_t)j, name));
            comma = true;
        }
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

static const struct {
    const char *title, *key, *ratio;
    int decimals;
    double scale;
    bool gpu; /* left out where no run has it */
} CELLS[] = {
    { "loss", "loss_final", "loss", 5, 1, false },
    { "eval loss", "eval_loss_final", "eval_loss", 5, 1, false },
    { "step ms", "step_time_us_median", "step_time", 2, 1e-3, false },
    { "tokens/s", "tokens_per_s_median", "tokens_per_s", 0, 1, false },
    { "MFU %", "mfu_peak_median", "", 1, 100, true },
    { "of GEMM %", "mfu_gemm_median", "", 1, 100, true },
    { "SM MHz", "gpu_clock_sm_mhz_median", "", 0, 1, true },
    { "memory MiB", "memory_bytes_peak", "memory", 1, 0x1p-20, false },
};
enum { CELL_COUNT = sizeof CELLS / sizeof *CELLS };

static void put_cell(FILE *out, const json_t *value, int decimals, double scale, const char *unit) {
    char text[64] = "-";
    if (json_is_number(value))
        snprintf(text, sizeof text, "%.*f%s", decimals, json_number_value(value) * scale, unit);
    fprintf(out, " %11s", text);
}

static bool is_shown(const json_t *runs, int k) {
    size_t i;
    const json_t *row;
    json_array_foreach(runs, i, row)
        if (json_is_number(json_object_get(row, CELLS[k].key))) return true;
    return !CELLS[k].gpu;
}

/* One line of numbers a run, and below it, from the second run on, their ratios to the first's. */
static void put_numbers(FILE *out, const json_t *runs) {
    size_t i;
    const json_t *row;
    char name[8];
    bool shown[CELL_COUNT];
    fprintf(out, "\n%-3s %-14s %6s %7s", "", "recipe", "seed", "steps");
    for (int k = 0; k < CELL_COUNT; k++) {
        shown[k] = is_shown(runs, k);
        if (shown[k]) fprintf(out, " %11s", CELLS[k].title);
    }
    fputc('\n', out);
    json_array_foreach(runs, i, row) {
        fprintf(out, "%-3s %-14s %6lld %7lld", letter((int64_t)i, name),
                json_text(row, "recipe", "-"), (long long)whole(row, "seed"),
                (long long)whole(row, "steps"));
        for (int k = 0; k < CELL_COUNT; k++)
            if (shown[k])
                put_cell(out, json_object_get(row, CELLS[k].key), CELLS[k].decimals,
                         CELLS[k].scale, "");
        if (i > 0) fprintf(out, "\n%-33s", "");
        for (int k = 0; i > 0 && k < CELL_COUNT; k++)
            if (shown[k] && !*CELLS[k].ratio) fprintf(out, " %11s", "");
            else if (shown[k])
                put_cell(out, json_object_get(json_object_get(row, "ratio"), CELLS[k].ratio), 3, 1,
                         "x");
        fputc('\n', out);
    }
    row = json_array_get(runs, 0);
    if (json_is_integer(json_object_get(row, "steady_from")))
        fprintf(out,
                "    step ms and tokens/s: medians of a steady window (A: steps %lld to %lld); x: "
                "to A\n",
                (long long)whole(row, "steady_from"), (long long)whole(row, "steady_to"));
}

/* ---- divergence and statistics ------------------------------------------------------------- */

static void put_divergence(FILE *out, const json_t *row) {
    char a[8], b[8];
    const char *tensor = json_text(row, "tensor", NULL), *note = json_text(row, "note", "");
    fprintf(out, "  %s and %s: ", letter(whole(row, "a"), a), letter(whole(row, "b"), b));
    if (json_is_integer(json_object_get(row, "step"))) {
        const char *stream = json_text(row, "stream", "?");
        fprintf(out, "first differ at step %lld, in %s (%s%s%s, %s)", (long long)whole(row, "step"),
                tensor ? tensor : stream, tensor ? stream : "", tensor ? ": " : "",
                json_text(row, "a_bits", ""), json_text(row, "b_bits", ""));
    } else if (json_is_true(json_object_get(row, "equal"))) {
        fprintf(out, "equal bit for bit over %lld steps", (long long)whole(row, "common_steps"));
    } else {
        fprintf(out, "not equal");
    }
    fprintf(out, "%s%s\n", *note ? "; " : "", note);
}

static void put_statistics(FILE *out, const json_t *statistics) {
    size_t i;
    const json_t *test;
    const json_t *groups = json_object_get(statistics, "groups");
    const char *note = json_text(statistics, "note", "");
    json_array_foreach(json_object_get(statistics, "tests"), i, test) {
        const json_t *group = json_array_get(groups, (size_t)whole(test, "group"));
        char a[8], b[8];
        letter(json_integer_value(json_array_get(
                   json_object_get(json_array_get(groups, 0), "runs"), 0)), a);
        letter(json_integer_value(json_array_get(json_object_get(group, "runs"), 0)), b);
        fprintf(out, "  %s… to %s…, %s: median %+.2f %% (95 %% interval %+.2f to %+.2f), "
                     "Mann-Whitney p = %.3g, n = %lld and %lld: %s\n",
                a, b, json_text(test, "metric", ""),
                100 * json_number_value(json_object_get(test, "effect")),
                100 * json_number_value(json_object_get(test, "effect_low")),
                100 * json_number_value(json_object_get(test, "effect_high")),
                json_number_value(json_object_get(test, "p")), (long long)whole(test, "n"),
                (long long)whole(test, "m"), json_text(test, "verdict", ""));
    }
    if (*note) fprintf(out, "  %s\n", note);
}

/* One line a recipe: does it hold the evaluation loss, and what decided it. */
static void put_losses(FILE *out, const json_t *statistics) {
    size_t i;
    const json_t *row;
    const json_t *list = json_object_get(statistics, "losses");
    const json_t *groups = json_object_get(statistics, "groups");
    if (json_array_size(list) == 0) return;
    fprintf(out, "\nDoes the loss hold?\n");
    json_array_foreach(list, i, row) {
        const json_t *group = json_array_get(groups, (size_t)whole(row, "group"));
        bool holds = json_is_true(json_object_get(row, "holds"));
        char name[8];
        letter(json_integer_value(json_array_get(json_object_get(group, "runs"), 0)), name);
        fprintf(out, "  %-3s %-14s %.5f (n = %lld), %+.2f %% from %.5f, %.2f %% allowed: %s %s\n",
                name, json_text(row, "recipe", "?"),
                json_number_value(json_object_get(row, "mean")), (long long)whole(row, "seeds"),
                100 * json_number_value(json_object_get(row, "relative")),
                json_number_value(json_object_get(row, "reference_mean")),
                100 * json_number_value(json_object_get(row, "tolerance")),
                holds ? "holds, within" : "does not hold: outside", json_text(row, "by", ""));
    }
}

enum status compare_text(const struct comparison *c, bool all, char **out, struct err *e) {
    struct text text = { 0 };
    size_t i;
    const json_t *runs = json_object_get(c->report, "runs"), *row;
    FILE *stream = text_stream_open(&text);
    if (!stream) return FAIL(e, ERR_MEMORY, "no memory for the comparison's text");
    put_runs(stream, runs);
    put_differences(stream, c->report, all);
    put_numbers(stream, runs);
    fprintf(stream, "\nBit by bit\n");
    json_array_foreach(json_object_get(c->report, "divergences"), i, row)
        put_divergence(stream, row);
    put_statistics(stream, json_object_get(c->report, "statistics"));
    put_losses(stream, json_object_get(c->report, "statistics"));
    if (!text_stream_close(stream, &text)) {
        text_free(&text);
        return FAIL(e, ERR_MEMORY, "no memory for the comparison's text");
    }
    *out = plain_text(text.bytes);
    return OK;
}
