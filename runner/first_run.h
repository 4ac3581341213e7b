/* The experiment that somebody runs first, as a command that works where it is typed. */
#ifndef FP8LAB_RUNNER_FIRST_RUN_H
#define FP8LAB_RUNNER_FIRST_RUN_H

#include "runner/base/cli.h"
#include "runner/base/paths.h"

/* The quick start below this folder, else the one beside the shared presets; false: neither. */
bool first_run_script(char out[PATH_CAP]);

/* Suggests, as the next command, the quick start: on its text, or on made-up data where that text
 * is not, as in a fresh clone. There it also names what makes the text. */
void first_run_next(const struct cli *cli);

#endif
