/* The record of an image: absent, whole, damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/base/run_files.h"
#include "runner/record/image_record.h"

/* The record that a file with this text gives; NULL: no file. */
static json_t *record_of(const char *text) {
    char path[] = "/tmp/test_image_record-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    if (text) assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    if (!text) unlink(path);
    json_t *record = image_record(path);
    unlink(path);
    assert_true(json_is_object(record));
    assert_string_equal(json_text(record, "schema", ""), "fp8lab.image/1");
    return record;
}

static void test_outside(void **state) {
    (void)state;
    json_t *record = record_of(NULL);
    assert_true(json_is_false(json_object_get(record, "inside")));
    assert_int_equal(json_object_size(record), 2);
    json_decref(record);
}

static void test_inside(void **state) {
    (void)state;
    json_t *record = record_of("{\"schema\":\"fp8lab.image/1\",\"commit\":\"abc\"}");
    assert_true(json_is_true(json_object_get(record, "inside")));
    assert_string_equal(json_text(record, "commit", ""), "abc");
    json_decref(record);
}

static void test_damaged(void **state) {
    (void)state;
    static const char *const DAMAGED[] = { "", "{", "[1]", "{\"a\":1,\"a\":2}" };
    for (size_t i = 0; i < sizeof DAMAGED / sizeof *DAMAGED; i++) {
        json_t *record = record_of(DAMAGED[i]);
        assert_true(json_is_true(json_object_get(record, "inside")));
        assert_true(strlen(json_text(record, "problem", "")) > 0);
        json_decref(record);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outside), cmocka_unit_test(test_inside),
        cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests_name("image_record", tests, NULL, NULL);
}
