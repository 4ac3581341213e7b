/* Real training, with one bit of one weight flipped between two steps: compare must name that
 * tensor and that step, and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "kernels/cpu/cpu_backend.h"
#include "model/trainer.h"
#include "runner/bundle/bundle.h"
#include "runner/compare/compare.h"
#include "runner/record/row_file.h"
#include "tests/support/run_fixture.h"
#include "tests/support/tiny.h"

enum { STEPS = 5 };

struct flip {
    const char *tensor; /* NULL: none */
    int64_t step;       /* step before which the bit is flipped */
};

/* Flips the lowest bit of one element of the BF16 value that GEMMs read. */
static void flip_bit(struct trainer *t, const char *name) {
    struct param *p = params_find(&t->params, "%s", name);
    assert_non_null(p);
    assert_int_equal(p->weight.value.dtype, DTYPE_BF16);
    ((uint16_t *)p->weight.value.data)[37] ^= 1;
}

static void write_names(FILE *out, const struct trainer *t) {
    int64_t count = 0;
    const char *const *names = trainer_trace_tensors(t, &count);
    for (int64_t i = 0; i < count; i++) fprintf(out, "%s\"%s\"", i ? "," : "[", names[i]);
    fputs("]\n", out);
}

static void write_step(FILE *train, struct row_file *trace, struct trainer *t) {
    struct err e = { 0 };
    struct step_result r;
    int64_t count = 0;
    uint32_t loss, norm;
    (void)trainer_trace_tensors(t, &count);
    uint64_t *prints = calloc((size_t)count, sizeof *prints);
    CHECK(trainer_step(t, true, &r, &e));
    CHECK(trainer_trace(t, prints, &e));
    memcpy(&loss, &r.loss, 4);
    memcpy(&norm, &r.grad_norm, 4);
    fprintf(train,
            "{\"step\":%lld,\"loss\":%.9g,\"loss_bits\":\"%08x\",\"grad_norm_bits\":\"%08x\"}\n",
            (long long)r.step, r.loss, loss, norm);
    struct stream_source source = { .step_number = r.step, .fingerprint = prints, .width = count };
    struct npy layout;
    npy_layout(&STREAMS[STREAM_TRACE], count, &layout);
    char *row = malloc((size_t)layout.row_bytes);
    npy_row(&STREAMS[STREAM_TRACE], &source, &layout, row);
    CHECK(row_file_append(trace, &STREAMS[STREAM_TRACE], row, layout.row_bytes, &e));
    free(row);
    free(prints);
}

static FILE *open_in(const char *dir, const char *name) {
    char path[PATH_CAP];
    struct err e = { 0 };
    CHECK(path_join(path, dir, name, &e));
    FILE *out = fopen(path, "w+b");
    assert_non_null(out);
    return out;
}

static void train_into(const char *dir, const struct flip *flip) {
    struct err e = { 0 };
    struct model_config model = tiny_model();
    struct recipe_options options = tiny_recipe_options(RECIPE_BF16), site[2 * GEMM_SITE_COUNT];
    struct recipe recipe = tiny_recipe(&options, site, model.layers);
    struct train_options train = tiny_train(STEPS);
    struct data_options data_options = { .kind = DATA_SYNTHETIC, .seed = 7 };
    struct backend *b = NULL;
    struct data *data = NULL;
    struct trainer *t = NULL;
    CHECK(cpu_backend_open(&b, 1, &e));
    CHECK(b->ops->comm.init(b, NULL, &e));
    CHECK(data_open(&data, &data_options, model.vocab, model.seq_len, train.seed, &e));
    CHECK(trainer_create(&t, b, &model, &recipe, &train, data, &e));
    FILE *names = open_in(dir, "data/metrics/trace_tensors.json");
    FILE *lines = open_in(dir, "data/metrics/train.jsonl");
    FILE *trace = open_in(dir, STREAMS[STREAM_TRACE].file);
    struct row_file rows = { .fd = fileno(trace) };
    write_names(names, t);
    for (int64_t step = 1; step <= STEPS; step++) {
        if (flip->tensor && step == flip->step) flip_bit(t, flip->tensor);
        write_step(lines, &rows, t);
    }
    assert_int_equal(fclose(names) | fclose(lines) | fclose(trace), 0);
    trainer_destroy(t);
    data_close(data);
    b->ops->close(b);
}

static void make_run(const char *parent, const char *id, const struct flip *flip,
                     struct bundle_result *result) {
    static const struct bundle_options DROP = { .checkpoints = BUNDLE_CHECKPOINTS_NONE,
                                                .threads = 1 };
    char dir[PATH_CAP];
    struct err e = { 0 };
    struct run_fixture f = run_fixture_default();
    f.id = id;
    f.recipe = "bf16";
    f.steps = STEPS;
    run_fixture_write(parent, &f, dir);
    put_file(dir, "data/metrics/eval.jsonl", "%s", "");
    train_into(dir, flip);
    CHECK(bundle_finish(dir, &DROP, result, &e));
}

static void the_flipped_weight_is_named(void **state) {
    static const struct flip FLIPS[] = {
        { NULL, 0 },
        { "layers.1.ffn_in.weight", 3 },
        { "embed.weight", 5 },
        { "head.weight", 2 },
    };
    char parent[PATH_CAP], id[64];
    struct err e = { 0 };
    struct bundle_result first, other;
    scratch_directory(parent);
    make_run(parent, "20261121T000000Z-first-0badcafe", &FLIPS[0], &first);
    for (size_t i = 0; i < sizeof FLIPS / sizeof *FLIPS; i++) {
        struct comparison c;
        snprintf(id, sizeof id, "20261121T00000%zuZ-other-0badcafe", i);
        make_run(parent, id, &FLIPS[i], &other);
        const char *paths[2] = { first.path, other.path };
        CHECK(compare_runs(paths, 2, NULL, &c, &e));
        const json_t *row = json_array_get(json_object_get(c.report, "divergences"), 0);
        if (!FLIPS[i].tensor) {
            assert_true(c.equal);
        } else {
            assert_false(c.equal);
            assert_string_equal(json_text(row, "tensor", ""), FLIPS[i].tensor);
            assert_int_equal(json_integer_value(json_object_get(row, "step")), FLIPS[i].step);
        }
        compare_free(&c);
    }
    CHECK(tree_remove(parent, &e));
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_flipped_weight_is_named) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
