/* json_safe.h accepts and rejects the same texts as jansson, with the same values. */
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

/* Strings of every length near the sizes at which jansson's buffer doubles, with enough memory and
 * with each allocation failing in turn. The result is the value, or ERR_MEMORY. */
static void long_tokens_are_whole(void **state) {
    for (int n = 0; n < 140; n++) {
        char text[200], expected[160];
        memset(expected, 'x', sizeof expected);
        expected[n] = 0;
        int length = snprintf(text, sizeof text, "{\"%s\":[\"%s\"]}", expected, "y");
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

/* A document of many short tokens, as most events are. */
static void input_is_handed_out_in_large_pieces(void **state) {
    enum { VALUES = 4000 };
    char *text = malloc(VALUES * 20);
    assert_non_null(text);
    size_t n = (size_t)sprintf(text, "{\"event\":[");
    for (int i = 0; i < VALUES; i++)
        n += (size_t)sprintf(text + n, "%s%d.25, \"s%d\"", i ? "," : "", i, i);
    n += (size_t)sprintf(text + n, "]}");
    json_error_t why;
    json_t *value;
    assert_int_equal(json_parse(&value, text, n, 0, &why), OK);
    assert_int_equal(json_array_size(json_object_get(value, "event")), 2 * VALUES);
    assert_in_range(calls, 1, 100 + n / 512);
    json_decref(value);
    free(text);
}

/* Each allocation fails in turn, also those of a document that takes several pieces. */
static void large_documents_are_whole(void **state) {
    char text[4096];
    size_t n = (size_t)sprintf(text, "[");
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parses_what_jansson_parses),
        cmocka_unit_test(rejects_what_jansson_rejects),
        cmocka_unit_test(long_tokens_are_whole),
        cmocka_unit_test(input_is_handed_out_in_large_pieces),
        cmocka_unit_test(large_documents_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
