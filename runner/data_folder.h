/* fp8lab data of a folder: a model of Hugging Face, or the files of a tokenizer. */
#ifndef FP8LAB_RUNNER_DATA_FOLDER_H
#define FP8LAB_RUNNER_DATA_FOLDER_H

#include <jansson.h>

#include "runner/base/cli.h"

/* Describes it: prints, or appends an object to `files` with --json. ERR_FORMAT for a folder with
 * neither config.json nor tokenizer.json. */
NODISCARD enum status data_folder(const struct cli *cli, const char *path, json_t *files,
                                  struct err *e);

#endif
