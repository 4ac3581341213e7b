/* fp8lab verify: checks that bundles are complete, unchanged and well-behaved. Needs no network. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"
#include "runner/bundle/kept.h"
#include "runner/bundle/run_view.h"
#include "runner/bundle/unpack.h"
#include "runner/bundle/run_pick.h"
#include "runner/commands.h"

/* Takes the reference to `kept`, which verify_kept() made. */
static void print(const struct cli *cli, const char *path, const struct unpack_report *report,
                  json_t *kept) {
    if (!cli->json) {
        cli_out(cli, "valid: %s\n  bundle %s\n  %lld files, %lld bytes\n", PLAIN(path),
                report->identity, (long long)report->files, (long long)report->bytes);
        json_decref(kept);
        return;
    }
    json_t *object = json_pack("{s:s, s:o, s:s, s:s, s:I, s:I, s:o}", "schema", "fp8lab.verify/1",
                               "path", json_from_text(path), "folder", report->folder, "identity",
                               report->identity, "files", (json_int_t)report->files, "bytes",
                               (json_int_t)report->bytes, "kept", kept);
    cli_out_json(cli, object);
    json_decref(object);
}

/* Verifies one checkpoint that the run keeps beside its bundle, and says whether it is here. */
static enum status verify_one(const struct cli *cli, const char *path, const char *run,
                              const json_t *row, bool *there, struct err *e) {
    char which[64], folder[PATH_CAP];
    kept_text(row, which);
    TRY(kept_verify(path, row, there, e));
    TRY(kept_folder(folder, path, e));
    if (*there)
        cli_note(cli, "%s: the kept checkpoint of %s is whole", PLAIN(run), PLAIN(which));
    else
        cli_note(cli, "%s: checkpoint not here: %s, kept in %s", PLAIN(run), PLAIN(which),
                 PLAIN(folder));
    return OK;
}

/* Every byte is as listed, and still the run's records may lack something. */
static void say_problems(const struct cli *cli, const struct run_view *view) {
    const json_t *problem;
    size_t i;
    json_array_foreach(json_object_get(view->summary, "problems"), i, problem)
        cli_warn(cli, "%s: %s", PLAIN(json_text(view->run, "id", "?")),
                 PLAIN(json_string_value(problem) ? json_string_value(problem) : "?"));
}

/* Verifies the checkpoints beside the bundle, whose hashes run.json has. A bundle that was copied
 * without them is complete. *out becomes [{"step","here"}]; the caller owns it, NULL: no memory. */
static enum status verify_kept(const struct cli *cli, const char *path, json_t **out,
                               struct err *e) {
    struct run_view view;
    size_t i;
    const json_t *row;
    *out = NULL;
    TRY(run_view_load(path, RUN_VIEW_BRIEF, &view, e));
    say_problems(cli, &view);
    enum status st = OK;
    json_t *list = json_array();
    bool failed = !list;
    json_array_foreach(json_object_get(view.run, "kept"), i, row) {
        bool there = false;
        if (st != OK || strcmp(json_text(row, "where", ""), "beside") != 0) continue;
        st = verify_one(cli, path, json_text(view.run, "id", "?"), row, &there, e);
        json_append(list, json_pack("{s:I,s:b}", "step", (json_int_t)json_int(row, "step"), "here",
                                    there), &failed);
    }
    run_view_free(&view);
    if (st == OK) *out = json_whole(list, failed);
    else json_decref(list);
    return st;
}

/* Verifies all bundles, even after a failure. EXIT_VERIFY wins over other exit codes. */
static int cmd_verify(const struct cli *cli) {
    int code = EXIT_OK;
    char first[PATH_CAP] = "";
    for (int64_t i = 0; i < cli->arg_count; i++) {
        char path[PATH_CAP];
        struct unpack_report report;
        struct err e = { 0 };
        enum status st = run_locate(cli->args[i], cli_runs(cli), path, &e);
        if (st == OK && !*first) snprintf(first, sizeof first, "%s", path);
        if (st == OK) st = bundle_unpack(path, NULL, &BUNDLE_LIMITS, &report, &e);
        json_t *kept = NULL;
        if (st == OK) st = verify_kept(cli, path, &kept, &e);
        if (st == OK) {
            print(cli, path, &report, kept);
            continue;
        }
        plain_text(e.text); /* may quote the bundle */
        int now = cli_fail(cli, &e);
        if (code == EXIT_OK || now == EXIT_VERIFY) code = now;
    }
    if (code == EXIT_OK) cli_next(cli, "show", first, NULL);
    return code;
}

static const struct flag FLAGS[] = {
    { .name = "runs", .value = "DIR", .help = "where runs are looked up by id (default: runs)" },
};

const struct verb VERB_VERIFY = {
    .name = "verify",
    .arguments = "RUN...",
    .about = "check that bundles are complete and unchanged",
    .more = RUN_FORMS
            "Every file is hashed. Exit 4, with a message that names the problem: a missing,\n"
            "surplus or changed file, a damaged or hostile archive (links, \"..\", bombs...), a\n"
            "summary that its columns contradict, a damaged checkpoint beside the bundle.\n"
            "Exit 6: a file cannot be read, and may be intact.\n"
            "With --json one line for each bundle; fp8lab.error/1 for one that is not valid.\n",
    VERB_FLAGS(FLAGS),
    .args_min = 1,
    .args_max = -1,
    .run = cmd_verify,
};
