/* Every allocation of opening a model and generating with it that can fail, failing. What answers
 * OK gives the text that it gives with memory to spare. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "model/checkpoint.h"
#include "runner/generate/generator.h"
#include "runner/infer/logits_file.h"
#include "runner/infer/model_text.h"
#include "tests/support/allocations.h"
#include "tests/support/must.h"
#include "tests/support/tiny.h"

enum { LENGTH = 16 };

struct scene {
    char step[PATH_CAP], logits[64];
    char text[64], wanted[64]; /* what was generated */
};

static enum status generate(struct scene *s, struct open_model *m, struct text_model *text,
                            struct generator *g, struct err *e) {
    int32_t ids[LENGTH], *prompt = NULL;
    struct generation x = { .ids = ids };
    const struct generation_rules rules = { .sampling = { .temperature = 1, .top_k = 9 },
                                            .tokens = 5 };
    const struct logits_sizes sizes = { 1, LENGTH, 256 };
    char *out = NULL;
    size_t n = 0;
    TRY(text_model_encode(text, "a prompt", 256, &prompt, &x.prompt, e));
    memcpy(ids, prompt, (size_t)x.prompt * sizeof *ids);
    free(prompt);
    TRY(generator_run(g, &rules, &x, 1, e));
    TRY(logits_file_write(m->trainer, &sizes, ids, x.count, s->logits, e));
    TRY(text_model_decode(text, ids, x.prompt, x.count, &out, &n, e));
    json_t *json = text_json(out, n);
    free(out);
    if (!json) return FAIL(e, ERR_MEMORY, "a text as JSON");
    snprintf(s->text, sizeof s->text, "%s", json_string_value(json));
    json_decref(json);
    return OK;
}

static enum status attempt(void *context, struct err *e) {
    struct scene *s = context;
    struct model_request q = { .what = s->step, .backend = "cpu", .threads = 1, .runs = "/none",
                               .cache = "/none" };
    const struct generator_sizes sizes = { 1, LENGTH, 256, 256 };
    struct open_model m;
    struct text_model text = { 0 };
    struct generator *g = NULL;
    char note[MODEL_TEXT_NOTE];
    s->text[0] = 0;
    enum status st = model_find(&q, &m, e);
    m.options.model.seq_len = LENGTH;
    if (st == OK) st = model_text_open(&m, "bytes", false, &text, note, e);
    if (st == OK) st = model_start(&q, &m, NULL, e);
    if (st == OK) st = generator_create(&g, m.trainer, &sizes, e);
    if (st == OK) st = generate(s, &m, &text, g, e);
    generator_destroy(g);
    text_model_close(&text);
    model_close(&m);
    return st;
}

static enum status after(void *context, enum status st, struct err *e) {
    struct scene *s = context;
    if (st != OK || !strcmp(s->text, s->wanted)) return OK;
    return FAIL(e, ERR_VERIFY, "\"%s\", not \"%s\"", s->text, s->wanted);
}

static void generation_survives(void **state) {
    char dir[] = "/tmp/fp8lab-generate-XXXXXX";
    struct tiny_run r;
    struct checkpoint_info info;
    static struct scene s;
    assert_non_null(mkdtemp(dir));
    tiny_run_init(&r, RECIPE_BF16, 1);
    r.model.vocab = 256;
    r.model.layers = 1;
    tiny_run_recipe(&r, &(struct recipe_options){ .kind = RECIPE_BF16 });
    MUST(tiny_run_open(&r, E));
    MUST(checkpoint_save(r.trainer, dir, &info, E));
    tiny_run_close(&r);
    snprintf(s.step, sizeof s.step, "%s", info.path);
    snprintf(s.logits, sizeof s.logits, "%s/logits.npy", dir);
    MUST(attempt(&s, E));
    assert_true(*s.text);
    snprintf(s.wanted, sizeof s.wanted, "%s", s.text);
    fault_every_allocation(&(struct fault_case){ .name = "generating", .attempt = attempt,
                                                 .after = after, .context = &s });
    MUST(checkpoint_remove(info.path, E));
    remove(s.logits);
    assert_int_equal(rmdir(dir), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(generation_survives) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
