/* model = hf "PATH", in the script's child: the reference is replaced by the keys that the runner
 * read from PATH/config.json. */
#ifndef FP8LAB_RUNNER_SCRIPT_HF_MODEL_H
#define FP8LAB_RUNNER_SCRIPT_HF_MODEL_H

#include "runner/script/suite.h"

/* Replaces the references in the runs of the suite. `models` has the keys of `model` for each path;
 * keys beside the path take precedence over them. Paths that it lacks are not replaced: *wanted
 * becomes a list of tables { path, file, line }, for value_write(). False after a diagnostic. */
bool hf_models_apply(struct diagnostics *d, struct suite *suite, const json_t *models,
                     struct value **wanted);

#endif
