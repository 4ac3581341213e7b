/* Writes one of our steps as safetensors, for an independent implementation to check: the weights
 * before the step, its batch, every token's loss, and all gradients.
 *
 *   parity_dump llama|gpt2 DIRECTORY [SEED [BACKEND]]
 *
 *   DIRECTORY/weights.safetensors     in the names of model/params.h
 *   DIRECTORY/step.safetensors        tokens, targets [B,T] i32; losses [B,T] f32
 *   DIRECTORY/gradients.safetensors   f32, in the names and shapes of the weights
 *
 * The weights are trained for a while first: gains of 1 and biases of 0 would hide mistakes. The
 * learning rate is too high for such models on purpose, so that attention becomes sharp. With flat
 * attention (rate 1e-3) wrong rounding in its backward hardly changes a gradient. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/safetensors.h"
#include "model/trainer.h"
#include "runner/plan/backends.h"
#include "tests/support/tiny.h"

enum { STEPS = 30, BATCH = 4 };

/* Small, since the check needs many runs; but with the head dimensions of real models, and one
 * padded vocabulary. */
static bool config_named(const char *name, struct model_config *out) {
    if (!strcmp(name, "llama")) {
        *out = (struct model_config){
            .vocab = 8000, .seq_len = 1024, .layers = 4, .width = 512, .heads = 4, .kv_heads = 2,
            .head_dim = 128, .ffn = 1408, .norm = NORM_RMS, .activation = ACTIVATION_SWIGLU,
            .positions = POSITION_ROPE, .rope = { .theta = 500000 }, .norm_eps = 1e-5,
            .init_std = 0.02,
        };
        return true;
    }
    *out = (struct model_config){
        .vocab = 8017, .seq_len = 1024, .layers = 4, .width = 512, .heads = 8, .kv_heads = 8,
        .head_dim = 64, .ffn = 2048, .norm = NORM_LAYER, .activation = ACTIVATION_GELU,
        .positions = POSITION_LEARNED, .norm_eps = 1e-5, .init_std = 0.02, .bias = true,
        .tied = true,
    };
    return !strcmp(name, "gpt2");
}

static enum status write_step(struct trainer *t, const char *directory, struct err *e) {
    char path[4096], sha256[65];
    int64_t bytes, sequences = t->transformer.batch, length = t->model.seq_len;
    struct transformer *tf = &t->transformer;
    struct safetensors s = { 0 };
    snprintf(path, sizeof path, "%s/step.safetensors", directory);
    enum status st = safetensors_add(&s, DTYPE_I32, sequences, length, tf->tokens.data, e,
                                     "tokens");
    if (st == OK)
        st = safetensors_add(&s, DTYPE_I32, sequences, length, tf->targets.data, e, "targets");
    if (st == OK)
        st = safetensors_add(&s, DTYPE_F32, sequences, length, tf->losses.data, e, "losses");
    if (st == OK) st = safetensors_write(&s, &t->pieces, path, &bytes, sha256, e);
    safetensors_free(&s);
    return st;
}

/* Writes one field of every parameter: `field` is the offsetof of its value or its gradient. */
static enum status write_params(struct trainer *t, const char *directory, const char *file,
                                size_t field, struct err *e) {
    char path[4096], sha256[65];
    int64_t bytes;
    struct safetensors s = { 0 };
    enum status st = OK;
    snprintf(path, sizeof path, "%s/%s.safetensors", directory, file);
    for (int i = 0; i < t->params.count && st == OK; i++) {
        const struct param *p = &t->params.param[i];
        const struct tensor *x = (const struct tensor *)((const char *)p + field);
        st = safetensors_add(&s, x->dtype, p->rows, p->cols, x->data, e, "%s", p->name);
    }
    if (st == OK) st = safetensors_write(&s, &t->pieces, path, &bytes, sha256, e);
    safetensors_free(&s);
    return st;
}

/* Gradients stay in memory until the next step clears them. */
static enum status train_and_write(struct tiny_run *run, const char *directory, struct err *e) {
    struct step_result result;
    for (int i = 0; i < STEPS; i++) TRY(trainer_step(run->trainer, false, &result, e));
    TRY(write_params(run->trainer, directory, "weights", offsetof(struct param, own_value), e));
    TRY(trainer_step(run->trainer, false, &result, e));
    TRY(write_step(run->trainer, directory, e));
    TRY(write_params(run->trainer, directory, "gradients", offsetof(struct param, grad), e));
    printf("step %lld: loss %.6f, gradient norm %.6f\n", (long long)result.step,
           (double)result.loss, (double)result.grad_norm);
    return OK;
}

int main(int argc, char **argv) {
    struct err e = { 0 };
    struct tiny_run run;
    struct backend_handle handle = { 0 };
    tiny_run_init(&run, RECIPE_BF16, STEPS + 1);
    if (argc < 3 || !config_named(argv[1], &run.model)) {
        fprintf(stderr, "usage: parity_dump llama|gpt2 DIRECTORY [SEED [BACKEND]]\n");
        return 2;
    }
    struct recipe_options bf16 = tiny_recipe_options(RECIPE_BF16);
    tiny_run_recipe(&run, &bf16);
    run.train.global_batch = run.train.micro_batch = BATCH;
    run.train.optimizer.lr = 4e-3;
    if (argc > 3) run.train.seed = (uint64_t)strtoull(argv[3], NULL, 10);
    enum status st = backend_open(argc > 4 ? argv[4] : "cuda", 0, 0, &handle, &e);
    run.backend = handle.backend;
    if (st == OK) st = tiny_run_open(&run, &e);
    if (st == OK) st = train_and_write(&run, argv[2], &e);
    if (st != OK) fprintf(stderr, "parity_dump: %s\n", e.text);
    if (run.backend) tiny_run_close(&run);
    return st == OK ? 0 : 1;
}
