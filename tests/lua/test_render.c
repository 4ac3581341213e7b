/* A function of a script as renderer: what it gets and may return; that it has no memory of earlier
 * conversations; its limits; servers that are killed. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/script/render.h"
#include "runner/script/script_state.h"
#include "tests/support/must.h"
#include "tests/support/run_fixture.h"

/* Small, so that each case ends quickly, and with room for a slow machine. */
static const struct script_limits LIMITS = { .instructions = 1000 * 1000,
                                             .memory_bytes = 32 << 20,
                                             .cpu_s = 30,
                                             .wall_s = 120,
                                             .address_bytes = (int64_t)1 << 30 };

/* A script whose result, an experiment's likeness, has the function. */
static enum status open_source(const char *folder, const char *source,
                               const struct script_limits *limits, int servers,
                               struct chat_renderer *out, struct err *e) {
    char path[PATH_CAP];
    put_file(folder, "x.lua", "local base = require 'base'\nlocal function render(c, json)\n%s\n"
             "end\nreturn { data = { render = render } }\n", source);
    put_file(folder, "base.lua", "return { n = 0 }\n");
    put_file(folder, "late.lua", "return {}\n");
    MUST(path_join(path, folder, "x.lua", E));
    return render_open(path, NULL, "data.render", limits, servers, out, e);
}

static json_t *talk(const char *content) {
    json_t *c = json_pack("{s:[{s:s,s:s},{s:s,s:s}]}", "messages", "role", "user", "content",
                          content, "role", "assistant", "content", "answer");
    assert_non_null(c);
    return c;
}

static enum status render(const struct chat_renderer *r, json_t *conversation, char **out,
                          struct err *e) {
    json_t *fragments = NULL;
    *out = NULL;
    enum status st = r->render(r->context, conversation, &fragments, e);
    if (st == OK) *out = json_dumps(fragments, JSON_COMPACT);
    json_decref(fragments);
    return st;
}

struct row {
    const char *source, *wanted; /* the fragments, or a part of the error */
    enum status status;
};

static void check_row(const char *folder, const struct row *row, json_t *conversation) {
    struct chat_renderer r;
    struct err e = { 0 };
    char *found = NULL;
    MUST(open_source(folder, row->source, &LIMITS, 1, &r, E));
    enum status st = render(&r, conversation, &found, &e);
    const char *text = st == OK ? found : e.text;
    bool same = st == OK ? strcmp(text, row->wanted) == 0 : strstr(text, row->wanted) != NULL;
    if (st != row->status || !same)
        fail_msg("%s\n  wanted: %s\n  found: %s %s", row->source, row->wanted, status_name(st),
                 text);
    free(found);
    r.close(r.context);
}

/* ---- what it returns ------------------------------------------------------------------------- */
static const struct row RETURNED[] = {
    { "return { { text = c.messages[1].content } }",
      "[{\"text\":\"qu\xc3\xa9\",\"loss\":false,\"special\":false}]", OK },
    { "local m = c.messages[2] return { { text = m.content, role = m.role } }",
      "[{\"text\":\"answer\",\"loss\":true,\"special\":false}]", OK },
    { "return { { text = 'a', role = 'assistant', loss = false, special = true }, { text = '' } }",
      "[{\"text\":\"a\",\"loss\":false,\"special\":true},"
      "{\"text\":\"\",\"loss\":false,\"special\":false}]", OK },
    { "return {}", "[]", OK },
    { "return { { text = '\\0', loss = true } }",
      "[{\"text\":\"\\u0000\",\"loss\":true,\"special\":false}]", OK },
    { "return", "x.lua:2: it returned 0 values; expected one list of fragments", ERR_FORMAT },
    { "return nil", "x.lua:2: it returned nil; expected a list", ERR_FORMAT },
    { "return 'text'", "it returned a string; expected a list", ERR_FORMAT },
    { "return {}, 1", "it returned 2 values", ERR_FORMAT },
    { "return { text = 'a' }", "is not a list of fragments, as in return { {", ERR_FORMAT },
    { "return { 'a' }", "fragment 1: expected { text = \"...\" }, found a string", ERR_FORMAT },
    { "return { { text = 'a' }, false }", "fragment 2: expected { text = \"...\" }, found false",
      ERR_FORMAT },
    { "return { { text = 'a' }, nil, { text = 'b' } }", "one is nil", ERR_FORMAT },
    { "return { { text = 5 } }", "fragment 1: text: expected a string, found a number",
      ERR_FORMAT },
    { "return { { role = 'user' } }", "fragment 1: text: expected a string, found nil",
      ERR_FORMAT },
    { "return { { text = 'a', role = {} } }", "role: expected a string, found a table",
      ERR_FORMAT },
    { "return { { text = 'a', loss = 1 } }", "loss: expected true or false, found a number",
      ERR_FORMAT },
    { "return { { text = 'a', special = 'no' } }", "special: expected true or false, found a str",
      ERR_FORMAT },
    { "return { { text = 'a', lose = true } }", "the key 'lose'; did you mean 'loss'?",
      ERR_FORMAT },
    { "return { { text = 'a', xyzzy = 1, abcde = 2 } }", "the key 'abcde'; its keys are text",
      ERR_FORMAT },
    { "return { { 'a' } }", "fragment 1 has a value without a name", ERR_FORMAT },
    { "return { { text = '\\xff' } }", "fragment 1: text: it is not UTF-8", ERR_FORMAT },
    { "return { { text = c.messages[1].content:sub(1, 3) } }", "not UTF-8; string.sub may",
      ERR_FORMAT },
    { "return { { text = c.messages[3].content } }",
      "x.lua:3: attempt to index a nil value", ERR_FORMAT },
    { "error('no such role')", "x.lua:3: no such role", ERR_FORMAT },
    { "error({})", "table", ERR_FORMAT },
    { "print('x')", "print: a function that renders has no output", ERR_FORMAT },
    { "return require 'late'", "loads no file", ERR_FORMAT },
    { "return { { text = tostring(require('base').n) } }",
      "[{\"text\":\"0\",\"loss\":false,\"special\":false}]", OK },
};

static void returned_fragments_are_checked(void **state) {
    char folder[PATH_CAP];
    json_t *conversation = talk("qu\xc3\xa9");
    (void)state;
    scratch_directory(folder);
    for (size_t i = 0; i < sizeof RETURNED / sizeof *RETURNED; i++)
        check_row(folder, &RETURNED[i], conversation);
    json_decref(conversation);
    MUST(tree_remove(folder, E));
}

static void a_conversation_arrives_whole(void **state) {
    static const struct row ROW = {
        "local a = c.tools[1].function_.arguments\n"
        "assert(a.x == nil and a.list[2] == false and a.list[3] == 1.5 and #a.list == 3)\n"
        "assert(math.type(a.n) == 'integer' and a.n == 9007199254740993 and a.yes == true)\n"
        "return { { text = c.messages[1].content .. #c.messages[1].content } }",
        "[{\"text\":\"a\\u0000b\\n3 6\",\"loss\":false,\"special\":false}]", OK };
    static const char JSON[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\u0000b\\n3 \"}],"
        "\"tools\":[{\"function_\":{\"arguments\":{\"x\":null,\"list\":[1,null,1.5],"
        "\"n\":9007199254740993,\"yes\":true}}}]}";
    char folder[PATH_CAP];
    json_t *conversation = json_loads(JSON, JSON_ALLOW_NUL, NULL);
    (void)state;
    assert_non_null(conversation);
    scratch_directory(folder);
    check_row(folder, &ROW, conversation);
    json_decref(conversation);
    MUST(tree_remove(folder, E));
}

/* What json() makes of c.tools and of other values. */
static const struct row JSON_ROWS[] = {
    { "return { { text = json(c.tools) } }",
      "[{\"b\": 1, \"a\": [null, false, {}, []], \"z\": null, \"\u00e9\": \"\\\"\\n\"}, 1.5]",
      OK },
    { "local t = c.tools[1] t.b, t.z, t.n, t.m = nil, 2, true, 'x' t.a[1] = 7\n"
      "return { { text = json(t) } }",
      "{\"a\": [7, false, {}, []], \"z\": 2, \"\u00e9\": \"\\\"\\n\", \"m\": \"x\", \"n\": true}",
      OK },
    { "return { { text = json({ 1, { b = {}, a = { 'x' } } }) } }",
      "[1, {\"a\": [\"x\"], \"b\": {}}]", OK },
    { "return { { text = json(nil) .. json(1 << 62) .. json(-0.5) } }",
      "null4611686018427387904-0.5", OK },
    { "return { { text = json() } }", "bad argument #1", ERR_FORMAT },
    { "local t = {} t.t = t return { { text = json(t) } }", "does one contain itself?",
      ERR_FORMAT },
    { "return { { text = json({ 1, x = 2 }) } }", "json: a list that also has names",
      ERR_FORMAT },
    { "return { { text = json({ [{}] = 2 }) } }", "a key that is a table", ERR_FORMAT },
    { "return { { text = json({ json }) } }", "json: a function has no JSON form", ERR_FORMAT },
    { "return { { text = json('\\xff') } }", "json: a string that is not UTF-8", ERR_FORMAT },
    { "return { { text = json(0 / 0) } }", "json: a number that is not finite", ERR_FORMAT },
};

static void values_become_json(void **state) {
    static const char JSON[] = "{\"messages\":[],\"tools\":[{\"b\":1,\"a\":[null,false,{},[]],"
                               "\"z\":null,\"\u00e9\":\"\\\"\\n\"},1.5]}";
    char folder[PATH_CAP];
    json_t *conversation = json_loads(JSON, 0, NULL);
    (void)state;
    assert_non_null(conversation);
    scratch_directory(folder);
    for (size_t i = 0; i < sizeof JSON_ROWS / sizeof *JSON_ROWS; i++) {
        const struct row *row = &JSON_ROWS[i];
        struct row whole = *row;
        char *wanted = NULL;
        json_t *fragments = json_pack("[{s:s,s:b,s:b}]", "text", row->wanted, "loss", 0,
                                      "special", 0);
        wanted = json_dumps(fragments, JSON_COMPACT);
        if (row->status == OK) whole.wanted = wanted;
        check_row(folder, &whole, conversation);
        free(wanted);
        json_decref(fragments);
    }
    json_decref(conversation);
    MUST(tree_remove(folder, E));
}

/* ---- state ----------------------------------------------------------------------------------- */
/* Each of these would differ if anything were left of the conversation before. */
static const char *const MEMORIES[] = {
    "base.n = base.n + 1 return { { text = c.messages[1].content .. base.n } }",
    "base[#base + 1] = c.messages[1].content return { { text = table.concat(base, ',') } }",
    "string.last = (string.last or '') .. c.messages[1].content return { { text = string.last } }",
    "require('base').n = require('base').n + 1 return { { text = tostring(base.n) } }",
    "return { { text = c.messages[1].content .. math.random(1 << 40) } }",
    "for _ = 1, 500 do local x = 1 end return { { text = c.messages[1].content } }",
};

struct thread {
    pthread_t id;
    const struct chat_renderer *r;
    int64_t first;
    char *text[20];
};

static void *render_some(void *context) {
    struct thread *t = context;
    for (int64_t i = 0; i < 20; i++) {
        char content[32];
        struct err e = { 0 };
        snprintf(content, sizeof content, "talk %d", (int)((t->first + i) % 5));
        json_t *conversation = talk(content);
        if (render(t->r, conversation, &t->text[i], &e) != OK) t->text[i] = strdup(e.text);
        json_decref(conversation);
    }
    return NULL;
}

/* Each conversation by servers that have seen nothing. */
static void render_alone(const char *folder, const char *source, char *wanted[5]) {
    for (int k = 0; k < 5; k++) {
        struct chat_renderer alone;
        char content[32];
        snprintf(content, sizeof content, "talk %d", k);
        json_t *conversation = talk(content);
        MUST(open_source(folder, source, &LIMITS, 1, &alone, E));
        MUST(render(&alone, conversation, &wanted[k], E));
        json_decref(conversation);
        alone.close(alone.context);
    }
}

static void nothing_is_left_of_a_conversation(void **state) {
    char folder[PATH_CAP];
    (void)state;
    scratch_directory(folder);
    for (size_t i = 0; i < sizeof MEMORIES / sizeof *MEMORIES; i++) {
        struct chat_renderer r;
        struct thread thread[3] = { 0 };
        char *wanted[5];
        render_alone(folder, MEMORIES[i], wanted);
        MUST(open_source(folder, MEMORIES[i], &LIMITS, 2, &r, E)); /* fewer than threads */
        for (int k = 0; k < 3; k++) {
            thread[k].r = &r;
            thread[k].first = k;
            assert_int_equal(pthread_create(&thread[k].id, NULL, render_some, &thread[k]), 0);
        }
        for (int k = 0; k < 3; k++) pthread_join(thread[k].id, NULL);
        for (int k = 0; k < 3; k++)
            for (int j = 0; j < 20; j++) {
                assert_string_equal(thread[k].text[j], wanted[(k + j) % 5]);
                free(thread[k].text[j]);
            }
        for (int k = 0; k < 5; k++) free(wanted[k]);
        r.close(r.context);
    }
    MUST(tree_remove(folder, E));
}

/* ---- limits ---------------------------------------------------------------------------------- */
static const struct row BOMBS[] = {
    { "while true do end", "x.lua:3: the script ran 1 million instructions", ERR_FORMAT },
    { "while true do pcall(function() while true do end end) end", "1 million instructions",
      ERR_FORMAT },
    { "return { { text = ('x'):rep(1 << 30) } }", "x.lua:3: the script needs more than 32 MiB",
      ERR_FORMAT },
    { "local t = {} for i = 1, 90 do t[i] = ('x'):rep(1 << 18) end return t, t",
      "it returned 2 values", ERR_FORMAT },
    { "local x = ('\\1'):rep(12 << 20) return { { text = x } }", "is longer than 64 MiB",
      ERR_FORMAT },
    { "local function f() return 1 + f() end return f()", "x.lua:3: ", ERR_FORMAT },
};

static void limits_hold_for_each_conversation(void **state) {
    char folder[PATH_CAP];
    json_t *conversation = talk("q");
    (void)state;
    scratch_directory(folder);
    for (size_t i = 0; i < sizeof BOMBS / sizeof *BOMBS; i++)
        check_row(folder, &BOMBS[i], conversation);
    /* What one conversation used up is not missing for the next ones. */
    struct chat_renderer r;
    MUST(open_source(folder, "local s = ('x'):rep(8 << 20) for _ = 1, 3e5 do end\n"
                     "if c.messages[1].content == 'loop' then while true do end end\n"
                     "return { { text = '' .. #s } }", &LIMITS, 1, &r, E));
    for (int i = 0; i < 12; i++) {
        char *text = NULL;
        json_t *bad = talk("loop");
        if (i % 4 == 3) {
            MUST_FAIL(ERR_FORMAT, "1 million instructions", render(&r, bad, &text, E));
        } else {
            MUST(render(&r, conversation, &text, E));
            assert_non_null(strstr(text, "8388608"));
        }
        free(text);
        json_decref(bad);
    }
    r.close(r.context);
    json_decref(conversation);
    MUST(tree_remove(folder, E));
}

/* A limit on time, and a signal, depend on the machine: they are not this conversation's fault, and
 * --skip-bad must not leave it out. */
static void a_call_that_never_returns_ends_the_ingestion(void **state) {
    char folder[PATH_CAP], *text = NULL;
    struct script_limits one_second = LIMITS;
    struct chat_renderer r;
    json_t *conversation = talk("q");
    (void)state;
    one_second.cpu_s = 1;
    scratch_directory(folder);
    MUST(open_source(folder, "local s = ('a'):rep(40)\nreturn s:find(('a?'):rep(40) .. "
                     "('a*'):rep(20) .. 'b')", &one_second, 1, &r, E));
    MUST_FAIL(ERR_CONFIG, "x.lua:4: stopped after 1 s of processor time",
              render(&r, conversation, &text, E));
    r.close(r.context);
    json_decref(conversation);
    MUST(tree_remove(folder, E));
}

/* ---- processes ------------------------------------------------------------------------------- */
/* The children of a process, by /proc. */
static int children_of(pid_t parent, pid_t *out, int capacity) {
    char path[64];
    int count = 0, pid;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    FILE *f = fopen(path, "r");
    while (f && count < capacity && fscanf(f, "%d", &pid) == 1) out[count++] = pid;
    if (f) fclose(f);
    return count;
}

static void a_killed_server_is_an_error(void **state) {
    char folder[PATH_CAP], *text = NULL;
    pid_t first[2], copies[4];
    struct chat_renderer r;
    json_t *conversation = talk("q");
    (void)state;
    scratch_directory(folder);
    MUST(open_source(folder, "return { { text = 'x' } }", &LIMITS, 2, &r, E));
    MUST(render(&r, conversation, &text, E));
    free(text);
    int found = children_of(getpid(), first, 2);
    if (found == 0) skip(); /* this kernel does not list children */
    assert_int_equal(found, 1);
    assert_int_equal(children_of(first[0], copies, 4), 1);
    kill(copies[0], SIGKILL);
    kill(first[0], SIGKILL);
    MUST_FAIL(ERR_IO, "has ended: it was killed", render(&r, conversation, &text, E));
    MUST_FAIL(ERR_IO, "has ended: it was killed", render(&r, conversation, &text, E));
    r.close(r.context);
    assert_int_equal(children_of(getpid(), first, 2), 0);
    json_decref(conversation);
    MUST(tree_remove(folder, E));
}

static void a_script_that_cannot_render_is_an_error(void **state) {
    char folder[PATH_CAP], path[PATH_CAP];
    struct chat_renderer r;
    pid_t left[2];
    (void)state;
    scratch_directory(folder);
    put_file(folder, "x.lua", "return { data = { render = print }, [2] = 1 }");
    MUST(path_join(path, folder, "x.lua", E));
    MUST_FAIL(ERR_CONFIG, "its result has no function data.other",
              render_open(path, NULL, "data.other", &LIMITS, 2, &r, E));
    put_file(folder, "x.lua", "while true do end");
    MUST_FAIL(ERR_CONFIG, "x.lua:1: the script ran 1 million instructions",
              render_open(path, NULL, "", &LIMITS, 2, &r, E));
    struct script_limits one_second = LIMITS;
    one_second.cpu_s = 1;
    put_file(folder, "x.lua", "local none = 1\nreturn (''):rep(1 << 62)");
    MUST_FAIL(ERR_CONFIG, "x.lua:2: its evaluation, to render conversations, was stopped",
              render_open(path, NULL, "", &one_second, 2, &r, E));
    MUST_FAIL(ERR_CONFIG, "No such file",
              render_open("/nonexistent/x.lua", NULL, "", &LIMITS, 1, &r, E));
    assert_int_equal(children_of(getpid(), left, 2), 0);
    MUST(tree_remove(folder, E));
}

/* Functions are found by their place in the result, also where keys have dots. */
static void functions_have_names(void **state) {
    static const char *const NAMES[] = { "data.render", "[2].a", "m[\"a.b\"][1]", "m.a.b[1]" };
    char folder[PATH_CAP], path[PATH_CAP];
    json_t *conversation = talk("q");
    (void)state;
    scratch_directory(folder);
    put_file(folder, "x.lua", "local function f(n) return function() return { { text = n } } end "
             "end\nreturn { 1, { a = f '[2].a' }, data = { render = f 'data.render' }, m = { "
             "['a.b'] = { f 'm[\"a.b\"][1]' }, a = { b = { f 'm.a.b[1]' } } } }");
    MUST(path_join(path, folder, "x.lua", E));
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        struct chat_renderer r;
        json_t *fragments;
        MUST(render_open(path, NULL, NAMES[i], &LIMITS, 1, &r, E));
        MUST(r.render(r.context, conversation, &fragments, E));
        assert_string_equal(json_text(json_array_get(fragments, 0), "text", ""), NAMES[i]);
        json_decref(fragments);
        r.close(r.context);
    }
    json_decref(conversation);
    MUST(tree_remove(folder, E));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(returned_fragments_are_checked),
        cmocka_unit_test(a_conversation_arrives_whole),
        cmocka_unit_test(values_become_json),
        cmocka_unit_test(nothing_is_left_of_a_conversation),
        cmocka_unit_test(limits_hold_for_each_conversation),
        cmocka_unit_test(a_call_that_never_returns_ends_the_ingestion),
        cmocka_unit_test(a_killed_server_is_an_error),
        cmocka_unit_test(a_script_that_cannot_render_is_an_error),
        cmocka_unit_test(functions_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
