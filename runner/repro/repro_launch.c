/* repro --launch. The container sees the bundle and the folder of new runs. Files that only the
 * bundle names are not visible, unless the user gives --mount. */
#include "runner/repro/repro_launch.h"

#include <stdlib.h>
#include <string.h>

#include "runner/compare/seed_band.h"
#include "runner/launch/launch.h"

struct container_run {
    struct launch_request request;
    const struct repro_source *source;
    const char *runs;
    char *bundle;        /* owned; absolute */
    char band[PATH_CAP]; /* "" where there is none */
};

/* Adds the mounts; with --mount also the folders of the data that the bundle names, relative to
 * here. */
static enum status add_mounts(struct container_run *a, struct err *e) {
    const struct cli *cli = a->request.cli;
    struct launch_mounts *m = &a->request.mounts;
    const char *data = cli_value(cli, "data"), *init = cli_value(cli, "init");
    TRY(mounts_add(m, a->runs, true, e));
    TRY(mounts_add_cache(m, cli, e));
    TRY(mounts_add(m, a->bundle, false, e));
    if (data) TRY(mounts_add(m, data, false, e));
    if (init) TRY(mounts_add(m, init, false, e));
    if (*a->band) TRY(mounts_add(m, a->band, false, e));
    if (!cli_has(cli, "mount")) return OK;
    TRY(mounts_add(m, a->request.cwd, false, e));
    return mounts_add_data(m, a->source->run->config_json, NULL, e);
}

/* Finds the seed band. Inside, only the bundle is visible, not the folder around it. */
static enum status find_band(struct container_run *a, struct err *e) {
    const char *named = cli_value(a->request.cli, "band");
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
    static const char *const OURS[] = { "image", "mount", "runs", "cache", "data", "init", "band",
                                        NULL };
    struct words *w = &a->request.command;
    words_add(w, "repro");
    launch_carry_flags(a->request.cli, OURS, w);
    TRY(add_path(w, "runs", a->runs, e));
    TRY(add_path(w, "cache", cli_value(a->request.cli, "cache"), e));
    TRY(add_path(w, "data", cli_value(a->request.cli, "data"), e));
    TRY(add_path(w, "init", cli_value(a->request.cli, "init"), e));
    TRY(add_path(w, "band", *a->band ? a->band : NULL, e));
    words_add(w, a->bundle);
    return OK;
}

/* The working directory inside must be mounted: this folder, or the folder of runs. */
static enum status prepare(struct container_run *a, struct err *e) {
    const struct cli *cli = a->request.cli;
    if (cli_has(cli, "image") && !a->request.image)
        return FAIL(e, ERR_CONFIG, "--image: the bundle names no image");
    a->bundle = realpath(a->source->bundle, NULL);
    a->request.cwd = realpath(cli_has(cli, "mount") ? "." : a->runs, NULL);
    if (!a->bundle || !a->request.cwd)
        return FAIL(e, ERR_IO, "%s: it is gone", a->source->bundle);
    TRY(find_band(a, e));
    TRY(add_mounts(a, e));
    return make_command(a, e);
}

int repro_launch(const struct cli *cli, const struct repro_source *source, const char *runs) {
    const json_t *config = source->run->config_json;
    bool named = cli_has(cli, "image");
    struct container_run a = {
        .request = { .cli = cli, .name = source->run->name, .configs = &config, .count = 1,
                     .image = named ? json_text(config, "image", NULL) : NULL,
                     /* A foreign image must not judge itself: this program is mounted into it. */
                     .holds_fp8lab = !named },
        .source = source, .runs = runs,
    };
    struct err e = { 0 };
    int code = prepare(&a, &e) == OK ? launch(&a.request) : cli_fail(cli, &e);
    launch_request_free(&a.request);
    free(a.bundle);
    return code;
}
