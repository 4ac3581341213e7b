/* fp8lab extract: unpacks a bundle into a directory and verifies it on the way. */
#include <jansson.h>
#include <string.h>

#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"
#include "runner/bundle/bundle_reader.h"
#include "runner/bundle/run_view.h"
#include "runner/bundle/unpack.h"
#include "runner/commands.h"

/* The default target: a folder here with the run's id as its name. */
static enum status default_target(const char *path, char out[PATH_CAP], struct err *e) {
    struct bundle *b = NULL;
    struct bundle_entry entry;
    TRY(bundle_open(path, &BUNDLE_LIMITS, &b, e));
    enum status st = bundle_next(b, &entry, e);
    if (st == OK && !entry.path) st = FAIL(e, ERR_FORMAT, "%s is empty", path);
    if (st == OK) st = path_join(out, ".", bundle_folder(b), e);
    bundle_close(b);
    return st;
}

static enum status extract(const struct cli *cli, char target[PATH_CAP],
                           struct unpack_report *report, struct err *e) {
    char path[PATH_CAP];
    const char *to = cli_value(cli, "to");
    TRY(run_locate(cli->args[0], cli_runs(cli), path, e));
    if (!to) TRY(default_target(path, target, e));
    else if (strlen(to) < PATH_CAP) strcpy(target, to);
    else return FAIL(e, ERR_ARG, "--to of %zu bytes is too long", strlen(to));
    for (size_t n = strlen(target); n > 1 && target[n - 1] == '/'; n--) target[n - 1] = '\0';
    return bundle_unpack(path, target, &BUNDLE_LIMITS, report, e);
}

static int cmd_extract(const struct cli *cli) {
    char target[PATH_CAP];
    struct unpack_report report;
    struct err e = { 0 };
    enum status st = extract(cli, target, &report, &e);
    if (st != OK) {
        plain_text(e.text); /* may quote the bundle */
        return cli_fail(cli, &e);
    }
    if (cli->json) {
        json_t *object = json_pack("{s:s, s:o, s:s, s:I, s:I}", "schema", "fp8lab.extract/1",
                                   "path", json_from_text(target), "identity", report.identity,
                                   "files", (json_int_t)report.files, "bytes",
                                   (json_int_t)report.bytes);
        cli_out_json(cli, object);
        json_decref(object);
    } else {
        cli_out(cli, "%s: %lld files, %lld bytes, every one verified\n", PLAIN(target),
                (long long)report.files, (long long)report.bytes);
    }
    cli_next(cli, "show", target, NULL);
    return EXIT_OK;
}

static const struct flag FLAGS[] = {
    { .name = "to", .value = "DIR", .help = "directory to make; default: ./<run id>" },
    { .name = "runs", .value = "DIR", .help = "where runs are looked up by id (default: runs)" },
};

const struct verb VERB_EXTRACT = {
    .name = "extract",
    .arguments = "RUN",
    .about = "unpack a bundle, safely",
    .more = "The directory must not exist. It appears after every file in it was verified.\n",
    VERB_FLAGS(FLAGS),
    .args_min = 1,
    .args_max = 1,
    .run = cmd_extract,
};
