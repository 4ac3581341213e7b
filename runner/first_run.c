#include "runner/first_run.h"

#include <stdio.h>

#include "runner/base/paths.h"
#include "runner/script/resolve.h"

bool first_run_script(char out[PATH_CAP]) {
    char lib[PATH_CAP], folder[PATH_CAP];
    snprintf(out, PATH_CAP, "experiments/quickstart.lua");
    if (path_exists(out)) return true;
    resolve_find_lib(lib);
    path_parent(folder, lib);
    return *lib && path_join(out, folder, "quickstart.lua", NULL) == OK && path_exists(out);
}

void first_run_next(const struct cli *cli) {
    char script[PATH_CAP];
    if (!first_run_script(script)) {
        cli_next(cli, "help", "run", NULL);
    } else if (path_exists("data/quickstart.txt")) {
        cli_next(cli, "run", script, NULL);
    } else {
        if (!cli->json && path_exists("containers/export_text.sh"))
            cli_note(cli, "`make demo` trains on a real text, which it writes to "
                     "data/quickstart.txt first");
        cli_next(cli, "run", script, "--set", "data=synthetic", NULL);
    }
}
