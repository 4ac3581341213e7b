/* fp8lab close: packs a run whose runner died, or whose bundle could not be written. */
#include <jansson.h>

#include "runner/base/canonical.h"
#include "runner/bundle/run_view.h"
#include "runner/commands.h"
#include "runner/run/close.h"

static const struct flag FLAGS[] = {
    { "runs", "DIR", "the folder of runs (default: runs)", false },
    { "force", NULL, "the runner on the other host is known to be dead", false },
};

static int cmd_close(const struct cli *cli) {
    char path[PATH_CAP];
    struct bundle_result result = { 0 };
    struct err e = { 0 };
    enum status st = run_locate(cli->args[0], cli_runs(cli), path, &e);
    if (st == OK && !path_is_directory(path))
        st = FAIL(&e, ERR_ARG,
                  "%s is not a run's directory; only directories can be closed", path);
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
    if (*result.stays) cli_note(cli, "%s: %s", result.path, result.stays);
    if (*result.problem) cli_warn(cli, "%s: %s", result.path, result.problem);
    cli_next(cli, "show", result.path, NULL);
    return *result.problem ? EXIT_VERIFY : EXIT_OK;
}

const struct verb VERB_CLOSE = {
    .name = "close",
    .arguments = "RUN",
    .about = "bundle a run whose runner died",
    .more =
        "RUN is a directory, or the beginning of a run's id. `list` and `run` close your runs\n"
        "that this host left open. A run with a checkpoint keeps its directory, so that it can be\n"
        "resumed. A directory with a symbolic link, or with anything but files and directories,\n"
        "is rejected and not changed. Exit code 4: a file of records is damaged, and the bundle\n"
        "has it as text; or it has lost rows, or data/metrics was deleted.\n"
        "If the runner was on another host and gave a sign of life in the last 15 minutes,\n"
        "closing needs --force: not every file system shows locks across hosts. A lock that is\n"
        "held is never broken.\n",
    VERB_FLAGS(FLAGS),
    .args_min = 1,
    .args_max = 1,
    .run = cmd_close,
};
