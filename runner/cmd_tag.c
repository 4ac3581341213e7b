/* fp8lab tag: tags and a note on a run, beside its bundle. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"
#include "runner/bundle/run_notes.h"
#include "runner/bundle/run_pick.h"
#include "runner/bundle/run_view.h"
#include "runner/commands.h"

static enum status set_note(const struct cli *cli, json_t *notes, struct err *e) {
    const char *note = cli_value(cli, "note");
    if (note && cli_has(cli, "no-note"))
        return FAIL(e, ERR_ARG, "--note and --no-note exclude each other");
    if (!note && !cli_has(cli, "no-note")) return OK;
    if (note && strlen(note) > RUN_NOTE_MAX)
        return FAIL(e, ERR_ARG, "--note has %zu bytes; the limit is %d", strlen(note),
                    RUN_NOTE_MAX);
    json_t *value = note ? json_string(note) : json_null();
    if (!value) return FAIL(e, ERR_ARG, "--note is not UTF-8");
    return json_object_set_new(notes, "note", value) == 0 ? OK : FAIL(e, ERR_MEMORY, "the note");
}

static enum status change(const struct cli *cli, json_t *notes, bool *changed, struct err *e) {
    json_t *before = json_deep_copy(notes);
    enum status st = before ? OK : FAIL(e, ERR_MEMORY, "tags");
    for (int64_t i = 1; st == OK && i < cli->arg_count; i++)
        st = run_notes_add(notes, cli->args[i], e);
    for (int64_t i = 0; st == OK && i < cli_count(cli, "remove"); i++)
        st = run_notes_remove(notes, cli_nth(cli, "remove", i), e);
    if (st == OK) st = set_note(cli, notes, e);
    *changed = !json_equal(before, notes);
    json_decref(before);
    return st;
}

static enum status print(const struct cli *cli, const char *path, const json_t *notes,
                         struct err *e) {
    const char *note = json_text(notes, "note", NULL);
    if (cli->json) {
        json_t *object = json_pack("{s:s, s:o, s:O, s:O}", "schema", "fp8lab.tag/1", "path",
                                   json_from_text(path), "tags", json_object_get(notes, "tags"),
                                   "note", json_object_get(notes, "note"));
        cli_out_json(cli, object);
        json_decref(object);
        return OK;
    }
    char *tags = run_notes_tags(notes);
    if (!tags) return FAIL(e, ERR_MEMORY, "tags");
    cli_out(cli, "tags  %s\n", *tags ? tags : "none");
    if (note) cli_out(cli, "note  %s\n", PLAIN(note));
    free(tags);
    return OK;
}

static int cmd_tag(const struct cli *cli) {
    char path[PATH_CAP];
    json_t *notes = NULL;
    struct run_view view = { 0 };
    struct err e = { 0 };
    bool changed = false;
    int lock = -1;
    enum status st = run_locate(cli->args[0], cli_runs(cli), path, &e);
    if (st == OK) st = run_view_load(path, RUN_VIEW_BRIEF, &view, &e); /* it is a run */
    if (st == OK) st = run_notes_lock(path, &lock, &e);
    if (st == OK) st = run_notes_read(path, &notes, &e);
    if (st == OK) st = change(cli, notes, &changed, &e);
    if (st == OK && changed) st = run_notes_write(path, notes, &e);
    if (lock >= 0) close(lock);
    if (st == OK) st = print(cli, path, notes, &e);
    run_view_free(&view);
    json_decref(notes);
    return st == OK ? EXIT_OK : cli_fail(cli, &e);
}

static const struct flag FLAGS[] = {
    { "remove", "TAG", "remove a tag", true },
    { "note", "TEXT", "replace the note", false },
    { "no-note", NULL, "remove the note", false },
    { "runs", "DIR", "where runs are looked up by id (default: runs)", false },
};

const struct verb VERB_TAG = {
    .name = "tag",
    .arguments = "RUN [TAG...]",
    .about = "tags and a note on a run",
    .more = RUN_FORMS
            "Adds tags, and prints what the run has. They are kept beside the bundle, in\n"
            "<run-id>.notes.json: the bundle and its hashes stay as they are. `list --tag TAG`\n"
            "finds the runs that have one, `rm` removes them with the run.\n",
    VERB_FLAGS(FLAGS),
    .args_min = 1,
    .args_max = -1,
    .run = cmd_tag,
};
