/* The file of answers: read back to the bit, and refused with one byte changed, cut short, of other
 * questions, or made by hand with a hash that fits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runner/base/run_files.h"
#include "runner/infer/answers_file.h"
#include "tests/support/must.h"

enum { ROWS = 5 };

static char PATH[64];

/* Two questions, of 2 and 3 completions. */
static void make(struct questions *c, bool bytes) {
    static const int32_t TOKENS[4] = { 1, 2, 3, 4 };
    *c = (struct questions){ .unit = "line", .path = strdup("q.jsonl") };
    assert_non_null(c->path);
    memset(c->sha256, 'a', SHA256_HEX - 1);
    for (int i = 0; i < 2; i++) {
        MUST(questions_add(c, 3 + 4 * i, i, TOKENS, 2, E));
        for (int k = 0; k < 2 + i; k++)
            MUST(questions_add_completion(c, 2, TOKENS, 1 + k, bytes ? 3 + k : 0, E));
    }
    questions_finish(c);
}

static const double NATS[ROWS] = { 0.1, 3, 5e-324, 1e300, 0x1.fffffffffffffp3 };

static void answer(const struct questions *c, struct answer out[ROWS]) {
    assert_int_equal(c->rows, ROWS);
    answers_of(c, NATS, out);
}

static void write_file(const struct questions *c) {
    struct answer a[ROWS];
    json_t *model = json_pack("{ss sI}", "run", "a-run", "step", (json_int_t)7);
    answer(c, a);
    MUST(answers_file_write(PATH, model, c, a, E));
    json_decref(model);
}

static void refused(const struct questions *c, const char *words) {
    struct answers_file f;
    struct err e = { 0 };
    enum status st = answers_file_read(PATH, c, &f, &e);
    if (st != ERR_CONFIG || !strstr(e.text, words))
        fail_msg("%s: %s: %s", words, status_name(st), e.text);
    answers_file_close(&f);
}

static void it_is_read_back_to_the_bit(void **state) {
    for (int bytes = 0; bytes < 2; bytes++) {
        struct questions c;
        struct answers_file f;
        struct answer wanted[ROWS];
        make(&c, bytes);
        answer(&c, wanted);
        write_file(&c);
        MUST(answers_file_read(PATH, &c, &f, E));
        for (int i = 0; i < ROWS; i++) {
            assert_memory_equal(&f.answers[i].nats, &NATS[i], sizeof NATS[i]);
            assert_int_equal(f.answers[i].tokens, wanted[i].tokens);
            assert_int_equal(f.answers[i].bytes, wanted[i].bytes);
        }
        assert_string_equal(json_text(f.header, "run", ""), "a-run");
        answers_file_close(&f);
        questions_close(&c);
    }
}

static void a_line_says_what_is_right(void **state) {
    struct questions c;
    char *text, *line;
    size_t n;
    make(&c, true);
    write_file(&c);
    MUST(file_read(PATH, 1 << 20, &text, &n, E));
    line = strchr(text, '\n') + 1;
    const char *second = strchr(line, '\n') + 1;
    assert_ptr_equal(strstr(line, "{\"answer\":0,\"bytes\":[3,4],\"nats\":[0.1,3.0],\"question\":3,"
                                  "\"right_byte\":true,\"right_sum\":true,\"right_token\":true,"
                                  "\"tokens\":[1,2]}\n"), line);
    assert_ptr_equal(strstr(second, "{\"answer\":1,\"bytes\":[3,4,5],\"nats\":[5e-324,1e+300,"),
                     second);
    assert_non_null(strstr(second, "\"question\":7,\"right_byte\":false,\"right_sum\":false,"));
    assert_non_null(strstr(text, "\"right\":{\"byte\":1,\"sum\":1,\"token\":1}"));
    free(text);
    questions_close(&c);
}

static void a_changed_or_cut_file_is_refused(void **state) {
    struct questions c;
    char *text;
    size_t n;
    make(&c, true);
    write_file(&c);
    MUST(file_read(PATH, 1 << 20, &text, &n, E));
    for (size_t i = 0; i < n; i += 3) {
        text[i] ^= 1;
        MUST(file_replace(PATH, text, n, E));
        text[i] ^= 1;
        refused(&c, PATH);
        MUST(file_replace(PATH, text, i, E));
        refused(&c, PATH);
    }
    char *nats = strstr(text, "[0.1");
    nats[3] = '2'; /* a smaller loss by hand */
    MUST(file_replace(PATH, text, n, E));
    refused(&c, "it was changed or cut after eval wrote it: its hash is");
    free(text);
    questions_close(&c);
}

static void other_questions_are_refused(void **state) {
    struct questions c;
    make(&c, true);
    write_file(&c);
    c.sha256[5] = 'b';
    refused(&c, "it has the answers to other questions: q.jsonl with SHA-256 aaaaaaaaaaaa..., not "
                "q.jsonl with aaaaabaaaaaa...; ask both models the same file");
    c.sha256[5] = 'a';
    c.question[1].number = 8;
    refused(&c, ":3: it answers line 7 of the questions, and 8 comes next here: --skip-bad");
    c.count = 1;
    refused(&c, "it has the answers to 2 questions, and 1 are asked here: --skip-bad left out");
    questions_close(&c);
}

/* A file made by hand, with the hash that fits. */
static void forge(const char *questions, const char *lines) {
    char bare[2048], whole[4096], sha256[SHA256_HEX];
    snprintf(bare, sizeof bare, "{\"questions\":%s,\"questions_sha256\":\"%064d\",\"schema\":"
             "\"fp8lab.answers/1\"}\n%s", questions, 0, lines);
    for (char *p = strstr(bare, "000000"); *p == '0'; p++) *p = 'a';
    MUST(sha256_bytes(bare, strlen(bare), sha256, E));
    snprintf(whole, sizeof whole, "{\"answers_sha256\":\"%s\",%s", sha256, bare + 1);
    MUST(file_replace(PATH, whole, strlen(whole), E));
}

#define FIRST "{\"nats\":[1.0,2.0],\"question\":3,\"tokens\":[1,2]}\n"
#define SECOND "{\"nats\":[1.0,2.0,3.0],\"question\":7,\"tokens\":[1,2,3]}\n"

static void every_line_is_checked(void **state) {
    static const struct { const char *lines, *words; } CASES[] = {
        { "", ":2: the file ends here" },
        { FIRST, ":3: the file ends here" },
        { FIRST SECOND FIRST, "lines follow the last question" },
        { SECOND FIRST, ":2: it answers line 7 of the questions, and 3 comes next here" },
        { "[1]\n", ":2: no object" },
        { "x\n", ":2: " },
        { "{\"nats\":[1.0],\"question\":3,\"tokens\":[1,2]}\n", ":2: expected 2 numbers in nats" },
        { "{\"nats\":[1.0,2.0],\"question\":3,\"tokens\":[1]}\n", ":2: expected 2 numbers" },
        { "{\"nats\":[1.0,2.0],\"question\":3,\"tokens\":[1,0]}\n", ":2: expected 2 numbers" },
        { "{\"nats\":[1.0,\"2\"],\"question\":3,\"tokens\":[1,2]}\n", ":2: expected 2 numbers" },
        { "{\"nats\":[1.0,1e999],\"question\":3,\"tokens\":[1,2]}\n", ":2: " },
        { "{\"question\":3}\n", ":2: expected 2 numbers" },
    };
    struct questions c;
    struct answers_file f;
    make(&c, true);
    forge("2", FIRST SECOND);
    MUST(answers_file_read(PATH, &c, &f, E));
    answers_file_close(&f);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        forge("2", CASES[i].lines);
        refused(&c, CASES[i].words);
    }
    forge("null", FIRST SECOND);
    refused(&c, "answers to 0 questions");
    MUST(file_replace(PATH, "{\"schema\":\"fp8lab.eval/1\"}\n", 27, E));
    refused(&c, "no file of answers: its first line has no schema fp8lab.answers/1");
    MUST(file_replace(PATH, "\x7f" "ELF\n", 5, E));
    refused(&c, "no file of answers");
    questions_close(&c);
}

static void other_files_stay(void **state) {
    struct questions c;
    MUST(file_replace(PATH, "my notes\n", 9, E));
    MUST_FAIL(ERR_ARG, "the file holds other data, and stays as it is; name a new file or an "
              "earlier file of answers", answers_file_may_replace(PATH, E));
    make(&c, true);
    write_file(&c);
    MUST(answers_file_may_replace(PATH, E));
    questions_close(&c);
    assert_int_equal(unlink(PATH), 0);
    MUST(answers_file_may_replace(PATH, E));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_read_back_to_the_bit),
        cmocka_unit_test(a_line_says_what_is_right),
        cmocka_unit_test(a_changed_or_cut_file_is_refused),
        cmocka_unit_test(other_questions_are_refused),
        cmocka_unit_test(every_line_is_checked),
        cmocka_unit_test(other_files_stay),
    };
    snprintf(PATH, sizeof PATH, "/tmp/fp8lab-answers.%d", (int)getpid());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
