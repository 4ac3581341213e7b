/* fp8lab rm: removes runs. */
#include <stdlib.h>
#include <string.h>

#include "runner/bundle/run_pick.h"
#include "runner/bundle/run_view.h"
#include "runner/commands.h"
#include "runner/removal_ask.h"

struct targets {
    char (*path)[PATH_CAP]; /* owned */
    const char **name;      /* their addresses; owned */
    int64_t count;
};

static enum status locate(const struct cli *cli, struct targets *t, struct err *e) {
    t->count = cli->arg_count;
    t->path = calloc((size_t)t->count, sizeof *t->path);
    t->name = calloc((size_t)t->count, sizeof *t->name);
    if (!t->path || !t->name) return FAIL(e, ERR_MEMORY, "%lld paths", (long long)t->count);
    for (int64_t i = 0; i < t->count; i++) {
        TRY(run_locate(cli->args[i], cli_runs(cli), t->path[i], e));
        size_t n = strlen(t->path[i]);
        while (n > 1 && t->path[i][n - 1] == '/') t->path[i][--n] = '\0';
        t->name[i] = t->path[i];
    }
    return OK;
}

/* Adds the target, unless a run that stays in its folder needs it. */
static enum status add(struct removal *r, const struct targets *t, int64_t i, struct err *e) {
    char folder[PATH_CAP];
    struct run_needs needs;
    path_parent(folder, t->path[i]);
    TRY(run_needs_find(folder, t->name, t->count, &needs, e));
    enum status st = removal_add_run(r, t->path[i], &needs, e);
    run_needs_free(&needs);
    return st;
}

static enum status plan(const void *context, struct removal *out, struct err *e) {
    const struct targets *t = context;
    for (int64_t i = 0; i < t->count; i++) TRY(add(out, t, i, e));
    return OK;
}

static int cmd_rm(const struct cli *cli) {
    struct targets targets = { 0 };
    struct err e = { 0 };
    enum status st = locate(cli, &targets, &e);
    int code = st == OK ? removal_ask(cli, plan, &targets) : cli_fail(cli, &e);
    free(targets.path);
    free(targets.name);
    return code;
}

static const struct flag FLAGS[] = {
    REMOVAL_FLAGS,
    { "runs", "DIR", "where runs are looked up by id (default: runs)", false },
};

const struct verb VERB_RM = {
    .name = "rm",
    .arguments = "RUN...",
    .about = "remove runs: bundle, directory, kept checkpoints, tags",
    .more = RUN_FORMS
            "Lists what goes and asks. A run that is running stays, and a run of which another\n"
            "run in its folder began with a checkpoint: remove both in one command. Runs in other\n"
            "folders are not looked at. fp8lab list --ids prints ids to choose from:\n"
            "  fp8lab rm $(fp8lab list --status failed --ids)\n",
    VERB_FLAGS(FLAGS),
    .args_min = 1,
    .args_max = -1,
    .run = cmd_rm,
};
