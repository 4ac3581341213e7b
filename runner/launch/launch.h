/* --launch: the same command inside a container or on nodes of a scheduler. First comes a plan of
 * what the command needs inside. Each launcher's command line is a function of this plan. */
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

/* Default of --grace: seconds from SIGTERM to SIGKILL, and before the end of a scheduler's time
 * limit. Three quarters are for a step and its checkpoint, the rest for the bundle
 * (stop_grace.h). */
enum { LAUNCH_GRACE_S = 180, LAUNCH_GRACE_MAX_S = 86400 };
/* Seconds of a job beyond its experiment's limit: fetching an image, hashing data, packing. */
enum { LAUNCH_START_S = 900 };

/* ---- mounts (launch_mounts.c) ---------------------------------------------------------------- */
struct launch_mount {
    char path[PATH_CAP]; /* absolute; the same path inside and outside */
    bool writable;
};
struct launch_mounts {
    struct launch_mount *mount; /* owned; in the order of mounting */
    int64_t count;
};

/* Adds a folder or file unless it is visible already with the same rights. ERR_CONFIG for a path
 * with a character of the launchers' own syntax (a comma, a colon, a quote...). */
NODISCARD enum status mounts_add(struct launch_mounts *m, const char *path, bool writable,
                                 struct err *e);
/* Adds the folders of a configuration's data, links followed, if they exist here: on a cluster the
 * launching machine may not see them. `root` as --data-root. */
NODISCARD enum status mounts_add_data(struct launch_mounts *m, const json_t *config,
                                      const char *root, struct err *e);
/* Adds the folder that --cache names, if it does; makes it, except under --dry-run. */
NODISCARD enum status mounts_add_cache(struct launch_mounts *m, const struct cli *cli,
                                       struct err *e);
/* Adds the folder of a file. */
NODISCARD enum status mounts_add_parent(struct launch_mounts *m, const char *file, struct err *e);
void mounts_free(struct launch_mounts *m);

/* ---- our own image (launch_image.c) ---------------------------------------------------------- */
enum { LAUNCH_IMAGE_CAP = 256 };

/* Whether `make image` builds `image`: fp8lab or fp8lab:TAG, or podman's form with localhost/
 * before it. */
bool launch_image_is_own(const char *image);
/* The name of our own image for `launcher`; image NULL: fp8lab. docker and podman get the image's
 * name. The others get a file in the working directory: fp8lab.sif, fp8lab.sqsh; for fp8lab:TAG
 * fp8lab_TAG.sif, fp8lab+TAG.sqsh. ERR_ARG: the name is too long. */
NODISCARD enum status launch_image_own(enum launcher launcher, const char *image,
                                       char out[LAUNCH_IMAGE_CAP], struct err *e);

/* ---- command lines (launch_command.c) -------------------------------------------------------- */
struct launch_plan {
    enum launcher launcher;
    const char *name;       /* of the experiment, for the scheduler; borrowed like all below */
    const char *image;      /* docker's name or a path; NULL: none, with srun only */
    bool local;             /* the image was built here, so it is never pulled from a registry */
    const char *program;    /* the executable to run, mounted; NULL: the image's own */
    bool gpu;               /* the container gets the GPUs */
    int64_t gpus, nodes;    /* numbers requested from a scheduler; every node has the same number of
                               GPUs */
    int64_t grace_s;        /* from SIGTERM to SIGKILL */
    int64_t time_limit_s;   /* of the whole command, for a scheduler; 0: the scheduler's default */
    const char *constraint; /* features of nodes, for a scheduler; NULL: any node */
    const struct words *extra; /* further words for the launcher */
    const char *cwd;
    int64_t uid, gid;
    const struct launch_mounts *mounts;
    const struct words *environment; /* "NAME=value", set inside */
    const struct words *command;     /* for fp8lab inside */
};

/* Makes the launcher's command line. ERR_CONFIG: not a valid image name, or one that the launcher
 * cannot use. */
NODISCARD enum status launch_command(const struct launch_plan *p, struct words *argv,
                                     struct err *e);

/* ---- Slurm (launch_slurm.c) ------------------------------------------------------------------ */
/* The hardware query as a scheduler's constraint. slurm.json (containers/LAUNCHING.md) lists the
 * kinds of nodes with their facts. Kinds that match every configuration's query are candidates. The
 * constraint has the candidates that need the fewest nodes for `gpus` GPUs. */
struct launch_slurm {
    char *constraint;   /* owned; NULL: no file, or no condition */
    int64_t nodes;      /* number of nodes of a kind in the constraint; 1 without one */
    struct words flags; /* from the file, for every job */
};
/* `file` NULL: the user's ~/.config/fp8lab/slurm.json, if it exists. `gpus`: the largest number of
 * GPUs of a configuration, 0: none are requested. *explanation (owned by the caller, or NULL) says
 * why no kind of node matches; that is not an error. */
NODISCARD enum status launch_slurm_read(const char *file, const json_t *const *configs,
                                        int64_t count, int64_t gpus, struct launch_slurm *out,
                                        char **explanation, struct err *e);
void launch_slurm_free(struct launch_slurm *s);

/* ---- launching (launch.c) -------------------------------------------------------------------- */
/* The request of a verb. Borrowed, except for the last three members. */
struct launch_request {
    const struct cli *cli;         /* its verb has LAUNCH_FLAGS */
    const char *name;              /* of the experiment */
    const json_t *const *configs;  /* configurations of all runs of the command */
    int64_t count;
    const char *image;             /* NULL: the image that `make image` builds */
    bool bare;                     /* no image: this program runs on a node of the scheduler */
    bool holds_fp8lab;             /* the image has its own fp8lab; otherwise one must be mounted */
    char *cwd;                     /* visible through `mounts` */
    struct launch_mounts mounts;   /* launch() adds a mounted program */
    struct words command;          /* for fp8lab inside; ERR_MEMORY if it is not complete */
};

/* Prints the command line (--dry-run) or runs it. Returns the exit code of the run inside,
 * EXIT_HARDWARE if no node matches, EXIT_SYSTEM if the launcher failed, or that of cli_fail(). */
int launch(struct launch_request *r);
void launch_request_free(struct launch_request *r); /* the members that it owns */

/* Copies the flags of the command line to the command inside, except the launcher's and those in
 * `not_these` (ends with NULL). */
void launch_carry_flags(const struct cli *cli, const char *const *not_these, struct words *command);

/* ERR_ARG if a flag that needs --launch is given without it. */
NODISCARD enum status launch_check_flags(const struct cli *cli, struct err *e);

#define LAUNCH_FLAGS \
    { "launch", "NAME", "in its image: docker, podman, apptainer or srun", false }, \
    { "dry-run", NULL, "with --launch: print the command, start nothing", false }, \
    { "grace", "SECONDS", "with --launch: from stop request to kill (180)", false }, \
    { "program", "DIR", "with --launch: mount and run this `make dist` folder", false }, \
    { "launch-arg", "WORD", "with --launch: a further word for the launcher", true }, \
    { "slurm", "FILE", "with --launch srun: kinds of nodes, flags (slurm.json)", false }

/* All of `run --launch` (launch_run.c); `repro --launch` is repro/repro_launch.h. */
int launch_run(const struct cli *cli);

#endif
