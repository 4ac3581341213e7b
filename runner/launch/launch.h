/* --launch: the same command, inside a container. What the container must see and be given is
 * gathered first (a plan); each launcher's command line is then a function of it. */
#ifndef FP8LAB_RUNNER_LAUNCH_LAUNCH_H
#define FP8LAB_RUNNER_LAUNCH_LAUNCH_H

#include <jansson.h>

#include "runner/base/cli.h"
#include "runner/base/run_files.h"
#include "runner/base/words.h"

enum launcher { LAUNCH_DOCKER, LAUNCH_PODMAN, LAUNCH_APPTAINER, LAUNCH_SRUN, LAUNCHER_COUNT };

/* "docker" and so on, which is also the program's name. */
const char *launcher_name(enum launcher launcher);
/* ERR_ARG for another name, with the nearest. */
NODISCARD enum status launcher_find(const char *name, enum launcher *out, struct err *e);

/* From SIGTERM to SIGKILL, and before the end of a scheduler's time limit, unless --grace says how
 * long: three quarters for a step and its checkpoint, the rest for the bundle (stop_grace.h). */
enum { LAUNCH_GRACE_S = 180, LAUNCH_GRACE_MAX_S = 86400 };
/* What a job needs besides its experiment's own limit: fetching an image, hashing data, packing. */
enum { LAUNCH_START_S = 900 };

/* ---- mounts (launch_mounts.c) ---------------------------------------------------------------- */
struct launch_mount {
    char path[PATH_CAP]; /* absolute; the same inside and outside */
    bool writable;
};
struct launch_mounts {
    struct launch_mount *mount; /* owned; in the order in which they are made */
    int64_t count;
};

/* Adds a folder or file unless it is visible already with as many rights. ERR_CONFIG for a path
 * that the launchers' own syntax could take for something else (a comma, a colon, a quote...). */
NODISCARD enum status mounts_add(struct launch_mounts *m, const char *path, bool writable,
                                 struct err *e);
/* Adds what the data of a configuration lie in, links followed, as far as they are here: on a
 * cluster the machine that launches may not see them. `root` as --data-root. */
NODISCARD enum status mounts_add_data(struct launch_mounts *m, const json_t *config,
                                      const char *root, struct err *e);
/* Adds the folder that a file lies in. */
NODISCARD enum status mounts_add_parent(struct launch_mounts *m, const char *file, struct err *e);
void mounts_free(struct launch_mounts *m);

/* ---- our own image (launch_image.c) ---------------------------------------------------------- */
enum { LAUNCH_IMAGE_CAP = 256 };

/* Whether `image` is one that `make image` builds: fp8lab or fp8lab:TAG, also with localhost/
 * before it, as podman writes it. */
bool launch_image_is_own(const char *image);
/* What `launcher` is given for `image`, which is our own; NULL: fp8lab. docker and podman get its
 * name, the others a file in the working directory: fp8lab.sif, fp8lab.sqsh; of fp8lab:TAG
 * fp8lab_TAG.sif, fp8lab+TAG.sqsh. ERR_ARG: the name is too long. */
NODISCARD enum status launch_image_own(enum launcher launcher, const char *image,
                                       char out[LAUNCH_IMAGE_CAP], struct err *e);

/* ---- command lines (launch_command.c) -------------------------------------------------------- */
struct launch_plan {
    enum launcher launcher;
    const char *name;       /* of the experiment, for the scheduler; borrowed like all below */
    const char *image;      /* as docker names it, or a path; NULL: none, for srun alone */
    bool local;             /* the image was built here: a registry's of that name is not meant */
    const char *program;    /* the executable to run, mounted; NULL: the image's own */
    bool gpu;               /* give it the GPUs */
    int64_t gpus, nodes;    /* how many a scheduler is asked for; as many GPUs of each node */
    int64_t grace_s;        /* from SIGTERM to SIGKILL */
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

/* ---- Slurm (launch_slurm.c) ------------------------------------------------------------------ */
/* The scheduler's side of the hardware query: slurm.json (containers/README.md) lists the kinds of
 * nodes by their facts; of those that every configuration's query matches the ones of which the
 * fewest nodes hold `gpus` GPUs become the constraint. */
struct launch_slurm {
    char *constraint;   /* owned; NULL: no file, or nothing to choose by */
    int64_t nodes;      /* of the kinds in the constraint; 1 where there is none */
    struct words flags; /* of the file, for every job */
};
/* `file` NULL: the user's own, ~/.config/fp8lab/slurm.json, if it is there. `gpus`: of the
 * configuration that wants most, 0 where none are asked for. *explanation (owned by the caller,
 * or NULL) says why no kind of node will do; that is no error. */
NODISCARD enum status launch_slurm_read(const char *file, const json_t *const *configs,
                                        int64_t count, int64_t gpus, struct launch_slurm *out,
                                        char **explanation, struct err *e);
void launch_slurm_free(struct launch_slurm *s);

/* ---- launching (launch.c) -------------------------------------------------------------------- */
/* What a verb wants done in a container. All borrowed. */
struct launch_request {
    const struct cli *cli;         /* its verb has LAUNCH_FLAGS */
    const char *name;              /* of the experiment */
    const json_t *const *configs;  /* of all that the command will run */
    int64_t count;
    const char *image;             /* NULL: the one that `make image` builds */
    bool bare;                     /* in no image: this program, on a node of the scheduler's */
    bool holds_fp8lab;             /* the image has its own; otherwise one must be mounted */
    const char *cwd;               /* visible through `mounts` */
    struct launch_mounts *mounts;  /* a mounted program is added */
    const struct words *command;   /* for fp8lab inside */
};

/* Prints the command line (--dry-run) or runs it. Returns the exit code: of the run inside,
 * EXIT_HARDWARE where no node will do, EXIT_SYSTEM where the launcher failed; or of cli_fail(). */
int launch(const struct launch_request *r);

/* Adds the flags of the command line that are not the launcher's, nor in `not_these` (ends with
 * NULL), as words for the command inside. */
void launch_carry_flags(const struct cli *cli, const char *const *not_these, struct words *command);

/* ERR_ARG where a flag that means nothing without --launch is there without it. */
NODISCARD enum status launch_check_flags(const struct cli *cli, struct err *e);

#define LAUNCH_FLAGS \
    { "launch", "NAME", "in its image: docker, podman, apptainer or srun", false }, \
    { "dry-run", NULL, "with --launch: print the command, start nothing", false }, \
    { "grace", "SECONDS", "with --launch: between stop request and kill (180)", false }, \
    { "program", "DIR", "with --launch: mount and run this `make dist` folder", false }, \
    { "launch-arg", "WORD", "with --launch: a further word for the launcher", true }, \
    { "slurm", "FILE", "with --launch srun: kinds of nodes, flags (slurm.json)", false }

/* `run --launch`, whole (launch_run.c); repro/repro_launch.h has that of `repro`. */
int launch_run(const struct cli *cli);

#endif
