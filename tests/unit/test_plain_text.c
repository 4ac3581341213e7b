/* Untrusted text for a terminal: no control characters, no second line, valid UTF-8. Sizes. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runner/base/bytes_text.h"
#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"

static const struct { const char *text, *line, *lines; } CASES[] = {
    { "", "", "" },
    { "plain", "plain", "plain" },
    { "\xc3\xa9t\xc3\xa9 \xe2\x80\xa6 \xf0\x9f\x99\x82", "\xc3\xa9t\xc3\xa9 \xe2\x80\xa6 "
      "\xf0\x9f\x99\x82", "\xc3\xa9t\xc3\xa9 \xe2\x80\xa6 \xf0\x9f\x99\x82" },
    { "a\nvalid: b\tc", "a?valid: b?c", "a\nvalid: b\tc" },
    { "\x1b[2J\x07\r\x7f", "?[2J???", "?[2J???" },
    { "\xc2\x9b""31m\xc2\x85", "?31m?", "?31m?" },          /* U+009B, U+0085 */
    { "\x9b""31m\xff", "?31m?", "?31m?" },                  /* the same in 8 bits: no UTF-8 */
    { "a\xe2\x80\xae""b\xe2\x81\xa6\xe2\x80\x8f", "a?b??", "a?b??" }, /* U+202E, U+2066, U+200F */
    { "a\xe2\x80\xa8""b\xe2\x80\xa9", "a?b?", "a?b?" },     /* U+2028, U+2029 */
    { "\xef\xbb\xbf\xe2\x80\x8b\xc2\xad", "???", "???" },   /* U+FEFF, U+200B, U+00AD */
    { "\xf3\xa0\x81\x81 cut \xe2\x80", "? cut ??", "? cut ??" }, /* U+E0041; a torn character */
};

static void every_character_is_kept_or_replaced(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char line[64], lines[64];
        snprintf(line, sizeof line, "%s", CASES[i].text);
        snprintf(lines, sizeof lines, "%s", CASES[i].text);
        assert_string_equal(plain_text(line), CASES[i].line);
        assert_string_equal(plain_lines(lines), CASES[i].lines);
        assert_string_equal(PLAIN(CASES[i].text), CASES[i].line);
    }
    assert_string_equal(PLAIN(NULL), "");
}

/* A text that does not fit is cut between two characters and ends in "…". */
static void long_text_is_cut(void **state) {
    (void)state;
    char out[9];
    assert_string_equal(plain_copy(out, sizeof out, "12345678"), "12345678");
    assert_string_equal(plain_copy(out, sizeof out, "123456789"), "12345\xe2\x80\xa6");
    assert_string_equal(plain_copy(out, sizeof out, "1234\xc3\xa9""67890"), "1234\xe2\x80\xa6");
    assert_string_equal(plain_copy(out, sizeof out, "\n\n\n\n\n\n\n\n\n"), "?????\xe2\x80\xa6");
}

/* JSON keeps the value; all other characters are escaped in its text. */
static void json_is_escaped(void **state) {
    (void)state;
    json_t *object = json_object(), *back;
    struct err e;
    char *canonical = NULL;
    size_t n;
    json_object_set_new(object, "a\xc2\x9b", json_string("\xe2\x80\xae""b\x7f\xc3\xa9"
                                                         "\xf3\xa0\x81\x81\n\"\\"));
    assert_int_equal(json_canonical(object, &canonical, &n, &e), OK);
    char *plain = plain_json(canonical);
    assert_string_equal(plain,
                        "{\"a\\u009b\":\"\\u202eb\\u007f\xc3\xa9\\udb40\\udc41\\n\\\"\\\\\"}");
    back = json_loads(plain, 0, NULL);
    assert_true(json_equal(object, back));
    json_decref(back);
    json_decref(object);
    free(plain);
    free(canonical);
}

static void every_string_of_a_tree_is_plain(void **state) {
    (void)state;
    json_t *value = json_pack("{s:[s,i,{s:s}],s:b}", "k\n", "v\x1b", 1, "x", "\xe2\x80\xae", "t",
                              1);
    json_t *want = json_pack("{s:[s,i,{s:s}],s:b}", "k?", "v?", 1, "x", "?", "t", 1);
    json_t *got = plain_tree(value);
    assert_true(json_equal(got, want));
    json_decref(got);
    json_decref(want);
    json_decref(value);
}

static void bytes_have_a_unit_that_people_read(void **state) {
    static const struct { double bytes; const char *text, *query; } SIZES[] = {
        { 0, "0 bytes", "0B" },
        { 1023, "1023 bytes", "1023B" },
        { 1536, "1.5 KiB", "1.5KiB" },
        { 0x1p20 * 14.1, "14.1 MiB", "14.1MiB" },
        { 0x1p29, "512 MiB", "512MiB" },
        { 0x1p30, "1.0 GiB", "1GiB" },
        { 80 * 0x1p30, "80.0 GiB", "80GiB" },
        { 5000 * 0x1p40, "5000 TiB", "5000TiB" },
    };
    char text[BYTES_TEXT_CAP];
    (void)state;
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        assert_string_equal(bytes_text(SIZES[i].bytes, text), SIZES[i].text);
        assert_string_equal(bytes_query_text(SIZES[i].bytes, text), SIZES[i].query);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_character_is_kept_or_replaced),
        cmocka_unit_test(long_text_is_cut),
        cmocka_unit_test(json_is_escaped),
        cmocka_unit_test(every_string_of_a_tree_is_plain),
        cmocka_unit_test(bytes_have_a_unit_that_people_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
