#include "runner/run/attempts.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/checkpoint.h"
#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/clock.h"
#include "runner/hardware/telemetry.h"
#include "runner/job/deploy.h"
#include "runner/job/job_members.h"
#include "runner/job/pace.h"
#include "runner/job/stop_grace.h"
#include "runner/plan/keep.h"
#include "runner/plan/mfu.h"
#include "runner/plan/options.h"
#include "runner/record/choice_file.h"
#include "runner/record/documents.h"
#include "runner/record/environment.h"
#include "runner/record/run_checkpoint.h"
#include "runner/record/run_lock.h"
#include "runner/record/run_log.h"
#include "runner/record/streams.h"
#include "runner/run/milestones.h"
#include "runner/run/progress.h"
#include "runner/run/run_status.h"
#include "runner/run/saves.h"
#include "runner/run/slot.h"
#include "runner/run/starting.h"
#include "runner/run/tuning.h"
#include "runner/record/records.h"
#include "runner/tensorboard/tensorboard.h"
#include "runner/worker/retention.h"

struct attempts {
    const struct run_settings *settings;
    struct run_dir *dir;
    struct run_options run;
    struct environment environment;
    struct progress progress;
    struct records *records; /* of the current attempt */
    struct tensorboard *board;    /* of the newest attempt; NULL: not asked for, or it failed */
    bool board_failed;
    struct milestones milestones; /* likewise */
    struct tuning tuning;         /* likewise */
    struct starting starting;     /* likewise */
    struct telemetry *telemetry; /* NULL: no GPU is used */
    const json_t *resolved;
    struct mfu mfu;              /* of the GPU that the workers report; zeroed before that */
    int64_t beat_ms;         /* of the last heartbeat on the lock file (clock.h) */
    int64_t from_step;       /* of the current attempt */
    int64_t begin_ms;        /* of the current attempt (clock.h) */
    int64_t retries_left;
    bool stepped;            /* an attempt has made a step: devices and libraries work */
    struct rank_layout layout; /* which rank is where */
    struct pace *pace; /* owned */
    int64_t epoch_sequences; /* of the data; 0: they have no end */
    int64_t stop_after;      /* --smoke stops here once and resumes; 0: no stop */
    bool ends_there;         /* it does not resume: as many steps as asked for */
};

/* ---- events -----------------------------------------------------------------------------------*/

/* A lack of TensorBoard's files never ends a run; one warning says so. */
static void drop_board(struct attempts *a, struct err *why) {
    err_prefix(why, "no more TensorBoard files of this run are written");
    progress_say(&a->progress, why->text);
    run_log(a->dir, "%s", why->text);
    tensorboard_close(a->board);
    a->board = NULL;
    a->board_failed = true;
}

static void begin_board(struct attempts *a) {
    struct err why;
    tensorboard_close(a->board);
    a->board = NULL;
    if (!a->run.tensorboard.on || a->board_failed) return;
    if (tensorboard_open(a->dir, a->resolved, a->run.train.steps, a->from_step, &a->board,
                         &why) != OK)
        drop_board(a, &why);
}

/* A run that may go on has no end. */
static void end_board(struct attempts *a, const struct attempt *last) {
    struct err why;
    bool done = last->end == ATTEMPT_DONE || last->end == ATTEMPT_TIME_LIMIT;
    bool failed = last->end == ATTEMPT_FAILED && failure_repeats(status_name(last->error.code));
    if (!a->board || (!done && !failed)) return;
    if (tensorboard_end(a->board, done ? EVENT_SUCCEEDED : EVENT_FAILED, &why) != OK)
        drop_board(a, &why);
}

/* A record becomes visible here and in TensorBoard at once. */
static enum status put_record(struct attempts *a, const json_t *event, struct err *e) {
    struct err why;
    TRY(records_put(a->records, event, e));
    if (a->board && tensorboard_put(a->board, event, &why) != OK) drop_board(a, &why);
    return OK;
}

/* Adds the driver's figures to a worker's record. On other hosts their runner has added them. */
static enum status put_telemetry(struct attempts *a, int64_t rank, const json_t *event,
                                 struct err *e) {
    json_t *both = json_copy((json_t *)event);
    if (!both) return FAIL(e, ERR_MEMORY, "record of telemetry");
    int64_t device = json_int(event, "device");
    enum status st = OK;
    if (rank < a->layout.ranks[0]) st = telemetry_add(a->telemetry, device, both, e);
    if (st == OK) st = put_record(a, both, e);
    json_decref(both);
    return st;
}

/* A worker has reported its device. */
static enum status learn_device(struct attempts *a, const json_t *event, struct err *e) {
    if (strcmp(json_text(event, "backend", ""), "cuda") != 0) return OK;
    if (!a->telemetry) a->telemetry = telemetry_open();
    int64_t world = json_int(event, "world");
    return mfu_make(&a->mfu, a->resolved, a->settings->facts, world > 0 ? world : 1, e);
}

static enum status put_step(struct attempts *a, const json_t *event, struct err *e) {
    json_t *more = json_copy((json_t *)event);
    if (!more) return FAIL(e, ERR_MEMORY, "record of a step");
    enum status st = mfu_add(&a->mfu, more, e);
    if (st == OK) st = put_record(a, more, e);
    json_decref(more);
    return st;
}

static enum status put_pace(struct attempts *a, int64_t rank, const json_t *event,
                            struct err *e) {
    json_t *record = NULL;
    TRY(pace_put(a->pace, rank, event, &record, e));
    enum status st = record ? put_record(a, record, e) : OK;
    json_decref(record);
    return st;
}

/* Shows a message about the choices, once. */
static void say_tuning(struct attempts *a) {
    if (!*a->tuning.said) return;
    progress_say(&a->progress, a->tuning.said);
    run_log(a->dir, "%s", a->tuning.said);
    *a->tuning.said = '\0';
}

/* Records and reports how a checkpoint was written. */
static enum status take_save(struct attempts *a, const json_t *event, struct err *e) {
    char text[1200];
    saves_text(event, text, sizeof text);
    if (*text) progress_say(&a->progress, text);
    if (*text) run_log(a->dir, "%s", text);
    return saves_event(a->dir->run, event, e);
}

static enum status on_event(void *user, int64_t rank, const json_t *event, struct err *e) {
    struct attempts *a = user;
    const char *kind = json_text(event, "event", "");
    json_t *weights = json_object_get(event, "final_weights_sha256");
    if (weights && json_object_set(a->dir->run, "final_weights_sha256", weights) != 0)
        return FAIL(e, ERR_MEMORY, "the hash of the final weights");
    TRY(starting_event(&a->starting, rank, event, e));
    if (!strcmp(kind, "checkpoint")) TRY(records_sync(a->records, e));
    milestones_event(&a->milestones, rank, event);
    TRY(take_save(a, event, e));
    if (!strcmp(kind, "start")) a->epoch_sequences = json_int(event, "epoch_sequences");
    if (!strcmp(kind, "choices")) TRY(choice_file_keep(a->dir, json_text(event, "text", ""), e));
    if (!strcmp(kind, "table")) TRY(tuning_table(&a->tuning, rank, event, e));
    if (!strcmp(kind, "decisions")) TRY(learn_device(a, event, e));
    TRY(tuning_event(&a->tuning, a->telemetry, event, e));
    say_tuning(a);
    if (!strcmp(kind, "step")) return put_step(a, event, e);
    if (!strcmp(kind, "telemetry")) return put_telemetry(a, rank, event, e);
    if (!strcmp(kind, "pace")) return put_pace(a, rank, event, e);
    return put_record(a, event, e);
}

static void on_tick(void *user, const char *what) {
    struct attempts *a = user;
    if (what) {
        progress_say(&a->progress, what);
        run_log(a->dir, "%s", what);
    }
    progress_tick(&a->progress);
    tuning_tick(&a->tuning, a->telemetry);
    if (clock_ms() - a->beat_ms < RUN_LOCK_BEAT_S * 1000) return;
    a->beat_ms = clock_ms();
    run_lock_beat(a->dir->lock_fd);
}

/* ---- one attempt ------------------------------------------------------------------------------*/

static bool has_records(const struct run_dir *dir) {
    int fd;
    struct err ignored;
    (void)!open_file_beneath(dir->root, STREAMS[STREAM_TRAIN].file, O_RDONLY, dir->path, &fd,
                             &ignored);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

/* Finds the step from which the attempt starts. Says so if newer work is lost. */
static enum status find_beginning(struct attempts *a, struct err *e) {
    struct checkpoint_info from;
    char text[700];
    TRY(run_checkpoint_latest(a->dir, &from, e));
    a->from_step = from.step;
    if (*from.damage)
        snprintf(text, sizeof text, "a damaged checkpoint is skipped: %s; resuming from step %"
                 PRId64, from.damage, from.step);
    else if (!from.step && has_records(a->dir))
        snprintf(text, sizeof text, "there is no checkpoint: starting again at %s",
                 a->run.init_optimizer ? "the step of init" : "step 0");
    else return OK;
    on_tick(a, text);
    return OK;
}

/* One rank for each GPU that the experiment asks for. With --anywhere on a machine with fewer GPUs:
 * one rank for each GPU that is there, or fewer, so that the batch divides. A launcher fixes the
 * number. */
static int64_t rank_count(const struct run_settings *s, const struct run_options *run,
                        const json_t *mismatch) {
    int64_t ranks = s->ranks ? s->ranks : run->gpus;
    if (s->ranks || s->members || !json_is_array(mismatch)) return ranks;
    int64_t here = json_int(s->facts, "gpu.count");
    const struct train_options *t = &run->train;
    if (ranks > here) ranks = here;
    while (ranks > 1 && t->global_batch % (t->micro_batch * ranks)) ranks--;
    return ranks > 1 ? ranks : 1;
}

/* Takes the ranks off lost hosts. A lost host stays lost, also for the next rows of a suite. *lost:
 * ranks were taken off. ERR_PEER: a host is lost and --fewer-gpus is not given. */
static enum status drop_lost_hosts(const struct run_settings *s, struct rank_layout *f, bool *lost,
                              struct err *e) {
    for (int64_t i = 0; s->members && i < s->members->task.count - 1; i++) {
        struct peer_connection *c = &s->members->peer[i];
        peer_connection_fill(c); /* the host may have been lost since the last attempt */
        if (!c->lost) continue;
        if (!s->fewer_gpus)
            return FAIL(e, ERR_PEER, "task %" PRId64 " on %s is lost: %s; --fewer-gpus continues "
                        "without it", c->task, c->host, c->why_lost);
        if (rank_layout_drop_task(f, i + 1)) *lost = true;
    }
    return OK;
}

/* Lays the ranks out on the hosts of the job. The schema checks hardware.gpus against the batch, so
 * only --ranks is checked here. */
static enum status lay_out_ranks(const struct run_settings *s, const struct run_options *run,
                        const json_t *mismatch, struct rank_layout *out, struct err *e) {
    const struct train_options *t = &run->train;
    if (s->ranks && t->global_batch % (t->micro_batch * s->ranks))
        return FAIL(e, ERR_CONFIG, "--ranks %" PRId64 ": train.global_batch %" PRId64 " must be a "
                    "multiple of micro_batch %" PRId64 " times the ranks", s->ranks,
                    t->global_batch, t->micro_batch);
    int64_t tasks = s->members ? s->members->task.count : 1;
    TRY(rank_layout_init(out, rank_count(s, run, mismatch), tasks, e));
    bool lost = false;
    return drop_lost_hosts(s, out, &lost, e);
}

enum status attempts_check(const struct run_settings *settings, const json_t *resolved,
                           const json_t *mismatch, int64_t *ranks, struct err *e) {
    struct run_options run;
    struct rank_layout layout;
    TRY(options_read(resolved, &run, e));
    enum status st = lay_out_ranks(settings, &run, mismatch, &layout, e);
    if (st == OK) *ranks = rank_count(settings, &run, mismatch);
    options_free(&run);
    return st;
}

static enum status assign_batch(struct attempts *a, struct err *e) {
    const struct train_options *t = &a->run.train;
    return rank_layout_assign(&a->layout, t->global_batch, t->micro_batch, e);
}

/* How much of train.time_limit the attempts so far have used. */
static int64_t seconds_taken(const json_t *run) {
    double seconds = 0;
    size_t i;
    const json_t *row;
    json_array_foreach(json_object_get(run, "attempts"), i, row)
        if (!json_object_get(row, "run")) /* an attempt of the extended run */
            seconds += json_number_value(json_object_get(row, "seconds"));
    return (int64_t)seconds;
}

static enum status run_workers(struct attempts *a, struct attempt *out, struct err *e) {
    int64_t limit_s = 0;
    if (a->run.time_limit_s) {
        limit_s = a->run.time_limit_s - seconds_taken(a->dir->run);
        if (limit_s < 1) limit_s = 1;
    }
    pace_begin(a->pace, a->layout.world);
    struct deployment d = {
        .settings = a->settings, .dir = a->dir, .layout = &a->layout,
        .envp = (const char *const *)a->environment.vars, .from_step = a->from_step,
        .stop_after = a->stop_after,
        .time_limit_s = limit_s, .on_event = on_event, .on_tick = on_tick, .user = a,
    };
    enum status st = deploy(&d, out, e);
    if (a->pace->lost)
        run_log(a->dir, "%" PRId64 " steps have no row in ranks.jsonl: this runner was blocked "
                "until the ranks were more than %d steps apart", a->pace->lost, PACE_STEPS);
    return st;
}

/* Records the start of an attempt. If the runner is killed, the record stays as it is. */
static enum status record_begin(struct attempts *a, struct err *e) {
    char started[32];
    run_time_now(started);
    json_t *row = json_pack("{s:s,s:I,s:I}", "started", started, "from_step",
                            (json_int_t)a->from_step, "ranks", (json_int_t)a->layout.world);
    bool failed = false;
    if (a->settings->profile) json_put(row, "profile", json_true(), &failed);
    if (slot_rows_at_once(a->settings->slot) > 1)
        json_put(row, "side_by_side", slot_json(a->settings->slot), &failed);
    return row && !failed && json_object_set_new(a->dir->run, "attempt", row) == 0
               ? OK
               : FAIL(e, ERR_MEMORY, "attempts");
}

/* Moves the current attempt to the list of ended attempts, with the members of `more` added. Takes
 * over `more`. */
static enum status file_attempt(json_t *run, json_t *more, struct err *e) {
    json_t *row = json_object_get(run, "attempt");
    bool good = more && json_object_update(row, more) == 0 &&
                json_array_append(json_object_get(run, "attempts"), row) == 0 &&
                json_object_del(run, "attempt") == 0;
    json_decref(more);
    return good ? OK : FAIL(e, ERR_MEMORY, "attempts");
}

enum status attempts_end_dead(json_t *run, const char *ended, int64_t to_step, struct err *e) {
    const json_t *row = json_object_get(run, "attempt");
    if (!row) return OK;
    int64_t seconds = run_time_parse(ended) - run_time_parse(json_text(row, "started", ""));
    return file_attempt(run, json_pack("{s:s,s:I,s:s,s:f}", "ended", ended, "to_step",
                                       (json_int_t)to_step, "reason", "runner died", "seconds",
                                       (double)(seconds > 0 ? seconds : 0)), e);
}

static enum status record_attempt(struct attempts *a, const struct attempt *attempt,
                                  struct err *e) {
    char ended[32];
    run_time_now(ended);
    int64_t to = attempt->last_step > a->from_step ? attempt->last_step : a->from_step;
    bool stopped = a->stop_after && attempt->end == ATTEMPT_DONE;
    const char *reason = !stopped ? attempt_end_name(attempt->end)
                       : a->ends_there ? REASON_AS_ASKED : "stopped to test a resume";
    TRY(file_attempt(a->dir->run, json_pack("{s:s,s:I,s:s,s:f}", "ended", ended, "to_step",
                                            (json_int_t)to, "reason", reason, "seconds",
                                            (double)(clock_ms() - a->begin_ms) / 1000), e));
    run_log(a->dir, "attempt from step %" PRId64 " to %" PRId64 ": %s%s%s", a->from_step, to,
            reason, attempt->error.code != OK ? ": " : "", attempt->error.text);
    return run_dir_save(a->dir, e);
}

static enum status make_attempt(struct attempts *a, struct attempt *out, struct err *e) {
    TRY(records_open(a->dir, a->from_step, &a->records, e));
    begin_board(a);
    milestones_begin(&a->milestones, a->dir);
    starting_begin(&a->starting, a->dir, a->settings->start);
    struct err end;
    enum status st = tuning_begin(&a->tuning, a->settings, a->dir, &a->layout, e);
    say_tuning(a);
    if (st == OK) st = run_workers(a, out, e);
    milestones_end(&a->milestones);
    starting_end(&a->starting);
    if (tuning_end(&a->tuning, &end) != OK && st == OK) st = FAIL(e, end.code, "%s", end.text);
    if (out->last_step > 0) a->stepped = true;
    records_close(a->records);
    a->records = NULL;
    return st;
}

/* An attempt that cannot start (no process, file or memory) counts as failed, so that its run is
 * ended and bundled like any other. */
static enum status try_attempt(struct attempts *a, struct attempt *out, struct err *e) {
    struct err why = { 0 };
    *out = (struct attempt){ .end = ATTEMPT_FAILED, .error_step = -1, .rank = -1 };
    a->begin_ms = clock_ms();
    enum status st = find_beginning(a, &why);
    if (st == OK) st = assign_batch(a, &why);
    TRY(record_begin(a, e));
    if (st == OK) st = run_dir_save(a->dir, &why);
    if (st == OK) st = make_attempt(a, out, &why);
    if (st != OK)
        *out = (struct attempt){ .end = ATTEMPT_FAILED, .error_step = -1, .rank = -1,
                                 .last_step = out->last_step, .error = why };
    return record_attempt(a, out, e);
}

/* ---- how a run ends ---------------------------------------------------------------------------*/

/* With --fewer-gpus, drops what failed: a lost host, or the GPU of the failed rank if it is known.
 * *without: something was dropped. Returns false, and tells the user why, where a lost host may not
 * be dropped, too few GPUs are left, or an unkillable process still holds one. */
static bool drop_failed(struct attempts *a, const struct attempt *attempt, bool *without) {
    struct err why = { 0 };
    bool lost = false;
    enum status st = drop_lost_hosts(a->settings, &a->layout, &lost, &why);
    bool drops = a->settings->fewer_gpus && !lost && attempt->rank >= 0;
    if (drops) rank_layout_drop_rank(&a->layout, attempt->rank);
    *without = lost || drops;
    if (st == OK) st = assign_batch(a, &why);
    if (st == OK && *attempt->unkillable) st = FAIL(&why, ERR_STATE, "%s", attempt->unkillable);
    if (st == OK) return true;
    err_prefix(&why, "no retry");
    on_tick(a, why.text);
    return false;
}

/* Whether another attempt may succeed: a worker died or hung, a link failed, or a device failed
 * after the first step. Before the first step the device or a library may be missing, which a
 * retry cannot change. Nor can it change arithmetic, which is deterministic. */
static bool should_retry(const struct attempts *a, const struct attempt *attempt) {
    enum status code = attempt->error.code;
    if (attempt->end == ATTEMPT_CRASHED || attempt->end == ATTEMPT_HUNG) return true;
    return attempt->end == ATTEMPT_FAILED &&
           (code == ERR_PEER || (code == ERR_DEVICE && a->stepped));
}

/* Prepares another attempt; false: there is none. A stop request that came during the attempt wins
 * over retries. */
static bool retry(struct attempts *a, struct attempt *attempt) {
    if (!should_retry(a, attempt)) return false;
    if (attempt->stop_requested) attempt->end = ATTEMPT_SIGNAL;
    if (attempt->stop_requested || a->retries_left == 0) return false;
    bool without = false;
    if (!drop_failed(a, attempt, &without)) return false;
    a->retries_left--;
    char text[1300];
    snprintf(text, sizeof text, "%s; retrying%s (%" PRId64 " left)", attempt->error.text,
             without ? " without it" : "", a->retries_left);
    on_tick(a, text);
    return true;
}

static const char *status_of(const struct attempts *a, const struct attempt *attempt) {
    switch (attempt->end) {
    case ATTEMPT_DONE: return a->ends_there ? "interrupted" : "done";
    case ATTEMPT_TIME_LIMIT: return "time_limit";
    case ATTEMPT_SIGNAL:
    case ATTEMPT_ABANDONED: return "interrupted";
    case ATTEMPT_CRASHED:
        return attempt->worker_signal ? "killed" : "failed";
    case ATTEMPT_FAILED:
    case ATTEMPT_HUNG: break;
    }
    return "failed";
}

/* An unkillable process makes the machine unfit for the next row of a suite too: EXIT_SYSTEM. */
static int exit_code_for(const struct attempts *a, const struct attempt *attempt) {
    bool stopped = attempt->end == ATTEMPT_SIGNAL || attempt->end == ATTEMPT_ABANDONED;
    if (*attempt->unkillable && !stopped) return EXIT_SYSTEM;
    switch (attempt->end) {
    case ATTEMPT_DONE:
    case ATTEMPT_TIME_LIMIT: return EXIT_OK;
    case ATTEMPT_SIGNAL:
    case ATTEMPT_ABANDONED: return EXIT_SIGNAL + attempt->signal;
    case ATTEMPT_FAILED: {
        int code = exit_code_of(attempt->error.code);
        /* A device that fails after the first step fails the run, not the system. */
        if (attempt->error.code == ERR_DEVICE && a->stepped) return EXIT_RUN_FAILED;
        return code == EXIT_VERIFY || code == EXIT_OK ? EXIT_RUN_FAILED : code;
    }
    case ATTEMPT_CRASHED:
    case ATTEMPT_HUNG: break;
    }
    return EXIT_RUN_FAILED;
}

/* The error object of run.json: what failed, or what a forced stop lost, and which process could
 * not be killed. */
static json_t *error_json(const struct attempts *a, const struct attempt *attempt) {
    bool lost = attempt->unresponsive || attempt->end == ATTEMPT_ABANDONED;
    char what[sizeof attempt->error.text] = "", text[sizeof what + ATTEMPT_UNKILLABLE_CAP + 2];
    if (attempt->error.code != OK) snprintf(what, sizeof what, "%s", attempt->error.text);
    else if (lost) stop_grace_explain(a->settings->stop_grace_s, attempt, what, sizeof what);
    snprintf(text, sizeof text, "%s%s%s", what, *what && *attempt->unkillable ? "; " : "",
             attempt->unkillable);
    if (attempt->error.code != OK) {
        char where[64] = "";
        if (attempt->error_step >= 0)
            snprintf(where, sizeof where, "step %" PRId64, attempt->error_step);
        bool known = attempt->rank >= 0;
        return json_pack("{s:s,s:o,s:s,s:o,s:o,s:o}", "code", status_name(attempt->error.code),
                         "text", json_from_text(text), "where", where, "rank",
                         known ? json_integer(attempt->rank) : json_null(), "host",
                         known || *attempt->host ? json_from_text(attempt->host) : json_null(),
                         "operation", known || *attempt->operation
                                          ? json_from_text(attempt->operation) : json_null());
    }
    if (!*text) return json_null();
    return json_pack("{s:s,s:o,s:s}", "code", "ERR_INTERRUPTED", "text", json_from_text(text),
                     "where", "");
}

static json_t *kept_row(const struct checkpoint_info *info, const char *const *names, int count,
                        const char *where) {
    json_t *as = json_array();
    bool failed = !as;
    for (int i = 0; i < count; i++) json_append(as, json_string(names[i]), &failed);
    return json_pack("{s:I,s:o,s:s,s:I,s:s}", "step", (json_int_t)info->step, "as",
                     json_whole(as, failed), "sha256", info->sha256, "bytes",
                     (json_int_t)info->bytes, "where", where);
}

/* Verifies the checkpoint of `step`, called `what` in messages. If it is missing or damaged,
 * out->step is -1 and a warning says so. */
static enum status find_kept(struct attempts *a, const char *parent, int64_t step,
                             const char *what, struct checkpoint_info *out, struct err *e) {
    char path[CHECKPOINT_PATH_CAP];
    struct err why;
    TRY(checkpoint_path(path, parent, step, e));
    if (checkpoint_verify(path, out, &why) == OK) return OK;
    err_prefix(&why, "the %s checkpoint is not kept", what);
    on_tick(a, why.text);
    out->step = -1;
    return OK;
}

/* Adds the checkpoints of `steps`, ascending, that a tier keeps after the run. `last` is the newest
 * intact one. */
static enum status list_kept(struct attempts *a, const struct retention *r, const char *parent,
                             const struct checkpoint_info *last, const int64_t *steps,
                             int64_t count, json_t *rows, struct err *e) {
    const char *where = a->run.archive == ARCHIVE_FULL ? "bundle" : "beside";
    const char *names[TIER_COUNT];
    bool failed = !rows;
    while (count > 0 && steps[count - 1] > last->step) count--; /* damaged */
    for (int64_t i = 0; i < count; i++) {
        struct checkpoint_info info = *last;
        int as = tiers_kept(&r->scene, steps[i], count - 1 - i, names);
        if (as == 0) continue;
        if (steps[i] != last->step || !last->step)
            TRY(find_kept(a, parent, steps[i], names[0], &info, e));
        if (info.step >= 0) json_append(rows, kept_row(&info, names, as, where), &failed);
    }
    return failed ? FAIL(e, ERR_MEMORY, "run record") : OK;
}

/* The checkpoint of the best evaluation may be missing: it could not be written, or was deleted. */
static void note_best(struct attempts *a, const struct retention *r) {
    int64_t step = r->scene.best_step;
    char text[160], instead[80] = "";
    if (!r->scene.options.best || r->evaluated_step == step) return;
    if (step > 0)
        snprintf(instead, sizeof instead, "; the best of those that are is kept, of step %" PRId64,
                 step);
    snprintf(text, sizeof text, "the checkpoint of the best evaluation, of step %" PRId64 ", is "
             "not there%s", r->evaluated_step, instead);
    on_tick(a, text);
}

/* Lists in the record the checkpoints that a done run keeps. */
static enum status record_kept(struct attempts *a, const struct checkpoint_info *last,
                               struct err *e) {
    struct keep keep = keep_which(&a->run, json_is_true(json_object_get(a->dir->run, "smoke")));
    struct retention retention;
    char parent[PATH_CAP];
    int64_t *steps = NULL, count = 0;
    TRY(path_join(parent, a->dir->path, RUN_PATH_checkpoints, e));
    TRY(retention_open(a->dir->path, &a->run, a->epoch_sequences, &retention, e));
    if (keep.packed && retention.scene.options.keep == 0) retention.scene.options.keep = 1;
    if (keep.last && !last->step) on_tick(a, "no checkpoint is kept: none of them is intact");
    if (keep.asked) note_best(a, &retention);
    json_t *rows = json_array();
    enum status st = keep.asked ? retention_list(parent, &steps, &count, e) : OK;
    if (st == OK) st = list_kept(a, &retention, parent, last, steps, count, rows, e);
    free(steps);
    if (st == OK && json_object_set(a->dir->run, "kept", rows) != 0)
        st = FAIL(e, ERR_MEMORY, "run record");
    json_decref(rows);
    return st;
}

static enum status record_end(struct attempts *a, const struct attempt *attempt, struct err *e) {
    char ended[32];
    run_time_now(ended);
    json_t *run = a->dir->run;
    struct checkpoint_info saved;
    int code = exit_code_for(a, attempt);
    TRY(run_dir_tidy(a->dir, e));
    TRY(run_checkpoint_latest(a->dir, &saved, e));
    if (attempt->end == ATTEMPT_DONE && !a->ends_there) TRY(record_kept(a, &saved, e));
    int64_t step = a->settings->only_steps ? 0 : saved.step; /* its bundle has no checkpoint */
    bool bad = json_object_set_new(run, "checkpoint_step", json_integer(step)) != 0 ||
               json_object_set_new(run, "status", json_string(status_of(a, attempt))) != 0 ||
               json_object_set_new(run, "exit_code", json_integer(code)) != 0 ||
               json_object_set_new(run, "error", error_json(a, attempt)) != 0 ||
               json_object_set_new(run, "ended", json_string(ended)) != 0;
    if (bad) return FAIL(e, ERR_MEMORY, "run record");
    return run_dir_save(a->dir, e);
}

/* ---- all attempts -----------------------------------------------------------------------------*/

static enum status all_attempts(struct attempts *a, struct attempt *last, struct err *e) {
    for (;;) {
        TRY(try_attempt(a, last, e));
        if (retry(a, last)) continue;
        if (!a->stop_after || a->ends_there || last->end != ATTEMPT_DONE) break;
        a->stop_after = 0;
        on_tick(a, "stopped at its checkpoint to test a resume; resuming");
    }
    end_board(a, last);
    return record_end(a, last, e);
}

enum status attempts_run(const struct run_settings *settings, struct run_dir *dir,
                         const json_t *resolved, struct attempt *last, struct err *e) {
    struct attempts a = { .settings = settings, .dir = dir, .resolved = resolved,
                          .retries_left = settings->retries };
    TRY(options_read(resolved, &a.run, e));
    const json_t *mismatch = json_object_get(dir->run, "mismatch");
    a.pace = calloc(1, sizeof *a.pace);
    enum status st = a.pace ? OK : FAIL(e, ERR_MEMORY, "the pace records of the ranks");
    if (st == OK) st = lay_out_ranks(settings, &a.run, mismatch, &a.layout, e);
    if (st == OK)
        st = environment_make(json_object_get(resolved, "env"), settings->profile, &a.environment,
                              e);
    if (st == OK) st = run_dir_put(dir, DOCUMENT_environment, a.environment.record, e);
    if (st == OK && settings->members)
        st = run_dir_put(dir, "data/system/hosts.json", settings->members->hosts, e);
    bool first = json_array_size(json_object_get(dir->run, "attempts")) == 0;
    if (first && json_is_true(json_object_get(dir->run, "smoke")))
        a.stop_after = a.run.checkpoint.every;
    a.ends_there = settings->only_steps && settings->only_steps < a.run.train.steps;
    if (a.ends_there) a.stop_after = settings->only_steps;
    const char *name = json_text(dir->run, "name", "run");
    progress_begin(&a.progress, settings->cli, name, dir->path);
    if (st == OK) st = all_attempts(&a, last, e);
    tensorboard_close(a.board);
    progress_end(&a.progress);
    telemetry_close(a.telemetry);
    environment_free(&a.environment);
    free(a.pace);
    options_free(&a.run);
    return st;
}
