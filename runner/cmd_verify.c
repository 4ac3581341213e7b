/* fp8lab verify: checks that bundles are complete, unchanged and well-behaved. Needs no network. */
#include <jansson.h>
#include <stdio.h>

#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"
#include "runner/bundle/kept.h"
#include "runner/bundle/run_view.h"
#include "runner/bundle/unpack.h"
#include "runner/commands.h"

static void print(const struct cli *cli, const char *path, const struct unpack_report *report) {
    if (!cli->json) {
        cli_out(cli, "valid: %s\n  bundle %s\n  %lld files, %lld bytes\n", PLAIN(path),
                report->identity, (long long)report->files, (long long)report->bytes);
        return;
    }
    json_t *object = json_pack("{s:s, s:o, s:s, s:s, s:I, s:I}", "schema", "fp8lab.verify/1",
                               "path", json_from_text(path), "folder", report->folder, "identity",
                               report->identity, "files", (json_int_t)report->files, "bytes",
                               (json_int_t)report->bytes);
    cli_out_json(cli, object);
    json_decref(object);
}

/* Verifies the checkpoints beside the bundle, whose hashes run.json has. A bundle that was copied
 * without them is complete. */
static enum status verify_kept(const struct cli *cli, const char *path, struct err *e) {
    struct run_view view;
    size_t i;
    const json_t *row;
    TRY(run_view_load(path, RUN_VIEW_BRIEF, &view, e));
    enum status st = OK;
    json_array_foreach(json_object_get(view.run, "kept"), i, row) {
        char which[64];
        bool there = false;
        kept_text(row, which);
        if (st == OK) st = kept_verify(path, row, &there, e);
        if (st == OK && there) cli_note(cli, "  the kept checkpoint of %s is whole", which);
    }
    run_view_free(&view);
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
        if (st == OK) st = verify_kept(cli, path, &e);
        if (st == OK) {
            print(cli, path, &report);
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
    .more = "RUN is a bundle file, a run directory, the beginning of a run's id, or \"last\".\n"
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
