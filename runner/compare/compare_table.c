/* The comparison as tables for other programs: CSV, a row per run; Markdown, for pages, mails. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/plain_text.h"
#include "runner/base/text_stream.h"
#include "runner/compare/compare.h"
#include "runner/compare/compare_faster.h"

struct table {
    FILE *out;
    enum compare_format format;
    int64_t columns; /* of the row so far */
};

/* ---- cells ------------------------------------------------------------------------------------*/

/* A field of RFC 4180. */
static void put_field(FILE *out, const char *text) {
    bool quoted = strpbrk(text, ",\"\r\n") != NULL;
    if (quoted) fputc('"', out);
    for (; *text; text++) {
        if (*text == '"') fputc('"', out);
        fputc(*text, out);
    }
    if (quoted) fputc('"', out);
}

static void put_escaped(FILE *out, const char *text) {
    for (; *text; text++) {
        if (*text == '|' || *text == '\\') fputc('\\', out);
        fputc(*text == '\n' ? ' ' : *text, out);
    }
}

static void put_text(struct table *t, const char *text) {
    if (t->format == COMPARE_CSV) {
        if (t->columns++) fputc(',', t->out);
        put_field(t->out, text);
        return;
    }
    fputs(t->columns++ ? " " : "| ", t->out);
    put_escaped(t->out, text);
    fputs(" |", t->out);
}

/* Text of a bundle. A spreadsheet runs a cell that begins like a formula, and shows one that begins
 * with an apostrophe as text. Tabs and carriage returns, which some skip, are gone (plain_tree). */
static void add_foreign(const struct table *t, const char *text, struct text *out) {
    if (t->format == COMPARE_CSV && *text && strchr("=+-@", *text)) text_puts(out, "'");
    text_puts(out, text);
}

static void end_row(struct table *t) {
    fputc('\n', t->out);
    t->columns = 0;
}

/* The row of a Markdown table below its titles; `left` columns of text come first. */
static void put_rule(struct table *t, int64_t left) {
    int64_t columns = t->columns;
    end_row(t);
    for (int64_t i = 0; i < columns; i++) fputs(i < left ? "|---" : "|---:", t->out);
    fputs("|\n", t->out);
}

/* A value as it is in --json: whole numbers, and the shortest text of the others. Null: empty. */
static void put_value(struct table *t, const json_t *value) {
    struct text text = { 0 };
    if (json_is_integer(value)) canonical_add_int(&text, json_integer_value(value));
    else if (json_is_real(value)) canonical_add_double(&text, json_real_value(value));
    else if (json_is_boolean(value)) text_puts(&text, json_is_true(value) ? "true" : "false");
    else if (json_is_string(value)) add_foreign(t, json_string_value(value), &text);
    put_text(t, text.failed ? "(no memory)" : text.bytes ? text.bytes : "");
    text_free(&text);
}

/* ---- verdicts ---------------------------------------------------------------------------------*/

/* The group's row among the verdicts of losses, and its family; NULL: it has none. */
static const json_t *verdict_of(const json_t *statistics, int64_t group, const json_t **of) {
    const json_t *losses = json_object_get(statistics, "losses");
    const json_t *family, *row;
    size_t i, k;
    json_array_foreach(losses, i, family)
        json_array_foreach(json_object_get(family, "rows"), k, row) {
            *of = family;
            if (json_integer_value(json_object_get(row, "group")) == group) return row;
        }
    *of = NULL;
    return NULL;
}

static const char *baseline_of(const json_t *statistics, const json_t *family, char letter[8]) {
    int64_t group = json_integer_value(json_object_get(family, "baseline"));
    return family ? compare_group_letter(statistics, group, letter) : "";
}

/* ---- CSV --------------------------------------------------------------------------------------*/

static const char *const RUN_KEYS[] = { "id", "name", "label", "recipe", "seed", "status",
                                        "verified", "steps", "step_last", "eval_step",
                                        "spikes_loss", "spikes_grad_norm" };
static const char *const VERDICT_KEYS[] = { "relative", "low", "high", "tolerance", "verdict",
                                            "why" };
static const char *const PLACE_KEYS[] = { "step", "tokens" }; /* of the evaluations compared */
static const char *const SPEED_KEYS[] = { "runs", "tokens_per_s", "ratio", "low", "high",
                                          "verdict", "why" };
enum { RUN_KEY_COUNT = sizeof RUN_KEYS / sizeof *RUN_KEYS,
       VERDICT_KEY_COUNT = sizeof VERDICT_KEYS / sizeof *VERDICT_KEYS,
       PLACE_KEY_COUNT = sizeof PLACE_KEYS / sizeof *PLACE_KEYS,
       SPEED_KEY_COUNT = sizeof SPEED_KEYS / sizeof *SPEED_KEYS };

static void put_titles(struct table *t, const char *begin, const char *const *keys, int count) {
    char title[80];
    for (int i = 0; i < count; i++) {
        snprintf(title, sizeof title, "%s%s", begin, keys[i]);
        put_text(t, title);
    }
}

static void put_values(struct table *t, const json_t *row, const char *const *keys, int count) {
    for (int i = 0; i < count; i++) put_value(t, json_object_get(row, keys[i]));
}

/* Of each set of eval.also: its last loss and ratio, then the group's verdict. */
static const char *const SET_KEYS[] = { "loss", "ratio" };
static const char *const SET_VERDICT_KEYS[] = { "relative", "low", "high", "verdict", "why" };
enum { SET_KEY_COUNT = sizeof SET_KEYS / sizeof *SET_KEYS,
       SET_VERDICT_KEY_COUNT = sizeof SET_VERDICT_KEYS / sizeof *SET_VERDICT_KEYS };

static const json_t *sets_of(const json_t *report, size_t run) {
    return json_object_get(json_array_get(json_object_get(report, "runs"), run), "eval_sets");
}

/* The group's row among the verdicts of a family on a set; NULL: it has none. */
static const json_t *set_verdict_of(const json_t *family, int64_t group, const char *name) {
    const json_t *set, *row;
    size_t i, k;
    json_array_foreach(json_object_get(family, "sets"), i, set)
        json_array_foreach(json_object_get(set, "rows"), k, row)
            if (!strcmp(json_text(set, "name", ""), name) && json_int(row, "group") == group)
                return row;
    return NULL;
}

static void put_set_titles(struct table *t, const json_t *report) {
    const char *name;
    json_t *set;
    char begin[48];
    json_object_foreach((json_t *)sets_of(report, 0), name, set) {
        snprintf(begin, sizeof begin, "set_%.33s_", name);
        put_titles(t, begin, SET_KEYS, SET_KEY_COUNT);
        put_titles(t, begin, SET_VERDICT_KEYS, SET_VERDICT_KEY_COUNT);
    }
}

static void put_sets(struct table *t, const json_t *report, int64_t run, int64_t group,
                     const json_t *family) {
    const char *name;
    json_t *set;
    json_object_foreach((json_t *)sets_of(report, (size_t)run), name, set) {
        put_values(t, set, SET_KEYS, SET_KEY_COUNT);
        put_values(t, set_verdict_of(family, group, name), SET_VERDICT_KEYS,
                   SET_VERDICT_KEY_COUNT);
    }
}

/* ---- builds in CSV ----------------------------------------------------------------------------*/

static const json_t *builds_of(const json_t *report) {
    return json_object_get(json_object_get(report, "statistics"), "speed_builds");
}

static void put_build_titles(struct table *t, const json_t *report) {
    if (!json_array_size(builds_of(report))) return;
    put_text(t, "build");
    put_text(t, "build_baseline");
    put_titles(t, "build_speed_", SPEED_KEYS, SPEED_KEY_COUNT);
}

/* The run's build, and its speed to that of the group's first build with the same bits. */
static void put_build_csv(struct table *t, const json_t *report, const json_t *run, int64_t group) {
    const json_t *entry, *row, *of = NULL, *found = NULL;
    size_t i, k;
    char letter[8];
    if (!json_array_size(builds_of(report))) return;
    json_array_foreach(builds_of(report), i, entry)
        json_array_foreach(json_object_get(entry, "rows"), k, row)
            if (compare_group_of(report, json_int(row, "run")) == group &&
                !strcmp(json_text(row, "build", ""), json_text(run, "build", "")))
                of = entry, found = row;
    put_value(t, json_object_get(run, "build"));
    put_text(t, of ? compare_letter(json_int(of, "run"), letter) : "");
    put_values(t, found, SPEED_KEYS, SPEED_KEY_COUNT);
}

static void put_csv_titles(struct table *t, const json_t *report) {
    char title[80];
    put_text(t, "run");
    put_titles(t, "", RUN_KEYS, RUN_KEY_COUNT);
    for (int k = 0; k < COMPARE_CELLS; k++) put_text(t, compare_cell(k)->key);
    for (int k = 0; k < COMPARE_CELLS; k++) {
        snprintf(title, sizeof title, "ratio_%s", compare_cell(k)->ratio);
        if (*compare_cell(k)->ratio) put_text(t, title);
    }
    put_text(t, "baseline");
    put_titles(t, "loss_", VERDICT_KEYS, VERDICT_KEY_COUNT);
    put_titles(t, "loss_at_", PLACE_KEYS, PLACE_KEY_COUNT);
    put_titles(t, "speed_", SPEED_KEYS, SPEED_KEY_COUNT);
    put_build_titles(t, report);
    put_set_titles(t, report);
    end_row(t);
}

static void put_csv_row(struct table *t, const json_t *report, const json_t *row, int64_t run) {
    const json_t *ratio = json_object_get(row, "ratio");
    const json_t *statistics = json_object_get(report, "statistics");
    const json_t *family, *speeds;
    int64_t group = compare_group_of(report, run);
    const json_t *verdict = verdict_of(statistics, group, &family);
    char letter[8];
    put_text(t, compare_letter(run, letter));
    put_values(t, row, RUN_KEYS, RUN_KEY_COUNT);
    for (int k = 0; k < COMPARE_CELLS; k++)
        put_value(t, json_object_get(row, compare_cell(k)->key));
    for (int k = 0; k < COMPARE_CELLS; k++)
        if (*compare_cell(k)->ratio) put_value(t, json_object_get(ratio, compare_cell(k)->ratio));
    put_text(t, baseline_of(statistics, family, letter));
    put_values(t, verdict, VERDICT_KEYS, VERDICT_KEY_COUNT);
    put_values(t, family, PLACE_KEYS, PLACE_KEY_COUNT);
    put_values(t, compare_speed_row(statistics, group, &speeds), SPEED_KEYS, SPEED_KEY_COUNT);
    put_build_csv(t, report, row, group);
    put_sets(t, report, run, group, family);
    end_row(t);
}

static void put_csv(struct table *t, const json_t *report) {
    size_t i;
    const json_t *row;
    put_csv_titles(t, report);
    json_array_foreach(json_object_get(report, "runs"), i, row)
        put_csv_row(t, report, row, (int64_t)i);
}

/* ---- Markdown ---------------------------------------------------------------------------------*/

/* "4.32002", or beside a run of ratios "4.32002 (1.003x)". */
static void put_rounded(struct table *t, const json_t *row, const struct compare_cell *cell) {
    char text[96] = "-";
    const json_t *value = json_object_get(row, cell->key);
    const json_t *ratio = json_object_get(json_object_get(row, "ratio"), cell->ratio);
    int n = json_is_number(value) ? snprintf(text, sizeof text, "%.*f", cell->decimals,
                                             cell->scale * json_number_value(value))
                                  : 1;
    if (json_is_number(ratio))
        snprintf(text + n, sizeof text - (size_t)n, " (%.3fx)", json_number_value(ratio));
    put_text(t, text);
}

static void put_runs(struct table *t, const json_t *report) {
    const struct compare_cell *cell[COMPARE_CELLS];
    const json_t *runs = json_object_get(report, "runs"), *row;
    int64_t cells = compare_cells(runs, cell);
    char letter[8];
    size_t i;
    for (int k = 0; k < 5; k++)
        put_text(t, ((const char *const[]){ "", "recipe", "run", "seed", "steps" })[k]);
    for (int64_t k = 0; k < cells; k++) put_text(t, cell[k]->title);
    put_rule(t, 3);
    json_array_foreach(runs, i, row) {
        put_text(t, compare_letter((int64_t)i, letter));
        put_value(t, json_object_get(row, "label"));
        put_value(t, json_object_get(row, "id"));
        put_value(t, json_object_get(row, "seed"));
        put_value(t, json_object_get(row, "steps"));
        for (int64_t k = 0; k < cells; k++) put_rounded(t, row, cell[k]);
        end_row(t);
    }
}

static void put_percent(struct table *t, const json_t *row, const char *key) {
    char text[64] = "-";
    const json_t *value = json_object_get(row, key);
    if (json_is_number(value))
        snprintf(text, sizeof text, "%+.2f %%", 100 * json_number_value(value));
    put_text(t, text);
}

static void put_whole(struct table *t, const json_t *value) {
    char text[32] = "-";
    if (json_is_number(value)) snprintf(text, sizeof text, "%.0f", json_number_value(value));
    put_text(t, text);
}

/* "does not hold: without I (to step 10)", or why there is no verdict; and warnings. */
static void put_verdict(struct table *t, const json_t *statistics, const json_t *family,
                        const json_t *row) {
    const char *verdict = json_text(row, "verdict", ""), *why = json_text(row, "why", "");
    char text[600 + 2 * COMPARE_SPIKES_CAP], warning[COMPARE_SPIKES_CAP];
    int n = snprintf(text, 600, "%s%s%s", verdict, *verdict && *why ? ": " : "", why);
    if (n > 599) n = 599;
    for (int loss = 1; loss >= 0; loss--)
        if (compare_spikes_warning(statistics, family, row, loss, warning))
            n += snprintf(text + n, sizeof text - (size_t)n, "; %s", warning);
    put_text(t, text);
}

static void put_verdicts(struct table *t, const json_t *report) {
    static const char *const TITLES[] = { "recipe", "baseline", "verdict", "eval loss from it",
                                          "lower 95 % bound", "upper", "allowed", "at step",
                                          "after tokens" };
    const json_t *statistics = json_object_get(report, "statistics");
    const json_t *groups = json_object_get(statistics, "groups");
    bool any = false;
    for (int64_t g = 0; g < (int64_t)json_array_size(groups); g++) {
        const json_t *family;
        const json_t *row = verdict_of(statistics, g, &family);
        if (!row) continue;
        if (!any) {
            end_row(t);
            for (size_t i = 0; i < sizeof TITLES / sizeof *TITLES; i++) put_text(t, TITLES[i]);
            put_rule(t, 3);
        }
        any = true;
        char *name = compare_group_label(report, g), letter[8];
        put_text(t, name ? name : "(no memory)");
        put_text(t, baseline_of(statistics, family, letter));
        put_verdict(t, statistics, family, row);
        put_percent(t, row, "relative");
        put_percent(t, row, "low");
        put_percent(t, row, "high");
        put_percent(t, row, "tolerance");
        for (int i = 0; i < PLACE_KEY_COUNT; i++)
            put_whole(t, json_object_get(family, PLACE_KEYS[i]));
        end_row(t);
        free(name);
    }
}

/* ---- further sets, in Markdown ----------------------------------------------------------------*/

/* "4.32002 (1.003x)", or the loss and why it has no ratio. */
static void put_set_loss(struct table *t, const json_t *set) {
    char text[120] = "-";
    const json_t *loss = json_object_get(set, "loss"), *ratio = json_object_get(set, "ratio");
    const char *why = json_text(set, "why", "");
    int n = json_is_number(loss) ? snprintf(text, sizeof text, "%.5f", json_number_value(loss)) : 1;
    if (json_is_number(ratio))
        snprintf(text + n, sizeof text - (size_t)n, " (%.3fx)", json_number_value(ratio));
    else if (*why) snprintf(text + n, sizeof text - (size_t)n, " (%.80s)", why);
    put_text(t, text);
}

static void put_set_losses(struct table *t, const json_t *report) {
    const char *name;
    json_t *set;
    char letter[8];
    end_row(t);
    put_text(t, "");
    json_object_foreach((json_t *)sets_of(report, 0), name, set) put_text(t, name);
    put_rule(t, 1);
    for (size_t i = 0; i < json_array_size(json_object_get(report, "runs")); i++) {
        put_text(t, compare_letter((int64_t)i, letter));
        json_object_foreach((json_t *)sets_of(report, i), name, set) put_set_loss(t, set);
        end_row(t);
    }
}

static void put_set_verdicts(struct table *t, const json_t *report, const json_t *family,
                             const json_t *set) {
    const json_t *statistics = json_object_get(report, "statistics"), *row;
    char letter[8], text[600];
    size_t i;
    json_array_foreach(json_object_get(set, "rows"), i, row) {
        const char *verdict = json_text(row, "verdict", "no verdict");
        const char *why = json_text(row, "why", "");
        char *name = compare_group_label(report, json_int(row, "group"));
        snprintf(text, sizeof text, "%s%s%s", verdict, *why ? ": " : "", why);
        put_text(t, json_text(set, "name", ""));
        put_text(t, name ? name : "(no memory)");
        put_text(t, baseline_of(statistics, family, letter));
        put_text(t, text);
        put_percent(t, row, "relative");
        put_percent(t, row, "low");
        put_percent(t, row, "high");
        put_percent(t, row, "tolerance");
        put_whole(t, json_object_get(set, "counted"));
        end_row(t);
        free(name);
    }
}

static void put_further_sets(struct table *t, const json_t *report) {
    static const char *const TITLES[] = { "set", "recipe", "baseline", "verdict", "loss from it",
                                          "lower bound", "upper", "allowed", "tokens" };
    const json_t *statistics = json_object_get(report, "statistics"), *family, *set, *last = NULL;
    char text[COMPARE_SET_BOUNDS_CAP];
    size_t i, k;
    if (json_object_size(sets_of(report, 0)) == 0) return;
    put_set_losses(t, report);
    json_array_foreach(json_object_get(statistics, "losses"), i, family)
        json_array_foreach(json_object_get(family, "sets"), k, set) {
            if (!last) {
                end_row(t);
                put_titles(t, "", TITLES, sizeof TITLES / sizeof *TITLES);
                put_rule(t, 4);
            }
            last = set;
            put_set_verdicts(t, report, family, set);
        }
    if (!last) return;
    compare_set_bounds(last, text);
    fprintf(t->out, "\n%s; " COMPARE_SETS_APART ".\n", text);
}

/* ---- how much faster, in Markdown -------------------------------------------------------------*/

static void put_number(struct table *t, const json_t *row, const char *key, const char *format) {
    char text[64] = "-";
    const json_t *value = json_object_get(row, key);
    if (json_is_number(value)) snprintf(text, sizeof text, format, json_number_value(value));
    put_text(t, text);
}

/* Behind the name of what is compared, and of what with. */
static void put_speed(struct table *t, const json_t *row) {
    const char *verdict = json_text(row, "verdict", "no verdict"), *why = json_text(row, "why", "");
    char text[700];
    snprintf(text, sizeof text, "%s%s%s", verdict, *why ? ": " : "", why);
    put_text(t, text);
    put_number(t, row, "runs", "%.0f");
    put_number(t, row, "tokens_per_s", "%.0f");
    put_number(t, row, "ratio", "%.3fx");
    put_number(t, row, "low", "%.3fx");
    put_number(t, row, "high", "%.3fx");
    end_row(t);
}

static void put_recipe_speed(struct table *t, const json_t *report, const json_t *family,
                             const json_t *row) {
    const json_t *statistics = json_object_get(report, "statistics");
    char *name = compare_group_label(report, json_int(row, "group")), letter[8];
    put_text(t, name ? name : "(no memory)");
    put_text(t, baseline_of(statistics, family, letter));
    put_speed(t, row);
    free(name);
}

static void put_build_speed(struct table *t, const json_t *entry, const json_t *row) {
    char letter[8], text[48];
    snprintf(text, sizeof text, "%s, build %.12s", compare_letter(json_int(row, "run"), letter),
             json_text(row, "build", "?"));
    put_text(t, text);
    snprintf(text, sizeof text, "%s, build %.12s", compare_letter(json_int(entry, "run"), letter),
             json_text(entry, "build", "?"));
    put_text(t, text);
    put_speed(t, row);
}

/* "D does not count: it is a smoke run", a paragraph each. */
static void put_speed_left_out(struct table *t, const json_t *family) {
    const json_t *row;
    size_t i;
    char letter[8];
    json_array_foreach(json_object_get(family, "left_out"), i, row) {
        fprintf(t->out, "\n%s does not count: ", compare_letter(json_int(row, "run"), letter));
        put_escaped(t->out, json_text(row, "why", ""));
        end_row(t);
    }
}

static void begin_speeds(struct table *t, const char *of) {
    static const char *const TITLES[] = { "baseline", "speed", "runs", "tokens/s",
                                          "to the baseline", "lower 95 % bound", "upper" };
    end_row(t);
    put_text(t, of);
    put_titles(t, "", TITLES, sizeof TITLES / sizeof *TITLES);
    put_rule(t, 3);
}

static void put_speeds(struct table *t, const json_t *report) {
    const json_t *statistics = json_object_get(report, "statistics"), *family, *row;
    const json_t *list = json_object_get(statistics, "speed");
    const json_t *builds = json_object_get(statistics, "speed_builds");
    size_t i, k;
    if (json_array_size(list)) begin_speeds(t, "recipe");
    json_array_foreach(list, i, family)
        json_array_foreach(json_object_get(family, "rows"), k, row)
            put_recipe_speed(t, report, family, row);
    json_array_foreach(list, i, family) put_speed_left_out(t, family);
    if (json_array_size(builds)) begin_speeds(t, "same bits");
    json_array_foreach(builds, i, family)
        json_array_foreach(json_object_get(family, "rows"), k, row)
            put_build_speed(t, family, row);
    json_array_foreach(builds, i, family) put_speed_left_out(t, family);
}

/* ---- the interface ----------------------------------------------------------------------------*/

enum status compare_table(const struct comparison *c, enum compare_format format, char **out,
                          struct err *e) {
    struct text text = { 0 };
    json_t *report = plain_tree(c->report); /* ids, names and values are foreign text */
    struct table t = { report ? text_stream_open(&text) : NULL, format, 0 };
    if (t.out && format == COMPARE_CSV) put_csv(&t, report);
    if (t.out && format == COMPARE_MARKDOWN) {
        put_runs(&t, report);
        put_verdicts(&t, report);
        put_further_sets(&t, report);
        put_speeds(&t, report);
    }
    bool whole = t.out && text_stream_close(t.out, &text);
    json_decref(report);
    if (whole) {
        *out = text.bytes;
        return OK;
    }
    text_free(&text);
    return FAIL(e, ERR_MEMORY, "no memory for the comparison's table");
}
