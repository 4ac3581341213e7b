/* Each allocation of kernels and model fails in turn. Each time the result is an error value, with
 * no leak (the address sanitizer checks) and no partial result. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels/cpu/cpu_backend.h"
#include "model/checkpoint.h"
#include "runner/base/run_files.h"
#include "tests/support/allocations.h"
#include "tests/support/must.h"
#include "tests/support/run_fixture.h"
#include "tests/support/shards.h"
#include "tests/support/tiny.h"

/* ---- opening ---- */

static enum status open_backend(void *context, struct err *e) {
    struct backend *b = NULL;
    enum status st = cpu_backend_open(&b, 2, e);
    if (st == OK) b->ops->close(b);
    else assert_null(b);
    return st;
}

static void backend_open_survives(void **state) {
    fault_every_allocation(&(struct fault_case){ .name = "cpu_backend_open",
                                                 .attempt = open_backend });
}

struct data_case {
    struct data_options options;
    const char *path[2];
    char file[2][PATH_CAP];
};

static enum status open_data(void *context, struct err *e) {
    const struct data_case *c = context;
    struct data *d = NULL;
    TRY(data_open(&d, &c->options, 256, 16, 1, e));
    char hex[65];
    enum status st = data_sha256(d, NULL, hex, e);
    data_close(d);
    return st;
}

static void write_bytes(const char *path, const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void data_open_survives(void **state) {
    char dir[PATH_CAP];
    struct data_case c = { .options = { .kind = DATA_SYNTHETIC, .seed = 7 } };
    scratch_directory(dir);
    fault_every_allocation(&(struct fault_case){ .name = "data_open, synthetic",
                                                 .attempt = open_data, .context = &c });
    for (int i = 0; i < 2; i++) {
        snprintf(c.file[i], PATH_CAP, "%.4000s/text-%d", dir, i);
        write_bytes(c.file[i], "It was a bright cold day in April, and the clocks were striking 13."
                    " It was a bright cold day in April, and the clocks were striking 13.", 136);
        c.path[i] = c.file[i];
    }
    c.options = (struct data_options){ .kind = DATA_TEXT, .paths = c.path, .path_count = 2,
                                       .holdout = 0.3 };
    fault_every_allocation(&(struct fault_case){ .name = "data_open, text",
                                                 .attempt = open_data, .context = &c });
    static uint32_t llmc[256 + 64]; /* header of 1,024 bytes, then u16 tokens, all 0 */
    llmc[0] = 20240520;
    llmc[1] = 1;
    llmc[2] = 128;
    for (int i = 0; i < 2; i++) write_bytes(c.file[i], llmc, sizeof llmc);
    c.options = (struct data_options){ .kind = DATA_LLMC, .paths = c.path, .path_count = 1,
                                       .eval_path = c.path[1] };
    fault_every_allocation(&(struct fault_case){ .name = "data_open, llm.c",
                                                 .attempt = open_data, .context = &c });
    MUST(tree_remove(dir, E));
}

/* Whole documents with a loss file, and shuffled documents. */
static void documents_open_survives(void **state) {
    static const int LENGTH[] = { 9, 0, 16, 3, 12, 5 };
    char dir[PATH_CAP];
    struct data_case c = { .path = { c.file[0] } };
    scratch_directory(dir);
    snprintf(c.file[0], PATH_CAP, "%.4000s/shard", dir);
    shard_put(&(struct shard){ .prefix = c.file[0], .documents = 6, .length = LENGTH,
                               .vocab = 256, .loss = true });
    c.options = (struct data_options){ .kind = DATA_MEGATRON, .paths = c.path, .path_count = 1,
                                       .holdout = 0.4, .layout = LAYOUT_PACKED, .loss = true };
    fault_every_allocation(&(struct fault_case){ .name = "data_open, packed",
                                                 .attempt = open_data, .context = &c });
    c.options.layout = LAYOUT_WINDOWS;
    c.options.order = ORDER_DOCUMENTS;
    c.options.documents.mask = true;
    fault_every_allocation(&(struct fault_case){ .name = "data_open, documents",
                                                 .attempt = open_data, .context = &c });
    MUST(tree_remove(dir, E));
}

/* ---- trainer ---- */

static enum status create_trainer(void *context, struct err *e) {
    struct tiny_run *r = context;
    r->trainer = NULL;
    enum status st = trainer_create(&r->trainer, r->backend, &r->model, &r->recipe, &r->train,
                                    r->data, e);
    if (st != OK) assert_null(r->trainer);
    trainer_destroy(r->trainer);
    r->trainer = NULL;
    return st;
}

static enum status plan_trainer(void *context, struct err *e) {
    const struct tiny_run *r = context;
    struct plan plan = { 0 };
    enum status st = trainer_plan(&plan, &r->model, &r->recipe, &r->train, 1, e);
    plan_free(&plan);
    return st;
}

static void trainer_create_survives(void **state) {
    static const enum recipe_kind KIND[] = { RECIPE_BF16, RECIPE_DELAYED, RECIPE_BLOCKWISE };
    for (int i = 0; i < 3; i++) {
        struct tiny_run r;
        char name[64];
        tiny_run_init(&r, KIND[i], 3);
        if (i == 1) r.train.optimizer.state = STATE_8BIT;
        MUST(tiny_run_open(&r, E));
        trainer_destroy(r.trainer);
        r.trainer = NULL;
        snprintf(name, sizeof name, "trainer_create, %s", tiny_kind_name(KIND[i]));
        fault_every_allocation(&(struct fault_case){ .name = name, .attempt = create_trainer,
                                                     .context = &r });
        snprintf(name, sizeof name, "trainer_plan, %s", tiny_kind_name(KIND[i]));
        fault_every_allocation(&(struct fault_case){ .name = name, .attempt = plan_trainer,
                                                     .context = &r });
        tiny_run_close(&r);
    }
}

/* ---- checkpoints ---- */

struct checkpoint_case {
    struct tiny_run run;
    char parent[PATH_CAP], weights[65];
    struct checkpoint_info whole; /* as saved without a failing allocation */
};

static enum status save(void *context, struct err *e) {
    struct checkpoint_case *c = context;
    struct checkpoint_info info;
    return checkpoint_save(c->run.trainer, c->parent, &info, e);
}

/* The previous checkpoint or the new one, which has the same bytes; no other file. */
static enum status is_whole(void *context, enum status st, struct err *e) {
    struct checkpoint_case *c = context;
    struct checkpoint_info info;
    struct tree tree = { 0 };
    TRY(checkpoint_latest(c->parent, NULL, &info, e));
    if (info.step != 1 || strcmp(info.sha256, c->whole.sha256) != 0)
        return FAIL(e, ERR_VERIFY, "the checkpoint of step 1 is not what it was");
    TRY(tree_list(c->parent, 100, &tree, e));
    if (tree.count != 3) st = FAIL(e, ERR_VERIFY, "%lld files", (long long)tree.count);
    else st = OK;
    tree_free(&tree);
    return st;
}

static enum status load(void *context, struct err *e) {
    struct checkpoint_case *c = context;
    struct checkpoint_info info;
    return checkpoint_load(c->run.trainer, c->whole.path, &info, e);
}

/* A failed load can be repeated. */
static enum status loads_again(void *context, enum status st, struct err *e) {
    struct checkpoint_case *c = context;
    char hex[65];
    if (st != OK) TRY(load(c, e));
    TRY(trainer_weights_sha256(c->run.trainer, hex, e));
    return strcmp(hex, c->weights) == 0 ? OK : FAIL(e, ERR_VERIFY, "other weights");
}

static enum status verify(void *context, struct err *e) {
    struct checkpoint_case *c = context;
    struct checkpoint_info info;
    return checkpoint_verify(c->whole.path, &info, e);
}

/* A checkpoint that cannot be read for lack of memory is not damaged, so it must not be skipped. */
static enum status latest(void *context, struct err *e) {
    struct checkpoint_case *c = context;
    struct checkpoint_info info = { .step = 0 };
    enum status st = checkpoint_latest(c->parent, NULL, &info, e);
    if (st == OK) assert_int_equal(info.step, 1);
    return st;
}

static enum status hash_weights(void *context, struct err *e) {
    struct checkpoint_case *c = context;
    char hex[65];
    return trainer_weights_sha256(c->run.trainer, hex, e);
}

static void checkpoints_survive(void **state) {
    struct checkpoint_case c = { 0 };
    struct step_result result;
    scratch_directory(c.parent);
    tiny_run_init(&c.run, RECIPE_DELAYED, 3);
    MUST(tiny_run_open(&c.run, E));
    MUST(trainer_step(c.run.trainer, false, &result, E));
    MUST(checkpoint_save(c.run.trainer, c.parent, &c.whole, E));
    MUST(trainer_weights_sha256(c.run.trainer, c.weights, E));
    fault_every_allocation(&(struct fault_case){ .name = "checkpoint_save", .attempt = save,
                                                 .after = is_whole, .context = &c });
    fault_every_allocation(&(struct fault_case){ .name = "trainer_weights_sha256",
                                                 .attempt = hash_weights, .context = &c });
    fault_every_allocation(&(struct fault_case){ .name = "checkpoint_verify", .attempt = verify,
                                                 .context = &c });
    fault_every_allocation(&(struct fault_case){ .name = "checkpoint_latest", .attempt = latest,
                                                 .context = &c });
    trainer_destroy(c.run.trainer);
    MUST(trainer_create(&c.run.trainer, c.run.backend, &c.run.model, &c.run.recipe, &c.run.train,
                        c.run.data, E));
    fault_every_allocation(&(struct fault_case){ .name = "checkpoint_load", .attempt = load,
                                                 .after = loads_again, .context = &c });
    tiny_run_close(&c.run);
    MUST(tree_remove(c.parent, E));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backend_open_survives),
        cmocka_unit_test(data_open_survives), cmocka_unit_test(documents_open_survives),
        cmocka_unit_test(trainer_create_survives),
        cmocka_unit_test(checkpoints_survive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
