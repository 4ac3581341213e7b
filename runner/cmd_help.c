/* fp8lab help: the verb table, or one verb's --help. */
#include <string.h>

#include "runner/commands.h"
#include "runner/help.h"

#define ROW(name) &name,
static const struct verb *const VERBS[] = { FP8LAB_VERBS(ROW) };
enum { VERB_COUNT = sizeof VERBS / sizeof *VERBS };

static int cmd_help(const struct cli *cli) {
    const struct verb *verb = NULL;
    struct err e = { 0 };
    if (cli->arg_count && !strcmp(cli->args[0], "checkpoints")) {
        help_checkpoints(cli);
        return EXIT_OK;
    }
    if (cli->arg_count && cli_find_verb(VERBS, VERB_COUNT, cli->args[0], &verb, &e) != OK)
        return cli_fail(cli, &e);
    if (verb) help_verb(cli, verb);
    else help_all(cli, VERBS, VERB_COUNT);
    return EXIT_OK;
}

const struct verb VERB_HELP = {
    .name = "help",
    .arguments = "[COMMAND]",
    .about = "list the commands, or explain one",
    .more = "The same as fp8lab --help and fp8lab COMMAND --help. fp8lab help checkpoints:\n"
            "which checkpoints a run saves, and which stay.\n",
    .args_max = 1,
    .run = cmd_help,
};
