/* Multiple choice as JSON lines: the place where a completion's tokens begin, every form, and what
 * is refused by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/base/run_files.h"
#include "runner/infer/completion_tokens.h"
#include "runner/infer/questions_json.h"
#include "tests/support/must.h"

enum { T = 40 };

/* ---- where a completion begins ----------------------------------------------------------------*/

struct boundary {
    const char *tokenizer, *context, *completion;
    int64_t before;    /* tokens of the context alone */
    int64_t keep;      /* of those that stay */
    const char *text;  /* of the completion's tokens */
};

static const char *const RECORDED = "tests/ingest/recorded/";

static void choose(struct tokenizer_choice *c, const char *name) {
    const struct tokenizer_options how = { 0 };
    char path[PATH_CAP];
    bool file = strstr(name, ".json") != NULL;
    snprintf(path, sizeof path, "%s%s", file ? RECORDED : "", name);
    MUST(tokenizer_choose(c, path, &how, NULL, "", E));
}

static void check_boundary(const struct boundary *b) {
    struct tokenizer_choice choice;
    struct completion_tokens *t;
    const int32_t *ids;
    int64_t before, keep, count;
    bool inside;
    char *text;
    size_t n;
    choose(&choice, b->tokenizer);
    MUST(completion_tokens_create(&t, &choice, E));
    MUST(completion_tokens_context(t, b->context, &ids, &before, E));
    MUST(completion_tokens_behind(t, b->completion, &ids, &keep, &count, &inside, E));
    MUST(tokenizer_decode(choice.tokenizer, (const uint32_t *)(const void *)ids, count, false,
                          &text, &n, E));
    if (before != b->before || keep != b->keep || strcmp(text, b->text) != 0 ||
        inside != (b->keep < b->before))
        fail_msg("%s: '%s' '%s': %lld tokens, %lld kept, then '%s'", b->tokenizer, b->context,
                 b->completion, (long long)before, (long long)keep, text);
    free(text);
    completion_tokens_destroy(t);
    tokenizer_choice_free(&choice);
}

/* The vocabularies have the tokens "t", "he" and " of", Llama-3's also ")\n". */
static void a_completion_begins_at_the_first_token_that_differs(void **state) {
    static const struct boundary CASES[] = {
        { "bytes", "ab", "c", 2, 2, " c" },
        { "bytes", "ab", " c", 2, 2, " c" },
        { "bytes", "ab ", "c", 2, 2, " c" },       /* the space at its end is the completion's */
        { "bytes", "ab \n", "c", 2, 2, " \nc" },
        { "bytes", "ab\n", " c", 2, 2, "\n c" },
        { "bytes", "ab", "\nc", 2, 2, "\nc" },
        { "bytes", "ab\u3000", "c", 2, 2, "\u3000c" }, /* white space beyond ASCII, as Python's */
        { "bytes", "ab", "\u00a0c", 2, 2, "\u00a0c" },
        { "bytes", "\u00e9\u2009\x1f ", "c", 2, 2, "\u2009\x1f c" },
        { "bytes", "ab\u200b", "c", 5, 5, " c" },     /* of no width: no white space */
        { "gpt2.json", "the", "of", 2, 2, " of" }, /* one token, not " " and "of" */
        { "gpt2.json", "the ", "of", 2, 2, " of" },
        { "gpt2.json", "", "the", 1, 1, "the" },   /* behind the end of a document */
        { "gpt2.json", " ", "of", 1, 1, " of" },
        { "llama3.json", "the", "of", 3, 3, " of" }, /* behind the token that begins a text */
        { "llama3.json", "", "the", 1, 1, "the" },
        { "llama3.json", "<|begin_of_text|>the", "of", 3, 3, " of" }, /* it has that token */
        { "llama3.json", "<|begin_of_text|>", "of", 1, 1, " of" },
        { "llama3.json", "x)", "y", 3, 3, " y" },
        { "llama3.json", "x)", "\ny", 3, 2, ")\ny" }, /* ")" and "\n" are one token */
        { "llama3.json", "x)\n", "y", 3, 2, ")\ny" },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) check_boundary(&CASES[i]);
}

static void a_token_stands_before_a_completion(void **state) {
    struct tokenizer_choice choice;
    struct completion_tokens *t;
    const int32_t *ids;
    int64_t keep, count;
    bool inside;
    choose(&choice, "bytes");
    MUST(completion_tokens_create(&t, &choice, E));
    MUST_FAIL(ERR_FORMAT, "no token that begins a text",
              completion_tokens_context(t, "", &ids, &count, E));
    MUST_FAIL(ERR_FORMAT, "no token that begins a text",
              completion_tokens_context(t, " \n", &ids, &count, E));
    completion_tokens_destroy(t);
    tokenizer_choice_free(&choice);
    choose(&choice, "qwen2.json"); /* which sets no token before a text */
    MUST(completion_tokens_create(&t, &choice, E));
    MUST(completion_tokens_context(t, ")", &ids, &count, E));
    MUST_FAIL(ERR_FORMAT, "its first token begins in the first token of the text",
              completion_tokens_behind(t, "\ny", &ids, &keep, &count, &inside, E));
    MUST_FAIL(ERR_FORMAT, "it is empty",
              completion_tokens_behind(t, "", &ids, &keep, &count, &inside, E));
    completion_tokens_destroy(t);
    tokenizer_choice_free(&choice);
}

/* ---- files ------------------------------------------------------------------------------------*/

static enum status read_bytes(const char *bytes, size_t n, const char *tokenizer, int64_t vocab,
                              int64_t skip, struct questions *q, struct err *e) {
    static const struct cli CLI = { .quiet = true };
    char path[64];
    struct tokenizer_choice choice;
    snprintf(path, sizeof path, "/tmp/fp8lab-q.%d", (int)getpid());
    MUST(file_replace(path, bytes, n, E));
    choose(&choice, tokenizer);
    const struct questions_source s = { .cli = &CLI, .path = path, .choice = &choice,
                                        .vocab = vocab, .seq_len = T, .skip = skip };
    enum status st = questions_json_open(&s, q, e);
    tokenizer_choice_free(&choice);
    assert_int_equal(unlink(path), 0);
    return st;
}

static enum status read_text(const char *text, int64_t skip, struct questions *q, struct err *e) {
    return read_bytes(text, strlen(text), "bytes", 256, skip, q, e);
}

/* The bytes of a row, of a model of bytes. */
static void says(const struct questions *q, int64_t i, int64_t k, const char *context,
                 const char *completion, int64_t bytes) {
    const struct question *x = &q->question[i];
    const struct completion *c = &q->row[x->row + k];
    assert_int_equal(c->keep, strlen(context));
    assert_int_equal(c->tokens, strlen(completion));
    assert_int_equal(c->bytes, bytes);
    for (int64_t j = 0; j < c->keep; j++)
        assert_int_equal(q->token[x->first + j], (unsigned char)context[j]);
    for (int64_t j = 0; j < c->tokens; j++)
        assert_int_equal(q->token[c->first + j], (unsigned char)completion[j]);
}

static void every_form_is_read(void **state) {
    static const char TEXT[] =
        "\xef\xbb\xbf{\"context\": \"Q é?\", \"choices\": [\"a\", \" b\", \"cé\"], \"answer\": 2, "
        "\"id\": [1, {}]}\r\n"
        " \t\n"
        "{\"ctx\": \"Q\", \"endings\": [\"a\", \"b\"], \"label\": \"1\", \"ctx_a\": \"\"}\n"
        "{\"ctx\": \"Q\", \"endings\": [\"a\", \"b\"], \"label\": 1}\n"
        "{\"question\": \"Q\", \"choices\": {\"text\": [\"a\", \"b\"], \"label\": [\"A\", \"B\"]}, "
        "\"answerKey\": \"B\"}\n"
        "{\"question_stem\": \"Q\", \"choices\": {\"label\": [\"1\", \"2\"], \"text\": [\"a\", "
        "\"b\"]}, \"answerKey\": \"2\"}\n"
        "{\"goal\": \"Q\", \"sol1\": \"a\", \"sol2\": \"b\", \"label\": 1}\n"
        "{\"goal\": \"Q\", \"sol1\": \"a\", \"sol2\": \"b\", \"label\": \"1\"}"; /* no newline */
    static const int64_t LINES[] = { 1, 3, 4, 5, 6, 7, 8 };
    struct questions q;
    MUST(read_text(TEXT, 0, &q, E));
    assert_int_equal(q.count, 7);
    assert_int_equal(q.rows, 15);
    assert_int_equal(q.question[0].right, 2);
    assert_true(q.has_bytes);
    says(&q, 0, 0, "Q \xc3\xa9?", " a", 1);
    says(&q, 0, 1, "Q \xc3\xa9?", " b", 2);
    says(&q, 0, 2, "Q \xc3\xa9?", " c\xc3\xa9", 3);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(q.question[i].number, LINES[i]);
        if (i == 0) continue;
        assert_int_equal(q.question[i].completions, 2);
        assert_int_equal(q.question[i].right, 1);
        says(&q, i, 0, "Q", " a", 1);
        says(&q, i, 1, "Q", " b", 1);
    }
    assert_int_equal(q.longest, 5 + 4 - 1);
    assert_int_equal(q.tokens, 2 + 2 + 4 + 6 * 4);
    questions_close(&q);
}

/* ---- refused ----------------------------------------------------------------------------------*/

#define TWO "\"choices\": [\"a\", \"b\"]"
#define KEYED(keys) "{\"question\": \"Q\", \"choices\": {\"text\": [\"a\", \"b\"], " keys "}"

static void each_fault_is_named(void **state) {
    static const struct { const char *line, *words; } CASES[] = {
        { "{\"context\": \"Q\", " TWO "}",
          ":2: \"answer\" is absent; expected a whole number from 0 to 1 (a test set may come "
          "without answers). --skip-bad N leaves out up to N such lines" },
        { "{\"context\": \"Q\", " TWO ", \"answer\": 2}",
          ":2: \"answer\" is 2; expected a whole number from 0 to 1" },
        { "{\"context\": \"Q\", " TWO ", \"answer\": -1}", "\"answer\" is -1; expected" },
        { "{\"context\": \"Q\", " TWO ", \"answer\": \"1\"}", "\"answer\" is a text; expected" },
        { "{\"context\": \"Q\", " TWO ", \"answer\": 0.5}",
          "\"answer\" is a number with a fraction; expected" },
        { "{\"context\": \"Q\", " TWO ", \"answer\": true}", "\"answer\" is a truth value" },
        { "{" TWO ", \"answer\": 0}", "\"context\" is absent; expected a text" },
        { "{\"context\": {}, " TWO ", \"answer\": 0}", "\"context\" is an object; expected a" },
        { "{\"context\": \"Q\", \"choices\": [\"a\"], \"answer\": 0}",
          "\"choices\" has 1 texts; expected from 2 to 64" },
        { "{\"context\": \"Q\", \"choices\": [\"a\", null], \"answer\": 0}",
          "\"choices\" has null as number 1 from 0; expected texts" },
        { "{\"context\": \"Q\", \"choices\": \"ab\", \"answer\": 0}",
          "\"choices\" is a text; expected an array of texts" },
        { "{\"context\": \"Q\", \"choices\": [\"a\", \"\"], \"answer\": 0}",
          ":2: completion 1: it is empty" },
        { "{\"context\": \"\", " TWO ", \"answer\": 0}",
          "there is no text before the completions, and this tokenizer has no token" },
        { "{\"ctx\": \"Q\", \"endings\": [\"a\", \"b\"], \"label\": \"\"}",
          "\"label\" is \"\"; expected a whole number from 0 to 1 (a test set" },
        { "{\"ctx\": \"Q\", \"endings\": [\"a\", \"b\"], \"label\": \"1x\"}",
          "\"label\" is \"1x\"; expected" },
        { "{\"ctx\": \"Q\", \"endings\": [\"a\", \"b\"], \"label\": \"100\"}",
          "\"label\" is \"100\"; expected" },
        { "{\"goal\": \"Q\", \"sol1\": \"a\", \"sol2\": \"b\", \"label\": -1}",
          "\"label\" is -1; expected" },
        { "{\"goal\": \"Q\", \"sol1\": \"a\", \"label\": 0}", "\"sol2\" is absent; expected a" },
        { KEYED("\"label\": [\"A\", \"B\"]") ", \"answerKey\": \"C\"}",
          "\"answerKey\" is \"C\", which is none of the labels of \"choices\"" },
        { KEYED("\"label\": [\"A\", \"A\"]") ", \"answerKey\": \"A\"}",
          "\"answerKey\" is \"A\", which is several labels" },
        { KEYED("\"label\": [\"A\"]") ", \"answerKey\": \"A\"}",
          "\"choices\" has 2 in \"text\" and 1 in \"label\"; expected as many" },
        { KEYED("\"label\": [\"A\", \"B\"]") "}", "\"answerKey\" is absent; expected a text" },
        { "{\"context\": \"Q\", \"answer\": 0}",
          "it has none of \"choices\", \"endings\" and \"sol1\"; expected one of the forms" },
        { "{\"context\": \"Q\", " TWO ", \"endings\": [], \"answer\": 0}", "it has several of" },
        { "{\"context\": \"Q\", \"context\": \"Q\", " TWO ", \"answer\": 0}",
          ":2: no JSON object: duplicate object key" },
        { "[1, 2]", ":2: it is no object" },
        { "no JSON", ":2: no JSON object: " },
        { "{\"context\": \"Q\xff\", " TWO ", \"answer\": 0}", ":2: no JSON object: " },
        { "{\"context\": \"Q\\u0000\", " TWO ", \"answer\": 0}", ":2: no JSON object: " },
        { "{\"context\": \"0123456789012345678901234567890123456789\", " TWO ", \"answer\": 0}",
          ":2: completion 0 and what is before it are 42 tokens; the model reads at most 41: "
          "shorten the context" },
    };
    static const char GOOD[] = "{\"context\": \"Q\", " TWO ", \"answer\": 1}\n";
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char text[1024];
        struct questions q;
        struct err e = { 0 };
        snprintf(text, sizeof text, "%s%s\n%s", GOOD, CASES[i].line, GOOD);
        enum status st = read_text(text, 0, &q, &e);
        if (st != ERR_CONFIG || !strstr(e.text, CASES[i].words))
            fail_msg("%s: %s: %s", CASES[i].words, status_name(st), e.text);
        questions_close(&q);
        MUST(read_text(text, 1, &q, E)); /* left out whole */
        assert_int_equal(q.count, 2);
        assert_int_equal(q.rows, 4);
        assert_int_equal(q.token_count, 2 * (1 + 2 + 2));
        assert_int_equal(q.question[1].number, 3);
        says(&q, 1, 1, "Q", " b", 1);
        questions_close(&q);
    }
}

static void a_row_of_the_models_length_fits(void **state) {
    static const char TEXT[] =
        "{\"context\": \"012345678901234567890123456789012345678\", " TWO ", \"answer\": 0}";
    struct questions q;
    MUST(read_text(TEXT, 0, &q, E));
    assert_int_equal(q.longest, T); /* the last token is not read */
    questions_close(&q);
}

static void other_files_are_refused(void **state) {
    static const char GOOD[] = "{\"context\": \"Q\", " TWO ", \"answer\": 1}\n";
    struct questions q;
    MUST_FAIL(ERR_CONFIG, "has no question", read_text(" \n\n", 0, &q, E));
    questions_close(&q);
    MUST_FAIL(ERR_CONFIG, "has no question that could be read", read_text("{}\n", 1, &q, E));
    questions_close(&q);
    MUST_FAIL(ERR_CONFIG, ":2: it has none", read_text("{}\n{}\n", 1, &q, E));
    questions_close(&q);
    MUST_FAIL(ERR_CONFIG, "but the model has 98: it is another model's tokenizer",
              read_bytes(GOOD, sizeof GOOD - 1, "bytes", 98, 5, &q, E)); /* not one bad line */
    questions_close(&q);
}

static void the_first_bytes_say_what_a_file_is(void **state) {
    static const struct { const char *bytes; bool json; const char *words; } CASES[] = {
        { "{", true, NULL }, { "\xef\xbb\xbf \r\n\t{", true, NULL },
        { "", false, "is empty; expected JSON lines of questions, such as {\"context\": " },
        { "x{", false, "begins with no JSON object; expected JSON lines" },
        { "question,answer\n", false, "\"answer\": 0}, or a file of llm.c" },
        { "\xff\xfe{", false, "is text in UTF-16; expected UTF-8" },
        { " [{", false, "is one JSON array; expected one object a line" },
        { "\x1f\x8b\x08", false, "is a gzip file, which is not read as questions; unpack it" },
    };
    char path[64];
    snprintf(path, sizeof path, "/tmp/fp8lab-q.%d", (int)getpid());
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        bool json = !CASES[i].json;
        struct err e = { 0 };
        MUST(file_replace(path, CASES[i].bytes, strlen(CASES[i].bytes), E));
        enum status st = questions_are_json(path, &json, &e);
        if (CASES[i].words ? st != ERR_CONFIG || !strstr(e.text, CASES[i].words)
                           : st != OK || json != CASES[i].json)
            fail_msg("case %zu: %s", i, e.text);
    }
    bool json = true;
    char lines[400] = "\n"; /* longer than what is read of the beginning */
    memset(lines, '\n', 300);
    lines[300] = '{';
    MUST(file_replace(path, lines, 301, E));
    MUST(questions_are_json(path, &json, E));
    assert_true(json);
    MUST(file_replace(path, "\x8a\xd8\x34\x01\1\0\0", 8, E)); /* llm.c: it has NULs */
    MUST(questions_are_json(path, &json, E));
    assert_false(json);
    assert_int_equal(unlink(path), 0);
    MUST_FAIL(ERR_CONFIG, "No such file", questions_are_json(path, &json, E));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_completion_begins_at_the_first_token_that_differs),
        cmocka_unit_test(a_token_stands_before_a_completion),
        cmocka_unit_test(every_form_is_read),
        cmocka_unit_test(each_fault_is_named),
        cmocka_unit_test(a_row_of_the_models_length_fits),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(the_first_bytes_say_what_a_file_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
