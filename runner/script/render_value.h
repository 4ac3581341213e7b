/* What a function that renders gets and gives: JSON as Lua values, fragments as JSON. */
#ifndef FP8LAB_RUNNER_SCRIPT_RENDER_VALUE_H
#define FP8LAB_RUNNER_SCRIPT_RENDER_VALUE_H

#include <jansson.h>
#include <lua.h>

#include "runner/base/canonical.h"

/* Pushes a value. Objects and arrays are tables. Lua has no null: such a member is absent, and in
 * an array it is false. [-0, +1, raises] */
void render_push_json(lua_State *L, const json_t *value);

/* Reads what a function returned, all values above `below`: one list of { text, role, loss,
 * special }. Appends [{"text", "loss", "special"}] to `out`. `place` of the function begins each
 * error.
 * [-0, +0, raises] */
void render_read_fragments(lua_State *L, int below, const char *place, struct text *out);

#endif
