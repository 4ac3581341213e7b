#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "runner/base/canonical.h"
#include "runner/base/clock.h"
#include "runner/base/run_files.h"
#include "runner/job/peer_connection.h"
#include "runner/job/watch.h"

enum { STILL_TICKS = 4 }; /* a process that has stood still for so long is why all others wait */

void verdict_settle(struct watch *w, enum attempt_end end) {
    if (w->ended) return;
    w->ended = true;
    w->out->end = end;
}

/* verdict_settle() for a failure of its own kind: it replaces reported_loss. False where something else
 * is the cause already; true: fill w->out. */
static bool verdict_fail(struct watch *w, enum attempt_end end) {
    if (w->ended && !w->out->reported_loss) return false;
    w->ended = false;
    w->out->reported_loss = REPORTED_LOSS_NONE;
    w->out->error_step = -1;
    w->out->worker_signal = 0;
    verdict_settle(w, end);
    return true;
}

/* Fills rank, host and operation of w->out for a rank, and `name` with how messages call it: "rank
 * 1 on node7", or "worker 0" where there is one only. */
static void describe(struct watch *w, int64_t rank, char name[128]) {
    struct attempt *out = w->out;
    struct rank_state state;
    const char *host = remote_rank(w, rank, &state);
    out->rank = rank;
    snprintf(out->host, sizeof out->host, "%s", host);
    snprintf(out->operation, sizeof out->operation, "%s", state.at);
    if (w->options->world == 1) snprintf(name, 128, "worker %" PRId64, rank);
    else snprintf(name, 128, "rank %" PRId64 " on %s", rank, host);
}

static enum status status_of_name(const char *name) {
    for (int s = ERR_ARG; s <= ERR_STATE; s++)
        if (!strcmp(status_name((enum status)s), name)) return (enum status)s;
    return ERR_STATE;
}

/* ---- this host --------------------------------------------------------------------------------*/

/* Of one machine, be it its data, which ERR_CONFIG is about once a run has begun: it is said whose.
 * What else a rank fails for is no other on the next one. */
static bool is_local(enum status status) {
    return status == ERR_IO || status == ERR_MEMORY || status == ERR_DEVICE ||
           status == ERR_CONFIG;
}

/* A stop in good order that an error spoils is a failure all the same. */
static void spoil_stop(struct watch *w) {
    if (w->out->end == ATTEMPT_SIGNAL || w->out->end == ATTEMPT_TIME_LIMIT) w->ended = false;
}

/* A rank that lost a peer says so: that is why it stops, but hardly why the attempt does. */
static enum reported_loss loss_of(const struct watch *w, const struct rank *rank, enum status status) {
    if (status != ERR_PEER || w->options->world == 1) return REPORTED_LOSS_NONE;
    return board_has_met(rank->board) ? REPORTED_LOSS_LINK : REPORTED_LOSS_RENDEZVOUS;
}

void verdict_error_event(struct watch *w, int64_t rank, const json_t *event) {
    enum status status = status_of_name(json_text(event, "code", "ERR_STATE"));
    struct rank *here = &w->ranks.rank[rank - w->options->first_rank];
    enum reported_loss loss = loss_of(w, here, status);
    here->failed = true;
    if (loss && loss <= w->out->reported_loss) return;
    spoil_stop(w);
    if (!verdict_fail(w, ATTEMPT_FAILED)) return;
    char name[128];
    describe(w, rank, name);
    (void)FAIL(&w->out->error, status, "%s", json_text(event, "text", "no text"));
    if (w->options->world > 1 && (loss || is_local(status)))
        err_prefix(&w->out->error, "%s", name);
    const json_t *step = json_object_get(event, "step");
    w->out->error_step = step ? json_integer_value(step) : -1;
    w->out->reported_loss = loss;
    if (w->options->world > 1) watch_ask_to_stop(w, PEER_GRACE_S);
}

/* What it was at stays: that of the rank that speaks. */
static void blame_nobody(struct attempt *out) {
    out->rank = -1;
    *out->host = '\0';
}

void verdict_unrecorded(struct watch *w, const struct err *why) {
    spoil_stop(w);
    if (!verdict_fail(w, ATTEMPT_FAILED)) return;
    blame_nobody(w->out);
    *w->out->operation = '\0';
    w->out->error = *why;
}

/* Somebody else may have asked a worker to stop: all is well, but the run is not done. */
void verdict_done(struct watch *w, const json_t *event) {
    int signo = (int)json_integer_value(json_object_get(event, "signal"));
    const struct peer_connection *by = w->asked_by;
    char name[128] = "a worker";
    bool told = by && w->out->end == ATTEMPT_SIGNAL; /* by that task's runner */
    if (signo <= 0 || signo >= NSIG || (w->ended && !told)) return;
    if (!told) {
        verdict_settle(w, ATTEMPT_SIGNAL);
        w->out->signal = signo;
        w->out->signal_ms = clock_ms();
    } else {
        snprintf(name, sizeof name, "task %" PRId64 " on %s", by->task, by->host);
    }
    (void)FAIL(&w->out->error, ERR_INTERRUPTED, "%s was stopped by signal %d (%s), which %s "
               "did not send, after step %" PRId64, name, w->out->signal,
               strsignal(w->out->signal), w->options->peers ? "task 0" : "its runner",
               (int64_t)json_integer_value(json_object_get(event, "step")));
}

void verdict_death(struct watch *w, int64_t i, int wait_status) {
    bool signalled = WIFSIGNALED(wait_status);
    bool told = w->ranks.rank[i].failed && !signalled; /* it said why, then left */
    int signo = signalled ? WTERMSIG(wait_status) : 0;
    bool ours = (signo == SIGKILL && w->killed_ms) || (signo == SIGTERM && w->kill_at_ms);
    if (w->ranks.rank[i].done || told || ours) return;
    if (!verdict_fail(w, ATTEMPT_CRASHED)) return;
    char words[600], name[128];
    struct attempt *out = w->out;
    ranks_last_words(&w->ranks, i, words, sizeof words);
    describe(w, w->options->first_rank + i, name);
    out->worker_signal = signo;
    if (signalled)
        (void)FAIL(&out->error, ERR_PEER, "%s was killed by signal %d (%s), last at %s%s", name,
                   out->worker_signal, strsignal(out->worker_signal), out->operation, words);
    else
        (void)FAIL(&out->error, ERR_PEER,
                   "%s left with exit status %d without saying why, last at %s%s", name,
                   WEXITSTATUS(wait_status), out->operation, words);
}

/* What is known of all ranks into state[w->options->world]. */
static void survey(const struct watch *w, struct rank_state *state) {
    for (int64_t r = 0; r < w->options->world; r++) (void)remote_rank(w, r, &state[r]);
}

/* Says which rank has stood still for so long; where several have, that, and no rank is blamed.
 * False where none has. */
static bool say_still(struct watch *w, const struct rank_state *state, int64_t ticks) {
    struct attempt *out = w->out;
    int64_t rank, still = blame_still(state, w->options->world, ticks, &rank);
    if (!still) return false;
    int64_t still_s = state[rank].silent_ticks * TICK_MS / 1000;
    char name[128];
    describe(w, rank, name);
    if (still == 1) {
        (void)FAIL(&out->error, ERR_PEER, "%s stands still: no sign of life for %" PRId64
                   " s (last at %s); it was killed", name, still_s, out->operation);
    } else {
        (void)FAIL(&out->error, ERR_PEER, "%" PRId64 " ranks stand still: no sign of life of %s for"
                   " %" PRId64 " s (last at %s), nor of the others; they were killed", still, name,
                   still_s, out->operation);
        blame_nobody(out);
    }
    return true;
}

/* A process that stands still is why nothing goes on, here or on another host: its runner may not
 * have found out yet. Where all run, one of them may be behind the others. */
void verdict_hung(struct watch *w, int64_t silent_ms) {
    struct rank_state state[SUPERVISE_RANKS_MAX];
    struct attempt *out = w->out;
    int64_t world = w->options->world, silent_s = silent_ms / 1000;
    char name[128] = "";
    if (!verdict_fail(w, ATTEMPT_HUNG)) return;
    survey(w, state);
    if (say_still(w, state, STILL_TICKS)) return;
    int64_t behind = blame_behind(state, world);
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
        blame_nobody(out);
    }
}

/* What stops a host stops its ranks a moment apart: one that has stood still for half as long as
 * another counts as well. */
bool verdict_frozen(struct watch *w, int64_t ticks) {
    struct rank_state state[SUPERVISE_RANKS_MAX];
    int64_t longest;
    survey(w, state);
    if (!blame_still(state + w->options->first_rank, w->ranks.started, ticks, &longest))
        return false;
    if (verdict_fail(w, ATTEMPT_HUNG)) (void)say_still(w, state, ticks / 2);
    return true;
}

/* Of one link that broke it is known whose it is, but not at which end. */
static void blame_both(struct watch *w, const int64_t end[2], const char *said) {
    struct attempt *out = w->out;
    char first[128], second[128], host[sizeof out->host];
    describe(w, end[1], second);
    snprintf(host, sizeof host, "%s", out->host);
    describe(w, end[0], first);
    bool same = !strcmp(host, out->host);
    blame_nobody(out);
    if (same) snprintf(out->host, sizeof out->host, "%s", host);
    (void)FAIL(&out->error, ERR_PEER, "the link between %s and %s broke, at which end is not known,"
               " last at %s; %s", first, second, out->operation, said);
}

void verdict_conclude(struct watch *w) {
    struct rank_state state[SUPERVISE_RANKS_MAX];
    struct attempt *out = w->out;
    const struct err said = out->error;
    int64_t world = w->options->world, end[2];
    if (!remote_leads(w) || !out->reported_loss || said.code != ERR_PEER) return;
    if (out->reported_loss == REPORTED_LOSS_RENDEZVOUS) { /* what broke afterwards says nothing */
        blame_nobody(out);
        return;
    }
    survey(w, state);
    int64_t rank = blame_links(state, world);
    if (rank >= 0) {
        char name[128];
        describe(w, rank, name);
        (void)FAIL(&out->error, ERR_PEER, "%s lost its links, last at %s; %s", name, out->operation,
                   said.text);
    } else if (blame_link(state, world, end)) {
        blame_both(w, end, said.text);
    } else {
        blame_nobody(out);
    }
}

/* ---- other hosts ------------------------------------------------------------------------------*/

void verdict_lost(struct watch *w, const struct peer_connection *c) {
    if (!verdict_fail(w, ATTEMPT_CRASHED)) return;
    struct attempt *out = w->out;
    out->rank = remote_leads(w) ? c->first_rank : 0;
    snprintf(out->host, sizeof out->host, "%s", c->host);
    snprintf(out->operation, sizeof out->operation, "%s", c->state[0].at);
    char ranks[64] = "";
    if (remote_leads(w))
        snprintf(ranks, sizeof ranks, c->ranks > 1 ? " with ranks %" PRId64 " to %" PRId64
                                                   : " with rank %" PRId64,
                 c->first_rank, c->first_rank + c->ranks - 1);
    (void)FAIL(&out->error, ERR_PEER, "task %" PRId64 " on %s%s is lost: %s%s%s", c->task, c->host,
               ranks, c->why_lost, *out->operation ? "; last at " : "", out->operation);
}

json_t *verdict_message(const struct attempt *a) {
    return json_pack("{s:s,s:s,s:i,s:i,s:b,s:i,s:s,s:o,s:I,s:I,s:o,s:o,s:o}", "event", "ended",
                     "end", attempt_end_name(a->end), "signal", a->signal, "worker_signal",
                     a->worker_signal, "unresponsive", a->unresponsive, "reported_loss", a->reported_loss,
                     "code", status_name(a->error.code), "text", json_from_text(a->error.text),
                     "error_step", (json_int_t)a->error_step, "rank", (json_int_t)a->rank, "host",
                     json_from_text(a->host), "operation", json_from_text(a->operation),
                     "unkillable", json_from_text(a->unkillable));
}

static enum attempt_end end_of_name(const char *name) {
    for (int end = 0; end < ATTEMPT_ENDS; end++)
        if (!strcmp(attempt_end_name((enum attempt_end)end), name)) return (enum attempt_end)end;
    return ATTEMPT_FAILED;
}

static int64_t integer_or(const json_t *object, const char *key, int64_t otherwise) {
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

/* How another runner says that its part ended. A stop needs the signal that asked for it; without
 * one, or without an end, the part has failed. */
static enum attempt_end end_said(const json_t *ended, int *signo) {
    enum attempt_end end = end_of_name(json_text(ended, "end", ""));
    int64_t said = integer_or(ended, "signal", 0);
    *signo = said > 0 && said < NSIG ? (int)said : 0;
    bool stop = end == ATTEMPT_SIGNAL || end == ATTEMPT_ABANDONED;
    return stop && !*signo ? ATTEMPT_FAILED : end;
}

/* The error that another runner tells of; of a failure it must be one. */
static void adopt_error(struct attempt *out, const struct peer_connection *c, const json_t *ended) {
    const char *text = json_text(ended, "text", "");
    if (*text)
        (void)FAIL(&out->error, status_of_name(json_text(ended, "code", "")), "%s", text);
    else if (out->end == ATTEMPT_FAILED)
        (void)FAIL(&out->error, ERR_PEER, "task %" PRId64 " on %s ended its part of the attempt "
                   "without saying why", c->task, c->host);
}

/* A runner whose ranks ended because it was told to stop them knows no cause: its word gives way,
 * like reported_loss, and replaces nothing. */
void verdict_adopt(struct watch *w, const struct peer_connection *c, const json_t *ended) {
    struct attempt *out = w->out;
    int signo;
    enum attempt_end end = end_said(ended, &signo);
    bool told = end == ATTEMPT_CRASHED && !*json_text(ended, "text", "");
    int64_t word = integer_or(ended, "reported_loss", REPORTED_LOSS_NONE);
    bool known = word > REPORTED_LOSS_NONE && word <= REPORTED_LOSS_RENDEZVOUS;
    enum reported_loss loss = told ? REPORTED_LOSS_LINK : known ? (enum reported_loss)word : REPORTED_LOSS_NONE;
    if (json_is_true(json_object_get(ended, "unresponsive"))) out->unresponsive = true;
    if (!*out->unkillable)
        snprintf(out->unkillable, sizeof out->unkillable, "%s", json_text(ended, "unkillable", ""));
    if (end == ATTEMPT_DONE || (loss && loss <= out->reported_loss)) return;
    if (!verdict_fail(w, end)) return;
    out->reported_loss = loss;
    if (!out->asked) out->signal = signo;
    out->worker_signal = (int)integer_or(ended, "worker_signal", 0);
    out->error_step = integer_or(ended, "error_step", -1);
    out->rank = integer_or(ended, "rank", -1);
    snprintf(out->host, sizeof out->host, "%s", json_text(ended, "host", ""));
    snprintf(out->operation, sizeof out->operation, "%s", json_text(ended, "operation", ""));
    adopt_error(out, c, ended);
}
