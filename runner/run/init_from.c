#include "runner/run/init_from.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/checkpoint.h"
#include "model/params.h"
#include "runner/base/plain_text.h"
#include "runner/base/run_files.h"
#include "runner/bundle/kept.h"
#include "runner/bundle/run_view.h"
#include "runner/bundle/unpack.h"
#include "runner/plan/options.h"
#include "runner/record/documents.h"
#include "runner/record/init_record.h"
#include "runner/weights/weights.h"

static bool has(const char *folder, const char *name) {
    char path[PATH_CAP];
    return path_join(path, folder, name, NULL) == OK && path_exists(path);
}

/* ---- a run ------------------------------------------------------------------------------------*/

enum { NEWEST = -1 };

/* Whether a checkpoint is the wanted one; of several, the newest. */
static bool is_wanted(int64_t step, int64_t wanted, int64_t found) {
    return wanted == NEWEST ? step > found : step == wanted;
}

/* The checkpoint `wanted` that the run kept beside its bundle; step -1: none. */
static enum status find_kept(const char *bundle, const struct run_view *view, int64_t wanted,
                             struct found_weights *out, struct err *e) {
    char folder[PATH_CAP], step[CHECKPOINT_PATH_CAP];
    const json_t *row;
    size_t i;
    TRY(kept_folder(folder, bundle, e));
    json_array_foreach(json_object_get(view->run, "kept"), i, row) {
        bool there = false;
        if (!is_wanted(json_int(row, "step"), wanted, out->step)) continue;
        TRY(kept_verify(bundle, row, &there, e));
        if (!there) continue;
        out->step = json_int(row, "step");
        TRY(checkpoint_path(step, folder, out->step, e));
        snprintf(out->path, sizeof out->path, "%s", step);
    }
    return OK;
}

/* The checkpoint `wanted` with weights in the bundle; -1: none. */
static int64_t step_packed(const struct run_view *view, int64_t wanted) {
    int64_t found = -1;
    const json_t *item;
    size_t i;
    json_array_foreach(view->checkpoints, i, item) {
        int64_t step = 0;
        int end = 0;
        const char *name = json_string_value(item);
        if (sscanf(name, "step-%" SCNd64 "/" CHECKPOINT_MODEL "%n", &step, &end) == 1 && end &&
            !name[end] && is_wanted(step, wanted, found))
            found = step;
    }
    return found;
}

/* Unpacks the weights that only the bundle has: the workers read files. */
static enum status find_packed(const struct init_request *q, const char *bundle,
                               const struct run_view *view, int64_t wanted,
                               struct found_weights *out, struct err *e) {
    char head[CHECKPOINT_PATH_CAP], folder[PATH_CAP], name[256];
    const char *const heads[] = { head, NULL };
    struct unpack_report report;
    int64_t step = step_packed(view, wanted);
    if (step < 0) return OK;
    if (!q->cache)
        return FAIL(e, ERR_CONFIG, "the weights of %s are in its bundle alone, and are unpacked by "
                    "`fp8lab run` only", out->run);
    TRY(checkpoint_path(head, RUN_PATH_checkpoints, step, e));
    snprintf(name, sizeof name, "%s.weights", out->run);
    TRY(path_join(folder, q->cache, name, e));
    TRY(path_join(out->path, folder, head, e));
    if (!has(out->path, CHECKPOINT_JSON)) {
        TRY(directory_make(q->cache, e));
        TRY(tree_remove(folder, e)); /* of a command that was killed */
        TRY(bundle_unpack_part(bundle, folder, heads, &BUNDLE_LIMITS, &report, e));
    }
    out->step = step;
    return OK;
}

/* There are no such weights: lists what was kept. */
static enum status refuse_which(const char *which, const struct run_view *view, const char *run,
                                struct err *e) {
    char list[400] = "none", one[64];
    const json_t *row;
    size_t i, n = 0;
    json_array_foreach(json_object_get(view->run, "kept"), i, row) {
        kept_text(row, one);
        if (n < sizeof list - sizeof one - 2)
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", PLAIN(one));
    }
    return FAIL(e, ERR_CONFIG, "%s has no checkpoint '%.40s' here; expected last, best, init or a "
                "step, and it kept %s", run, which, list);
}

/* The step that q->which names. */
static int64_t wanted_step(const struct init_request *q, const struct run_view *view) {
    char *end;
    if (!q->which) return NEWEST;
    int64_t step = strtoll(q->which, &end, 10);
    return *end || end == q->which ? kept_step(view->run, q->which) : step;
}

/* Why a run has no weights although its experiment keeps them. */
static const char *why_none(const json_t *run) {
    bool repeats = run_repeats(run);
    if (json_is_true(json_object_get(run, "smoke")))
        return "; this is a smoke run, which keeps none";
    return repeats ? "; this is a reproduction, which keeps none if it has fewer steps" : "";
}

/* Kept checkpoints that are not beside the bundle: it was copied without them, or renamed, or they
 * were removed. */
static enum status refuse_gone(const json_t *kept, const char *bundle, const char *run,
                               struct err *e) {
    char folder[PATH_CAP], newest[64];
    TRY(kept_folder(folder, bundle, e));
    kept_text(json_array_get(kept, json_array_size(kept) - 1), newest);
    return FAIL(e, ERR_CONFIG, "%s has no weights here: it kept %s, but %.400s is not there. Copy "
                "that folder beside the bundle, under this name", run, PLAIN(newest), folder);
}

enum status weights_of_run(const struct init_request *q, const char *path,
                           struct found_weights *out, struct err *e) {
    struct run_view view;
    *out = (struct found_weights){ .step = -1 };
    TRY(run_view_load(path, RUN_VIEW_FULL, &view, e));
    snprintf(out->run, sizeof out->run, "%s", json_text(view.run, "id", "?"));
    snprintf(out->of, sizeof out->of, "%s", path);
    int64_t wanted = wanted_step(q, &view);
    bool none = q->which && wanted < 0;
    enum status st = none ? OK : find_kept(path, &view, wanted, out, e);
    if (st == OK && !none && out->step < 0) st = find_packed(q, path, &view, wanted, out, e);
    if (st == OK && out->step < 0 && q->which) st = refuse_which(q->which, &view, out->run, e);
    bool open = view.directory && !view.verified;
    const char *why = why_none(view.run);
    const json_t *kept = json_object_get(view.run, "kept");
    if (st == OK && out->step < 0 && !open && json_array_size(kept))
        st = refuse_gone(kept, path, out->run, e);
    run_view_free(&view);
    if (st != OK || out->step >= 0) return st;
    if (open)
        return FAIL(e, ERR_CONFIG, "%s is not closed: it still runs, or was left open. Wait for "
                    "its end, or name one of its checkpoints: %.400s/%s/step-...", out->run, path,
                    RUN_PATH_checkpoints);
    return FAIL(e, ERR_CONFIG, "%s has no weights: a run keeps its last checkpoint if the "
                "experiment has checkpoint = { every = N } and keep is not 0, or archive = "
                "\"weights\"%s", out->run, why);
}

/* ---- any path ---------------------------------------------------------------------------------*/

static enum status find_newest(const char *parent, struct found_weights *out, struct err *e) {
    struct checkpoint_info info;
    TRY(checkpoint_latest(parent, NULL, &info, e));
    if (info.step < 0)
        return FAIL(e, ERR_CONFIG, "%s has no intact checkpoint%s%.300s", parent,
                    *info.damage ? ": " : "", info.damage);
    snprintf(out->path, sizeof out->path, "%s", info.path);
    return OK;
}

static bool is_bundle(const char *path) {
    size_t n = strlen(path);
    return n > 8 && !strcmp(path + n - 8, ".tar.zst");
}

/* Whether a folder has step-000100/ and the like, as RUN.checkpoints and data/checkpoints have.
 * Nothing is verified. */
static bool has_steps(const char *folder) {
    DIR *dir = opendir(folder);
    bool found = false;
    for (const struct dirent *d; dir && !found && (d = readdir(dir));)
        found = !strncmp(d->d_name, "step-", 5);
    if (dir) closedir(dir);
    return found;
}

static enum status path_below(char out[PATH_CAP], const char *root, const char *from,
                              struct err *e) {
    int n = snprintf(out, PATH_CAP, "%s%s%s", root ? root : "", root ? "/" : "", from);
    return n >= 0 && n < PATH_CAP ? OK : FAIL(e, ERR_ARG, "path too long: %.200s…", from);
}

enum status weights_find(const struct init_request *q, const char *from,
                         struct found_weights *out, struct err *e) {
    char full[PATH_CAP], run[PATH_CAP];
    *out = (struct found_weights){ 0 };
    TRY(path_below(full, q->data_root, from, e));
    if (!path_exists(full)) {
        TRY(run_locate_among(from, q->runs, RUNS_WHOLE, run, e));
        return weights_of_run(q, run, out, e);
    }
    if (is_bundle(full) || has(full, DOCUMENT_run)) return weights_of_run(q, full, out, e);
    if (q->which)
        return FAIL(e, ERR_ARG, "--checkpoint %.40s chooses among the checkpoints of a run; %s is "
                    "no run", q->which, from);
    bool weights = has(full, "config.json") || has(full, CHECKPOINT_JSON);
    if (!weights && path_is_directory(full) && has_steps(full)) return find_newest(full, out, e);
    memcpy(out->path, full, sizeof full);
    return OK;
}

/* Adds what to do if `init` names nothing here. */
static enum status refuse_absent(enum status code, const char *why, struct err *e) {
    char text[sizeof e->text];
    snprintf(text, sizeof text, "%s", why);
    return FAIL(e, code, "%s; --set init.from=PATH names other weights", text);
}

static void shape_text(const struct param *p, char out[64]) {
    if (p->cols) snprintf(out, 64, "[%" PRId64 ", %" PRId64 "]", p->rows, p->cols);
    else snprintf(out, 64, "[%" PRId64 "]", p->rows);
}

/* Whether the parameters of `a`, a run's model, are those of `b`, the experiment's. */
static enum status same_shapes(const struct params *a, const struct params *b, const char *run,
                               struct err *e) {
    char has[64], needs[64];
    for (int i = 0; i < b->count; i++) {
        const struct param *p = &b->param[i], *of = params_find(a, "%s", p->name);
        if (!of) return FAIL(e, ERR_CONFIG, "%.300s: its model has no tensor %s", run, p->name);
        shape_text(of, has);
        shape_text(p, needs);
        if (strcmp(has, needs) != 0)
            return FAIL(e, ERR_CONFIG, "%.300s: tensor %s is %s; the model needs %s", run, p->name,
                        has, needs);
    }
    for (int i = 0; i < a->count; i++)
        if (!params_find(b, "%s", a->param[i].name))
            return FAIL(e, ERR_CONFIG, "%.300s: the model has no tensor %s", run, a->param[i].name);
    return OK;
}

static enum status same_model(const struct model_config *a, const struct model_config *b,
                              const char *run, struct err *e) {
    const struct param_options o = { .act = DTYPE_BF16, .grad = DTYPE_F32 };
    struct params mine = { 0 }, theirs = { 0 };
    enum status st = params_init(&theirs, a, &o, e);
    if (st == OK) st = params_init(&mine, b, &o, e);
    if (st == OK) st = same_shapes(&theirs, &mine, run, e);
    params_destroy(&mine);
    params_destroy(&theirs);
    return st;
}

/* The model of a run, by its configuration alone: its weights may lie in an archive. What cannot be
 * read is an error when the weights are taken. */
static enum status look_at_run(const json_t *config, const char *run, struct err *e) {
    struct run_view view;
    struct run_options mine, theirs;
    struct err ignored;
    if (run_view_load(run, RUN_VIEW_DOCUMENTS, &view, &ignored) != OK) return OK;
    bool read = options_read(view.resolved, &theirs, &ignored) == OK;
    enum status st = read ? options_read(config, &mine, e) : OK;
    if (read && st == OK) {
        st = same_model(&theirs.model, &mine.model, run, e);
        options_free(&mine);
    }
    if (read) options_free(&theirs);
    run_view_free(&view);
    return st;
}

/* What is no path here may be a run's id. */
static enum status look_for_run(const json_t *config, const char *from, const char *runs,
                                struct err *e) {
    char run[PATH_CAP];
    struct err why;
    if (run_locate_among(from, runs, RUNS_WHOLE, run, &why) == OK)
        return look_at_run(config, run, e);
    return why.code == ERR_MEMORY ? FAIL(e, ERR_MEMORY, "%s", why.text)
                                  : refuse_absent(ERR_IO, why.text, e);
}

/* Looks at what has the path `at`. */
static enum status look_at(const json_t *config, const char *at, struct err *e) {
    struct run_options options;
    struct weights w;
    if (is_bundle(at) || has(at, DOCUMENT_run)) return look_at_run(config, at, e);
    bool weights = has(at, "config.json") || has(at, CHECKPOINT_JSON);
    if (!weights && path_is_directory(at) && has_steps(at)) return OK;
    TRY(options_read(config, &options, e));
    enum status st = weights_open(at, &options.model, &w, e);
    weights_close(&w);
    options_free(&options);
    return st;
}

enum status init_look(const json_t *config, const char *data_root, const char *runs,
                      struct err *e) {
    const char *from = json_text(json_object_get(config, "init"), "from", NULL);
    char at[PATH_CAP];
    if (!from) return OK;
    enum status st = path_below(at, data_root, from, e);
    if (st == OK)
        st = path_exists(at) ? look_at(config, at, e) : look_for_run(config, from, runs, e);
    if (st != OK) err_prefix(e, "init = \"%.200s\"", from);
    return st;
}

/* The steps of the run count those of its parent. */
static enum status check_steps(const struct init_request *q, const json_t *record,
                               struct err *e) {
    const json_t *optimizer = json_object_get(record, "optimizer");
    const json_t *init = json_object_get(q->config, "init");
    int64_t steps = json_int(json_object_get(q->config, "train"), "steps");
    int64_t done = json_int(optimizer, "step");
    if (!optimizer || json_is_true(json_object_get(init, "restart")) || done < steps) return OK;
    return FAIL(e, ERR_CONFIG, "the optimizer's state is of step %" PRId64 ", and train.steps is %"
                PRId64 ": no step is left; the steps count those of the parent, so write a larger "
                "number, or restart = true to begin at step 0", done, steps);
}

enum status init_take(const struct init_request *q, json_t **record, struct err *e) {
    const char *from = json_text(json_object_get(q->config, "init"), "from", NULL);
    struct run_options options;
    struct found_weights found;
    *record = NULL;
    if (!from) return OK;
    if (q->known) {
        *record = json_incref(q->known);
        return check_steps(q, q->known, e);
    }
    enum status st = weights_find(q, q->instead ? q->instead : from, &found, e);
    if (st == ERR_ARG && !q->instead) st = refuse_absent(st, e->text, e);
    char *absolute = st == OK ? realpath(found.path, NULL) : NULL;
    if (st == OK && !absolute)
        st = FAIL(e, ERR_CONFIG, "open %s: %s", found.path, strerror(errno));
    if (st == OK) st = options_read(q->config, &options, e);
    if (st == OK) {
        const struct init_origin origin = { from, absolute, *found.run ? found.run : NULL,
                                            found.step, options.init_optimizer };
        st = init_record_make(&origin, &options.model, record, e);
        options_free(&options);
    }
    if (st == OK) st = check_steps(q, *record, e);
    free(absolute);
    if (st != OK) err_prefix(e, "init = \"%.200s\"", from);
    return st;
}
