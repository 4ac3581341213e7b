/* Resolves a script, its overrides and --smoke to runs with complete configurations, which `check`
 * prints and `run` runs. They have the same bytes on every machine with the same data files. */
#ifndef FP8LAB_RUNNER_SCRIPT_RESOLVE_H
#define FP8LAB_RUNNER_SCRIPT_RESOLVE_H

#include <jansson.h>

#include "model/ground/sha256.h"
#include "runner/base/run_files.h"
#include "runner/chat/renderer.h"
#include "runner/script/data_patterns.h"

struct resolve_options {
    const char *path;             /* the script */
    const char *const *overrides; /* "a.b=value" of each --set, in order; may be NULL */
    int64_t override_count;
    bool smoke;
    const char *lib; /* folder of the shared presets; NULL: resolve_find_lib() */
    struct pattern_source data; /* where the patterns in data.paths find files */
    bool stored_models; /* model = hf: read only what the bundle stored beside its script */
    const char *const *only; /* of each --only, as for resolution_keep(); may be NULL */
    int64_t only_count;
};

struct resolved_run {
    char *name;
    char *config; /* canonical JSON, "fp8lab.experiment/1"; NUL-terminated */
    size_t config_bytes;
    char config_sha256[SHA256_HEX];
    json_t *config_json; /* the same, parsed */
    json_t *cell;        /* {} outside a matrix: axis path -> label or scalar */
};

/* A Lua file the script loaded, or the config.json of a model. */
struct resolved_file {
    char *name; /* in a bundle, below experiment/: "main.lua", "lib/models/llama3.lua",
                 * "hf/12HEX.json" */
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
    bool suite; /* the script returned suite {}: its runs are compared at the end */
    bool smoke;
    char *name, *about; /* of the suite, or of the one experiment */
    char *replaced; /* the axes that an override removed, also from the names; "" */
    char *data_paths; /* what --set gave data.paths; NULL: nothing */
    char *factor;   /* of the comparison at the suite's end (compare --factor); "" */
    char *lib; /* the folder of the shared presets; "" if there is none */
    struct resolved_run *runs;
    int64_t run_count;
    struct resolved_file *files; /* the script first */
    int64_t file_count;
    struct resolved_error *errors; /* sorted by place */
    int64_t error_count;
    char *log; /* what the script printed; "" if nothing */
};

/* ERR_CONFIG for an error in the script, an override or the configuration: *out then lists all
 * errors and no runs, and e has the first one. The data of runs that `only` leaves out are not
 * looked for. *out is always valid for resolution_destroy(). */
NODISCARD enum status resolve_experiment(const struct resolve_options *options,
                                         struct resolution *out, struct err *e);
/* Sets the steps of a run whose length is in epochs of text with a tokenizer, and its configuration
 * again. `tokens`: the record of the text's tokens. Any other run is unchanged. */
NODISCARD enum status resolved_run_count_steps(struct resolved_run *run, const json_t *tokens,
                                               struct err *e);
void resolution_destroy(struct resolution *r);

/* ERR_CONFIG if one of `files`, [{"name", "sha256"}] or NULL, is not the file of that name that the
 * script loaded when it was resolved: somebody has changed it since. */
NODISCARD enum status resolution_check_files(const struct resolution *r, const json_t *files,
                                             struct err *e);

/* What opens the functions of the script that render conversations; borrows from the resolution. */
struct chat_render_source resolution_render(const struct resolution *r);

/* Removes the runs whose names match none of `count` patterns (* and ? as in a shell). Without
 * patterns every run stays. ERR_ARG, with the pattern, the names of the runs and the replaced axes,
 * if a pattern matches no run. */
NODISCARD enum status resolution_keep(struct resolution *r, const char *const *patterns,
                                      int64_t count, struct err *e);

/* The folder of the shared presets: experiments/lib of the working directory, else of the source
 * tree or installation of the executable. "" if there is none; scripts without presets still
 * work. */
void resolve_find_lib(char out[PATH_CAP]);

/* The text of one error for the user: "where: key: text", and if the place is known, the line with
 * a caret below. Owned by the caller (free); NULL: out of memory. */
char *resolved_error_text(const struct resolved_error *error);

#endif
