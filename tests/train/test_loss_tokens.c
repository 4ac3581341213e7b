/* Steps whose tokens do not all count: none at all, resumed in the middle, in the memory plan; what
 * a token sees of its document and of a window. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "model/checkpoint.h"
#include "model/window.h"
#include "tests/support/allocations.h"
#include "tests/support/must.h"
#include "tests/support/shards.h"
#include "tests/support/tiny.h"

enum { DOCUMENTS = 40 };

static char DIR[64], PREFIX[80], SILENT[80]; /* SILENT: the last token alone counts */

static int make_shards(void **state) {
    int length[DOCUMENTS], total = 0;
    for (int i = 0; i < DOCUMENTS; i++) total += length[i] = 2 + i * 11 % 29;
    strcpy(DIR, "/tmp/fp8lab-loss-XXXXXX");
    if (!mkdtemp(DIR)) return -1;
    snprintf(PREFIX, sizeof PREFIX, "%s/m", DIR);
    snprintf(SILENT, sizeof SILENT, "%s/s", DIR);
    struct shard s = { .prefix = PREFIX, .documents = DOCUMENTS, .length = length, .vocab = 96,
                       .loss = true };
    shard_put(&s);
    s.prefix = SILENT;
    shard_put(&s);
    char path[100];
    snprintf(path, sizeof path, "%s.loss", SILENT);
    FILE *f = fopen(path, "wb");
    for (int i = 0; i < total; i++) fputc(i == total - 1, f);
    return fclose(f);
}

static int drop_shards(void **state) {
    shard_drop(PREFIX);
    shard_drop(SILENT);
    return rmdir(DIR);
}

/* Packed documents apart from each other, with a loss file. */
static void open_run(struct tiny_run *r, enum recipe_kind kind, const char *const *path,
                     const char *eval_path) {
    tiny_run_init(r, kind, 8);
    r->train.documents = (struct document_options){ .mask = true, .restart = true };
    r->data_options = (struct data_options){ .kind = DATA_MEGATRON, .paths = path, .path_count = 1,
                                             .eval_path = eval_path, .layout = LAYOUT_PACKED,
                                             .documents = r->train.documents, .loss = true };
    MUST(tiny_run_open(r, E));
}

/* The step says that it has no loss. Its gradient is 0, no weight becomes NaN, and later steps
 * learn. */
static void a_step_without_loss(void **state) {
    for (int kind = 0; kind < RECIPE_KIND_COUNT; kind++) {
        struct tiny_run r;
        struct step_result s;
        struct eval_result eval;
        const char *path[] = { SILENT };
        open_run(&r, (enum recipe_kind)kind, path, PREFIX);
        for (int i = 0; i < 2; i++) {
            MUST(trainer_step(r.trainer, false, &s, E));
            assert_true(isnan(s.loss) && s.grad_norm == 0);
            assert_int_equal(s.loss_tokens, 0);
            assert_int_equal(s.tokens, 4 * 32);
        }
        MUST(trainer_eval(r.trainer, 2, &eval, E));
        assert_true(eval.loss > 4 && eval.loss < 5); /* ln 96 */
        tiny_run_close(&r);
        path[0] = PREFIX;
        open_run(&r, (enum recipe_kind)kind, path, SILENT);
        MUST_FAIL(ERR_CONFIG, "held-out sequences has loss", trainer_eval(r.trainer, 1, &eval, E));
        MUST(trainer_step(r.trainer, false, &s, E));
        assert_true(s.loss > 4 && s.loss < 5 && s.grad_norm > 0 && s.loss_tokens > 0);
        tiny_run_close(&r);
    }
}

/* Also on the way from one number of tokens with loss to another, with steps in flight. */
static void resumed_equals_uninterrupted(void **state) {
    enum { STEPS = 6, SAVED = 3 };
    const char *path[] = { PREFIX };
    float loss[STEPS];
    int64_t tokens[STEPS];
    struct tiny_run r, again;
    struct step_result s;
    struct checkpoint_info info = { .step = 0 }, found;
    open_run(&r, RECIPE_DELAYED, path, PREFIX);
    for (int i = 0; i < STEPS; i++) {
        MUST(trainer_step(r.trainer, false, &s, E));
        loss[i] = s.loss;
        tokens[i] = s.loss_tokens;
        if (i + 1 == SAVED) MUST(checkpoint_save(r.trainer, DIR, &info, E));
    }
    tiny_run_close(&r);
    open_run(&again, RECIPE_DELAYED, path, PREFIX);
    MUST(checkpoint_load(again.trainer, info.path, &found, E));
    MUST(trainer_queue(again.trainer, false, E));
    for (int i = SAVED; i < STEPS; i++) {
        if (i + 1 < STEPS) MUST(trainer_queue(again.trainer, false, E));
        MUST(trainer_collect(again.trainer, &s, E));
        assert_memory_equal(&s.loss, &loss[i], sizeof s.loss);
        assert_int_equal(s.loss_tokens, tokens[i]);
    }
    assert_true(tokens[0] != tokens[1] || tokens[1] != tokens[2]);
    MUST(checkpoint_remove(info.path, E));
    tiny_run_close(&again);
}

static void a_step_allocates_nothing(void **state) {
    struct tiny_run r;
    struct step_result s;
    struct eval_result eval;
    const char *path[] = { PREFIX };
    open_run(&r, RECIPE_BF16, path, PREFIX);
    MUST(trainer_step(r.trainer, false, &s, E)); /* OpenMP starts its threads */
    allocations_watch();
    MUST(trainer_step(r.trainer, false, &s, E));
    MUST(trainer_eval(r.trainer, 3, &eval, E));
    assert_int_equal(allocations_end(), 0);
    tiny_run_close(&r);
}

static int64_t planned(struct tiny_run *r, const char *item) {
    struct plan plan;
    int64_t bytes = 0;
    MUST(trainer_plan(&plan, &r->model, &r->recipe, &r->train, 1, E));
    for (int64_t i = 0; i < plan.row_count; i++)
        if (strcmp(plan.row[i].item, item) == 0) bytes += plan.row[i].bytes;
    plan_free(&plan);
    return bytes;
}

static void the_plan_has_the_buffers(void **state) {
    struct tiny_run r;
    tiny_run_init(&r, RECIPE_BF16, 2);
    assert_int_equal(planned(&r, "first keys") + planned(&r, "positions"), 0);
    r.train.documents.mask = true;
    assert_int_equal(planned(&r, "first keys"), 2 * 32 * 4);
    assert_int_equal(planned(&r, "positions"), 0);
    r.train.documents.restart = true;
    assert_int_equal(planned(&r, "positions"), 2 * 32 * 4);
    MUST_FAIL(ERR_CONFIG, "both need the same", tiny_run_open(&r, E)); /* generated data */
    tiny_run_close(&r);
}

static void first_keys_and_positions(void **state) {
    static const int32_t starts[12] = { 0, 0, 2, 2, 2, 2, /* the next */ 0, 1, 1, 1, 4, 5 };
    static const int32_t masked[12] = { 0, 0, 2, 2, 2, 2, 0, 1, 1, 1, 4, 5 };
    static const int32_t both[12] = { 0, 0, 2, 2, 2, 3, 0, 1, 1, 1, 4, 5 };
    static const int32_t window[12] = { 0, 0, 0, 1, 2, 3, 0, 0, 0, 1, 2, 3 };
    static const int32_t places[12] = { 0, 1, 0, 1, 2, 3, 0, 0, 1, 2, 0, 0 };
    int32_t out[12];
    window_first_keys(out, starts, 12, 6, 0);
    assert_memory_equal(out, masked, sizeof out);
    window_first_keys(out, starts, 12, 6, 3);
    assert_memory_equal(out, both, sizeof out);
    window_first_keys(out, NULL, 12, 6, 3);
    assert_memory_equal(out, window, sizeof out);
    window_positions(out, starts, 12, 6);
    assert_memory_equal(out, places, sizeof out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_without_loss), cmocka_unit_test(resumed_equals_uninterrupted),
        cmocka_unit_test(a_step_allocates_nothing), cmocka_unit_test(the_plan_has_the_buffers),
        cmocka_unit_test(first_keys_and_positions),
    };
    return cmocka_run_group_tests(tests, make_shards, drop_shards);
}
