/* Every allocation of evaluating a model on a text and on multiple choice, and of comparing the
 * answers of two, that can fail, failing. What answers OK gives the figures that it gives with
 * memory to spare. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "model/checkpoint.h"
#include "runner/base/file_tree.h"
#include "runner/base/run_files.h"
#include "runner/eval_data.h"
#include "runner/infer/answers_file.h"
#include "runner/infer/paired.h"
#include "runner/infer/questions_json.h"
#include "runner/infer/questions_llmc.h"
#include "tests/support/allocations.h"
#include "tests/support/must.h"
#include "tests/support/tiny.h"

enum { T = 32 };

struct scene {
    char dir[32], step[PATH_CAP], text[64], questions[64], cache[64];
    struct figures { float loss; int64_t tokens, right; double choices; } found, wanted;
};

static enum status evaluate(struct scene *s, const struct model_request *q, struct open_model *m,
                            const struct data *data, struct err *e) {
    struct questions x;
    const struct questions_part part = { 1, T, 0, 1 };
    struct answers_result r = { 0 };
    struct answer answers[2];
    struct eval_result loss;
    double nats[2];
    TRY(model_start(q, m, data, e));
    TRY(trainer_eval(m->trainer, 100, &loss, e));
    enum status st = questions_llmc_open(s->questions, 256, T, &x, e);
    if (st == OK) st = questions_losses(&x, m->trainer, &part, nats, e);
    if (st == OK) answers_of(&x, nats, answers);
    if (st == OK) r = answers_judge(&x, answers);
    questions_close(&x);
    s->found = (struct figures){ loss.loss, loss.loss_tokens, r.right[RULE_TOKEN], r.loss };
    return st;
}

static enum status attempt(void *context, struct err *e) {
    struct scene *s = context;
    struct model_request q = { .what = s->step, .backend = "cpu", .threads = 1, .runs = "/none" };
    const struct cli cli = { .quiet = true };
    const char *files[] = { s->text };
    struct open_model m;
    static struct eval_data found;
    struct data *data = NULL;
    snprintf(q.cache, sizeof q.cache, "%s", s->cache);
    memset(&s->found, 0, sizeof s->found);
    found = (struct eval_data){ 0 };
    const struct eval_data_request r = { .cli = &cli, .model = &q, .opened = &m, .files = files,
                                         .count = 1, .tokenizer = "bytes" };
    enum status st = model_find(&q, &m, e);
    if (st == OK) st = eval_data_find(&r, &found, e);
    if (st == OK) st = data_open(&data, &found.options, 256, T, 1, e);
    if (st == OK) st = evaluate(s, &q, &m, data, e);
    model_close(&m);
    data_close(data);
    eval_data_close(&found);
    return st;
}

static enum status after(void *context, enum status st, struct err *e) {
    struct scene *s = context;
    const struct figures *a = &s->found, *b = &s->wanted;
    bool same = a->loss == b->loss && a->tokens == b->tokens && a->right == b->right &&
                a->choices == b->choices;
    return st != OK || same ? OK : FAIL(e, ERR_VERIFY, "other figures");
}

static void put_questions(const char *path) {
    static const uint16_t WORDS[] = { 65535, 30, 0, 1, 2, 3, 7, 8, 9, 2, 10, 11, 2, 12, 13 };
    unsigned char bytes[1024 + sizeof WORDS] = { 0 };
    const uint32_t head[] = { 20240522, 1, 1, sizeof WORDS };
    for (int i = 0; i < 16; i++) bytes[i] = (unsigned char)(head[i / 4] >> 8 * (i % 4));
    for (size_t i = 0; i < sizeof WORDS; i++)
        bytes[1024 + i] = (unsigned char)(WORDS[i / 2] >> 8 * (i % 2));
    MUST(file_replace(path, bytes, sizeof bytes, E));
}

static void evaluation_survives(void **state) {
    struct tiny_run r;
    struct checkpoint_info info;
    static struct scene s = { .dir = "/tmp/fp8lab-eval-XXXXXX" };
    assert_non_null(mkdtemp(s.dir));
    snprintf(s.text, sizeof s.text, "%s/a.txt", s.dir);
    snprintf(s.questions, sizeof s.questions, "%s/q.bin", s.dir);
    snprintf(s.cache, sizeof s.cache, "%s/cache", s.dir);
    MUST(file_replace(s.text, "a text of some bytes, more than a sequence", 42, E));
    put_questions(s.questions);
    tiny_run_init(&r, RECIPE_BF16, 1);
    r.model.vocab = 256;
    r.model.layers = 1;
    tiny_run_recipe(&r, &(struct recipe_options){ .kind = RECIPE_BF16 });
    MUST(tiny_run_open(&r, E));
    MUST(checkpoint_save(r.trainer, s.dir, &info, E));
    tiny_run_close(&r);
    snprintf(s.step, sizeof s.step, "%s", info.path);
    MUST(attempt(&s, E));
    assert_int_equal(s.found.tokens, 41);
    assert_true(s.found.loss > 1 && s.found.choices > 1);
    s.wanted = s.found;
    fault_every_allocation(&(struct fault_case){ .name = "evaluating", .attempt = attempt,
                                                 .after = after, .context = &s });
    MUST(tree_remove(s.dir, E));
}

/* ---- the answers of two models ----------------------------------------------------------------*/

struct pair_scene { char questions[64], answers[80]; struct paired found, wanted; };

/* Writes answers, and compares them with others. */
static enum status compare(const struct pair_scene *s, const struct questions *q,
                           struct paired *out, struct err *e) {
    static const double NATS[4] = { 1, 2, 4, 3 };
    struct answers_file f = { 0 };
    struct answer a[4], b[4];
    json_t *model = json_pack("{ss}", "run", "a-run");
    answers_of(q, NATS, a);
    memcpy(b, a, sizeof b);
    b[0].nats = 9;
    enum status st = model ? answers_file_write(s->answers, model, q, a, e)
                           : FAIL(e, ERR_MEMORY, "the model's keys");
    if (st == OK) st = answers_file_read(s->answers, q, &f, e);
    if (st == OK) *out = paired_of(q, RULE_BYTE, b, f.answers);
    json_decref(model);
    answers_file_close(&f);
    return st;
}

static enum status attempt_pairs(void *context, struct err *e) {
    static const struct cli CLI = { .quiet = true };
    struct pair_scene *s = context;
    const struct tokenizer_options how = { 0 };
    struct tokenizer_choice choice;
    struct questions q = { 0 };
    s->found = (struct paired){ 0 };
    TRY(tokenizer_choose(&choice, "bytes", &how, NULL, "", e));
    const struct questions_source source = { .cli = &CLI, .path = s->questions, .choice = &choice,
                                             .vocab = 256, .seq_len = T, .skip = 1 };
    enum status st = questions_json_open(&source, &q, e);
    if (st == OK) st = compare(s, &q, &s->found, e);
    questions_close(&q);
    tokenizer_choice_free(&choice);
    return st;
}

static enum status after_pairs(void *context, enum status st, struct err *e) {
    struct pair_scene *s = context;
    bool same = !memcmp(&s->found, &s->wanted, sizeof s->found);
    return st != OK || same ? OK : FAIL(e, ERR_VERIFY, "another comparison");
}

static void pairs_survive(void **state) {
    static const char TEXT[] =
        "{\"context\": \"Q\", \"choices\": [\"a\", \"b\"], \"answer\": 0}\nbad\n"
        "{\"ctx\": \"Q\", \"endings\": [\"a\", \"b\"], \"label\": \"1\"}\n";
    static struct pair_scene s;
    snprintf(s.questions, sizeof s.questions, "/tmp/fp8lab-pairs.%d", (int)getpid());
    snprintf(s.answers, sizeof s.answers, "%s.out", s.questions);
    MUST(file_replace(s.questions, TEXT, sizeof TEXT - 1, E));
    MUST(attempt_pairs(&s, E));
    assert_int_equal(s.found.both, 1);
    assert_int_equal(s.found.only_that, 1);
    s.wanted = s.found;
    fault_every_allocation(&(struct fault_case){ .name = "comparing answers", .context = &s,
                                                 .attempt = attempt_pairs, .after = after_pairs });
    assert_int_equal(unlink(s.questions), 0);
    assert_int_equal(unlink(s.answers), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(evaluation_survives),
                                        cmocka_unit_test(pairs_survive) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
