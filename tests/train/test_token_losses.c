/* The losses of given tokens are those of an evaluation, in every recipe, and change no bit of a
 * run. */
#include <math.h>
#include <string.h>

#include "model/logits.h"
#include "tests/support/must.h"
#include "tests/support/tiny.h"

enum { B = 2, T = 32, V = 96, STEPS = 3, LEARNS = 15 };

/* Steps, with losses of other tokens asked between them or not. */
static void train(enum recipe_kind kind, bool asks, float *eval_loss, char weights[65]) {
    struct tiny_run r;
    struct step_result s;
    struct eval_result eval;
    int32_t tokens[B * T], targets[B * T];
    float losses[B * T];
    for (int i = 0; i < B * T; i++) tokens[i] = targets[i] = (5 * i * i + i) % V;
    tiny_run_init(&r, kind, STEPS);
    r.train.accuracy = asks;
    MUST(tiny_run_open(&r, E));
    for (int i = 0; i < STEPS; i++) {
        if (asks) MUST(trainer_losses(r.trainer, tokens, targets, losses, E));
        MUST(trainer_step(r.trainer, false, &s, E));
    }
    if (asks) MUST(trainer_losses(r.trainer, tokens, targets, losses, E));
    MUST(trainer_eval(r.trainer, 2, &eval, E));
    assert_int_equal(isnan(eval.accuracy), !asks);
    *eval_loss = eval.loss;
    MUST(trainer_weights_sha256(r.trainer, weights, E));
    tiny_run_close(&r);
}

static void no_bit_of_a_run_changes(void **state) {
    for (int kind = 0; kind < RECIPE_KIND_COUNT; kind++) {
        float loss[2];
        char weights[2][65];
        for (int asks = 0; asks < 2; asks++)
            train((enum recipe_kind)kind, asks, &loss[asks], weights[asks]);
        if (memcmp(&loss[0], &loss[1], 4) || strcmp(weights[0], weights[1]))
            fail_msg("%s", RECIPE_KIND_NAMES[kind]);
    }
}

static double loss_of(const float *logits, int32_t target) {
    double sum = 0;
    for (int i = 0; i < V; i++) sum += exp((double)logits[i]);
    return log(sum) - (double)logits[target];
}

/* The share of the rows whose target has the largest logit. */
static double share_right(const float *logits, const int32_t *targets) {
    int right = 0;
    for (int i = 0; i < B * T; i++) {
        const float *row = logits + i * V;
        bool largest = true;
        for (int k = 0; k < V; k++) largest &= row[k] <= row[targets[i]];
        right += largest;
    }
    return (double)right / (B * T);
}

/* Beside the logits, token by token; a target of -1 has none. */
static void each_token_has_its_own(void **state) {
    static float logits[B * T * V];
    double rights = 0;
    for (int kind = 0; kind < RECIPE_KIND_COUNT; kind++) {
        struct tiny_run r;
        struct step_result s;
        struct eval_result eval;
        int32_t tokens[B * T], targets[B * T];
        int64_t row[B * T];
        float losses[B * T];
        double sum = 0;
        for (int i = 0; i < B * T; i++) row[i] = i;
        tiny_run_init(&r, (enum recipe_kind)kind, LEARNS);
        r.train.accuracy = true;
        MUST(tiny_run_open(&r, E));
        for (int i = 0; i < LEARNS; i++) MUST(trainer_step(r.trainer, false, &s, E));
        MUST(trainer_eval(r.trainer, 1, &eval, E));
        MUST(data_batch(r.data, SPLIT_EVAL, 0, B, tokens, targets, NULL, E));
        MUST(trainer_logits(r.trainer, tokens, row, B * T, logits, E));
        assert_true(eval.accuracy == share_right(logits, targets));
        MUST(trainer_eval(r.trainer, 1, &eval, E)); /* counts begin at 0 again */
        assert_true(eval.accuracy == share_right(logits, targets));
        rights += eval.accuracy * B * T;
        MUST(trainer_losses(r.trainer, tokens, targets, losses, E));
        for (int i = 0; i < B * T; i++) sum += (double)losses[i] / (B * T);
        assert_true(fabs(sum - (double)eval.loss) < 1e-6);
        for (int i = 3; i < B * T; i += 7) targets[i] = -1;
        MUST(trainer_losses(r.trainer, tokens, targets, losses, E));
        MUST(trainer_logits(r.trainer, tokens, row, B * T, logits, E));
        for (int i = 0; i < B * T; i++) {
            double wanted = targets[i] < 0 ? 0 : loss_of(logits + i * V, targets[i]);
            if (fabs((double)losses[i] - wanted) > 1e-5)
                fail_msg("%s row %d: %.7f, by its logits %.7f", RECIPE_KIND_NAMES[kind], i,
                         (double)losses[i], wanted);
        }
        tiny_run_close(&r);
    }
    assert_true(rights > 0 && rights < B * T * RECIPE_KIND_COUNT);
}

/* Document masks of the data do not reach the given sequences, and come back with the data. */
static void a_sequence_is_one_document(void **state) {
    float losses[2][B * T];
    int32_t tokens[B * T];
    for (int i = 0; i < B * T; i++) tokens[i] = (3 * i * i + i) % V;
    for (int masked = 0; masked < 2; masked++) {
        struct tiny_run r;
        tiny_run_init(&r, RECIPE_BF16, STEPS);
        r.model.window = 8;
        MUST(tiny_run_open(&r, E));
        MUST(trainer_losses(r.trainer, tokens, tokens, losses[masked], E));
        trainer_destroy(r.trainer);
        data_close(r.data);
        r.data = NULL;
        r.train.documents = (struct document_options){ masked, masked };
        MUST(trainer_create(&r.trainer, r.backend, &r.model, &r.recipe, &r.train, NULL, E));
        MUST(trainer_losses(r.trainer, tokens, tokens, losses[masked], E));
        tiny_run_close(&r);
    }
    assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
}

static void unknown_ids_are_refused(void **state) {
    struct tiny_run r;
    int32_t good[B * T] = { 0 }, bad[B * T] = { 0 };
    float losses[B * T];
    tiny_run_init(&r, RECIPE_BF16, STEPS);
    MUST(tiny_run_open(&r, E));
    bad[7] = V;
    MUST_FAIL(ERR_ARG, "token 96 at row 7; the model has 96",
              trainer_losses(r.trainer, bad, good, losses, E));
    bad[7] = -1;
    MUST_FAIL(ERR_ARG, "token -1 at row 7", trainer_losses(r.trainer, bad, good, losses, E));
    MUST(trainer_losses(r.trainer, good, bad, losses, E));
    MUST(trainer_queue(r.trainer, false, E));
    MUST_FAIL(ERR_STATE, "collect it first", trainer_losses(r.trainer, good, good, losses, E));
    tiny_run_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_bit_of_a_run_changes),
        cmocka_unit_test(each_token_has_its_own),
        cmocka_unit_test(a_sequence_is_one_document),
        cmocka_unit_test(unknown_ids_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
