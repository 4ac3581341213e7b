/* From the command line of `run --launch` to a plan. */
#include "runner/launch.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/canonical.h"
#include "runner/facts.h"
#include "runner/run_view.h"
#include "runner/script_flags.h"

/* What `make image` and containers/README.md build, where an experiment names no image. */
static const char *const OWN_IMAGE[LAUNCHER_COUNT] = {
    [LAUNCH_DOCKER] = "fp8lab", [LAUNCH_PODMAN] = "localhost/fp8lab",
    [LAUNCH_APPTAINER] = "./fp8lab.sif", [LAUNCH_SRUN] = "./fp8lab.sqsh",
};

struct launch {
    const struct cli *cli;
    struct resolution resolution;
    struct run_view resumed; /* with --resume */
    struct launch_mounts mounts;
    struct words command, environment, extra;
    struct launch_slurm slurm;
    char *cwd; /* owned */
    char program[PATH_CAP], lib[PATH_CAP];
    struct launch_plan plan;
};

/* ---- what is to run -------------------------------------------------------------------------- */

static int64_t row_count(const struct launch *l) {
    return l->resumed.resolved ? 1 : l->resolution.run_count;
}

static const json_t *row_config(const struct launch *l, int64_t i) {
    return l->resumed.resolved ? l->resumed.resolved : l->resolution.runs[i].config_json;
}

static enum status read_subject(struct launch *l, struct err *e) {
    const struct cli *cli = l->cli;
    char path[PATH_CAP];
    if (!cli_has(cli, "resume")) {
        if (cli->arg_count == 0)
            return FAIL(e, ERR_ARG, "missing argument: fp8lab run FILE.lua --launch NAME");
        return script_resolve(cli, &l->resolution, e);
    }
    const char *runs = cli_has(cli, "runs") ? cli_value(cli, "runs") : "runs";
    TRY(run_locate(cli_value(cli, "resume"), runs, path, e));
    TRY(run_view_load(path, RUN_VIEW_FULL, &l->resumed, e));
    return l->resumed.resolved ? OK : FAIL(e, ERR_FORMAT, "%s holds no configuration", path);
}

/* All rows of a command run in one container, so they must name one image. */
static enum status choose_image(struct launch *l, bool *own, struct err *e) {
    const char *asked = cli_value(l->cli, "image"), *named = NULL;
    for (int64_t i = 0; i < row_count(l) && !asked; i++) {
        const char *image = json_text(row_config(l, i), "image", NULL);
        if (i && (!named != !image || (named && strcmp(named, image) != 0)))
            return FAIL(e, ERR_CONFIG, "the rows of %s name different images (%.200s, %.200s); "
                        "--image says which", l->resolution.name, named ? named : "none",
                        image ? image : "none");
        named = image;
    }
    *own = asked || !named; /* whoever names an image on the command line knows what is in it */
    l->plan.local = !asked && !named;
    l->plan.image = asked ? asked : named ? named : OWN_IMAGE[l->plan.launcher];
    return OK;
}

/* ---- the program inside ---------------------------------------------------------------------- */

/* Whether `folder` is one that `make dist` lays out: it runs wherever the C library is as new. */
static bool is_dist(const char *folder) {
    char program[PATH_CAP], lib[PATH_CAP];
    return path_join(program, folder, "bin/fp8lab", NULL) == OK && access(program, X_OK) == 0 &&
           path_join(lib, folder, "lib", NULL) == OK && path_is_directory(lib);
}

/* The folder that we run from, where it is such a one: it can be mounted into any image. */
static bool find_dist(char out[PATH_CAP]) {
    char self[PATH_CAP], folder[PATH_CAP];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return false;
    self[n] = '\0';
    path_parent(folder, self);
    path_parent(out, folder);
    if (is_dist(out)) return true;
    out[0] = '\0';
    return false;
}

static enum status choose_program(struct launch *l, bool own, struct err *e) {
    const char *asked = cli_value(l->cli, "program");
    if (asked && !is_dist(asked))
        return FAIL(e, ERR_CONFIG, "--program %s: no folder of `make dist` (bin/fp8lab and lib)",
                    asked);
    char *real = asked ? realpath(asked, NULL) : NULL;
    if (real) snprintf(l->program, sizeof l->program, "%s", real);
    free(real);
    if (!*l->program && !own && !find_dist(l->program))
        return FAIL(e, ERR_CONFIG, "the experiment's image %.200s need not hold fp8lab: build one "
                    "over it (make image BASE_IMAGE=...) and name that with --image, or `make dist`"
                    " and --program dist/fp8lab", l->plan.image);
    if (!*l->program) return OK;
    l->plan.program = l->program;
    return mounts_add(&l->mounts, l->program, false, e);
}

/* ---- what it sees ---------------------------------------------------------------------------- */

static enum status add_mounts(struct launch *l, struct err *e) {
    const struct cli *cli = l->cli;
    const char *runs = cli_has(cli, "runs") ? cli_value(cli, "runs") : "runs";
    const char *root = cli_value(cli, "data-root"), *choices = cli_value(cli, "choices");
    TRY(mounts_add(&l->mounts, l->cwd, false, e));
    if (!cli_has(cli, "dry-run")) TRY(directory_make(runs, e));
    TRY(mounts_add(&l->mounts, runs, true, e));
    if (l->resumed.resolved) TRY(mounts_add_parent(&l->mounts, l->resumed.path, e));
    for (int64_t i = 0; i < l->resolution.file_count; i++)
        TRY(mounts_add_parent(&l->mounts, l->resolution.files[i].path, e));
    if (*l->lib) TRY(mounts_add(&l->mounts, l->lib, false, e));
    if (choices && strcmp(choices, "none") != 0) TRY(mounts_add_parent(&l->mounts, choices, e));
    for (int64_t i = 0; i < row_count(l); i++)
        TRY(mounts_add_data(&l->mounts, row_config(l, i), root, e));
    return OK;
}

/* ---- what is typed inside -------------------------------------------------------------------- */

static bool is_launch_flag(const char *name) {
    static const char *const OURS[] = { "launch", "dry-run", "image", "program", "launch-arg",
                                        "slurm" };
    for (size_t i = 0; i < sizeof OURS / sizeof *OURS; i++)
        if (!strcmp(name, OURS[i])) return true;
    return false;
}

/* The same command without our flags. The presets are named, since the image may hold others. */
static enum status make_command(struct launch *l, struct err *e) {
    const struct cli *cli = l->cli;
    struct words *w = &l->command;
    words_add(w, "run");
    for (int64_t i = 0; i < cli->flag_count; i++) {
        const struct cli_flag *flag = &cli->flags[i];
        if (is_launch_flag(flag->name) || !strcmp(flag->name, "lib")) continue;
        if (flag->value) words_addf(w, "--%s=%s", flag->name, flag->value);
        else words_addf(w, "--%s", flag->name);
    }
    if (cli->json) words_add(w, "--json");
    if (cli->quiet) words_add(w, "--quiet");
    if (*l->lib) words_addf(w, "--lib=%s", l->lib);
    if (cli->arg_count && cli->args[0][0] == '-') words_add(w, "--");
    if (cli->arg_count) words_add(w, cli->args[0]);
    return w->failed ? FAIL(e, ERR_MEMORY, "a command line") : OK;
}

/* Variables of the user's that mean the same inside. */
static enum status add_environment(struct launch *l, struct err *e) {
    static const char *const PASSED[] = { "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "NO_COLOR" };
    for (size_t i = 0; i < sizeof PASSED / sizeof *PASSED; i++) {
        const char *value = getenv(PASSED[i]);
        if (value) words_addf(&l->environment, "%s=%s", PASSED[i], value);
    }
    return l->environment.failed ? FAIL(e, ERR_MEMORY, "environment") : OK;
}

/* ---- GPUs and time --------------------------------------------------------------------------- */

/* An experiment with a hardware query, or on several GPUs, wants GPUs; any other one takes what
 * this machine has. A scheduler is asked for them only where they are wanted. */
static enum status want_gpus(struct launch *l, struct err *e) {
    const char *backend = cli_value(l->cli, "backend");
    bool wanted = backend && !strcmp(backend, "cuda");
    json_t *facts = NULL;
    for (int64_t i = 0; i < row_count(l); i++) {
        const json_t *hardware = json_object_get(row_config(l, i), "hardware");
        int64_t gpus = json_integer_value(json_object_get(hardware, "gpus"));
        if (gpus > l->plan.gpus) l->plan.gpus = gpus;
        wanted = wanted || gpus > 1 || json_text(hardware, "query", NULL);
    }
    if (!wanted && l->plan.launcher != LAUNCH_SRUN) {
        TRY(facts_gather(&facts, NULL, 0, e));
        wanted = json_integer_value(json_object_get(facts, "gpu.count")) > 0;
        json_decref(facts);
    }
    l->plan.gpu = wanted && !(backend && !strcmp(backend, "cpu"));
    return OK;
}

/* The rows run one after another; one without a limit leaves the whole without. */
static void add_time_limits(struct launch *l) {
    for (int64_t i = 0; i < row_count(l); i++) {
        const json_t *train = json_object_get(row_config(l, i), "train");
        int64_t limit = json_integer_value(json_object_get(train, "time_limit_s"));
        if (!limit) l->plan.time_limit_s = 0;
        if (!limit) return;
        l->plan.time_limit_s += limit;
    }
}

/* *matches false: no kind of node will do, and it is said why. */
static enum status ask_scheduler(struct launch *l, bool *matches, struct err *e) {
    char *why = NULL;
    *matches = true;
    if (l->plan.launcher != LAUNCH_SRUN) {
        if (cli_has(l->cli, "slurm"))
            return FAIL(e, ERR_ARG, "--slurm is for --launch srun");
        return OK;
    }
    TRY(launch_slurm_read(cli_value(l->cli, "slurm"), &l->resolution, &l->slurm, &why, e));
    *matches = why == NULL;
    if (why)
        cli_warn(l->cli, "no kind of node in slurm.json is what the experiment asks for\n%.*s",
                 (int)strlen(why) - 1, why); /* cli_warn ends the line */
    free(why);
    l->plan.constraint = l->slurm.constraint;
    for (int64_t i = 0; i < l->slurm.flags.count; i++)
        words_add(&l->extra, l->slurm.flags.word[i]);
    return OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* The folder of the shared presets, without "..": what it would climb out of is not there inside. */
static void find_presets(struct launch *l) {
    char found[PATH_CAP];
    const char *asked = cli_value(l->cli, "lib");
    if (!asked) resolve_find_lib(found);
    char *real = asked || *found ? realpath(asked ? asked : found, NULL) : NULL;
    if (real) snprintf(l->lib, sizeof l->lib, "%s", real);
    free(real);
}

static enum status make_plan(struct launch *l, bool *matches, struct err *e) {
    const struct cli *cli = l->cli;
    struct launch_plan *p = &l->plan;
    bool own = false;
    TRY(launcher_find(cli_value(cli, "launch"), &p->launcher, e));
    TRY(read_subject(l, e));
    if (!(l->cwd = realpath(".", NULL)))
        return FAIL(e, ERR_IO, "the working directory cannot be read");
    find_presets(l);
    TRY(choose_image(l, &own, e));
    TRY(add_mounts(l, e));
    TRY(choose_program(l, own, e));
    TRY(make_command(l, e));
    TRY(add_environment(l, e));
    TRY(want_gpus(l, e));
    add_time_limits(l);
    TRY(ask_scheduler(l, matches, e));
    for (int64_t i = 0; i < cli_count(cli, "launch-arg"); i++)
        words_add(&l->extra, cli_nth(cli, "launch-arg", i));
    p->name = l->resolution.name ? l->resolution.name : json_text(l->resumed.run, "name", "run");
    p->extra = &l->extra;
    p->cwd = l->cwd;
    p->uid = geteuid();
    p->gid = getegid();
    p->mounts = &l->mounts;
    p->environment = &l->environment;
    p->command = &l->command;
    return l->extra.failed ? FAIL(e, ERR_MEMORY, "a command line") : OK;
}

static enum status print_command(const struct cli *cli, const struct words *argv, struct err *e) {
    char *text = words_text(argv);
    if (!text) return FAIL(e, ERR_MEMORY, "a command line");
    if (cli->json) {
        json_t *list = json_array();
        for (int64_t i = 0; list && i < argv->count; i++)
            json_array_append_new(list, json_from_text(argv->word[i]));
        json_t *object = json_pack("{s:s,s:o,s:o}", "schema", "fp8lab.launch/1", "argv", list,
                                   "text", json_from_text(text));
        cli_out_json(cli, object);
        json_decref(object);
    } else {
        cli_out(cli, "%s\n", text);
    }
    free(text);
    return OK;
}

int launch_run(const struct cli *cli) {
    struct launch l = { .cli = cli, .plan.gpus = 1 };
    struct words argv = { 0 };
    struct err e = { 0 };
    bool matches = true;
    int code = EXIT_OK;
    enum status st = make_plan(&l, &matches, &e);
    if (st == OK && matches) st = launch_command(&l.plan, &argv, &e);
    if (st == OK && !matches) code = EXIT_HARDWARE;
    else if (st == OK && cli_has(cli, "dry-run")) st = print_command(cli, &argv, &e);
    else if (st == OK) st = launch_start(cli, &l.plan, &argv, &code, &e);
    if (st != OK) code = cli_fail(cli, &e);
    words_free(&argv);
    words_free(&l.command);
    words_free(&l.environment);
    words_free(&l.extra);
    launch_slurm_free(&l.slurm);
    mounts_free(&l.mounts);
    resolution_destroy(&l.resolution);
    if (l.resumed.run) run_view_free(&l.resumed);
    free(l.cwd);
    return code;
}
