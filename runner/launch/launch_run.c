/* run --launch: the script is resolved here, to know its image, GPUs and time, and again inside,
 * where it runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/bundle/run_view.h"
#include "runner/launch/launch.h"
#include "runner/script/script_flags.h"

struct subject {
    struct launch_request request;
    struct resolution resolution;
    struct run_view resumed; /* with --resume or --extend */
    const json_t **configs;  /* owned; configurations of all runs */
    char lib[PATH_CAP];      /* the shared presets, or "" */
};

/* ---- what is to run -------------------------------------------------------------------------- */

static enum status read_script(struct subject *s, struct err *e) {
    if (s->request.cli->arg_count == 0)
        return FAIL(e, ERR_ARG, "missing argument: fp8lab run FILE.lua --launch NAME");
    TRY(script_resolve(s->request.cli, NULL, &s->resolution, e));
    s->request.name = s->resolution.name;
    s->request.count = s->resolution.run_count;
    s->configs = calloc((size_t)s->request.count + 1, sizeof *s->configs);
    if (!s->configs) return FAIL(e, ERR_MEMORY, "%lld runs", (long long)s->request.count);
    for (int64_t i = 0; i < s->request.count; i++)
        s->configs[i] = s->resolution.runs[i].config_json;
    return OK;
}

static enum status read_resumed(struct subject *s, struct err *e) {
    const struct cli *cli = s->request.cli;
    char path[PATH_CAP];
    bool resumes = cli_has(cli, "resume");
    TRY(run_locate_among(cli_value(cli, resumes ? "resume" : "extend"), cli_runs(cli),
                         resumes ? RUNS_ALL : RUNS_WHOLE, path, e));
    TRY(run_view_load(path, RUN_VIEW_FULL, &s->resumed, e));
    if (!s->resumed.resolved) return FAIL(e, ERR_FORMAT, "%s holds no configuration", path);
    s->request.name = json_text(s->resumed.run, "name", "run");
    s->request.count = 1;
    s->configs = calloc(1, sizeof *s->configs);
    if (!s->configs) return FAIL(e, ERR_MEMORY, "a configuration");
    s->configs[0] = s->resumed.resolved;
    return OK;
}

/* All rows of a command run in one container, so they must name the same image. A user who names an
 * image on the command line is responsible for its contents. */
static enum status choose_image(struct subject *s, struct err *e) {
    struct launch_request *r = &s->request;
    const char *asked = cli_value(r->cli, "image");
    r->bare = asked && !strcmp(asked, "none");
    r->image = r->bare ? NULL : asked;
    for (int64_t i = 0; i < r->count && !asked; i++) {
        const char *image = json_text(s->configs[i], "image", NULL);
        if (i && (!r->image != !image || (image && strcmp(r->image, image) != 0)))
            return FAIL(e, ERR_CONFIG, "the rows of %s name different images (%.200s, %.200s); "
                        "--image says which", s->resolution.name, r->image ? r->image : "none",
                        image ? image : "none");
        r->image = image;
    }
    r->holds_fp8lab = asked || !r->image || launch_image_is_own(r->image);
    return OK;
}

/* ---- what it sees, and what is typed --------------------------------------------------------- */

/* Resolves "..", since the parent folder may not be mounted inside. */
static void find_presets(struct subject *s) {
    char found[PATH_CAP];
    const char *asked = cli_value(s->request.cli, "lib");
    if (!asked) resolve_find_lib(found);
    char *real = asked || *found ? realpath(asked ? asked : found, NULL) : NULL;
    if (real) snprintf(s->lib, sizeof s->lib, "%s", real);
    free(real);
}

static enum status add_mounts(struct subject *s, struct err *e) {
    const struct cli *cli = s->request.cli;
    struct launch_mounts *m = &s->request.mounts;
    const char *choices = cli_value(cli, "choices");
    TRY(mounts_add(m, s->request.cwd, false, e));
    if (!cli_has(cli, "dry-run")) TRY(directory_make(cli_runs(cli), e));
    TRY(mounts_add(m, cli_runs(cli), true, e));
    TRY(mounts_add_cache(m, cli, e));
    if (s->resumed.run) TRY(mounts_add_parent(m, s->resumed.path, e));
    for (int64_t i = 0; i < s->resolution.file_count; i++)
        TRY(mounts_add_parent(m, s->resolution.files[i].path, e));
    if (*s->lib) TRY(mounts_add(m, s->lib, false, e));
    if (choices && strcmp(choices, "none") != 0) TRY(mounts_add_parent(m, choices, e));
    for (int64_t i = 0; i < s->request.count; i++)
        TRY(mounts_add_data(m, s->configs[i], cli_value(cli, "data-root"), e));
    return OK;
}

/* The same command without the launcher's flags. --lib names the presets, since the image may hold
 * others. */
static void make_command(struct subject *s) {
    static const char *const OURS[] = { "image", "lib", NULL };
    const struct cli *cli = s->request.cli;
    struct words *w = &s->request.command;
    words_add(w, "run");
    launch_carry_flags(cli, OURS, w);
    if (*s->lib) words_addf(w, "--lib=%s", s->lib);
    if (cli->arg_count && cli->args[0][0] == '-') words_add(w, "--");
    if (cli->arg_count) words_add(w, cli->args[0]);
}

static enum status prepare(struct subject *s, struct err *e) {
    const struct cli *cli = s->request.cli;
    bool goes_on = cli_has(cli, "resume") || cli_has(cli, "extend");
    TRY(goes_on ? read_resumed(s, e) : read_script(s, e));
    s->request.configs = s->configs;
    TRY(choose_image(s, e));
    s->request.cwd = realpath(".", NULL);
    if (!s->request.cwd) return FAIL(e, ERR_IO, "the working directory cannot be read");
    find_presets(s);
    TRY(add_mounts(s, e));
    make_command(s);
    return OK;
}

int launch_run(const struct cli *cli) {
    struct subject s = { .request = { .cli = cli } };
    struct err e = { 0 };
    int code = prepare(&s, &e) == OK ? launch(&s.request) : script_fail(cli, &s.resolution, &e);
    launch_request_free(&s.request);
    resolution_destroy(&s.resolution);
    if (s.resumed.run) run_view_free(&s.resumed);
    free(s.configs);
    return code;
}
