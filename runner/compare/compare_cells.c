/* What the text and the page of a comparison call things, and the columns that both show. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/compare/compare.h"

static const struct compare_cell CELLS[] = {
    { "loss", "loss_final", "loss", 5, 1, false },
    { "eval loss", "eval_loss_final", "eval_loss", 5, 1, false },
    { "eval min", "eval_loss_best", "", 5, 1, false },
    { "eval/byte", "eval_loss_byte", "eval_loss_byte", 5, 1, true },
    { "step ms", "step_time_us_median", "step_time", 2, 1e-3, false },
    { "tokens/s", "tokens_per_s_median", "tokens_per_s", 0, 1, false },
    { "MFU %", "mfu_peak_median", "", 1, 100, true },
    { "of GEMM %", "mfu_gemm_median", "", 1, 100, true },
    { "SM MHz", "gpu_clock_sm_mhz_median", "", 0, 1, true },
    { "mJ/token", "energy_j_per_token", "energy", 3, 1e3, true },
    { "memory MiB", "memory_bytes_peak", "memory", 1, 0x1p-20, false },
};
_Static_assert(sizeof CELLS / sizeof *CELLS == COMPARE_CELLS, "compare.h: COMPARE_CELLS");

const struct compare_cell *compare_cell(int64_t cell) { return &CELLS[cell]; }

bool compare_has(const json_t *runs, const char *key) {
    size_t i;
    const json_t *row;
    json_array_foreach(runs, i, row)
        if (json_is_number(json_object_get(row, key))) return true;
    return false;
}

int64_t compare_cells(const json_t *runs, const struct compare_cell *out[COMPARE_CELLS]) {
    int64_t count = 0;
    for (int k = 0; k < COMPARE_CELLS; k++) {
        if (!CELLS[k].optional || compare_has(runs, CELLS[k].key)) out[count++] = &CELLS[k];
    }
    return count;
}

const char *compare_metric(const char *key) {
    for (int k = 0; k < COMPARE_CELLS; k++)
        if (!strcmp(CELLS[k].key, key)) return CELLS[k].title;
    return key;
}

const char *compare_letter(int64_t run, char out[8]) {
    if (run < 26) snprintf(out, 8, "%c", (char)('A' + run));
    else snprintf(out, 8, "#%d", (int)(run + 1) % 10000);
    return out;
}

/* ---- groups -------------------------------------------------------------------------------- */

static const json_t *groups_of(const json_t *report) {
    return json_object_get(json_object_get(report, "statistics"), "groups");
}

static int64_t first_run(const json_t *groups, size_t group) {
    const json_t *runs = json_object_get(json_array_get(groups, group), "runs");
    return json_integer_value(json_array_get(runs, 0));
}

static bool has_number(const json_t *object, const char *key) {
    return json_is_number(json_object_get(object, key));
}

bool compare_has_speed(const json_t *family) {
    const json_t *row, *same;
    size_t i;
    if (!has_number(family, "seconds")) return false;
    json_array_foreach(json_object_get(family, "rows"), i, row) {
        same = json_object_get(row, "same_loss");
        if (has_number(json_object_get(row, "at_time"), "mean") || has_number(same, "loss") ||
            has_number(json_object_get(same, "time"), "factor") ||
            has_number(json_object_get(same, "tokens"), "factor"))
            return true;
    }
    return false;
}

bool compare_on_cpu(const struct run_view *v) {
    return !strcmp(json_text(v->decisions, "backend", "cpu"), "cpu");
}

bool compare_joined_builds(const json_t *statistics) {
    size_t i;
    const json_t *group;
    json_array_foreach(json_object_get(statistics, "groups"), i, group)
        if (json_integer_value(json_object_get(group, "builds")) > 1) return true;
    return false;
}

const char *compare_group_letter(const json_t *statistics, int64_t group, char out[8]) {
    return compare_letter(first_run(json_object_get(statistics, "groups"), (size_t)group), out);
}

int64_t compare_group_of(const json_t *report, int64_t run) {
    size_t g, k;
    const json_t *group, *member;
    json_array_foreach(groups_of(report), g, group)
        json_array_foreach(json_object_get(group, "runs"), k, member)
            if (json_integer_value(member) == run) return (int64_t)g;
    return 0;
}

int64_t compare_only_baseline(const json_t *losses) {
    const json_t *family;
    size_t i;
    int64_t group = -1;
    json_array_foreach(losses, i, family) {
        int64_t other = json_integer_value(json_object_get(family, "baseline"));
        if (i > 0 && other != group) return -1;
        group = other;
    }
    return group;
}

int64_t compare_reference(const json_t *report) {
    return json_integer_value(json_object_get(report, "reference"));
}

char *compare_group_label(const json_t *report, int64_t group) {
    const json_t *groups = groups_of(report), *row = json_array_get(groups, (size_t)group);
    const char *what = json_text(row, "label", "?");
    size_t runs = json_array_size(json_object_get(row, "runs"));
    int64_t count = json_integer_value(json_object_get(row, "seeds"));
    char letter[8], seeds[48] = "";
    if (runs > 1)
        snprintf(seeds, sizeof seeds, ", %lld seed%s", (long long)count, count == 1 ? "" : "s");
    size_t n = strlen(what) + sizeof letter + sizeof seeds + 8;
    char *out = malloc(n);
    if (out)
        snprintf(out, n, "%s%s %s%s", compare_letter(first_run(groups, (size_t)group), letter),
                 runs > 1 ? "…" : "", what, seeds);
    return out;
}

int compare_columns(const char *text) {
    int columns = 0;
    for (; *text; text++) columns += ((unsigned char)*text & 0xc0) != 0x80;
    return columns;
}

int compare_label_width(const json_t *rows) {
    enum { LEAST = 14 };
    int width = LEAST;
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row) {
        int columns = compare_columns(json_text(row, "label", "-"));
        if (columns > width) width = columns;
    }
    return width;
}
