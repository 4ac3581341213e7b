/* fp8lab list: the runs of a directory, one line each. */
#include <dirent.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"
#include "runner/bundle/kept.h"
#include "runner/bundle/run_view.h"
#include "runner/commands.h"
#include "runner/compare/compare.h"
#include "runner/record/run_dir.h"
#include "runner/record/run_lock.h"
#include "runner/run/close.h"

enum { NAME_WIDTH = 30, STATUS_WIDTH = 11, CANDIDATES_MAX = 8 };

/* The contents of one line; texts are ready for a terminal. */
struct row {
    char id[128], status[128], steps[32], loss[32], eval[32], speed[32];
    char kept[64]; /* "last 500, best 300"; "": no checkpoint */
    bool verified;
};

static const char LEFT_OPEN[] = "left open";

/* The status of a run. A run that appears to run on another host has its name in `host`, "" for all
 * others. A run that says "running" without a live writer was left open. Foreign text, to be
 * printed as PLAIN(). */
static void status_text(const struct run_view *v, char host[HOST_NAME_CAP], char out[128]) {
    struct run_writer writer;
    const char *status = json_text(v->run, "status", "?");
    bool open = !strcmp(status, "running") && v->directory;
    enum run_life life = open ? run_lock_look(v->path, &writer) : RUN_LIFE_NONE;
    bool other = life != RUN_LIFE_NONE && writer.elsewhere;
    if (open && life == RUN_LIFE_NONE) status = LEFT_OPEN;
    snprintf(host, HOST_NAME_CAP, "%s", other ? writer.host : "");
    snprintf(out, 128, "%.32s%s%s", status, *host ? " on " : "", host);
}

static void number_text(const json_t *value, const char *format, char out[32]) {
    if (json_is_number(value)) snprintf(out, 32, format, json_number_value(value));
    else snprintf(out, 32, "-");
}

/* The checkpoints that are kept beside the bundle or in it. */
static void kept_steps(const json_t *run, char out[64]) {
    int64_t last = kept_step(run, "last"), best = kept_step(run, "best");
    int used = 0;
    out[0] = '\0';
    if (last >= 0) used = snprintf(out, 64, "last %" PRId64, last);
    if (best >= 0)
        snprintf(out + used, (size_t)(64 - used), "%sbest %" PRId64, used ? ", " : "", best);
}

static void make_row(const struct run_view *v, struct row *row) {
    char host[HOST_NAME_CAP], status[128];
    plain_copy(row->id, sizeof row->id, json_text(v->run, "id", "?"));
    status_text(v, host, status);
    plain_copy(row->status, sizeof row->status, status);
    row->verified = v->verified;
    kept_steps(v->run, row->kept);
    number_text(json_object_get(v->summary, "step_last"), "%.0f", row->steps);
    number_text(json_object_get(v->summary, "loss_final"), "%.4f", row->loss);
    number_text(json_object_get(v->summary, "eval_loss_final"), "%.4f", row->eval);
    number_text(json_object_get(v->summary, "tokens_per_s_median"), "%.0f", row->speed);
}

static int wider(int width, const char *text) {
    int columns = compare_columns(text);
    return columns > width ? columns : width;
}

/* Spaces to fill the text to `width` columns. */
static int fill(const char *text, int width) {
    return width - compare_columns(text);
}

/* Makes every column as wide as its longest text. */
static void print_rows(const struct cli *cli, const struct row *rows, int64_t count) {
    int name = NAME_WIDTH, state = STATUS_WIDTH;
    bool kept = false;
    for (int64_t i = 0; i < count; i++) {
        name = wider(name, rows[i].id);
        state = wider(state, rows[i].status);
        kept = kept || *rows[i].kept;
    }
    cli_out(cli, "%-*s %-*s %7s %9s %9s %9s%s\n", name, "RUN", state, "STATUS", "STEP", "LOSS",
            "EVAL", "TOKENS/S", kept ? "  CHECKPOINTS" : "");
    for (int64_t i = 0; i < count; i++) {
        const struct row *r = &rows[i];
        bool good = strcmp(r->status, "done") == 0 || strcmp(r->status, "time_limit") == 0;
        bool live = strncmp(r->status, "running", 7) == 0;
        cli_out(cli, "%s%*s %s%s%s%*s %7s %9s %9s %9s%s%s%s\n", r->id, fill(r->id, name), "",
                cli_style(cli, good ? "green" : live ? "yellow" : "red"), r->status,
                cli_style(cli, NULL), fill(r->status, state), "", r->steps, r->loss, r->eval,
                r->speed, *r->kept ? "  " : "", r->kept,
                r->verified ? "" : "  " RUN_NOT_VERIFIED);
        if (!strcmp(r->status, LEFT_OPEN))
            cli_note(cli, "%s was left open by another user or on another host: `fp8lab close` "
                     "bundles it", r->id);
    }
}

static json_t *row_json(const struct run_view *v) {
    char status[128], host[HOST_NAME_CAP];
    status_text(v, host, status);
    return json_pack("{s:o, s:s, s:b, s:o, s:O, s:O?}", "path", json_from_text(v->path), "identity",
                     v->identity, "verified", v->verified, "host",
                     *host ? json_from_text(host) : json_null(), "run", v->run, "summary",
                     v->summary);
}

/* *last becomes the index of the newest run that can be read; -1: none can. */
static int list_runs(const struct cli *cli, const struct tree *runs, int64_t *last) {
    json_t *list = json_array();
    struct row *rows = calloc((size_t)runs->count + 1, sizeof *rows);
    bool failed = !rows;
    int code = EXIT_OK;
    int64_t count = 0;
    *last = -1;
    for (int64_t i = 0; rows && i < runs->count; i++) {
        struct run_view view;
        struct err e = { 0 };
        if (run_view_load(runs->file[i].path, RUN_VIEW_BRIEF, &view, &e) != OK) {
            cli_warn(cli, "%s", e.text); /* one bad bundle does not hide the others */
            code = exit_code_of(e.code);
            continue;
        }
        if (cli->json) json_append(list, row_json(&view), &failed);
        else make_row(&view, &rows[count++]);
        *last = i;
        run_view_free(&view);
    }
    if (cli->json) {
        json_t *object = json_pack("{s:s, s:O}", "schema", "fp8lab.list/1", "runs",
                                   failed ? NULL : list);
        cli_out_json(cli, object);
        json_decref(object);
    } else if (failed) {
        struct err e;
        (void)FAIL(&e, ERR_MEMORY, "a list of %lld runs", (long long)runs->count);
        code = cli_fail(cli, &e);
    } else if (runs->count) {
        print_rows(cli, rows, count);
    }
    json_decref(list);
    free(rows);
    return code;
}

/* ---- the next command ---------------------------------------------------------------------- */

/* Whether the two runs are worth comparing: they differ only in recipe or seed, or in nothing. */
static bool comparable(const struct run_view *a, const struct run_view *b) {
    json_t *others = NULL;
    struct err ignored;
    if (!a->resolved || !b->resolved) return false;
    if (compare_other_factors(a, b, true, &others, &ignored) != OK) return false;
    bool same = json_array_size(others) == 0;
    json_decref(others);
    return same;
}

static bool is_fp8(const struct run_view *v) {
    return compare_is_fp8(json_object_get(v->resolved, "recipe"));
}

/* Suggests a comparison of the newest run with one of the few before it. For an FP8 run this is a
 * BF16 run if there is one, otherwise the newest. BF16 comes first on the command line. Without a
 * match, suggests `show`. */
static void suggest(const struct cli *cli, const struct tree *runs, int64_t last) {
    struct run_view newest, other;
    struct err ignored;
    const char *path = runs->file[last].path, *with = NULL;
    if (cli->json || cli->quiet || run_view_load(path, RUN_VIEW_FULL, &newest, &ignored) != OK)
        return;
    bool fp8 = is_fp8(&newest), turned = false, found = false;
    for (int64_t i = last - 1; i >= 0 && i >= last - CANDIDATES_MAX && !found; i--) {
        if (run_view_load(runs->file[i].path, RUN_VIEW_FULL, &other, &ignored) != OK) continue;
        bool good = comparable(&newest, &other);
        found = good && fp8 && !is_fp8(&other);
        if (good && (!with || found)) {
            with = runs->file[i].path;
            turned = !fp8 && is_fp8(&other);
        }
        run_view_free(&other);
    }
    run_view_free(&newest);
    if (!with) cli_next(cli, "show", path, NULL);
    else cli_next(cli, "compare", turned ? path : with, turned ? with : path, NULL);
}

/* Older programs left directories without run.json, which are not in the list. */
static void note_leftovers(const struct cli *cli, const char *dir) {
    struct dirent **entries;
    int count = scandir(dir, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char path[PATH_CAP];
        struct err e = { 0 };
        if (path_join(path, dir, entries[i]->d_name, &e) == OK &&
            run_dir_check_leftover(path, &e) != OK)
            cli_note(cli, "%s", e.text);
        free(entries[i]);
    }
    if (count >= 0) free(entries);
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
    int64_t last;
    int code = list_runs(cli, &runs, &last);
    if (runs.count == 0) cli_note(cli, "no runs in %s", dir);
    note_leftovers(cli, dir);
    if (last < 0) cli_next(cli, "run", "experiments/quickstart.lua", NULL);
    else suggest(cli, &runs, last);
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
