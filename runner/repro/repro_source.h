/* The run of a bundle, prepared to run again: its script verbatim, resolved by this program, and
 * its choice table. A bundle may be foreign: all of it is verified first, and images, folders and
 * patches that it names are not used. */
#ifndef FP8LAB_RUNNER_REPRO_REPRO_SOURCE_H
#define FP8LAB_RUNNER_REPRO_REPRO_SOURCE_H

#include "runner/bundle/run_view.h"
#include "runner/script/resolve.h"

struct repro_source {
    char bundle[PATH_CAP];     /* the bundle file or closed run directory */
    char identity[SHA256_HEX]; /* of the bundle: the parent of the new run */
    char work[PATH_CAP];       /* a folder of this command; removed by repro_close */
    char choices[PATH_CAP];    /* the bundle's choice table in the work folder; "": none */
    char patch[PATH_CAP];      /* uncommitted changes of the bundle's program, in the work folder;
                                  "": none */
    char script[PATH_CAP];     /* the experiment in the work folder, and its folder for require */
    char lib[PATH_CAP];
    struct run_view view;      /* of the bundle */
    const json_t *config;      /* whose data are looked for; borrowed from run, else from view */
    struct resolution resolution;
    const struct resolved_run *run; /* the row of the script that the bundle is a run of; NULL
                                     * after repro_unpack() */
    const json_t *overrides;        /* texts of --set in the bundle; borrowed from the view */
    json_t *data_files;             /* the bundle's list; NULL: it has none; owned */
    json_t *sources;                /* of its text that became tokens, with that of the sets of
                                     * eval.also; NULL: there is none; owned */
};

/* Opens the bundle that `text` names as a user does; `runs` is the folder of the new run.
 * ERR_VERIFY, ERR_FORMAT: the bundle does not match its manifests. ERR_STATE: the run is not
 * finished. ERR_CONFIG: the script does not resolve with this program, or has no such run any more.
 * *out is always valid for repro_close(). */
NODISCARD enum status repro_open(const char *text, const char *runs, struct repro_source *out,
                                 struct err *e);
/* The same without resolving the script: the configuration is the recorded one. The work folder is
 * made in `parent`. */
NODISCARD enum status repro_unpack(const char *text, const char *runs, const char *parent,
                                   struct repro_source *out, struct err *e);
/* Takes the sets of eval.also out, for who reads the run's own data alone. The configuration is
 * the recorded one. */
NODISCARD enum status repro_without_sets(struct repro_source *s, struct err *e);
void repro_close(struct repro_source *s);

#endif
