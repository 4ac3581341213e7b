/* fp8lab gc: removes what runs left behind, and checkpoints that nobody needs. */
#include <stdio.h>
#include <string.h>

#include "runner/base/bytes_text.h"
#include "runner/cache/cache.h"
#include "runner/commands.h"
#include "runner/removal_ask.h"
#include "runner/runs_folder.h"

struct wish {
    const char *dir;
    bool checkpoints;
    enum removal_checkpoints which;
};

static enum status read_wish(const struct cli *cli, struct wish *w, struct err *e) {
    const char *text = cli_value(cli, "checkpoints");
    *w = (struct wish){ .checkpoints = text,
                        .which = text && !strcmp(text, "all") ? REMOVAL_ALL : REMOVAL_OLD };
    TRY(runs_folder(cli, &w->dir, e));
    if (!path_is_directory(w->dir)) return FAIL(e, ERR_ARG, "%s is not a directory", w->dir);
    if (!text || !strcmp(text, "old") || !strcmp(text, "all")) return OK;
    return FAIL(e, ERR_ARG, "--checkpoints: found '%.40s'; write old (all but a run's last and "
                "best) or all", text);
}

/* The cache stays: to fill it again may take hours. It is often the largest part of the folder, so
 * the user must learn of it. */
static enum status spare_cache(struct removal *out, const char *dir, struct err *e) {
    char folder[PATH_CAP], size[32], why[160];
    TRY(cache_folder(folder, NULL, dir, e));
    int64_t bytes = tree_bytes(folder);
    if (bytes == 0) return OK;
    snprintf(why, sizeof why, "%s, mostly tokens, which runs make again from the text; to free "
             "them, delete the folder while no run uses it", bytes_text((double)bytes, size));
    return removal_spare(out, folder, why, e);
}

static enum status plan(const void *context, struct removal *out, struct err *e) {
    const struct wish *w = context;
    TRY(spare_cache(out, w->dir, e));
    TRY(removal_add_garbage(out, w->dir, e));
    return w->checkpoints ? removal_add_checkpoints(out, w->dir, w->which, e) : OK;
}

static int cmd_gc(const struct cli *cli) {
    struct wish wish;
    struct err e = { 0 };
    return read_wish(cli, &wish, &e) == OK ? removal_ask(cli, plan, &wish) : cli_fail(cli, &e);
}

static const struct flag FLAGS[] = {
    { "checkpoints", "old|all", "also kept checkpoints that no run in DIR began with", false },
    REMOVAL_FLAGS,
    RUNS_FLAG,
};

const struct verb VERB_GC = {
    .name = "gc",
    .arguments = "[DIR]",
    .about = "remove what runs left behind in a folder (default: runs)",
    .more = "Lists what goes and asks: archives that a dead process was writing, runs that rm did\n"
            "not finish removing, and directories of done runs whose bundle was verified now and\n"
            "holds the same. With --checkpoints old also checkpoints beside bundles, except each\n"
            "run's last and best; with all, those too. Checkpoints with which a run in DIR began\n"
            "stay. Runs that are running, and bundles, always stay. So does DIR/cache, which has\n"
            "the tokens that runs made of text, and may be large. To free its space, delete it\n"
            "while no run uses it. A run that needs the tokens makes them again from the text.\n"
            "\n"
            "Kept checkpoints whose bundle is not in DIR stay. They are named.\n",
    VERB_FLAGS(FLAGS),
    .args_max = 1,
    .run = cmd_gc,
};
