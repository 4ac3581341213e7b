/* The errors of FP8 casts that several ranks measure: the same on every rank, a figure for each FP8
 * slot in every way to divide the weights, and the same bits of the run. */
#include <math.h>
#include <stdio.h>
#include <sys/mman.h>

#include "model/trainer.h"
#include "tests/support/must.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny.h"

enum { WORLD = 2, STEPS = 2, SLOTS_MAX = 128, SECONDS = 120 };

struct job {
    enum recipe_kind kind;
    enum shard_kind shard;
    bool gather;
    char weights[2][65]; /* without and with measuring, of rank 0 */
    int64_t count;
    struct fp8_slot slot[WORLD][SLOTS_MAX];
};

static int one_rank(struct rank_test *t) {
    struct job *job = t->user;
    int rank = t->group.rank;
    for (int measured = 0; measured < 2; measured++) {
        struct tiny_run r;
        struct step_result s;
        char hash[65];
        struct recipe_options o = tiny_recipe_options(job->kind);
        o.param_gather = job->gather;
        tiny_run_init(&r, job->kind, STEPS);
        tiny_run_recipe(&r, &o);
        r.train.shard = job->shard;
        r.train.fp8_error = measured;
        RANK_MUST(data_open(&r.data, &r.data_options, r.model.vocab, r.model.seq_len, r.train.seed,
                            &must_));
        RANK_MUST(trainer_create(&r.trainer, t->backend, &r.model, &r.recipe, &r.train, r.data,
                                 &must_));
        for (int i = 0; i < STEPS; i++) RANK_MUST(trainer_step(r.trainer, false, &s, &must_));
        RANK_CHECK(s.measured == (measured == 1));
        RANK_MUST(trainer_weights_sha256(r.trainer, hash, &must_));
        if (rank == 0) memcpy(job->weights[measured], hash, sizeof hash);
        job->count = r.trainer->slots.count;
        trainer_read_fp8(r.trainer, job->slot[rank]);
        for (int i = 0; i < r.trainer->slots.count; i++) {
            bool wanted = measured && dtype_is_fp8(r.trainer->slots.slot[i].code);
            if (isnan(job->slot[rank][i].snr_db) == !wanted) continue;
            fprintf(stderr, "%s has %g dB\n", r.trainer->slots.name[i],
                    job->slot[rank][i].snr_db);
            return 1;
        }
        tiny_run_close(&r);
    }
    return 0;
}

static void ranks_agree_on_the_errors(void **state) {
    static const struct { const char *name; enum recipe_kind kind; enum shard_kind shard;
                          bool gather; } CASE[] = {
        { "tensorwise", RECIPE_TENSORWISE, SHARD_NONE, false },
        { "tensorwise, divided", RECIPE_TENSORWISE, SHARD_OPTIMIZER, false },
        { "tensorwise, codes gathered", RECIPE_TENSORWISE, SHARD_PARAMETERS, true },
        { "delayed, codes gathered", RECIPE_DELAYED, SHARD_OPTIMIZER, true },
        { "blockwise, divided", RECIPE_BLOCKWISE, SHARD_PARAMETERS, false },
    };
    for (size_t c = 0; c < sizeof CASE / sizeof *CASE; c++) {
        struct job begin = { .kind = CASE[c].kind, .shard = CASE[c].shard,
                             .gather = CASE[c].gather };
        struct job *job = ranks_share(&begin, sizeof begin);
        int code[WORLD];
        ranks_run("cpu", WORLD, one_rank, job, SECONDS, code);
        for (int r = 0; r < WORLD; r++)
            if (code[r] != 0) fail_msg("%s: rank %d: %d", CASE[c].name, r, code[r]);
        assert_string_equal(job->weights[0], job->weights[1]);
        assert_true(job->count > 0);
        for (int64_t i = 0; i < job->count; i++) {
            const struct fp8_slot *a = &job->slot[0][i], *b = &job->slot[1][i];
            if (isnan(a->snr_db)) continue;
            assert_true(a->snr_db == b->snr_db && a->rms == b->rms);
            assert_true(a->snr_db > 0 && a->rms <= (double)f32_from_bits(a->amax_bits) * 2);
        }
        munmap(job, sizeof *job);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(ranks_agree_on_the_errors) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
