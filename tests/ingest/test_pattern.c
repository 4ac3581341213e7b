/* Split patterns mean what they mean to Oniguruma, and empty matches and behaviours what they mean
 * to the package tokenizers: its version 0.23.3 made the pieces. compare_patterns.py compares more
 * patterns on random strings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "runner/ingest/split.h"
#include "tests/support/must.h"

static const struct {
    enum split_behavior behavior;
    bool invert;
    const char *regex, *text, *pieces;
} ROWS[] = {
    { SPLIT_ISOLATED, false, "\\w+", "e\u0301a_b\u203fc-d", "e\u0301a_b\u203fc|-|d" },
    { SPLIT_ISOLATED, false, "\\p{N}{1,3}+", "a1234567b", "a|1234567|b" },
    { SPLIT_ISOLATED, false, "\\p{N}{1,3}", "a1234567b", "a|123|456|7|b" },
    { SPLIT_ISOLATED, false, "\\s+$", "a \nb \n\nc  ", "a| |\nb| \n|\nc|  " },
    { SPLIT_ISOLATED, false, "^\\s+", " a\n b\n\n\tc", " |a\n| |b\n|\n\t|c" },
    { SPLIT_ISOLATED, false, "[a-z&&[^aeiou]]+", "xabcdexx1", "x|a|bcd|e|xx|1" },
    { SPLIT_ISOLATED, false, "\\h+", "0xbeef g", "0|x|beef| g" },
    { SPLIT_ISOLATED, false, "(?i)ss", "Straße SſS", "Stra|ß|e |Sſ|S" },
    { SPLIT_ISOLATED, false, "x*", "abxxc", "a|b|xx|c" },
    { SPLIT_ISOLATED, false, "|a", "aab", "a|a|b" },
    { SPLIT_CONTIGUOUS, false, "\\b", "ab, cd", "ab|, |cd" },
    { SPLIT_MERGED_NEXT, false, "(?=[A-Z])", "aBcDE", "a|Bc|D|E" },
    { SPLIT_MERGED_PREVIOUS, true, "x*", "abxxc", "a|b|xxc" },
    { SPLIT_REMOVED, false, "(?m)b.", "ab\nc b", "a|c b" },
};

static void pieces_are_those_of_tokenizers(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        struct pattern *pattern;
        struct pattern_work work = { 0 };
        char found[256] = "";
        size_t n = strlen(ROWS[i].text);
        MUST(pattern_create(&pattern, ROWS[i].regex, strlen(ROWS[i].regex), false, E));
        MUST(pattern_split(pattern, ROWS[i].behavior, ROWS[i].invert,
                           (const uint8_t *)ROWS[i].text, n, &work, E));
        for (size_t k = 0; k < work.count; k++) {
            size_t begin = work.piece[2 * k], end = work.piece[2 * k + 1];
            if (k) strcat(found, "|");
            strncat(found, ROWS[i].text + begin, end - begin);
        }
        if (strcmp(found, ROWS[i].pieces))
            fail_msg("%s: %s, not %s", ROWS[i].regex, found, ROWS[i].pieces);
        pattern_work_free(&work);
        pattern_destroy(pattern);
    }
}

static void a_literal_is_no_expression(void **state) {
    struct pattern *pattern;
    struct pattern_work work = { 0 };
    (void)state;
    MUST(pattern_create(&pattern, ".", 1, true, E));
    MUST(pattern_split(pattern, SPLIT_ISOLATED, false, (const uint8_t *)"ab.c", 4, &work, E));
    assert_int_equal(work.count, 3);
    pattern_work_free(&work);
    pattern_destroy(pattern);
}

static void is_refused(const char *regex, const char *text, const char *why) {
    struct pattern *pattern;
    struct pattern_work work = { 0 };
    struct err e = { 0 };
    MUST(pattern_create(&pattern, regex, strlen(regex), false, E));
    assert_int_equal(pattern_split(pattern, SPLIT_ISOLATED, false, (const uint8_t *)text,
                                   strlen(text), &work, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, why));
    pattern_work_free(&work);
    pattern_destroy(pattern);
}

static void what_has_no_end_is_refused(void **state) {
    char text[200] = "";
    (void)state;
    memset(text, 'a', sizeof text - 2);
    text[sizeof text - 2] = 'c';
    is_refused("(?:a|a|b?a)*$", text, "the split pattern cannot be matched: retry-limit");
    is_refused("(?<=\\s\\Ka)", "  a a", "matches bytes 2 to 3 of a text behind byte 3");
}

static void a_wrong_expression_is_named(void **state) {
    struct pattern *pattern;
    struct err e = { 0 };
    (void)state;
    assert_int_equal(pattern_create(&pattern, "(a", 2, false, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "expression is rejected: end pattern with unmatched"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_those_of_tokenizers),
        cmocka_unit_test(a_literal_is_no_expression),
        cmocka_unit_test(what_has_no_end_is_refused),
        cmocka_unit_test(a_wrong_expression_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
