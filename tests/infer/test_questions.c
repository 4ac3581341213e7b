/* Multiple choice: the rule beside logits and a loop of its own; every field of the file broken. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/logits.h"
#include "runner/infer/answers.h"
#include "runner/infer/questions_llmc.h"
#include "tests/support/must.h"
#include "tests/support/tiny.h"

enum { B = 4, T = 32, V = 96, EXAMPLES = 7, HEADER = 1024, BYTES_MAX = 8192 };

struct file {
    unsigned char bytes[BYTES_MAX];
    int64_t n, longest, at[EXAMPLES]; /* where the examples begin */
};

static void put(struct file *f, int64_t at, int bytes, int64_t value) {
    for (int i = 0; i < bytes; i++) f->bytes[at + i] = (unsigned char)(value >> 8 * i);
}

static void add(struct file *f, int64_t word) {
    put(f, f->n, 2, word);
    f->n += 2;
}

static int64_t word_at(const struct file *f, int64_t at) {
    return f->bytes[at] + 256 * f->bytes[at + 1];
}

static void add_tokens(struct file *f, int64_t count, int salt) {
    add(f, count);
    for (int64_t i = 0; i < count; i++) add(f, (salt * 31 + i * i + 7 * i) % V);
}

/* Examples of 2 to 5 completions, of which the longest rows read T tokens. */
static void make(struct file *f) {
    memset(f, 0, sizeof *f);
    f->n = HEADER;
    for (int i = 0; i < EXAMPLES; i++) {
        int completions = 2 + i % 4, context = i == 3 ? T - 4 : 1 + 3 * i;
        f->at[i] = f->n;
        add(f, 65535);
        add(f, 0);
        add(f, i);
        add(f, (i * 5) % completions);
        add(f, completions);
        add_tokens(f, context, i);
        for (int k = 0; k < completions; k++) add_tokens(f, 1 + (i + k) % 5, 100 + 10 * i + k);
        int64_t bytes = f->n - f->at[i];
        put(f, f->at[i] + 2, 2, bytes);
        if (bytes > f->longest) f->longest = bytes;
    }
    put(f, 0, 4, 20240522);
    put(f, 4, 4, 1);
    put(f, 8, 4, EXAMPLES);
    put(f, 12, 4, f->longest);
}

static const char *PATH = "/tmp/fp8lab-questions.bin";

static enum status open_file(const struct file *f, int64_t vocab, int64_t seq_len,
                             struct questions *q, struct err *e) {
    char path[64];
    snprintf(path, sizeof path, "%s.%d", PATH, (int)getpid());
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(f->bytes, 1, (size_t)f->n, out), f->n);
    assert_int_equal(fclose(out), 0);
    enum status st = questions_llmc_open(path, vocab, seq_len, q, e);
    assert_int_equal(unlink(path), 0); /* it stays open */
    return st;
}

/* By two trainers' shares, though one trainer takes both; all of `batch` completions at a time. */
static void score(const struct questions *q, struct trainer *t, int64_t batch,
                  struct answers_result *out) {
    double nats[EXAMPLES * 5];
    struct answer answers[EXAMPLES * 5];
    assert_in_range(q->rows, 1, EXAMPLES * 5);
    for (int64_t i = 0; i < q->rows; i++) nats[i] = -1;
    for (int first = 1; first >= 0; first--) {
        const struct questions_part part = { batch, T, first, 2 };
        MUST(questions_losses(q, t, &part, nats, E));
        for (int64_t i = 0; i < q->rows; i++) /* a share fills its own */
            assert_true((nats[i] > 0) == (first == 0 || i / batch % 2 == 1));
    }
    answers_of(q, nats, answers);
    *out = answers_judge(q, answers);
}

/* ---- the rule ---------------------------------------------------------------------------------*/

/* Mean loss of `count` tokens behind the first `context` of a row. */
static double mean_loss(struct trainer *t, const int32_t row[T], int64_t context, int64_t count) {
    static float logits[B * T * V];
    int32_t tokens[B * T] = { 0 };
    int64_t rows[T];
    double sum = 0;
    for (int i = 0; i < T; i++) rows[i] = i;
    memcpy(tokens, row, T * sizeof *row);
    MUST(trainer_logits(t, tokens, rows, T, logits, E));
    for (int64_t k = 0; k < count; k++) {
        const float *x = logits + (context - 1 + k) * V;
        double total = 0;
        for (int i = 0; i < V; i++) total += exp((double)x[i]);
        sum += log(total) - (double)x[row[context + k]];
    }
    return sum / (double)count;
}

/* The right answers by a walk of the file's words. */
static int naive(const struct file *f, struct trainer *t, double *loss) {
    int right = 0;
    *loss = 0;
    for (int i = 0; i < EXAMPLES; i++) {
        int64_t at = f->at[i] + 6, best = 0;
        int64_t label = word_at(f, at), completions = word_at(f, at + 2);
        int64_t context = word_at(f, at + 4), next = at + 6 + 2 * context;
        double least = INFINITY;
        for (int64_t k = 0; k < completions; k++) {
            int32_t row[T + 1] = { 0 };
            int64_t n = word_at(f, next);
            for (int64_t j = 0; j < context; j++) row[j] = (int32_t)word_at(f, at + 6 + 2 * j);
            for (int64_t j = 0; j < n; j++)
                row[context + j] = (int32_t)word_at(f, next + 2 + 2 * j);
            double mean = mean_loss(t, row, context, n);
            if (mean < least) best = k, least = mean;
            if (k == label) *loss += mean / EXAMPLES;
            next += 2 + 2 * n;
        }
        right += best == label;
    }
    return right;
}

static void the_lowest_mean_loss_is_the_answer(void **state) {
    static const enum recipe_kind KINDS[] = { RECIPE_F32, RECIPE_BF16 };
    static struct file f;
    make(&f);
    for (int k = 0; k < 2; k++) {
        struct tiny_run r;
        struct questions q;
        struct answers_result got;
        double loss;
        tiny_run_init(&r, KINDS[k], 1);
        r.train.micro_batch = r.train.global_batch = B;
        MUST(tiny_run_open(&r, E));
        MUST(open_file(&f, V, T, &q, E));
        assert_int_equal(q.count, EXAMPLES);
        assert_int_equal(q.longest, T);
        score(&q, r.trainer, B, &got);
        int right = naive(&f, r.trainer, &loss);
        assert_int_equal(got.examples, EXAMPLES);
        assert_int_equal(got.right[RULE_TOKEN], right);
        assert_true(fabs(got.loss - loss) < 1e-5);
        questions_close(&q);
        tiny_run_close(&r);
    }
}

/* A model that has learnt nothing of the labels is right by chance; of equal losses the first
 * counts, as in llm.c. */
static void the_first_of_equal_ones_counts(void **state) {
    for (int label = 0; label < 3; label++) {
        static struct file f;
        struct tiny_run r;
        struct questions q;
        struct answers_result got;
        memset(&f, 0, sizeof f);
        f.n = HEADER;
        put(&f, 0, 4, 20240522);
        put(&f, 4, 4, 1);
        put(&f, 8, 4, 1);
        add(&f, 65535);
        add(&f, 0);
        add(&f, 0);
        add(&f, label);
        add(&f, 3);
        add_tokens(&f, 5, 1);
        for (int k = 0; k < 3; k++) add_tokens(&f, 2, 2);
        put(&f, HEADER + 2, 2, f.n - HEADER);
        put(&f, 12, 4, f.n - HEADER);
        tiny_run_init(&r, RECIPE_BF16, 1);
        MUST(tiny_run_open(&r, E));
        MUST(open_file(&f, V, T, &q, E));
        score(&q, r.trainer, 2, &got);
        assert_int_equal(got.right[RULE_TOKEN], label == 0);
        assert_int_equal(got.tokens, 6);
        questions_close(&q);
        tiny_run_close(&r);
    }
}

/* ---- damage -----------------------------------------------------------------------------------*/

static void refused(const struct file *f, int64_t vocab, int64_t seq_len, const char *words) {
    struct questions q;
    struct err e = { 0 };
    enum status st = open_file(f, vocab, seq_len, &q, &e);
    if (st != ERR_CONFIG || !strstr(e.text, words)) fail_msg("%s: %d, %s", words, st, e.text);
    questions_close(&q);
}

static void each_field_is_checked(void **state) {
    static struct file good, f;
    make(&good);
    const int64_t second = good.at[1];
    const struct { int64_t at; int bytes; int64_t value; const char *words; } CASES[] = {
        { 0, 4, 20240520, "not a file of choices of llm.c: magic 20240520 at byte 0" },
        { 4, 4, 2, "version 2 at byte 4" },
        { 8, 4, 0, "byte 8 announces 0 examples" },
        { 8, 4, -1, "byte 8 announces -1 examples" },
        { 8, 4, 1 << 20, "byte 8 announces 1048576 examples" },
        { 8, 4, EXAMPLES + 1, "example 7 at byte" },
        { 8, 4, EXAMPLES - 1, "follow the last of its 6 examples" },
        { 12, 4, good.longest + 2, "byte 12 says that the longest example has" },
        { second, 2, 65534, "example 1 at byte 1048: its first word is 65534; expected 65535" },
        { second + 2, 2, 0, "its size in bytes is 0; expected an even number of at least 12" },
        { second + 2, 2, 41, "its size in bytes is 41; expected an even number" },
        { second + 2, 2, 65534, "its size in bytes is 65534; expected what the file has" },
        { second + 2, 2, 42, "expected tokens that its size in bytes holds" },
        { second + 4, 2, 0, "its number is 0; expected 1" },
        { second + 6, 2, 3, "the right completion is 3; expected less than its 3 completions" },
        { second + 8, 2, 1, "the number of completions is 1; expected from 2 to 64" },
        { second + 8, 2, 65, "the number of completions is 65" },
        { good.at[2] + 8, 2, 3, "expected the end of its last completion" },
        { second + 10, 2, 0, "the length of its context is 0; expected at least 1 token" },
        { second + 10, 2, 9999, "the length of its context is 9999; expected tokens that" },
        { second + 12, 2, V, "example 1 has token 96; the model has 96 tokens" },
        { second + 20, 2, 0, "the length of a completion is 0" },
        { second + 20, 2, 77, "the length of a completion is 77" },
        { second + 22, 2, 65535, "example 1 has token 65535" },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        f = good;
        put(&f, CASES[i].at, CASES[i].bytes, CASES[i].value);
        refused(&f, V, T, CASES[i].words);
    }
    refused(&good, V - 1, T, "it is a file for another tokenizer");
    refused(&good, V, T - 1, "reads 32 tokens; the model reads at most 31");
    for (int64_t n = 0; n < good.n; n++) {
        f = good;
        f.n = n;
        refused(&f, V, T, n < HEADER + 12 * EXAMPLES ? "(truncated?)" : "expect");
    }
    f = good;
    f.n += 2;
    refused(&f, V, T, "2 bytes follow the last");
    struct questions q;
    MUST_FAIL(ERR_CONFIG, "No such file", questions_llmc_open("/nowhere.bin", V, T, &q, E));
    questions_close(&q);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lowest_mean_loss_is_the_answer),
        cmocka_unit_test(the_first_of_equal_ones_counts),
        cmocka_unit_test(each_field_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
