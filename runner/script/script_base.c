/* The standard libraries, pruned: what is left cannot reach a file, the clock, an address or code
 * that is not source text. */
#include <lauxlib.h>
#include <lualib.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/exactmath.h"
#include "runner/base/nearest.h"
#include "runner/script/script_state.h"

/* ---- text without addresses ------------------------------------------------------------------ */
const char *script_tostring(lua_State *L, int index) {
    int type = lua_type(L, index);
    bool plain = type == LUA_TNIL || type == LUA_TBOOLEAN || type == LUA_TNUMBER ||
                 type == LUA_TSTRING;
    if (plain || luaL_getmetafield(L, index, "__tostring") != LUA_TNIL) {
        if (!plain) lua_pop(L, 1);
        return luaL_tolstring(L, index, NULL); /* [-0, +1] */
    }
    lua_pushstring(L, luaL_typename(L, index));
    return lua_tostring(L, -1);
}

static int base_tostring(lua_State *L) {
    luaL_checkany(L, 1);
    script_tostring(L, 1);
    return 1;
}

enum { LOG_MAX = 1 << 20 };

static int base_print(lua_State *L) {
    struct script *s = script_of(L);
    int count = lua_gettop(L);
    if (s->rendering)
        return luaL_error(L, "print: a function that renders has no output; error(text) shows a "
                          "text");
    for (int i = 1; i <= count; i++) {
        size_t bytes;
        script_tostring(L, i);
        const char *text = lua_tolstring(L, -1, &bytes);
        if (s->log.size + bytes > LOG_MAX)
            luaL_error(L, "print: more than 1 MiB of output in all");
        if (i > 1) text_puts(&s->log, "\t");
        script_log(s, text, bytes);
    }
    text_puts(&s->log, "\n");
    return 0;
}

/* Calls the wrapped function with all arguments. An error of its own would name neither the
 * function nor the script's line, since no Lua code calls it; both are added here. */
static int call_wrapped(lua_State *L, const char *name) {
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    int rc = lua_pcall(L, lua_gettop(L) - 1, 1, 0);
    if (rc == LUA_OK) return 1;
    if (rc == LUA_ERRRUN && lua_type(L, -1) == LUA_TSTRING) {
        const char *text = lua_tostring(L, -1);
        luaL_where(L, 1);
        luaL_gsub(L, text, "to '?'", lua_pushfstring(L, "to '%s'", name));
        lua_remove(L, -2); /* what replaces "to '?'" */
        lua_concat(L, 2);
    }
    return lua_error(L);
}

/* The conversions of string.format whose text is the same on every machine: not %p, an address, nor
 * %a, whose digits the C library chooses. */
static const char CONVERSIONS[] = "cdiuoxXeEfFgGqs%";

static int string_format(lua_State *L) {
    size_t bytes;
    const char *form = luaL_checklstring(L, 1, &bytes), *end = form + bytes;
    for (const char *at = form; (at = memchr(at, '%', (size_t)(end - at))); at++) {
        do at++;
        while (at < end && *at && strchr("-+ #0123456789.", *at));
        if (at == end || !*at || !strchr(CONVERSIONS, *at)) /* the text ends with a NUL */
            return luaL_error(L, "string.format: there is no '%%%c' in an experiment; the "
                              "conversions are %s", *at ? *at : ' ', CONVERSIONS);
    }
    int count = lua_gettop(L);
    for (int i = 2; i <= count; i++) {
        if (!lua_istable(L, i) && !lua_isfunction(L, i) && !lua_isuserdata(L, i)) continue;
        script_tostring(L, i);
        lua_replace(L, i);
    }
    return call_wrapped(L, "format");
}

/* ---- metatables ------------------------------------------------------------------------------ */
/* Without __gc and __mode: both depend on the collector, which must not affect results. */
static int base_setmetatable(lua_State *L) {
    luaL_checktype(L, 1, LUA_TTABLE);
    if (lua_istable(L, 2)) {
        static const char *const TIMED[] = { "__gc", "__mode" };
        for (size_t i = 0; i < sizeof TIMED / sizeof *TIMED; i++) {
            lua_pushstring(L, TIMED[i]);
            if (lua_rawget(L, 2) != LUA_TNIL)
                return luaL_error(L, "setmetatable: %s is not available in an experiment",
                                  TIMED[i]);
            lua_pop(L, 1);
        }
    }
    return call_wrapped(L, "setmetatable");
}

/* ---- math with the same bits everywhere ------------------------------------------------------ */
static int math_exp(lua_State *L) {
    lua_pushnumber(L, exact_exp(luaL_checknumber(L, 1)));
    return 1;
}

static int math_log(lua_State *L) {
    double x = luaL_checknumber(L, 1);
    luaL_argcheck(L, x > 0, 1, "must be above 0");
    double y = exact_log(x);
    if (!lua_isnoneornil(L, 2)) {
        double base = luaL_checknumber(L, 2);
        luaL_argcheck(L, base > 0 && base != 1, 2, "must be above 0 and not 1");
        y /= exact_log(base);
    }
    lua_pushnumber(L, y);
    return 1;
}

static int math_pow(lua_State *L) {
    double x = luaL_checknumber(L, 1), y = luaL_checknumber(L, 2);
    luaL_argcheck(L, x > 0, 1, "must be above 0");
    lua_pushnumber(L, exact_pow(x, y));
    return 1;
}

static int math_sin(lua_State *L) {
    double x = luaL_checknumber(L, 1);
    luaL_argcheck(L, fabs(x) <= 1048576.0, 1, "must be within 2^20 of 0");
    lua_pushnumber(L, exact_sin(x));
    return 1;
}

static int math_cos(lua_State *L) {
    double x = luaL_checknumber(L, 1);
    luaL_argcheck(L, fabs(x) <= 1048576.0, 1, "must be within 2^20 of 0");
    lua_pushnumber(L, exact_cos(x));
    return 1;
}

/* ---- what is left ---------------------------------------------------------------------------- */
static void open_one(lua_State *L, const char *name, lua_CFunction open) {
    luaL_requiref(L, name, open, 1);
    lua_pop(L, 1);
}

static void remove_fields(lua_State *L, const char *table, const char *const *names) {
    lua_getglobal(L, table);
    for (; *names; names++) {
        lua_pushnil(L);
        lua_setfield(L, -2, *names);
    }
    lua_pop(L, 1);
}

/* Replaces table.name by `f`, which keeps the old function as its upvalue. */
static void wrap(lua_State *L, const char *table, const char *name, lua_CFunction f) {
    lua_getglobal(L, table);
    lua_getfield(L, -1, name);
    lua_pushcclosure(L, f, 1);
    lua_setfield(L, -2, name);
    lua_pop(L, 1);
}

/* xpcall is removed: while its handler runs for an error that a hook raised, no hook runs, so a
 * loop there would escape the instruction limit. */
void script_open_base(lua_State *L) {
    static const char *const NOT_BASE[] = { "collectgarbage", "dofile", "load", "loadfile", "next",
                                            "warn", "xpcall", NULL };
    static const char *const NOT_STRING[] = { "dump", NULL };
    /* Those of the C library differ between machines in the last bit. */
    static const char *const NOT_MATH[] = { "tan", "asin", "acos", "atan", "randomseed", NULL };
    static const luaL_Reg BASE[] = { { "print", base_print },
                                     { "tostring", base_tostring },
                                     { NULL, NULL } };
    static const luaL_Reg MATH[] = { { "exp", math_exp }, { "log", math_log },
                                     { "pow", math_pow }, { "sin", math_sin },
                                     { "cos", math_cos }, { NULL, NULL } };
    open_one(L, LUA_GNAME, luaopen_base);
    open_one(L, LUA_STRLIBNAME, luaopen_string);
    open_one(L, LUA_TABLIBNAME, luaopen_table);
    open_one(L, LUA_MATHLIBNAME, luaopen_math);
    open_one(L, LUA_UTF8LIBNAME, luaopen_utf8);
    remove_fields(L, LUA_GNAME, NOT_BASE);
    remove_fields(L, LUA_STRLIBNAME, NOT_STRING);
    remove_fields(L, LUA_MATHLIBNAME, NOT_MATH);
    lua_pushglobaltable(L);
    luaL_setfuncs(L, BASE, 0);
    lua_getfield(L, -1, LUA_MATHLIBNAME);
    luaL_setfuncs(L, MATH, 0);
    lua_pop(L, 2);
    wrap(L, LUA_STRLIBNAME, "format", string_format);
    wrap(L, LUA_GNAME, "setmetatable", base_setmetatable);
    lua_pushliteral(L, "");
    lua_getmetatable(L, -1);
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable"); /* getmetatable("") returns false */
    lua_pop(L, 2);
}

/* ---- unknown globals ------------------------------------------------------------------------- */
static const char *const WITHHELD[] = { "io", "os", "debug", "package", "coroutine", "load",
                                        "loadstring", "loadfile", "dofile", "collectgarbage",
                                        "next", "warn", "xpcall", NULL };

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int global_missing(lua_State *L) {
    const char *name = luaL_checkstring(L, 2);
    for (int i = 0; WITHHELD[i]; i++)
        if (strcmp(name, WITHHELD[i]) == 0)
            return luaL_error(L, "%s is not available in an experiment%s", name,
                              strcmp(name, "next") == 0 ? "; pairs visits keys in sorted order"
                                                        : "");
    const char *names[128];
    int64_t count = 0;
    lua_pushnil(L);
    while (lua_next(L, 1)) {
        lua_pop(L, 1);
        if (lua_type(L, -1) == LUA_TSTRING && count < 128) names[count++] = lua_tostring(L, -1);
    }
    qsort(names, (size_t)count, sizeof *names, compare_names); /* ties: the first */
    const char *near = nearest_name(name, names, count);
    return luaL_error(L, "the global '%s' does not exist%s%s%s", name,
                      near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static int global_assigned(lua_State *L) {
    return luaL_error(L, "assignment to the global '%s'; write: local %s = ...",
                      luaL_checkstring(L, 2), lua_tostring(L, 2));
}

void script_close_globals(lua_State *L) {
    lua_pushglobaltable(L);
    lua_newtable(L);
    lua_pushcfunction(L, global_missing);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, global_assigned);
    lua_setfield(L, -2, "__newindex");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_pop(L, 1);
}
