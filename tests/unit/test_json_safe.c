/* json_safe.h accepts and rejects the same texts as jansson, with the same values. A text that
 * json_read.c leaves to jansson is called doubtful here, such as one with a key twice. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/ground/json_safe.h"
#include "tests/support/allocations.h"
#include "tests/support/must.h"

static void parses_what_jansson_parses(void **state) {
    static const char *const GOOD[] = {
        "{}", "[]", " [1,2.5,-3e-7,true,null,\"\"]\n", "{\"a\":{\"b\":[{},[]]}}",
        "[\"\\\\\",\"\\\"\",\"\\u00e4\\\\\\\"\",\"\xc3\xa4\"]",
        "{\"~~~~~~~~~~~~~~~~~~~~~~~~\":\"~\"}",
        "{ \"a\\\\\" : [ \"\\\\\\\"\", 1 ] , \"b\"\n:\ttrue }",
        "[9223372036854775807,1234567890.1234567890123456789012345678901234567890]",
        "{\"a\":1,\"a\":[2]}", "[\"\\ud83d\\ude00\\/\\b\\f\\n\\r\\t\\u00E4\\uffff\"]",
        "[-0,-0.0,0,10,1E+2,1e-400,0.5e0,999999999999999999,1000000000000000000,-1]",
    };
    for (size_t i = 0; i < sizeof GOOD / sizeof *GOOD; i++) {
        json_error_t why;
        json_t *ours = NULL, *theirs = json_loads(GOOD[i], 0, NULL);
        assert_int_equal(json_parse(&ours, GOOD[i], strlen(GOOD[i]), 0, &why), OK);
        assert_non_null(theirs);
        assert_true(json_equal(ours, theirs));
        char *a = json_dump_text(ours, JSON_SORT_KEYS), *b = json_dumps(theirs, JSON_SORT_KEYS);
        assert_string_equal(a, b);
        free(a);
        free(b);
        json_decref(ours);
        json_decref(theirs);
    }
}

static void rejects_what_jansson_rejects(void **state) {
    static const char *const BAD[] = {
        "", " ", "1", "\"text\"", "null", "{", "[1,", "[1]]", "[1],[2]", "1,2", "{} {}", "],[",
        "[\"\\\"]",
        "[\"\xff\"]", "{\"a\":1,\"a\":2}", "[99999999999999999999]", "[1e999]", "[\"\n\"]", "{a:1}",
    };
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        json_error_t why;
        json_t *value = (json_t *)(uintptr_t)1;
        assert_null(json_loads(BAD[i], JSON_REJECT_DUPLICATES, NULL));
        enum status st = json_parse(&value, BAD[i], strlen(BAD[i]), JSON_REJECT_DUPLICATES, &why);
        if (st != ERR_FORMAT || value || !*why.text) fail_msg("%s: %s", BAD[i], status_name(st));
    }
    json_error_t why;
    json_t *value;
    assert_int_equal(json_parse(&value, "{\n\n x", 5, 0, &why), ERR_FORMAT);
    assert_int_equal(why.line, 3);
}

/* json_parse shows jansson the text in an array: a message must not name its brackets. */
static void messages_are_about_the_text(void **state) {
    static const char CUT[] = "unexpected end of file (truncated?)";
    static const struct { const char *text, *why; int line; } CASES[] = {
        { "{\n \"a\": 1,\n", CUT, 3 },
        { "{\"a\": [1, 2", CUT, 1 },
        { "{\"a\": {\"b\": ", CUT, 1 },
        { "{\"a\": 1", CUT, 1 },
        { "{\"a\": \"te", CUT, 1 },
        { "{\"a\": \"a text that is long, too", CUT, 1 },
        { "{\"a\": \"te\\", CUT, 1 },
        { "{\"a\": tru", "invalid token near 'tru'", 1 },
        { "[1", CUT, 1 },
        { "  ", CUT, 1 },
        { "[1, 2, ]", "unexpected token near ']'", 1 }, /* this one is in the text */
        { "{\"a\": ]}", "unexpected token near ']'", 1 },
        { "{\"a\": 1]", "'}' expected near ']'", 1 },
        { "{\"a\": 1}\n}", "end of file expected near '}'", 2 },
        { "{\"a\": \"]}\"} x", "end of file expected near 'x'", 1 },
        { "[1]]", "end of file expected near ']'", 1 },
        { "[1],[2]", "end of file expected near ','", 1 },
        { "{}\n,{}", "end of file expected near ','", 2 },
        { "{} \xc3\xa4", "end of file expected", 1 },
        { "1", "an object or array was expected", 1 },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        json_error_t why;
        json_t *value = NULL;
        const char *text = CASES[i].text;
        assert_int_equal(json_parse(&value, text, strlen(text), 0, &why), ERR_FORMAT);
        if (strcmp(why.text, CASES[i].why) != 0)
            fail_msg("%s: \"%s\", not \"%s\"", text, why.text, CASES[i].why);
        assert_int_equal(why.line, CASES[i].line);
    }
}

/* Levels beyond those that json_read.c knows, up to jansson's limit of 2,048 levels. */
static void levels_are_limited(void **state) {
    static const struct { int levels; enum status st; } CASES[] = {
        { 256, OK }, { 257, OK }, { 2000, OK }, { 2100, ERR_FORMAT }, { 100000, ERR_FORMAT },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        int n = CASES[i].levels;
        char *text = malloc(2 * (size_t)n);
        assert_non_null(text);
        memset(text, '[', (size_t)n);
        memset(text + n, ']', (size_t)n);
        json_t *value;
        json_error_t why;
        assert_int_equal(json_parse(&value, text, 2 * (size_t)n, 0, &why), CASES[i].st);
        json_decref(value);
        free(text);
    }
}

/* ---- random damage ---- */

static uint64_t random_bits(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void compare_with_jansson(const char *text, size_t n, size_t flags) {
    json_error_t why;
    json_t *ours, *theirs = json_loadb(text, n, flags, NULL);
    enum status st = json_parse(&ours, text, n, flags, &why);
    if (st != (theirs ? OK : ERR_FORMAT))
        fail_msg("%.*s: %s, but jansson %s it", (int)n, text, status_name(st),
                 theirs ? "accepts" : "rejects");
    if (theirs) { /* with the order of the keys */
        char *a = json_dumps(ours, 0), *b = json_dumps(theirs, 0);
        assert_string_equal(a, b);
        free(a);
        free(b);
    }
    json_decref(ours);
    json_decref(theirs);
}

/* Up to four bytes of a text are replaced, added or removed. */
static void damaged_texts_are_judged_alike(void **state) {
    static const char *const TEXTS[] = {
        "{\"b\":[1,-20.5e+3,true,null,\"x\\u00e4\\ud83d\\ude00\\n\"],\"a\":{\"c\":false,\"\":[]}}",
        "[\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\", 0, -0, 1e5, {\"k\" : {} } ]\n",
        "[123456789012345678,0.1,\"\\\\\\\"\",[[[]]],{\"a\":1,\"b\":1}]",
    };
    static const char BYTES[] = "\"\\/{}[]:,.-+0123456789eEtrufalsnbd \n\t\x01\x7f\x80\xa0\xc0"
                                "\xc3\xe0\xed\xef\xf0\xf4\xff";
    static const size_t FLAGS[] = { 0, JSON_REJECT_DUPLICATES, JSON_ALLOW_NUL,
                                    JSON_DECODE_INT_AS_REAL };
    uint64_t random = 1;
    for (int i = 0; i < 200000; i++) {
        char text[200];
        const char *from = TEXTS[random_bits(&random) % 3];
        size_t n = strlen(from);
        memcpy(text, from, n);
        for (uint64_t edits = random_bits(&random) % 5; edits > 0; edits--) {
            size_t at = random_bits(&random) % n;
            uint64_t kind = random_bits(&random) % 3;
            if (kind == 1) memmove(text + at + 1, text + at, n++ - at);
            if (kind == 2) memmove(text + at, text + at + 1, --n - at);
            else text[at] = BYTES[random_bits(&random) % sizeof BYTES];
        }
        compare_with_jansson(text, n, FLAGS[random_bits(&random) % 4]);
    }
}

/* ---- without memory ---- */

/* Strings of every length near the sizes at which jansson's buffer doubles, with enough memory and
 * with each allocation failing in turn. The result is the value, or ERR_MEMORY. */
static void keep_long_tokens(const char *format) {
    for (int n = 0; n < 140; n++) {
        char text[200], expected[160];
        memset(expected, 'x', sizeof expected);
        expected[n] = 0;
        int length = snprintf(text, sizeof text, format, expected, "y");
        json_error_t why;
        json_t *value;
        bool failing = true;
        for (int64_t at = 1; failing; at++) {
            allocations_fail(at, false);
            enum status st = json_parse(&value, text, (size_t)length, 0, &why);
            failing = allocations_end() >= at;
            assert_true(st == OK || (failing && st == ERR_MEMORY));
            if (st == OK) assert_non_null(json_object_get(value, expected));
            json_decref(value);
        }
    }
}

static void long_tokens_are_whole(void **state) {
    keep_long_tokens("{\"%s\":[\"%s\"]}");
    keep_long_tokens("{\"%s\":[\"\\t%s\"]}");
    keep_long_tokens("{\"%s\":[\"%s\"],\"~\":1,\"~\":2}"); /* doubtful */
}

/* ---- how often jansson asks for input ---- */

struct counted { json_load_callback_t next; void *context; };

static int64_t calls; /* of the present parse */

static size_t count_call(void *buffer, size_t capacity, void *context) {
    const struct counted *c = context;
    calls++;
    return c->next(buffer, capacity, c->context);
}

/* Replaces jansson's function for json_safe.c. */
json_t *json_load_callback(json_load_callback_t next, void *context, size_t flags,
                           json_error_t *why) {
    json_t *(*real)(json_load_callback_t, void *, size_t, json_error_t *);
    struct counted c = { next, context };
    *(void **)&real = dlsym(RTLD_NEXT, "json_load_callback");
    calls = 0;
    return real(count_call, &c, flags, why);
}

/* A document of many short tokens, as most events are. jansson sees it only if it is doubtful, and
 * then in large pieces. */
static void read_many_tokens(const char *begin, size_t most) {
    enum { VALUES = 4000 };
    char *text = malloc(VALUES * 20);
    assert_non_null(text);
    size_t n = (size_t)sprintf(text, "%s", begin);
    for (int i = 0; i < VALUES; i++)
        n += (size_t)sprintf(text + n, "%s%d.25, \"s%d\"", i ? "," : "", i, i);
    n += (size_t)sprintf(text + n, "]}");
    json_error_t why;
    json_t *value;
    calls = 0;
    assert_int_equal(json_parse(&value, text, n, 0, &why), OK);
    assert_int_equal(json_array_size(json_object_get(value, "event")), 2 * VALUES);
    assert_in_range(calls, most > 0, most > 0 ? most + n / 512 : 0);
    json_decref(value);
    free(text);
}

static void a_text_is_read_once(void **state) {
    read_many_tokens("{\"event\":[", 0);
    read_many_tokens("{\"event\":1,\"event\":[", 100);
}

/* Each allocation fails in turn, also those of a document that takes several pieces. */
static void keep_large_documents(const char *begin) {
    char text[4096];
    size_t n = (size_t)sprintf(text, "%s", begin);
    for (int i = 0; i < 100; i++)
        n += (size_t)sprintf(text + n, "%s{\"a\":%d.5,\"b\":[\"%d\",null]}", i ? "," : "", i, i);
    n += (size_t)sprintf(text + n, "]");
    json_t *expected = json_loads(text, 0, NULL), *value;
    bool failing = true;
    for (int64_t at = 1; failing; at++) {
        json_error_t why;
        allocations_fail(at, false);
        enum status st = json_parse(&value, text, n, 0, &why);
        failing = allocations_end() >= at;
        assert_int_equal(st, failing ? ERR_MEMORY : OK);
        if (st == OK) assert_true(json_equal(value, expected));
        json_decref(value);
    }
    json_decref(expected);
}

static void large_documents_are_whole(void **state) {
    keep_large_documents("[");
    keep_large_documents("[{\"~\":1,\"~\":\"\\n\"},");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parses_what_jansson_parses),
        cmocka_unit_test(rejects_what_jansson_rejects),
        cmocka_unit_test(messages_are_about_the_text),
        cmocka_unit_test(levels_are_limited),
        cmocka_unit_test(damaged_texts_are_judged_alike),
        cmocka_unit_test(long_tokens_are_whole),
        cmocka_unit_test(a_text_is_read_once),
        cmocka_unit_test(large_documents_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
