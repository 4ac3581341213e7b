/* fp8lab verify: checks that bundles are complete, unchanged and well-behaved. Needs no network. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "model/checkpoint_files.h"
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

/* Verifies one checkpoint that the run keeps beside its bundle, and says whether it is here. The
 * error begins with its step. */
static enum status verify_one(const struct cli *cli, const char *path, const char *run,
                              const json_t *row, bool *there, struct err *e) {
    char which[64], folder[PATH_CAP];
    kept_text(row, which);
    enum status st = kept_verify(path, row, there, e);
    if (st != OK)
        err_prefix(e, "its kept checkpoint of %s %s", PLAIN(which),
                   st == ERR_VERIFY ? "is damaged" : "cannot be checked");
    TRY(st);
    TRY(kept_folder(folder, path, e));
    if (*there)
        cli_note(cli, "%s: the kept checkpoint of %s is intact", PLAIN(run), PLAIN(which));
    else
        cli_note(cli, "%s: checkpoint not here: %s, kept in %s", PLAIN(run), PLAIN(which),
                 PLAIN(folder));
    return OK;
}

/* Keeps in *e the failure that decides the exit code, and says the other one: damage that was found
 * wins over a file that cannot be read, else the first. Returns the status of *e. */
static enum status keep_worse(const struct cli *cli, const char *path, const struct err *now,
                              struct err *e) {
    const struct err before = *e;
    bool wins = e->code == OK || (now->code == ERR_VERIFY && e->code != ERR_VERIFY);
    const struct err *said = wins ? &before : now;
    if (wins) *e = *now;
    if (said->code != OK) cli_warn(cli, "%s: %s", PLAIN(path), PLAIN(said->text));
    return e->code;
}

/* Verifies all of them, also after a failure: *e is the worst one, and the others are said.
 * `list` becomes [{"step","here"}]; NULL: not needed. */
static enum status verify_rows(const struct cli *cli, const char *path, const json_t *run,
                               json_t *list, struct err *e) {
    size_t i;
    const json_t *row;
    enum status st = OK;
    bool failed = false;
    *e = (struct err){ .code = OK };
    json_array_foreach(json_object_get(run, "kept"), i, row) {
        bool there = false;
        struct err why = { 0 };
        if (strcmp(json_text(row, "where", ""), "beside") != 0) continue;
        if (verify_one(cli, path, json_text(run, "id", "?"), row, &there, &why) != OK)
            st = keep_worse(cli, path, &why, e);
        if (list)
            json_append(list, json_pack("{s:I,s:b}", "step", (json_int_t)json_int(row, "step"),
                                        "here", there), &failed);
    }
    return failed && st == OK ? FAIL(e, ERR_MEMORY, "the list of checkpoints") : st;
}

/* Every byte is as listed, and still the run's records may lack something. */
static void say_problems(const struct cli *cli, const struct run_view *view) {
    const json_t *problem;
    size_t i;
    json_array_foreach(json_object_get(view->summary, "problems"), i, problem)
        cli_warn(cli, "%s: %s", PLAIN(json_text(view->run, "id", "?")),
                 PLAIN(json_string_value(problem) ? json_string_value(problem) : "?"));
}

static const char *name_of(const char *path) {
    return path_is_directory(path) ? "the directory" : "the bundle";
}

/* Verifies the checkpoints beside a bundle that is intact; run.json has their hashes. A bundle that
 * was copied without them is complete. *out becomes [{"step","here"}]; the caller owns it. */
static enum status verify_kept(const struct cli *cli, const char *path, json_t **out,
                               struct err *e) {
    struct run_view view;
    char folder[PATH_CAP];
    TRY(kept_folder(folder, path, e));
    TRY(run_view_load(path, RUN_VIEW_BRIEF, &view, e));
    say_problems(cli, &view);
    *out = json_array();
    struct err why = { 0 };
    enum status st = *out ? verify_rows(cli, path, view.run, *out, &why)
                          : FAIL(&why, ERR_MEMORY, "the list of checkpoints");
    run_view_free(&view);
    if (st == OK) return OK;
    json_decref(*out);
    *out = NULL;
    if (st == ERR_MEMORY) return FAIL(e, st, "%s", why.text);
    if (st != ERR_VERIFY) /* it may be intact */
        return FAIL(e, st, "%s: %s itself is intact, but %s; make it readable and verify again",
                    path, name_of(path), why.text);
    return FAIL(e, st, "%s: %s itself is intact, but %s; copy the checkpoint to %s again, or "
                "delete its folder there: the run's results do not need it", path, name_of(path),
                why.text, folder);
}

/* A damaged bundle says nothing of the checkpoints beside it. Verifies them against run.json; if
 * that cannot be read, the newest one against its own hashes. */
static void verify_beside_damaged(const struct cli *cli, const char *path) {
    struct run_view view;
    struct err e = { 0 };
    char folder[PATH_CAP];
    struct checkpoint_info info = { .step = -1 };
    if (run_view_load(path, RUN_VIEW_BRIEF, &view, NULL) == OK) {
        if (verify_rows(cli, path, view.run, NULL, &e) != OK)
            cli_warn(cli, "%s: %s", PLAIN(path), PLAIN(e.text));
        run_view_free(&view);
        return;
    }
    if (kept_folder(folder, path, &e) != OK || !path_is_directory(folder)) return;
    if (checkpoint_latest(folder, NULL, &info, &e) != OK)
        cli_warn(cli, "%s: %s", PLAIN(folder), PLAIN(e.text));
    if (*info.damage)
        cli_warn(cli, "%s: %s kept checkpoint is damaged: %s", PLAIN(folder),
                 info.step >= 0 ? "a newer" : "the", PLAIN(info.damage));
    if (e.code == OK && info.step >= 0)
        cli_note(cli, "%s: the kept checkpoint of step %lld is intact by its own hashes; %s "
                 "cannot say whether it is the run's", PLAIN(folder), (long long)info.step,
                 name_of(path));
}

/* Whether a directory has nothing of a bundle. */
static bool is_foreign(const char *path) {
    static const char *const SIGNS[] = { "bagit.txt", "manifest-sha256.txt", DOCUMENT_run };
    char file[PATH_CAP];
    if (!path_is_directory(path)) return false;
    for (size_t i = 0; i < sizeof SIGNS / sizeof *SIGNS; i++)
        if (path_join(file, path, SIGNS[i], NULL) != OK || path_exists(file)) return false;
    return true;
}

/* *out as for verify_kept(). The error says which part is damaged and what to do. */
static enum status verify(const struct cli *cli, const char *path, struct unpack_report *report,
                          json_t **out, struct err *e) {
    struct err why = { 0 };
    enum status st = bundle_unpack(path, NULL, &BUNDLE_LIMITS, report, &why);
    if (st == OK) return verify_kept(cli, path, out, e);
    if (st != ERR_VERIFY && st != ERR_FORMAT) return FAIL(e, st, "%s", why.text);
    if (is_foreign(path))
        return FAIL(e, st, "%s; %s is not a run: name a run's .tar.zst or its directory", why.text,
                    path);
    verify_beside_damaged(cli, path);
    if (st == ERR_FORMAT) /* it may be no bundle at all */
        return FAIL(e, st, "%s; if it is a run's bundle, it is damaged: copy it again from its "
                    "source, or repeat the run with run --again", why.text);
    return FAIL(e, st, "%s; %s is damaged or changed: copy it again from its source, or repeat the "
                "run with run --again", why.text, name_of(path));
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
        json_t *kept = NULL;
        if (st == OK) st = verify(cli, path, &report, &kept, &e);
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
            "summary that its records contradict, a damaged checkpoint beside the bundle. The\n"
            "message says which part is damaged, and whether the other one is intact.\n"
            "Exit 6: a file cannot be read, and may be intact.\n"
            "A bundle has no signature. If its sender tells you the hash that is printed behind\n"
            "`bundle`, an equal one means the same files; `repro` shows whether they are true.\n"
            "With --json one line for each bundle; fp8lab.error/1 for one that is not valid.\n",
    VERB_FLAGS(FLAGS),
    .args_min = 1,
    .args_max = -1,
    .run = cmd_verify,
};
