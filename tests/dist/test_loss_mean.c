/* The mean is over the tokens with loss of the whole global batch: loss and gradients of a step do
 * not depend on micro-batch, packing or ranks. f32 recipe: only rounding differs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/trainer.h"
#include "tests/support/must.h"
#include "tests/support/ranks.h"
#include "tests/support/shards.h"
#include "tests/support/tiny.h"

enum { DOCUMENTS = 16, PACKED = 8, GRADIENTS_MAX = 1 << 18, SECONDS = 120 };

static char DIR[64], PREFIX[80];

/* Two documents a sequence of 32: the second fits behind the first, the next first does not. */
static int make_shard(void **state) {
    int length[DOCUMENTS];
    for (int i = 0; i < DOCUMENTS; i++) length[i] = i % 2 ? 3 + i * 5 % 9 : 18 + i % 3;
    strcpy(DIR, "/tmp/fp8lab-mean-XXXXXX");
    if (!mkdtemp(DIR)) return -1;
    snprintf(PREFIX, sizeof PREFIX, "%s/m", DIR);
    shard_put(&(struct shard){ .prefix = PREFIX, .documents = DOCUMENTS, .length = length,
                               .vocab = 96, .loss = true });
    return 0;
}

static int drop_shard(void **state) {
    shard_drop(PREFIX);
    return rmdir(DIR);
}

/* One way to take a step over all documents, and what came of it. */
struct way {
    enum data_layout layout;
    int64_t micro_batch;
    int world;
    bool apart; /* documents do not see each other, and positions restart */
    enum position_kind positions;
};
struct result {
    float loss, eval, after, gradient[GRADIENTS_MAX];
    double accuracy;
    int64_t loss_tokens, eval_tokens, count;
};
struct job { struct way way; struct result result; };

static int one_rank(struct rank_test *t) {
    struct job *job = t->user;
    struct tiny_run r;
    struct step_result s;
    struct eval_result before, after;
    static const char *const paths[] = { PREFIX };
    tiny_run_init(&r, RECIPE_F32, 3);
    r.backend = t->backend;
    r.model.positions = job->way.positions;
    r.train.global_batch = job->way.layout == LAYOUT_PACKED ? PACKED : DOCUMENTS;
    r.train.micro_batch = job->way.micro_batch;
    r.train.accuracy = true;
    r.train.documents = (struct document_options){ job->way.apart, job->way.apart };
    r.data_options = (struct data_options){ .kind = DATA_MEGATRON, .paths = paths, .path_count = 1,
                                            .eval_path = PREFIX, .layout = job->way.layout,
                                            .documents = r.train.documents, .loss = true };
    RANK_MUST(data_open(&r.data, &r.data_options, r.model.vocab, r.model.seq_len, r.train.seed,
                        &must_));
    RANK_MUST(trainer_create(&r.trainer, r.backend, &r.model, &r.recipe, &r.train, r.data, &must_));
    RANK_CHECK(data_sequences(r.data, SPLIT_TRAIN) == r.train.global_batch);
    RANK_MUST(trainer_eval(r.trainer, 100, &before, &must_));
    RANK_MUST(trainer_step(r.trainer, false, &s, &must_));
    struct result *out = t->group.rank == 0 ? &job->result : NULL;
    for (int i = 0; out && i < r.trainer->params.count; i++) {
        const struct tensor *g = &r.trainer->params.param[i].grad;
        int64_t n = tensor_count(g);
        RANK_CHECK(out->count + n <= GRADIENTS_MAX);
        RANK_MUST(r.backend->ops->download(r.backend, LANE_COMPUTE, out->gradient + out->count,
                                           g->data, 4 * n, &must_));
        out->count += n;
    }
    RANK_MUST(trainer_eval(r.trainer, 100, &after, &must_));
    if (out) {
        out->loss = s.loss;
        out->eval = before.loss;
        out->after = after.loss;
        out->accuracy = before.accuracy;
        out->loss_tokens = s.loss_tokens;
        out->eval_tokens = before.loss_tokens;
    }
    trainer_destroy(r.trainer);
    data_close(r.data);
    return 0;
}

static struct job *run(struct way way) {
    struct job *job = calloc(1, sizeof *job);
    assert_non_null(job);
    job->way = way;
    struct job *shared = ranks_share(job, sizeof *job);
    int code[4];
    ranks_run("cpu", way.world, one_rank, shared, SECONDS, code);
    for (int i = 0; i < way.world; i++) assert_int_equal(code[i], 0);
    free(job);
    return shared;
}

/* |a - b| / |b| of the gradients. */
static double difference(const struct result *a, const struct result *b) {
    double off = 0, size = 0;
    assert_true(a->count == b->count && a->count > 0);
    for (int64_t i = 0; i < a->count; i++) {
        off += pow((double)a->gradient[i] - (double)b->gradient[i], 2);
        size += pow((double)b->gradient[i], 2);
    }
    return sqrt(off / size);
}

static double relative(float a, float b) { return fabs((double)a - (double)b) / fabs((double)b); }

static void check_positions(enum position_kind positions) {
    static const struct way WAYS[] = {
        { LAYOUT_PADDED, 16, 1, true, 0 }, { LAYOUT_PADDED, 1, 1, true, 0 },
        { LAYOUT_PADDED, 2, 4, true, 0 },  { LAYOUT_PACKED, 8, 1, true, 0 },
        { LAYOUT_PACKED, 2, 1, true, 0 },  { LAYOUT_PACKED, 1, 2, true, 0 },
        { LAYOUT_PACKED, 2, 4, true, 0 },  { LAYOUT_PADDED, 4, 2, false, 0 },
        { LAYOUT_PACKED, 2, 1, false, 0 },
    };
    struct job *first = NULL;
    for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++) {
        struct way way = WAYS[i];
        way.positions = positions;
        struct job *job = run(way);
        struct result *r = &job->result, *f = first ? &first->result : r;
        double off = difference(r, f), loss = relative(r->loss, f->loss);
        print_message("%s, micro-batch %lld, %d ranks%s: loss %.1e, gradients %.1e\n",
                      way.layout == LAYOUT_PACKED ? "packed" : "padded",
                      (long long)way.micro_batch, way.world, way.apart ? "" : ", together", loss,
                      off);
        assert_int_equal(r->loss_tokens, f->loss_tokens);
        assert_int_equal(r->eval_tokens, f->loss_tokens);
        /* A document alone in its sequence needs no mask, and its padding changes nothing. */
        if (way.apart || way.layout == LAYOUT_PADDED) {
            assert_true(loss < 1e-6 && off < 1e-6);
            assert_true(relative(r->eval, f->loss) < 1e-6 && relative(r->after, f->after) < 1e-5);
            assert_true(r->accuracy == f->accuracy && r->accuracy < 1);
            assert_true(r->accuracy > 0 || positions == POSITION_LEARNED);
        } else {
            assert_true(loss > 1e-5 && off > 1e-2); /* they see each other */
        }
        if (first) munmap(job, sizeof *job);
        else first = job;
    }
    munmap(first, sizeof *first);
}

static void rotated_positions(void **state) { check_positions(POSITION_ROPE); }
static void learned_positions(void **state) { check_positions(POSITION_LEARNED); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotated_positions), cmocka_unit_test(learned_positions),
    };
    return cmocka_run_group_tests(tests, make_shard, drop_shard);
}
