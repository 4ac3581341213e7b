/* repro --launch. The container sees the bundle and the folder of new runs. Files that only the
 * bundle names are not visible, unless the user gives --mount. */
#include "runner/repro/repro_launch.h"

#include <stdlib.h>
#include <string.h>

#include "runner/compare/seed_band.h"
#include "runner/launch/launch.h"

struct container_run {
    const struct cli *cli;
    const struct repro_source *source;
    const char *runs;
    char *bundle, *cwd; /* owned; absolute */
    char band[PATH_CAP]; /* "" where there is none */
    struct launch_mounts mounts;
    struct words command;
};

/* Adds the mounts; with --mount also the folders of the data that the bundle names, relative to
 * here. */
static enum status add_mounts(struct container_run *a, struct err *e) {
    const struct cli *cli = a->cli;
    const char *data = cli_value(cli, "data");
    TRY(mounts_add(&a->mounts, a->runs, true, e));
    TRY(mounts_add(&a->mounts, a->bundle, false, e));
    if (data) TRY(mounts_add(&a->mounts, data, false, e));
    if (*a->band) TRY(mounts_add(&a->mounts, a->band, false, e));
    if (!cli_has(cli, "mount")) return OK;
    TRY(mounts_add(&a->mounts, a->cwd, false, e));
    return mounts_add_data(&a->mounts, a->source->run->config_json, NULL, e);
}

/* Finds the seed band. Inside, only the bundle is visible, not the folder around it. */
static enum status find_band(struct container_run *a, struct err *e) {
    const char *named = cli_value(a->cli, "band");
    if (named && strlen(named) < sizeof a->band) strcpy(a->band, named);
    if (named) return *a->band ? OK : FAIL(e, ERR_ARG, "--band: no path, or too long a one");
    TRY(seed_band_path(a->source->bundle, a->band, e));
    if (!path_exists(a->band)) a->band[0] = '\0';
    return OK;
}

static enum status add_path(struct words *w, const char *flag, const char *path, struct err *e) {
    char *real = path ? realpath(path, NULL) : NULL;
    if (path && !real) return FAIL(e, ERR_ARG, "--%s %s: there is no such path", flag, path);
    if (real) words_addf(w, "--%s=%s", flag, real);
    free(real);
    return OK;
}

static enum status make_command(struct container_run *a, struct err *e) {
    static const char *const OURS[] = { "image", "mount", "runs", "data", "band", NULL };
    struct words *w = &a->command;
    words_add(w, "repro");
    launch_carry_flags(a->cli, OURS, w);
    TRY(add_path(w, "runs", a->runs, e));
    TRY(add_path(w, "data", cli_value(a->cli, "data"), e));
    TRY(add_path(w, "band", *a->band ? a->band : NULL, e));
    words_add(w, a->bundle);
    return w->failed ? FAIL(e, ERR_MEMORY, "a command line") : OK;
}

/* The working directory inside must be mounted: this folder, or the folder of runs. */
static enum status prepare(struct container_run *a, struct err *e) {
    a->bundle = realpath(a->source->bundle, NULL);
    a->cwd = realpath(cli_has(a->cli, "mount") ? "." : a->runs, NULL);
    if (!a->bundle || !a->cwd) return FAIL(e, ERR_IO, "%s: it is gone", a->source->bundle);
    TRY(find_band(a, e));
    TRY(add_mounts(a, e));
    return make_command(a, e);
}

int repro_launch(const struct cli *cli, const struct repro_source *source, const char *runs) {
    struct container_run a = { .cli = cli, .source = source, .runs = runs };
    struct err e = { 0 };
    const json_t *config = source->run->config_json;
    const char *image = json_text(config, "image", NULL);
    enum status st = OK;
    if (cli_has(cli, "image") && !image)
        st = FAIL(&e, ERR_CONFIG, "--image: the bundle names no image");
    if (st == OK) st = prepare(&a, &e);
    struct launch_request request = {
        .cli = cli, .name = source->run->name, .configs = &config, .count = 1, .cwd = a.cwd,
        /* A foreign image must not judge itself: this program is mounted into it. */
        .image = cli_has(cli, "image") ? image : NULL, .holds_fp8lab = !cli_has(cli, "image"),
        .mounts = &a.mounts, .command = &a.command,
    };
    int code = st == OK ? launch(&request) : cli_fail(cli, &e);
    words_free(&a.command);
    mounts_free(&a.mounts);
    free(a.bundle);
    free(a.cwd);
    return code;
}
