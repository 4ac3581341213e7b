/* Records as columns: lines, arrays and the files of format 1 keep every bit, and errors name the
 * place. */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "runner/base/jsonl.h"
#include "runner/bundle/columns.h"
#include "runner/bundle/summary.h"
#include "runner/record/row_file.h"
#include "tests/support/run_fixture.h"

/* The columns of JSON lines. NULL, with *why filled, on an error. */
static struct columns *read_text(const char *text, struct err *why) {
    struct columns *c = NULL;
    return columns_of_lines(text, strlen(text), "in.jsonl", &c, why) == OK ? c : NULL;
}

static void values_keep_their_bits(void **state) {
    struct err e = { 0 };
    struct columns *c =
        read_text("{\"step\":1,\"loss\":0.1,\"loss_bits\":\"3dcccccd\",\"best\":true,"
                  "\"note\":\"a\"}\n"
                  "{\"step\":9007199254740993,\"loss\":2,\"loss_bits\":\"ff800000\","
                  "\"best\":false,\"note\":\"b\"}\n", &e);
    assert_non_null(c);
    assert_int_equal(c->rows, 2);
    const struct column *step = columns_find(c, "step"), *loss = columns_find(c, "loss");
    const struct column *bits = columns_find(c, "loss_bits"), *best = columns_find(c, "best");
    assert_true(step->type == COLUMN_I64 && loss->type == COLUMN_F64 &&
                bits->type == COLUMN_U32 && best->type == COLUMN_I64);
    assert_true(column_bits(step, 1, 0) == 9007199254740993);
    assert_true(column_value(loss, 0, 0) == 0.1 && column_value(loss, 1, 0) == 2);
    assert_int_equal(column_bits(bits, 1, 0), 0xff800000);
    assert_int_equal(column_bits(best, 0, 0), 1);
    assert_null(columns_find(c, "note"));
    columns_destroy(c);
}

/* The columns of the same lines in pieces of n bytes. */
static struct columns *read_pieces(const char *text, size_t n, struct err *why) {
    struct lines_reader *r = NULL;
    struct columns *c = NULL;
    size_t bytes = strlen(text);
    enum status st = lines_reader_create("in.jsonl", &r, why);
    for (size_t at = 0; st == OK && at < bytes; at += n) {
        size_t size = n < bytes - at ? n : bytes - at;
        char *piece = malloc(size); /* of its own: a sanitizer sees a read behind it */
        assert_non_null(piece);
        memcpy(piece, text + at, size);
        st = lines_reader_add(r, piece, size, why);
        free(piece);
    }
    if (st == OK) st = lines_reader_finish(r, &c, why);
    lines_reader_destroy(r);
    return st == OK ? c : NULL;
}

static void pieces_may_be_cut_anywhere(void **state) {
    static const char text[] = "{\"step\":1,\"loss\":0.1,\"loss_bits\":\"3dcccccd\"}\n"
                               "{\"step\":2, \"loss\":2.5}\n"
                               "{\"step\":3,\"loss\":3,\"late\":-7}\n"
                               "{\"step\":4,\"lo";
    struct err e = { 0 };
    struct columns *whole = read_text(text, &e);
    assert_non_null(whole);
    assert_int_equal(whole->rows, 3);
    for (size_t n = 1; n <= sizeof text; n++) {
        struct columns *c = read_pieces(text, n, &e);
        assert_non_null(c);
        assert_true(c->rows == whole->rows && c->count == whole->count);
        for (int64_t i = 0; i < c->count; i++) {
            assert_string_equal(c->column[i].name, whole->column[i].name);
            for (int64_t row = 0; row < c->rows; row++)
                assert_true(column_bits(&c->column[i], row, 0) ==
                            column_bits(&whole->column[i], row, 0));
        }
        columns_destroy(c);
    }
    columns_destroy(whole);
    assert_null(read_pieces("{\"step\":1}\n{\"step\":\n", 3, &e));
    assert_non_null(strstr(e.text, "in.jsonl:2"));
    assert_null(read_text("{\"a\\\"b\":1}\n{\"a\"b\":1}\n", &e)); /* an escaped name, then none */
    assert_non_null(strstr(e.text, "in.jsonl:2"));
}

static void a_line_without_end_is_bounded(void **state) {
    struct lines_reader *r = NULL;
    struct err e = { 0 };
    enum status st = OK;
    char *piece = malloc(1 << 20);
    assert_non_null(piece);
    memset(piece, ' ', 1 << 20);
    assert_int_equal(lines_reader_create("in.jsonl", &r, &e), OK);
    for (int i = 0; st == OK && i < 64; i++) st = lines_reader_add(r, piece, 1 << 20, &e);
    assert_int_equal(st, ERR_FORMAT);
    assert_non_null(strstr(e.text, "in.jsonl:1: a line of more than"));
    lines_reader_destroy(r);
    free(piece);
}

static void gaps_are_not_a_number(void **state) {
    struct err e = { 0 };
    struct columns *c = read_text("{\"step\":-1,\"x\":null,\"f\":\"fedcba9876543210\",\"n\":7}\n"
                                  "{\"step\":2,\"x\":3,\"late\":4}\n"
                                  "{\"late\":5,\"step\":3,\"n\":8}\n", &e);
    assert_non_null(c);
    const struct column *x = columns_find(c, "x"), *late = columns_find(c, "late");
    const struct column *f = columns_find(c, "f"), *n = columns_find(c, "n");
    assert_true(isnan(column_value(x, 0, 0)) && column_value(x, 1, 0) == 3);
    assert_true(isnan(column_value(late, 0, 0)) && column_value(late, 2, 0) == 5);
    assert_true(column_value(n, 0, 0) == 7 && isnan(column_value(n, 1, 0)));
    assert_true(column_value(n, 2, 0) == 8);
    assert_true(column_bits(f, 0, 0) == 0xfedcba9876543210);
    assert_true(column_bits(f, 1, 0) == UINT64_MAX); /* the record without the key */
    assert_true(columns_find(c, "step")->type == COLUMN_I64);
    assert_true(column_value(columns_find(c, "step"), 0, 0) == -1);
    columns_destroy(c);
}

/* A number is read in place, or by jansson where a space precedes it: both are the nearest
 * double. */
static void numbers_are_read_as_jansson_reads_them(void **state) {
    static const char *const NUMBERS[] = {
        "0", "-0", "0.0", "-0.0", "0.1", "5.5023279190063477", "1e300", "1.5E-7",
        "123456789012345678", "1234567890123456789", "-9223372036854775808",
        "0.00030000001424923539", "2.5e-324",
        "9007199254740993.0", "0.3", "1.7976931348623157e308", "4.35", "100000000000000000000.5",
        "0.00000000000000000000000000000000000000000000000000000001",
        "2177.7596297808627", "123456789012345.6", "1.00000000000000011102230246251565",
    };
    for (size_t i = 0; i < sizeof NUMBERS / sizeof *NUMBERS; i++) {
        char text[256];
        struct err e = { 0 };
        snprintf(text, sizeof text, "{\"a\":%s}\n{ \"a\": %s }\n", NUMBERS[i], NUMBERS[i]);
        struct columns *c = read_text(text, &e);
        if (!c) fail_msg("%s: %s", NUMBERS[i], e.text);
        const struct column *a = columns_find(c, "a");
        if (column_bits(a, 0, 0) != column_bits(a, 1, 0))
            fail_msg("%s is %.17g, and %.17g to jansson", NUMBERS[i], column_value(a, 0, 0),
                     column_value(a, 1, 0));
        if (strtod(NUMBERS[i], NULL) != column_value(a, 0, 0)) fail_msg("%s", NUMBERS[i]);
        columns_destroy(c);
    }
}

/* The numbers of records: floats and doubles as this program writes them. */
static void every_double_is_the_nearest(void **state) {
    uint64_t seed = 1;
    for (int i = 0; i < 20000; i++) {
        char text[80], number[48];
        struct err e = { 0 };
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        double x = (double)(seed >> 11) * 0x1p-53;
        if (i % 4 == 1) x = (double)(float)x;
        if (i % 4 == 2) x = 1e6 / (1 + 1e5 * x);
        if (i % 4 == 3) x = 1e-4 * (double)(float)x;
        snprintf(number, sizeof number, i % 8 < 4 ? "%.17g" : "%.16f", x);
        snprintf(text, sizeof text, "{\"a\":-%s}\n", number);
        struct columns *c = read_text(text, &e);
        if (!c) fail_msg("%s: %s", text, e.text);
        if (column_value(columns_find(c, "a"), 0, 0) != -strtod(number, NULL))
            fail_msg("%s is read as %.17g", number, column_value(columns_find(c, "a"), 0, 0));
        columns_destroy(c);
    }
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
        { "{\"a\":1,\"a\":2}\n", -1, "in.jsonl:1: duplicate" },
        { "{\"a\":1,}\n", -1, "in.jsonl:1: " },
        { "{\"a\":01}\n", -1, "in.jsonl:1: " },
        { "{\"a\":-}\n", -1, "in.jsonl:1: " },
        { "{\"a\":1.}\n", -1, "in.jsonl:1: " },
        { "{\"a\":1e999}\n", -1, "in.jsonl:1: " },
        { "{\"a\":\"01234567}\n", -1, "in.jsonl:1: " },
        { "{\"a\":nul}\n", -1, "in.jsonl:1: " },
        { "{\"a\":1}{\"a\":2}\n", -1, "in.jsonl:1: " },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct err why = { 0 };
        struct columns *c = read_text(CASES[i].text, &why);
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

/* A few bytes a record must not claim memory for many columns. */
static void sparse_lines_are_rejected(void **state) {
    enum { RECORDS = 200000, KEYS = 40 };
    struct err e = { 0 };
    char *text = malloc(3 * RECORDS + 32 * KEYS), *at = text;
    for (int i = 0; i < RECORDS; i++) at += sprintf(at, "{}\n");
    for (int i = 0; i < KEYS; i++) at += sprintf(at, "%s\"key_%d\":%d", i ? "," : "{", i, i);
    strcpy(at, "}\n");
    assert_null(read_text(text, &e));
    assert_non_null(strstr(e.text, "in.jsonl:200001: 4 keys in 200000 records of 600000 bytes"));
    at = text; /* keys first */
    for (int i = 0; i < KEYS; i++) at += sprintf(at, "%s\"key_%d\":%d", i ? "," : "{", i, i);
    at += sprintf(at, "}\n");
    for (int i = 0; i < RECORDS; i++) at += sprintf(at, "{}\n");
    assert_null(read_text(text, &e));
    assert_non_null(strstr(e.text, ": 40 keys in "));
    free(text);
}

/* ---- arrays --------------------------------------------------------------------------------- */

enum { LABELS = 3 };

static void write_rows(const char *path, int64_t steps) {
    const struct fp8_slot slot[LABELS] = { { .amax_bits = 0x3f800000, .scale = 448 },
                                           { .amax_bits = 0x7fc00001, .elements = 4,
                                             .underflow = 1 },
                                           { .amax_bits = 0x80000000 } };
    struct stream_source source = { .slot = slot, .width = LABELS };
    struct row_file f;
    struct npy layout;
    struct err e = { 0 };
    char row[256];
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(row_file_open(fd, path, &f, &e));
    npy_layout(&STREAMS[STREAM_FP8], LABELS, &layout);
    for (source.step_number = 1; source.step_number <= steps; source.step_number++) {
        npy_row(&STREAMS[STREAM_FP8], &source, &layout, row);
        CHECK(row_file_append(&f, &STREAMS[STREAM_FP8], row, layout.row_bytes, &e));
    }
    close(fd);
}

/* Cuts the file of rows at `path`; returns the number of rows that stay. */
static int64_t cut_rows(const char *path, int64_t last_step) {
    struct row_file f;
    struct err e = { 0 };
    int fd = open(path, O_RDWR);
    CHECK(row_file_open(fd, path, &f, &e));
    CHECK(row_file_cut(&f, path, last_step, &e));
    close(fd);
    return f.layout.rows;
}

static struct columns *read_rows(const char *path, enum rows_end end, struct err *why) {
    char *bytes = NULL;
    size_t n = 0;
    struct columns *c = NULL;
    struct err e = { 0 };
    CHECK(file_read(path, 1 << 20, &bytes, &n, &e));
    return columns_parse(bytes, n, end, "fp8.npy", &c, why) == OK ? c : NULL;
}

static void rows_keep_their_bits(void **state) {
    char dir[PATH_CAP], path[PATH_CAP];
    struct err e = { 0 };
    scratch_directory(dir);
    CHECK(path_join(path, dir, "fp8.npy", &e));
    write_rows(path, 5); /* the header counts each row when it is written */
    struct columns *c = read_rows(path, ROWS_COMPLETE, &e);
    assert_non_null(c);
    assert_int_equal(c->rows, 5);
    const struct column *amax = columns_find(c, "amax"), *step = columns_find(c, "step");
    assert_int_equal(amax->width, LABELS);
    assert_int_equal(column_bits(amax, 4, 1), 0x7fc00001);
    assert_int_equal(column_bits(amax, 4, 2), 0x80000000);
    assert_int_equal(column_bits(step, 4, 0), 5);
    assert_true(column_value(columns_find(c, "underflow"), 2, 1) == 0.25);
    assert_null(columns_scalar(c, "amax"));
    columns_destroy(c);
    CHECK(tree_remove(dir, &e));
}

/* A kill at any byte of the last row, or of the header. */
static void an_incomplete_last_row_is_cut_off(void **state) {
    char dir[PATH_CAP], path[PATH_CAP];
    struct err e = { 0 };
    struct stat info;
    scratch_directory(dir);
    CHECK(path_join(path, dir, "fp8.npy", &e));
    write_rows(path, 3);
    assert_int_equal(stat(path, &info), 0);
    for (off_t size = info.st_size - 1; size > info.st_size - 81; size -= 13) {
        assert_int_equal(truncate(path, size), 0);
        assert_null(read_rows(path, ROWS_COMPLETE, &e));
        assert_non_null(strstr(e.text, "fp8.npy: the header says 3 rows"));
        struct columns *c = read_rows(path, ROWS_GROWING, &e);
        assert_non_null(c);
        assert_int_equal(c->rows, 2);
        columns_destroy(c);
    }
    assert_int_equal(cut_rows(path, INT64_MAX), 2);
    struct columns *c = read_rows(path, ROWS_COMPLETE, &e);
    assert_non_null(c);
    columns_destroy(c);
    for (off_t size = 200; size >= 0; size -= 8) { /* in the header */
        assert_int_equal(truncate(path, size), 0);
        assert_int_equal(cut_rows(path, INT64_MAX), 0);
        assert_true(stat(path, &info) == 0 && info.st_size == 0);
        write_rows(path, 3);
    }
    CHECK(tree_remove(dir, &e));
}

static void rows_after_a_step_are_cut_off(void **state) {
    char dir[PATH_CAP], path[PATH_CAP];
    struct err e = { 0 };
    scratch_directory(dir);
    CHECK(path_join(path, dir, "fp8.npy", &e));
    for (int64_t last = 0; last <= 6; last++) {
        write_rows(path, 5);
        assert_int_equal(cut_rows(path, last), last < 5 ? last : 5);
    }
    CHECK(tree_remove(dir, &e));
}

/* A run that is resumed on a device with other FP8 layers. */
static void a_row_of_other_labels_is_rejected(void **state) {
    char dir[PATH_CAP], path[PATH_CAP], row[64] = { 0 };
    struct row_file f;
    struct err e = { 0 };
    scratch_directory(dir);
    CHECK(path_join(path, dir, "fp8.npy", &e));
    write_rows(path, 2);
    int fd = open(path, O_RDWR);
    CHECK(row_file_open(fd, path, &f, &e));
    assert_int_equal(row_file_append(&f, &STREAMS[STREAM_FP8], row, 8 + 2 * 24, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "a record of fp8 has 56 bytes, and the rows of"));
    assert_int_equal(row_file_append(&f, &STREAMS[STREAM_FP8], row, 57, &e), ERR_FORMAT);
    close(fd);
    CHECK(tree_remove(dir, &e));
}

static void damaged_array_headers_are_rejected(void **state) {
    static const struct { const char *old, *new; } CHANGES[] = {
        { "NUMPY", "NUMPI" }, { "'descr'", "'dexcr'" }, { "'<i8'", "'>i8'" }, { "(3,)", "(0,)" },
        { "(3,)", "(9,)" }, { "'scale'", "'amax' " }, { "'scale'", "'amax_'" },
        { "False", "True " },
        { "(5,)", "(6,)" }, { "(5,)", "(-,)" }, { "), }", ")  }" }, { "\n", " " }, { "[", "(" },
    };
    char dir[PATH_CAP], path[PATH_CAP];
    struct err e = { 0 };
    scratch_directory(dir);
    CHECK(path_join(path, dir, "fp8.npy", &e));
    write_rows(path, 5);
    for (size_t i = 0; i < sizeof CHANGES / sizeof *CHANGES; i++) {
        char *bytes = NULL;
        size_t n = 0, length = strlen(CHANGES[i].old);
        struct columns *c = NULL;
        CHECK(file_read(path, 1 << 20, &bytes, &n, &e));
        char *at = memmem(bytes, n, CHANGES[i].old, length);
        assert_non_null(at);
        memcpy(at, CHANGES[i].new, length);
        bool named = strcmp(CHANGES[i].new, "'amax_'") == 0; /* another name is no damage */
        enum status st = columns_parse(bytes, n, ROWS_COMPLETE, "fp8.npy", &c, &e);
        if (st != (named ? OK : ERR_FORMAT)) fail_msg("change %zu: %d %s", i, st, e.text);
        if (named) columns_destroy(c);
    }
    CHECK(tree_remove(dir, &e));
}

/* ---- lines of any length -------------------------------------------------------------------- */

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
        if (columns_parse(bytes, 8 + padded + 16, ROWS_COMPLETE, "test", &c, &e) !=
            ERR_FORMAT)
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
    assert_int_equal(columns_parse(copy, 8 + (size_t)bytes[0], ROWS_COMPLETE, "test", &c, &e),
                     ERR_FORMAT);
    assert_non_null(strstr(e.text, "1099511627776 rows, and no column that holds them"));
    c = read_text("{\"note\":\"text\"}\n{\"note\":\"more\"}\n", &e); /* no number */
    assert_non_null(c);
    assert_int_equal(c->rows, 0);
    columns_destroy(c);
}

/* A crash may leave a file with a name and no bytes. */
static void a_file_without_bytes_is_named(void **state) {
    struct columns *c = NULL;
    struct err e = { 0 };
    FILE *empty = tmpfile();
    assert_int_equal(columns_map(fileno(empty), 0, 0, "train.cols", &c, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "train.cols: 0 bytes do not begin with a column header"));
    fclose(empty);
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
        read_text("{\"t\":9}\n{\"t\":1}\n{\"t\":null}\n{\"t\":4}\n{\"t\":2.5}\n", &e);
    CHECK(window_median(c, "t", (struct window){ 1, 5 }, &median, &e));
    assert_true(median == 2.5);
    CHECK(window_median(c, "t", (struct window){ 0, 5 }, &median, &e));
    assert_true(median == 3.25);
    columns_destroy(c);
    c = read_text("{\"t\":-1.5}\n{\"t\":-2}\n{\"t\":0}\n{\"t\":-0.25}\n", &e);
    CHECK(window_median(c, "t", (struct window){ 0, 4 }, &median, &e));
    assert_true(median == -0.875);
    CHECK(window_median(c, "t", (struct window){ 0, 2 }, &median, &e));
    assert_true(median == -1.75);
    columns_destroy(c);
    c = read_text("{\"t\":2}\n{\"t\":1}\n{\"t\":2}\n{\"t\":2}\n", &e);
    CHECK(window_median(c, "t", (struct window){ 0, 4 }, &median, &e));
    assert_true(median == 2); /* both middle ones are equal */
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
    struct run_columns c = { .of = {
        [STREAM_TRAIN] = read_text("{\"step\":1e300,\"tokens\":1e300}\n"
                                   "{\"step\":-1e300,\"tokens\":0}\n"
                                   "{\"step\":9.3e18,\"tokens\":0}\n", &e),
        [STREAM_TELEMETRY] = read_text(
            "{\"rss_bytes\":1e19,\"device_bytes\":-1e19,\"gpu_throttle\":1e30}\n"
            "{\"rss_bytes\":0,\"device_bytes\":-1e19,\"gpu_throttle\":null}\n", &e),
        [STREAM_RANKS] = read_text("{\"step\":1,\"slowest_rank\":1e300}\n", &e),
    } };
    assert_true(c.of[STREAM_TRAIN] && c.of[STREAM_TELEMETRY] && c.of[STREAM_RANKS] && attempts);
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
        cmocka_unit_test(pieces_may_be_cut_anywhere),
        cmocka_unit_test(a_line_without_end_is_bounded),
        cmocka_unit_test(gaps_are_not_a_number),
        cmocka_unit_test(numbers_are_read_as_jansson_reads_them),
        cmocka_unit_test(every_double_is_the_nearest),
        cmocka_unit_test(only_an_incomplete_last_line_is_dropped),
        cmocka_unit_test(sparse_lines_are_rejected),
        cmocka_unit_test(rows_keep_their_bits),
        cmocka_unit_test(an_incomplete_last_row_is_cut_off),
        cmocka_unit_test(rows_after_a_step_are_cut_off),
        cmocka_unit_test(a_row_of_other_labels_is_rejected),
        cmocka_unit_test(damaged_array_headers_are_rejected),
        cmocka_unit_test(long_lines_and_nul_bytes),
        cmocka_unit_test(damaged_headers_are_rejected),
        cmocka_unit_test(rows_without_a_column_are_rejected),
        cmocka_unit_test(a_file_without_bytes_is_named),
        cmocka_unit_test(steady_windows_and_medians),
        cmocka_unit_test(numbers_beyond_integers_are_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
