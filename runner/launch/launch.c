#include "runner/launch/launch.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/base/canonical.h"
#include "runner/base/foreground.h"
#include "runner/hardware/facts.h"

enum { HELP_MAX = 1 << 20 }; /* bytes of `srun --help` that are read */

struct launch {
    struct launch_request *request;
    struct words environment, extra;
    struct launch_slurm slurm;
    char program[PATH_CAP]; /* the executable to mount; "" if the image's own is used */
    char own_image[LAUNCH_IMAGE_CAP]; /* this launcher's name of our image */
    struct launch_plan plan;
};

/* ---- flags ----------------------------------------------------------------------------------- */

static bool is_launch_flag(const char *name) {
    static const struct flag OURS[] = { LAUNCH_FLAGS };
    for (size_t i = 0; i < sizeof OURS / sizeof *OURS; i++)
        if (!strcmp(name, OURS[i].name)) return true;
    return false;
}

enum status launch_check_flags(const struct cli *cli, struct err *e) {
    if (cli_has(cli, "launch")) return OK;
    for (int64_t i = 0; i < cli->flag_count; i++)
        if (is_launch_flag(cli->flags[i].name) || !strcmp(cli->flags[i].name, "image"))
            return FAIL(e, ERR_ARG, "--%s needs --launch docker, podman, apptainer or srun",
                        cli->flags[i].name);
    return OK;
}

void launch_carry_flags(const struct cli *cli, const char *const *not_these,
                        struct words *command) {
    for (int64_t i = 0; i < cli->flag_count; i++) {
        const struct cli_flag *flag = &cli->flags[i];
        bool ours = is_launch_flag(flag->name);
        for (const char *const *name = not_these; *name; name++)
            ours = ours || !strcmp(flag->name, *name);
        if (ours) continue;
        if (flag->value) words_addf(command, "--%s=%s", flag->name, flag->value);
        else words_addf(command, "--%s", flag->name);
    }
    if (cli->json) words_add(command, "--json");
    if (cli->quiet) words_add(command, "--quiet");
}

/* ---- the program inside ---------------------------------------------------------------------- */

/* Whether `make dist` made `folder`. Such a folder runs with any C library that is not older. */
static bool is_dist(const char *folder) {
    char program[PATH_CAP], lib[PATH_CAP];
    return path_join(program, folder, "bin/fp8lab", NULL) == OK && access(program, X_OK) == 0 &&
           path_join(lib, folder, "lib", NULL) == OK && path_is_directory(lib);
}

/* Without an image the nodes run this executable, which they see under the same path. */
static enum status find_self(struct launch *l, struct err *e) {
    ssize_t n = readlink("/proc/self/exe", l->program, sizeof l->program - 1);
    if (n <= 0) return FAIL(e, ERR_IO, "/proc/self/exe cannot be read");
    l->program[n] = '\0';
    l->plan.program = l->program;
    return OK;
}

/* The folder of this program, if `make dist` made it: it can be mounted into any image. */
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

static enum status choose_program(struct launch *l, struct err *e) {
    const char *asked = cli_value(l->request->cli, "program");
    char folder[PATH_CAP] = "";
    if (asked && !is_dist(asked))
        return FAIL(e, ERR_CONFIG, "--program %s: no folder of `make dist` (bin/fp8lab and lib)",
                    asked);
    char *real = asked ? realpath(asked, NULL) : NULL;
    if (real) snprintf(folder, sizeof folder, "%s", real);
    free(real);
    if (!*folder && l->request->bare) return find_self(l, e);
    if (!*folder && !l->request->holds_fp8lab && !find_dist(folder))
        return FAIL(e, ERR_CONFIG, "the image %.200s may hold no fp8lab: --program dist/fp8lab "
                    "mounts one of `make dist`; for a run, `make image BASE_IMAGE=...` builds an "
                    "image over it for --image", l->plan.image);
    if (!*folder) return OK;
    TRY(path_join(l->program, folder, "bin/fp8lab", e));
    l->plan.program = l->program;
    return mounts_add(&l->request->mounts, folder, false, e);
}

/* ---- what it is given ------------------------------------------------------------------------ */

/* Passes on variables that have the same meaning inside. */
static enum status add_environment(struct launch *l, struct err *e) {
    static const char *const PASSED[] = { "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "NO_COLOR" };
    for (size_t i = 0; i < sizeof PASSED / sizeof *PASSED; i++) {
        const char *value = getenv(PASSED[i]);
        if (value) words_addf(&l->environment, "%s=%s", PASSED[i], value);
    }
    return l->environment.failed ? FAIL(e, ERR_MEMORY, "environment") : OK;
}

/* Decides whether the container gets GPUs. An experiment with a hardware query or several GPUs
 * needs them; any other one uses GPUs if this machine has them. A scheduler is asked for GPUs only
 * if they are needed. */
static enum status want_gpus(struct launch *l, struct err *e) {
    const char *backend = cli_value(l->request->cli, "backend");
    bool wanted = backend && !strcmp(backend, "cuda");
    json_t *facts = NULL;
    for (int64_t i = 0; i < l->request->count; i++) {
        const json_t *hardware = json_object_get(l->request->configs[i], "hardware");
        int64_t gpus = json_int(hardware, "gpus");
        if (gpus > l->plan.gpus) l->plan.gpus = gpus;
        wanted = wanted || gpus > 1 || json_text(hardware, "query", NULL);
    }
    if (!wanted && l->plan.launcher != LAUNCH_SRUN) {
        TRY(facts_gather(&facts, NULL, 0, e));
        wanted = json_int(facts, "gpu.count") > 0;
        json_decref(facts);
    }
    l->plan.gpu = wanted && !(backend && !strcmp(backend, "cpu"));
    return OK;
}

/* Adds up the limits of the rows, which run one after another; a row without a limit removes the
 * limit. */
static void add_time_limits(struct launch *l) {
    for (int64_t i = 0; i < l->request->count; i++) {
        const json_t *train = json_object_get(l->request->configs[i], "train");
        int64_t limit = json_int(train, "time_limit_s");
        l->plan.time_limit_s = limit ? l->plan.time_limit_s + limit : 0;
        if (!limit) return;
    }
}

/* Asks for nodes. *matches false: no kind of node matches; the reason was printed. */
static enum status ask_scheduler(struct launch *l, bool *matches, struct err *e) {
    const struct launch_request *r = l->request;
    char *why = NULL;
    *matches = true;
    if (l->plan.launcher != LAUNCH_SRUN)
        return cli_has(r->cli, "slurm") ? FAIL(e, ERR_ARG, "--slurm is for --launch srun") : OK;
    TRY(launch_slurm_read(cli_value(r->cli, "slurm"), r->configs, r->count,
                          l->plan.gpu ? l->plan.gpus : 0, &l->slurm, &why, e));
    *matches = why == NULL;
    if (why)
        cli_warn(r->cli, "no kind of node in slurm.json is what the experiment asks for\n%.*s",
                 (int)strlen(why) - 1, why); /* cli_warn adds the newline */
    free(why);
    l->plan.constraint = l->slurm.constraint;
    l->plan.nodes = l->slurm.nodes;
    words_add_all(&l->extra, &l->slurm.flags);
    return OK;
}

static enum status make_plan(struct launch *l, bool *matches, struct err *e) {
    struct launch_request *r = l->request;
    struct launch_plan *p = &l->plan;
    if (r->command.failed) return FAIL(e, ERR_MEMORY, "a command line");
    TRY(launcher_find(cli_value(r->cli, "launch"), &p->launcher, e));
    *p = (struct launch_plan){
        .launcher = p->launcher, .name = r->name, .image = r->image, .gpus = 1, .nodes = 1,
        .local = r->image ? launch_image_is_own(r->image) : !r->bare, .grace_s = LAUNCH_GRACE_S,
        .extra = &l->extra, .cwd = r->cwd,
        .uid = geteuid(), .gid = getegid(), .mounts = &r->mounts, .environment = &l->environment,
        .command = &r->command,
    };
    if (p->local) {
        TRY(launch_image_own(p->launcher, r->image, l->own_image, e));
        p->image = l->own_image;
    }
    TRY(cli_int(r->cli, "grace", 1, LAUNCH_GRACE_MAX_S, &p->grace_s, e));
    TRY(choose_program(l, e));
    TRY(add_environment(l, e));
    TRY(want_gpus(l, e));
    add_time_limits(l);
    TRY(ask_scheduler(l, matches, e));
    for (int64_t i = 0; i < cli_count(r->cli, "launch-arg"); i++)
        words_add(&l->extra, cli_nth(r->cli, "launch-arg", i));
    return l->extra.failed ? FAIL(e, ERR_MEMORY, "a command line") : OK;
}

/* ---- printing and starting ------------------------------------------------------------------- */

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

/* ERR_CONFIG without Pyxis, which adds its flags to srun's own help. If srun prints no help,
 * nothing is known. */
static enum status require_pyxis(struct err *e) {
    static const char *const ASK[] = { "srun", "--help", NULL };
    size_t n = 0;
    char *text = NULL;
    bool known = !foreground_capture(ASK, HELP_MAX, &text, &n) || n == 0 ||
                 strstr(text, "--container-image") != NULL;
    free(text);
    return known ? OK : FAIL(e, ERR_CONFIG, "this srun knows no --container-image: Slurm starts "
                             "images by Pyxis, NVIDIA's plugin for it, which is not installed "
                             "here; --image none runs this program on the node itself");
}

static enum status require_launcher(const struct launch_plan *p, struct err *e) {
    const char *program = launcher_name(p->launcher), *other = NULL;
    for (int i = 0; i < LAUNCHER_COUNT && !other; i++)
        if (program_in_path(launcher_name((enum launcher)i)))
            other = launcher_name((enum launcher)i);
    if (!program_in_path(program))
        return FAIL(e, ERR_CONFIG, "there is no %s in PATH%s%s", program,
                    other ? "; there is: --launch " : "", other ? other : "");
    if (p->launcher == LAUNCH_SRUN && p->image) TRY(require_pyxis(e));
    if (p->launcher != LAUNCH_APPTAINER || !p->local || path_exists(p->image)) return OK;
    return FAIL(e, ERR_CONFIG, "there is no %s here: `make sif` builds it, --image names another; "
                "--image docker-daemon:fp8lab:latest takes the image that docker has", p->image);
}

/* Explains the launcher's own exit codes: docker-run(1), podman-run(1), "Exit status". */
static int explain(const struct cli *cli, const struct launch_plan *p, int code) {
    const char *tool = launcher_name(p->launcher);
    bool container = p->launcher == LAUNCH_DOCKER || p->launcher == LAUNCH_PODMAN;
    bool missing = code == 127 || (container && code == 126), broken = container && code == 125;
    if (broken) cli_warn(cli, "%s itself failed (exit code 125): see above", tool);
    if (missing && p->image)
        cli_warn(cli, "the image %s could not start fp8lab: `make image` builds one that can, and "
                 "--program FOLDER mounts a folder of `make dist` into any other", p->image);
    if (missing && !p->image)
        cli_warn(cli, "the node could not start %s: is that folder on a file system that it sees?",
                 p->program);
    return broken || missing ? EXIT_SYSTEM : code;
}

void launch_request_free(struct launch_request *r) {
    words_free(&r->command);
    mounts_free(&r->mounts);
    free(r->cwd);
}

int launch(struct launch_request *r) {
    struct launch l = { .request = r };
    struct words argv = { 0 };
    struct err e = { 0 };
    bool matches = true, dry = cli_has(r->cli, "dry-run");
    int code = EXIT_OK;
    enum status st = make_plan(&l, &matches, &e);
    if (st == OK && matches) st = launch_command(&l.plan, &argv, &e);
    if (st == OK && !matches) code = EXIT_HARDWARE;
    if (st == OK && matches && dry) st = print_command(r->cli, &argv, &e);
    if (st == OK && matches && !dry) {
        st = require_launcher(&l.plan, &e);
        /* srun kills its tasks at SIGTERM; it forwards SIGUSR1 to them. */
        int stop_as = l.plan.launcher == LAUNCH_SRUN ? SIGUSR1 : 0;
        if (st == OK) st = foreground_run(argv.word, STDOUT_FILENO, stop_as, &code, &e);
        if (st == OK) code = explain(r->cli, &l.plan, code);
    }
    if (st != OK) code = cli_fail(r->cli, &e);
    words_free(&argv);
    words_free(&l.environment);
    words_free(&l.extra);
    launch_slurm_free(&l.slurm);
    return code;
}
