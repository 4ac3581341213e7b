/* model = hf "PATH", in the caller: reads PATH/config.json for the script's child, which reads no
 * file. The text becomes a file of the resolution, so that a bundle holds it. So does that of
 * generation_config.json, which changes nothing in a run and is for its export. */
#ifndef FP8LAB_RUNNER_SCRIPT_MODEL_FILES_H
#define FP8LAB_RUNNER_SCRIPT_MODEL_FILES_H

#include <jansson.h>

#include "kernels/base.h"

/* A bundle has both files of a model in hf/: NAME.json and this. */
#define HF_GENERATION_SUFFIX ".generation.json"

struct model_source {
    const char *script; /* a bundle has the texts in hf/ beside its script */
    const char *root;   /* prefix of the paths, or NULL */
    bool stored;        /* read only those, because the paths are another's */
};

/* `wanted` lists { path, file, line } as the child reports it. Adds the keys of each to `models`
 * under its path, and its text to `files` as the child reports a source. ERR_CONFIG or ERR_IO begin
 * with the place in the script. */
NODISCARD enum status model_files_read(const struct model_source *source, const json_t *wanted,
                                       json_t *models, json_t *files, struct err *e);

#endif
