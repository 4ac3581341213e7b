/* fp8lab close: bundles a run whose runner died, or that could not be packed when it ended. */
#include <jansson.h>

#include "runner/base/canonical.h"
#include "runner/bundle/run_view.h"
#include "runner/commands.h"
#include "runner/run/close.h"

static const struct flag FLAGS[] = {
    { "runs", "DIR", "where runs are looked up by id (default: runs)", false },
    { "force", NULL, "the runner is dead, though another host cannot be asked", false },
};

static int cmd_close(const struct cli *cli) {
    char path[PATH_CAP];
    struct bundle_result result = { 0 };
    struct err e = { 0 };
    enum status st = run_locate(cli->args[0], cli_runs(cli), path, &e);
    if (st == OK && !path_is_directory(path))
        st = FAIL(&e, ERR_ARG,
                  "%s is no directory of a run; its bundle, if it is one, needs no closing", path);
    if (st == OK) st = close_run(path, cli_has(cli, "force"), &result, &e);
    if (st != OK) return cli_fail(cli, &e);
    if (cli->json) {
        json_t *object = json_pack("{s:s,s:o}", "schema", "fp8lab.close/1", "bundle",
                                   json_from_text(result.path));
        cli_out_json(cli, object);
        json_decref(object);
    } else {
        cli_out(cli, "%s\n", result.path);
    }
    if (*result.problem) cli_warn(cli, "%s: %s", result.path, result.problem);
    cli_next(cli, "show", result.path, NULL);
    return *result.problem ? EXIT_VERIFY : EXIT_OK;
}

const struct verb VERB_CLOSE = {
    .name = "close",
    .arguments = "RUN",
    .about = "bundle a run whose runner died",
    .more =
        "RUN is a directory, or the beginning of a run's id. `list` and `run` do this for every\n"
        "such run of yours that this host left open. A run with a checkpoint keeps its directory,\n"
        "to be resumed. A directory that holds a symbolic link, or anything but files and\n"
        "directories, is refused as it is. Exit code 4: a file of records is damaged, and stays\n"
        "text in the bundle.\n"
        "A run whose runner was on another host, and was heard of in the last 15 minutes, is\n"
        "closed with --force only: not every file system shows from here whether it lives. A lock\n"
        "that is held, here or there, is never broken.\n",
    VERB_FLAGS(FLAGS),
    .args_min = 1,
    .args_max = 1,
    .run = cmd_close,
};
