/* A small mutation fuzzer: valid bundles, columns, manifests, JSON lines and questions, damaged by
 * draws from fixed seeds. Readers may reject or accept, but must not crash, hang, leak or write
 * outside their folder; CONFIG=asan finds most of these. Seeds are equal on every machine, so a
 * failure repeats: the number of the round is printed. */
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
#include "runner/bundle/bag.h"
#include "runner/bundle/bundle.h"
#include "runner/bundle/columns.h"
#include "runner/bundle/unpack.h"
#include "runner/compare/compare.h"
#include "runner/infer/questions_json.h"
#include "tests/support/run_fixture.h"

enum { ROUNDS_BUNDLE = 200, ROUNDS_TEXT = 2000 };

struct sample {
    char *bytes; /* owned */
    size_t n;
};

struct scene {
    char parent[PATH_CAP], broken[PATH_CAP], out[PATH_CAP];
    struct sample packed, tar, columns, rows, lines, manifest;
};

static uint64_t draw(uint64_t *state) { /* xorshift64* */
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1du;
}

/* A damaged copy, NUL-terminated: bit flips, bytes with a meaning for parsers, copies, cuts. */
static struct sample mutate(const struct sample *good, uint64_t *state) {
    static const char INTERESTING[] = "\0\x7f\x80\xff/.\\\"{}[]:,\n0912eE-+uU";
    struct sample s = { malloc(good->n + 1), good->n };
    memcpy(s.bytes, good->bytes, good->n);
    int edits = 1 + (int)(draw(state) % 6);
    for (int i = 0; i < edits && s.n > 0; i++) {
        size_t at = draw(state) % s.n, to = draw(state) % s.n;
        size_t run = 1 + draw(state) % 64;
        switch (draw(state) % 5) {
        case 0: s.bytes[at] ^= (char)(1 << (draw(state) % 8)); break;
        case 1: s.bytes[at] = INTERESTING[draw(state) % (sizeof INTERESTING - 1)]; break;
        case 2:
            if (at + run <= s.n && to + run <= s.n) memmove(s.bytes + to, s.bytes + at, run);
            break;
        case 3:
            if (draw(state) % 4 == 0) s.n = at;
            break;
        case 4:
            if (at + run <= s.n) memset(s.bytes + at, draw(state) % 2 ? 0 : 0xff, run);
            break;
        }
    }
    s.bytes[s.n] = 0;
    return s;
}

static struct sample read_sample(const char *dir, const char *name) {
    struct sample s = { 0 };
    struct err e = { 0 };
    char path[PATH_CAP];
    CHECK(path_join(path, dir, name, &e));
    CHECK(file_read(path, 1 << 30, &s.bytes, &s.n, &e));
    return s;
}

static int set_up(void **state) {
    static const struct bundle_options KEEP = { .checkpoints = BUNDLE_CHECKPOINTS_FULL,
                                                .keep_directory = true, .threads = 1 };
    struct scene *s = calloc(1, sizeof *s);
    struct err e = { 0 };
    struct bundle_result result;
    char dir[PATH_CAP];
    struct run_fixture f = run_fixture_default();
    scratch_directory(s->parent);
    run_fixture_write(s->parent, &f, dir);
    s->lines = read_sample(dir, "data/metrics/train.jsonl");
    CHECK(bundle_finish(dir, &KEEP, &result, &e));
    /* Also an uncompressed one: damage then reaches tar and its files, not only zstd's checksum. */
    bundle_as_tar(result.path, &s->tar.bytes, &s->tar.n);
    s->packed = read_sample(s->parent, strrchr(result.path, '/') + 1);
    s->rows = read_sample(dir, "data/metrics/trace.npy");
    char old[PATH_CAP];
    struct unpack_report report;
    CHECK(path_join(old, s->parent, "old", &e));
    CHECK(bundle_unpack("experiments/reference/cpu/repro-cpu-bf16.tar.zst", old, &BUNDLE_LIMITS,
                        &report, &e));
    s->columns = read_sample(old, "data/trace.cols");
    s->manifest = read_sample(dir, "manifest-sha256.txt");
    CHECK(path_join(s->broken, s->parent, "broken.tar.zst", &e));
    CHECK(path_join(s->out, s->parent, "out", &e));
    *state = s;
    return 0;
}

static int tear_down(void **state) {
    struct scene *s = *state;
    struct err e = { 0 };
    CHECK(tree_remove(s->parent, &e));
    free(s->packed.bytes);
    free(s->tar.bytes);
    free(s->columns.bytes);
    free(s->rows.bytes);
    free(s->lines.bytes);
    free(s->manifest.bytes);
    free(s);
    return 0;
}

/* Every reader of bundles reads the damaged file; an error must have a text. */
static void try_bundle(const struct scene *s, const struct sample *bad, int round) {
    struct err e = { 0 };
    struct unpack_report report;
    struct run_view view;
    FILE *out = fopen(s->broken, "wb"); /* without the fsync of file_replace: 400 times */
    assert_true(out && fwrite(bad->bytes, 1, bad->n, out) == bad->n && fclose(out) == 0);
    enum status st = bundle_unpack(s->broken, s->out, &BUNDLE_LIMITS, &report, &e);
    if (st == OK) CHECK(tree_remove(s->out, &e));
    else if (e.code != st || e.text[0] == 0) fail_msg("round %d: %s, no words", round,
                                                      status_name(st));
    assert_false(path_exists(s->out));
    memset(&e, 0, sizeof e);
    st = run_view_load(s->broken, RUN_VIEW_FULL, &view, &e);
    if (st == OK) run_view_free(&view);
    else if (e.text[0] == 0) fail_msg("round %d: no words", round);
}

static void damaged_bundles(void **state) {
    const struct scene *s = *state;
    const struct sample *kinds[2] = { &s->packed, &s->tar };
    uint64_t seed = 20261121;
    for (int round = 0; round < ROUNDS_BUNDLE; round++) {
        struct sample bad = mutate(kinds[round % 2], &seed);
        try_bundle(s, &bad, round);
        free(bad.bytes);
    }
}

/* Reads every value, which must lie inside the bytes. */
static void read_all(struct columns *c) {
    double sum = 0;
    for (int64_t k = 0; k < c->count; k++)
        for (int64_t i = 0; i < c->rows; i++)
            for (int64_t label = 0; label < c->column[k].width; label++)
                sum += column_value(&c->column[k], i, label);
    (void)sum;
    struct run_view a = { 0 }, b = { 0 };
    struct divergence d;
    a.columns.of[STREAM_TRACE] = b.columns.of[STREAM_TRACE] = c;
    compare_diverge(&a, &b, &d);
}

static void damaged_columns(void **state) {
    const struct scene *s = *state;
    uint64_t seed = 8;
    for (int round = 0; round < ROUNDS_TEXT; round++) {
        struct err e = { 0 };
        struct columns *c = NULL;
        struct sample bad = mutate(round % 2 ? &s->columns : &s->rows, &seed);
        enum rows_end end = round % 4 < 2 ? ROWS_COMPLETE : ROWS_GROWING;
        if (columns_parse(bad.bytes, bad.n, end, "fuzz", &c, &e) != OK) {
            assert_true(e.text[0] != 0);
            continue;
        }
        read_all(c);
        columns_destroy(c);
    }
}

static void damaged_lines(void **state) {
    const struct scene *s = *state;
    uint64_t seed = 9;
    for (int round = 0; round < ROUNDS_TEXT / 4; round++) {
        struct err e = { 0 };
        struct columns *c = NULL;
        struct sample bad = mutate(&s->lines, &seed);
        char *exact = malloc(bad.n ? bad.n : 1); /* no byte follows the text */
        memcpy(exact, bad.bytes, bad.n);
        free(bad.bytes);
        if (columns_of_lines(exact, bad.n, "fuzz", &c, &e) == OK) read_all(c);
        else assert_true(e.text[0] != 0);
        columns_destroy(c);
        free(exact);
    }
}

static void damaged_manifests(void **state) {
    const struct scene *s = *state;
    uint64_t seed = 10;
    for (int round = 0; round < ROUNDS_TEXT; round++) {
        struct err e = { 0 };
        struct bag_manifest m;
        struct sample bad = mutate(&s->manifest, &seed);
        if (bag_manifest_parse(bad.bytes, "fuzz", &m, &e) != OK) {
            assert_true(e.text[0] != 0);
        } else {
            for (int64_t i = 0; i < m.count; i++)
                assert_ptr_equal(bag_manifest_find(&m, m.line[i].path), &m.line[i]);
            bag_manifest_free(&m);
        }
        free(bad.bytes);
    }
}

/* What a reader makes of questions fits itself, whatever the file is. */
static void check_questions(const struct questions *q) {
    assert_true(q->count >= 1 && q->longest <= 64);
    for (int64_t i = 0; i < q->count; i++) {
        const struct question *x = &q->question[i];
        assert_true(x->completions >= 2 && x->right < x->completions);
        assert_true(x->row + x->completions <= q->rows);
        for (int64_t k = x->row; k < x->row + x->completions; k++) {
            const struct completion *c = &q->row[k];
            assert_true(c->keep >= 1 && c->tokens >= 1 && c->bytes >= 1);
            assert_true(c->first + c->tokens <= q->token_count);
        }
    }
}

static void damaged_questions(void **state) {
    static const char GOOD[] =
        "{\"context\": \"Q\", \"choices\": [\"a\", \"b\"], \"answer\": 1}\n"
        "{\"question\": \"Q\", \"choices\": {\"text\": [\"a\", \"\\u00e9\"], \"label\": "
        "[\"A\", \"B\"]}, \"answerKey\": \"B\"}\n"
        "{\"ctx\": \"Q\", \"endings\": [\"a\", \" b\"], \"label\": \"1\"}\n"
        "{\"goal\": \"Q \", \"sol1\": \"a\", \"sol2\": \"b\", \"label\": 0}\n";
    static const struct sample SAMPLE = { (char *)GOOD, sizeof GOOD - 1 };
    static const struct cli CLI = { .quiet = true };
    const struct scene *s = *state;
    const struct tokenizer_options how = { 0 };
    struct tokenizer_choice choice;
    struct err e = { 0 };
    char path[PATH_CAP + 8];
    uint64_t seed = 11;
    int read = 0;
    snprintf(path, sizeof path, "%s/q.jsonl", s->parent);
    assert_int_equal(tokenizer_choose(&choice, "bytes", &how, NULL, "", &e), OK);
    for (int round = 0; round < ROUNDS_TEXT; round++) {
        struct sample bad = mutate(&SAMPLE, &seed);
        const struct questions_source source = { .cli = &CLI, .path = path, .choice = &choice,
                                                 .vocab = 256, .seq_len = 64, .skip = round % 4 };
        struct questions q;
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(bad.bytes, 1, bad.n, f), bad.n);
        assert_int_equal(fclose(f), 0);
        free(bad.bytes);
        enum status st = questions_json_open(&source, &q, &e);
        assert_true(st == OK || st == ERR_CONFIG);
        if (st == OK) check_questions(&q), read++;
        questions_close(&q);
    }
    assert_in_range(read, ROUNDS_TEXT / 20, ROUNDS_TEXT - 1);
    tokenizer_choice_free(&choice);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_bundles),
        cmocka_unit_test(damaged_columns),
        cmocka_unit_test(damaged_lines),
        cmocka_unit_test(damaged_manifests),
        cmocka_unit_test(damaged_questions),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
