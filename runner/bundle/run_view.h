/* The contents of one run, read from a bundle file or a run directory, finished or live. Reading
 * stops before the checkpoints. Every file that is read from a bundle is checked: the manifest
 * against the tag manifest, each file against the manifest. A directory is checked as far as it has
 * manifests. */
#ifndef FP8LAB_RUNNER_BUNDLE_RUN_VIEW_H
#define FP8LAB_RUNNER_BUNDLE_RUN_VIEW_H

#include <jansson.h>

#include "runner/base/run_files.h"
#include "runner/bundle/summary.h"
#include "runner/record/documents.h"

enum run_view_depth {
    RUN_VIEW_BRIEF,  /* run and summary, for a list; reads no byte of a bundle behind them */
    RUN_VIEW_INPUTS, /* these and the configuration, which must have the hash in run.json */
    RUN_VIEW_DOCUMENTS, /* all JSON, and no record: reads nothing behind them */
    RUN_VIEW_FULL    /* everything below */
};

/* All JSON is owned; NULL where the run has no such file. */
struct run_view {
    char path[PATH_CAP];
    bool directory;
    bool verified;             /* every file below was checked against the manifests; false: there
                                  were none */
    char identity[SHA256_HEX]; /* of the bundle; "" if it is not verified */
    /* A member for each file of DOCUMENTS. `run` is never NULL; `summary` is computed from the
     * records if the run has no manifest. */
#define DOCUMENT_MEMBER(name, path) json_t *name;
    DOCUMENTS(DOCUMENT_MEMBER)
#undef DOCUMENT_MEMBER
    json_t *checkpoints;       /* array of names below data/checkpoints/ that the manifest lists */
    json_t *samples;           /* array: the texts of the last step with some, as in their file */
    json_t *histograms;        /* array: the record of the last step with histograms, or empty */
    json_t *scripts;           /* object: the text of each Lua file, by its name in the experiment's
                                  folder ("main.lua"); read at RUN_VIEW_FULL */
    struct run_columns columns;
};

/* Text beside the name of a run that is not verified. */
#define RUN_NOT_VERIFIED "not verified: no manifest"
/* The same of a run whose writer lives. */
#define RUN_NOT_PACKED "not packed yet: it is running"

/* ERR_FORMAT, ERR_VERIFY, ERR_IO as in bundle_reader.h; the text names the path. ERR_VERIFY also if
 * the manifest lists a file of this depth that is missing. */
NODISCARD enum status run_view_load(const char *path, enum run_view_depth depth,
                                    struct run_view *out, struct err *e);
void run_view_free(struct run_view *v);

/* Bytes of text for each token that the run reads, over its whole text; 1 for text without a
 * tokenizer. 0: not known, or the loss is not of all tokens, so that a loss of a byte means
 * nothing. */
double run_view_bytes_a_token(const struct run_view *v);
/* Whether its text was made into tokens. */
bool run_view_is_tokenised(const struct run_view *v);

/* Finds a run by what a user wrote. A path is returned as it is. A form of
 * run_pick.h ("last~2", "best:eval.loss") means a run in `runs_dir`. Any other text is the
 * beginning of the name of one run there, or of its id if it was renamed. ERR_ARG if no run or
 * several match, with their names, or if the path is a checkpoint, a folder of kept ones or a
 * folder of runs: the text names their run, or how to name one. */
NODISCARD enum status run_locate(const char *text, const char *runs_dir, char out[PATH_CAP],
                                 struct err *e);

/* Whether `repro` made the run; `run`: its run.json. */
bool run_repeats(const json_t *run);

/* Which runs a form of run_pick.h counts. Paths and ids mean any run. */
enum run_counts {
    RUNS_ALL,
    RUNS_WHOLE,    /* not those of repro that ended early, as with --steps: they have no weights */
    RUNS_ORIGINAL, /* not those of repro */
};

/* As run_locate(), for a verb of which the user does not mean all runs. */
NODISCARD enum status run_locate_among(const char *text, const char *runs_dir,
                                       enum run_counts counts, char out[PATH_CAP], struct err *e);

/* The path without slashes at its end and without .tar.zst: the same for a run's directory and its
 * bundle. */
void run_stem(char out[PATH_CAP], const char *path);

/* The bundle beside the directory of a run that is no longer there, because a run that ends is
 * packed. ERR_ARG: there is none. */
NODISCARD enum status run_packed(const char *dir, char out[PATH_CAP], struct err *e);

/* The paths of all runs in runs_dir, oldest first: the directory of a run, or its bundle file if
 * there is no directory. Of runs that began in the same second, the one changed last is the last.
 * An absent runs_dir has no runs. The caller frees with tree_free. */
NODISCARD enum status run_list(const char *runs_dir, struct tree *out, struct err *e);

#endif
