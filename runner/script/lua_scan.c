#include "runner/script/lua_scan.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- tokens ---------------------------------------------------------------------------------- */
void lua_lexer_start(struct lua_lexer *x, const char *source, size_t bytes) {
    *x = (struct lua_lexer){ .at = source, .end = source + bytes, .line_start = source, .line = 1 };
    if (bytes && *source == '#') /* a first line for the shell */
        while (x->at < x->end && *x->at != '\n') x->at++;
}

static char peek(const struct lua_lexer *x, size_t ahead) {
    return ahead < (size_t)(x->end - x->at) ? x->at[ahead] : '\0';
}

static void advance(struct lua_lexer *x) {
    if (*x->at++ != '\n') return;
    x->line++;
    x->line_start = x->at;
}

/* The level of a long bracket that opens here ("[[" is 0, "[==[" is 2), or -1. */
static int long_bracket(const struct lua_lexer *x) {
    if (peek(x, 0) != '[') return -1;
    int level = 0;
    while (peek(x, 1 + (size_t)level) == '=') level++;
    return peek(x, 1 + (size_t)level) == '[' ? level : -1;
}

/* Skips a long string or comment; its text is *start, *bytes long. */
static void skip_long(struct lua_lexer *x, int level, const char **start, size_t *bytes) {
    for (int i = 0; i < level + 2; i++) advance(x);
    *start = x->at;
    while (x->at < x->end) {
        bool closes = *x->at == ']' && peek(x, 1 + (size_t)level) == ']';
        for (int i = 0; closes && i < level; i++) closes = peek(x, 1 + (size_t)i) == '=';
        if (closes) break;
        advance(x);
    }
    *bytes = (size_t)(x->at - *start);
    for (int i = 0; i < level + 2 && x->at < x->end; i++) advance(x);
}

static void skip_blanks(struct lua_lexer *x) {
    while (x->at < x->end) {
        if (isspace((unsigned char)*x->at)) {
            advance(x);
        } else if (peek(x, 0) == '-' && peek(x, 1) == '-') {
            x->at += 2;
            int level = long_bracket(x);
            const char *start;
            size_t bytes;
            if (level >= 0)
                skip_long(x, level, &start, &bytes);
            else
                while (x->at < x->end && *x->at != '\n') x->at++;
        } else {
            return;
        }
    }
}

static void read_quoted(struct lua_lexer *x, struct lua_token *t) {
    char quote = *x->at++;
    t->at = x->at;
    while (x->at < x->end && *x->at != quote && *x->at != '\n') {
        if (*x->at == '\\' && x->at + 1 < x->end) advance(x);
        advance(x);
    }
    t->bytes = (size_t)(x->at - t->at);
    if (x->at < x->end && *x->at == quote) x->at++;
}

static void read_number(struct lua_lexer *x) {
    bool hex = peek(x, 0) == '0' && (peek(x, 1) == 'x' || peek(x, 1) == 'X');
    while (x->at < x->end) {
        char c = *x->at;
        bool exponent = hex ? c == 'p' || c == 'P' : c == 'e' || c == 'E';
        if (!isalnum((unsigned char)c) && c != '.') break;
        x->at++;
        if (exponent && (peek(x, 0) == '+' || peek(x, 0) == '-')) x->at++;
    }
}

static bool name_char(char c) { return isalnum((unsigned char)c) || c == '_'; }

static size_t symbol_bytes(const struct lua_lexer *x) {
    static const char *const LONG[] = { "...", "..", "==", "~=", "<=", ">=", "//", "::", "<<",
                                        ">>" };
    for (size_t i = 0; i < sizeof LONG / sizeof *LONG; i++) {
        size_t n = strlen(LONG[i]);
        if ((size_t)(x->end - x->at) >= n && memcmp(x->at, LONG[i], n) == 0) return n;
    }
    return 1;
}

struct lua_token lua_lexer_next(struct lua_lexer *x) {
    skip_blanks(x);
    struct lua_token t = { .type = LUA_TOKEN_END, .at = x->at, .line = x->line,
                           .column = (int)(x->at - x->line_start) + 1 };
    if (x->at >= x->end) return t;
    int level = long_bracket(x);
    char c = *x->at;
    if (level >= 0) {
        t.type = LUA_TOKEN_STRING;
        skip_long(x, level, &t.at, &t.bytes);
        return t;
    }
    if (c == '"' || c == '\'') {
        t.type = LUA_TOKEN_STRING;
        read_quoted(x, &t);
        return t;
    }
    if (isdigit((unsigned char)c) || (c == '.' && isdigit((unsigned char)peek(x, 1)))) {
        t.type = LUA_TOKEN_NUMBER;
        read_number(x);
    } else if (name_char(c)) {
        t.type = LUA_TOKEN_NAME;
        while (x->at < x->end && name_char(*x->at)) x->at++;
    } else {
        t.type = LUA_TOKEN_SYMBOL;
        x->at += symbol_bytes(x);
    }
    t.bytes = (size_t)(x->at - t.at);
    return t;
}

bool lua_token_is(const struct lua_token *t, const char *text) {
    return t->type != LUA_TOKEN_STRING && t->type != LUA_TOKEN_END && strlen(text) == t->bytes &&
           memcmp(t->at, text, t->bytes) == 0;
}

/* ---- constructors ---------------------------------------------------------------------------- */
enum { NESTING_MAX = 64 };

struct reader {
    struct pool *pool;
    struct lua_lexer lexer;
    struct lua_token token, ahead; /* the current one and the one after it */
};

static void step(struct reader *r) {
    r->token = r->ahead;
    r->ahead = lua_lexer_next(&r->lexer);
}

static bool opens(const struct lua_token *t) {
    return lua_token_is(t, "(") || lua_token_is(t, "{") || lua_token_is(t, "[");
}

static bool closes(const struct lua_token *t) {
    return lua_token_is(t, ")") || lua_token_is(t, "}") || lua_token_is(t, "]");
}

/* In an expression only `function` opens a block. In its body the other keywords do too (`for` and
 * `while` open their block with `do`). */
static int block_change(const struct lua_token *t, int blocks) {
    if (lua_token_is(t, "function")) return 1;
    if (blocks == 0) return 0;
    if (lua_token_is(t, "if") || lua_token_is(t, "do") || lua_token_is(t, "repeat")) return 1;
    return lua_token_is(t, "end") || lua_token_is(t, "until") ? -1 : 0;
}

/* Skips to the ',' ';' or '}' that ends an entry, or past the ']' of a computed key. */
static void skip_expression(struct reader *r) {
    int depth = 0, blocks = 0;
    while (r->token.type != LUA_TOKEN_END) {
        if (depth == 0 && blocks == 0 &&
            (lua_token_is(&r->token, ",") || lua_token_is(&r->token, ";") || closes(&r->token)))
            return;
        blocks += block_change(&r->token, blocks);
        if (opens(&r->token)) depth++;
        if (closes(&r->token)) depth--;
        step(r);
    }
}

static struct lua_constructor *read_constructor(struct reader *r, int nesting);

/* Reads the key of an entry. The reader is then at the value. */
static void read_key(struct reader *r, struct lua_entry *entry, int64_t *position) {
    if (r->token.type == LUA_TOKEN_NAME && lua_token_is(&r->ahead, "=")) {
        entry->key = pool_copy_n(r->pool, r->token.at, r->token.bytes);
        step(r);
        step(r);
        return;
    }
    if (!lua_token_is(&r->token, "[")) {
        entry->index = ++*position;
        return;
    }
    step(r);
    struct lua_token key = r->token;
    if (lua_token_is(&r->ahead, "]")) {
        if (key.type == LUA_TOKEN_STRING) entry->key = pool_copy_n(r->pool, key.at, key.bytes);
        if (key.type == LUA_TOKEN_NUMBER) entry->index = strtoll(key.at, NULL, 0);
        step(r);
    } else {
        skip_expression(r);
    }
    step(r); /* ']' */
    step(r); /* '=' */
}

static void add_entry(struct reader *r, struct lua_constructor *c, struct lua_entry entry) {
    if (c->count == c->capacity) {
        c->capacity = c->capacity ? c->capacity * 2 : 8;
        struct lua_entry *grown = pool_alloc(r->pool, (size_t)c->capacity * sizeof *grown);
        if (c->count) memcpy(grown, c->entries, (size_t)c->count * sizeof *grown);
        c->entries = grown;
    }
    c->entries[c->count++] = entry;
}

/* The reader is at '{', and afterwards past the matching '}'. */
static struct lua_constructor *read_constructor(struct reader *r, int nesting) {
    struct lua_constructor *c = pool_alloc(r->pool, sizeof *c);
    int64_t position = 0;
    c->line = r->token.line;
    c->column = r->token.column;
    step(r);
    while (r->token.type != LUA_TOKEN_END && !lua_token_is(&r->token, "}")) {
        struct lua_entry entry = { .line = r->token.line, .column = r->token.column };
        read_key(r, &entry, &position);
        if (lua_token_is(&r->token, "{") && nesting < NESTING_MAX)
            entry.nested = read_constructor(r, nesting + 1);
        skip_expression(r);
        add_entry(r, c, entry);
        if (lua_token_is(&r->token, ",") || lua_token_is(&r->token, ";"))
            step(r);
        else if (!lua_token_is(&r->token, "}"))
            break; /* not valid Lua */
    }
    step(r);
    return c;
}

/* Whether a constructor after this token would be a call's argument. */
static bool callable_end(const struct lua_token *t, const char *callee) {
    if (t->type == LUA_TOKEN_NAME && !lua_token_is(t, "return"))
        return !callee || lua_token_is(t, callee);
    return !callee && (lua_token_is(t, "]") || lua_token_is(t, ")"));
}

int64_t lua_scan_calls(struct pool *p, const char *source, size_t bytes, int line,
                       const char *callee, struct lua_constructor *found[LUA_SCAN_MAX]) {
    struct lua_lexer lexer;
    lua_lexer_start(&lexer, source, bytes);
    int64_t count = 0;
    while (count < LUA_SCAN_MAX) {
        struct lua_token t = lua_lexer_next(&lexer);
        if (t.type == LUA_TOKEN_END || t.line > line) break;
        struct lua_lexer rest = lexer;
        struct lua_token open = lua_lexer_next(&rest);
        if (lua_token_is(&open, "(")) open = lua_lexer_next(&rest);

        if (t.line != line || !callable_end(&t, callee) || !lua_token_is(&open, "{"))
            continue;
        struct reader r = { .pool = p, .lexer = rest, .token = open };
        r.ahead = lua_lexer_next(&r.lexer);
        found[count++] = read_constructor(&r, 0);
    }
    return count;
}

const struct lua_entry *lua_constructor_find(const struct lua_constructor *c, const char *key,
                                             int64_t index) {
    for (int64_t i = 0; i < c->count; i++) {
        const struct lua_entry *entry = &c->entries[i];
        if (key ? entry->key && strcmp(entry->key, key) == 0 : entry->index == index) return entry;
    }
    return NULL;
}
