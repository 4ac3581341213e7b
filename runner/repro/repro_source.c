#include "runner/repro/repro_source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"
#include "runner/bundle/unpack.h"
#include "runner/cache/cache.h"
#include "runner/cache/eval_sets.h"
#include "runner/record/documents.h"

/* The parts of a bundle that are unpacked. */
static const char *const TAKEN[] = { "data/experiment/", RUN_PATH_choices,
                                     RUN_PATH_dirty_patch, NULL };

static enum status make_work(const char *parent, struct repro_source *s, struct err *e) {
    char path[PATH_CAP];
    TRY(directory_make(parent, e));
    TRY(path_join(path, parent, ".repro-XXXXXX", e)); /* the dot hides it from lists of runs */
    if (!mkdtemp(path)) return FAIL(e, ERR_IO, "make a folder in %s: %s", parent, strerror(errno));
    memcpy(s->work, path, sizeof path);
    return OK;
}

static enum status unpack(struct repro_source *s, struct err *e) {
    struct unpack_report report;
    char taken[PATH_CAP];
    TRY(path_join(taken, s->work, "bundle", e));
    TRY(path_join(s->script, taken, "data/experiment/main.lua", e));
    TRY(path_join(s->lib, taken, "data/experiment/lib", e));
    TRY(bundle_unpack_part(s->bundle, taken, TAKEN, &BUNDLE_LIMITS, &report, e));
    memcpy(s->identity, report.identity, sizeof s->identity);
    TRY(path_join(s->choices, taken, RUN_PATH_choices, e));
    if (!path_exists(s->choices)) s->choices[0] = '\0';
    TRY(path_join(s->patch, taken, RUN_PATH_dirty_patch, e));
    if (!path_exists(s->patch)) s->patch[0] = '\0';
    char path[PATH_CAP];
    TRY(path_join(path, taken, RUN_PATH_data_files, e));
    return path_exists(path) ? json_file_read(path, &s->data_files, e) : OK;
}

/* ---- the script ------------------------------------------------------------------------------ */

/* The --set texts that the bundle records; an array of owned pointers into its JSON. */
static enum status read_overrides(struct repro_source *s, const char ***out, struct err *e) {
    s->overrides = json_object_get(s->view.argv, "overrides");
    size_t n = json_array_size(s->overrides);
    const char **texts = calloc(n + 1, sizeof *texts);
    *out = texts;
    if (!texts) return FAIL(e, ERR_MEMORY, "%zu overrides", n);
    for (size_t i = 0; i < n; i++) {
        texts[i] = json_string_value(json_array_get(s->overrides, i));
        if (!texts[i]) return FAIL(e, ERR_FORMAT, "argv.json: an override is not a text");
    }
    return json_is_array(s->overrides) ? OK : FAIL(e, ERR_FORMAT, "argv.json lists no overrides");
}

/* The row that the bundle is a run of: the one with its configuration, otherwise the one with its
 * matrix cell's name. */
static enum status choose_run(struct repro_source *s, struct err *e) {
    const struct resolution *r = &s->resolution;
    const json_t *cell = json_object_get(s->view.argv, "cell");
    const char *name = json_text(s->view.run, "name", "");
    for (int64_t i = 0; i < r->run_count; i++)
        if (json_equal(r->runs[i].config_json, s->view.resolved)) s->run = &r->runs[i];
    for (int64_t i = 0; i < r->run_count && !s->run; i++)
        if (!strcmp(r->runs[i].name, name) && json_equal(r->runs[i].cell, cell))
            s->run = &r->runs[i];
    if (s->run) s->config = s->run->config_json;
    if (s->run) return OK;
    return FAIL(e, ERR_CONFIG, "the bundle's script no longer gives a run of the name '%.80s' in "
                "its cell", name);
}

static enum status resolve(struct repro_source *s, struct err *e) {
    const char **overrides = NULL;
    enum status st = read_overrides(s, &overrides, e);
    struct resolve_options options = {
        .path = s->script, .overrides = overrides,
        .lib = s->lib, /* the bundle's presets, never ours */
        .override_count = (int64_t)json_array_size(s->overrides),
        .smoke = json_is_true(json_object_get(s->view.run, "smoke")), .stored_models = true,
        /* A pattern means the files of the bundle, epochs its steps. */
        .data = { .known = s->sources ? s->sources : s->data_files,
                  .epoch_steps = json_integer_value(json_object_get(
                      json_object_get(s->view.resolved, "train"), "steps")) },
    };
    if (st == OK) {
        st = resolve_experiment(&options, &s->resolution, e);
        if (st == ERR_CONFIG) err_prefix(e, "the bundle's script does not resolve here");
    }
    free(overrides);
    return st;
}

/* ---- the whole ------------------------------------------------------------------------------- */

enum status repro_unpack(const char *text, const char *runs, const char *parent,
                         struct repro_source *out, struct err *e) {
    *out = (struct repro_source){ 0 };
    enum status st = run_locate_among(text, runs, RUNS_WHOLE, out->bundle, e);
    if (st == OK) st = make_work(parent, out, e);
    if (st == OK) st = unpack(out, e);
    if (st == OK) st = run_view_load(out->bundle, RUN_VIEW_FULL, &out->view, e);
    if (st == OK && !json_is_object(out->view.resolved))
        st = FAIL(e, ERR_FORMAT, "%s holds no resolved configuration", out->bundle);
    if (st == OK && out->view.ingest && !(out->sources = cache_record_sources(out->view.ingest)))
        st = FAIL(e, ERR_MEMORY, "the text of %s", out->bundle);
    out->config = out->view.resolved;
    if (st != OK && e) plain_text(e->text); /* the text may quote the bundle */
    return st;
}

enum status repro_open(const char *text, const char *runs, struct repro_source *out,
                       struct err *e) {
    TRY(repro_unpack(text, runs, runs, out, e));
    enum status st = resolve(out, e);
    if (st == OK) st = choose_run(out, e);
    if (st != OK && e) plain_text(e->text);
    return st;
}

enum status repro_without_sets(struct repro_source *s, struct err *e) {
    json_t *own = json_array(), *row, *text = json_object_get(s->view.ingest, "sources");
    bool failed = !own;
    size_t i;
    if (!eval_sets_of(s->view.resolved)) {
        json_decref(own);
        return OK;
    }
    json_array_foreach(s->data_files, i, row)
        if (!json_object_get(row, "set")) json_append(own, json_incref(row), &failed);
    if (failed) {
        json_decref(own);
        return FAIL(e, ERR_MEMORY, "the files of the run's own data");
    }
    json_decref(s->data_files);
    s->data_files = own;
    json_decref(s->sources);
    s->sources = json_incref(text);
    (void)json_object_del(s->view.ingest, "also");
    (void)json_object_del(json_object_get(s->view.resolved, "eval"), "also");
    return OK;
}

void repro_close(struct repro_source *s) {
    struct err ignored; /* a remaining hidden folder does no harm */
    if (*s->work) (void)!tree_remove(s->work, &ignored);
    resolution_destroy(&s->resolution);
    json_decref(s->data_files);
    json_decref(s->sources);
    run_view_free(&s->view);
    *s = (struct repro_source){ 0 };
}
