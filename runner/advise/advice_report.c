#include "runner/advise/advice_report.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"

enum { TEXT_CAP = ADVICE_TEXT_CAP };

static const char *name_of(const struct advice_row *row) { return RECIPE_KIND_NAMES[row->kind]; }

static const char *way_of(const struct advice_row *row) {
    return row->fell_back ? "fallback" : recipe_way_name(row->way.way);
}

/* The name of a machine, from a file that the user may not have read. */
enum { NAME_CAP = 128 };
#define NAME(text) plain_copy((char[NAME_CAP]){ 0 }, NAME_CAP, (text))

static double gib(int64_t bytes) { return (double)bytes / 0x1p30; }

static double tokens_per_s(const struct advice_row *row) {
    return row->forecast.known ? (double)row->tokens / row->forecast.step_us * 1e6 : 0;
}

/* Adds to the text in out[TEXT_CAP]; what does not fit is cut. */
static void PRINTF_LIKE(2, 3) add(char *out, const char *format, ...) {
    size_t used = strlen(out);
    va_list args;
    va_start(args, format);
    vsnprintf(out + used, TEXT_CAP - used, format, args);
    va_end(args);
}

/* "162 ms": three or four digits, in a unit that fits. */
static void add_time(char *out, double us) {
    if (us >= 1e7) add(out, "%.1f s", us * 1e-6);
    else if (us >= 1e6) add(out, "%.2f s", us * 1e-6);
    else add(out, "%.*f ms", us >= 1e5 ? 0 : us >= 1e4 ? 1 : 2, us * 1e-3);
}

static void add_memory(char *out, const struct advice_row *row) {
    bool small = row->bytes < INT64_C(1) << 30;
    add(out, "needs %.*f %s", small ? 0 : 1, gib(row->bytes) * (small ? 1024 : 1),
        small ? "MiB" : "GiB");
    if (row->memory) add(out, " of %.1f GiB", gib(row->memory));
    else add(out, ", and how much there is, is not known");
}

/* ---- the command that measures what is missing ------------------------------------------------*/

/* The recipe to measure: the first that runs natively without a forecast. NULL: none is missing.
 * Nothing is gained by measuring recipes that the device emulates, but for a machine that emulates
 * all of them. */
static const struct advice_row *unmeasured(const struct advice *a) {
    const struct advice_row *found = NULL;
    for (int64_t i = 0; i < a->count; i++) {
        const struct advice_row *row = &a->row[i];
        if (row->group != ADVICE_UNTIMED || row->unmeasurable) continue;
        if (row->way.way == WAY_NATIVE) return row;
        if (!a->timed && !found) found = row;
    }
    return found;
}

void advice_measure(const struct advice *a, const char *given, char out[TEXT_CAP]) {
    const struct advice_row *row = unmeasured(a);
    out[0] = '\0';
    if (row)
        add(out, "fp8lab bench step %s --set recipe=%s --json > %s.json", given, name_of(row),
            name_of(row));
}

/* ---- five lines -------------------------------------------------------------------------------*/

/* What no certificate says yet, and which command makes them. */
static void add_untried(char *out, const struct certified *c, const char *machine) {
    if (c->tried) add(out, "%" PRId64 " of its %" PRId64, c->ways - c->tried, c->ways);
    else add(out, "its");
    add(out, " operators are not checked against the CPU's on %s yet (`fp8lab run` does it before "
        "its first step); ", NAME(machine));
}

/* "; " ends what is said of the way. */
static void add_certified(char *out, const struct certified *c, bool named, const char *machine) {
    const char *comma = named ? ", " : "";
    if (*c->widens) {
        add(out, "%ssince %s; ", comma, c->widens);
        return;
    }
    bool untried = c->finding == CERTIFIED_UNTRIED;
    if (c->finding == CERTIFIED_UNNEEDED || untried) add(out, "%s", named ? "; " : "");
    if (untried) add_untried(out, c, machine);
    else if (c->finding == CERTIFIED_ALL) add(out, "%scertified here; ", comma);
    else if (c->finding == CERTIFIED_FAILED)
        add(out, "%sbut %s failed (%s); ", comma, c->way, c->fault);
}

static bool any_rough(const struct advice *a) {
    for (int64_t i = 0; i < a->count; i++)
        if (a->row[i].group == ADVICE_TIMED && advice_is_rough(&a->row[i])) return true;
    return false;
}

/* A recipe that does not run, or falls back to BF16, has no FP8 attention to drop. */
static const char *hint_of(const struct advice_row *row) {
    return *row->refused || row->fell_back ? "" : attention_way_hint(row->attention);
}

static void best_line(const struct advice *a, const struct advice_row *best,
                      const struct advice_context *x, char out[TEXT_CAP]) {
    add(out, "Use %s: ", name_of(best));
    if (best->forecast.known) {
        add_time(out, best->forecast.step_us);
        add(out, " per step, %.0f tokens/s", tokens_per_s(best));
        if (best->kind != RECIPE_BF16 && best->speed > 0)
            add(out, ", %.2f x bf16", best->speed);
        add(out, "; ");
    } else if (best->kind == RECIPE_BF16)
        add(out, "without times it is the safe choice; ");
    bool named = best->kind != RECIPE_BF16;
    if (named) add(out, "%s", best->fell_back ? "falls back to bf16" : way_of(best));
    add_certified(out, &best->certified, named, x->machine);
    if (best->attention) add(out, "%s; ", attention_way_text(best->attention));
    add_memory(out, best);
    if (a->timed && best->kind == RECIPE_BF16 && a->count > 1)
        add(out, "; none is forecast to be %s faster",
            any_rough(a) ? "10 %, or where rough 25 %," : "10 %");
    add(out, ".%s%s", *hint_of(best) ? " " : "", hint_of(best));
}

/* ", after 61440 tokens", ", after 1.57 million tokens". */
static void add_tokens(char *out, double tokens) {
    bool billion = tokens >= 1e9, million = tokens >= 1e6;
    add(out, ", after %.*g%s tokens", billion || million ? 3 : 6,
        tokens / (billion ? 1e9 : million ? 1e6 : 1),
        billion ? " billion" : million ? " million" : "");
}

/* " (+0.20 % to bf16, at most +0.31 %, 3 seeds, after 61440 tokens, on other data)": what the
 * verdict comes from. */
static void add_basis(char *out, const struct loss_evidence *loss) {
    add(out, " (");
    if (!isnan(loss->relative)) add(out, "%+.2f %% to %s, ", 100 * loss->relative, loss->baseline);
    if (!isnan(loss->high)) add(out, "at most %+.2f %%, ", 100 * loss->high);
    add(out, "%" PRId64 " seed%s", loss->seeds, loss->seeds == 1 ? "" : "s");
    if (!isnan(loss->tokens)) add_tokens(out, loss->tokens);
    add(out, "%s%s)", loss->other_data ? ", on other data" : "",
        loss->other_training ? ", with other training" : "");
}

static void add_loss(char *out, const struct loss_evidence *loss) {
    add(out, "%s", evidence_name(loss->finding));
    if (*loss->baseline) add_basis(out, loss);
    if (*loss->why) add(out, "; compare says: %s", loss->why);
}

/* BF16 defines no FP8 attention, so that the suite has the same recipe on both sides. */
static void add_suite(char *out, const struct advice_row *best) {
    add(out, "no runs here show whether it holds; a suite of ");
    if (evidence_is_of_attention(best->config))
        add(out, "%s with attention.precision \"bf16\" and \"fp8\", three seeds each, and factor = "
            "\"attention.precision=bf16\" does", name_of(best));
    else add(out, "bf16 and %s with three seeds each does", name_of(best));
}

static void loss_line(const struct advice_row *best, const struct advice_context *x,
                      char out[TEXT_CAP]) {
    size_t unread = json_array_size(x->evidence->unreadable);
    add(out, "Loss: ");
    if (best->kind == RECIPE_BF16) add(out, "bf16 is what the others are compared with");
    else if (best->loss.finding == EVIDENCE_NONE && !*best->loss.why) add_suite(out, best);
    else add_loss(out, &best->loss);
    if (unread) add(out, " (%zu run%s could not be read)", unread, unread == 1 ? "" : "s");
    add(out, ".");
}

static void warn_unreadable(const struct cli *cli, const struct evidence *x) {
    size_t i;
    const json_t *why;
    json_array_foreach(x->unreadable, i, why)
        cli_warn(cli, "no evidence about the loss: %s", json_string_value(why));
}

/* How a recipe runs, if it has no FP8 speed; "". */
static const char *slow_way(const struct advice_row *row) {
    bool emulated = row->kind != RECIPE_BF16 && row->way.way == WAY_EMULATED;
    return row->fell_back ? "falls back to bf16" : emulated ? "emulated" : "";
}

/* Whether the third line has the recipe's floor: nothing is timed, and the recipe could be used. */
static bool has_floor(const struct advice *a, const struct advice_row *row) {
    return !a->timed && row->group == ADVICE_UNTIMED && row->floor_us > 0;
}

static bool add_floors(char *out, const struct advice *a) {
    bool any = false;
    for (int64_t i = 0; i < a->count; i++) {
        const struct advice_row *row = &a->row[i];
        const char *slow = slow_way(row);
        if (!has_floor(a, row)) continue;
        add(out, "%s%s ", any ? ", " : "floors, not forecasts: ", name_of(row));
        add_time(out, row->floor_us);
        if (*slow) add(out, " (%s)", slow);
        any = true;
    }
    return any;
}

static void next_line(const struct advice *a, char out[TEXT_CAP]) {
    add(out, "Then: ");
    bool any = add_floors(out, a);
    for (int64_t i = 1; i < a->count && a->row[i].group == ADVICE_TIMED; i++, any = true) {
        const char *slow = slow_way(&a->row[i]);
        add(out, "%s%s %s%s", any ? ", " : "", name_of(&a->row[i]), slow, *slow ? ", " : "");
        add_time(out, a->row[i].forecast.step_us);
        if (a->row[i].kind != RECIPE_BF16 && a->row[i].speed > 0)
            add(out, " (%.2f x bf16)", a->row[i].speed);
    }
    add(out, "%s.", any ? "" : "no other recipe has a forecast");
}

/* A line has what is wrong; --detail and JSON also have what was found and what to do. */
static int first_clause(const char *reason) { return (int)strcspn(reason, ";"); }

static bool is_same_reason(const struct advice_row *a, const struct advice_row *b) {
    int n = first_clause(a->reason);
    return n == first_clause(b->reason) && !strncmp(a->reason, b->reason, (size_t)n);
}

/* Adds the recipes whose reason is that of row `first`; an earlier row may have said it. Recipes
 * with a floor are not excluded. */
static bool add_reason(char out[TEXT_CAP], const struct advice *a, int64_t first, bool any) {
    const struct advice_row *row = &a->row[first];
    if (has_floor(a, row)) return any;
    for (int64_t i = 0; i < first; i++)
        if (!has_floor(a, &a->row[i]) && is_same_reason(&a->row[i], row)) return any;
    add(out, "%s", any ? "; " : "");
    for (int64_t i = first; i < a->count; i++)
        if (!has_floor(a, &a->row[i]) && is_same_reason(&a->row[i], row))
            add(out, "%s%s", i > first ? ", " : "", name_of(&a->row[i]));
    add(out, " (%.*s)", first_clause(row->reason), row->reason);
    return true;
}

static bool one_reason(const struct advice *a) {
    for (int64_t i = 1; i < a->count; i++)
        if (strcmp(a->row[i].reason, a->row[0].reason) != 0) return false;
    return true;
}

static void none_line(const struct advice *a, char out[TEXT_CAP]) {
    const char *less = "";
    bool any = false, one = one_reason(a);
    add(out, "No recipe can be advised here: %s", one ? a->row[0].reason : "");
    for (int64_t i = 0; i < a->count; i++) {
        if (!one) any = add_reason(out, a, i, any);
        if (!*less) less = a->row[i].less_memory;
    }
    add(out, ".%s%s", *less ? " Less memory:" : "", less);
}

static void not_line(const struct advice *a, char out[TEXT_CAP]) {
    bool any = false;
    add(out, "Not: ");
    for (int64_t i = 1; i < a->count; i++)
        if (a->row[i].group != ADVICE_TIMED) any = add_reason(out, a, i, any);
    add(out, "%s.", any ? "" : "nothing is excluded");
}

/* What the floors of the third line are computed from. */
static void add_peak(char *out, const struct advice_row *row) {
    if (row->floor_us <= 0) return;
    add(out, "; the floors are by the data sheet (%.5g TFLOP/s BF16, %.5g FP8, %.0f GB/s)",
        row->peak->bf16_tflops, row->peak->fp8_tflops, row->peak->memory_gb_s);
}

/* How near the forecasts are; advise/LOG.md has what was measured. */
static void add_accuracy(char *out, const struct advice *a) {
    const struct advice_row *best = &a->row[0];
    bool any = false;
    if (advice_leaves_out_link(best))
        add(out, ", to about 25 %%: rough, since the bytes between ranks (%.1f GB) take a part of "
            "it that is not forecast", best->comm_bytes * 1e-9);
    else if (best->forecast.outside)
        add(out, ", to about 25 %%: rough, since its operators are over 8 times shorter or longer "
            "than measured");
    else if (advice_is_rough(best))
        add(out, ", to about 25 %%: rough, since %.0f %% of the step was not measured in this "
            "recipe", 100 * best->forecast.assumed);
    else {
        add(out, ", to about 10 %%");
        for (int64_t i = 1; i < a->count; i++) {
            if (a->row[i].group != ADVICE_TIMED || !advice_is_rough(&a->row[i])) continue;
            add(out, "%s%s", any ? ", " : "; roughly, to about 25 %: ", name_of(&a->row[i]));
            any = true;
        }
    }
}

static void add_link(char *out, const struct advice_row *row) {
    const double gb = row->comm_bytes * 1e-9;
    if (row->link_us > 0)
        add(out, "; with %.3g ms for %.1f GB between ranks, as if nothing hid them",
            row->link_us * 1e-3, gb);
    else if (row->ranks > 1 && !advice_leaves_out_link(row))
        add(out, "; what %.1f GB between ranks cannot hide comes on top", gb);
}

static void time_line(const struct advice *a, const struct advice_context *x, char out[TEXT_CAP]) {
    char command[TEXT_CAP];
    advice_measure(a, x->given, command);
    if (a->timed) {
        add(out, "Times: forecast from %" PRId64 " step%s measured on %s",
            x->measured->count, x->measured->count == 1 ? "" : "s", NAME(x->machine));
        add_accuracy(out, a);
        add_link(out, &a->row[0]);
    } else if (x->measured->count) {
        add(out, "Times: none, since %s", a->row[0].forecast.missing);
    } else if (x->measured->unused) {
        add(out, "Times: none, since what was measured is of %s, not of %s",
            NAME(x->measured->other), NAME(x->machine));
    } else
        add(out, "Times: none can be forecast without measurements of %s", NAME(x->machine));
    if (!a->timed) add_peak(out, &a->row[0]);
    if (*command) add(out, "; `%s` measures one recipe there, --bench FILE reads it", command);
    add(out, ".");
}

void advice_print(const struct cli *cli, const struct advice *a, const struct advice_context *x) {
    char line[5][TEXT_CAP] = { "" };
    const struct advice_row *best = advice_best(a);
    warn_unreadable(cli, x->evidence);
    if (!best) {
        none_line(a, line[0]);
        cli_out(cli, "%s\n", line[0]);
        return;
    }
    best_line(a, best, x, line[0]);
    loss_line(best, x, line[1]);
    next_line(a, line[2]);
    not_line(a, line[3]);
    time_line(a, x, line[4]);
    cli_out(cli, "%s%s%s\n", cli_style(cli, "bold"), line[0], cli_style(cli, NULL));
    for (int i = 1; i < 5; i++) cli_out(cli, "%s\n", line[i]);
}

/* ---- the table --------------------------------------------------------------------------------*/

void advice_print_table(const struct cli *cli, const struct advice *a) {
    cli_out(cli, "%-16s %-9s %-10s %10s %10s %10s %12s %8s %8s  %s\n", "recipe", "way",
            "certified", "GiB",
            "floor ms", "step ms", "tokens/s", "to bf16", "assumed", "loss; why it is not first");
    for (int64_t i = 0; i < a->count; i++) {
        const struct advice_row *row = &a->row[i];
        char memory[32] = "-";
        char time[32] = "-", least[32] = "-", speed[32] = "-", ratio[32] = "-", assumed[32] = "-";
        char words[TEXT_CAP] = "";
        if (row->bytes > 0) snprintf(memory, sizeof memory, "%.1f", gib(row->bytes));
        if (row->floor_us > 0) snprintf(least, sizeof least, "%.2f", row->floor_us * 1e-3);
        if (row->forecast.known) {
            snprintf(time, sizeof time, "%.2f", row->forecast.step_us * 1e-3);
            snprintf(speed, sizeof speed, "%.0f", tokens_per_s(row));
            snprintf(assumed, sizeof assumed, "%.0f%%", 100 * row->forecast.assumed);
        }
        if (row->speed > 0) snprintf(ratio, sizeof ratio, "%.2fx", row->speed);
        if (row->kind == RECIPE_BF16) add(words, "the baseline");
        else if (!*row->refused) add_loss(words, &row->loss);
        if (row->attention && !*row->refused)
            add(words, "; %s", attention_way_text(row->attention));
        if (*row->reason) add(words, "%s%s", *words ? "; " : "", row->reason);
        if (row->certified.finding == CERTIFIED_FAILED && !*row->certified.widens &&
            !row->certified.ends)
            add(words, "; %s failed: %s", row->certified.way, row->certified.fault);
        cli_out(cli, "%-16s %-9s %-10s %10s %10s %10s %12s %8s %8s  %s\n", name_of(row),
                way_of(row), certified_name(row->certified.finding),
                memory, least, time, speed, ratio, assumed, words);
    }
}

/* ---- JSON -------------------------------------------------------------------------------------*/

static json_t *forecast_json(const struct advice_row *row) {
    if (!row->forecast.known) return json_null();
    json_t *parts = json_object();
    bool failed = !parts;
    for (int i = 0; i < PART_COUNT && parts; i++)
        json_put(parts, timed_part_name((enum timed_part)i), json_real(row->forecast.part_us[i]),
                 &failed);
    return json_pack("{s:f,s:f,s:f,s:f,s:b,s:o}", "step_us", row->forecast.step_us, "link_us",
                     row->link_us, "tokens_per_s", tokens_per_s(row), "assumed_share",
                     row->forecast.assumed, "rough", advice_is_rough(row), "parts_us",
                     json_whole(parts, failed));
}

static json_t *finite_or_null(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static json_t *certified_json(const struct certified *c) {
    return json_pack("{s:s,s:I,s:I,s:s?,s:s?}", "finding", certified_name(c->finding), "ways",
                     (json_int_t)c->ways, "tried", (json_int_t)c->tried, "failed",
                     *c->way ? c->way : NULL, "fault", *c->fault ? c->fault : NULL);
}

static json_t *row_json(const struct advice_row *row) {
    static const char *const GROUPS[] = { "timed", "untimed", "loss", "cannot" };
    const struct loss_evidence *found = &row->loss;
    json_t *loss = json_pack("{s:s,s:I,s:o,s:o,s:s,s:s?,s:o,s:b,s:b}", "verdict",
                             evidence_name(found->finding), "seeds", (json_int_t)found->seeds,
                             "relative", finite_or_null(found->relative), "high",
                             finite_or_null(found->high), "why", found->why, "baseline",
                             *found->baseline ? found->baseline : NULL, "tokens",
                             finite_or_null(found->tokens), "other_data", found->other_data,
                             "other_training", found->other_training);
    const char *attention = *row->refused ? NULL : attention_way_name(row->attention);
    const char *hint = *hint_of(row) ? hint_of(row) : NULL;
    return json_pack("{s:s,s:s?,s:s,s:s,s:s,s:s?,s:s?,s:o,s:b,s:I,s:o,s:i,s:f,s:o,s:o,s:o,s:o,s:s}",
                     "recipe", name_of(row), "run", row->run, "group", GROUPS[row->group], "way",
                     way_of(row), "because", advice_because(row), "attention", attention,
                     "attention_hint", hint, "certified", certified_json(&row->certified), "fits",
                     row->fits,
                     "bytes", (json_int_t)row->bytes, "memory_bytes",
                     row->memory ? json_integer(row->memory) : json_null(), "ranks", row->ranks,
                     "comm_bytes", row->comm_bytes, "floor_us",
                     row->floor_us > 0 ? json_real(row->floor_us) : json_null(), "forecast",
                     forecast_json(row), "speed",
                     row->speed > 0 ? json_real(row->speed) : json_null(), "loss", loss, "reason",
                     row->reason);
}

json_t *advice_json(const struct advice *a, const struct advice_context *x) {
    const struct advice_row *best = advice_best(a);
    json_t *rows = json_array();
    bool failed = false;
    char command[TEXT_CAP];
    advice_measure(a, x->given, command);
    for (int64_t i = 0; i < a->count; i++) json_append(rows, row_json(&a->row[i]), &failed);
    return json_pack("{s:s,s:s,s:o,s:I,s:I,s:I,s:I,s:O,s:o,s:s,s:o}", "schema", "fp8lab.advise/1",
                     "machine", x->machine, "best", best ? json_string(name_of(best)) : json_null(),
                     "measured_steps", (json_int_t)x->measured->count, "files_unused",
                     (json_int_t)x->measured->unused, "runs", (json_int_t)x->evidence->runs,
                     "runs_unreadable", (json_int_t)json_array_size(x->evidence->unreadable),
                     "unreadable", x->evidence->unreadable, "runs_problem",
                     json_from_text(x->evidence->problem), "measure", command, "rows",
                     json_whole(rows, failed));
}
