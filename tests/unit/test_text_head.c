/* What counts as text: the number and the share of control characters; the name of wide text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runner/ingest/text_head.h"

static struct text_head head_of(const char *text, size_t n) {
    struct text_head h = { 0 };
    text_head_add(&h, text, n);
    return h;
}

/* `bytes` of text, of which the first `controls` are control characters. */
static struct text_head with_controls(size_t controls, size_t bytes) {
    char text[4096];
    assert_true(bytes <= sizeof text);
    memset(text, 'a', bytes);
    memset(text, 1, controls);
    return head_of(text, bytes);
}

static void warn_of(char words[TEXT_HEAD_CAP], const struct text_head *h) {
    struct text_doubts d = { 0 };
    text_doubts_add(&d, h, "x.txt");
    text_doubts_warning(words, &d);
}

static void few_control_characters_are_a_warning(void **state) {
    (void)state;
    static const struct { size_t controls, bytes; bool other, odd; } CASES[] = {
        { 0, 100, false, false },   { 1, 10, false, true },     { 16, 16, false, true },
        { 17, 17, true, false },    { 17, 1699, true, false },  { 17, 1700, false, false },
        { 16, 1599, false, true },  { 16, 1600, false, false }, { 0, 0, false, false },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const struct text_head h = with_controls(CASES[i].controls, CASES[i].bytes);
        char words[TEXT_HEAD_CAP];
        struct err e;
        assert_int_equal(text_head_is_other(&h), CASES[i].other);
        assert_int_equal(text_head_is_odd(&h), CASES[i].odd);
        enum status st = text_head_check(&h, "x.txt", false, &e);
        assert_int_equal(st, CASES[i].other ? ERR_FORMAT : OK);
        warn_of(words, &h);
        assert_int_equal(*words != '\0', CASES[i].other || CASES[i].odd);
        if (CASES[i].odd)
            assert_string_equal(words, "x.txt: control characters in the first 64 KiB, so it may "
                                "be no text; all of it is read as text");
    }
}

static void a_byte_of_zero_is_a_warning(void **state) {
    (void)state;
    char text[4000], words[TEXT_HEAD_CAP];
    memset(text, 'a', sizeof text);
    text[7] = '\0';
    const struct text_head h = head_of(text, sizeof text);
    assert_false(text_head_is_other(&h));
    assert_true(text_head_is_odd(&h));
    warn_of(words, &h);
    assert_non_null(strstr(words, "x.txt: bytes of zero in"));
}

/* Text of `bytes` bytes with a zero at each even or odd place. */
static struct text_head wide(size_t bytes, size_t zero) {
    char text[256];
    assert_true(bytes <= sizeof text);
    for (size_t i = 0; i < bytes; i++) text[i] = i % 2 == zero ? '\0' : 'a';
    return head_of(text, bytes);
}

static void wide_text_has_whole_units(void **state) {
    (void)state;
    static const struct { size_t bytes, zero; const char *name; } CASES[] = {
        { 64, 0, "UTF-16BE" }, { 64, 1, "UTF-16LE" }, { 200, 1, "UTF-16LE" },
        { 65, 1, NULL },       { 63, 0, NULL },       { 62, 1, NULL },       { 201, 0, NULL },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const struct text_head h = wide(CASES[i].bytes, CASES[i].zero);
        char words[TEXT_HEAD_CAP];
        text_head_words(words, &h, "x.txt");
        assert_int_equal(strstr(words, "UTF-16") != NULL, CASES[i].name != NULL);
        if (CASES[i].name) assert_non_null(strstr(words, CASES[i].name));
    }
}

/* Chinese text in UTF-16 has few bytes below 32: it is not told from other bytes. */
static void wide_chinese_passes(void **state) {
    (void)state;
    char text[400];
    for (size_t i = 0; i < sizeof text; i += 2) memcpy(text + i, "\x2d\x4e", 2);
    const struct text_head h = head_of(text, sizeof text);
    assert_false(text_head_is_other(&h) || text_head_is_odd(&h));
}

static void one_warning_names_the_first_and_counts_the_others(void **state) {
    (void)state;
    const struct text_head text = with_controls(0, 100), odd = with_controls(1, 10),
                           other = with_controls(20, 100);
    struct text_doubts d = { 0 };
    char words[TEXT_HEAD_CAP];
    text_doubts_add(&d, &text, "a");
    text_doubts_warning(words, &d);
    assert_string_equal(words, "");
    text_doubts_add(&d, &odd, "b");
    text_doubts_add(&d, &odd, "c");
    text_doubts_warning(words, &d);
    assert_non_null(strstr(words, "b, and 1 more of 3 files: control characters in"));
    text_doubts_add(&d, &other, "d");
    text_doubts_add(&d, &other, "e");
    text_doubts_add(&d, &other, "f");
    text_doubts_warning(words, &d);
    assert_string_equal(words, "d is not text: 20.0 % of its bytes are control characters; its "
                        "bytes are read as they are, and those of 2 more of 6 files");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_control_characters_are_a_warning),
        cmocka_unit_test(a_byte_of_zero_is_a_warning),
        cmocka_unit_test(wide_text_has_whole_units),
        cmocka_unit_test(wide_chinese_passes),
        cmocka_unit_test(one_warning_names_the_first_and_counts_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
