#include "runner/script/script_state.h"

#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct script_limits SCRIPT_LIMITS = {
    .instructions = 50 * 1000 * 1000, /* two to four seconds; a suite of 1000 runs needs 1% of it */
    .memory_bytes = 256 << 20,
    .cpu_s = 10,
    .wall_s = 60,
    .address_bytes = (int64_t)2 << 30,
};

enum {
    HOOK_EVERY = 1000,           /* instructions between two checks of the limit */
    MEMORY_RESERVE = 1 << 20,    /* kept for raising the error at the limit */
    RANDOM_SEED = 1234
};

struct script *script_of(lua_State *L) {
    struct script *s;
    memcpy(&s, lua_getextraspace(L), sizeof s);
    return s;
}

struct place script_here(lua_State *L) {
    lua_Debug ar;
    for (int level = 0; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Sl", &ar);
        if (ar.currentline <= 0) continue;
        const char *file = *ar.source == '@' ? ar.source + 1 : ar.source;
        return (struct place){ .file = pool_copy(&script_of(L)->pool, file),
                               .line = ar.currentline };
    }
    return (struct place){ 0 };
}

/* ---- limits ---------------------------------------------------------------------------------- */
static void raise_limit(lua_State *L, const struct script *s) {
    luaL_where(L, 0); /* within a hook, level 0 is the function that runs */
    if (s->stopped == LIMIT_MEMORY)
        lua_pushfstring(L, "the script needs more than %d MiB of memory",
                        (int)(s->limits->memory_bytes >> 20));
    else
        lua_pushfstring(L, "the script ran %d million instructions without coming to an end",
                        (int)(s->limits->instructions / 1000000));
    lua_concat(L, 2);
    lua_error(L);
}

/* Runs at every line (for the trail) and every HOOK_EVERY instructions. After a limit is reached it
 * runs at every instruction, so that no pcall can continue. */
static void on_hook(lua_State *L, lua_Debug *ar) {
    struct script *s = script_of(L);
    if (s->stopped) raise_limit(L, s);
    if (ar->event == LUA_HOOKLINE) {
        lua_getinfo(L, "S", ar);
        s->trail->line = ar->currentline;
        if (ar->source != s->trail_source)
            snprintf(s->trail->file, sizeof s->trail->file, "%s",
                     *ar->source == '@' ? ar->source + 1 : ar->source);
        s->trail_source = ar->source;
        return;
    }
    s->instructions += HOOK_EVERY;
    if (s->instructions < s->limits->instructions) return;
    s->stopped = LIMIT_INSTRUCTIONS;
    lua_sethook(L, on_hook, LUA_MASKCOUNT, 1);
    raise_limit(L, s);
}

static void *allocate(void *context, void *old, size_t old_bytes, size_t bytes) {
    struct script *s = context;
    int64_t before = old ? (int64_t)old_bytes : 0;
    if (bytes == 0) {
        s->memory_bytes -= before;
        free(old);
        return NULL;
    }
    int64_t after = s->memory_bytes - before + (int64_t)bytes;
    if (after > s->limits->memory_bytes + s->memory_reserve) {
        if (!s->stopped && s->L) {
            s->stopped = LIMIT_MEMORY;
            s->memory_reserve = MEMORY_RESERVE;
            lua_sethook(s->L, on_hook, LUA_MASKCOUNT, 1);
        }
        return NULL;
    }
    void *grown = realloc(old, bytes);
    if (grown) s->memory_bytes = after;
    return grown;
}

/* ---- the state ------------------------------------------------------------------------------- */
static void open_libraries(struct script *s, void *unused) {
    (void)unused;
    script_open_base(s->L);
    script_open_stable(s->L);
    script_open_require(s->L);
    script_open_api(s->L);
    script_close_globals(s->L);
}

static void pool_exhausted(void *context) {
    struct script *s = context;
    luaL_error(s->L, "not enough memory");
}

enum status script_open(struct script *s, struct err *e) {
    if (!s->limits) s->limits = &SCRIPT_LIMITS;
    s->random = RANDOM_SEED;
    s->pool = (struct pool){ .exhausted = pool_exhausted, .context = s };
    s->diagnostics.pool = &s->pool;
    s->L = lua_newstate(allocate, s);
    if (!s->L) return FAIL(e, ERR_MEMORY, "no memory for a Lua state");
    memcpy(lua_getextraspace(s->L), &s, sizeof s);
    lua_gc(s->L, LUA_GCSTOP);
    TRY(script_protect(s, open_libraries, NULL, e));
    lua_sethook(s->L, on_hook, LUA_MASKCOUNT | LUA_MASKLINE, HOOK_EVERY);
    return OK;
}

/* ---- the protected call ---------------------------------------------------------------------- */
struct protected_call {
    struct script *script;
    void (*body)(struct script *, void *);
    void *argument;
};

static int run_body(lua_State *L) {
    const struct protected_call *call = lua_touserdata(L, 1);
    lua_settop(L, 0);
    call->body(call->script, call->argument);
    return 0;
}

/* The outermost level of calls, or 0. By bisection: each lua_getstack walks down from the top, and
 * endless recursion has 200,000 levels. */
static int outermost_level(lua_State *L) {
    lua_Debug ar;
    int there = 0, beyond = 1;
    while (lua_getstack(L, beyond, &ar)) {
        there = beyond;
        beyond *= 2;
    }
    while (beyond - there > 1) {
        int middle = there + (beyond - there) / 2;
        if (lua_getstack(L, middle, &ar)) there = middle;
        else beyond = middle;
    }
    return there;
}

/* Whether a traceback adds to `text`: not if the script calls nothing, and not if the text already
 * begins with the line of the outermost call. */
static bool traceback_helps(lua_State *L, const char *text) {
    lua_Debug ar;
    for (int level = outermost_level(L); level > 0 && lua_getstack(L, level, &ar); level--) {
        char where[LUA_IDSIZE + 32];
        if (!lua_getinfo(L, "Sl", &ar) || *ar.what == 'C') continue;
        snprintf(where, sizeof where, "%s:%d:", ar.short_src, ar.currentline);
        return strncmp(text, where, strlen(where)) != 0;
    }
    return false;
}

void script_log(struct script *s, const char *text, size_t bytes) {
    const char *end = text + bytes;
    for (;;) {
        size_t n = strnlen(text, (size_t)(end - text));
        text_add(&s->log, text, n);
        if ((text += n) == end) return;
        text_puts(&s->log, "\\0");
        text++;
    }
}

/* Pushes "file:line: " of the innermost function in Lua, or "". */
static void push_where(lua_State *L) {
    lua_Debug ar;
    lua_pushliteral(L, "");
    for (int level = 1; !*lua_tostring(L, -1) && lua_getstack(L, level, &ar); level++) {
        lua_pop(L, 1);
        luaL_where(L, level);
    }
}

/* The text of the error. error(nil) and error() have none. */
static const char *error_text(lua_State *L) {
    if (!lua_isnil(L, 1)) return script_tostring(L, 1);
    push_where(L);
    lua_pushliteral(L, "the script raised an error without a message: write error(\"why\")");
    lua_concat(L, 2);
    return lua_tostring(L, -1);
}

/* The message handler: writes the traceback to the log before the stack unwinds. */
static int on_error(lua_State *L) {
    struct script *s = script_of(L);
    if (s->stopped) lua_sethook(L, NULL, 0, 0); /* let the report itself through */
    const char *text = error_text(L);
    if (traceback_helps(L, text)) {
        luaL_traceback(L, L, NULL, 1);
        text_puts(&s->log, lua_tostring(L, -1));
        text_puts(&s->log, "\n");
    }
    lua_pushstring(L, text);
    return 1;
}

enum status script_protect(struct script *s, void (*body)(struct script *, void *), void *argument,
                           struct err *e) {
    struct protected_call call = { s, body, argument };
    lua_State *L = s->L;
    int top = lua_gettop(L);
    lua_pushcfunction(L, on_error);
    lua_pushcfunction(L, run_body);
    lua_pushlightuserdata(L, &call);
    int rc = lua_pcall(L, 1, 0, top + 1);
    if (rc == LUA_OK) {
        lua_settop(L, top);
        return OK;
    }
    const char *text = lua_tostring(L, -1);
    if (s->stopped == LIMIT_MEMORY)
        FAIL(e, ERR_CONFIG, "%s:%d: the script needs more than %d MiB of memory", s->trail->file,
             s->trail->line, (int)(s->limits->memory_bytes >> 20));
    else
        FAIL(e, ERR_CONFIG, "%s", text ? text : "an error without a text");
    lua_settop(L, top);
    return ERR_CONFIG;
}
