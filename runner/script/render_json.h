/* json(value), the second argument of a function that renders: JSON text, as templates' tojson. */
#ifndef FP8LAB_RUNNER_SCRIPT_RENDER_JSON_H
#define FP8LAB_RUNNER_SCRIPT_RENDER_JSON_H

#include <jansson.h>
#include <lua.h>

/* Pushes the function. [-0, +1, raises] */
void render_push_writer(lua_State *L);

/* Notes what Lua does not keep of a JSON object or array: that it is one, the order of its keys,
 * its nulls. The table made of it is on top of the stack. [-0, +0, raises] */
void render_note_origin(lua_State *L, const json_t *value);

#endif
