/* Canonical JSON: the bytes of each kind of value, and that they read back to the value. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runner/base/canonical.h"

static void expect(json_t *v, const char *expected) {
    char *bytes;
    size_t n;
    assert_int_equal(json_canonical(v, &bytes, &n, NULL), OK);
    assert_string_equal(bytes, expected);
    assert_int_equal(n, strlen(expected));
    free(bytes);
    json_decref(v);
}

static void doubles_are_the_shortest_that_read_back(void **state) {
    (void)state;
    static const struct { double d; const char *text; } ROWS[] = {
        { 0.0, "0.0" }, { -0.0, "-0.0" }, { 1.0, "1.0" }, { 10000.0, "10000.0" }, { 0.1, "0.1" },
        { 0.1 + 0.2, "0.30000000000000004" }, { 1e-4, "0.0001" }, { 1e-5, "1e-05" },
        { 123456789012345680.0, "1.2345678901234568e+17" }, { 1e15, "1000000000000000.0" },
        { 9007199254740993.0, "9007199254740992.0" }, { 1e16, "1e+16" }, { 1e22, "1e+22" },
        { DBL_MAX, "1.7976931348623157e+308" }, { DBL_TRUE_MIN, "5e-324" },
        { DBL_MIN, "2.2250738585072014e-308" }, { -2.5, "-2.5" }, { 1234.5678, "1234.5678" },
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        assert_true(strtod(ROWS[i].text, NULL) == ROWS[i].d);
        expect(json_real(ROWS[i].d), ROWS[i].text);
    }
}

/* Doubles of all exponents: reading the text gives the same bits. */
static void doubles_of_every_size_read_back(void **state) {
    (void)state;
    uint64_t bits = UINT64_C(0x9E3779B97F4A7C15);
    for (int i = 0; i < 20000; i++) {
        double d, again;
        bits = bits * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        memcpy(&d, &bits, sizeof d);
        if (!isfinite(d)) continue;
        struct text t = { 0 };
        canonical_add_double(&t, d);
        again = strtod(t.bytes, NULL);
        if (memcmp(&d, &again, sizeof d) != 0) fail_msg("%a became %s", d, t.bytes);
        text_free(&t);
    }
}

static void integers_and_words(void **state) {
    (void)state;
    expect(json_integer(0), "0");
    expect(json_integer(INT64_MAX), "9223372036854775807");
    expect(json_integer(INT64_MIN), "-9223372036854775808");
    expect(json_true(), "true");
    expect(json_null(), "null");
}

static void keys_are_sorted_bytewise(void **state) {
    (void)state;
    expect(json_pack("{s:i, s:i, s:i, s:i, s:[i,{},[]]}", "b", 1, "a", 2, "B", 3, "\xc3\xa4", 4,
                     "aa", 5),
           "{\"B\":3,\"a\":2,\"aa\":[5,{},[]],\"b\":1,\"\xc3\xa4\":4}");
    expect(json_object(), "{}");
}

static void strings_are_utf8_with_few_escapes(void **state) {
    (void)state;
    expect(json_string("a/\"\\\b\f\n\r\t\x01\x1f\x7f \xe2\x82\xac"),
           "\"a/\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f\x7f \xe2\x82\xac\"");
    expect(json_stringn("a\0b", 3), "\"a\\u0000b\"");
}

static void invalid_utf8_is_replaced_byte_by_byte(void **state) {
    (void)state;
    static const struct { const char *bytes, *out; } ROWS[] = {
        { "\xff", "\"\xef\xbf\xbd\"" },
        { "a\xc0\x80", "\"a\xef\xbf\xbd\xef\xbf\xbd\"" },         /* overlong */
        { "\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" }, /* a surrogate */
        { "\xe2\x82", "\"\xef\xbf\xbd\xef\xbf\xbd\"" },           /* cut short */
        { "\xf4\x8f\xbf\xbf", "\"\xf4\x8f\xbf\xbf\"" },           /* the last code point */
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        struct text t = { 0 };
        canonical_add_string(&t, ROWS[i].bytes, strlen(ROWS[i].bytes));
        assert_string_equal(t.bytes, ROWS[i].out);
        text_free(&t);
    }
    assert_int_equal(utf8_valid_prefix("ab\xc3\xa4\xc3", 5), 4);
    assert_int_equal(utf8_valid_prefix("a\0b", 3), 1);
}

static void values_without_a_json_form_are_rejected(void **state) {
    (void)state;
    char *bytes;
    size_t n;
    struct err e = { 0 };
    json_t *deep = json_array();
    for (int i = 0; i < 200; i++) {
        json_t *outer = json_array();
        json_array_append_new(outer, deep);
        deep = outer;
    }
    assert_int_equal(json_canonical(deep, &bytes, &n, &e), ERR_ARG);
    assert_int_equal(json_canonical(NULL, &bytes, &n, &e), ERR_ARG);
    json_decref(deep);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doubles_are_the_shortest_that_read_back),
        cmocka_unit_test(doubles_of_every_size_read_back),
        cmocka_unit_test(integers_and_words),
        cmocka_unit_test(keys_are_sorted_bytewise),
        cmocka_unit_test(strings_are_utf8_with_few_escapes),
        cmocka_unit_test(invalid_utf8_is_replaced_byte_by_byte),
        cmocka_unit_test(values_without_a_json_form_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
