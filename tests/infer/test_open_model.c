/* A checkpoint's folder as a model: the logits are those of the trainer that made it. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "model/checkpoint.h"
#include "model/logits.h"
#include "runner/infer/open_model.h"
#include "tests/support/must.h"
#include "tests/support/tiny.h"

enum { B = 2, T = 32, V = 96 };

static void make(struct tiny_run *r, enum recipe_kind kind, enum position_kind positions,
                 const char *dir, char step[PATH_CAP]) {
    struct step_result s;
    struct checkpoint_info info;
    tiny_run_init(r, kind, 3);
    r->model.positions = positions;
    if (positions == POSITION_LEARNED) r->model.rope = (struct rope_config){ 0 };
    else r->model.rope = (struct rope_config){ 10000, 8, 1, 4, 16 };
    MUST(tiny_run_open(r, E));
    for (int i = 0; i < 3; i++) MUST(trainer_step(r->trainer, false, &s, E));
    MUST(checkpoint_save(r->trainer, dir, &info, E));
    snprintf(step, PATH_CAP, "%s", info.path);
}

static struct model_request request(const char *what, const char *recipe) {
    return (struct model_request){ .what = what, .recipe = recipe, .backend = "cpu",
                                   .threads = 1, .runs = "/nowhere", .cache = "/nowhere" };
}

static void same_logits(struct trainer *a, struct trainer *b, int64_t length) {
    static float x[B * T * V], y[B * T * V];
    int32_t tokens[B * T] = { 0 }, shorter[B * T] = { 0 };
    int64_t row[B * T], other[B * T];
    for (int i = 0; i < B; i++)
        for (int t = 0; t < length; t++) {
            tokens[i * T + t] = shorter[i * length + t] = (31 * i + t * t) % V;
            row[i * length + t] = i * T + t;
            other[i * length + t] = i * length + t;
        }
    MUST(trainer_logits(a, tokens, row, B * length, x, E));
    MUST(trainer_logits(b, shorter, other, B * length, y, E));
    assert_memory_equal(x, y, (size_t)(B * length * V) * sizeof *x);
}

static void a_checkpoint_opens(void **state) {
    char dir[] = "/tmp/fp8lab-open-XXXXXX";
    assert_non_null(mkdtemp(dir));
    for (int learned = 0; learned < 2; learned++)
        for (int64_t length = T; length >= T / 2; length -= T / 2) {
            struct tiny_run r;
            struct open_model m;
            char step[PATH_CAP];
            make(&r, RECIPE_BF16, learned ? POSITION_LEARNED : POSITION_ROPE, dir, step);
            /* the newest of a folder of checkpoints, and a checkpoint */
            struct model_request q = request(length == T ? dir : step, NULL);
            MUST(model_find(&q, &m, E));
            assert_string_equal(m.found.path, step);
            assert_false(m.own_recipe);
            assert_int_equal(m.options.model.seq_len, T);
            m.options.model.seq_len = length;
            m.options.train.micro_batch = m.options.train.global_batch = B;
            MUST(model_start(&q, &m, NULL, E));
            same_logits(r.trainer, m.trainer, length);
            model_close(&m);
            MUST(checkpoint_remove(step, E));
            tiny_run_close(&r);
        }
    assert_int_equal(rmdir(dir), 0);
}

static void recipes_are_chosen_by_name(void **state) {
    char dir[] = "/tmp/fp8lab-open-XXXXXX", step[PATH_CAP];
    struct tiny_run r;
    struct open_model m;
    assert_non_null(mkdtemp(dir));
    make(&r, RECIPE_BF16, POSITION_ROPE, dir, step);
    for (int kind = 0; kind < RECIPE_KIND_COUNT; kind++) {
        struct model_request q = request(step, RECIPE_KIND_NAMES[kind]);
        struct err e = { 0 };
        if (recipe_info((enum recipe_kind)kind)->delayed) {
            MUST_FAIL(ERR_CONFIG, "--recipe fp8.tensorwise", model_find(&q, &m, E));
            model_close(&m);
            continue;
        }
        MUST(model_find(&q, &m, E));
        assert_int_equal(m.options.recipe.site[3].kind, kind);
        if (model_start(&q, &m, NULL, &e) != OK) fail_msg("%s: %s", q.recipe, e.text);
        model_close(&m);
    }
    struct model_request q = request(step, "fp4");
    MUST_FAIL(ERR_ARG, "no recipe fp4: expected f32, bf16, fp8.delayed", model_find(&q, &m, E));
    model_close(&m);
    q = request("/nowhere/at/all", NULL);
    MUST_FAIL(ERR_ARG, "neither a path nor", model_find(&q, &m, E));
    model_close(&m);
    q = request("/tmp", NULL);
    MUST_FAIL(ERR_CONFIG, "has no config.json", model_find(&q, &m, E));
    model_close(&m);
    MUST(checkpoint_remove(step, E));
    assert_int_equal(rmdir(dir), 0);
    tiny_run_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checkpoint_opens),
        cmocka_unit_test(recipes_are_chosen_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
