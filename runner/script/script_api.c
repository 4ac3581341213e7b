/* The words of an experiment: experiment, suite, preset, the recipes, data kinds, optimizer and
 * schedules. Each takes one table and returns a copy with its kind and its places in the source
 * (its sources). The schema checks the contents later. */
#include <lauxlib.h>
#include <string.h>

#include "model/recipe.h"
#include "runner/base/nearest.h"
#include "runner/script/script_api.h"
#include "runner/script/script_state.h"

/* Its address is the registry key of a table: our table -> { kind =, { file, line, callee } } */
static const char ORIGINS[] = "fp8lab.origins";

bool script_push_origin(lua_State *L, int index) {
    index = lua_absindex(L, index);
    lua_rawgetp(L, LUA_REGISTRYINDEX, ORIGINS);
    lua_pushvalue(L, index);
    bool known = lua_rawget(L, -2) == LUA_TTABLE;
    lua_remove(L, -2);
    if (!known) lua_pop(L, 1);
    return known;
}

/* Gives the table at `index` the origin record on top of the stack. [-1, +0] */
static void set_origin(lua_State *L, int index) {
    index = lua_absindex(L, index);
    lua_rawgetp(L, LUA_REGISTRYINDEX, ORIGINS);
    lua_insert(L, -2);
    lua_pushvalue(L, index);
    lua_insert(L, -2);
    lua_rawset(L, -3);
    lua_pop(L, 1);
}

/* Pushes a new record with this call as its only source. callee may be NULL. [-0, +1, raises] */
static void push_call_record(lua_State *L, const char *kind, const char *callee) {
    struct place here = script_here(L);
    lua_newtable(L);
    lua_newtable(L);
    lua_pushstring(L, here.file ? here.file : "");
    lua_setfield(L, -2, "file");
    lua_pushinteger(L, here.line);
    lua_setfield(L, -2, "line");
    lua_pushstring(L, callee);
    lua_setfield(L, -2, "callee");
    lua_rawseti(L, -2, 1);
    lua_pushstring(L, kind);
    lua_setfield(L, -2, "kind");
}

/* Adds the sources (and the kind, if it has none) of the table at `index` to the record on top
 * of the stack. [-0, +0] */
static void inherit_origin(lua_State *L, int index) {
    if (!script_push_origin(L, index)) return;
    lua_Integer have = luaL_len(L, -2), more = luaL_len(L, -1);
    for (lua_Integer i = 1; i <= more; i++) {
        lua_rawgeti(L, -1, i);
        lua_rawseti(L, -3, have + i);
    }
    if (lua_getfield(L, -2, "kind") == LUA_TNIL) {
        lua_getfield(L, -2, "kind");
        lua_setfield(L, -4, "kind");
    }
    lua_pop(L, 2);
}

/* Copies the fields of the table at `from` into the one at `to`; plain tables in both are
 * merged if `deep`. [-0, +0, raises] */
static void copy_fields(lua_State *L, int from, int to, bool deep) {
    from = lua_absindex(L, from);
    to = lua_absindex(L, to);
    luaL_checkstack(L, 12, "tables nested too deeply");
    lua_pushnil(L);
    while (lua_next(L, from)) {
        lua_pushvalue(L, -2);
        bool merge = deep && lua_istable(L, -2) && luaL_len(L, -2) == 0 &&
                     lua_rawget(L, to) == LUA_TTABLE;
        if (merge && (script_push_origin(L, -2) || script_push_origin(L, -1))) {
            lua_pop(L, 1);
            merge = false;
        }
        if (merge) {
            lua_newtable(L); /* key, new, old, merged */
            copy_fields(L, -2, -1, true);
            copy_fields(L, -3, -1, true);
            lua_replace(L, -3);
            lua_pop(L, 1);
        } else {
            lua_settop(L, lua_gettop(L) - 1); /* the looked-up value, or the key's copy */
        }
        lua_pushvalue(L, -2);
        lua_insert(L, -2);
        lua_rawset(L, to); /* key stays for lua_next */
    }
}

/* ---- constructors ---------------------------------------------------------------------------- */
/* The __call of a word. Upvalues: kind, callee. [-n, +1, raises] */
static int construct(lua_State *L) {
    const char *kind = lua_tostring(L, lua_upvalueindex(1));
    const char *callee = lua_tostring(L, lua_upvalueindex(2));
    bool named = strcmp(kind, "text") == 0 || strcmp(kind, "hf") == 0;
    if (lua_type(L, 2) == LUA_TSTRING && named) { /* text "file" */
        lua_newtable(L);
        lua_pushvalue(L, 2);
        lua_rawseti(L, -2, 1);
        lua_replace(L, 2);
    }
    if (lua_gettop(L) != 2 || !lua_istable(L, 2))
        return luaL_error(L, "%s takes one table: %s { ... }", kind, kind);
    lua_newtable(L);
    copy_fields(L, 2, 3, false);
    push_call_record(L, kind, callee);
    inherit_origin(L, 2);
    set_origin(L, 3);
    return 1;
}

/* Pushes a word: a table that can be called. Without a call it means a call with an empty table. */
static void push_word(lua_State *L, const char *kind) {
    const char *dot = strrchr(kind, '.');
    lua_newtable(L);
    lua_newtable(L);
    lua_pushstring(L, kind);
    lua_setfield(L, -2, "kind");
    set_origin(L, -2);
    lua_newtable(L);
    lua_pushstring(L, kind);
    lua_pushstring(L, dot ? dot + 1 : kind);
    lua_pushcclosure(L, construct, 2);
    lua_setfield(L, -2, "__call");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
}

/* ---- presets --------------------------------------------------------------------------------- */
/* preset { ... } { overrides }: a preset of the table with the overrides applied.
 * Upvalue 1: the metatable of presets. */
static int preset_call(lua_State *L) {
    if (lua_gettop(L) != 2 || !lua_istable(L, 2))
        return luaL_error(L, "a preset takes one table: the keys to change");
    lua_newtable(L);
    copy_fields(L, 1, 3, false);
    copy_fields(L, 2, 3, true);
    push_call_record(L, NULL, NULL);
    inherit_origin(L, 2);
    inherit_origin(L, 1);
    set_origin(L, 3);
    lua_getmetatable(L, 1);
    lua_setmetatable(L, 3);
    return 1;
}

static int preset_new(lua_State *L) {
    if (lua_gettop(L) != 1 || !lua_istable(L, 1))
        return luaL_error(L, "preset takes one table: preset { ... }");
    lua_newtable(L);
    copy_fields(L, 1, 2, false);
    push_call_record(L, NULL, "preset");
    inherit_origin(L, 1);
    set_origin(L, 2);
    lua_newtable(L);
    lua_pushcfunction(L, preset_call);
    lua_setfield(L, -2, "__call");
    lua_setmetatable(L, 2);
    return 1;
}

/* ---- the words ------------------------------------------------------------------------------- */
static const char *const WORDS[] = { "experiment", "suite", "f32", "bf16", "text", "tokens",
                                     "chats", "synthetic", "adamw", "cosine", "linear", "wsd",
                                     "constant", "hf" };
static const char *const *const FP8_WORDS = RECIPE_KIND_NAMES + RECIPE_BF16 + 1;
enum { WORD_COUNT = sizeof WORDS / sizeof *WORDS,
       FP8_WORD_COUNT = RECIPE_KIND_COUNT - RECIPE_BF16 - 1 };

enum { PREFIX = sizeof "fp8." - 1 };

static int fp8_missing(lua_State *L) {
    const char *name = luaL_checkstring(L, 2);
    const char *full = lua_pushfstring(L, "%s%s", lua_tostring(L, lua_upvalueindex(1)), name);
    const char *near = nearest_name(full, FP8_WORDS, FP8_WORD_COUNT);
    luaL_Buffer all;
    luaL_buffinit(L, &all);
    for (int i = 0; i < FP8_WORD_COUNT; i++) {
        const char *between = i + 1 < FP8_WORD_COUNT ? ", " : " and ";
        luaL_addstring(&all, i ? between : "");
        luaL_addstring(&all, FP8_WORDS[i]);
    }
    luaL_pushresult(&all);
    return luaL_error(L, "there is no recipe %s%s%s%s. The FP8 and FP4 recipes are %s", full,
                      near ? " (did you mean " : "", near ? near : "", near ? "?)" : "",
                      lua_tostring(L, -1));
}

/* The table `name` of the recipes that begin so. */
static void open_recipes(lua_State *L, const char *name) {
    lua_newtable(L);
    for (int i = 0; i < FP8_WORD_COUNT; i++) {
        if (strncmp(FP8_WORDS[i], name, strlen(name)) != 0) continue;
        push_word(L, FP8_WORDS[i]);
        lua_setfield(L, -2, FP8_WORDS[i] + PREFIX);
    }
    lua_newtable(L);
    lua_pushfstring(L, "%s.", name);
    lua_pushcclosure(L, fp8_missing, 1);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_setglobal(L, name);
}

void script_open_api(lua_State *L) {
    lua_newtable(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, ORIGINS);
    for (int i = 0; i < WORD_COUNT; i++) {
        push_word(L, WORDS[i]);
        lua_setglobal(L, WORDS[i]);
    }
    open_recipes(L, "fp8");
    open_recipes(L, "fp4");
    lua_pushcfunction(L, preset_new);
    lua_setglobal(L, "preset");
}
