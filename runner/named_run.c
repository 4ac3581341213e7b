#include "runner/named_run.h"

#include <string.h>

enum status named_run(const struct cli *cli, const char *text, enum run_counts counts,
                      char out[PATH_CAP], struct err *e) {
    char among_all[PATH_CAP];
    struct err ignored; /* then no other run is meant */
    TRY(run_locate_among(text, cli_runs(cli), counts, out, e));
    if (run_locate(text, cli_runs(cli), among_all, &ignored) == OK && strcmp(out, among_all) != 0)
        cli_note(cli, "%s means %s: what repro %s does not count", text, out,
                 counts == RUNS_ORIGINAL ? "made" : "ended early");
    return OK;
}
