#include "runner/script/render_json.h"

#include <lauxlib.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/canonical.h"

enum { DEPTH_MAX = 100, JSON_TEXT_MAX = 64 << 20 };

/* Its address is the registry key of a table: our table -> { key, ..., list =, nulls = } */
static const char NOTES[] = "fp8lab.json";

/* ---- what Lua does not keep ------------------------------------------------------------------ */
static void note_nulls(lua_State *L, const json_t *value) {
    const char *key;
    json_t *member;
    size_t i;
    lua_newtable(L);
    json_object_foreach((json_t *)value, key, member) { /* jansson's iterators take no const */
        lua_pushboolean(L, json_is_null(member));
        lua_setfield(L, -2, key);
    }
    json_array_foreach(value, i, member) {
        lua_pushboolean(L, json_is_null(member));
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    lua_setfield(L, -2, "nulls");
}

static bool has_null(const json_t *value) {
    const char *key;
    json_t *member;
    bool null = false;
    size_t i;
    json_object_foreach((json_t *)value, key, member) null |= json_is_null(member);
    json_array_foreach(value, i, member) null |= json_is_null(member);
    return null;
}

void render_note_origin(lua_State *L, const json_t *value) {
    const char *key;
    json_t *member;
    lua_Integer n = 0;
    luaL_checkstack(L, 8, "a conversation nested too deeply");
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, NOTES) == LUA_TNIL) {
        lua_pop(L, 1);
        lua_newtable(L);
        lua_pushvalue(L, -1);
        lua_rawsetp(L, LUA_REGISTRYINDEX, NOTES);
    }
    lua_pushvalue(L, -2);
    lua_createtable(L, (int)json_object_size(value), 1);
    json_object_foreach((json_t *)value, key, member) {
        lua_pushstring(L, key);
        lua_rawseti(L, -2, ++n);
    }
    lua_pushboolean(L, json_is_array(value));
    lua_setfield(L, -2, "list");
    if (has_null(value)) note_nulls(L, value);
    lua_rawset(L, -3);
    lua_pop(L, 1);
}

/* ---- writing --------------------------------------------------------------------------------- */
struct writer {
    lua_State *L;
    struct text out; /* not freed after an error: the process ends with the conversation */
    int depth;
};

static void write_value(struct writer *w, int index);

static void write_string(struct writer *w, int index) {
    size_t n;
    const char *text = lua_tolstring(w->L, index, &n), *at = text, *end = text + n;
    while (at < end) {
        at += utf8_valid_prefix(at, (size_t)(end - at));
        if (at < end && *at++ != '\0') luaL_error(w->L, "json: a string that is not UTF-8");
    }
    canonical_add_string(&w->out, text, n);
}

/* Whether the value at the key on top of the stack was null. `note` is the table's note, or nil. */
static bool was_null(lua_State *L, int note) {
    if (!lua_istable(L, note)) return false;
    lua_pushvalue(L, -1);
    bool null = lua_getfield(L, note, "nulls") == LUA_TTABLE;
    lua_insert(L, -2);
    if (null) {
        lua_rawget(L, -2);
        null = lua_toboolean(L, -1);
    }
    lua_pop(L, 2);
    return null;
}

static void write_list(struct writer *w, int table, int note) {
    lua_State *L = w->L;
    lua_Integer count = (lua_Integer)lua_rawlen(L, table), keys = 0;
    lua_pushnil(L);
    while (lua_next(L, table)) {
        lua_pop(L, 1);
        keys++;
    }
    if (keys != count) luaL_error(L, "json: a list that also has names, or a nil in it");
    text_puts(&w->out, "[");
    for (lua_Integer i = 1; i <= count; i++) {
        text_puts(&w->out, i > 1 ? ", " : "");
        lua_pushinteger(L, i);
        bool null = was_null(L, note);
        lua_rawget(L, table);
        if (null && lua_isboolean(L, -1) && !lua_toboolean(L, -1)) text_puts(&w->out, "null");
        else write_value(w, lua_gettop(L));
        lua_pop(L, 1);
    }
    text_puts(&w->out, "]");
}

/* The member whose key is on top of the stack. */
static void write_member(struct writer *w, int table, int note, bool *any) {
    lua_State *L = w->L;
    int key = lua_gettop(L);
    bool null = was_null(L, note);
    lua_pushvalue(L, key);
    if (lua_rawget(L, table) != LUA_TNIL || null) {
        text_puts(&w->out, *any ? ", " : "");
        *any = true;
        write_string(w, key);
        text_puts(&w->out, ": ");
        write_value(w, key + 1);
    }
    lua_settop(L, key);
}

static int compare_keys(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Pushes a list of the keys that the note, at `note`, does not have: sorted. */
static void push_new_keys(struct writer *w, int table, int note) {
    lua_State *L = w->L;
    lua_newtable(L);
    int known = lua_gettop(L);
    lua_Integer noted = lua_istable(L, note) ? (lua_Integer)lua_rawlen(L, note) : 0, count = 0;
    for (lua_Integer i = 1; i <= noted; i++) {
        lua_rawgeti(L, note, i);
        lua_pushboolean(L, 1);
        lua_rawset(L, known);
    }
    lua_newtable(L);
    lua_pushnil(L);
    while (lua_next(L, table)) {
        lua_pop(L, 1);
        if (lua_type(L, -1) != LUA_TSTRING)
            luaL_error(L, "json: an object with a key that is a %s", luaL_typename(L, -1));
        lua_pushvalue(L, -1);
        if (lua_rawget(L, known) == LUA_TNIL) {
            lua_pushvalue(L, -2);
            lua_rawseti(L, known + 1, ++count);
        }
        lua_pop(L, 1);
    }
    const char **names = lua_newuserdatauv(L, (size_t)(count + 1) * sizeof *names, 0);
    for (lua_Integer i = 0; i < count; i++) {
        lua_rawgeti(L, known + 1, i + 1);
        names[i] = lua_tostring(L, -1); /* the table above holds it */
        lua_pop(L, 1);
    }
    qsort(names, (size_t)count, sizeof *names, compare_keys);
    lua_createtable(L, (int)count, 0);
    for (lua_Integer i = 0; i < count; i++) {
        lua_pushstring(L, names[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_replace(L, known);
    lua_settop(L, known);
}

static void write_object(struct writer *w, int table, int note) {
    lua_State *L = w->L;
    bool any = false;
    push_new_keys(w, table, note);
    int fresh = lua_gettop(L);
    lua_Integer noted = lua_istable(L, note) ? (lua_Integer)lua_rawlen(L, note) : 0;
    lua_Integer more = (lua_Integer)lua_rawlen(L, fresh);
    text_puts(&w->out, "{");
    for (lua_Integer i = 1; i <= noted + more; i++) {
        lua_rawgeti(L, i <= noted ? note : fresh, i <= noted ? i : i - noted);
        write_member(w, table, note, &any);
        lua_pop(L, 1);
    }
    text_puts(&w->out, "}");
    lua_settop(L, fresh - 1);
}

static void write_table(struct writer *w, int table) {
    lua_State *L = w->L;
    if (++w->depth > DEPTH_MAX)
        luaL_error(L, "json: tables nested more than %d deep; does one contain itself?", DEPTH_MAX);
    luaL_checkstack(L, 16, "json: tables nested too deeply");
    bool list = lua_rawlen(L, table) > 0;
    lua_rawgetp(L, LUA_REGISTRYINDEX, NOTES);
    lua_pushvalue(L, table);
    lua_rawget(L, -2);
    lua_remove(L, -2);
    int note = lua_gettop(L); /* nil for a table that the script made */
    if (lua_istable(L, note)) {
        lua_getfield(L, note, "list");
        list = lua_toboolean(L, -1);
        lua_pop(L, 1);
    }
    if (list) write_list(w, table, note);
    else write_object(w, table, note);
    lua_settop(L, note - 1);
    w->depth--;
}

static void write_value(struct writer *w, int index) {
    lua_State *L = w->L;
    switch (lua_type(L, index)) {
    case LUA_TNIL: text_puts(&w->out, "null"); break;
    case LUA_TBOOLEAN: text_puts(&w->out, lua_toboolean(L, index) ? "true" : "false"); break;
    case LUA_TSTRING: write_string(w, index); break;
    case LUA_TTABLE: write_table(w, index); break;
    case LUA_TNUMBER:
        if (lua_isinteger(L, index)) canonical_add_int(&w->out, lua_tointeger(L, index));
        else if (isfinite(lua_tonumber(L, index)))
            canonical_add_double(&w->out, lua_tonumber(L, index));
        else luaL_error(L, "json: a number that is not finite");
        break;
    default: luaL_error(L, "json: a %s has no JSON form", luaL_typename(L, index));
    }
    if (w->out.failed) luaL_error(L, "not enough memory");
    if (w->out.size > JSON_TEXT_MAX) luaL_error(L, "json: more than %d MiB", JSON_TEXT_MAX >> 20);
}

static int write_json(lua_State *L) {
    struct writer w = { .L = L };
    luaL_checkany(L, 1);
    lua_settop(L, 1);
    write_value(&w, 1);
    lua_pushlstring(L, w.out.bytes, w.out.size);
    text_free(&w.out);
    return 1;
}

void render_push_writer(lua_State *L) { lua_pushcfunction(L, write_json); }
