/* The command line of each launcher: a function of the plan, without looking at the machine. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runner/base/canonical.h"
#include "runner/base/nearest.h"
#include "runner/launch/launch.h"

static const char *const NAMES[LAUNCHER_COUNT] = { "docker", "podman", "apptainer", "srun" };

const char *launcher_name(enum launcher launcher) { return NAMES[launcher]; }

enum status launcher_find(const char *name, enum launcher *out, struct err *e) {
    for (int i = 0; i < LAUNCHER_COUNT; i++) {
        if (strcmp(name, NAMES[i]) != 0) continue;
        *out = (enum launcher)i;
        return OK;
    }
    const char *near = nearest_name(name, NAMES, LAUNCHER_COUNT);
    return FAIL(e, ERR_ARG, "--launch %s: there are docker, podman, apptainer and srun%s%s%s", name,
                near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

/* ---- images ---------------------------------------------------------------------------------- */

static bool is_path(const char *image) { return image[0] == '/' || !strncmp(image, "./", 2); }

/* The name without "docker://", which docker, podman and Enroot do not take in their words. */
static const char *without_docker(const char *image) {
    static const char DOCKER[] = "docker://";
    size_t n = sizeof DOCKER - 1;
    return strncmp(image, DOCKER, n) == 0 ? image + n : image;
}

/* Whether the image says by itself where it is: oras://, library://, or docker-daemon:NAME:TAG, an
 * image of docker on this machine. */
static bool has_scheme(const char *image) {
    static const char DAEMON[] = "docker-daemon:";
    return !is_path(image) &&
           (strstr(image, "://") || strncmp(image, DAEMON, sizeof DAEMON - 1) == 0);
}

/* Accepts a reference ([docker://][registry/]name[:tag][@digest]) or a path that begins with '/' or
 * "./", so that no launcher takes the image for a flag. Only apptainer reads other schemes. */
static enum status check_image(const char *image, enum launcher launcher, struct err *e) {
    static const char LETTERS[] = "abcdefghijklmnopqrstuvwxyz" "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789", MARKS[] = "._/:@+-";
    char all[sizeof LETTERS + sizeof MARKS];
    const char *name = without_docker(image);
    snprintf(all, sizeof all, "%s%s", LETTERS, MARKS);
    bool begins = is_path(image) || (*name && strchr(LETTERS, *name));
    if (!begins || name[strspn(name, all)] != '\0')
        return FAIL(e, ERR_CONFIG, "'%.200s' names no image: [registry/]name[:tag], or a path that "
                    "begins with / or ./", image);
    if (launcher == LAUNCH_APPTAINER || !has_scheme(name)) return OK;
    return FAIL(e, ERR_CONFIG, "%.200s: only --launch apptainer reads this scheme; for %s, write "
                "--image [registry/]name[:tag]%s", image, launcher_name(launcher),
                launcher == LAUNCH_SRUN ? ", or the file of enroot import: ./x.sqsh" : "");
}

static bool has_digest(const char *image) { return strchr(image, '@') != NULL; }

/* Enroot separates the registry by '#', docker by the first '/'. The part before the first '/' is a
 * registry if it holds a dot or a port, or is localhost (docker's rule). */
static void add_pyxis_image(struct words *w, const char *image) {
    size_t n = strcspn(image, "/:");
    n += image[n] == ':' ? strcspn(image + n, "/") : 0;
    char first[256];
    snprintf(first, sizeof first, "%.*s", (int)n, image);
    bool registry = image[n] == '/' && !is_path(image) &&
                    (strpbrk(first, ".:") || !strcmp(first, "localhost"));
    if (registry) words_addf(w, "--container-image=%s#%s", first, image + n + 1);
    else words_addf(w, "--container-image=%s", image);
}

static void add_apptainer_image(struct words *w, const char *image) {
    bool whole = is_path(image) || has_scheme(image);
    words_addf(w, "%s%s", whole ? "" : "docker://", image);
}

/* ---- parts that launchers share -------------------------------------------------------------- */

static void add_program(struct words *w, const struct launch_plan *p) {
    words_add(w, p->program ? p->program : "fp8lab");
}

/* docker and podman: the image starts its own fp8lab, unless another one is mounted. */
static void add_image_and_command(struct words *w, const struct launch_plan *p) {
    if (p->program) words_addf(w, "--entrypoint=%s", p->program);
    words_add(w, without_docker(p->image));
    words_add_all(w, p->command);
}

static void add_binds(struct words *w, const struct launch_plan *p) {
    for (int64_t i = 0; i < p->mounts->count; i++) {
        const struct launch_mount *m = &p->mounts->mount[i];
        words_addf(w, "--mount=type=bind,source=%s,target=%s%s", m->path, m->path,
                   m->writable ? "" : ",readonly");
    }
}

/* The image has its own value for the stop time; the launcher's takes precedence. */
static void add_environment(struct words *w, const struct launch_plan *p) {
    words_addf(w, "--env=FP8LAB_STOP_GRACE=%" PRId64, p->grace_s);
    for (int64_t i = 0; i < p->environment->count; i++)
        words_addf(w, "--env=%s", p->environment->word[i]);
}

/* No network: a run needs none, and the image may be foreign. --ipc=host: NCCL's shared memory is
 * larger than a container's 64 MB. */
static void add_container_common(struct words *w, const struct launch_plan *p) {
    words_add(w, "run");
    words_add(w, "--rm");
    words_add(w, "--network=none");
    words_add(w, "--ipc=host");
    words_add(w, "--security-opt=no-new-privileges");
    if (p->local) words_add(w, "--pull=never");
    words_addf(w, "--stop-timeout=%" PRId64, p->grace_s);
    words_addf(w, "--workdir=%s", p->cwd);
    add_environment(w, p);
}

/* ---- the four -------------------------------------------------------------------------------- */

static void docker(struct words *w, const struct launch_plan *p) {
    add_container_common(w, p);
    if (p->gpu) words_add(w, "--gpus=all");
    words_add(w, "--ulimit=memlock=-1");
    words_add(w, "--ulimit=stack=67108864");
    words_addf(w, "--user=%" PRId64 ":%" PRId64, p->uid, p->gid);
    add_binds(w, p);
    words_add_all(w, p->extra);
    add_image_and_command(w, p);
}

/* No limit is set, because a rootless podman may not raise limits. keep-id maps the user to the
 * same id, so files belong to the user. SELinux labels would deny access to the user's folders. */
static void podman(struct words *w, const struct launch_plan *p) {
    add_container_common(w, p);
    if (p->gpu) words_add(w, "--device=nvidia.com/gpu=all");
    words_add(w, "--security-opt=label=disable");
    if (p->uid != 0) words_add(w, "--userns=keep-id");
    else words_addf(w, "--user=%" PRId64 ":%" PRId64, p->uid, p->gid);
    add_binds(w, p);
    words_add_all(w, p->extra);
    add_image_and_command(w, p);
}

/* apptainer keeps the user's id, and /dev/shm and limits of the host. */
static void apptainer(struct words *w, const struct launch_plan *p) {
    words_add(w, "exec");
    if (p->gpu) words_add(w, "--nv");
    words_add(w, "--cleanenv");
    words_add(w, "--no-home");
    words_addf(w, "--pwd=%s", p->cwd);
    add_environment(w, p);
    for (int64_t i = 0; i < p->mounts->count; i++)
        words_addf(w, "--bind=%s:%s:%s", p->mounts->mount[i].path, p->mounts->mount[i].path,
                   p->mounts->mount[i].writable ? "rw" : "ro");
    words_add_all(w, p->extra);
    add_apptainer_image(w, p->image);
    add_program(w, p);
    words_add_all(w, p->command);
}

/* "--container-mounts" takes all mounts in one word. */
static void add_pyxis_mounts(struct words *w, const struct launch_plan *p) {
    struct text t = { 0 };
    text_puts(&t, "--container-mounts=");
    for (int64_t i = 0; i < p->mounts->count; i++) {
        const struct launch_mount *m = &p->mounts->mount[i];
        text_puts(&t, i ? "," : "");
        text_puts(&t, m->path);
        text_puts(&t, ":");
        text_puts(&t, m->path);
        text_puts(&t, m->writable ? "" : ":ro");
    }
    w->failed = w->failed || t.failed;
    if (!t.failed) words_add(w, t.bytes);
    text_free(&t);
}

/* An image for GPUs requests all of them by default, and Enroot's hook fails on a node without
 * GPUs. The job therefore sets the variable to none. */
static void add_pyxis(struct words *w, const struct launch_plan *p) {
    if (!p->gpu) words_add(w, "--export=ALL,NVIDIA_VISIBLE_DEVICES=void");
    add_pyxis_image(w, without_docker(p->image));
    add_pyxis_mounts(w, p);
    words_addf(w, "--container-workdir=%s", p->cwd);
    words_add(w, "--no-container-mount-home");
    words_add(w, "--no-container-remap-root");
    words_add(w, "--no-container-entrypoint");
}

/* One task per node: fp8lab starts the node's ranks itself. Slurm signals the step, which is
 * fp8lab, `grace_s` before the limit, enough for checkpoint and bundle. Slurm rounds the time to a
 * minute (srun(1), --signal), so the limit is in minutes too. */
static void srun(struct words *w, const struct launch_plan *p) {
    words_addf(w, "--job-name=fp8lab-%s", p->name);
    words_addf(w, "--nodes=%" PRId64, p->nodes);
    words_addf(w, "--ntasks=%" PRId64, p->nodes);
    if (p->nodes > 1) words_add(w, "--ntasks-per-node=1");
    if (p->gpu) words_addf(w, "--gpus-per-node=%" PRId64, p->gpus / p->nodes);
    if (p->constraint) words_addf(w, "--constraint=%s", p->constraint);
    int64_t minutes = ceil_div(p->time_limit_s + p->grace_s + LAUNCH_START_S, 60);
    if (p->time_limit_s)
        words_addf(w, "--time=%02" PRId64 ":%02" PRId64 ":00", minutes / 60, minutes % 60);
    words_addf(w, "--signal=TERM@%" PRId64, p->grace_s);
    if (p->image) add_pyxis(w, p);
    words_add_all(w, p->extra);
    words_add(w, "env"); /* env, since the image's own value takes precedence over the job's */
    words_addf(w, "FP8LAB_STOP_GRACE=%" PRId64, p->grace_s);
    add_program(w, p);
    words_add_all(w, p->command);
}

enum status launch_command(const struct launch_plan *p, struct words *argv, struct err *e) {
    static void (*const MAKE[LAUNCHER_COUNT])(struct words *, const struct launch_plan *) = {
        docker, podman, apptainer, srun,
    };
    if (!p->image && p->launcher != LAUNCH_SRUN)
        return FAIL(e, ERR_CONFIG, "--image none is for --launch srun; %s starts an image, and "
                    "without --launch the run is here", launcher_name(p->launcher));
    if (p->image) TRY(check_image(p->image, p->launcher, e));
    if (p->image && p->launcher == LAUNCH_SRUN && has_digest(p->image))
        return FAIL(e, ERR_CONFIG, "%s: Enroot 3 does not read a digest; import the image once "
                    "(enroot import) and name the file with --image ./x.sqsh", p->image);
    words_add(argv, launcher_name(p->launcher));
    MAKE[p->launcher](argv, p);
    return argv->failed ? FAIL(e, ERR_MEMORY, "a command line") : OK;
}
