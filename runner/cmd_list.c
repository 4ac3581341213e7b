/* fp8lab list: the runs of a directory, one line each. */
#include <dirent.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model/checkpoint_files.h"
#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/json_number.h"
#include "runner/base/plain_text.h"
#include "runner/base/shell_word.h"
#include "runner/bundle/kept.h"
#include "runner/bundle/run_notes.h"
#include "runner/bundle/run_view.h"
#include "runner/commands.h"
#include "runner/compare/compare.h"
#include "runner/first_run.h"
#include "runner/list_filter.h"
#include "runner/plan/options.h"
#include "runner/record/run_dir.h"
#include "runner/record/run_lock.h"
#include "runner/run/close.h"
#include "runner/run/run_status.h"
#include "runner/runs_folder.h"

enum { NAME_WIDTH = 30, STATUS_WIDTH = 11, CANDIDATES_MAX = 8 };

/* The contents of one line; texts are ready for a terminal. */
struct row {
    char id[128], status[128], steps[32], loss[32], eval[32], speed[32];
    char kept[64];  /* "last 500, best 300"; "": no checkpoint */
    char tags[128]; /* "": none */
    struct list_facts facts;
    bool verified, live;
    bool stopped;         /* it was interrupted or killed, and may go on */
    int64_t resumes_from; /* the step of its checkpoint, of a run that is stopped; 0: none */
    double key;     /* to sort by; NaN: by `word` */
    char word[128];
    int64_t place;  /* among the runs of the folder */
    json_t *json;   /* owned; NULL without --json */
};

static const char LEFT_OPEN[] = "left open";

/* The status of a run. A run that appears to run on another host has its name in `host`, "" for all
 * others. A run that says "running" without a live writer was left open; with one it is *live.
 * Foreign text, to be printed as PLAIN(). */
static void status_text(const struct run_view *v, char host[HOST_NAME_CAP], char out[128],
                        bool *live) {
    struct run_writer writer;
    const char *status = json_text(v->run, "status", "?");
    bool open = !strcmp(status, "running") && v->directory;
    enum run_life life = open ? run_lock_look(v->path, &writer) : RUN_LIFE_NONE;
    bool other = life != RUN_LIFE_NONE && writer.elsewhere;
    *live = open && life != RUN_LIFE_NONE;
    if (open && !*live) status = LEFT_OPEN;
    snprintf(host, HOST_NAME_CAP, "%s", other ? writer.host : "");
    snprintf(out, 128, "%.32s%s%s", status, *host ? " on " : "", host);
}

static void number_text(const json_t *value, const char *format, char out[32]) {
    if (json_is_number(value)) snprintf(out, 32, format, json_number_value(value));
    else snprintf(out, 32, "-");
}

/* Whether the step was kept beside the bundle, and is not there: it was removed, or the bundle was
 * copied without it. */
static bool is_gone(const struct run_view *v, int64_t step) {
    char folder[PATH_CAP], path[PATH_CAP];
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(v->run, "kept"), i, row)
        if (json_int(row, "step") == step && !strcmp(json_text(row, "where", ""), "beside") &&
            kept_folder(folder, v->path, NULL) == OK &&
            checkpoint_path(path, folder, step, NULL) == OK)
            return !path_is_directory(path);
    return false;
}

/* The checkpoints that are kept beside the bundle or in it. */
static void kept_steps(const struct run_view *v, char out[64]) {
    static const char *const AS[] = { "last", "best" };
    int used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < sizeof AS / sizeof *AS; i++) {
        int64_t step = kept_step(v->run, AS[i]);
        if (step >= 0 && used < 64)
            used += snprintf(out + used, (size_t)(64 - used), "%s%s %" PRId64 "%s",
                             used ? ", " : "", AS[i], step, is_gone(v, step) ? " (gone)" : "");
    }
}

static void tags_text(const json_t *notes, char out[128]) {
    char *tags = run_notes_tags(notes);
    snprintf(out, 128, "%s", tags ? tags : "");
    free(tags);
}

static void make_row(const struct run_view *v, const json_t *notes, const char *status,
                     struct row *row) {
    struct list_facts *facts = &row->facts;
    plain_copy(row->id, sizeof row->id, json_text(v->run, "id", "?"));
    plain_copy(row->status, sizeof row->status, status);
    char *const foreign[] = { facts->recipe, facts->model, facts->device, facts->date };
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) plain_text(foreign[i]);
    tags_text(notes, row->tags);
    row->verified = v->verified;
    row->stopped = (!strcmp(status, "interrupted") || !strcmp(status, "killed")) &&
                   !run_is_beginning(v->run);
    row->resumes_from = json_int(v->run, "checkpoint_step");
    kept_steps(v, row->kept);
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
    int name = NAME_WIDTH, state = STATUS_WIDTH, recipe = 6, model = 5, device = 6;
    bool kept = false, tags = false;
    for (int64_t i = 0; i < count; i++) {
        name = wider(name, rows[i].id);
        state = wider(state, rows[i].status);
        recipe = wider(recipe, rows[i].facts.recipe);
        model = wider(model, rows[i].facts.model);
        device = wider(device, rows[i].facts.device);
        kept = kept || *rows[i].kept;
        tags = tags || *rows[i].tags;
    }
    cli_out(cli, "%-*s %-*s %-16s %-*s %-*s %-*s %7s %9s %9s %9s%s%s\n", name, "RUN", state,
            "STATUS", "DATE", recipe, "RECIPE", model, "MODEL", device, "DEVICE", "STEP", "LOSS",
            "EVAL", "TOKENS/S", tags ? "  TAGS" : "", kept ? "  CHECKPOINTS" : "");
    for (int64_t i = 0; i < count; i++) {
        const struct row *r = &rows[i];
        bool good = strcmp(r->status, "done") == 0 || strcmp(r->status, "time_limit") == 0;
        bool live = strncmp(r->status, "running", 7) == 0;
        cli_out(cli, "%s%*s %s%s%s%*s %-16s", r->id, fill(r->id, name), "",
                cli_style(cli, good ? "green" : live ? "yellow" : "red"), r->status,
                cli_style(cli, NULL), fill(r->status, state), "", r->facts.date);
        cli_out(cli, " %s%*s %s%*s %s%*s", r->facts.recipe, fill(r->facts.recipe, recipe), "",
                r->facts.model, fill(r->facts.model, model), "", r->facts.device,
                fill(r->facts.device, device), "");
        cli_out(cli, " %7s %9s %9s %9s%s%s%s%s%s\n", r->steps, r->loss, r->eval, r->speed,
                tags ? "  " : "", tags ? *r->tags ? r->tags : "-" : "", *r->kept ? "  " : "",
                r->kept, r->live ? "  " RUN_NOT_PACKED : r->verified ? "" : "  " RUN_NOT_VERIFIED);
        if (!strcmp(r->status, LEFT_OPEN))
            cli_note(cli, "%s was left open by another user or on another host: `fp8lab close` "
                     "bundles it", r->id);
    }
}

/* How the newest of the listed runs that were interrupted goes on. */
static void note_stopped(const struct cli *cli, const struct tree *runs, const struct row *rows,
                         int64_t count) {
    const struct row *newest = NULL;
    int64_t stopped = 0;
    char others[96] = "", *path = NULL;
    for (int64_t i = 0; i < count; i++) {
        if (!rows[i].stopped) continue;
        if (!newest || rows[i].place > newest->place) newest = &rows[i];
        stopped++;
    }
    if (!newest) return;
    if (stopped > 1)
        snprintf(others, sizeof others, "; %" PRId64 " other run%s interrupted too: `fp8lab show "
                 "RUN` says how one continues", stopped - 1, stopped > 2 ? "s were" : " was");
    if (newest->resumes_from > 0) path = shell_word(runs->file[newest->place].path);
    if (newest->resumes_from > 0)
        cli_note(cli, "%s was interrupted: `fp8lab run --resume %s` continues it from step %" PRId64
                 "%s", newest->id, path ? path : "RUN", newest->resumes_from, others);
    else
        cli_note(cli, "%s was interrupted without a checkpoint: `fp8lab run` of its script begins "
                 "it again%s", newest->id, others);
    free(path);
}

static json_t *row_json(const struct run_view *v, const struct row *row, const json_t *notes,
                        const char *host) {
    return json_pack("{s:o, s:s, s:b, s:o, s:O, s:O?, s:o, s:o, s:o, s:O, s:O}", "path",
                     json_from_text(v->path), "identity", v->identity, "verified", v->verified,
                     "host", *host ? json_from_text(host) : json_null(), "run", v->run, "summary",
                     v->summary, "recipe", json_from_text(row->facts.recipe), "model",
                     json_from_text(row->facts.model), "device",
                     json_from_text(row->facts.device), "tags", json_object_get(notes, "tags"),
                     "note", json_object_get(notes, "note"));
}

/* ---- order --------------------------------------------------------------------------------- */

/* The keys of --sort; summary NULL: by a word. */
static const struct { const char *name, *summary; } KEYS[] = {
    { "date", NULL }, { "name", NULL }, { "status", NULL }, { "recipe", NULL },
    { "model", NULL }, { "device", NULL }, { "step", "step_last" }, { "loss", "loss_final" },
    { "eval", "eval_loss_final" }, { "speed", "tokens_per_s_median" },
};
enum { KEY_COUNT = sizeof KEYS / sizeof *KEYS };

static enum status read_sort(const struct cli *cli, size_t *key, struct err *e) {
    const char *given = cli_value(cli, "sort");
    *key = 0;
    while (given && *key < KEY_COUNT && strcmp(KEYS[*key].name, given) != 0) ++*key;
    if (*key < KEY_COUNT) return OK;
    return FAIL(e, ERR_ARG, "--sort: found '%.40s'; the columns are date, name, status, recipe, "
                "model, device, step, loss, eval and speed", given);
}

static void set_key(const struct run_view *v, size_t key, struct row *row) {
    const char *words[] = { row->facts.date, json_text(v->run, "name", ""), row->status,
                            row->facts.recipe, row->facts.model, row->facts.device };
    const json_t *value = KEYS[key].summary ? json_object_get(v->summary, KEYS[key].summary) : NULL;
    row->key = json_double(value);
    snprintf(row->word, sizeof row->word, "%s", KEYS[key].summary ? "" : words[key]);
}

/* By number, runs without one last; then by word; then as in the folder, by time. */
static int by_key(const void *a, const void *b) {
    const struct row *x = a, *y = b;
    if (isnan(x->key) != isnan(y->key)) return isnan(x->key) ? 1 : -1;
    if (x->key != y->key && !isnan(x->key)) return x->key < y->key ? -1 : 1;
    int words = strcmp(x->word, y->word);
    return words ? words : (x->place > y->place) - (x->place < y->place);
}

static void turn_round(struct row *rows, int64_t count) {
    for (int64_t i = 0; i < count / 2; i++) {
        struct row held = rows[i];
        rows[i] = rows[count - 1 - i];
        rows[count - 1 - i] = held;
    }
}

/* ---- the list ------------------------------------------------------------------------------ */

struct listing {
    const struct cli *cli;
    struct list_filter filter;
    size_t key;
    struct row *rows; /* owned */
    int64_t count;
    int code;
    bool failed;
};

/* All JSON of the run; if that is damaged, run and summary alone, with a warning. */
static enum status load_run(const struct cli *cli, const char *path, struct run_view *out,
                            struct err *e) {
    struct err brief;
    if (run_view_load(path, RUN_VIEW_DOCUMENTS, out, e) == OK) return OK;
    if (run_view_load(path, RUN_VIEW_BRIEF, out, &brief) != OK) return e->code;
    cli_warn(cli, "%s", e->text);
    return OK;
}

static void add_run(struct listing *l, const char *path, int64_t place) {
    struct run_view view;
    struct err e = { 0 };
    json_t *notes = NULL;
    char host[HOST_NAME_CAP], status[128];
    struct row *row = &l->rows[l->count];
    if (load_run(l->cli, path, &view, &e) != OK) {
        cli_warn(l->cli, "%s", e.text); /* one bad bundle does not hide the others */
        l->code = exit_code_of(e.code);
        return;
    }
    if (run_notes_read(path, &notes, &e) != OK) cli_warn(l->cli, "%s", plain_text(e.text));
    status_text(&view, host, status, &row->live);
    list_facts_of(&view, &row->facts);
    if (list_filter_takes(&l->filter, &view, &row->facts, status, notes)) {
        if (l->cli->json) row->json = row_json(&view, row, notes, host);
        l->failed = l->failed || (l->cli->json && !row->json);
        make_row(&view, notes, status, row);
        set_key(&view, l->key, row);
        row->place = place;
        l->count++;
    }
    json_decref(notes);
    run_view_free(&view);
}

static void print_json(const struct listing *l) {
    json_t *list = json_array();
    bool failed = l->failed;
    for (int64_t i = 0; i < l->count; i++)
        json_append(list, l->rows[i].json ? json_incref(l->rows[i].json) : NULL, &failed);
    json_t *object = json_pack("{s:s, s:o}", "schema", "fp8lab.list/1", "runs",
                               json_whole(list, failed));
    cli_out_json(l->cli, object);
    json_decref(object);
}

/* Other commands find a run by its file's name first. If that is not its id, the bundle was renamed
 * or copied, and another file may have the id: then prints the path. */
static void print_ids(const struct listing *l, const struct tree *runs) {
    for (int64_t i = 0; i < l->count; i++) {
        const char *path = runs->file[l->rows[i].place].path;
        char stem[PATH_CAP], base[PATH_CAP];
        run_stem(stem, path);
        path_base(base, stem);
        cli_out(l->cli, "%s\n", strcmp(base, l->rows[i].id) ? PLAIN(path) : l->rows[i].id);
    }
}

/* *last becomes the index of the newest run that is listed; -1: none is. */
static int list_runs(struct listing *l, const struct tree *runs, int64_t *last) {
    l->rows = calloc((size_t)runs->count + 1, sizeof *l->rows);
    l->failed = !l->rows;
    *last = -1;
    for (int64_t i = 0; l->rows && i < runs->count; i++) add_run(l, runs->file[i].path, i);
    if (l->count) *last = l->rows[l->count - 1].place;
    if (l->count && cli_has(l->cli, "sort"))
        qsort(l->rows, (size_t)l->count, sizeof *l->rows, by_key);
    if (cli_has(l->cli, "reverse")) turn_round(l->rows, l->count);
    if (l->cli->json) {
        print_json(l);
    } else if (l->failed) {
        struct err e;
        (void)FAIL(&e, ERR_MEMORY, "a list of %lld runs", (long long)runs->count);
        l->code = cli_fail(l->cli, &e);
    } else if (cli_has(l->cli, "ids")) {
        print_ids(l, runs);
    } else if (l->count) {
        print_rows(l->cli, l->rows, l->count);
        note_stopped(l->cli, runs, l->rows, l->count);
    }
    for (int64_t i = 0; i < l->count; i++) json_decref(l->rows[i].json);
    free(l->rows);
    return l->code;
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
    return options_recipe_is_fp8(json_object_get(v->resolved, "recipe"));
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

/* Says so, and what the folder is if it has the checkpoints of a run. */
static void note_no_runs(const struct cli *cli, const char *dir) {
    char path[PATH_CAP];
    struct err e = { 0 };
    cli_note(cli, "no runs in %s", dir);
    if (path_is_directory(dir) && run_locate(dir, dir, path, &e) != OK) cli_note(cli, "%s", e.text);
}

/* Whether a pattern is given and has no special character. */
static bool is_word(const char *pattern) { return pattern && !strpbrk(pattern, "*?["); }

static int cmd_list(const struct cli *cli) {
    const char *dir;
    struct tree runs;
    struct err e = { 0 };
    struct listing l = { .cli = cli };
    enum status st = runs_folder(cli, &dir, &e);
    if (st == OK) st = list_filter_read(cli, (int64_t)time(NULL), &l.filter, &e);
    if (st == OK) st = read_sort(cli, &l.key, &e);
    if (st != OK) return cli_fail(cli, &e);
    close_dead_runs(cli, dir);
    st = runs_folder_is_given(cli) && !path_is_directory(dir)
                         ? FAIL(&e, ERR_ARG, "%s is not a directory", dir)
                         : run_list(dir, &runs, &e);
    if (st != OK) return cli_fail(cli, &e);
    int64_t last;
    int code = list_runs(&l, &runs, &last);
    if (runs.count == 0) note_no_runs(cli, dir);
    else if (l.count == 0 && code == EXIT_OK)
        cli_note(cli, "none of the %lld runs in %s matches%s", (long long)runs.count, dir,
                 is_word(cli_value(cli, "name")) || is_word(cli_value(cli, "recipe"))
                     ? "; a pattern is of the whole name: '*WORD*' finds a part" : "");
    note_leftovers(cli, dir);
    if (runs.count == 0 || (last < 0 && code != EXIT_OK))
        first_run_next(cli);
    else if (last >= 0 && !cli_has(cli, "ids")) suggest(cli, &runs, last);
    tree_free(&runs);
    return code;
}

static const struct flag FLAGS[] = {
    LIST_FILTER_FLAGS,
    { "sort", "COLUMN", "by date, name, recipe, model, device, step, loss, eval...", false },
    { "reverse", NULL, "the last line first", false },
    { "ids", NULL, "ids alone, for other commands; of a renamed run its path", false },
    RUNS_FLAG,
};

const struct verb VERB_LIST = {
    .name = "list",
    .arguments = "[DIR]",
    .about = "the runs in a directory (default: runs)",
    .more = "GLOB as in a shell: --recipe 'fp8.*', --name 'gpt2-*'. MODEL: layers x width.\n",
    VERB_FLAGS(FLAGS),
    .args_min = 0,
    .args_max = 1,
    .run = cmd_list,
};
