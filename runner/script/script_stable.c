/* pairs, table.sort and math.random with the same results on every machine.
 *
 * Lua 5.4 seeds its string hash from the clock and an address when the state opens (a seed can be
 * fixed only by compiling Lua anew), and hashes tables and functions by address; `next` shows that
 * order. So `next` is withheld and `pairs` visits sorted keys. Lua's own sort leaves the order of
 * equals open and its random generator has changed between versions; these do not. */
#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

#include "runner/script/script_state.h"

/* ---- pairs ----------------------------------------------------------------------------------- */
struct sort_key {
    int type; /* LUA_TBOOLEAN, LUA_TNUMBER or LUA_TSTRING */
    bool integer;
    lua_Integer i;
    lua_Number n;
    const char *text; /* borrowed from the table */
    size_t bytes;
};

static int compare_numbers(const struct sort_key *a, const struct sort_key *b) {
    if (a->integer && b->integer) return (a->i > b->i) - (a->i < b->i);
    double x = a->integer ? (double)a->i : a->n, y = b->integer ? (double)b->i : b->n;
    return (x > y) - (x < y);
}

/* Numbers, then strings bytewise, then false, true. No two keys of a table are equal. */
static int compare_keys(const void *left, const void *right) {
    const struct sort_key *a = left, *b = right;
    static const int RANK[LUA_NUMTYPES] = { [LUA_TNUMBER] = 1, [LUA_TSTRING] = 2,
                                            [LUA_TBOOLEAN] = 3 };
    if (a->type != b->type) return RANK[a->type] - RANK[b->type];
    if (a->type == LUA_TNUMBER) return compare_numbers(a, b);
    if (a->type == LUA_TBOOLEAN) return (a->i > b->i) - (a->i < b->i);
    size_t shorter = a->bytes < b->bytes ? a->bytes : b->bytes;
    int order = memcmp(a->text, b->text, shorter);
    return order ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static void read_key(lua_State *L, int index, struct sort_key *key) {
    key->type = lua_type(L, index);
    if (key->type == LUA_TNUMBER) {
        key->integer = lua_isinteger(L, index);
        key->i = key->integer ? lua_tointeger(L, index) : 0;
        key->n = lua_tonumber(L, index);
    } else if (key->type == LUA_TSTRING) {
        key->text = lua_tolstring(L, index, &key->bytes);
    } else if (key->type == LUA_TBOOLEAN) {
        key->i = lua_toboolean(L, index);
    } else {
        luaL_error(L, "pairs: a key that is a %s has no order that is the same on every machine",
                   luaL_typename(L, index));
    }
}

static void push_key(lua_State *L, const struct sort_key *key) {
    if (key->type == LUA_TSTRING)
        lua_pushlstring(L, key->text, key->bytes);
    else if (key->type == LUA_TBOOLEAN)
        lua_pushboolean(L, (int)key->i);
    else if (key->integer)
        lua_pushinteger(L, key->i);
    else
        lua_pushnumber(L, key->n);
}

/* Pushes a list of the table's keys in order. [-0, +1, raises] */
static void push_sorted_keys(lua_State *L, int table) {
    lua_Integer count = 0;
    lua_pushnil(L);
    while (lua_next(L, table)) {
        lua_pop(L, 1);
        count++;
    }
    struct sort_key *keys = lua_newuserdatauv(L, (size_t)(count + 1) * sizeof *keys, 0);
    memset(keys, 0, (size_t)(count + 1) * sizeof *keys);
    lua_Integer i = 0;
    lua_pushnil(L);
    while (lua_next(L, table)) {
        lua_pop(L, 1);
        read_key(L, -1, &keys[i++]);
    }
    qsort(keys, (size_t)count, sizeof *keys, compare_keys);
    lua_createtable(L, count < 1 << 20 ? (int)count : 1 << 20, 0);
    for (i = 0; i < count; i++) {
        push_key(L, &keys[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_remove(L, -2); /* the array of keys */
}

/* The iterator. Upvalues: the table, the list of keys, the number visited. A key that was removed
 * meanwhile is skipped; a key that was added is not visited. */
static int pairs_next(lua_State *L) {
    lua_Integer at = lua_tointeger(L, lua_upvalueindex(3));
    for (;;) {
        if (lua_rawgeti(L, lua_upvalueindex(2), ++at) == LUA_TNIL) return 1;
        lua_pushvalue(L, -1);
        if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) break;
        lua_pop(L, 2);
    }
    lua_pushinteger(L, at);
    lua_copy(L, -1, lua_upvalueindex(3));
    lua_pop(L, 1);
    return 2;
}

static int base_pairs(lua_State *L) {
    luaL_checkany(L, 1);
    if (luaL_getmetafield(L, 1, "__pairs") != LUA_TNIL) {
        lua_pushvalue(L, 1);
        lua_call(L, 1, 3);
        return 3;
    }
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    push_sorted_keys(L, 1);
    lua_pushinteger(L, 0);
    lua_pushcclosure(L, pairs_next, 3);
    return 1;
}

/* ---- table.sort: a stable merge sort --------------------------------------------------------- */
/* Whether item b goes before item a; list at 1, comparison at 2 (or nil). */
static bool goes_before(lua_State *L, lua_Integer b, lua_Integer a, int from) {
    bool before;
    if (lua_isnil(L, 2)) {
        lua_rawgeti(L, from, b);
        lua_rawgeti(L, from, a);
        before = lua_compare(L, -2, -1, LUA_OPLT);
        lua_pop(L, 2);
        return before;
    }
    lua_pushvalue(L, 2);
    lua_rawgeti(L, from, b);
    lua_rawgeti(L, from, a);
    lua_call(L, 2, 1);
    before = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return before;
}

/* Merges [low, middle) and [middle, high) of the list `from` into the list `to`. */
static void merge(lua_State *L, int from, int to, lua_Integer low, lua_Integer middle,
                  lua_Integer high) {
    lua_Integer a = low, b = middle;
    for (lua_Integer at = low; at < high; at++) {
        bool take_b = b < high && (a >= middle || goes_before(L, b, a, from));
        lua_rawgeti(L, from, take_b ? b++ : a++);
        lua_rawseti(L, to, at);
    }
}

static int table_sort(lua_State *L) {
    luaL_checktype(L, 1, LUA_TTABLE);
    if (!lua_isnoneornil(L, 2)) luaL_checktype(L, 2, LUA_TFUNCTION);
    lua_settop(L, 2);
    lua_Integer count = luaL_len(L, 1);
    luaL_argcheck(L, count < 1 << 24, 1, "too many items");
    lua_createtable(L, (int)count, 0);
    lua_createtable(L, (int)count, 0);
    int from = 3, to = 4;
    for (lua_Integer i = 1; i <= count; i++) {
        lua_geti(L, 1, i);
        lua_rawseti(L, from, i);
    }
    for (lua_Integer width = 1; width < count; width *= 2) {
        for (lua_Integer low = 1; low <= count; low += 2 * width) {
            lua_Integer middle = low + width, high = low + 2 * width;
            if (middle > count + 1) middle = count + 1;
            if (high > count + 1) high = count + 1;
            merge(L, from, to, low, middle, high);
        }
        int swap = from;
        from = to;
        to = swap;
    }
    for (lua_Integer i = 1; i <= count; i++) {
        lua_rawgeti(L, from, i);
        lua_seti(L, 1, i);
    }
    return 0;
}

/* ---- math.random: SplitMix64 ----------------------------------------------------------------- */
/* Source: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", 2014. */
static uint64_t random_next(struct script *s) {
    uint64_t z = s->random += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* Uniform in [0, span], by rejection. */
static uint64_t random_upto(struct script *s, uint64_t span) {
    if (span == UINT64_MAX) return random_next(s);
    uint64_t count = span + 1, limit = UINT64_MAX - UINT64_MAX % count, r;
    do r = random_next(s);
    while (r >= limit);
    return r % count;
}

static int math_random(lua_State *L) {
    struct script *s = script_of(L);
    lua_Integer low = 1, high;
    int count = lua_gettop(L);
    if (count == 0) {
        lua_pushnumber(L, (double)(random_next(s) >> 11) * 0x1p-53);
        return 1;
    }
    if (count > 2) return luaL_error(L, "math.random: too many arguments");
    high = luaL_checkinteger(L, count);
    if (count == 2) low = luaL_checkinteger(L, 1);
    luaL_argcheck(L, low <= high, count, "interval is empty");
    uint64_t offset = random_upto(s, (uint64_t)high - (uint64_t)low);
    lua_pushinteger(L, (lua_Integer)((uint64_t)low + offset));
    return 1;
}

static int math_randomseed(lua_State *L) {
    script_of(L)->random = (uint64_t)luaL_checkinteger(L, 1); /* no clock to seed from */
    return 0;
}

static void set_field(lua_State *L, const char *table, const char *name, lua_CFunction f) {
    lua_getglobal(L, table);
    lua_pushcfunction(L, f);
    lua_setfield(L, -2, name);
    lua_pop(L, 1);
}

void script_open_stable(lua_State *L) {
    set_field(L, LUA_GNAME, "pairs", base_pairs);
    set_field(L, "table", "sort", table_sort);
    set_field(L, "math", "random", math_random);
    set_field(L, "math", "randomseed", math_randomseed);
}
