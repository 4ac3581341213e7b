/* fp8lab gc: removes what runs left behind, and checkpoints that nobody needs. */
#include <string.h>

#include "runner/commands.h"
#include "runner/removal_ask.h"

static enum status read_which(const struct cli *cli, bool *asked, enum removal_checkpoints *which,
                              struct err *e) {
    const char *text = cli_value(cli, "checkpoints");
    *asked = text != NULL;
    *which = REMOVAL_OLD;
    if (!text || !strcmp(text, "old")) return OK;
    *which = REMOVAL_ALL;
    if (!strcmp(text, "all")) return OK;
    return FAIL(e, ERR_ARG, "--checkpoints: found '%.40s'; write old (all but a run's last and "
                "best) or all", text);
}

static int cmd_gc(const struct cli *cli) {
    const char *dir = cli->arg_count ? cli->args[0] : "runs";
    struct removal removal = { 0 };
    struct err e = { 0 };
    enum removal_checkpoints which;
    bool asked;
    enum status st = read_which(cli, &asked, &which, &e);
    if (st == OK && !path_is_directory(dir))
        st = FAIL(&e, ERR_ARG, "%s is no directory", dir);
    if (st == OK) st = removal_add_garbage(&removal, dir, &e);
    if (st == OK && asked) st = removal_add_checkpoints(&removal, dir, which, &e);
    int code = st == OK ? removal_ask(cli, &removal) : cli_fail(cli, &e);
    removal_free(&removal);
    return code;
}

static const struct flag FLAGS[] = {
    { "checkpoints", "old|all", "also kept checkpoints that no run in DIR began with", false },
    REMOVAL_FLAGS,
};

const struct verb VERB_GC = {
    .name = "gc",
    .arguments = "[DIR]",
    .about = "remove what runs left behind in a folder (default: runs)",
    .more = "Lists what goes and asks: archives that a dead process was writing, runs that rm did\n"
            "not finish to remove, and directories of done runs whose bundle was verified now and\n"
            "holds the same. With --checkpoints old also checkpoints beside bundles, except each\n"
            "run's last and best; with all these too. Checkpoints with which a run in DIR began\n"
            "stay. Runs that are running, and bundles, always stay.\n",
    VERB_FLAGS(FLAGS),
    .args_max = 1,
    .run = cmd_gc,
};
