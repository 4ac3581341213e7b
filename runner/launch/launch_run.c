/* run --launch: the script is resolved here, to know its image, GPUs and time, and again inside,
 * where it runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/bundle/run_view.h"
#include "runner/launch/launch.h"
#include "runner/script/script_flags.h"

struct subject {
    const struct cli *cli;
    struct resolution resolution;
    struct run_view resumed;  /* with --resume or --extend */
    const json_t **configs;   /* owned; configurations of all runs */
    int64_t count;
    const char *image;        /* NULL: no image is named */
    bool asked;               /* the image is from the command line */
    bool bare;                /* the image is "none" */
    char *cwd;                /* owned */
    char lib[PATH_CAP];       /* the shared presets, or "" */
    struct launch_mounts mounts;
    struct words command;
};

/* ---- what is to run -------------------------------------------------------------------------- */

static enum status read_script(struct subject *s, struct err *e) {
    if (s->cli->arg_count == 0)
        return FAIL(e, ERR_ARG, "missing argument: fp8lab run FILE.lua --launch NAME");
    TRY(script_resolve(s->cli, NULL, &s->resolution, e));
    s->count = s->resolution.run_count;
    s->configs = calloc((size_t)s->count + 1, sizeof *s->configs);
    if (!s->configs) return FAIL(e, ERR_MEMORY, "%lld runs", (long long)s->count);
    for (int64_t i = 0; i < s->count; i++) s->configs[i] = s->resolution.runs[i].config_json;
    return OK;
}

static enum status read_resumed(struct subject *s, struct err *e) {
    char path[PATH_CAP];
    const char *run = cli_value(s->cli, cli_has(s->cli, "resume") ? "resume" : "extend");
    TRY(run_locate(run, cli_runs(s->cli), path, e));
    TRY(run_view_load(path, RUN_VIEW_FULL, &s->resumed, e));
    if (!s->resumed.resolved) return FAIL(e, ERR_FORMAT, "%s holds no configuration", path);
    s->count = 1;
    s->configs = calloc(1, sizeof *s->configs);
    if (!s->configs) return FAIL(e, ERR_MEMORY, "a configuration");
    s->configs[0] = s->resumed.resolved;
    return OK;
}

/* All rows of a command run in one container, so they must name the same image. */
static enum status choose_image(struct subject *s, struct err *e) {
    s->image = cli_value(s->cli, "image");
    s->asked = s->image != NULL;
    s->bare = s->asked && !strcmp(s->image, "none");
    if (s->bare) s->image = NULL;
    for (int64_t i = 0; i < s->count && !s->asked; i++) {
        const char *image = json_text(s->configs[i], "image", NULL);
        if (i && (!s->image != !image || (image && strcmp(s->image, image) != 0)))
            return FAIL(e, ERR_CONFIG, "the rows of %s name different images (%.200s, %.200s); "
                        "--image says which", s->resolution.name, s->image ? s->image : "none",
                        image ? image : "none");
        s->image = image;
    }
    return OK;
}

/* ---- what it sees, and what is typed --------------------------------------------------------- */

/* Resolves "..", since the parent folder may not be mounted inside. */
static void find_presets(struct subject *s) {
    char found[PATH_CAP];
    const char *asked = cli_value(s->cli, "lib");
    if (!asked) resolve_find_lib(found);
    char *real = asked || *found ? realpath(asked ? asked : found, NULL) : NULL;
    if (real) snprintf(s->lib, sizeof s->lib, "%s", real);
    free(real);
}

static enum status add_mounts(struct subject *s, struct err *e) {
    const struct cli *cli = s->cli;
    struct launch_mounts *m = &s->mounts;
    const char *choices = cli_value(cli, "choices");
    TRY(mounts_add(m, s->cwd, false, e));
    if (!cli_has(cli, "dry-run")) TRY(directory_make(cli_runs(cli), e));
    TRY(mounts_add(m, cli_runs(cli), true, e));
    if (s->resumed.run) TRY(mounts_add_parent(m, s->resumed.path, e));
    for (int64_t i = 0; i < s->resolution.file_count; i++)
        TRY(mounts_add_parent(m, s->resolution.files[i].path, e));
    if (*s->lib) TRY(mounts_add(m, s->lib, false, e));
    if (choices && strcmp(choices, "none") != 0) TRY(mounts_add_parent(m, choices, e));
    for (int64_t i = 0; i < s->count; i++)
        TRY(mounts_add_data(m, s->configs[i], cli_value(cli, "data-root"), e));
    return OK;
}

/* The same command without the launcher's flags. --lib names the presets, since the image may hold
 * others. */
static enum status make_command(struct subject *s, struct err *e) {
    static const char *const OURS[] = { "image", "lib", NULL };
    struct words *w = &s->command;
    words_add(w, "run");
    launch_carry_flags(s->cli, OURS, w);
    if (*s->lib) words_addf(w, "--lib=%s", s->lib);
    if (s->cli->arg_count && s->cli->args[0][0] == '-') words_add(w, "--");
    if (s->cli->arg_count) words_add(w, s->cli->args[0]);
    return w->failed ? FAIL(e, ERR_MEMORY, "a command line") : OK;
}

static enum status prepare(struct subject *s, struct err *e) {
    bool goes_on = cli_has(s->cli, "resume") || cli_has(s->cli, "extend");
    TRY(goes_on ? read_resumed(s, e) : read_script(s, e));
    TRY(choose_image(s, e));
    s->cwd = realpath(".", NULL);
    if (!s->cwd) return FAIL(e, ERR_IO, "the working directory cannot be read");
    find_presets(s);
    TRY(add_mounts(s, e));
    return make_command(s, e);
}

int launch_run(const struct cli *cli) {
    struct subject s = { .cli = cli };
    struct err e = { 0 };
    enum status st = prepare(&s, &e);
    struct launch_request request = {
        .cli = cli, .configs = s.configs, .count = s.count, .image = s.image, .cwd = s.cwd,
        .name = s.resumed.run ? json_text(s.resumed.run, "name", "run") : s.resolution.name,
        /* A user who names an image on the command line is responsible for its contents. */
        .holds_fp8lab = s.asked || !s.image || launch_image_is_own(s.image),
        .bare = s.bare, .mounts = &s.mounts, .command = &s.command,
    };
    int code = st == OK ? launch(&request) : cli_fail(cli, &e);
    words_free(&s.command);
    mounts_free(&s.mounts);
    resolution_destroy(&s.resolution);
    if (s.resumed.run) run_view_free(&s.resumed);
    free(s.configs);
    free(s.cwd);
    return code;
}
