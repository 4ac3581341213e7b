#include "runner/disk_room.h"

#include <string.h>

#include "runner/base/canonical.h"
#include "runner/bundle/run_view.h"
#include "runner/hardware/facts.h"
#include "runner/hardware/hardware.h"

/* Whether the folder has a run of a row, by the hash of its configuration. */
static bool any_is_here(const struct resolution *r, const char *folder) {
    struct tree runs;
    struct err ignored; /* a folder that cannot be read has no run to resume */
    bool any = false;
    if (run_list(folder, &runs, &ignored) != OK) return false;
    for (int64_t i = 0; i < runs.count && !any; i++) {
        struct run_view view;
        if (run_view_load(runs.file[i].path, RUN_VIEW_BRIEF, &view, NULL) != OK) continue;
        const char *config = json_text(json_object_get(view.run, "inputs"), "config", "");
        for (int64_t k = 0; k < r->run_count; k++)
            any = any || !strcmp(r->runs[k].config_sha256, config);
        run_view_free(&view);
    }
    tree_free(&runs);
    return any;
}

/* Whether a row asks for a machine that this one is not: `run` would refuse it before it looks at
 * the disk. */
static bool is_for_another(const struct resolution *r) {
    json_t *facts = NULL;
    struct err ignored; /* without facts nothing is known against this machine */
    bool another = false;
    if (facts_gather(&facts, NULL, 0, &ignored) != OK) return false;
    for (int64_t i = 0; i < r->run_count && !another; i++) {
        json_t *mismatch = NULL;
        another = hardware_match(r->runs[i].config_json, facts, &mismatch, &ignored) == OK &&
                  mismatch;
        json_decref(mismatch);
    }
    json_decref(facts);
    return another;
}

int disk_room_check(const struct cli *cli, const struct resolution *r,
                    const struct keep_disk *disk) {
    struct err why = { 0 };
    if (keep_check_disk(disk, &why) == OK) return EXIT_OK;
    if (is_for_another(r)) {
        cli_warn(cli, "%s; the script asks for another machine, whose disk may have room",
                 why.text);
        return EXIT_OK;
    }
    if (any_is_here(r, disk->folder)) {
        cli_warn(cli, "%s; runs of this script are there already, and `run` needs less room for "
                 "those that are done or resumed", why.text);
        return EXIT_OK;
    }
    cli_warn(cli, "`run` would not start: %s", why.text);
    return exit_code_of(why.code);
}
