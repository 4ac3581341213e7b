/* fp8lab health: which FP8 tensors of a run are in trouble, since when, and what may help. */
#include <jansson.h>
#include <stdio.h>

#include "model/ground/json_safe.h"
#include "runner/bundle/run_pick.h"
#include "runner/bundle/run_view.h"
#include "runner/commands.h"
#include "runner/health/health.h"
#include "runner/health/spikes.h"

static void print_line(void *to, enum health_level level, const char *line) {
    static const char *const STYLES[] = { NULL, "yellow", "red" };
    const struct cli *cli = to;
    bool styled = level != HEALTH_FINE;
    cli_out(cli, "%s%s%s\n", styled ? cli_style(cli, STYLES[level]) : "", line,
            styled ? cli_style(cli, NULL) : "");
}

/* Spikes of the loss, which may have other causes than the tensors above. */
static void print_spikes(const struct cli *cli, const struct spikes *spikes, bool fp8) {
    char found[SPIKES_TEXT_CAP], text[SPIKES_TEXT_CAP + 16];
    bool any = spikes_text(spikes, found);
    snprintf(text, sizeof text, "spikes: %s", *found ? found : "too few steps to judge any by");
    print_line((void *)(uintptr_t)cli, any ? HEALTH_WATCH : HEALTH_FINE, text);
    if (any)
        cli_out(cli, "  try     %s\n",
                fp8 ? "the same run in BF16: compare counts the spikes of both. If FP8 has more: "
                      "a\n          lower learning rate, or BF16 for the outer layers (first_bf16, "
                      "last_bf16)"
                    : "a lower learning rate, a longer warmup; look at the data of these steps");
}

/* The report with its spikes; new reference, NULL: no memory. */
static json_t *report_json(const struct health *h, const struct spikes *spikes,
                           const struct run_view *v) {
    json_t *object = health_json(h, v);
    bool failed = !object;
    json_put(object, "spikes", spikes_json(spikes), &failed);
    return json_whole(object, failed);
}

static int cmd_health(const struct cli *cli) {
    char path[PATH_CAP];
    struct run_view view = { 0 };
    struct health health = { 0 };
    struct spikes spikes = { 0 };
    struct err e = { 0 };
    enum status st = run_locate(cli->args[0], cli_runs(cli), path, &e);
    if (st == OK) st = run_view_load(path, RUN_VIEW_FULL, &view, &e);
    if (st == OK) st = health_make(&view, &health, &e);
    if (st == OK) st = spikes_make(view.columns.of[STREAM_TRAIN], &spikes, &e);
    if (st == OK && cli->json) {
        json_t *object = report_json(&health, &spikes, &view);
        if (object) cli_out_json(cli, object);
        else st = FAIL(&e, ERR_MEMORY, "the report");
        json_decref(object);
    } else if (st == OK) {
        health_print(&health, cli_has(cli, "all"), print_line, (void *)(uintptr_t)cli);
        print_spikes(cli, &spikes, health.fp8_count > 0);
    }
    spikes_free(&spikes);
    health_free(&health);
    run_view_free(&view);
    return st == OK ? EXIT_OK : cli_fail(cli, &e);
}

static const struct flag FLAGS[] = {
    { "all", NULL, "name every tensor of a symptom, not the first six", false },
    { "runs", "DIR", "where runs are looked up by id (default: runs)", false },
};

const struct verb VERB_HEALTH = {
    .name = "health",
    .arguments = "RUN",
    .about = "which FP8 tensors are in trouble, since when, what to try",
    .more = RUN_FORMS
            "\n"
            "Judges the end of a run, live or finished: the last tenth of its steps, at least 20.\n"
            "A symptom held in at least half of them; since: the earliest step after which it\n"
            "held in at least half. The SNR of casts is measured every 100 steps; in a script,\n"
            "`fp8_error = 10` sets another period. runner/health/README.md has the rules.\n"
            "Spikes are short rises of the loss, or of the gradient norm, in all of the run.\n"
            "range used: amax * scale, of the largest value of the format. Over 100 % saturates.\n"
            "saturated, underflow: shares of the elements that did not fit, or became 0.\n",
    VERB_FLAGS(FLAGS),
    .args_min = 1,
    .args_max = 1,
    .run = cmd_health,
};
