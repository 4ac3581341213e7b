#include "runner/help.h"

#include <stdio.h>
#include <string.h>

#include "runner/base/version.h"
#include "runner/plan/tiers.h"
#include "runner/record/image_record.h"

static void print_verbs(const struct cli *cli, const struct verb *const *verbs, int64_t count) {
    for (int64_t v = 0; v < count; v++)
        if (!verbs[v]->hidden) cli_out(cli, "  %-11s %s\n", verbs[v]->name, verbs[v]->about);
}

static bool has_verb(const struct verb *const *verbs, int64_t count, const char *name) {
    for (int64_t v = 0; v < count; v++)
        if (!strcmp(verbs[v]->name, name)) return true;
    return false;
}

void help_welcome(const struct cli *cli, const struct verb *const *verbs, int64_t count) {
    cli_out(cli, "fp8lab %s: train transformers in FP8, leave bundles that anyone can verify and "
                 "compare.\n\n", FP8LAB_VERSION);
    if (has_verb(verbs, count, "run"))
        cli_out(cli,
                "Start here:\n"
                "  fp8lab experiments/quickstart.lua --set data=synthetic   trains on a CPU\n"
                "  fp8lab run --smoke --anywhere experiments/h200_bf16.lua  any script, tiny\n\n");
    image_welcome(cli);
    cli_out(cli, "Commands:\n");
    print_verbs(cli, verbs, count);
    cli_out(cli, "\n`fp8lab help COMMAND` explains a command, `fp8lab --help` lists exit codes.\n");
}

void help_all(const struct cli *cli, const struct verb *const *verbs, int64_t count) {
    cli_out(cli, "Usage: fp8lab COMMAND [ARGUMENTS]\n"
                 "       fp8lab FILE.lua [ARGUMENTS]      the same as fp8lab run FILE.lua\n\n"
                 "Commands:\n");
    print_verbs(cli, verbs, count);
    cli_out(cli,
            "\nFlags of every command, anywhere on the line:\n"
            "  --json         print the result as JSON on stdout (runner/JSON.md has the keys)\n"
            "  -q, --quiet    no messages, only results and errors\n"
            "  --no-color     no colour (like NO_COLOR in the environment)\n"
            "  -h, --help     help on the command\n"
            "  --version      the version\n\n"
            "Exit codes:\n"
            "  0 ok   1 the run failed   2 usage, script or data\n"
            "  3 the machine does not match, lacks memory, or (repro) cannot be compared\n"
            "  4 verification failed   5 comparison or reproduction differs   6 system\n"
            "  128+N stopped by signal N, with a resumable checkpoint\n");
}

void help_checkpoints(const struct cli *cli) {
    cli_out(cli, "Which checkpoints a run saves, and which stay. A checkpoint may have several "
                 "reasons\nto stay; it is deleted when it has none. A done run keeps its own "
                 "beside its\nbundle, in <run-id>.ckpt/, or in the bundle with archive = "
                 "\"full\".\n");
    for (int i = 0; i < TIER_COUNT; i++)
        cli_out(cli, "\n%-10s %s\n  saved:             %s\n  stays in training: %s\n"
                     "  stays once done:   %s\n", TIERS[i].name, TIERS[i].key, TIERS[i].saved,
                TIERS[i].during, TIERS[i].after);
}

void help_verb(const struct cli *cli, const struct verb *verb) {
    cli_out(cli, "Usage: fp8lab %s%s%s%s\n\n%c%s.\n", verb->name,
            verb->flag_count ? " [FLAGS]" : "", *verb->arguments ? " " : "", verb->arguments,
            verb->about[0] >= 'a' && verb->about[0] <= 'z' ? verb->about[0] - 'a' + 'A'
                                                          : verb->about[0],
            verb->about + 1);
    if (verb->more) cli_out(cli, "\n%s", verb->more);
    cli_out(cli, "\nFlags:\n");
    for (int64_t i = 0; i < verb->flag_count; i++) {
        const struct flag *flag = &verb->flags[i];
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", flag->name, flag->value ? " " : "",
                 flag->value ? flag->value : "");
        cli_out(cli, "  %-22s %s%s\n", left, flag->help, flag->repeats ? " (may repeat)" : "");
    }
    cli_out(cli, "  %-22s %s\n", "--json",
            "print the result as JSON (runner/JSON.md has the keys)");
    cli_out(cli, "  %-22s %s\n", "-q, --no-color", "as for every command (fp8lab --help)");
}
