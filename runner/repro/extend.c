#include "runner/repro/extend.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/checkpoint.h"
#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/jsonl.h"
#include "runner/base/plain_text.h"
#include "runner/bundle/format.h"
#include "runner/bundle/kept.h"
#include "runner/bundle/unpack.h"
#include "runner/plan/options.h"
#include "runner/record/documents.h"
#include "runner/record/streams.h"
#include "runner/repro/repro_config.h"

/* Changing these keys changes no bit of a step that both runs make. */
static const char *const ALLOWED[] = { "train.steps", "train.time_limit", "train.audit", "eval",
                                       "sample", "checkpoint", "tensorboard", "trace",
                                       "fp8_error", "archive", "about", NULL };
/* These keys follow from the number of steps. */
static const char *const DERIVED[] = { "train.schedule.decay", "train.epochs", NULL };

static bool is_below(const char *key, size_t n, const char *const *heads) {
    for (int64_t i = 0; heads[i]; i++) {
        size_t head = strlen(heads[i]);
        if (n >= head && !strncmp(key, heads[i], head) &&
            (n == head || key[head] == '.' || key[head] == '_'))
            return true;
    }
    return false;
}

static const char *id_of(const struct extension *x) {
    return json_text(x->source.view.run, "id", "the run");
}

static int64_t steps_of(const json_t *config) {
    return json_int(json_object_get(config, "train"), "steps");
}

/* ---- the parent and its script --------------------------------------------------------------- */

static enum status check_parent(const struct extension *x, struct err *e) {
    const char *status = json_text(x->source.view.run, "status", "?");
    if (!strcmp(status, "done") || !strcmp(status, "time_limit")) return OK;
    if (!strcmp(status, "failed"))
        return FAIL(e, ERR_ARG, "%s failed: --extend needs a run that is done", id_of(x));
    return FAIL(e, ERR_ARG, "%s is %s: --extend needs a run that is done; --resume continues this "
                "one", id_of(x), status);
}

static enum status check_sets(const struct extension *x, const struct cli *cli, struct err *e) {
    for (int64_t i = 0; i < cli_count(cli, "set"); i++) {
        const char *text = cli_nth(cli, "set", i);
        if (!is_below(text, strcspn(text, "="), ALLOWED))
            return FAIL(e, ERR_ARG, "--set %s: --extend can change only train.steps, "
                        "train.time_limit, eval, checkpoint, trace, fp8_error, archive and about "
                        "of %s; for other keys, run the script from step 0", text, id_of(x));
    }
    return OK;
}

static enum status gather_overrides(struct extension *x, const struct cli *cli,
                                    const char ***texts, struct err *e) {
    const json_t *item;
    size_t i;
    int64_t n = 0;
    bool failed = false;
    x->overrides = json_array();
    json_array_foreach(x->source.overrides, i, item)
        json_append(x->overrides, json_incref((json_t *)item), &failed);
    for (int64_t k = 0; k < cli_count(cli, "set"); k++)
        json_append(x->overrides, json_from_text(cli_nth(cli, "set", k)), &failed);
    *texts = calloc(json_array_size(x->overrides) + 1, sizeof **texts);
    if (failed || !*texts) return FAIL(e, ERR_MEMORY, "overrides");
    json_array_foreach(x->overrides, i, item) (*texts)[n++] = json_string_value(item);
    return OK;
}

/* Keeps the script's row that the parent is a run of. */
static enum status keep_row(struct extension *x, struct err *e) {
    const char *name = json_text(x->source.view.run, "name", "");
    enum status st = resolution_keep(&x->resolution, &name, 1, e);
    if (st == OK && x->resolution.run_count != 1)
        st = FAIL(e, ERR_CONFIG, "%" PRId64 " rows of the script are called '%.80s'",
                  x->resolution.run_count, name);
    x->resolution.suite = false;
    return st;
}

static enum status resolve(struct extension *x, const struct cli *cli, struct err *e) {
    char script[PATH_CAP], lib[PATH_CAP];
    const char **texts = NULL;
    TRY(path_join(script, x->source.work, "bundle/data/experiment/main.lua", e));
    TRY(path_join(lib, x->source.work, "bundle/data/experiment/lib", e));
    enum status st = gather_overrides(x, cli, &texts, e);
    struct resolve_options options = {
        .path = script, .overrides = texts, .lib = lib,
        .override_count = (int64_t)json_array_size(x->overrides),
        .smoke = json_is_true(json_object_get(x->source.view.run, "smoke")), .stored_models = true,
        /* The files whose tokens the run has; they may be gone. */
        .data = { .known = x->source.sources },
    };
    if (st == OK) st = resolve_experiment(&options, &x->resolution, e);
    if (st == OK) st = keep_row(x, e);
    free(texts);
    return st;
}

/* Checks that the experiment is the same except for the allowed keys. */
static enum status check_config(const struct extension *x, struct err *e) {
    const json_t *item, *now = x->resolution.runs[0].config_json;
    size_t i;
    struct config_change change;
    enum status st = config_change_find(x->source.view.resolved, now, &change, e);
    json_array_foreach(change.changed, i, item) {
        const char *key = json_string_value(item);
        if (st != OK || is_below(key, strlen(key), ALLOWED) || is_below(key, strlen(key), DERIVED))
            continue;
        st = FAIL(e, ERR_CONFIG, "the script of %s resolves to another %s here than in its bundle: "
                  "its checkpoint belongs to another experiment", id_of(x), key);
    }
    config_change_free(&change);
    int64_t steps = steps_of(now), done = json_int(x->source.view.summary, "step_last");
    if (st == OK && steps <= done)
        st = FAIL(e, ERR_ARG, "%s has done %" PRId64 " steps, and train.steps is %" PRId64 ": set "
                  "a larger number, --set train.steps=N", id_of(x), done, steps);
    return st;
}

/* ---- its checkpoint -------------------------------------------------------------------------- */

static enum status no_checkpoint(const struct extension *x, struct err *e) {
    char folder[PATH_CAP];
    TRY(kept_folder(folder, x->source.bundle, e));
    bool named = json_array_size(json_object_get(x->source.view.run, "kept")) > 0;
    return FAIL(e, ERR_CONFIG, "%s has no checkpoint to continue from: %s%.400s%s; a run keeps its "
                "last one if the experiment has checkpoint = { every = N } and keep is not 0, or "
                "archive = \"full\"", id_of(x), named ? "" : "it kept none, and ", folder,
                named ? " is missing or incomplete" : " holds none");
}

/* Finds the newest kept checkpoint beside the bundle. *step 0: none. */
static enum status find_beside(const struct extension *x, char path[CHECKPOINT_PATH_CAP],
                               int64_t *step, struct err *e) {
    char folder[PATH_CAP];
    const json_t *row;
    size_t i;
    TRY(kept_folder(folder, x->source.bundle, e));
    json_array_foreach(json_object_get(x->source.view.run, "kept"), i, row) {
        bool there = false;
        if (json_int(row, "step") <= *step) continue;
        TRY(kept_verify(x->source.bundle, row, &there, e));
        if (there) *step = json_int(row, "step");
    }
    return *step ? checkpoint_path(path, folder, *step, e) : OK;
}

/* The newest checkpoint in the bundle with optimizer state; 0: none. */
static int64_t newest_packed(const struct extension *x) {
    int64_t newest = 0;
    const json_t *item;
    size_t i;
    json_array_foreach(x->source.view.checkpoints, i, item) {
        int64_t step = 0;
        int end = 0;
        const char *name = json_string_value(item);
        if (sscanf(name, "step-%" SCNd64 "/state.safetensors%n", &step, &end) == 1 && end &&
            !name[end] && step > newest)
            newest = step;
    }
    return newest;
}

/* Unpacks the newest packed checkpoint into the work folder. *step 0: none. */
static enum status find_packed(const struct extension *x, char path[CHECKPOINT_PATH_CAP],
                               int64_t *step, struct err *e) {
    char head[CHECKPOINT_PATH_CAP], dest[PATH_CAP];
    const char *const heads[] = { head, NULL };
    struct unpack_report report;
    struct checkpoint_info info;
    *step = newest_packed(x);
    if (!*step) return OK;
    TRY(checkpoint_path(head, RUN_PATH_checkpoints, *step, e));
    TRY(path_join(dest, x->source.work, "packed", e));
    TRY(bundle_unpack_part(x->source.bundle, dest, heads, &BUNDLE_LIMITS, &report, e));
    TRY(path_join(path, dest, head, e));
    return checkpoint_verify(path, &info, e);
}

/* Copies the newest checkpoint to where the new run looks for it. */
static enum status take_checkpoint(struct extension *x, struct err *e) {
    char from[CHECKPOINT_PATH_CAP], parent[PATH_CAP], to[CHECKPOINT_PATH_CAP];
    struct checkpoint_info info;
    int64_t step = 0;
    TRY(find_beside(x, from, &step, e));
    if (!step) TRY(find_packed(x, from, &step, e));
    if (!step) return no_checkpoint(x, e);
    TRY(path_join(parent, x->beginning.path, RUN_PATH_checkpoints, e));
    TRY(checkpoint_path(to, parent, step, e));
    TRY(kept_share(from, to, e));
    TRY(checkpoint_verify(to, &info, e));
    x->beginning.step = info.step;
    snprintf(x->beginning.checkpoint, sizeof x->beginning.checkpoint, "%s", info.sha256);
    if (info.step == step) return OK;
    return FAIL(e, ERR_VERIFY, "%s holds step %" PRId64, from, info.step);
}

/* Copies an earlier kept checkpoint, the parent's best, if it exists: it may stay the best of the
 * new run. */
static enum status take_best(struct extension *x, struct err *e) {
    char folder[PATH_CAP], parent[PATH_CAP];
    const json_t *row;
    size_t i;
    TRY(kept_folder(folder, x->source.bundle, e));
    TRY(path_join(parent, x->beginning.path, RUN_PATH_checkpoints, e));
    json_array_foreach(json_object_get(x->source.view.run, "kept"), i, row) {
        char from[CHECKPOINT_PATH_CAP], to[CHECKPOINT_PATH_CAP];
        bool there = false;
        int64_t step = json_int(row, "step");
        if (step >= x->beginning.step) continue;
        TRY(kept_verify(x->source.bundle, row, &there, e));
        if (!there) continue;
        TRY(checkpoint_path(from, folder, step, e));
        TRY(checkpoint_path(to, parent, step, e));
        TRY(kept_share(from, to, e));
    }
    return OK;
}

/* ---- its records ----------------------------------------------------------------------------- */

/* Unpacks the parent's records. The new run appends to them, so it has the records of all steps.
 * Records about the parent's machine are dropped. */
static enum status take_records(struct extension *x, struct err *e) {
    const char *const HEADS[] = { "data/metrics/", "data/fp8/",
                                  STREAMS[STREAM_TRACE].old_columns, NULL };
    const char *const left[] = { DOCUMENT_summary, STREAMS[STREAM_TELEMETRY].file,
                                 STREAMS[STREAM_RANKS].file };
    struct unpack_report report;
    char path[PATH_CAP];
    TRY(path_join(x->beginning.path, x->source.work, "beginning", e));
    TRY(bundle_unpack_part(x->source.bundle, x->beginning.path, HEADS, &BUNDLE_LIMITS, &report, e));
    TRY(format_continue(x->beginning.path, e));
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        TRY(path_join(path, x->beginning.path, left[i], e));
        TRY(tree_remove(path, e));
    }
    return OK;
}

/* Finds the steps whose learning rate differs from the new schedule's. */
static enum status compare_rates(struct extension *x, const struct run_options *run,
                                 struct err *e) {
    const struct train_options *t = &run->train;
    char path[PATH_CAP];
    struct jsonl lines;
    json_t *record = NULL;
    struct run_beginning *b = &x->beginning;
    TRY(path_join(path, b->path, STREAMS[STREAM_TRAIN].file, e));
    FILE *f = fopen(path, "re");
    if (!f) return FAIL(e, ERR_IO, "open %s: %s", path, strerror(errno));
    jsonl_open(&lines, f, path);
    enum status st;
    while ((st = jsonl_next(&lines, &record, e)) == OK && record) {
        int64_t step = json_int(record, "step");
        float then = (float)json_number_value(json_object_get(record, "lr"));
        float now = (float)schedule_lr(&t->schedule, t->optimizer.lr, step, t->steps);
        json_decref(record);
        if (step > b->step || then == now) continue;
        if (!b->rates_part) b->rates_part = step;
        b->rate_then = (double)then;
        b->rate_now = (double)now;
        b->rate_step = step;
    }
    jsonl_close(&lines);
    fclose(f);
    return st;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static enum status describe(struct extension *x, struct err *e) {
    struct run_beginning *b = &x->beginning;
    struct run_options run;
    TRY(options_read(x->resolution.runs[0].config_json, &run, e));
    x->steps = run.train.steps;
    enum status st = compare_rates(x, &run, e);
    options_free(&run);
    if (st != OK) return st;
    b->attempts = json_object_get(x->source.view.run, "attempts");
    b->extends = json_pack("{s:s,s:I,s:I,s:s,s:o}", "run", id_of(x), "step", (json_int_t)b->step,
                           "steps", (json_int_t)steps_of(x->source.view.resolved),
                           "checkpoint_sha256", b->checkpoint, "rates_part",
                           b->rates_part ? json_integer(b->rates_part) : json_null());
    return b->extends ? OK : FAIL(e, ERR_MEMORY, "run record");
}

enum status extension_open(const struct cli *cli, const char *text, const char *runs,
                           struct extension *out, struct err *e) {
    *out = (struct extension){ 0 };
    enum status st = repro_open(text, runs, &out->source, e);
    if (st == OK) st = check_parent(out, e);
    if (st == OK) st = check_sets(out, cli, e);
    if (st == OK) st = resolve(out, cli, e);
    if (st == OK) st = check_config(out, e);
    if (st == OK) st = take_records(out, e);
    if (st == OK) st = take_checkpoint(out, e);
    if (st == OK) st = take_best(out, e);
    if (st == OK) st = describe(out, e);
    if (st != OK && e) plain_text(e->text); /* the text may quote the bundle */
    return st;
}

void extension_close(struct extension *x) {
    json_decref(x->beginning.extends);
    json_decref(x->overrides);
    resolution_destroy(&x->resolution);
    repro_close(&x->source);
    *x = (struct extension){ 0 };
}

enum status extension_inputs(const struct extension *x, const struct cli *cli, struct inputs *in,
                             struct err *e) {
    const json_t *then = json_object_get(x->source.view.run, "inputs");
    const char *data = json_text(then, "data", "?"), *code = json_text(then, "code", "?");
    if (strcmp(data, in->data) != 0)
        return FAIL(e, ERR_CONFIG, "the data are not those of %s: their hash is %.12s, its %.12s",
                    id_of(x), in->data, data);
    if (strcmp(code, in->code) != 0)
        cli_warn(cli, "this program's sources (%.12s) differ from those of %s (%.12s): the bits "
                 "may differ from those of one longer run", in->code, id_of(x), code);
    TRY(inputs_begin_with(in, json_text(then, "weights", ""), e));
    return inputs_extend(in, x->beginning.checkpoint, e);
}

void extension_say(const struct extension *x, const struct cli *cli) {
    const struct run_beginning *b = &x->beginning;
    int64_t steps = x->steps;
    cli_note(cli, "extending %s from its checkpoint of step %" PRId64 " to step %" PRId64, id_of(x),
             b->step, steps);
    if (!b->rates_part) {
        cli_note(cli, "its learning rates up to there are those of the schedule over %" PRId64
                 " steps", steps);
        return;
    }
    cli_warn(cli, "its learning rates differ from the schedule over %" PRId64 " steps from step %"
             PRId64 " on: at step %" PRId64 " it used %.6g, the schedule has %.6g. From step %"
             PRId64 " on, the schedule over %" PRId64 " steps applies. One run of %" PRId64
             " steps has other results", steps, b->rates_part, b->rate_step, b->rate_then,
             b->rate_now, b->step + 1, steps, steps);
}
