#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/bench/bench.h"
#include "runner/bench/step_bench.h"
#include "runner/bench/step_energy.h"
#include "runner/bench/step_rows.h"
#include "runner/bench/step_work.h"
#include "runner/hardware/facts.h"
#include "runner/plan/fit.h"
#include "runner/script/resolve.h"

enum { MICRO_STEPS_MAX = 4, COPY_BYTES_MAX = 1 << 29 };
/* In bursts, since the floor of a step must not be above the time in a step. */
static const struct bench_effort CEILING = { .samples = 7, .sample_us = 3000, .pause_us = 10000 };

struct step_bench_options {
    int64_t steps, timed_steps;
    bool each_gemm;
    int64_t room; /* bytes of memory that the run leaves */
    struct energy_meter meter;
};

/* Measures steps operator by operator. The first one does not count: it creates the marks. */
static enum status parts(struct backend *b, struct trainer *t, const struct step_bench_options *o,
                         struct step_bench *out, struct err *e) {
    bool is_long = out->whole.time.median_us > WHOLE_LONG_US;
    int64_t steps = is_long ? (o->timed_steps < 2 ? o->timed_steps : 2) : o->timed_steps;
    struct timed *timed = NULL;
    struct step_result result;
    enum status st = OK;
    for (int64_t round = is_long ? 1 : 0; round < 2 && st == OK; round++) {
        timed_record_free(&out->record);
        st = timed_start(b, &timed, e);
        for (int64_t i = 0; i < (round ? steps : 1) && st == OK; i++) {
            st = trainer_step(t, false, &result, e);
            if (st == OK) st = timed_step_done(timed, e);
        }
        timed_stop(timed, &out->record);
        timed = NULL;
    }
    return st;
}

static enum status ceilings(struct backend *b, struct step_bench *s, struct err *e) {
    struct timed_record *r = &s->record;
    for (int i = 0; i < r->gemm_count; i++)
        TRY(ceiling_gemm(b, &r->gemm[i], &CEILING, &s->gemm[i], e));
    for (int i = 0; i < r->attention_count; i++)
        TRY(ceiling_attention(b, &r->attention[i], &CEILING, &s->attention[i], e));
    TRY(ceiling_large_gemm(b, s->mfu.fp8 ? DTYPE_E4M3 : DTYPE_BF16, &s->mfu.ceiling_tflops, e));
    int64_t bytes = round_up(s->device.memory_free / 16, ARENA_ALIGN);
    return ceiling_copy(b, bytes < COPY_BYTES_MAX ? bytes : COPY_BYTES_MAX, &CEILING,
                        &s->copy_bytes_per_s, e);
}

static enum status train(struct backend *b, const struct run_options *run, const struct data *data,
                         const struct step_bench_options *o, struct step_bench *out,
                         struct err *e) {
    struct trainer *t = NULL;
    TRY(b->ops->set_exact(b, run->exact, e));
    TRY(trainer_create(&t, b, &run->model, &run->recipe, &run->train, data, e));
    out->memory_bytes = trainer_memory_bytes(t);
    enum status st = whole_steps_measure(t, o->steps, &o->meter, &out->whole, e);
    if (st == OK && out->energy_asked && energy_is_measurable(&o->meter))
        st = energy_of_steps(t, &o->meter, &out->energy, e);
    if (st == OK) st = parts(b, t, o, out, e);
    trainer_destroy(t);
    b->ops->graph_drop(b); /* graphs hold addresses of the trainer's memory */
    const struct trainer_inputs in = { &run->model, &run->recipe, &run->train, data };
    if (st == OK && out->energy_asked)
        st = energy_of_operators(b, &in, &o->meter, &out->record, e);
    return st;
}

/* Trains on generated tokens without documents, whatever the data of `run` are, with at most four
 * micro-steps a step: all micro-steps are equal. */
static enum status measure(struct backend *b, struct run_options *run,
                           const struct step_bench_options *o, struct step_bench *out,
                           struct err *e) {
    const struct data_options tokens = { .kind = DATA_SYNTHETIC, .seed = 1234 };
    struct data *data = NULL;
    out->backend = b->ops->name;
    out->micro_batch = run->train.micro_batch;
    out->micro_steps_asked = run->train.global_batch / run->train.micro_batch;
    out->micro_steps = out->micro_steps_asked < MICRO_STEPS_MAX ? out->micro_steps_asked
                                                                : MICRO_STEPS_MAX;
    run->train.global_batch = out->micro_steps * run->train.micro_batch;
    run->train.documents = (struct document_options){ 0 };
    run->train.fp8_error = 0; /* steps that measure errors, or are audited, have more operators */
    run->train.audit.every = 0;
    out->seq_len = run->model.seq_len;
    out->energy_asked = o->meter.window_us > 0;
    TRY(b->ops->info(b, &out->device, e));
    TRY(data_open(&data, &tokens, run->model.vocab, run->model.seq_len, run->train.seed, e));
    enum status st = train(b, run, data, o, out, e);
    const struct trainer_inputs in = { &run->model, &run->recipe, &run->train, data };
    out->changes_asked = o->each_gemm;
    if (st == OK && o->each_gemm)
        st = gemm_changes_measure(b, &in, o->room, o->steps, &o->meter, &out->changes, e);
    data_close(data);
    TRY(st);
    char cc[8];
    int capability = 0; /* "sm_90" -> "9.0"; a CPU has none and no peak */
    if (sscanf(out->device.architecture, "sm_%d", &capability) != 1) capability = 0;
    snprintf(cc, sizeof cc, "%d.%d", capability / 10 % 1000, capability % 10);
    mfu_of_device(&out->mfu, run, out->device.name, cc, 1);
    out->model_flop = out->mfu.flop_per_token * (double)out->whole.tokens;
    for (int i = 0; i < out->record.attention_count && model_has_window(&run->model); i++)
        out->record.attention[i].window = run->model.window;
    TRY(ceilings(b, out, e));
    step_lower_ceilings(out);
    return OK;
}

/* ---- the kind of `bench` ----------------------------------------------------------------------*/

static enum status bench_run(const struct cli *cli, struct backend *b,
                             const struct resolved_run *run, const struct step_bench_options *o,
                             struct step_row *row, json_t *rows, struct err *e) {
    struct run_options options;
    struct step_bench s = { .name = "" };
    TRY(options_read(run->config_json, &options, e));
    if (options.train.documents.mask)
        cli_note(cli, "%s: its data are generated: attention is measured over whole sequences, not "
                 "within documents", run->name);
    snprintf(s.name, sizeof s.name, "%s", run->name);
    snprintf(s.recipe, sizeof s.recipe, "%s",
             json_text(json_object_get(run->config_json, "recipe"), "kind", "?"));
    enum status st = measure(b, &options, o, &s, e);
    bool failed = false;
    if (st == OK && cli->json) json_append(rows, step_bench_json(&s), &failed);
    else if (st == OK) step_bench_print(cli, &s, cli_has(cli, "detail"));
    if (failed) st = FAIL(e, ERR_MEMORY, "a row of JSON");
    if (st == OK && s.whole.time.median_us > STEP_BUSY_RATIO * s.whole.time.best_us)
        cli_warn(cli, "%s: a step took %.3g ms at the median and %.3g ms at best: the machine was "
                 "busy; measure again when it is idle", run->name, s.whole.time.median_us * 1e-3,
                 s.whole.time.best_us * 1e-3);
    if (st == OK) step_row_of(&s, &options.model, row);
    timed_record_free(&s.record);
    options_free(&options);
    return st;
}

/* Checked before any measurement: a run that exhausts host memory would end other programs.
 * room[i]: the bytes that run i leaves. */
static enum status check_memory(const struct backend *b, const struct resolution *r, int64_t *room,
                                struct err *e) {
    json_t *facts = NULL;
    enum status st = facts_gather(&facts, NULL, 0, e);
    for (int64_t i = 0; i < r->run_count && st == OK; i++) {
        struct fit fit;
        char text[FIT_TEXT_CAP];
        st = fit_plan(r->runs[i].config_json, facts, b->ops->name, 1, &fit, e);
        if (st == OK && !fit.fits) {
            fit_refusal(r->runs[i].name, &fit, text);
            st = FAIL(e, ERR_HARDWARE, "%s", text);
        }
        room[i] = fit.memory ? fit.memory - fit.wanted : INT64_MAX;
        fit_free(&fit);
    }
    json_decref(facts);
    return st;
}

/* An experiment for several GPUs is measured on one, with the whole batch. */
static void note_one_device(const struct cli *cli, const struct resolved_run *run) {
    const json_t *train = json_object_get(run->config_json, "train");
    int64_t batch = json_integer_value(json_object_get(train, "global_batch"));
    int64_t gpus = json_integer_value(
        json_object_get(json_object_get(run->config_json, "hardware"), "gpus"));
    if (gpus > 1)
        cli_note(cli, "%s: one device is measured, with the whole batch of %" PRId64 "; the share "
                 "of one of %" PRId64 ": --set hardware.gpus=1 --set train.global_batch=%" PRId64,
                 run->name, batch, gpus, batch / gpus);
}

static enum status bench_runs(const struct cli *cli, struct backend *b,
                              const struct resolution *r, const struct step_bench_options *o,
                              json_t *rows, struct err *e) {
    struct step_row *row = calloc((size_t)r->run_count + 1, sizeof *row);
    int64_t *room = calloc((size_t)r->run_count + 1, sizeof *room);
    enum status st = row && room ? OK : FAIL(e, ERR_MEMORY, "figures of the runs");
    if (st == OK) st = check_memory(b, r, room, e);
    for (int64_t i = 0; i < r->run_count && st == OK; i++) {
        struct step_bench_options mine = *o;
        mine.room = room[i];
        note_one_device(cli, &r->runs[i]);
        cli_note(cli, "%s: measuring whole steps, then each operator alone%s", r->runs[i].name,
                 o->each_gemm ? ", then whole steps with one kind of GEMM changed" : "");
        st = bench_run(cli, b, &r->runs[i], &mine, &row[i], rows, e);
    }
    if (st == OK && cli->json) st = step_rows_json(row, r->run_count, rows, e);
    else if (st == OK && r->run_count > 1)
        step_rows_print(cli, row, r->run_count, o->meter.window_us > 0);
    free(row);
    free(room);
    return st;
}

enum status bench_step(const struct cli *cli, const struct resolution *script, struct backend *b,
                       const struct energy_meter *m, json_t *rows, struct err *e) {
    struct step_bench_options o = { .steps = 10, .timed_steps = 5, .meter = *m,
                                    .each_gemm = cli_has(cli, "each-gemm") };
    TRY(cli_int(cli, "steps", 1, 1000, &o.steps, e));
    return bench_runs(cli, b, script, &o, rows, e);
}
