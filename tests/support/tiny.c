#include "tests/support/tiny.h"

#include "kernels/cpu/cpu_backend.h"

struct model_config tiny_model(void) {
    struct model_config c = {
        .vocab = 96, .seq_len = 32, .layers = 2, .width = 64, .heads = 4, .kv_heads = 2,
        .head_dim = 16, .ffn = 160, .norm = NORM_RMS, .activation = ACTIVATION_SWIGLU,
        .positions = POSITION_ROPE, .rope = { .theta = 10000 }, .norm_eps = 1e-5, .init_std = 0.02,
    };
    return c;
}

struct recipe_options tiny_recipe_options(enum recipe_kind kind) {
    return recipe_info(kind)->defaults;
}

struct recipe tiny_recipe(const struct recipe_options *options, struct recipe_options *site,
                          int64_t layers) {
    for (int64_t i = 0; i < layers * GEMM_SITE_COUNT; i++) site[i] = *options;
    bool f32 = options->kind == RECIPE_F32;
    struct recipe r = { .site = site, .layers = layers, .f32 = f32 };
    r.head.kind = f32 ? RECIPE_F32 : RECIPE_BF16;
    return r;
}

struct train_options tiny_train(int64_t steps) {
    struct train_options o = {
        .steps = steps, .global_batch = 4, .micro_batch = 2, .seed = 1234, .grad_dtype = DTYPE_F32,
        .optimizer = { .lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1,
                       .clip = 1.0, .state = STATE_F32, .master = true },
        .schedule = { .kind = SCHEDULE_COSINE, .warmup = 2, .final = 0.1 },
    };
    return o;
}

const char *tiny_kind_name(enum recipe_kind kind) {
    return RECIPE_KIND_NAMES[kind];
}

void tiny_gemms_bf16(struct recipe_options *o, unsigned gemms) {
    o->fprop_bf16 = gemms & FPROP_BF16;
    o->dgrad_bf16 = gemms & DGRAD_BF16;
    o->wgrad_bf16 = gemms & WGRAD_BF16;
}

void tiny_run_recipe(struct tiny_run *run, const struct recipe_options *options) {
    run->recipe = tiny_recipe(options, run->site, run->model.layers);
}

void tiny_run_init(struct tiny_run *run, enum recipe_kind kind, int64_t steps) {
    memset(run, 0, sizeof *run);
    run->model = tiny_model();
    run->train = tiny_train(steps);
    run->data_options.kind = DATA_SYNTHETIC;
    run->data_options.seed = 7;
    struct recipe_options options = tiny_recipe_options(kind);
    tiny_run_recipe(run, &options);
}

enum status tiny_run_open(struct tiny_run *run, struct err *e) {
    if (!run->backend) TRY(cpu_backend_open(&run->backend, 0, e));
    TRY(run->backend->ops->comm.init(run->backend, NULL, e));
    TRY(data_open(&run->data, &run->data_options, run->model.vocab, run->model.seq_len,
                  run->train.seed, e));
    return trainer_create(&run->trainer, run->backend, &run->model, &run->recipe, &run->train,
                          run->data, e);
}

void tiny_run_close(struct tiny_run *run) {
    trainer_destroy(run->trainer);
    data_close(run->data);
    if (run->backend) run->backend->ops->close(run->backend);
    run->trainer = NULL;
    run->data = NULL;
    run->backend = NULL;
}
