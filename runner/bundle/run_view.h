/* What one run says about itself, read from a bundle file or a run directory, finished or live.
 * Reading stops before the checkpoints, and for a finished run before the JSON lines too. Of a
 * bundle file all that is read is checked: the manifest by the tag manifest, each file by the
 * manifest. So it is of a directory, as far as it has manifests. */
#ifndef FP8LAB_RUNNER_BUNDLE_RUN_VIEW_H
#define FP8LAB_RUNNER_BUNDLE_RUN_VIEW_H

#include <jansson.h>

#include "runner/base/run_files.h"
#include "runner/bundle/summary.h"

enum run_view_depth {
    RUN_VIEW_BRIEF, /* run and summary: what a list shows, and no byte of a bundle behind them */
    RUN_VIEW_FULL   /* everything below */
};

/* All JSON is owned; NULL where the run has no such file. */
struct run_view {
    char path[PATH_CAP];
    bool directory;
    bool verified;             /* the manifests vouch for all below; else none was there to do so */
    char identity[SHA256_HEX]; /* of the bundle; "" where it is not verified */
    json_t *run;               /* run.json; never NULL */
    json_t *summary;           /* of a run without a manifest: made from what it has written */
    json_t *resolved, *argv, *facts, *libraries, *environment, *image, *commit,
        *decisions;
    json_t *checkpoints;       /* array of names in the manifest below data/checkpoints/ */
    struct run_columns columns;
};

/* What text shows beside the name of a run that is not verified. */
#define RUN_NOT_VERIFIED "not verified: no manifest"

/* ERR_FORMAT, ERR_VERIFY, ERR_IO as the reader says; the text names the path. ERR_VERIFY also where
 * a file is missing that the manifest lists and the depth asks for. */
NODISCARD enum status run_view_load(const char *path, enum run_view_depth depth,
                                    struct run_view *out, struct err *e);
void run_view_free(struct run_view *v);

/* Turns what a user wrote into a path: a path as it is, or else the unique run in `runs_dir` whose
 * id begins so, or "last", the newest. ERR_ARG when there is none or more than one, naming them. */
NODISCARD enum status run_locate(const char *text, const char *runs_dir, char out[PATH_CAP],
                                 struct err *e);

/* The paths of all runs in runs_dir, oldest first: a directory or, where there is none, the bundle
 * file. An absent runs_dir has no runs. The caller frees with tree_free. */
NODISCARD enum status run_list(const char *runs_dir, struct tree *out, struct err *e);

#endif
