/* --launch: the same command, inside a container. What the container must see and be given is
 * gathered first (a plan); each launcher's command line is then a function of it. */
#ifndef FP8LAB_RUNNER_LAUNCH_H
#define FP8LAB_RUNNER_LAUNCH_H

#include "runner/cli.h"
#include "runner/resolve.h"
#include "runner/run_files.h"

enum launcher { LAUNCH_DOCKER, LAUNCH_PODMAN, LAUNCH_APPTAINER, LAUNCH_SRUN, LAUNCHER_COUNT };

/* "docker" and so on, which is also the program's name. */
const char *launcher_name(enum launcher launcher);
/* ERR_ARG for another name, with the nearest. */
NODISCARD enum status launcher_find(const char *name, enum launcher *out, struct err *e);

/* From SIGTERM to SIGKILL, and before the end of a scheduler's time limit: a worker has 120 s for
 * its checkpoint (attempts.c), the rest is for the bundle. */
enum { LAUNCH_GRACE_S = 180 };
/* What a job needs besides its experiment's own limit: fetching an image, hashing data, packing. */
enum { LAUNCH_START_S = 900 };

/* ---- words: an argv that grows ----------------------------------------------------------------*/
struct words {
    char **word; /* owned, and each of them; NULL-terminated once there is one */
    int64_t count, capacity;
    bool failed; /* no memory; sticks */
};
void words_add(struct words *w, const char *word);
void words_addf(struct words *w, const char *format, ...) PRINTF_LIKE(2, 3);
void words_free(struct words *w);
/* The words as a shell takes them, on one line; owned by the caller, NULL without memory. */
char *words_text(const struct words *w);

/* ---- mounts -----------------------------------------------------------------------------------*/
struct launch_mount {
    char path[PATH_CAP]; /* absolute; the same inside and outside */
    bool writable;
};
struct launch_mounts {
    struct launch_mount *mount; /* owned; in the order in which they are made */
    int64_t count;
};

/* Adds a folder unless it is visible already with as many rights. ERR_CONFIG for a path that the
 * launchers' own syntax could take for something else (a comma, a colon, a quote...). */
NODISCARD enum status mounts_add(struct launch_mounts *m, const char *path, bool writable,
                                 struct err *e);
/* Adds what the rows' data lie in, links followed, as far as they are here: on a cluster the
 * machine that launches may not see them. `root` as --data-root. */
NODISCARD enum status mounts_add_data(struct launch_mounts *m, const json_t *config,
                                      const char *root, struct err *e);
/* Adds the folder that a file lies in. */
NODISCARD enum status mounts_add_parent(struct launch_mounts *m, const char *file, struct err *e);
void mounts_free(struct launch_mounts *m);

/* ---- the plan ---------------------------------------------------------------------------------*/
struct launch_plan {
    enum launcher launcher;
    const char *name;       /* of the experiment, for the scheduler; borrowed like all below */
    const char *image;      /* as docker names it, or a path */
    bool local;             /* the image was built here: a registry's of that name is not meant */
    const char *program;    /* a folder of `make dist` to run instead of the image's; NULL */
    bool gpu;               /* give it the GPUs */
    int64_t gpus;           /* how many a scheduler is asked for */
    int64_t time_limit_s;   /* of the whole command, for a scheduler; 0: its default */
    const char *constraint; /* for a scheduler: features of nodes; NULL: any */
    const struct words *extra; /* further words for the launcher */
    const char *cwd;
    int64_t uid, gid;
    const struct launch_mounts *mounts;
    const struct words *environment; /* "NAME=value", to be passed on */
    const struct words *command;     /* for fp8lab inside */
};

/* The launcher's command line. ERR_CONFIG: an image name that is none, or that the launcher cannot
 * take. */
NODISCARD enum status launch_command(const struct launch_plan *p, struct words *argv,
                                     struct err *e);

/* ERR_CONFIG unless `image` is a reference ([registry/]name[:tag][@digest]) or a path beginning
 * with '/' or "./": a word that a launcher cannot take for a flag. */
NODISCARD enum status launch_check_image(const char *image, struct err *e);

/* ---- Slurm ------------------------------------------------------------------------------------*/
/* The scheduler's side of the hardware query: slurm.json (containers/README.md) lists the kinds of
 * nodes by their facts; those that every row's query matches become the constraint. */
struct launch_slurm {
    char *constraint;   /* owned; NULL: no file, or no query */
    struct words flags; /* of the file, for every job */
};
/* `file` NULL: the user's own, ~/.config/fp8lab/slurm.json, if it is there. *explanation (owned by
 * the caller, or NULL) says why no kind of node will do; that is no error. */
NODISCARD enum status launch_slurm_read(const char *file, const struct resolution *r,
                                        struct launch_slurm *out, char **explanation,
                                        struct err *e);
void launch_slurm_free(struct launch_slurm *s);

/* ---- running ----------------------------------------------------------------------------------*/
/* Runs the command to its end and returns its exit code: stop signals are passed on, once each.
 * What docker and podman mean by 125 to 127 is explained. ERR_CONFIG where the launcher is not in
 * PATH. */
NODISCARD enum status launch_start(const struct cli *cli, const struct launch_plan *p,
                                   const struct words *argv, int *exit_code, struct err *e);

/* `run --launch`: the whole verb. Returns the exit code. */
int launch_run(const struct cli *cli);

#endif
