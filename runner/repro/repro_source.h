/* What a bundle says about its run, ready to be run again: its script verbatim, resolved anew by
 * this program, and its choice table. A bundle may be a stranger's: all of it is verified first,
 * and what it names is neither started, mounted nor applied. */
#ifndef FP8LAB_RUNNER_REPRO_REPRO_SOURCE_H
#define FP8LAB_RUNNER_REPRO_REPRO_SOURCE_H

#include "runner/bundle/run_view.h"
#include "runner/script/resolve.h"

struct repro_source {
    char bundle[PATH_CAP];     /* the bundle file or closed run directory */
    char identity[SHA256_HEX]; /* of the bundle: the parent of the new run */
    char work[PATH_CAP];       /* a folder of this command only; gone at repro_close */
    char choices[PATH_CAP];    /* the bundle's choice table in it; "" where it has none */
    char patch[PATH_CAP];      /* its program's uncommitted changes in it; "" where it has none */
    struct run_view view;      /* of the bundle */
    struct resolution resolution;
    const struct resolved_run *run; /* the row of the script that the bundle is a run of */
    const json_t *overrides;        /* texts of its --set, as recorded; borrowed from the view */
    json_t *data_files;             /* as the bundle lists them; NULL: it does not; owned */
};

/* `text` names the bundle as a user does, `runs` is where the new run will be. ERR_VERIFY and
 * ERR_FORMAT: not what its manifests say; ERR_STATE: a run that is not finished; ERR_CONFIG: its
 * script does not resolve with this program, or no longer to such a run. *out is always valid for
 * repro_close(). */
NODISCARD enum status repro_open(const char *text, const char *runs, struct repro_source *out,
                                 struct err *e);
void repro_close(struct repro_source *s);

#endif
