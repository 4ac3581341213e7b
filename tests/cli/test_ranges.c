/* Ranges nest below another table that times the same operators, change no bit, and are gone after
 * ranges_stop. Graphs are neither captured nor replayed on request. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "runner/bench/timed_backend.h"
#include "runner/profile/ranges.h"
#include "tests/support/must.h"
#include "tests/support/tiny.h"

static struct { int depth, deepest, pushes, layers; bool in_step; } seen;

static int push(const char *text) {
    if (!strncmp(text, "step ", 5)) seen.in_step = seen.depth == 0;
    seen.layers += !strncmp(text, "layers.", 7);
    seen.pushes++;
    if (++seen.depth > seen.deepest) seen.deepest = seen.depth;
    return seen.depth - 1;
}
static int pop(void) { return --seen.depth; }

static float step_of(struct tiny_run *run) {
    struct step_result result;
    MUST(trainer_step(run->trainer, false, &result, E));
    return result.loss;
}

static void ranges_nest_below_timing(void **state) {
    const struct nvtx nvtx = { .push = push, .pop = pop };
    struct tiny_run run, plain;
    struct ranges *ranges;
    struct timed *timed;
    struct timed_record record;
    tiny_run_init(&run, RECIPE_TENSORWISE, 2);
    tiny_run_init(&plain, RECIPE_TENSORWISE, 2);
    MUST(tiny_run_open(&run, E));
    MUST(tiny_run_open(&plain, E));
    const struct backend before = *run.backend;
    MUST(ranges_start(run.backend, &nvtx, false, &ranges, E));
    MUST(timed_start(run.backend, &timed, E));
    memset(&seen, 0, sizeof seen);
    assert_true(step_of(&run) == step_of(&plain));
    MUST(timed_step_done(timed, E));
    timed_stop(timed, &record);
    assert_true(seen.depth == 0 && seen.in_step);
    assert_int_equal(seen.layers, 2 * 2 * 2); /* micro-batches, layers, directions */
    assert_true(seen.deepest >= 5); /* step, micro-batch, phase, layer, operator */
    assert_true(seen.pushes > record.call_count);
    int pushes = seen.pushes;
    ranges_stop(ranges);
    assert_memory_equal(run.backend, &before, sizeof before);
    assert_true(step_of(&run) == step_of(&plain));
    assert_int_equal(seen.pushes, pushes);
    timed_record_free(&record);
    tiny_run_close(&run);
    tiny_run_close(&plain);
}

/* Calls that reach a backend with graphs. */
static struct { int replays, captures; } graphs;

static enum status replay(struct backend *b, enum graph_key key, bool *replayed, struct err *e) {
    *replayed = graphs.replays++ > 0;
    return OK;
}
static enum status capture(struct backend *b, enum graph_key key, struct err *e) {
    graphs.captures++;
    return OK;
}

static void without_graphs_on_request(void **state) {
    const struct nvtx nvtx = { .push = push, .pop = pop };
    struct tiny_run run;
    tiny_run_init(&run, RECIPE_BF16, 2);
    MUST(tiny_run_open(&run, E));
    const struct backend_ops *real = run.backend->ops;
    struct backend_ops table = *real;
    table.graph_replay = replay;
    table.graph_begin = table.graph_end = capture;
    run.backend->ops = &table;
    for (int uncaptured = 0; uncaptured < 2; uncaptured++)
        for (int with = 0; with < 2; with++) {
            struct ranges *ranges;
            bool replayed = true;
            memset(&graphs, 0, sizeof graphs);
            MUST(ranges_start(run.backend, with ? &nvtx : NULL, uncaptured != 0, &ranges, E));
            MUST(run.backend->ops->graph_begin(run.backend, GRAPH_EVAL, E));
            MUST(run.backend->ops->graph_end(run.backend, GRAPH_EVAL, E));
            for (int i = 0; i < 2; i++)
                MUST(run.backend->ops->graph_replay(run.backend, GRAPH_EVAL, &replayed, E));
            ranges_stop(ranges);
            assert_int_equal(graphs.captures, uncaptured ? 0 : 2);
            assert_int_equal(graphs.replays, uncaptured ? 0 : 2);
            assert_int_equal(replayed, !uncaptured);
        }
    run.backend->ops = real;
    tiny_run_close(&run);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_nest_below_timing),
        cmocka_unit_test(without_graphs_on_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
