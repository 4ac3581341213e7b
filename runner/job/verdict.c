#include "runner/job/verdict.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "runner/base/clock.h"
#include "runner/base/run_files.h"
#include "runner/job/blame.h"
#include "runner/job/events.h"

/* On a hang, a process without a heartbeat for this long is the cause. */
enum { HANG_FROZEN_TICKS = 4 };

void verdict_settle(struct watch *w, enum attempt_end end) {
    if (w->ended) return;
    w->ended = true;
    w->out->end = end;
}

/* Settles a real cause, which replaces a reported loss. False where a real cause was first; true:
 * the caller fills w->out. */
static bool settle_failure(struct watch *w, enum attempt_end end) {
    if (w->ended && !w->out->reported_loss) return false;
    w->ended = false;
    w->out->reported_loss = REPORTED_LOSS_NONE;
    w->out->error_step = -1;
    w->out->worker_signal = 0;
    verdict_settle(w, end);
    return true;
}

/* Fills rank, host and operation of w->out. `name` is the rank in messages: "rank 1 on node7", or
 * "worker 0" if there is only one. */
static void describe(struct watch *w, int64_t rank, char name[128]) {
    struct attempt *out = w->out;
    const char *host = watch_host(w, rank);
    out->rank = rank;
    snprintf(out->host, sizeof out->host, "%s", host);
    rank_state_words(watch_state(w, rank), out->operation, sizeof out->operation);
    if (w->options->world == 1) snprintf(name, 128, "worker %" PRId64, rank);
    else snprintf(name, 128, "rank %" PRId64 " on %s", rank, host);
}

/* Keeps out->operation: the operation of the rank that reported. */
static void blame_no_rank(struct attempt *out) {
    out->rank = -1;
    *out->host = '\0';
}

/* A stop that an error spoils is a failure. */
static void replace_stop(struct watch *w) {
    if (w->out->end == ATTEMPT_SIGNAL || w->out->end == ATTEMPT_TIME_LIMIT) w->ended = false;
}

/* ---- stop requests ----------------------------------------------------------------------------*/

/* Workers that load, tune or connect have nothing to save, and see a stop request only at their
 * first step. */
static bool is_starting(const struct watch *w) {
    for (int64_t i = 0; i < w->ranks.started; i++)
        if (board_read(w->ranks.rank[i].board).phase != BOARD_STARTING) return false;
    return w->out->last_step == 0;
}

void verdict_stop_request(struct watch *w, int signo) {
    if (w->out->stop_requested) return;
    w->out->stop_requested = true;
    if (!w->out->signal) { /* otherwise a worker got a signal before, and that stopped the run */
        w->out->signal = signo;
        w->out->signal_ms = clock_ms();
    }
    verdict_settle(w, ATTEMPT_SIGNAL);
    watch_ask_to_stop(w, is_starting(w) ? PEER_GRACE_S : w->options->signal_grace_s);
}

void verdict_abandoned(struct watch *w) {
    w->out->end = ATTEMPT_ABANDONED;
    w->ended = true;
}

/* ---- events of ranks --------------------------------------------------------------------------*/

/* Errors that depend on the host, whose text then names the rank. ERR_CONFIG is one: after a run
 * has begun it is about the host's copy of the data. */
static bool is_local(enum status status) {
    return status == ERR_IO || status == ERR_MEMORY || status == ERR_DEVICE ||
           status == ERR_CONFIG;
}

static enum reported_loss loss_of(struct watch *w, int64_t rank, enum status code) {
    if (code != ERR_PEER || w->options->world == 1) return REPORTED_LOSS_NONE;
    return watch_state(w, rank)->met ? REPORTED_LOSS_LINK : REPORTED_LOSS_RENDEZVOUS;
}

static void judge_error(struct watch *w, int64_t rank, const json_t *event) {
    enum status code = event_status(event);
    enum reported_loss loss = loss_of(w, rank, code);
    if (loss && loss <= w->out->reported_loss) return;
    replace_stop(w);
    if (!settle_failure(w, ATTEMPT_FAILED)) return;
    char name[128];
    describe(w, rank, name);
    (void)FAIL(&w->out->error, code, "%s", json_text(event, "text", "no text"));
    if (w->options->world > 1 && (loss || is_local(code))) err_prefix(&w->out->error, "%s", name);
    const json_t *step = json_object_get(event, "step");
    w->out->error_step = step ? json_integer_value(step) : -1;
    w->out->reported_loss = loss;
    if (w->options->world > 1) watch_ask_to_stop(w, PEER_GRACE_S);
}

/* A worker that was stopped by a signal of another process ends well, but the run is not done. */
static void judge_done(struct watch *w, const json_t *event) {
    int signo = (int)json_int(event, "signal");
    const struct peer_connection *by = w->stop_requested_by;
    char name[128] = "a worker";
    bool by_task = by && w->out->end == ATTEMPT_SIGNAL;
    if (signo <= 0 || signo >= NSIG || (w->ended && !by_task)) return;
    if (!by_task) {
        verdict_settle(w, ATTEMPT_SIGNAL);
        w->out->signal = signo;
        w->out->signal_ms = clock_ms();
    } else {
        snprintf(name, sizeof name, "task %" PRId64 " on %s", by->task, by->host);
    }
    (void)FAIL(&w->out->error, ERR_INTERRUPTED, "%s was stopped by signal %d (%s), which %s "
               "did not send, after step %" PRId64, name, w->out->signal,
               strsignal(w->out->signal), w->options->peers ? "task 0" : "its runner",
               json_int(event, "step"));
}

/* A process that ended without a report. The event is of supervise.c: "status" is waitpid's. */
static void judge_exit(struct watch *w, int64_t rank, const json_t *event) {
    int wait_status = (int)json_int(event, "status");
    const char *log_line = json_text(event, "log_line", "");
    struct attempt *out = w->out;
    char name[128];
    if (!settle_failure(w, ATTEMPT_CRASHED)) return;
    describe(w, rank, name);
    if (WIFSIGNALED(wait_status)) {
        out->worker_signal = WTERMSIG(wait_status);
        (void)FAIL(&out->error, ERR_PEER, "%s was killed by signal %d (%s), last at %s%s", name,
                   out->worker_signal, strsignal(out->worker_signal), out->operation, log_line);
    } else {
        (void)FAIL(&out->error, ERR_PEER, "%s exited with status %d and reported no error, last at "
                   "%s%s", name, WEXITSTATUS(wait_status), out->operation, log_line);
    }
}

/* An event that was lost, or could not be filed: no rank is at fault. */
static void fail_without_rank(struct watch *w, const struct err *why) {
    replace_stop(w);
    if (settle_failure(w, ATTEMPT_FAILED)) {
        blame_no_rank(w->out);
        *w->out->operation = '\0';
        w->out->error = *why;
    }
    watch_ask_to_stop(w, w->options->stop_grace_s);
}

void verdict_no_memory(struct watch *w) {
    struct err why = { 0 };
    (void)FAIL(&why, ERR_MEMORY, "an event of a rank");
    fail_without_rank(w, &why);
}

void verdict_event(struct watch *w, int64_t rank, const json_t *event) {
    const char *kind = json_text(event, "event", "");
    struct err why = { 0 };
    if (watch_leads(w) && !strcmp(kind, "exit")) {
        judge_exit(w, rank, event);
        watch_ask_to_stop(w, PEER_GRACE_S);
        return;
    }
    if (watch_leads(w) && !strcmp(kind, "error")) judge_error(w, rank, event);
    if (rank == 0 && !strcmp(kind, "done")) judge_done(w, event);
    if (watch_event(w, rank, event, &why) != OK) fail_without_rank(w, &why);
}

/* ---- hangs ------------------------------------------------------------------------------------*/

/* Names the rank that has been frozen for `ticks`. If several have, the text says so and no rank is
 * blamed. False if none has. */
static bool name_frozen(struct watch *w, int64_t ticks) {
    struct attempt *out = w->out;
    int64_t rank, frozen = blame_frozen(w->state, w->options->world, ticks, &rank);
    if (!frozen) return false;
    int64_t silent_s = w->state[rank].silent_ticks * TICK_MS / 1000;
    char name[128];
    describe(w, rank, name);
    if (frozen == 1) {
        (void)FAIL(&out->error, ERR_PEER, "%s is frozen: no sign of life for %" PRId64
                   " s (last at %s); it was killed", name, silent_s, out->operation);
    } else {
        (void)FAIL(&out->error, ERR_PEER, "%" PRId64 " ranks are frozen: no sign of life of %s for "
                   "%" PRId64 " s (last at %s), nor of the others; they were killed", frozen, name,
                   silent_s, out->operation);
        blame_no_rank(out);
    }
    return true;
}

/* A frozen process explains a hang. Where all processes run, one rank may be behind the others. */
void verdict_hung(struct watch *w, int64_t silent_ms) {
    struct attempt *out = w->out;
    int64_t world = w->options->world, silent_s = silent_ms / 1000;
    char name[128] = "";
    if (!settle_failure(w, ATTEMPT_HUNG)) return;
    watch_survey(w);
    if (name_frozen(w, HANG_FROZEN_TICKS)) return;
    int64_t behind = blame_behind(w->state, world);
    describe(w, behind >= 0 ? behind : 0, name);
    if (behind >= 0 || world == 1) {
        (void)FAIL(&out->error, ERR_PEER, "%s hung: no event for %" PRId64 " s after step %" PRId64
                   "%s (last at %s); it was killed", behind >= 0 ? name : "the worker", silent_s,
                   out->last_step, behind >= 0 ? ", and all others wait for it" : "",
                   out->operation);
    } else {
        (void)FAIL(&out->error, ERR_PEER, "all ranks hung: no event for %" PRId64 " s after step %"
                   PRId64 " (%s last at %s); they were killed", silent_s, out->last_step, name,
                   out->operation);
        blame_no_rank(out);
    }
}

/* What freezes a host freezes its ranks a moment apart: a rank that has been frozen for half as
 * long as the first counts, too. */
bool verdict_frozen(struct watch *w, int64_t ticks) {
    int64_t longest;
    watch_survey(w);
    if (!blame_frozen(w->state, w->options->world, ticks, &longest)) return false;
    if (settle_failure(w, ATTEMPT_HUNG)) (void)name_frozen(w, ticks / 2);
    return true;
}

/* ---- lost links -------------------------------------------------------------------------------*/

/* Without a single rank at fault the first report stays, which names the peer that it lost. */
void verdict_conclude(struct watch *w) {
    struct attempt *out = w->out;
    const struct err reported = out->error;
    int64_t rank = -1;
    char name[128];
    if (!out->reported_loss || reported.code != ERR_PEER) return;
    watch_survey(w);
    /* Links that broke after a failed rendezvous mean nothing. */
    if (out->reported_loss == REPORTED_LOSS_LINK) rank = blame_links(w->state, w->options->world);
    if (rank < 0) {
        blame_no_rank(out);
        return;
    }
    describe(w, rank, name);
    (void)FAIL(&out->error, ERR_PEER, "%s lost its links, last at %s; %s", name, out->operation,
               reported.text);
}

/* ---- other hosts ------------------------------------------------------------------------------*/

void verdict_lost(struct watch *w, const struct peer_connection *c) {
    if (!settle_failure(w, ATTEMPT_CRASHED)) return;
    struct attempt *out = w->out;
    char name[128], ranks[64];
    describe(w, c->first_rank, name);
    snprintf(ranks, sizeof ranks, c->ranks > 1 ? "ranks %" PRId64 " to %" PRId64 : "rank %" PRId64,
             c->first_rank, c->first_rank + c->ranks - 1);
    (void)FAIL(&out->error, ERR_PEER, "task %" PRId64 " on %s with %s is lost: %s%s%s", c->task,
               c->host, ranks, c->why_lost, *out->operation ? "; last at " : "", out->operation);
}

void verdict_unexplained(struct watch *w, const struct peer_connection *c) {
    if (w->ended) return;
    verdict_settle(w, ATTEMPT_FAILED);
    (void)FAIL(&w->out->error, ERR_PEER, "task %" PRId64 " on %s ended its part of the attempt and "
               "reported no error", c->task, c->host);
}
