/* The places of keys in Lua source: the lexer, and the reader of constructors. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "runner/script/lua_scan.h"

static void out_of_memory(void *unused) {
    (void)unused;
    fail_msg("out of memory");
}

static void tokens_are_recognised(void **state) {
    (void)state;
    static const char SOURCE[] = "#!/usr/bin/lua\n"
                                 "a1 = 'it\\'s' .. [==[ ]] ]==] -- comment\n"
                                 "--[[ long\n comment ]] 0x1p-4 .5 3e+2 ... // ~= \"open\n}";
    static const struct { enum lua_token_type type; const char *text; int line; } ROWS[] = {
        { LUA_TOKEN_NAME, "a1", 2 },         { LUA_TOKEN_SYMBOL, "=", 2 },
        { LUA_TOKEN_STRING, "it\\'s", 2 },   { LUA_TOKEN_SYMBOL, "..", 2 },
        { LUA_TOKEN_STRING, " ]] ", 2 },     { LUA_TOKEN_NUMBER, "0x1p-4", 4 },
        { LUA_TOKEN_NUMBER, ".5", 4 },       { LUA_TOKEN_NUMBER, "3e+2", 4 },
        { LUA_TOKEN_SYMBOL, "...", 4 },      { LUA_TOKEN_SYMBOL, "//", 4 },
        { LUA_TOKEN_SYMBOL, "~=", 4 },       { LUA_TOKEN_STRING, "open", 4 },
        { LUA_TOKEN_SYMBOL, "}", 5 },        { LUA_TOKEN_END, "", 5 },
        { LUA_TOKEN_END, "", 5 },
    };
    struct lua_lexer lexer;
    lua_lexer_start(&lexer, SOURCE, sizeof SOURCE - 1);
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        struct lua_token t = lua_lexer_next(&lexer);
        assert_int_equal(t.type, ROWS[i].type);
        assert_int_equal(t.bytes, strlen(ROWS[i].text));
        assert_memory_equal(t.at, ROWS[i].text, t.bytes);
        assert_int_equal(t.line, ROWS[i].line);
    }
}

static void keys_are_found_with_line_and_column(void **state) {
    (void)state;
    static const char SOURCE[] =
        "local x = other { a = 9 }\n"
        "return fp8.delayed({ a = function(t) if t then return { a = 1, b = 2 }, 3 end end,\n"
        "  ['b c'] = 1; -- d = 2,\n"
        "  nested = { deep = { 1, [2] = 5 },\n"
        "    e = f { g = 1 } },\n"
        "  [x .. 'y'] = 2, 'first', h == 1, z = 'a = 1, q = 2' }) , other { late = 1 }\n";
    static const struct { const char *key; int64_t index; int line, column; } ROWS[] = {
        { "a", 0, 2, 22 }, { "b c", 0, 3, 3 }, { "nested", 0, 4, 3 }, { NULL, 1, 6, 19 },
        { NULL, 2, 6, 28 }, { "z", 0, 6, 36 },
    };
    struct pool p = { .exhausted = out_of_memory };
    struct lua_constructor *found[LUA_SCAN_MAX];
    assert_int_equal(lua_scan_calls(&p, SOURCE, sizeof SOURCE - 1, 2, "delayed", found), 1);
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        const struct lua_entry *entry =
            lua_constructor_find(found[0], ROWS[i].key, ROWS[i].index);
        if (!entry) fail_msg("no entry for row %d", (int)i);
        assert_int_equal(entry->line, ROWS[i].line);
        assert_int_equal(entry->column, ROWS[i].column);
    }
    static const char *const ABSENT[] = { "b", "d", "e", "q", "deep", "late", "x" };
    for (size_t i = 0; i < sizeof ABSENT / sizeof *ABSENT; i++)
        assert_null(lua_constructor_find(found[0], ABSENT[i], 0));
    const struct lua_entry *nested = lua_constructor_find(found[0], "nested", 0);
    const struct lua_entry *deep = lua_constructor_find(nested->nested, "deep", 0);
    assert_int_equal(lua_constructor_find(deep->nested, NULL, 2)->column, 26);
    assert_null(lua_constructor_find(nested->nested, "e", 0)->nested); /* a call, not a table */
    pool_destroy(&p);
}

static void calls_are_found_by_line_and_name(void **state) {
    (void)state;
    static const char SOURCE[] = "a { x = 1 } b { x = 2 }\nt['k'] { x = 3 }\nf(1) { x = 4 }\n";
    struct pool p = { .exhausted = out_of_memory };
    struct lua_constructor *found[LUA_SCAN_MAX];
    size_t n = sizeof SOURCE - 1;
    assert_int_equal(lua_scan_calls(&p, SOURCE, n, 1, NULL, found), 2);
    assert_int_equal(lua_scan_calls(&p, SOURCE, n, 1, "b", found), 1);
    assert_int_equal(found[0]->column, 15);
    assert_int_equal(lua_scan_calls(&p, SOURCE, n, 1, "c", found), 0);
    assert_int_equal(lua_scan_calls(&p, SOURCE, n, 2, NULL, found), 1);
    assert_int_equal(lua_scan_calls(&p, SOURCE, n, 3, NULL, found), 1);
    assert_int_equal(lua_scan_calls(&p, SOURCE, n, 9, NULL, found), 0);
    pool_destroy(&p);
}

/* For any text, scanning ends and does not read beyond it (the sanitizers check). */
static void any_text_ends_the_scan(void **state) {
    (void)state;
    static const char *const SOURCES[] = {
        "a {", "a { [", "a { [[", "a { x = ", "a { x = function", "a { } }", "a { ]", "a {{{{{{{{",
        "a { 'open", "a { [=[", "a { -- }", "a { --[[ }", "a { [1", "a { x == 1 }",
        "a({", "a { ) }",
    };
    for (size_t i = 0; i < sizeof SOURCES / sizeof *SOURCES; i++) {
        struct pool p = { .exhausted = out_of_memory };
        struct lua_constructor *found[LUA_SCAN_MAX];
        assert_int_equal(lua_scan_calls(&p, SOURCES[i], strlen(SOURCES[i]), 1, "a", found), 1);
        pool_destroy(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_recognised),
        cmocka_unit_test(keys_are_found_with_line_and_column),
        cmocka_unit_test(calls_are_found_by_line_and_name),
        cmocka_unit_test(any_text_ends_the_scan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
