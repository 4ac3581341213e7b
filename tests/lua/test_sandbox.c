/* A hostile or careless script: the functions that it cannot reach, and the limits on its
 * resources. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "runner/base/run_files.h"
#include "runner/script/script.h"
#include "runner/script/script_state.h"
#include "tests/support/run_fixture.h"

/* Small limits, so that each case ends quickly. Only an endless call in C reaches the time limits:
 * a sanitizer on a slow machine needs seconds for the rest. */
static const struct script_limits LIMITS = { .instructions = 5 * 1000 * 1000,
                                             .memory_bytes = 64 << 20,
                                             .cpu_s = 30,
                                             .wall_s = 120,
                                             .address_bytes = (int64_t)1 << 30 };

/* The script's own text is its result, so that a test can see what it computed. */
static void write_returned(struct script *s, void *unused, struct text *out) {
    (void)unused;
    const char *text = script_tostring(s->L, 1);
    canonical_add_string(out, text, strlen(text));
}

static enum status evaluate_in(const char *folder, const char *source, json_t **report,
                               struct err *e) {
    char path[PATH_CAP];
    put_file(folder, "x.lua", "%s", source);
    assert_int_equal(path_join(path, folder, "x.lua", NULL), OK);
    struct script_task task = { .path = path, .limits = &LIMITS, .body = write_returned };
    return script_evaluate(&task, report, e);
}

struct row {
    const char *source, *expected; /* a part of the error; of the result where `works` */
    bool works;
};

static void check_rows(const struct row *rows, size_t count) {
    char folder[PATH_CAP];
    scratch_directory(folder);
    for (size_t i = 0; i < count; i++) {
        struct err e = { 0 };
        json_t *report = NULL;
        enum status st = evaluate_in(folder, rows[i].source, &report, &e);
        const char *text = rows[i].works ? json_text(report, "result", "") : e.text;
        if (st != (rows[i].works ? OK : ERR_CONFIG) || !strstr(text, rows[i].expected))
            fail_msg("%s\n  expected: %s\n  found: %s %s", rows[i].source, rows[i].expected,
                     st == OK ? "ok" : e.text, text);
        json_decref(report);
    }
    assert_int_equal(tree_remove(folder, NULL), OK);
}

/* ---- out of reach ---------------------------------------------------------------------------- */
static const struct row FORBIDDEN[] = {
    { "return io.open('/etc/passwd')", "io is not available in an experiment", false },
    { "os.execute('true')", "os is not available in an experiment", false },
    { "return debug.getregistry()", "debug is not available", false },
    { "package.cpath = 'x'", "package is not available", false },
    { "coroutine.wrap(print)", "coroutine is not available", false },
    { "load('return 1')()", "load is not available", false },
    { "loadstring('return 1')()", "loadstring is not available", false },
    { "loadfile('/etc/passwd')", "loadfile is not available", false },
    { "dofile('/etc/passwd')", "dofile is not available", false },
    { "collectgarbage()", "collectgarbage is not available", false },
    { "warn('@on')", "warn is not available", false },
    { "xpcall(print, print)", "xpcall is not available", false },
    { "return next({})", "next is not available in an experiment; pairs visits keys", false },
    { "return rawget(_G, 'io')", "nil", true },
    { "return string.dump", "nil", true },
    { "string.dump(function() end)", "attempt to call a nil value (field 'dump')", false },
    { "return ('x').dump", "nil", true },
    { "return math.atan", "nil", true },
    { "return _G.require == require", "true", true },
    /* The strings' metatable, and through it every string operation of the host. */
    { "return getmetatable('')", "false", true },
    { "getmetatable('').__index = nil", "attempt to index a boolean value", false },
    { "getmetatable(_G).__index = nil", "attempt to index a boolean value", false },
    { "setmetatable(_G, {})", "cannot change a protected metatable", false },
    { "setmetatable(fp8, nil)", "cannot change a protected metatable", false },
    { "setmetatable({}, { __gc = function() end })", "__gc is not available", false },
    { "setmetatable({}, { __mode = 'k' })", "__mode is not available", false },
    { "x = 1", "assignment to the global 'x'; write: local x = ...", false },
    { "return experimant", "the global 'experimant' does not exist; did you mean 'experiment'?",
      false },
    { "return fp8.delay {}", "there is no recipe fp8.delay (did you mean fp8.delayed?)", false },
    { "return 3 ^ 0.5", "^ is the C library's pow", false },
    { "return 2 ^ 0.5", "^ is the C library's pow", false },
    { "return 2 ^ 20", "1048576.0", true },
    { "return -- ^\n '^'", "^", true },
};

static void forbidden_things_are_named(void **state) {
    (void)state;
    check_rows(FORBIDDEN, sizeof FORBIDDEN / sizeof *FORBIDDEN);
}

static const struct row TEXT_ONLY[] = {
    { "\x1bLua\x54", "compiled Lua is not accepted", false },
    { "return '\xff'", "x.lua:1: the source is not UTF-8 text", false },
    { "return 1 +", "x.lua:1: unexpected symbol near <eof>", false },
    { "#!/usr/bin/fp8lab\nreturn 'shebang'", "shebang", true },
    { "error({})", "table", false },
    { "error('\\xff')", "", false },
    { "local t = setmetatable({}, { __tostring = function() error('deep') end }) error(t)", "",
      false },
};

static void only_source_text_is_loaded(void **state) {
    (void)state;
    check_rows(TEXT_ONLY, sizeof TEXT_ONLY / sizeof *TEXT_ONLY);
}

/* ---- the same everywhere --------------------------------------------------------------------- */
static const struct row STABLE[] = {
    { "local s = '' for k in pairs { b = 1, a = 2, [3] = 1, 9, [true] = 1, [0.5] = 1 } do s = s .. "
      "tostring(k) .. ' ' end return s", "0.5 1 3 a b true ", true },
    { "for k in pairs { [{}] = 1 } do end", "a key that is a table has no order", false },
    { "local t = { a = 1, b = 2, c = 3 } for k in pairs(t) do t[k] = nil end return #t", "0",
      true },
    { "local t = {} for i = 1, 9 do t[i] = { i % 3, i } end table.sort(t, function(a, b) return "
      "a[1] < b[1] end) local s = '' for _, v in ipairs(t) do s = s .. v[2] end return s",
      "369147258", true },
    { "local t = { 'b', 'c', 'a' } table.sort(t) return table.concat(t)", "abc", true },
    { "table.sort({ 3, 1, 2, 5, 4 }, function() return true end) return 'any comparison'",
      "any comparison", true },
    { "return math.random(1, 1000000) .. ' ' .. math.random(10) .. ' ' .. math.random()",
      "711196 5 0.20213287431011", true },
    /* SplitMix64's first output for the seed 1234567, as its other implementations have it. */
    { "math.randomseed(1234567) return math.random(math.mininteger, math.maxinteger) - "
      "math.mininteger", "6457827717110365317", true },
    { "math.randomseed(7) local a = math.random(100) math.randomseed(7) return a == "
      "math.random(100)", "true", true },
    { "return math.random(2, 1)", "interval is empty", false },
    { "return tostring({}) .. tostring(print) .. string.format('%s', {})", "tablefunctiontable",
      true },
    { "return string.format('%p', {})", "there is no '%p' in an experiment", false },
    { "return string.format('\\0%p', {})", "there is no '%p' in an experiment", false },
    { "return string.format('%d\\0%-20p', 1, {})", "there is no '%p' in an experiment", false },
    { "return string.format('%a', 1.5)", "there is no '%a' in an experiment", false },
    { "return string.format('x%', 1)", "there is no '% ' in an experiment", false },
    { "return string.format('%5\\0p', {})", "there is no '% ' in an experiment", false },
    { "return ('\\0%p'):format(print)", "there is no '%p' in an experiment", false },
    { "local s = string.format('\\0%c%i%o%x%X%e%E%f%g%G%q%s\\0%%', 65, 1, 8, 10, 10, 1, 1, 1, 1, "
      "1, 'a', {}) return #s .. s:sub(2, 7)", "51A110aA", true },
    { "return string.format('%-5d|%%p', 3)", "3    |%p", true },
    { "\nreturn string.format('%5s|', 'a\\0b')",
      "x.lua:2: bad argument #2 to 'format' (string contains zeros)", false },
    { "return string.format('%d', 'y')", "x.lua:1: bad argument #2 to 'format' (number", false },
    { "return setmetatable({}, 5)", "x.lua:1: bad argument #2 to 'setmetatable'", false },
    { "return string.format('%.14g %.14g %.14g', math.exp(1), math.log(10), math.pow(2, 0.5))",
      "2.718281828459 2.302585092994 1.4142135623731", true },
};

static void results_are_the_same_everywhere(void **state) {
    (void)state;
    check_rows(STABLE, sizeof STABLE / sizeof *STABLE);
}

/* ---- limits ---------------------------------------------------------------------------------- */
static const struct row BOMBS[] = {
    { "while true do end", "x.lua:1: the script ran 5 million instructions", false },
    { "while true do pcall(function() while true do end end) end", "5 million instructions",
      false },
    { "local function f() return pcall(f) end f() while true do end", "5 million instructions",
      false },
    { "local function loop() while true do end end pcall(function() local x <close> = "
      "setmetatable({}, { __close = loop }) loop() end)", "5 million instructions", false },
    { "error(setmetatable({}, { __tostring = function() while true do end end }))", "", false },
    { "for _ in pairs(setmetatable({}, { __pairs = function() return function() return 1 end end "
      "})) do end", "5 million instructions", false },
    { "local s = ('x'):rep(1 << 30)", "needs more than 64 MiB", false },
    { "pcall(string.rep, 'x', 1 << 30) return 'went on'", "needs more than 64 MiB", false },
    { "local t = {} for i = 1, 1e9 do t[i] = i end", "needs more than 64 MiB", false },
    { "local s = 'x' while true do s = s .. s end", "needs more than 64 MiB", false },
    { "local function f() return 1 + f() end f()", "x.lua:1: ", false }, /* stack or memory */
    { "local f = function(f) f(f) end pcall(f, f) return 'recovered'", "recovered", true },
    { "return ('('):rep(100, '(')", "((", true },
    { "print(('x'):rep(1 << 20)) print(1) print(2)", "more than 1 MiB of output", false },
    { "print(('x'):rep(10 << 20))", "x.lua:1: print: more than 1 MiB of output", false },
    { "for i = 1, 40 do pcall(print, ('x'):rep(1 << 20)) end return 'went on'", "went on", true },
    { "return ('\\1'):rep(12 << 20)", "its sources and its output are more than 64 MiB", false },
};

static void limits_cannot_be_caught(void **state) {
    (void)state;
    check_rows(BOMBS, sizeof BOMBS / sizeof *BOMBS);
}

/* Hooks do not run inside C functions: only the limit on processor time ends these. */
static void a_call_that_never_returns_is_stopped(void **state) {
    (void)state;
    static const char *const SOURCES[] = {
        "local s = ('a'):rep(40)\nreturn s:find(('a?'):rep(40) .. ('a*'):rep(20) .. 'b')",
        "local none = 1\nreturn (''):rep(1 << 62)",
    };
    char folder[PATH_CAP];
    scratch_directory(folder);
    for (size_t i = 0; i < 2; i++) {
        struct err e = { 0 };
        json_t *report;
        struct script_limits short_limits = LIMITS;
        char path[PATH_CAP];
        short_limits.cpu_s = 1;
        put_file(folder, "x.lua", "%s", SOURCES[i]);
        assert_int_equal(path_join(path, folder, "x.lua", NULL), OK);
        struct script_task task = { .path = path, .limits = &short_limits,
                                    .body = write_returned };
        assert_int_equal(script_evaluate(&task, &report, &e), ERR_CONFIG);
        if (!strstr(e.text, "x.lua:2: stopped after 1 s of processor time")) fail_msg("%s", e.text);
        json_decref(report);
    }
    assert_int_equal(tree_remove(folder, NULL), OK);
}

/* ---- require --------------------------------------------------------------------------------- */
static const struct row REQUIRE[] = {
    { "return require 'beside'", "beside", true },
    { "return require 'deep.er'", "deeper", true },
    { "return require 'preset'", "from lib", true },
    { "return require('beside') == require 'beside'", "true", true },
    { "require '../outside'", "a module name has letters", false },
    { "require '..outside'", "a module name has letters", false },
    { "require 'deep..er'", "a module name has letters", false },
    { "require '/etc/passwd'", "a module name has letters", false },
    { "require 'deep/er'", "a module name has letters", false },
    { "require 'beside\\0'", "a module name has no NUL byte", false },
    { "require ''", "a module name has letters", false },
    { "require 'link'", "symbolic links are not followed", false },
    { "require 'linked.outside'", "symbolic links are not followed", false },
    { "require 'absent'", "no such file; looked for", false },
    { "require 'folder'", "not a regular file", false },
    { "require 'pipe'", "not a regular file", false },
    { "require 'binary'", "compiled Lua is not accepted", false },
    { "require 'nothing'", "the module returns nothing", false },
    { "require 'circle'", "the module requires itself", false },
    { "require 'broken'", "broken.lua:2:", false },
};

static void require_stays_in_its_folders(void **state) {
    (void)state;
    char folder[PATH_CAP], path[PATH_CAP];
    scratch_directory(folder);
    put_file(folder, "outside.lua", "return 'outside'");
    put_file(folder, "in/beside.lua", "return 'beside'");
    put_file(folder, "in/deep/er.lua", "return 'deeper'");
    put_file(folder, "in/lib/preset.lua", "return 'from lib'");
    put_file(folder, "in/binary.lua", "\x1bLua");
    put_file(folder, "in/nothing.lua", "local x = 1");
    put_file(folder, "in/circle.lua", "return require 'circle'");
    put_file(folder, "in/broken.lua", "local t = {}\nreturn t.a.b");
    snprintf(path, sizeof path, "%.3000s/in/link.lua", folder);
    assert_int_equal(symlink("../outside.lua", path), 0);
    snprintf(path, sizeof path, "%.3000s/in/linked", folder);
    assert_int_equal(symlink("..", path), 0);
    snprintf(path, sizeof path, "%.3000s/in/folder.lua", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%.3000s/in/pipe.lua", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    snprintf(path, sizeof path, "%.3000s/in", folder);
    for (size_t i = 0; i < sizeof REQUIRE / sizeof *REQUIRE; i++) {
        struct err e = { 0 };
        json_t *report;
        enum status st = evaluate_in(path, REQUIRE[i].source, &report, &e);
        const char *text = REQUIRE[i].works ? json_text(report, "result", "") : e.text;
        if (st != (REQUIRE[i].works ? OK : ERR_CONFIG) || !strstr(text, REQUIRE[i].expected))
            fail_msg("%s\n  expected: %s\n  found: %s", REQUIRE[i].source, REQUIRE[i].expected,
                     text);
        json_decref(report);
    }
    snprintf(path, sizeof path, "%.3000s/in/pipe.lua", folder);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(tree_remove(folder, NULL), OK);
}

/* ---- the record of loaded files -------------------------------------------------------------- */
static void every_file_is_recorded_verbatim(void **state) {
    (void)state;
    char folder[PATH_CAP], hex[SHA256_HEX];
    struct err e = { 0 };
    json_t *report;
    const char *main_text = "print('hello', 1) require 'b' require 'models.a' return require 'b'";
    const char *a = "-- \"quoted\" \\ \xc3\xa4\nreturn 1\n";
    scratch_directory(folder);
    put_file(folder, "lib/models/a.lua", "%s", a);
    put_file(folder, "b.lua", "return 2");
    assert_int_equal(evaluate_in(folder, main_text, &report, &e), OK);
    const json_t *files = json_object_get(report, "files");
    static const char *const NAMES[] = { "main.lua", "b.lua", "lib/models/a.lua" };
    assert_int_equal(json_array_size(files), 3);
    for (size_t i = 0; i < 3; i++) {
        const json_t *f = json_array_get(files, i);
        const char *text = json_text(f, "text", NULL);
        assert_string_equal(json_text(f, "name", ""), NAMES[i]);
        assert_int_equal(sha256_bytes(text, strlen(text), hex, &e), OK);
        assert_string_equal(json_text(f, "sha256", ""), hex);
    }
    assert_string_equal(json_text(json_array_get(files, 0), "text", ""), main_text);
    assert_string_equal(json_text(json_array_get(files, 2), "text", ""), a);
    assert_string_equal(json_text(report, "log", ""), "hello\t1\n");
    json_decref(report);
    assert_int_equal(tree_remove(folder, NULL), OK);
}

static void an_unreadable_script_has_a_reason(void **state) {
    (void)state;
    struct err e = { 0 };
    json_t *report;
    struct script_task task = { .path = "/nonexistent/x.lua", .body = write_returned };
    assert_int_equal(script_evaluate(&task, &report, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "/nonexistent/x.lua: No such file or directory"));
    json_decref(report);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forbidden_things_are_named),
        cmocka_unit_test(only_source_text_is_loaded),
        cmocka_unit_test(results_are_the_same_everywhere),
        cmocka_unit_test(limits_cannot_be_caught),
        cmocka_unit_test(a_call_that_never_returns_is_stopped),
        cmocka_unit_test(require_stays_in_its_folders),
        cmocka_unit_test(every_file_is_recorded_verbatim),
        cmocka_unit_test(an_unreadable_script_has_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
