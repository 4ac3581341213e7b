/* The place of each key of a table constructor in a Lua source.
 *
 * Lua's tables have no line numbers. So the source text is read again to find the place of a wrong
 * key, with a small lexer of Lua 5.4 and a reader of table constructors. This is for messages only;
 * source text that it does not recognise gives "not found". Includes libc only. */
#ifndef FP8LAB_RUNNER_SCRIPT_LUA_SCAN_H
#define FP8LAB_RUNNER_SCRIPT_LUA_SCAN_H

#include "runner/base/pool.h"

/* ---- tokens ---------------------------------------------------------------------------------- */
enum lua_token_type { LUA_TOKEN_END, LUA_TOKEN_NAME, LUA_TOKEN_NUMBER, LUA_TOKEN_STRING,
                      LUA_TOKEN_SYMBOL };

struct lua_token {
    enum lua_token_type type;
    const char *at; /* borrowed from the source; for a string, its text without the quotes */
    size_t bytes;
    int line, column; /* from 1 */
};

struct lua_lexer {
    const char *at, *end, *line_start;
    int line;
};

void lua_lexer_start(struct lua_lexer *lexer, const char *source, size_t bytes);
/* The next token, without comments. At the end every call returns LUA_TOKEN_END. */
struct lua_token lua_lexer_next(struct lua_lexer *lexer);
bool lua_token_is(const struct lua_token *t, const char *text);

/* ---- constructors ---------------------------------------------------------------------------- */
struct lua_constructor;

struct lua_entry {
    const char *key; /* NULL: positional, or computed */
    int64_t index;   /* from 1 for a positional entry; 0 otherwise */
    int line, column;
    struct lua_constructor *nested; /* the `{...}` that is its whole value, or NULL */
};

struct lua_constructor {
    int line, column; /* of its '{' */
    struct lua_entry *entries;
    int64_t count, capacity;
};

enum { LUA_SCAN_MAX = 8 };

/* The constructors that are arguments of a call that begins on `line`: `callee {...}` or
 * `callee({...})`, where `callee` is the last name of the called expression ("delayed" of
 * fp8.delayed), or NULL for any. Returns their number, at most LUA_SCAN_MAX. */
int64_t lua_scan_calls(struct pool *p, const char *source, size_t bytes, int line,
                       const char *callee, struct lua_constructor *found[LUA_SCAN_MAX]);

/* The entry for a key, or for a position when key is NULL; NULL if there is none. */
const struct lua_entry *lua_constructor_find(const struct lua_constructor *c, const char *key,
                                             int64_t index);

#endif
