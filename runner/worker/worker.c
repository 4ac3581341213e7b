#include "runner/worker/worker.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/choices.h"
#include "kernels/histogram.h"
#include "model/checkpoint.h"
#include "model/checkpoint_writer.h"
#include "model/fallback.h"
#include "model/ground/sha256.h"
#include "runner/base/clock.h"
#include "runner/base/run_files.h"
#include "runner/base/signals.h"
#include "runner/cache/eval_sets.h"
#include "runner/certify/forbidden.h"
#include "runner/hardware/facts.h"
#include "runner/job/board.h"
#include "runner/job/events.h"
#include "runner/plan/backends.h"
#include "runner/plan/options.h"
#include "runner/plan/saving.h"
#include "runner/profile/profile.h"
#include "runner/record/choice_cache.h"
#include "runner/record/choice_file.h"
#include "runner/record/data_check.h"
#include "runner/record/documents.h"
#include "runner/record/ingest_record.h"
#include "runner/record/init_record.h"
#include "runner/worker/audit_report.h"
#include "runner/worker/heartbeat.h"
#include "runner/worker/retention.h"
#include "runner/worker/samples.h"
#include "runner/worker/worker_events.h"

enum { TELEMETRY_EVERY_US = 1000000 };

struct worker {
    const struct worker_options *options;
    struct event_writer *events;
    struct signals signals;
    struct board *board, alone; /* shared with the runner; `alone` if there is no runner */
    struct heartbeat *heartbeat;
    struct mesh mesh;        /* connections to the other ranks */
    struct comm_group group; /* the same for the backend */
    json_t *resolved, *trained; /* the configuration; with the shards of its text as data */
    struct run_options run;
    struct backend_handle device;
    struct profile profile;
    struct data *data;
    struct trainer *trainer;
    struct fp8_slot *slots; /* [slot_count] */
    uint64_t *fingerprints; /* [tensor_count] */
    int64_t slot_count, tensor_count;
    struct eval_result *sets; /* [data_set_count]; NULL: eval.also names none, or no evaluation */
    int64_t *histograms; /* [tensor_count][HISTOGRAM_COUNTS]; NULL: none are asked for */
    struct samples samples;
    struct retention retention;
    char checkpoints[PATH_CAP];  /* data/checkpoints of the run */
    int64_t saved_step;          /* of the newest checkpoint, -1: none */
    int64_t saved_us;            /* when it was saved, or this process began (clock.h) */
    bool save_asked;             /* by checkpoint.minutes; rank 0 */
    struct checkpoint_writer *writer;
    int64_t stall_us;            /* how long the steps waited for the checkpoint being written */
    struct start_times spent;    /* on the way to the first step */
    int64_t finish_step;         /* all ranks have written, and finish after it; 0: not yet */
    int64_t save_step;           /* all ranks save after this step; 0: no such request */
    int64_t telemetry_us;        /* when telemetry was last emitted (clock.h) */
    char *choices;               /* the run's choice table; "": none */
    bool tuned;                  /* report_first_step() has run */
    bool without_loss;           /* a step without a token with loss was reported */
    bool stop;                   /* a signal, or stop_after */
    bool cut;                    /* a stop request ended the texts of the last step */
    int stop_signal;             /* the signal that this rank got; 0: none */
    int64_t stop_step;           /* all ranks stop after this step; 0: no stop request */
    struct step_result result;   /* of the last collected step, or of the step that failed */
};

static bool is_rank0(const struct worker *w) { return w->options->rank == 0; }

/* ---- building ---------------------------------------------------------------------------------*/

static enum status report_decisions(struct worker *w, struct err *e) {
    char choices[SHA256_HEX] = "";
    if (*w->choices) TRY(sha256_bytes(w->choices, strlen(w->choices), choices, e));
    return say_decisions(w->events, w->device.backend, w->trainer, w->options->world,
                         model_vocab_padded(&w->run.model), w->options->caps, w->options->forbid,
                         w->options->arithmetic, choices, e);
}

/* Emits the choice table if it has grown (*grew): after the first step, and after an evaluation,
 * which may have other shapes. */
static enum status report_choices(struct worker *w, bool *grew, struct err *e) {
    struct backend *b = w->device.backend;
    char *text = NULL;
    TRY(b->ops->choices_save(b, &text, e));
    enum status st = OK;
    char *timed = NULL;
    *grew = strcmp(text, w->choices) != 0;
    if (*grew) st = b->ops->choices_timed(b, &timed, e);
    if (st == OK && timed) st = say_choices(w->events, text, timed, e);
    free(timed);
    free(w->choices);
    w->choices = text;
    return st;
}

/* Each rank's table, for the runner to compare: without the head, since other GPUs may compute
 * alike. */
static enum status report_table(struct worker *w, struct err *e) {
    char sha256[SHA256_HEX] = "", *text = NULL;
    struct backend *b = w->device.backend;
    struct choices_reader r = { .at = "" };
    TRY(b->ops->choices_save(b, &text, e));
    enum status st = *text ? choices_open(&r, text, e) : OK;
    if (st == OK && *text) st = sha256_bytes(r.at, strlen(r.at), sha256, e);
    if (st == OK && *text) st = say_table(w->events, sha256, e);
    free(text);
    return st;
}

/* Loads the run's table. With --choose-anew, a table of another device is dropped. */
static enum status load_choices(struct worker *w, struct err *e) {
    struct backend *b = w->device.backend;
    const char *wanted = w->options->choices ? w->options->choices : "";
    TRY(choice_file_read(w->options->run_path, wanted, &w->choices, e));
    enum status st = b->ops->choices_load(b, w->choices, e);
    if (st != ERR_CONFIG || !w->options->choose_anew) return st;
    if (is_rank0(w)) TRY(say_log(w->events, e->text, e));
    w->choices[0] = '\0';
    TRY(b->ops->choices_load(b, w->choices, e));
    return is_rank0(w) ? say_choices(w->events, w->choices, "", e) : OK;
}

/* Without the choices of earlier runs, this one times its own. */
static enum status take_offers(struct worker *w, struct err *e) {
    struct err why;
    if (!is_rank0(w)) return OK;
    enum status st = choice_cache_take(w->options->run_path, w->device.backend, &why);
    return st == OK ? OK : say_log(w->events, why.text, e);
}

/* Connects this rank with the others. */
static enum status connect_ranks(struct worker *w, struct err *e) {
    const struct worker_options *o = w->options;
    if (o->world == 1) return OK;
    enum status st = rendezvous_join(&w->board->rendezvous, (int)o->rank, (int)o->world,
                                     (int)o->rendezvous_fd, &w->mesh, e);
    if (o->rendezvous_fd >= 0) close((int)o->rendezvous_fd);
    board_met(w->board, st == OK);
    w->group = (struct comm_group){ .rank = (int)o->rank, .world = (int)o->world,
                                    .link = w->mesh.link, .host = w->mesh.host,
                                    .note = &w->board->note };
    return st;
}

static enum status start_profile(struct worker *w, struct err *e) {
    char text[400];
    if (!w->options->profile) return OK;
    TRY(profile_start(w->device.backend, true, &w->profile, e));
    snprintf(text, sizeof text, "--profile: steps run without graphs; %s", w->profile.text);
    return is_rank0(w) ? say_log(w->events, text, e) : OK;
}

/* train.exact: what it means on this backend is in the log. */
static enum status take_exact(struct worker *w, struct err *e) {
    struct backend *b = w->device.backend;
    bool cpu = strcmp(b->ops->name, "cuda") != 0;
    TRY(b->ops->set_exact(b, true, e));
    if (!is_rank0(w) || (cpu && w->options->arithmetic)) return OK;
    return say_log(w->events, cpu ? "train.exact: the cpu backend has its own bits; those of a GPU "
                                    "need --arithmetic hopper"
                                  : "train.exact: operators have the bits of --backend cpu "
                                    "--arithmetic hopper, but for what kernels/EXACT.md calls near",
                   e);
}

static enum status open_device(struct worker *w, struct err *e) {
    const struct worker_options *o = w->options;
    TRY(connect_ranks(w, e));
    TRY(backend_open(o->backend, o->threads, o->device, &w->device, e));
    struct backend *b = w->device.backend;
    TRY(b->ops->comm.init(b, o->world > 1 ? &w->group : NULL, e));
    TRY(start_profile(w, e));
    heartbeat_watch(w->heartbeat, b);
    if (o->caps) TRY(b->ops->assume_architecture(b, o->caps, e));
    if (w->run.attention != ATTENTION_AUTO)
        TRY(b->ops->attention_backend(b, w->run.attention, e));
    TRY(forbidden_apply(b, o->forbid, e));
    if (o->arithmetic) TRY(backend_calculate(&w->device, o->arithmetic, e));
    if (w->run.exact) TRY(take_exact(w, e));
    TRY(load_choices(w, e));
    TRY(take_offers(w, e));
    return is_rank0(w) ? report_decisions(w, e) : OK;
}

/* Out of memory before the first step: adds the planned size of each arena, and ways to need
 * less. */
static void explain_memory(const struct worker *w, const struct plan *plan, struct err *e) {
    char arenas[400] = "", less[256];
    size_t used = 0;
    int64_t bytes = 0;
    for (int64_t i = 0; i < plan->row_count; i++) {
        bytes += plan->row[i].bytes;
        bool last = i + 1 == plan->row_count ||
                    strcmp(plan->row[i].arena, plan->row[i + 1].arena) != 0;
        if (!last || used >= sizeof arenas) continue;
        int n = snprintf(arenas + used, sizeof arenas - used, "%s%s %.1f", used ? ", " : "",
                         plan->row[i].arena, (double)bytes / 0x1p20);
        used += n > 0 ? (size_t)n : 0;
        bytes = 0;
    }
    err_prefix(e, "out of memory before step 0; %.1f MiB are planned (%s)",
               (double)plan->bytes / 0x1p20, arenas);
    const struct saving_run saving = { .layers = w->run.model.layers,
                                       .ranks = (int)w->options->world,
                                       .codes = saving_has_codes(&w->run.recipe,
                                                                 w->run.model.tied) };
    fit_less_memory(&w->run.train, &saving, less, sizeof less);
    size_t n = strlen(e->text);
    if (*less) snprintf(e->text + n, sizeof e->text - n, "; less memory:%s", less);
}

static enum status build_trainer(struct worker *w, struct err *e) {
    struct run_options *r = &w->run;
    struct plan plan = { 0 };
    int64_t clock = clock_us();
    r->train.resumes = w->options->from > 0;
    r->train.untransposed =
        w->device.backend->ops->twins_untransposed(w->device.backend, SCALE_1X32);
    TRY(recipe_fall_back(&r->recipe, &r->model, &r->train, w->device.backend, e));
    TRY(trainer_plan(&plan, &r->model, &r->recipe, &r->train, (int)w->options->world, e));
    enum status st = is_rank0(w) ? say_plan(w->events, &plan, e) : OK;
    if (st == OK)
        st = data_open(&w->data, &r->data, r->model.vocab, r->model.seq_len, r->train.seed, e);
    if (st == OK) st = data_check(w->options->run_path, w->data, e);
    w->spent.text_us = clock_lap_us(&clock);
    if (st == OK)
        st = trainer_create(&w->trainer, w->device.backend, &r->model, &r->recipe, &r->train,
                            w->data, e);
    if (st == OK) w->spent.trainer = trainer_times(w->trainer);
    if (st == ERR_MEMORY) explain_memory(w, &plan, e);
    if (st == OK && is_rank0(w)) st = say_fallback(w->events, w->trainer, e);
    plan_free(&plan);
    return st;
}

/* The sets of eval.also, for the records of their losses. */
static enum status name_sets(struct worker *w, struct err *e) {
    const char *name[EVAL_SETS_MAX];
    int64_t count = data_set_count(w->data);
    if (count == 0) return OK;
    w->sets = calloc((size_t)count, sizeof *w->sets);
    if (!w->sets) return FAIL(e, ERR_MEMORY, "the losses of %" PRId64 " sets", count);
    for (int64_t i = 0; i < count; i++) name[i] = data_set_name(w->data, i);
    const char *event = STREAMS[STREAM_EVAL_SETS].labels_event;
    return is_rank0(w) ? say_names(w->events, event, name, count, e) : OK;
}

static enum status name_observations(struct worker *w, struct err *e) {
    const char *const *slots = trainer_slots(w->trainer, &w->slot_count);
    const char *const *tensors = trainer_trace_tensors(w->trainer, &w->tensor_count);
    w->slots = calloc((size_t)w->slot_count + 1, sizeof *w->slots);
    w->fingerprints = calloc((size_t)w->tensor_count + 1, sizeof *w->fingerprints);
    if (!w->slots || !w->fingerprints)
        return FAIL(e, ERR_MEMORY, "%" PRId64 " slots and %" PRId64 " traced tensors",
                    w->slot_count, w->tensor_count);
    TRY(name_sets(w, e));
    if (!is_rank0(w)) return OK;
    size_t counts = (size_t)w->tensor_count * HISTOGRAM_COUNTS;
    if (w->run.train.histograms) w->histograms = calloc(counts, sizeof *w->histograms);
    if (w->run.train.histograms && !w->histograms)
        return FAIL(e, ERR_MEMORY, "histograms of %" PRId64 " tensors", w->tensor_count);
    if (w->slot_count) TRY(say_names(w->events, "slots", slots, w->slot_count, e));
    return say_names(w->events, "tensors", tensors, w->tensor_count, e);
}

/* Without host memory for a copy, the steps wait for the disk. */
static enum status open_writer(struct worker *w, struct err *e) {
    struct err why;
    char text[400];
    int64_t free_bytes = facts_memory_available();
    /* The ranks of a host share its memory; the kernel kills a process that pins too much. */
    int64_t most = free_bytes < 0 ? INT64_MAX : free_bytes / 4 * 3 / w->options->world;
    if (!w->run.checkpoint.given || !w->run.checkpoint.background) most = 0;
    enum status st = checkpoint_writer_create(w->trainer, most, &w->writer, &why);
    if (st == OK) return OK;
    snprintf(text, sizeof text, "checkpoints are written while the steps wait: %.300s", why.text);
    TRY(say_log(w->events, text, e));
    return checkpoint_writer_create(w->trainer, 0, &w->writer, e);
}

static enum status restore(struct worker *w, struct err *e) {
    struct checkpoint_info info = { .step = -1 };
    struct init_imported imported = { 0 };
    char path[CHECKPOINT_PATH_CAP];
    int64_t from = w->options->from, clock = clock_us();
    w->saved_step = from ? from : -1;
    TRY(path_join(w->checkpoints, w->options->run_path, RUN_PATH_checkpoints, e));
    if (from) TRY(checkpoint_path(path, w->checkpoints, from, e));
    if (from) TRY(checkpoint_load(w->trainer, path, &info, e));
    else TRY(init_record_import(&(struct init_import){ w->options->run_path, &w->run.model,
                                                       w->trainer, w->run.init_restart },
                                &imported, e));
    if (is_rank0(w)) TRY(say_imported(w->events, &imported, e));
    TRY(open_writer(w, e));
    bool endless = w->run.data.kind == DATA_SYNTHETIC;
    int64_t sequences = endless ? 0 : data_sequences(w->data, SPLIT_TRAIN);
    TRY(retention_open(w->options->run_path, &w->run, sequences, &w->retention, e));
    w->spent.reading_us = clock_lap_us(&clock);
    w->saved_us = clock;
    TRY(say_ready(w->events, &w->spent, e));
    return is_rank0(w) ? say_start(w->events, trainer_step_count(w->trainer), w->run.train.steps,
                                   sequences, from ? info.sha256 : NULL, e)
                       : OK;
}

static enum status build(struct worker *w, struct err *e) {
    TRY(json_file_read(w->options->config, &w->resolved, e));
    TRY(ingest_record_apply(w->options->run_path, w->resolved, &w->trained, e));
    TRY(options_read(w->trained, &w->run, e));
    bool shards = w->trained != w->resolved; /* by an absolute path */
    w->run.data.root = shards ? NULL : w->options->data_root;
    int64_t clock = clock_us();
    TRY(open_device(w, e));
    w->spent.device_us = clock_lap_us(&clock);
    TRY(build_trainer(w, e));
    TRY(name_observations(w, e));
    TRY(samples_open(&w->samples, w->options->run_path, json_object_get(w->resolved, "data"),
                     &w->run, w->trainer, is_rank0(w), e));
    return restore(w, e);
}

/* ---- a step -----------------------------------------------------------------------------------*/

/* An error that costs a checkpoint, not the run: each rank with an error of its own reports it. */
static enum status survive(struct worker *w, int64_t step, enum status st, struct err *why,
                           struct err *e) {
    struct err lost = *why;
    if (checkpoint_survive(w->trainer, st, &lost) != OK) {
        *e = *why;
        return st;
    }
    w->saved_step = -1; /* a save of the same step tries again */
    return st == ERR_PEER ? OK : say_unsaved(w->events, step, why, e);
}

/* Ends the write that has begun, if there is one. must: an error ends the run. */
static enum status finish_save(struct worker *w, bool must, struct err *e) {
    struct checkpoint_info info;
    struct err why = { 0 };
    int64_t write_us, begin_us = clock_us();
    if (!checkpoint_begun(w->writer)) return OK;
    w->finish_step = 0;
    enum status st = checkpoint_finish(w->writer, &info, &write_us, &why);
    if (st != OK && must) *e = why;
    if (st != OK) return must ? st : survive(w, w->saved_step, st, &why, e);
    if (!is_rank0(w)) return OK;
    w->stall_us += clock_us() - begin_us;
    TRY(say_checkpoint(w->events, &info, w->stall_us, write_us, e));
    return retention_prune(&w->retention, w->checkpoints, info.step, e);
}

/* Saves the step last collected, unless it is saved. must: it is on disk on return; otherwise an
 * error only costs the checkpoint. */
static enum status save(struct worker *w, bool must, struct err *e) {
    struct err why = { 0 };
    int64_t step = trainer_step_count(w->trainer), begin_us = clock_us();
    bool begun = w->saved_step == step;
    if (begun && !must) return OK;
    board_phase(w->board, BOARD_SAVING);
    TRY(finish_save(w, false, e));
    if (w->saved_step == step) return OK;
    TRY(audit_finish(w->events, w->trainer, w->options->rank, e));
    /* Resuming from a checkpoint newer than the records would leave a gap in them. */
    if (is_rank0(w)) TRY(event_settle(w->events, e));
    w->saved_step = step;
    w->saved_us = clock_us();
    w->save_asked = false;
    enum status st = checkpoint_begin(w->writer, w->checkpoints, &why);
    w->stall_us = clock_us() - begin_us;
    if (st != OK && must) *e = why;
    if (st != OK && !must) return survive(w, step, st, &why, e);
    if (st == OK && (must || !w->run.checkpoint.background)) st = finish_save(w, must, e);
    if (st != OK && must)
        err_prefix(e, "the last checkpoint, of step %" PRId64 ", is missing", step);
    return st;
}

static enum status observe(struct worker *w, struct err *e) {
    struct stream_source source = { .step = &w->result, .step_number = w->result.step };
    if (w->slot_count) {
        trainer_read_fp8(w->trainer, w->slots);
        source.slot = w->slots;
        source.width = w->slot_count;
        if (is_rank0(w)) TRY(say_record(w->events, STREAM_FP8, &source, e));
        if (is_rank0(w) && w->result.measured)
            TRY(say_record(w->events, STREAM_FP8_ERROR, &source, e));
    }
    if (w->result.traced) {
        TRY(trainer_trace(w->trainer, w->fingerprints, e));
        source.fingerprint = w->fingerprints;
        source.width = w->tensor_count;
        if (is_rank0(w)) TRY(say_record(w->events, STREAM_TRACE, &source, e));
    }
    int64_t now = clock_us();
    if (now - w->telemetry_us < TELEMETRY_EVERY_US) return OK;
    w->telemetry_us = now;
    source.rank = w->options->rank;
    source.device = w->options->device;
    source.device_bytes = trainer_memory_bytes(w->trainer);
    source.dropped = event_dropped(w->events);
    return say_record(w->events, STREAM_TELEMETRY, &source, e);
}

/* Called after each step; acts on the first of this process, in which the backend chose
 * algorithms. */
static enum status report_first_step(struct worker *w, struct err *e) {
    struct backend *b = w->device.backend;
    struct decision first;
    bool grew;
    if (w->tuned) return OK;
    w->tuned = true;
    TRY(report_table(w, e));
    if (!is_rank0(w)) return OK;
    TRY(report_choices(w, &grew, e));
    if (!grew && !b->ops->decision(b, 0, &first)) return OK;
    TRY(report_decisions(w, e));
    return say_emulated(w->events, b, e);
}

/* The further sets, after the run's own. */
static enum status evaluate_sets(struct worker *w, struct err *e) {
    int64_t count = data_set_count(w->data);
    struct stream_source source = { .set = w->sets, .step_number = w->result.step,
                                    .width = count };
    for (int64_t i = 0; i < count; i++)
        TRY(trainer_eval_set(w->trainer, i, w->run.eval.batches, &w->sets[i], e));
    if (heartbeat_error(w->heartbeat, e)) return ERR_PEER;
    return count && is_rank0(w) ? say_record(w->events, STREAM_EVAL_SETS, &source, e) : OK;
}

static enum status evaluate(struct worker *w, struct err *e) {
    struct eval_result result;
    board_phase(w->board, BOARD_EVALUATING);
    /* The clean-up after an earlier checkpoint must not count on one that does not exist yet. */
    if (w->run.checkpoint.best) TRY(finish_save(w, false, e));
    TRY(trainer_eval(w->trainer, w->run.eval.batches, &result, e));
    if (heartbeat_error(w->heartbeat, e)) return ERR_PEER;
    struct stream_source source = { .eval = &result, .step_number = w->result.step,
                                    .masked = !data_counts_all(w->data) };
    if (is_rank0(w)) TRY(say_record(w->events, STREAM_EVAL, &source, e));
    TRY(evaluate_sets(w, e));
    bool grew = false;
    if (is_rank0(w)) TRY(report_choices(w, &grew, e)); /* a checkpoint contains the table */
    if (grew) TRY(report_decisions(w, e));
    double value = stream_number(STREAM_EVAL, w->run.checkpoint.best_metric, &source);
    bool best = retention_evaluated(&w->retention, w->result.step, value);
    TRY(trainer_broadcast(w->trainer, &best, sizeof best, e)); /* other hosts lack its inputs */
    return best ? save(w, false, e) : OK;
}

static int64_t steps_queued(const struct worker *w) {
    return trainer_step_count(w->trainer) + trainer_pending(w->trainer);
}

/* A rank that is asked to stop tells the others: all must stop after the same step. */
static void take_stop_requests(struct worker *w) {
    for (int signo; (signo = signals_take(&w->signals)) != 0;) {
        if (signo == SIGCHLD) continue;
        w->stop_signal = signo;
        if (w->options->world > 1) trainer_ask_stop(w->trainer);
        else w->stop = true;
    }
    if (w->options->stop_after && steps_queued(w) >= w->options->stop_after) w->stop = true;
}

/* Rank 0's clock decides for all ranks. */
static void ask_by_time(struct worker *w) {
    double minutes = w->run.checkpoint.minutes;
    if (minutes == 0 || w->save_asked || !is_rank0(w)) return;
    if ((double)(clock_us() - w->saved_us) < minutes * 60e6) return;
    w->save_asked = true;
    trainer_ask_save(w->trainer);
}

/* Such a step is no error: a small batch of chats may have no answer in it. */
static enum status report_no_loss(struct worker *w, struct err *e) {
    if (w->result.loss_tokens > 0 || w->without_loss || !is_rank0(w)) return OK;
    w->without_loss = true;
    return say_no_loss(w->events, &w->result, e);
}

static bool every(int64_t step, int64_t n) { return n > 0 && step % n == 0; }

/* ---- histograms -------------------------------------------------------------------------------*/

static bool histograms_are_due(const struct worker *w, int64_t step) {
    int64_t n = w->run.tensorboard.histograms;
    return n > 0 && (step == w->run.train.steps || every(step, n));
}

/* Of the step last collected; no step is queued. */
static enum status report_histograms(struct worker *w, struct err *e) {
    int64_t count;
    if (!is_rank0(w)) return OK;
    const char *const *names = trainer_trace_tensors(w->trainer, &count);
    TRY(trainer_histograms(w->trainer, w->histograms, e));
    return say_histograms(w->events, w->result.step, names, w->histograms, count, e);
}

/* ---- samples ----------------------------------------------------------------------------------*/

static bool samples_are_due(const struct worker *w, int64_t step) {
    int64_t n = w->run.sample.every;
    return n > 0 && step > 0 && (step == w->run.train.steps || every(step, n));
}

static bool stop_asked(void *user) {
    struct worker *w = user;
    take_stop_requests(w);
    return w->stop_signal != 0;
}

/* From prompt number `first` on. A stop request ends the texts on all ranks; the run then stops
 * after this step, and generates them when it goes on. */
static enum status take_samples(struct worker *w, int64_t first, struct err *e) {
    const struct samples_stop stop = { stop_asked, w };
    int64_t step = trainer_step_count(w->trainer);
    bool done;
    board_phase(w->board, BOARD_EVALUATING);
    TRY(samples_take(&w->samples, w->events, step, first, &stop, &done, e));
    if (heartbeat_error(w->heartbeat, e)) return ERR_PEER;
    if (done) return OK;
    w->stop = w->cut = true;
    if (w->options->world > 1) w->stop_step = step;
    return OK;
}

/* The texts of the step of the checkpoint that an earlier process did not come to. */
static enum status finish_samples(struct worker *w, struct err *e) {
    int64_t step = trainer_step_count(w->trainer), count;
    if (!w->options->from || !samples_are_due(w, step)) return OK;
    TRY(samples_recorded(&w->samples, w->options->run_path, step, &count, e));
    return count < w->run.sample.prompt_count ? take_samples(w, count, e) : OK;
}

/* ---- all steps --------------------------------------------------------------------------------*/

/* Reads the result of the oldest queued step and reports it. */
static enum status collect(struct worker *w, struct err *e) {
    TRY(trainer_collect(w->trainer, &w->result, e));
    if (w->result.stop && !w->stop_step) w->stop_step = w->result.step + 1;
    if (w->result.save) w->save_step = w->result.step + 1;
    bool written = checkpoint_begun(w->writer) && w->result.step > w->saved_step;
    if (written && !w->result.busy && !w->finish_step) w->finish_step = w->result.step + 1;
    /* The step was read from a group that was aborted. */
    if (heartbeat_error(w->heartbeat, e)) return ERR_PEER;
    struct stream_source source = { .step = &w->result, .step_number = w->result.step,
                                    .masked = !data_counts_all(w->data) };
    if (is_rank0(w)) TRY(say_record(w->events, STREAM_TRAIN, &source, e));
    TRY(report_no_loss(w, e));
    if (w->options->world > 1) TRY(say_pace(w->events, &w->result, e));
    TRY(observe(w, e));
    TRY(audit_report(w->events, w->trainer, w->options->rank, e));
    return report_first_step(w, e);
}

/* Collects the finished steps; waits while more than `pending` steps are unfinished. */
static enum status drain(struct worker *w, int pending, struct err *e) {
    for (;;) {
        bool ready = false;
        TRY(trainer_ready(w->trainer, &ready, e));
        if (!ready && trainer_pending(w->trainer) <= pending) return OK;
        TRY(collect(w, e));
    }
}

/* If a step cannot be queued, the steps before it are valid: reports them first. */
static enum status queue_step(struct worker *w, int64_t step, bool trace, struct err *e) {
    enum status st = trainer_queue(w->trainer, trace, e);
    if (st == OK) return OK;
    TRY(drain(w, 0, e));
    w->result = (struct step_result){ .step = step };
    return st;
}

/* Queues a step while the previous one runs. An evaluation, a checkpoint and the last step wait for
 * it; otherwise its result is read one step later. */
static enum status one_step(struct worker *w, struct err *e) {
    const struct run_options *r = &w->run;
    int64_t step = steps_queued(w) + 1;
    bool last = step == r->train.steps;
    bool evaluates = r->eval.every > 0 && (last || every(step, r->eval.every));
    bool samples = samples_are_due(w, step), counts = histograms_are_due(w, step);
    bool wanted = r->checkpoint.given || r->archive != ARCHIVE_NONE;
    ask_by_time(w);
    if (checkpoint_writing(w->writer)) trainer_say_busy(w->trainer);
    board_enter(w->board, step, BOARD_STEPPING);
    if (counts) trainer_ask_histograms(w->trainer);
    TRY(queue_step(w, step, trace_due(&r->train.trace, step, evaluates), e));
    take_stop_requests(w);
    bool saves = w->stop || tiers_due(&w->retention.scene, step) || (last && wanted);
    TRY(drain(w, evaluates || samples || counts || saves || last ? 0 : 1, e));
    if (counts) TRY(report_histograms(w, e));
    /* Every rank knows of these requests: step - 1 is collected. */
    if (w->stop_step && step >= w->stop_step) w->stop = saves = true;
    if (w->save_step && step >= w->save_step) saves = true;
    if (saves) w->save_step = 0;
    bool finishes = w->finish_step && step >= w->finish_step;
    if (saves || finishes) TRY(drain(w, 0, e));
    if (finishes) TRY(finish_save(w, false, e));
    if (evaluates) TRY(evaluate(w, e));
    if (samples) TRY(take_samples(w, 0, e));
    return saves || w->cut ? save(w, last || w->stop, e) : OK;
}

static enum status train(struct worker *w, struct err *e) {
    take_stop_requests(w);
    bool begins = trainer_step_count(w->trainer) == w->retention.scene.begin;
    if (w->run.checkpoint.init && begins) TRY(save(w, false, e));
    TRY(finish_samples(w, e));
    while (!w->stop && steps_queued(w) < w->run.train.steps) {
        TRY(one_step(w, e));
        if (event_reader_gone(w->events)) return FAIL(e, ERR_PEER, "the runner is gone");
    }
    int64_t step = trainer_step_count(w->trainer);
    char weights[65];
    TRY(audit_finish(w->events, w->trainer, w->options->rank, e));
    TRY(trainer_weights_sha256(w->trainer, weights, e));
    w->result.step = -1; /* a later error belongs to no step */
    board_phase(w->board, BOARD_LEAVING);
    w->device.backend->ops->graph_drop(w->device.backend); /* an abort waits for the graphs */
    heartbeat_watch(w->heartbeat, NULL); /* from here on other ranks may exit */
    bool stopped = step < w->run.train.steps || w->cut;
    /* SIGTERM stands for a signal that another rank got. */
    int signo = w->stop_signal ? w->stop_signal : w->stop_step ? SIGTERM : 0;
    return say_done(w->events, step, weights, stopped, stopped ? signo : 0, e);
}

/* ---- lifetime ---------------------------------------------------------------------------------*/

static void tear_down(struct worker *w) {
    free(w->choices);
    free(w->fingerprints);
    free(w->histograms);
    free(w->sets);
    free(w->slots);
    checkpoint_writer_destroy(w->writer);
    samples_close(&w->samples);
    trainer_destroy(w->trainer); /* also its graphs, for which an abort of the group waits */
    if (w->heartbeat) heartbeat_watch(w->heartbeat, NULL);
    data_close(w->data);
    profile_stop(&w->profile);
    backend_close(&w->device);
    mesh_close(&w->mesh);
    options_free(&w->run);
    json_decref(w->trained);
    json_decref(w->resolved);
    event_writer_destroy(w->events);
    signals_close(&w->signals);
    heartbeat_stop(w->heartbeat);
    if (w->board != &w->alone) board_close(w->board);
}

static enum status begin(struct worker *w, struct err *e) {
    const struct worker_options *o = w->options;
    TRY(signals_open(&w->signals, e));
    TRY(event_writer_create((int)o->events_fd, &w->events, e));
    if (o->board_fd >= 0) TRY(board_open((int)o->board_fd, &w->board, e));
    else w->board = &w->alone;
    return heartbeat_start(&w->heartbeat, w->board, e);
}

/* Emits the error, unless the runner is gone. */
static void report(struct worker *w, struct err *e) {
    struct err ignored; /* the first error is returned */
    if (!w->events || event_reader_gone(w->events)) return;
    /* The heartbeat thread knows which peer was lost. */
    if (w->heartbeat && e->code == ERR_PEER) (void)!heartbeat_error(w->heartbeat, e);
    const struct audit_place place = { w->options->device, w->options->rank,
                                       w->options->run_path };
    audit_explain(&place, w->device.backend, w->trainer, e);
    /* The error of a number that is not finite names its step already. */
    if (e->code == ERR_DEVICE && w->result.step > 0)
        err_prefix(e, "step %" PRId64, w->result.step);
    if (say_error(w->events, e, w->result.step, w->result.tensor, &ignored) == OK)
        (void)!event_flush(w->events, &ignored);
}

enum status worker_run(const struct worker_options *options, struct err *e) {
    struct worker w = { .options = options, .signals = { .fd = -1 } };
    w.result.step = -1;
    enum status st = begin(&w, e);
    if (st == OK) st = build(&w, e);
    if (st == OK) st = train(&w, e);
    if (st == ERR_NUMERIC) { /* on every rank; what is being written is of a step before it */
        struct err ignored;
        (void)!finish_save(&w, false, &ignored);
    }
    if (st == OK) st = event_flush(w.events, e);
    else report(&w, e);
    struct backend *b = w.device.backend;
    if (st != OK && b) { /* queued work may wait for ranks that have exited */
        b->ops->graph_drop(b);
        /* The heartbeat thread must not poll the group that ends here. */
        if (w.heartbeat) heartbeat_watch(w.heartbeat, NULL);
        b->ops->comm.abort(b);
    }
    tear_down(&w);
    return st;
}
