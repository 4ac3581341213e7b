/* Entropies of small texts, computed by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "runner/text_stats.h"

struct text_case {
    const char *what, *text;
    size_t n;
    int64_t distinct;
    double unigram, bigram;
};

/* log 2 = 0.693147, log 3 = 1.098612 */
static const struct text_case CASES[] = {
    { "empty", "", 0, 0, 0, 0 },
    { "one byte", "x", 1, 1, 0, 0 },
    { "one value", "aaaaaaaa", 8, 1, 0, 0 },
    { "alternating: the next byte is certain", "abababab", 8, 2, 0.693147, 0 },
    /* a a b b a: pairs aa ab bb ba, each row two ways; p(a) = 3/5 */
    { "every pair once", "aabba", 5, 2, 0.673012, 0.693147 },
    { "NUL and high bytes count as bytes", "\0\xff\x80", 3, 3, 1.098612, 0 },
};

static void write_file(char *path, const char *text, size_t n) {
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, n), (ssize_t)n);
    close(fd);
}

static void hand_worked_texts(void **state) {
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const struct text_case *c = &CASES[i];
        char path[] = "/tmp/fp8lab-text-XXXXXX";
        write_file(path, c->text, c->n);
        struct text_stats s;
        struct err e = { 0 };
        enum status st = text_stats_file(path, &s, &e);
        unlink(path);
        if (st != OK) fail_msg("%s: %s", c->what, e.text);
        if (s.bytes != (int64_t)c->n || s.distinct != c->distinct ||
            fabs(s.unigram_nats - c->unigram) > 1e-6 || fabs(s.bigram_nats - c->bigram) > 1e-6)
            fail_msg("%s: %lld bytes, %lld values, %.6f and %.6f nats", c->what,
                     (long long)s.bytes, (long long)s.distinct, s.unigram_nats, s.bigram_nats);
    }
}

/* A pair across two reads counts: 'b' follows 'a' exactly at the 64 KiB boundary. */
static void pairs_across_reads(void **state) {
    enum { EDGE = 1 << 16 };
    char path[] = "/tmp/fp8lab-text-XXXXXX", *text = malloc(2 * EDGE);
    assert_non_null(text);
    for (int i = 0; i < 2 * EDGE; i++) text[i] = i < EDGE ? 'a' : 'b';
    write_file(path, text, 2 * EDGE);
    free(text);
    struct text_stats s;
    struct err e = { 0 };
    enum status st = text_stats_file(path, &s, &e);
    unlink(path);
    assert_int_equal(st, OK);
    /* Row 'a' (65536 pairs) has one other successor, row 'b' none: h(1/65536) * 65536 / 131071. */
    double p = 1.0 / EDGE, h = -p * log(p) - (1 - p) * log(1 - p);
    assert_true(fabs(s.bigram_nats - h * EDGE / (2 * EDGE - 1)) < 1e-9);
    assert_true(fabs(s.unigram_nats - log(2)) < 1e-9);
}

static void unreadable_files(void **state) {
    struct text_stats s;
    struct err e = { 0 };
    assert_int_equal(text_stats_file("/nonexistent/text", &s, &e), ERR_IO);
    assert_string_equal(e.text, "open /nonexistent/text: No such file or directory");
    assert_int_equal(text_stats_file("/tmp", &s, &e), ERR_CONFIG);
    assert_string_equal(e.text, "/tmp is not a regular file");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hand_worked_texts),
        cmocka_unit_test(pairs_across_reads),
        cmocka_unit_test(unreadable_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
