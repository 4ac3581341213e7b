/* Columns and JSON lines: conversion keeps every bit, and errors name the place. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "runner/base/jsonl.h"
#include "runner/bundle/columns.h"
#include "runner/bundle/summary.h"
#include "tests/support/run_fixture.h"

/* Converts text through a file, as bundles do. NULL, with *why filled, on an error. */
static struct columns *convert(const char *text, const char *labels, struct err *why) {
    char dir[PATH_CAP], in[PATH_CAP], names[PATH_CAP], out[PATH_CAP];
    struct err e = { 0 };
    struct columns *c = NULL;
    scratch_directory(dir);
    put_file(dir, "in.jsonl", "%s", text);
    if (labels) put_file(dir, "labels.json", "%s", labels);
    CHECK(path_join(in, dir, "in.jsonl", &e));
    CHECK(path_join(names, dir, "labels.json", &e));
    CHECK(path_join(out, dir, "out.cols", &e));
    if (columns_convert_file(in, names, out, NULL, why) == OK) CHECK(columns_map(out, &c, &e));
    CHECK(tree_remove(dir, &e));
    return c;
}

static void values_keep_their_bits(void **state) {
    struct err e = { 0 };
    struct columns *c =
        convert("{\"step\":1,\"loss\":0.1,\"loss_bits\":\"3dcccccd\",\"best\":true,"
                "\"note\":\"a\"}\n"
                "{\"step\":9007199254740993,\"loss\":2,\"loss_bits\":\"ff800000\",\"best\":false,"
                "\"note\":\"b\"}\n",
                NULL, &e);
    assert_non_null(c);
    assert_int_equal(c->rows, 2);
    const struct column *step = columns_find(c, "step"), *loss = columns_find(c, "loss");
    const struct column *bits = columns_find(c, "loss_bits"), *best = columns_find(c, "best");
    assert_true(step->type == COLUMN_I64 && loss->type == COLUMN_F64 &&
                bits->type == COLUMN_U32 && best->type == COLUMN_I64);
    assert_true(((const int64_t *)step->data)[1] == 9007199254740993);
    assert_true(((const double *)loss->data)[0] == 0.1 && ((const double *)loss->data)[1] == 2);
    assert_int_equal(((const uint32_t *)bits->data)[1], 0xff800000);
    assert_int_equal(((const int64_t *)best->data)[0], 1);
    assert_null(columns_find(c, "note"));
    columns_destroy(c);
}

static void gaps_arrays_and_labels(void **state) {
    struct err e = { 0 };
    struct columns *c = convert("{\"step\":1,\"x\":null,\"f\":[\"0000000000000001\","
                                "\"fedcba9876543210\"]}\n"
                                "{\"step\":2,\"x\":3,\"late\":4}\n",
                                "[\"first\",\"second\"]", &e);
    assert_non_null(c);
    const struct column *x = columns_find(c, "x"), *late = columns_find(c, "late");
    const struct column *f = columns_find(c, "f");
    assert_true(isnan(column_value(x, 0)) && column_value(x, 1) == 3);
    assert_true(isnan(column_value(late, 0)) && column_value(late, 1) == 4);
    assert_int_equal(f->width, 2);
    assert_true(((const uint64_t *)f->data)[1] == 0xfedcba9876543210);
    assert_true(((const uint64_t *)f->data)[2] == UINT64_MAX); /* the record without the key */
    assert_string_equal(columns_label(c, 1), "second");
    assert_null(columns_label(c, 2));
    columns_destroy(c);
}

static void only_an_incomplete_last_line_is_dropped(void **state) {
    static const struct {
        const char *text;
        int rows; /* -1: an error that holds `says` */
        const char *says;
    } CASES[] = {
        { "", 0, NULL },
        { "{\"step\":1}\n{\"step\":2", 1, NULL },
        { "{\"step\":1}\n{\"step\":2}", 1, NULL }, /* looks complete, but the newline was not
                                                      written */
        { "{\"st", 0, NULL },
        { "{\"step\":1}\n\n{\"step\":2}\n", -1, "in.jsonl:2" },
        { "{\"step\":1}\n[1]\n", -1, "in.jsonl:2: not an object" },
        { "{\"a\":[1,2]}\n{\"a\":[1]}\n", -1, "in.jsonl:2: \"a\" has 1 values, and 2 before" },
        { "{\"a\":1,\"a\":2}\n", -1, "in.jsonl:1: duplicate" },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct err why = { 0 };
        struct columns *c = convert(CASES[i].text, NULL, &why);
        if (CASES[i].rows < 0) {
            assert_null(c);
            if (!strstr(why.text, CASES[i].says)) fail_msg("case %zu: %s", i, why.text);
        } else {
            if (!c) fail_msg("case %zu: %s", i, why.text);
            assert_int_equal(c->rows, CASES[i].rows);
            columns_destroy(c);
        }
    }
}

static void long_lines_and_nul_bytes(void **state) {
    struct err e = { 0 };
    struct jsonl lines;
    json_t *value = NULL;
    size_t n = 300000;
    char *text = malloc(n + 64);
    int at = sprintf(text, "{\"a\":\"");
    memset(text + at, 'x', n);
    strcpy(text + at + n, "\"}\n{\"b\":1}\n");
    FILE *in = fmemopen(text, strlen(text), "rb");
    jsonl_open(&lines, in, "long");
    CHECK(jsonl_next(&lines, &value, &e));
    assert_int_equal(json_string_length(json_object_get(value, "a")), n);
    json_decref(value);
    CHECK(jsonl_next(&lines, &value, &e));
    assert_int_equal(json_integer_value(json_object_get(value, "b")), 1);
    json_decref(value);
    CHECK(jsonl_next(&lines, &value, &e));
    assert_null(value);
    jsonl_close(&lines);
    fclose(in);
    memcpy(text, "{\"a\"\0:1}\n", 9);
    in = fmemopen(text, 9, "rb");
    jsonl_open(&lines, in, "nul");
    assert_int_equal(jsonl_next(&lines, &value, &e), ERR_FORMAT);
    jsonl_close(&lines);
    fclose(in);
    free(text);
}

static void damaged_headers_are_rejected(void **state) {
    static const char *const HEADERS[] = {
        "",
        "[]",
        "{}",
        "{\"schema\":\"fp8lab.columns/2\",\"rows\":0,\"columns\":[]}",
        "{\"schema\":\"fp8lab.columns/1\",\"rows\":-1,\"columns\":[]}",
        "{\"schema\":\"fp8lab.columns/1\",\"rows\":2,\"columns\":[{\"name\":\"a\",\"type\":\"i64\","
        "\"width\":1,\"offset\":8}]}",
        "{\"schema\":\"fp8lab.columns/1\",\"rows\":3,\"columns\":[{\"name\":\"a\",\"type\":\"i64\","
        "\"width\":1,\"offset\":0}]}",
        "{\"schema\":\"fp8lab.columns/1\",\"rows\":1099511627776,\"columns\":[{\"name\":\"a\","
        "\"type\":\"i64\",\"width\":1099511627776,\"offset\":0}]}",
        "{\"schema\":\"fp8lab.columns/1\",\"rows\":2,\"columns\":[{\"name\":\"a\",\"type\":\"i65\","
        "\"width\":1,\"offset\":0}]}",
        "{\"schema\":\"fp8lab.columns/1\",\"rows\":1,\"columns\":[{\"name\":\"a\",\"type\":\"i64\","
        "\"width\":1,\"offset\":0}]}",
        /* a column of width 0, or no column, bounds no number of rows */
        "{\"schema\":\"fp8lab.columns/1\",\"rows\":2,\"columns\":[{\"name\":\"a\",\"type\":\"i64\","
        "\"width\":1,\"offset\":0},{\"name\":\"b\",\"type\":\"f64\",\"width\":0,\"offset\":16}]}",
        "{\"schema\":\"fp8lab.columns/1\",\"rows\":2,\"columns\":[{\"name\":\"a\",\"type\":\"i64\","
        "\"width\":1,\"offset\":0},{\"name\":\"b\",\"type\":\"i64\",\"width\":-1,\"offset\":16}]}",
        "{\"schema\":\"fp8lab.columns/1\",\"rows\":1,\"columns\":[{\"name\":\"a\",\"type\":\"i64\","
        "\"width\":1,\"offset\":0},{\"name\":\"a\",\"type\":\"i64\",\"width\":1,\"offset\":8}]}",
    };
    for (size_t i = 0; i < sizeof HEADERS / sizeof *HEADERS; i++) {
        struct columns *c = NULL;
        struct err e = { 0 };
        uint64_t padded = (strlen(HEADERS[i]) + 7) / 8 * 8;
        char *bytes = calloc(1, 8 + padded + 16); /* 16 bytes of data: two values */
        memcpy(bytes, &padded, 8);
        memset(bytes + 8, ' ', padded);
        memcpy(bytes + 8, HEADERS[i], strlen(HEADERS[i]));
        if (columns_parse(bytes, 8 + padded + 16, "test", &c, &e) != ERR_FORMAT)
            fail_msg("header %zu was accepted", i);
    }
}

static void rows_without_a_column_are_rejected(void **state) {
    char bytes[] = "\0\0\0\0\0\0\0\0{\"schema\":\"fp8lab.columns/1\",\"rows\":1099511627776,"
                   "\"columns\":[]}       ";
    struct columns *c = NULL;
    struct err e = { 0 };
    bytes[0] = (char)((sizeof bytes - 1 - 8) / 8 * 8);
    char *copy = malloc(sizeof bytes);
    memcpy(copy, bytes, sizeof bytes);
    assert_int_equal(columns_parse(copy, 8 + (size_t)bytes[0], "test", &c, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "1099511627776 rows, and no column that holds them"));
    c = convert("{\"note\":\"text\"}\n{\"note\":\"more\"}\n", NULL, &e); /* all of it stays text */
    assert_non_null(c);
    assert_int_equal(c->rows, 0);
    columns_destroy(c);
}

/* A crash may leave a file with a name and no bytes. */
static void a_file_without_bytes_is_named(void **state) {
    char dir[PATH_CAP], path[PATH_CAP];
    struct columns *c = NULL;
    struct err e = { 0 };
    scratch_directory(dir);
    put_file(dir, "train.cols", "%s", "");
    CHECK(path_join(path, dir, "train.cols", &e));
    assert_int_equal(columns_map(path, &c, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "train.cols: 0 bytes do not begin with a column header"));
    CHECK(tree_remove(dir, &e));
}

static void steady_windows_and_medians(void **state) {
    static const struct {
        int64_t rows, first;
    } CASES[] = { { 0, 0 }, { 1, 1 }, { 2, 1 }, { 20, 4 }, { 250, 50 }, { 100000, 50 } };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct window w = steady_window(CASES[i].rows);
        assert_int_equal(w.first, CASES[i].first);
        assert_int_equal(w.last, CASES[i].rows);
    }
    struct err e = { 0 };
    double median = 0;
    struct columns *c =
        convert("{\"t\":9}\n{\"t\":1}\n{\"t\":null}\n{\"t\":4}\n{\"t\":2.5}\n", NULL, &e);
    CHECK(window_median(c, "t", (struct window){ 1, 5 }, &median, &e));
    assert_true(median == 2.5);
    CHECK(window_median(c, "t", (struct window){ 0, 5 }, &median, &e));
    assert_true(median == 3.25);
    columns_destroy(c);
    c = convert("{\"t\":-1.5}\n{\"t\":-2}\n{\"t\":0}\n{\"t\":-0.25}\n", NULL, &e);
    CHECK(window_median(c, "t", (struct window){ 0, 4 }, &median, &e));
    assert_true(median == -0.875);
    CHECK(window_median(c, "t", (struct window){ 0, 2 }, &median, &e));
    assert_true(median == -1.75);
    CHECK(window_median(NULL, "t", (struct window){ 0, 5 }, &median, &e));
    assert_true(isnan(median));
    columns_destroy(c);
}

/* No step, size or mask of a foreign bundle is converted to a wrong integer. */
static void numbers_beyond_integers_are_null(void **state) {
    static const char *const KEYS[] = { "step_first", "step_last", "steady_from", "tokens",
                                        "rss_bytes_peak", "device_bytes_peak" };
    struct err e = { 0 };
    json_t *summary = NULL;
    json_t *attempts = json_loads("[{\"from_step\":9223372036854775807,\"ranks\":1}]", 0, NULL);
    struct run_columns c = {
        .train = convert("{\"step\":1e300,\"tokens\":1e300}\n{\"step\":-1e300,\"tokens\":0}\n"
                         "{\"step\":9.3e18,\"tokens\":0}\n", NULL, &e),
        .telemetry = convert("{\"rss_bytes\":1e19,\"device_bytes\":-1e19,\"gpu_throttle\":1e30}\n"
                             "{\"rss_bytes\":0,\"device_bytes\":-1e19,\"gpu_throttle\":null}\n",
                             NULL, &e),
        .ranks = convert("{\"step\":1,\"slowest_rank\":1e300}\n", NULL, &e),
    };
    assert_true(c.train && c.telemetry && c.ranks && attempts);
    CHECK(summary_make(&c, attempts, &summary, &e));
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++)
        if (!json_is_null(json_object_get(summary, KEYS[i])))
            fail_msg("%s is %lld", KEYS[i],
                     (long long)json_integer_value(json_object_get(summary, KEYS[i])));
    assert_string_equal(json_text(summary, "gpu_throttle_reasons", "?"), "");
    json_decref(summary);
    json_decref(attempts);
    run_columns_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_keep_their_bits),
        cmocka_unit_test(gaps_arrays_and_labels),
        cmocka_unit_test(only_an_incomplete_last_line_is_dropped),
        cmocka_unit_test(long_lines_and_nul_bytes),
        cmocka_unit_test(damaged_headers_are_rejected),
        cmocka_unit_test(rows_without_a_column_are_rejected),
        cmocka_unit_test(a_file_without_bytes_is_named),
        cmocka_unit_test(steady_windows_and_medians),
        cmocka_unit_test(numbers_beyond_integers_are_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
