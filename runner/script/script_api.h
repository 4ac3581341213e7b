/* The place in the source of a table that experiment, fp8.delayed, preset, ... returned. */
#ifndef FP8LAB_RUNNER_SCRIPT_SCRIPT_API_H
#define FP8LAB_RUNNER_SCRIPT_SCRIPT_API_H

#include <lua.h>
#include <stdbool.h>

/* If the table at `index` was made by a word of the API, pushes its origin. That is a table with
 * `kind` (absent for a plain preset) and a list of sources { file =, line =, callee = }, the most
 * specific first. Otherwise pushes nothing and returns false. */
bool script_push_origin(lua_State *L, int index);

#endif
