/* Several ranks give the same logits however they share parameters, those of one rank, and asking
 * changes no step. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "model/logits.h"
#include "tests/support/must.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny.h"

enum { T = 32, V = 96, ROWS = 3, SECONDS = 120 };

struct job {
    enum recipe_kind kind;
    enum shard_kind shard;
    bool gather, asks;
    float logits[2][ROWS * V], loss[3];
};

static enum status ask(struct trainer *t, float *out, struct err *e) {
    static const int64_t row[ROWS] = { 31, 5, 40 };
    int32_t tokens[2 * T];
    for (int i = 0; i < 2 * T; i++) tokens[i] = (5 * i + i * i) % V;
    return trainer_logits(t, tokens, row, ROWS, out, e);
}

static int one_rank(struct rank_test *t) {
    struct job *job = t->user;
    struct tiny_run r;
    struct step_result s;
    static float mine[ROWS * V];
    tiny_run_init(&r, job->kind, 3);
    r.backend = t->backend;
    r.train.global_batch = 4;
    r.train.micro_batch = 2;
    r.train.shard = job->shard;
    for (int i = 0; i < 2 * GEMM_SITE_COUNT; i++) r.site[i].param_gather = job->gather;
    RANK_MUST(data_open(&r.data, &r.data_options, V, T, r.train.seed, &must_));
    RANK_MUST(trainer_create(&r.trainer, r.backend, &r.model, &r.recipe, &r.train, r.data, &must_));
    for (int i = 0; i < 3; i++) {
        RANK_MUST(trainer_step(r.trainer, false, &s, &must_));
        if (t->group.rank == 0) job->loss[i] = s.loss;
        if (job->asks && i < 2) {
            RANK_MUST(ask(r.trainer, mine, &must_));
            if (t->group.rank == 0) memcpy(job->logits[i], mine, sizeof mine);
        }
    }
    trainer_destroy(r.trainer);
    data_close(r.data);
    return 0;
}

static struct job *run(struct job way, int world) {
    struct job *job = ranks_share(&way, sizeof way);
    int code[2];
    ranks_run("cpu", world, one_rank, job, SECONDS, code);
    for (int i = 0; i < world; i++) assert_int_equal(code[i], 0);
    return job;
}

static void ranks_give_the_logits_of_one(void **state) {
    static const struct job WAYS[] = {
        { .kind = RECIPE_F32, .shard = SHARD_OPTIMIZER, .asks = true },
        { .kind = RECIPE_BF16, .shard = SHARD_PARAMETERS, .asks = true },
        { .kind = RECIPE_DELAYED, .shard = SHARD_PARAMETERS, .gather = true, .asks = true },
        { .kind = RECIPE_BLOCKWISE, .shard = SHARD_PARAMETERS, .asks = true },
    };
    for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++) {
        struct job silent = WAYS[i], whole = WAYS[i];
        silent.asks = whole.gather = false;
        whole.shard = SHARD_NONE;
        struct job *two = run(WAYS[i], 2), *without = run(silent, 2), *same = run(whole, 2);
        assert_memory_equal(two->loss, without->loss, sizeof two->loss);
        assert_memory_equal(two->logits, same->logits, sizeof two->logits);
        assert_true(memcmp(two->logits[0], two->logits[1], sizeof two->logits[0]) != 0);
        munmap(without, sizeof *without);
        munmap(same, sizeof *same);
        if (WAYS[i].kind != RECIPE_F32) { /* one rank would scale two micro-batches in turn */
            munmap(two, sizeof *two);
            continue;
        }
        struct job *one = run(WAYS[i], 1);
        double worst = 0;
        for (int k = 0; k < ROWS * V; k++) {
            double off = (double)two->logits[1][k] - (double)one->logits[1][k];
            if (off < 0) off = -off;
            if (off > worst) worst = off;
        }
        assert_true(worst < 1e-5);
        munmap(two, sizeof *two);
        munmap(one, sizeof *one);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(ranks_give_the_logits_of_one) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
