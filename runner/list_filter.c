#include "runner/list_filter.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runner/bundle/run_notes.h"
#include "runner/compare/recipe_name.h"
#include "runner/record/run_dir.h"

/* ---- flags --------------------------------------------------------------------------------- */

/* "3d": so many seconds; 0: the text is no such duration. */
static int64_t seconds_of(const char *text) {
    static const struct { char unit; int64_t seconds; } UNITS[] = {
        { 'm', 60 }, { 'h', 3600 }, { 'd', 86400 }, { 'w', 7 * 86400 },
    };
    char *end = NULL;
    long long n = strtoll(text, &end, 10);
    if (end == text || !*end || end[1] || n < 1 || n > 100000) return 0;
    for (size_t i = 0; i < sizeof UNITS / sizeof *UNITS; i++)
        if (*end == UNITS[i].unit) return n * UNITS[i].seconds;
    return 0;
}

/* A day, or a UTC time with or without a fraction and 'Z'. 0: there is no such time (2026-02-30),
 * or it has an offset. */
static int64_t time_of(const char *text) {
    char whole[48], same[40] = "";
    snprintf(whole, sizeof whole, "%.30s%s", text, strlen(text) == 10 ? "T00:00:00Z" : "");
    int64_t seconds = run_time_parse(whole);
    time_t t = (time_t)seconds;
    struct tm parts;
    size_t n = gmtime_r(&t, &parts) ? strftime(same, sizeof same, "%Y-%m-%dT%H:%M:%S", &parts) : 0;
    if (n == 0 || strncmp(whole, same, n)) return 0;
    const char *rest = whole + n;
    if (*rest == '.') rest += 1 + strspn(rest + 1, "0123456789");
    return !*rest || !strcmp(rest, "Z") ? seconds : 0;
}

static enum status read_since(const char *text, int64_t now, int64_t *out, struct err *e) {
    int64_t ago = seconds_of(text);
    *out = ago ? now - ago : time_of(text);
    if (*out > 0) return OK;
    return FAIL(e, ERR_ARG, "--since: found '%.40s'; write a day (2026-11-20), a UTC time "
                "(2026-11-20T10:00:00Z), or a duration (30m, 12h, 3d, 2w)", text);
}

/* "running" is "running on HOST" too, and "left" is "left open". */
static bool is_status(const char *given, const char *status) {
    size_t n = strlen(given);
    return n && !strncmp(status, given, n) && (!status[n] || status[n] == ' ');
}

static enum status check_status(const char *given, struct err *e) {
    static const char *const STATUSES[] = { "done", "time_limit", "interrupted", "failed", "killed",
                                            "running", "left open" };
    for (size_t i = 0; i < sizeof STATUSES / sizeof *STATUSES; i++)
        if (is_status(given, STATUSES[i]) || is_status(STATUSES[i], given)) return OK;
    return FAIL(e, ERR_ARG, "--status: found '%.40s'; a run is done, time_limit, interrupted, "
                "failed, killed, running or left open", given);
}

enum status list_filter_read(const struct cli *cli, int64_t now, struct list_filter *out,
                             struct err *e) {
    const char *since = cli_value(cli, "since");
    *out = (struct list_filter){ .cli = cli, .recipe = cli_value(cli, "recipe"),
                                 .status = cli_value(cli, "status"),
                                 .name = cli_value(cli, "name") };
    if (out->status) TRY(check_status(out->status, e));
    return since ? read_since(since, now, &out->since, e) : OK;
}

/* ---- what a run is --------------------------------------------------------------------------- */

/* The ranks of the last attempt; 1 if they are not recorded. */
static int64_t ranks_of(const struct run_view *v) {
    const json_t *attempts = json_object_get(v->run, "attempts");
    size_t n = json_array_size(attempts);
    int64_t ranks = n ? json_int(json_array_get(attempts, n - 1), "ranks") : 0;
    return ranks > 0 ? ranks : 1;
}

static void device_of(const struct run_view *v, char out[64]) {
    static const char MAKER[] = "NVIDIA ";
    const char *backend = json_text(v->decisions, "backend", "-");
    const char *name = json_text(v->facts, "gpu.product_name", "gpu");
    char count[24] = "";
    int64_t ranks = ranks_of(v);
    if (!strncmp(name, MAKER, sizeof MAKER - 1)) name += sizeof MAKER - 1;
    if (ranks > 1) snprintf(count, sizeof count, "%" PRId64 "x ", ranks);
    snprintf(out, 64, "%s%.36s", count, strcmp(backend, "cuda") ? backend : name);
}

void list_facts_of(const struct run_view *v, struct list_facts *out) {
    const json_t *recipe = json_object_get(v->resolved, "recipe");
    const json_t *model = json_object_get(v->resolved, "model");
    char *text = json_is_object(recipe) ? recipe_text_of_run(v->resolved) : NULL;
    const char *started = json_text(v->run, "started", "-");
    *out = (struct list_facts){ .model = "-" };
    snprintf(out->recipe, sizeof out->recipe, "%s", text ? text : "-");
    snprintf(out->kind, sizeof out->kind, "%.31s", json_text(recipe, "kind", "-"));
    if (json_is_object(model))
        snprintf(out->model, sizeof out->model, "%" PRId64 "x%" PRId64, json_int(model, "layers"),
                 json_int(model, "width"));
    device_of(v, out->device);
    snprintf(out->date, sizeof out->date, "%.16s", started);
    if (strlen(out->date) == 16 && out->date[10] == 'T') out->date[10] = ' ';
    free(text);
}

/* ---- the choice ------------------------------------------------------------------------------ */

static bool like(const char *glob, const char *text) { return fnmatch(glob, text, 0) == 0; }

bool list_filter_takes(const struct list_filter *f, const struct run_view *v,
                       const struct list_facts *facts, const char *status, const json_t *notes) {
    if (f->recipe && !like(f->recipe, facts->kind) && !like(f->recipe, facts->recipe)) return false;
    if (f->name && !like(f->name, json_text(v->run, "name", ""))) return false;
    if (f->status && !is_status(f->status, status)) return false;
    if (f->since && run_time_parse(json_text(v->run, "started", "")) < f->since) return false;
    for (int64_t i = 0; i < cli_count(f->cli, "tag"); i++)
        if (!run_notes_have(notes, cli_nth(f->cli, "tag", i))) return false;
    return true;
}
