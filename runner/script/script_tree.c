/* A Lua value as a C tree, each key with its place in the source. */
#include <lauxlib.h>
#include <string.h>

#include "runner/script/lua_scan.h"
#include "runner/script/script_api.h"
#include "runner/script/script_state.h"

enum { DEPTH_MAX = 24, NODES_MAX = 200 * 1000, SCANS_MAX = 32 };

/* The constructors in which the keys of one table may have been written. */
struct scans {
    struct {
        const struct lua_constructor *constructor;
        const char *file;
        bool in_module; /* not the script itself */
    } list[SCANS_MAX];
    int64_t count;
};

struct walk {
    struct script *script;
    int64_t nodes;
    int depth;
};

static struct value *walk_value(struct walk *w, int index, const struct scans *nested,
                                struct place place);

/* ---- places ---------------------------------------------------------------------------------- */
static const char *field_string(struct script *s, int index, const char *field) {
    lua_State *L = s->L;
    lua_getfield(L, index, field);
    const char *text = lua_isstring(L, -1) ? pool_copy(&s->pool, lua_tostring(L, -1)) : NULL;
    lua_pop(L, 1);
    return text;
}

static void scan_source(struct script *s, const char *file, int line, const char *callee,
                        struct scans *out) {
    const struct script_file *f = script_find_file(s, file);
    if (!f) return;
    struct lua_constructor *found[LUA_SCAN_MAX];
    int64_t count = lua_scan_calls(&s->pool, f->text, f->bytes, line, callee, found);
    for (int64_t i = 0; i < count && out->count < SCANS_MAX; i++, out->count++) {
        out->list[out->count].constructor = found[i];
        out->list[out->count].file = f->path;
        out->list[out->count].in_module = f != s->files;
    }
}

/* Reads and pops the origin record on top of the stack: kind, place, constructors. */
static void read_origin(struct script *s, struct value *v, struct scans *out) {
    lua_State *L = s->L;
    int record = lua_gettop(L);
    v->kind = field_string(s, record, "kind");
    for (lua_Integer i = 1; lua_rawgeti(L, record, i) == LUA_TTABLE; i++) {
        const char *file = field_string(s, record + 1, "file");
        const char *callee = field_string(s, record + 1, "callee");
        lua_getfield(L, record + 1, "line");
        int line = (int)lua_tointeger(L, -1);
        lua_pop(L, 2);
        if (i == 1) v->place = (struct place){ .file = file, .line = line };
        scan_source(s, file, line, callee, out);
    }
    lua_pop(L, 2); /* the nil after the last source, and the record */
}

/* The place of one key (or item), and the constructors nested there. */
static struct place find_place(const struct scans *scans, const char *key, int64_t index,
                               struct place otherwise, struct scans *nested) {
    struct place place = otherwise;
    bool found = false;
    for (int64_t i = 0; i < scans->count; i++) {
        const struct lua_entry *entry =
            lua_constructor_find(scans->list[i].constructor, key, index);
        if (!entry) continue;
        if (!found)
            place = (struct place){ .file = scans->list[i].file, .line = entry->line,
                                    .column = entry->column,
                                    .in_module = scans->list[i].in_module };
        found = true;
        if (!entry->nested) continue;
        nested->list[nested->count].constructor = entry->nested;
        nested->list[nested->count].in_module = scans->list[i].in_module;
        nested->list[nested->count++].file = scans->list[i].file;
    }
    return place;
}

/* ---- the walk -------------------------------------------------------------------------------- */
static void walk_items(struct walk *w, int index, struct value *v, const struct scans *scans) {
    lua_State *L = w->script->L;
    lua_Integer count = (lua_Integer)lua_rawlen(L, index);
    for (lua_Integer i = 1; i <= count; i++) {
        struct scans nested = { .count = 0 };
        struct place place = find_place(scans, NULL, i, v->place, &nested);
        lua_rawgeti(L, index, i);
        value_append(&w->script->pool, v, walk_value(w, lua_gettop(L), &nested, place));
        lua_pop(L, 1);
    }
}

/* The key below the top of the stack as text. NULL for an item's position, or after an error, which
 * is reported. */
static const char *read_key(struct script *s, const struct value *v) {
    lua_State *L = s->L;
    if (lua_type(L, -2) == LUA_TSTRING) {
        size_t bytes;
        const char *key = lua_tolstring(L, -2, &bytes);
        if (strlen(key) == bytes) return pool_copy(&s->pool, key);
        diagnostics_add(&s->diagnostics, v->place, "", "a key with a NUL in it, after \"%s\"", key);
        return NULL;
    }
    bool item = lua_isinteger(L, -2) && lua_tointeger(L, -2) >= 1 &&
                lua_tointeger(L, -2) <= v->item_count;
    if (!item)
        diagnostics_add(&s->diagnostics, v->place, "",
                        "a key is a name or a position of a list, found a %s",
                        luaL_typename(L, -2));
    return NULL;
}

static void walk_members(struct walk *w, int index, struct value *v, const struct scans *scans) {
    lua_State *L = w->script->L;
    struct pool *p = &w->script->pool;
    lua_pushnil(L);
    while (lua_next(L, index)) {
        const char *key = read_key(w->script, v);
        if (key) {
            struct scans nested = { .count = 0 };
            struct place place = find_place(scans, key, 0, v->place, &nested);
            value_set(p, v, key, walk_value(w, lua_gettop(L), &nested, place), place);
        }
        lua_pop(L, 1);
    }
}

static struct value *walk_table(struct walk *w, int index, const struct scans *nested,
                                struct place place) {
    struct script *s = w->script;
    struct value *v = value_new(&s->pool, VALUE_TABLE, place);
    struct scans *scans = pool_alloc(&s->pool, sizeof *scans);
    *scans = *nested;
    if (nested->count)
        v->place = (struct place){ .file = nested->list[0].file,
                                   .line = nested->list[0].constructor->line,
                                   .column = nested->list[0].constructor->column };
    luaL_checkstack(s->L, 16, "tables nested too deeply");
    if (script_push_origin(s->L, index)) {
        scans->count = 0;
        read_origin(s, v, scans);
        if (!v->place.line) v->place = place;
    }
    if (w->depth >= DEPTH_MAX) {
        diagnostics_add(&s->diagnostics, v->place, "",
                        "tables nested more than %d deep (does one contain itself?)", DEPTH_MAX);
        return v;
    }
    w->depth++;
    walk_items(w, index, v, scans);
    walk_members(w, index, v, scans);
    w->depth--;
    return v;
}

static struct value *walk_value(struct walk *w, int index, const struct scans *nested,
                                struct place place) {
    lua_State *L = w->script->L;
    struct pool *p = &w->script->pool;
    if (++w->nodes > NODES_MAX) luaL_error(L, "the experiment has more than %d values", NODES_MAX);
    struct value *v;
    switch (lua_type(L, index)) {
    case LUA_TTABLE: return walk_table(w, index, nested, place);
    case LUA_TBOOLEAN:
        v = value_new(p, VALUE_BOOL, place);
        v->b = lua_toboolean(L, index);
        return v;
    case LUA_TNUMBER:
        if (lua_isinteger(L, index)) return value_int(p, lua_tointeger(L, index), place);
        return value_float(p, lua_tonumber(L, index), place);
    case LUA_TSTRING: {
        v = value_new(p, VALUE_STRING, place);
        const char *text = lua_tolstring(L, index, &v->string_bytes);
        v->string = pool_copy_n(p, text, v->string_bytes);
        return v;
    }
    case LUA_TFUNCTION:
        v = value_new(p, VALUE_FUNCTION, place);
        lua_pushvalue(L, index);
        v->function = luaL_ref(L, LUA_REGISTRYINDEX);
        return v;
    default: return value_new(p, VALUE_NULL, place);
    }
}

struct value *script_tree(struct script *s, int index, struct place place) {
    struct walk w = { .script = s };
    struct scans none = { .count = 0 };
    return walk_value(&w, lua_absindex(s->L, index), &none, place);
}
