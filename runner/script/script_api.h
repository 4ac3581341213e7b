/* Where the tables that experiment, fp8.delayed, preset, ... return were written. */
#ifndef FP8LAB_RUNNER_SCRIPT_SCRIPT_API_H
#define FP8LAB_RUNNER_SCRIPT_SCRIPT_API_H

#include <lua.h>
#include <stdbool.h>

/* If the table at `index` was made by a word of the API, pushes its origin: a table with `kind`
 * (absent for a plain preset) and a list of sources { file =, line =, callee = }, what counts most
 * first. Otherwise pushes nothing and answers false. */
bool script_push_origin(lua_State *L, int index);

#endif
