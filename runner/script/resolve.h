/* A script, its overrides and --smoke, resolved to runs whose configuration is complete: the same
 * bytes on every machine that has the same files of data. What `check` prints and `run` runs. */
#ifndef FP8LAB_RUNNER_SCRIPT_RESOLVE_H
#define FP8LAB_RUNNER_SCRIPT_RESOLVE_H

#include <jansson.h>

#include "model/sha256.h"
#include "runner/base/run_files.h"
#include "runner/script/data_patterns.h"

struct resolve_options {
    const char *path;             /* the script */
    const char *const *overrides; /* "a.b=value" of each --set, in order; may be NULL */
    int64_t override_count;
    bool smoke;
    const char *lib; /* folder of the shared presets; NULL: found beside script or executable */
    struct pattern_source data; /* where patterns among data.paths find their files */
};

struct resolved_run {
    char *name;
    char *config; /* canonical JSON, "fp8lab.experiment/1"; NUL-terminated */
    size_t config_bytes;
    char config_sha256[SHA256_HEX];
    json_t *config_json; /* the same, parsed */
    json_t *cell;        /* {} outside a matrix: axis path -> label or scalar */
};

/* A Lua file the script loaded. */
struct resolved_file {
    char *name; /* in a bundle, below experiment/: "main.lua", "lib/models/llama3.lua" */
    char *path; /* as it was opened */
    char *text; /* verbatim; UTF-8 without NUL */
    char sha256[SHA256_HEX];
};

/* One error: "file:line: path: text". */
struct resolved_error {
    char *where; /* "experiments/x.lua:14", "--set train.step=20", or the script's path */
    char *key;   /* "train.step" or "" */
    char *text;
    char *source; /* the line of the script, or NULL */
    int line, column; /* 0 where unknown */
};

struct resolution {
    bool suite; /* the script returned suite {}: end with the comparison of the runs */
    bool smoke;
    char *name, *about; /* of the suite, or of the one experiment */
    char *replaced; /* the axes that an override took away, so that no name has them; "" */
    struct resolved_run *runs;
    int64_t run_count;
    struct resolved_file *files; /* the script first */
    int64_t file_count;
    struct resolved_error *errors; /* in the order of their places */
    int64_t error_count;
    char *log; /* what the script printed; "" if nothing */
};

/* ERR_CONFIG when the script, an override or the configuration is at fault: *out then lists every
 * error (and no runs) and e summarises the first. *out is always valid for resolution_destroy(). */
NODISCARD enum status resolve_experiment(const struct resolve_options *options,
                                         struct resolution *out, struct err *e);
void resolution_destroy(struct resolution *r);

/* Drops the runs whose names match none of `count` patterns (* and ? as in a shell); of no patterns
 * every run stays. ERR_ARG names a pattern that fits no run, and the axes
 * that an override took out of the names. */
NODISCARD enum status resolution_keep(struct resolution *r, const char *const *patterns,
                                      int64_t count, struct err *e);

/* Where the shared presets are: experiments/lib of the working directory, else that of the source
 * tree or installation the executable is in. "" when there is none: scripts that need no preset
 * still work. */
void resolve_find_lib(char out[PATH_CAP]);

/* The text of one error as it is shown: "where: key: text", and where the place is known the line
 * and a caret below. Owned by the caller (free); NULL without memory. */
char *resolved_error_text(const struct resolved_error *error);

#endif
