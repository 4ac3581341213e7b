/* Names for the functions in a script's result, by which a configuration says which one it means,
 * and another process finds it again: "data.render", or "[2].matrix[\"data.render\"][1]". */
#ifndef FP8LAB_RUNNER_SCRIPT_FUNCTION_NAME_H
#define FP8LAB_RUNNER_SCRIPT_FUNCTION_NAME_H

#include "runner/script/script_state.h"

/* The name of the function `reference` in the registry: the first place in the script's result, at
 * index 1 of the stack, that has it. In the pool; NULL: the result does not have it. "" if the
 * result is the function itself. [raises] */
const char *function_name(struct script *s, int reference);

/* Pushes the function of that name. [-0, +1 if true, raises] */
bool function_push(struct script *s, const char *name);

#endif
