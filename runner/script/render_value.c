#include "runner/script/render_value.h"

#include <lauxlib.h>
#include <string.h>

#include "runner/base/nearest.h"
#include "runner/script/render_json.h"

/* ---- a conversation -------------------------------------------------------------------------- */
static void push_array(lua_State *L, const json_t *array) {
    size_t n = json_array_size(array);
    lua_createtable(L, (int)n, 0); /* a line of 64 MiB has fewer */
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(array, i);
        if (json_is_null(item)) lua_pushboolean(L, 0);
        else render_push_json(L, item);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    render_note_origin(L, array);
}

static void push_object(lua_State *L, const json_t *object) {
    const char *key;
    json_t *member;
    lua_createtable(L, 0, (int)json_object_size(object));
    json_object_foreach((json_t *)object, key, member) { /* jansson's iterators take no const */
        if (json_is_null(member)) continue;
        lua_pushstring(L, key);
        render_push_json(L, member);
        lua_rawset(L, -3);
    }
    render_note_origin(L, object);
}

void render_push_json(lua_State *L, const json_t *value) {
    luaL_checkstack(L, 8, "a conversation nested too deeply");
    switch (json_typeof(value)) {
    case JSON_OBJECT: push_object(L, value); return;
    case JSON_ARRAY: push_array(L, value); return;
    case JSON_STRING:
        lua_pushlstring(L, json_string_value(value), json_string_length(value));
        return;
    case JSON_INTEGER: lua_pushinteger(L, json_integer_value(value)); return;
    case JSON_REAL: lua_pushnumber(L, json_real_value(value)); return;
    case JSON_TRUE:
    case JSON_FALSE: lua_pushboolean(L, json_is_true(value)); return;
    case JSON_NULL: lua_pushnil(L); return;
    }
}

/* ---- fragments ------------------------------------------------------------------------------- */
static const char *const KEYS[] = { "text", "role", "loss", "special" };
enum { KEY_COUNT = sizeof KEYS / sizeof *KEYS };

struct reader {
    lua_State *L;
    const char *place;
    int list; /* index of the list */
    lua_Integer at; /* the fragment that is read, from 1 */
    struct text *out;
};

/* "a table", "nil": what was found in place of something else. */
static const char *found(lua_State *L, int index) {
    int type = lua_type(L, index);
    if (type == LUA_TNIL || type == LUA_TNONE) return "nil";
    if (type == LUA_TBOOLEAN) return lua_toboolean(L, index) ? "true" : "false";
    return lua_pushfstring(L, "a %s", luaL_typename(L, index));
}

/* The first key in bytewise order that a fragment does not have; pushed as well. NULL: none. */
static const char *unknown_key(lua_State *L, int fragment) {
    const char *first = NULL;
    lua_pushnil(L); /* holds the first so far */
    int holder = lua_gettop(L);
    lua_pushnil(L);
    while (lua_next(L, fragment)) {
        lua_pop(L, 1);
        const char *key = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
        bool known = false;
        for (int i = 0; i < KEY_COUNT && !known; i++) known = strcmp(key, KEYS[i]) == 0;
        if (known || (first && strcmp(key, first) >= 0)) continue;
        first = key;
        lua_pushvalue(L, -1);
        lua_replace(L, holder);
    }
    return first;
}

static void check_keys(struct reader *r, int fragment) {
    const char *key = unknown_key(r->L, fragment);
    const char *near = key ? nearest_name(key, KEYS, KEY_COUNT) : NULL;
    if (key && !*key)
        luaL_error(r->L, "%s: fragment %I has a value without a name; its keys are text, role, "
                   "loss and special", r->place, r->at);
    if (key)
        luaL_error(r->L, "%s: fragment %I has the key '%s'; %s%s%s", r->place, r->at, key,
                   near ? "did you mean '" : "its keys are text, role, loss and special",
                   near ? near : "", near ? "'?" : "");
    lua_pop(r->L, 1);
}

/* A boolean of a fragment; `otherwise` if it is absent. */
static bool read_flag(struct reader *r, int fragment, const char *key, bool otherwise) {
    lua_State *L = r->L;
    lua_pushstring(L, key);
    int type = lua_rawget(L, fragment);
    if (type != LUA_TNIL && type != LUA_TBOOLEAN)
        luaL_error(L, "%s: fragment %I: %s: expected true or false, found %s", r->place, r->at, key,
                   found(L, -1));
    bool value = type == LUA_TNIL ? otherwise : lua_toboolean(L, -1);
    lua_pop(L, 1);
    return value;
}

/* Pushes a string of a fragment, or nil. */
static const char *push_string(struct reader *r, int fragment, const char *key, bool required,
                               size_t *n) {
    lua_State *L = r->L;
    lua_pushstring(L, key);
    int type = lua_rawget(L, fragment);
    if (type == LUA_TNIL && !required) return NULL;
    if (type != LUA_TSTRING)
        luaL_error(L, "%s: fragment %I: %s: expected a string, found %s", r->place, r->at, key,
                   found(L, -1));
    return lua_tolstring(L, -1, n);
}

/* NUL is a character here. */
static bool is_utf8(const char *text, size_t n) {
    size_t at = 0;
    while (at < n) {
        at += utf8_valid_prefix(text + at, n - at);
        if (at < n && text[at++] != '\0') return false;
    }
    return true;
}

static void read_fragment(struct reader *r, int fragment) {
    size_t n = 0, role_n = 0;
    check_keys(r, fragment);
    const char *role = push_string(r, fragment, "role", false, &role_n);
    bool loss = read_flag(r, fragment, "loss", role && strcmp(role, "assistant") == 0);
    bool special = read_flag(r, fragment, "special", false);
    const char *text = push_string(r, fragment, "text", true, &n);
    if (!is_utf8(text, n))
        luaL_error(r->L, "%s: fragment %I: text: it is not UTF-8; string.sub may have cut a "
                   "character, utf8.offset finds where one begins", r->place, r->at);
    text_puts(r->out, r->at > 1 ? ",{\"text\":" : "{\"text\":");
    canonical_add_string(r->out, text, n);
    text_puts(r->out, loss ? ",\"loss\":true" : ",\"loss\":false");
    text_puts(r->out, special ? ",\"special\":true}" : ",\"special\":false}");
    lua_pop(r->L, 2);
}

/* A list has no other keys; { text = ... } without a list around it is the likely mistake. */
static void check_list(struct reader *r, lua_Integer count) {
    lua_State *L = r->L;
    lua_Integer keys = 0;
    lua_pushnil(L);
    while (lua_next(L, r->list)) {
        lua_pop(L, 1);
        bool item = lua_isinteger(L, -1) && lua_tointeger(L, -1) >= 1 &&
                    lua_tointeger(L, -1) <= count;
        if (!item)
            luaL_error(L, "%s: what it returned is not a list of fragments, as in return { { text "
                       "= \"...\", role = \"user\" }, ... }", r->place);
        keys++;
    }
    if (keys != count)
        luaL_error(L, "%s: what it returned has %I places but only %I fragments: one is nil",
                   r->place, count, keys);
}

void render_read_fragments(lua_State *L, int below, const char *place, struct text *out) {
    struct reader r = { .L = L, .place = place, .list = below + 1, .out = out };
    if (lua_gettop(L) != below + 1)
        luaL_error(L, "%s: it returned %d values; expected one list of fragments { { text = "
                   "\"...\" }, ... }", place, lua_gettop(L) - below);
    if (!lua_istable(L, r.list))
        luaL_error(L, "%s: it returned %s; expected a list of fragments { { text = \"...\" }, "
                   "... }", place, found(L, r.list));
    lua_Integer count = (lua_Integer)lua_rawlen(L, r.list);
    check_list(&r, count);
    text_puts(out, "[");
    for (r.at = 1; r.at <= count; r.at++) {
        if (lua_rawgeti(L, r.list, r.at) != LUA_TTABLE)
            luaL_error(L, "%s: fragment %I: expected { text = \"...\" }, found %s", place, r.at,
                       found(L, -1));
        read_fragment(&r, lua_gettop(L));
        lua_pop(L, 1);
    }
    text_puts(out, "]");
}
