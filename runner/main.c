/* argv -> verb. The only file that ends the process. */
#include <stdio.h>

#include "runner/commands.h"
#include "runner/help.h"
#include "runner/version.h"

#define ROW(name) &name,
static const struct verb *const VERBS[] = { FP8LAB_VERBS(ROW) NULL };
enum { VERB_COUNT = sizeof VERBS / sizeof *VERBS - 1 };

static int dispatch(const struct cli *cli) {
    if (cli->version) {
        cli_out(cli, "fp8lab %s\n", FP8LAB_VERSION);
        return EXIT_OK;
    }
    if (cli->help) {
        if (cli->verb) help_verb(cli, cli->verb);
        else help_all(cli, VERBS, VERB_COUNT);
        return EXIT_OK;
    }
    if (cli->verb) return cli->verb->run(cli);
    help_welcome(cli, VERBS, VERB_COUNT);
    return EXIT_OK;
}

int main(int argc, char **argv) {
    struct cli cli;
    struct err e = { 0 };
    int code = EXIT_OK;
    if (cli_parse(argc, argv, VERBS, VERB_COUNT, &cli, &e) == OK) code = dispatch(&cli);
    else code = cli_fail(&cli, &e);
    cli_free(&cli);
    if (fflush(stdout) != 0 && code == EXIT_OK) {
        fprintf(stderr, "fp8lab: writing the result: stdout is closed or full\n");
        code = EXIT_SYSTEM;
    }
    return code;
}
