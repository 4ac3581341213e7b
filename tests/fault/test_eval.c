/* Every allocation of evaluating a model on a text and on multiple choice that can fail, failing.
 * What answers OK gives the figures that it gives with memory to spare. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "model/checkpoint.h"
#include "runner/base/file_tree.h"
#include "runner/base/run_files.h"
#include "runner/eval_data.h"
#include "runner/infer/answers.h"
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

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(evaluation_survives) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
