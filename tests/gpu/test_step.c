/* The step on the device, with replayed graphs. It reads its results late, stops at a bad step and
 * resumes to the bit. It continues from a checkpoint of the CPU, and the CPU from its own. An
 * evaluation allocates no memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "model/checkpoint.h"
#include "model/trainer.h"
#include "runner/plan/backends.h"
#include "tests/support/must.h"
#include "tests/support/shards.h"
#include "tests/support/tiny.h"

/* The model: a Llama, or a GPT-2 (LayerNorm, GELU, biases, learned positions, tied weights); and
 * its training. `lean`: 8-bit optimizer state without masters, BF16 gradients over four
 * micro-steps. `documents`: packed documents apart from each other, with a loss file. */
struct setup {
    enum recipe_kind kind;
    unsigned bf16; /* GEMMs */
    bool gpt2, lean, offload, documents;
    int64_t fp8_error;
    enum recompute_kind recompute;
    int64_t recompute_layers;
    bool makes_codes;
};

/* The first RECIPES entries have one of each recipe. */
static const struct setup SETUP[] = {
    { .kind = RECIPE_BF16 }, { .kind = RECIPE_DELAYED }, { .kind = RECIPE_TENSORWISE },
    { .kind = RECIPE_ROWWISE }, { .kind = RECIPE_BLOCKWISE }, { .kind = RECIPE_MXFP8 },
    { .kind = RECIPE_NVFP4 },
    { .kind = RECIPE_BF16, .lean = true }, { .kind = RECIPE_BLOCKWISE, .lean = true },
    { .kind = RECIPE_DELAYED, .gpt2 = true }, { .kind = RECIPE_ROWWISE, .gpt2 = true },
    { .kind = RECIPE_BLOCKWISE, .gpt2 = true, .lean = true },
    { .kind = RECIPE_BF16, .documents = true },
    { .kind = RECIPE_DELAYED, .documents = true, .gpt2 = true, .lean = true },
    { .kind = RECIPE_TENSORWISE, .bf16 = DGRAD_BF16 },
    { .kind = RECIPE_BLOCKWISE, .bf16 = FPROP_BF16 },
    { .kind = RECIPE_MXFP8, .bf16 = WGRAD_BF16 }, { .kind = RECIPE_NVFP4, .bf16 = DGRAD_BF16 },
    { .kind = RECIPE_ROWWISE, .bf16 = FPROP_BF16 | WGRAD_BF16, .gpt2 = true },
    { .kind = RECIPE_DELAYED, .bf16 = FPROP_BF16 | DGRAD_BF16, .lean = true },
};
enum { SETUPS = sizeof SETUP / sizeof *SETUP, RECIPES = 7, STEPS = 8 };

struct gpu_run {
    struct tiny_run run;
    struct backend_handle handle;
};

static char SHARD[80]; /* documents of 2 to 250 tokens */

static int make_shard(void **state) {
    enum { DOCUMENTS = 100 };
    int length[DOCUMENTS];
    for (int i = 0; i < DOCUMENTS; i++) length[i] = 2 + i * i * 37 % 249;
    snprintf(SHARD, sizeof SHARD, "/tmp/fp8lab-step-%d", (int)getpid());
    return shard_put(&(struct shard){ .prefix = SHARD, .documents = DOCUMENTS, .length = length,
                                      .vocab = 96, .loss = true }) < 0;
}

static int drop_shard(void **state) {
    shard_drop(SHARD);
    return 0;
}

static void open_on(struct gpu_run *g, const char *backend, const struct setup *how,
                    const char *choices) {
    memset(g, 0, sizeof *g);
    tiny_run_init(&g->run, how->kind, STEPS);
    struct recipe_options o = tiny_recipe_options(how->kind);
    tiny_gemms_bf16(&o, how->bf16);
    tiny_run_recipe(&g->run, &o);
    struct model_config *m = &g->run.model;
    struct train_options *t = &g->run.train;
    m->seq_len = 256;
    m->width = 256;
    m->head_dim = 64;
    m->ffn = 512;
    if (how->gpt2) {
        m->norm = NORM_LAYER;
        m->activation = ACTIVATION_GELU;
        m->positions = POSITION_LEARNED;
        m->kv_heads = m->heads;
        m->bias = m->tied = true;
    }
    t->head_chunk = 256;
    t->recompute = how->recompute;
    t->recompute_layers = how->recompute_layers;
    t->makes_codes = how->makes_codes;
    t->fp8_error = how->fp8_error;
    t->optimizer.offload = how->offload;
    if (how->lean) {
        t->micro_batch = 1;
        t->grad_dtype = DTYPE_BF16;
        t->optimizer.state = STATE_8BIT;
        t->optimizer.master = false;
    }
    static const char *const paths[] = { SHARD };
    if (how->documents) {
        t->documents = (struct document_options){ .mask = true, .restart = true };
        g->run.data_options = (struct data_options){
            .kind = DATA_MEGATRON, .paths = paths, .path_count = 1, .holdout = 0.2,
            .layout = LAYOUT_PACKED, .documents = t->documents, .loss = true };
    }
    MUST(backend_open(backend, 0, 0, &g->handle, E));
    g->run.backend = g->handle.backend;
    if (choices) MUST(g->run.backend->ops->choices_load(g->run.backend, choices, E));
    MUST(tiny_run_open(&g->run, E));
}

static void close_run(struct gpu_run *g) {
    g->handle.backend = NULL; /* the run closes it */
    tiny_run_close(&g->run);
    backend_close(&g->handle);
}

static void scratch(char dir[64]) {
    strcpy(dir, "/tmp/fp8lab-step-XXXXXX");
    assert_non_null(mkdtemp(dir));
}

static void step(struct gpu_run *g, struct step_result *s) {
    MUST(trainer_step(g->run.trainer, false, s, E));
}

static char *choices_of(struct gpu_run *g) {
    char *text = NULL;
    MUST(g->run.backend->ops->choices_save(g->run.backend, &text, E));
    return text;
}

/* Loss and norm bits of all steps, queued ahead. */
static void run_ahead(struct gpu_run *g, uint32_t bits[STEPS][2], char weights[65]) {
    struct step_result s;
    for (int i = 0; i < STEPS + 1; i++) { /* collects the step before the one that it queues */
        if (i < STEPS) MUST(trainer_queue(g->run.trainer, false, E));
        if (i == 0) continue;
        MUST(trainer_collect(g->run.trainer, &s, E));
        assert_true(s.time_us > 0 && s.time_us < 10000000);
        memcpy(&bits[s.step - 1][0], &s.loss, 4);
        memcpy(&bits[s.step - 1][1], &s.grad_norm, 4);
    }
    assert_int_equal(trainer_step_count(g->run.trainer), STEPS);
    MUST(trainer_weights_sha256(g->run.trainer, weights, E));
}

static void a_late_record_has_the_same_bits(void **state) {
    for (int k = 0; k < RECIPES; k++) {
        struct gpu_run g;
        uint32_t at_once[STEPS][2], late[STEPS][2];
        char weights[2][65], *choices;
        open_on(&g, "cuda", &SETUP[k], NULL);
        for (int i = 0; i < STEPS; i++) {
            struct step_result s;
            step(&g, &s);
            memcpy(&at_once[i][0], &s.loss, 4);
            memcpy(&at_once[i][1], &s.grad_norm, 4);
        }
        MUST(trainer_weights_sha256(g.run.trainer, weights[0], E));
        choices = choices_of(&g);
        close_run(&g);
        open_on(&g, "cuda", &SETUP[k], choices);
        run_ahead(&g, late, weights[1]);
        close_run(&g);
        assert_memory_equal(at_once, late, sizeof late);
        assert_string_equal(weights[0], weights[1]);
        free(choices);
    }
}

/* Steps that measure run beside the graphs: the same bits, no new choice of the backend, and a
 * figure for each FP8 slot. E4M3 loses some 31 dB, E5M2 some 25; a first scale may be bad. */
static void measuring_errors_changes_no_bit(void **state) {
    static struct fp8_slot slot[512];
    for (int k = 0; k < SETUPS; k++) {
        struct setup how = SETUP[k];
        struct gpu_run g;
        uint32_t bits[2][STEPS][2];
        char weights[2][65], *choices;
        open_on(&g, "cuda", &how, NULL);
        run_ahead(&g, bits[0], weights[0]);
        choices = choices_of(&g);
        close_run(&g);
        how.fp8_error = 4; /* the last step too, of 8 */
        open_on(&g, "cuda", &how, choices);
        run_ahead(&g, bits[1], weights[1]);
        char *after = choices_of(&g);
        assert_string_equal(choices, after);
        assert_memory_equal(bits[0], bits[1], sizeof bits[0]);
        assert_string_equal(weights[0], weights[1]);
        const struct slots *s = &g.run.trainer->slots;
        assert_true(s->count <= 512);
        trainer_read_fp8(g.run.trainer, slot);
        for (int i = 0; i < s->count; i++) {
            bool alone = how.kind == RECIPE_NVFP4 && how.bf16 & DGRAD_BF16 &&
                         strstr(s->slot[i].name, ".dy"); /* a rotated twin is not compared */
            bool fp8 = dtype_is_fp8(s->slot[i].code) && !alone;
            if (isnan(slot[i].snr_db) == fp8 || (fp8 && !(slot[i].snr_db > 15)))
                fail_msg("setup %d: %s has %g dB", k, s->slot[i].name, slot[i].snr_db);
        }
        close_run(&g);
        free(choices);
        free(after);
    }
}

/* Step 6 is bad, in replayed graphs, and step 7 is queued behind it. */
static void a_bad_step_changes_nothing(void **state) {
    struct gpu_run g;
    struct step_result s;
    struct checkpoint_info info;
    char wanted[65], found[65];
    const float nan = NAN;
    open_on(&g, "cuda", &(struct setup){ .kind = RECIPE_TENSORWISE }, NULL);
    struct trainer *t = g.run.trainer;
    for (int i = 0; i < 5; i++) step(&g, &s);
    MUST(trainer_weights_sha256(t, wanted, E));
    MUST(g.run.backend->ops->upload(g.run.backend, LANE_COMPUTE, t->transformer.grad_scale.data,
                                    &nan, sizeof nan, E));
    MUST(trainer_queue(t, false, E));
    MUST(trainer_queue(t, false, E));
    MUST_FAIL(ERR_NUMERIC, "step 6: head.dy is not finite", trainer_collect(t, &s, E));
    assert_int_equal(trainer_step_count(t), 5);
    MUST_FAIL(ERR_STATE, "nothing is saved",
              checkpoint_save(t, "/nonexistent/checkpoints", &info, E));
    MUST(trainer_weights_sha256(t, found, E));
    assert_string_equal(wanted, found);
    close_run(&g);
}

/* A loaded checkpoint is saved again to the byte, and two steps continue from it: their losses and
 * gradient norms. */
struct resumed { float loss[2], norm[2]; };
static struct resumed resume_on(const char *backend, const struct setup *how, const char *from,
                                const struct checkpoint_info *saved) {
    struct gpu_run g;
    struct step_result s;
    struct checkpoint_info info, again;
    char dir[64], bytes[2][64 << 10];
    scratch(dir);
    struct resumed out;
    open_on(&g, backend, how, NULL);
    MUST(checkpoint_load(g.run.trainer, from, &info, E));
    assert_int_equal(trainer_step_count(g.run.trainer), saved->step);
    MUST(checkpoint_save(g.run.trainer, dir, &again, E));
    static const char *const FILES[] = { "model.safetensors", "state.safetensors" };
    for (int f = 0; f < 2; f++) {
        char path[2][4200];
        snprintf(path[0], sizeof path[0], "%s/%s", from, FILES[f]);
        snprintf(path[1], sizeof path[1], "%s/%s", again.path, FILES[f]);
        FILE *file[2] = { fopen(path[0], "rb"), fopen(path[1], "rb") };
        assert_true(file[0] && file[1]);
        for (size_t n; (n = fread(bytes[0], 1, sizeof *bytes, file[0])) > 0;) {
            assert_int_equal(fread(bytes[1], 1, n, file[1]), n);
            assert_memory_equal(bytes[0], bytes[1], n);
        }
        assert_int_equal(fread(bytes[1], 1, 1, file[1]), 0);
        fclose(file[0]);
        fclose(file[1]);
    }
    MUST(checkpoint_remove(again.path, E));
    assert_int_equal(rmdir(dir), 0);
    for (int i = 0; i < 2; i++) {
        step(&g, &s);
        out.loss[i] = s.loss;
        out.norm[i] = s.grad_norm;
    }
    close_run(&g);
    return out;
}

static const char *setup_name(const struct setup *how, char out[64]) {
    snprintf(out, 64, "%s%s%s%s%s%s%s", tiny_kind_name(how->kind),
             how->bf16 & FPROP_BF16 ? ", fprop bf16" : "",
             how->bf16 & DGRAD_BF16 ? ", dgrad bf16" : "",
             how->bf16 & WGRAD_BF16 ? ", wgrad bf16" : "", how->gpt2 ? ", gpt2" : "",
             how->lean ? ", lean" : "", how->documents ? ", documents" : "");
    return out;
}

/* Three steps on one backend, the next two on either. The loaded state is equal to the byte. Losses
 * and gradient norms differ by the rounding of sums; those of step 5 follow an update that each
 * backend made from its own gradients. A simulation had noise of nmse_bound's s (test_matmul.c, the
 * worst case) in each product. Losses differed by up to 4.2e-4 and 1.2e-3, norms by up to
 * 2.4e-3. A code of E2M1 that flips changes by four times as much as one of E4M3, and a tensor's
 * amax moves the scales of all its blocks. With noise of 1e-4 in NVFP4's products alone, losses
 * differed by up to 1.1e-3 and 3.9e-3 in 30 simulations; its bounds are twice that, since the
 * device's norms and attention differ too. */
static void checkpoints_move_between_backends(void **state) {
    static const char *const BACKEND[] = { "cpu", "cuda" };
    static const float NORM_NEAR = 0.01f;
    static const float NEAR[2][2] = { { 4e-4f, 3e-3f }, { 2.2e-3f, 7.8e-3f } };
    for (int k = 0; k < SETUPS; k++)
        for (int from = 0; from < 2; from++) {
            struct gpu_run g;
            struct step_result s;
            struct checkpoint_info saved;
            char dir[64], name[64];
            struct resumed at[2];
            scratch(dir);
            open_on(&g, BACKEND[from], &SETUP[k], NULL);
            for (int i = 0; i < 3; i++) step(&g, &s);
            MUST(checkpoint_save(g.run.trainer, dir, &saved, E));
            close_run(&g);
            for (int to = 0; to < 2; to++)
                at[to] = resume_on(BACKEND[to], &SETUP[k], saved.path, &saved);
            const float *near = NEAR[SETUP[k].kind == RECIPE_NVFP4];
            for (int i = 0; i < 2; i++) {
                print_message("%s from %s: step %d on cpu loss %.6f, norm %.5f, on cuda %+.1e, "
                              "%+.1e of them\n", setup_name(&SETUP[k], name), BACKEND[from], 4 + i,
                              (double)at[0].loss[i], (double)at[0].norm[i],
                              (double)(at[1].loss[i] / at[0].loss[i] - 1),
                              (double)(at[1].norm[i] / at[0].norm[i] - 1));
                assert_float_equal(at[0].loss[i], at[1].loss[i], near[i] * at[0].loss[i]);
                assert_float_equal(at[0].norm[i], at[1].norm[i], NORM_NEAR * at[0].norm[i]);
            }
            MUST(checkpoint_remove(saved.path, E));
            assert_int_equal(rmdir(dir), 0);
        }
}

/* Saving memory changes no bit: neither recomputation, nor codes that are made before each use, nor
 * optimizer state on the host. */
static void saving_memory_changes_no_bit(void **state) {
    static const struct setup OF[] = {
        { .kind = RECIPE_BF16 }, { .kind = RECIPE_DELAYED }, { .kind = RECIPE_TENSORWISE },
        { .kind = RECIPE_BLOCKWISE, .lean = true }, { .kind = RECIPE_TENSORWISE, .gpt2 = true },
        { .kind = RECIPE_ROWWISE, .documents = true },
    };
    enum { WAYS = 6 };
    for (size_t k = 0; k < sizeof OF / sizeof *OF; k++) {
        char weights[WAYS][65], *choices = NULL;
        uint32_t bits[WAYS][STEPS][2];
        for (int way = 0; way < WAYS; way++) {
            struct setup how = OF[k];
            struct gpu_run g;
            how.offload = way == 1;
            how.recompute = way == 2               ? RECOMPUTE_FFN
                            : way == 3 || way == 4 ? RECOMPUTE_BLOCK
                                                   : RECOMPUTE_NONE;
            how.recompute_layers = way == 4;
            how.makes_codes = way == 5;
            open_on(&g, "cuda", &how, choices);
            run_ahead(&g, bits[way], weights[way]);
            if (way == 0) choices = choices_of(&g);
            close_run(&g);
            assert_string_equal(weights[way], weights[0]);
            assert_memory_equal(bits[way], bits[0], sizeof bits[0]);
        }
        free(choices);
    }
}

static int64_t device_free(struct gpu_run *g) {
    struct device_info info;
    MUST(g->run.backend->ops->info(g->run.backend, &info, E));
    return info.memory_free;
}

/* After the first step no memory is allocated, not even by an evaluation. */
static void evaluation_takes_no_memory(void **state) {
    for (int k = 0; k < RECIPES; k++) {
        struct gpu_run g;
        struct step_result s;
        struct eval_result eval;
        open_on(&g, "cuda", &SETUP[k], NULL);
        for (int i = 0; i < 3; i++) step(&g, &s);
        int64_t before = device_free(&g);
        for (int i = 0; i < 3; i++) MUST(trainer_eval(g.run.trainer, 2, &eval, E));
        assert_int_equal(before, device_free(&g));
        for (int i = 0; i < 3; i++) step(&g, &s);
        assert_int_equal(before, device_free(&g));
        close_run(&g);
    }
}

/* More than the pinned buffer holds, in one call, and in many calls while the device is busy. The
 * content of `host` at each call arrives, although `host` is overwritten at once. */
static void uploads_copy_at_once(void **state) {
    enum { LARGE = (20 << 20) + 3, SMALL = 4096, CALLS = 1000 };
    struct gpu_run g;
    void *memory;
    unsigned char *host = malloc(LARGE), *back = malloc(LARGE);
    assert_true(host && back);
    open_on(&g, "cuda", &(struct setup){ .kind = RECIPE_BF16 }, NULL);
    struct backend *b = g.run.backend;
    MUST(b->ops->memory_create(b, "a test", LARGE, &memory, E));
    for (int i = 0; i < LARGE; i++) host[i] = (unsigned char)(i * 7 % 251);
    for (int i = 0; i < 2; i++) MUST(trainer_queue(g.run.trainer, false, E));
    MUST(b->ops->upload(b, LANE_COMPUTE, memory, host, LARGE, E));
    memset(host, 0xAA, LARGE);
    MUST(b->ops->download(b, LANE_COMPUTE, back, memory, LARGE, E));
    for (int i = 0; i < LARGE; i++) assert_int_equal(back[i], (unsigned char)(i * 7 % 251));
    for (int i = 0; i < CALLS; i++) {
        memset(host, i % 256, SMALL);
        MUST(b->ops->upload(b, LANE_COMPUTE, (char *)memory + (int64_t)i * SMALL, host, SMALL, E));
    }
    MUST(b->ops->download(b, LANE_COMPUTE, back, memory, (int64_t)CALLS * SMALL, E));
    for (int i = 0; i < CALLS * SMALL; i++) assert_int_equal(back[i], i / SMALL % 256);
    b->ops->memory_destroy(b, memory);
    close_run(&g);
    free(host);
    free(back);
}

/* Two steps of about ten milliseconds are queued before the first is done. */
static void queueing_does_not_wait(void **state) {
    struct gpu_run g;
    struct step_result s[2];
    memset(&g, 0, sizeof g);
    tiny_run_init(&g.run, RECIPE_TENSORWISE, STEPS);
    g.run.model.seq_len = g.run.model.width = 1024;
    g.run.model.head_dim = 256 / g.run.model.kv_heads;
    g.run.model.heads = 1024 / g.run.model.head_dim;
    g.run.model.ffn = 4096;
    g.run.train.micro_batch = 8;
    g.run.train.global_batch = 16;
    MUST(backend_open("cuda", 0, 0, &g.handle, E));
    g.run.backend = g.handle.backend;
    MUST(tiny_run_open(&g.run, E));
    for (int i = 0; i < 3; i++) {
        bool ready = true;
        for (int k = 0; k < 2; k++) MUST(trainer_queue(g.run.trainer, false, E));
        MUST(trainer_ready(g.run.trainer, &ready, E));
        assert_false(ready);
        for (int k = 0; k < 2; k++) MUST(trainer_collect(g.run.trainer, &s[k], E));
    }
    print_message("steps of %lld and %lld us\n", (long long)s[0].time_us,
                  (long long)s[1].time_us);
    close_run(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queueing_does_not_wait),
        cmocka_unit_test(uploads_copy_at_once),
        cmocka_unit_test(a_late_record_has_the_same_bits),
        cmocka_unit_test(measuring_errors_changes_no_bit),
        cmocka_unit_test(a_bad_step_changes_nothing),
        cmocka_unit_test(checkpoints_move_between_backends),
        cmocka_unit_test(saving_memory_changes_no_bit),
        cmocka_unit_test(evaluation_takes_no_memory),
    };
    return cmocka_run_group_tests(tests, make_shard, drop_shard);
}
