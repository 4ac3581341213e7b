/* fp8lab list: the runs of a directory, one line each. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "model/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"
#include "runner/bundle/run_view.h"
#include "runner/commands.h"
#include "runner/record/run_lock.h"
#include "runner/run/close.h"

enum { NAME_WIDTH_MAX = 80, STATUS_WIDTH = 11 };

/* How a run stands. One that is going on on another host, as far as can be told from here, says on
 * which: `host` is "" for all others. Foreign words, to be printed as PLAIN(). */
static void status_text(const struct run_view *v, char host[RENDEZVOUS_HOST_CAP], char out[128]) {
    struct run_writer writer;
    const char *status = json_text(v->run, "status", "?");
    bool other = !strcmp(status, "running") && v->directory &&
                 run_lock_look(v->path, &writer) != RUN_LIFE_NONE && writer.elsewhere;
    snprintf(host, RENDEZVOUS_HOST_CAP, "%s", other ? writer.host : "");
    snprintf(out, 128, "%.32s%s%s", status, *host ? " on " : "", host);
}

static void number_text(const json_t *value, const char *format, char out[32]) {
    if (json_is_number(value)) snprintf(out, 32, format, json_number_value(value));
    else snprintf(out, 32, "-");
}

/* Columns that the longest name takes, within reason. */
static int name_width(const struct tree *runs) {
    size_t width = 30;
    for (int64_t i = 0; i < runs->count; i++) {
        char base[PATH_CAP];
        path_base(base, runs->file[i].path);
        char *suffix = strstr(base, ".tar.zst");
        size_t n = suffix ? (size_t)(suffix - base) : strlen(base);
        if (n > width && n <= NAME_WIDTH_MAX) width = n;
    }
    return (int)width;
}

static void print_row(const struct cli *cli, const struct run_view *v, int width) {
    char steps[32], loss[32], eval[32], speed[32];
    char id[128], status[128], host[RENDEZVOUS_HOST_CAP];
    plain_copy(id, sizeof id, json_text(v->run, "id", "?"));
    status_text(v, host, status);
    bool good = strcmp(status, "done") == 0 || strcmp(status, "time_limit") == 0;
    bool live = strncmp(status, "running", 7) == 0;
    number_text(json_object_get(v->summary, "step_last"), "%.0f", steps);
    number_text(json_object_get(v->summary, "loss_final"), "%.4f", loss);
    number_text(json_object_get(v->summary, "eval_loss_final"), "%.4f", eval);
    number_text(json_object_get(v->summary, "tokens_per_s_median"), "%.0f", speed);
    cli_out(cli, "%-*s %s%-*s%s %7s %9s %9s %9s%s\n", width, id,
            cli_style(cli, good ? "green" : live ? "yellow" : "red"), STATUS_WIDTH,
            PLAIN(status), cli_style(cli, NULL), steps, loss, eval, speed,
            v->verified ? "" : "  " RUN_NOT_VERIFIED);
}

static json_t *row_json(const struct run_view *v) {
    char status[128], host[RENDEZVOUS_HOST_CAP];
    status_text(v, host, status);
    return json_pack("{s:o, s:s, s:b, s:o, s:O, s:O?}", "path", json_from_text(v->path), "identity",
                     v->identity, "verified", v->verified, "host", *host ? json_from_text(host) : json_null(), "run", v->run,
                     "summary", v->summary);
}

/* *first and *last become the paths of the outer two that can be read; NULL: none can. */
static int list_runs(const struct cli *cli, const struct tree *runs, const char **first,
                     const char **last) {
    json_t *rows = json_array();
    bool failed = false;
    int code = EXIT_OK, width = name_width(runs);
    *first = *last = NULL;
    if (!cli->json && runs->count)
        cli_out(cli, "%-*s %-*s %7s %9s %9s %9s\n", width, "RUN", STATUS_WIDTH, "STATUS", "STEP",
                "LOSS", "EVAL", "TOKENS/S");
    for (int64_t i = 0; i < runs->count; i++) {
        struct run_view view;
        struct err e = { 0 };
        if (run_view_load(runs->file[i].path, RUN_VIEW_BRIEF, &view, &e) != OK) {
            cli_warn(cli, "%s", e.text); /* one bad bundle does not hide the others */
            code = exit_code_of(e.code);
            continue;
        }
        if (cli->json) json_append(rows, row_json(&view), &failed);
        else print_row(cli, &view, width);
        *last = runs->file[i].path;
        if (!*first) *first = *last;
        run_view_free(&view);
    }
    if (cli->json) {
        json_t *object = json_pack("{s:s, s:O}", "schema", "fp8lab.list/1", "runs",
                                   failed ? NULL : rows);
        cli_out_json(cli, object);
        json_decref(object);
    }
    json_decref(rows);
    return code;
}

static int cmd_list(const struct cli *cli) {
    const char *dir = cli->arg_count ? cli->args[0] : "runs";
    struct tree runs;
    struct err e = { 0 };
    close_dead_runs(cli, dir);
    enum status st = cli->arg_count && !path_is_directory(dir)
                         ? FAIL(&e, ERR_ARG, "%s is no directory", dir)
                         : run_list(dir, &runs, &e);
    if (st != OK) return cli_fail(cli, &e);
    const char *first, *last;
    int code = list_runs(cli, &runs, &first, &last);
    if (runs.count == 0) cli_note(cli, "no runs in %s", dir);
    if (!first) cli_next(cli, "run", "experiments/quickstart.lua", NULL);
    else if (first == last) cli_next(cli, "show", first, NULL);
    else cli_next(cli, "compare", first, last, NULL);
    tree_free(&runs);
    return code;
}

const struct verb VERB_LIST = {
    .name = "list",
    .arguments = "[DIR]",
    .about = "the runs in a directory (default: runs)",
    .args_min = 0,
    .args_max = 1,
    .run = cmd_list,
};
