#include "runner/job/supervise.h"

#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "runner/base/canonical.h"
#include "runner/base/clock.h"
#include "runner/base/run_files.h"
#include "runner/base/signals.h"
#include "runner/job/events.h"
#include "runner/job/remote.h"
#include "runner/job/verdict.h"

/* Silence that counts as a hang where no limit was given. */
enum {
    HANG_FIRST_S = 3600, /* before the first step: loading, tuning, compiling */
    HANG_LEAST_S = 600,
    HANG_GAPS = 20       /* times the longest silence so far */
};

/* ---- stopping ---------------------------------------------------------------------------------*/

/* SIGKILL does not end a process that waits in the kernel for a dead disk or a hung driver. */
static void leave_unkillable(struct watch *w) {
    for (int64_t i = 0; i < w->ranks.started; i++) {
        struct rank *rank = &w->ranks.rank[i];
        char text[ATTEMPT_UNKILLABLE_CAP];
        if (!rank->pid || rank->unkillable) continue;
        rank->unkillable = true;
        snprintf(text, sizeof text, "rank %" PRId64 " on %s (process %d) does not die, %d s after "
                 "SIGKILL: it is left behind and keeps its GPU", w->options->first_rank + i,
                 w->ranks.host, (int)rank->pid, SUPERVISE_UNKILLABLE_S);
        watch_say(w, text);
        if (!*w->out->unkillable)
            snprintf(w->out->unkillable, sizeof w->out->unkillable, "%s", text);
    }
}

static void take_signals(struct watch *w) {
    int64_t now = clock_ms();
    for (int signo; (signo = signals_take_request(w->options->signals, now)) != 0;) {
        if (w->out->signalled) {
            verdict_abandoned(w);
            watch_say(w, "another signal: killing the workers; steps since the last checkpoint are "
                         "lost");
            watch_kill(w);
            return;
        }
        w->out->signalled = true;
        watch_say(w, "stopping: checkpoint, bundle, exit; another signal after 1 s exits at once");
        if (watch_leads(w)) verdict_stop_request(w, signo);
        else remote_request_stop(w, signo);
    }
}

static int64_t hang_limit_ms(const struct watch *w) {
    if (w->options->hang_s) return w->options->hang_s * 1000;
    if (!w->out->last_step) return (int64_t)HANG_FIRST_S * 1000;
    int64_t gaps = HANG_GAPS * w->out->longest_gap_ms, least = (int64_t)HANG_LEAST_S * 1000;
    return gaps > least ? gaps : least;
}

/* For the leader, while the ranks are not stopping: the time limit, and ranks that make no
 * progress. A frozen process blocks all other ranks. */
static void watch_progress(struct watch *w, int64_t now, bool tick) {
    const struct supervise_options *o = w->options;
    int64_t frozen_s = o->hang_s ? o->hang_s : SUPERVISE_FROZEN_S, silent = now - w->last_event_ms;
    if (o->time_limit_s && now - w->begin_ms >= o->time_limit_s * 1000) {
        verdict_settle(w, ATTEMPT_TIME_LIMIT);
        watch_say(w, "time limit reached: checkpoint, bundle, exit");
        watch_ask_to_stop(w, o->stop_grace_s);
    } else if (tick && verdict_frozen(w, frozen_s * 1000 / TICK_MS)) {
        watch_kill(w);
    } else if (silent >= hang_limit_ms(w)) {
        verdict_hung(w, silent);
        watch_kill(w);
    }
}

static void watch_clocks(struct watch *w) {
    int64_t now = clock_ms();
    bool tick = now - w->tick_ms >= TICK_MS;
    if (tick) {
        w->tick_ms = now;
        ranks_check_heartbeats(&w->ranks);
        remote_tick(w);
    }
    if (!w->kill_at_ms && watch_leads(w)) watch_progress(w, now, tick);
    if (w->kill_at_ms && now >= w->kill_at_ms) {
        for (int64_t i = 0; i < w->ranks.started; i++)
            if (w->ranks.rank[i].pid && !w->ranks.rank[i].done) w->out->unresponsive = true;
        watch_kill(w);
    }
    if (w->killed_ms && now - w->killed_ms >= SUPERVISE_UNKILLABLE_S * 1000) leave_unkillable(w);
}

/* ---- events -----------------------------------------------------------------------------------*/

/* The leader judges an event with the states of all ranks at that time. */
static void report(struct watch *w, int64_t rank, json_t *event) {
    const char *kind = json_text(event, "event", "");
    if (!strcmp(kind, "error") || !strcmp(kind, "exit")) remote_show_ranks(w);
    if (event) verdict_event(w, rank, event);
    else verdict_no_memory(w);
    json_decref(event);
}

/* A line that is not an event counts as the worker's error, and its worker must stop. */
static void report_bad_line(struct watch *w, int64_t i, const struct err *why) {
    report(w, w->options->first_rank + i,
           json_pack("{s:s,s:s,s:o}", "event", "error", "code", status_name(why->code), "text",
                     json_from_text(why->text)));
    if (watch_leads(w)) watch_ask_to_stop(w, w->options->stop_grace_s);
}

static void take_events(struct watch *w, int64_t i) {
    struct rank *rank = &w->ranks.rank[i];
    struct err why = { 0 };
    if (!rank->events) return; /* the worker started, but its reader could not be created */
    if (rank->open && event_fill(rank->events, &rank->open, &why) != OK) {
        report_bad_line(w, i, &why);
        rank->open = false;
    }
    for (;;) {
        json_t *event = NULL;
        if (event_next(rank->events, &event, &why) != OK) {
            report_bad_line(w, i, &why);
            continue;
        }
        if (!event) return;
        if (!strcmp(json_text(event, "event", ""), "error")) rank->failed = true;
        if (!strcmp(json_text(event, "event", ""), "done")) rank->done = true;
        report(w, w->options->first_rank + i, event);
    }
}

/* Reports a death that nothing explains: neither the worker's error nor a signal from here. */
static void report_death(struct watch *w, int64_t i, int wait_status) {
    const struct rank *rank = &w->ranks.rank[i];
    int signo = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
    bool ours = (signo == SIGKILL && w->killed_ms) || (signo == SIGTERM && w->kill_at_ms);
    char log_line[600];
    if (ours || (rank->failed && !signo)) return;
    ranks_last_log_line(&w->ranks, i, log_line, sizeof log_line);
    report(w, w->options->first_rank + i,
           json_pack("{s:s,s:i,s:o}", "event", "exit", "status", wait_status, "log_line",
                     json_from_text(log_line)));
}

static void reap(struct watch *w) {
    for (int64_t i = 0; i < w->ranks.started; i++) {
        struct rank *rank = &w->ranks.rank[i];
        int wait_status = 0;
        if (!rank->pid || waitpid(rank->pid, &wait_status, WNOHANG) != rank->pid) continue;
        rank->pid = 0;
        take_events(w, i); /* the events that it wrote before it died */
        rank->open = false;
        if (rank->done) continue;
        report_death(w, i, wait_status);
        watch_ask_to_stop(w, PEER_GRACE_S);
    }
}

/* ---- the loop ---------------------------------------------------------------------------------*/

static void wait_for_input(struct watch *w) {
    struct pollfd fds[2 * SUPERVISE_RANKS_MAX + 1];
    const struct supervise_options *o = w->options;
    nfds_t n = 0;
    fds[n++].fd = o->signals->fd;
    for (int64_t i = 0; i < w->ranks.started; i++)
        if (w->ranks.rank[i].open) fds[n++].fd = event_reader_fd(w->ranks.rank[i].events);
    for (int64_t i = 0; i < o->peers; i++)
        if (!o->peer[i].lost) fds[n++].fd = event_reader_fd(o->peer[i].in);
    for (nfds_t i = 0; i < n; i++) fds[i].events = POLLIN;
    (void)poll(fds, n, TICK_MS);
}

static void watch_until_gone(struct watch *w) {
    while (!ranks_exited(&w->ranks) || !remote_over(w)) {
        wait_for_input(w);
        take_signals(w);
        for (int64_t i = 0; i < w->ranks.started; i++)
            if (w->ranks.rank[i].open) take_events(w, i);
        reap(w);
        remote_receive(w);
        watch_clocks(w);
        watch_say(w, NULL);
    }
    if (!w->ended && ranks_done(&w->ranks)) verdict_settle(w, ATTEMPT_DONE);
}

enum status supervise(const struct supervise_options *options, struct attempt *out, struct err *e) {
    if (options->ranks < 1 || options->world > SUPERVISE_RANKS_MAX ||
        options->peers > SUPERVISE_RANKS_MAX)
        return FAIL(e, ERR_ARG, "%" PRId64 " worker processes, %" PRId64 " in all, on %" PRId64
                    " hosts: from 1 to %d", options->ranks, options->world,
                    options->peers + 1, SUPERVISE_RANKS_MAX);
    *out = (struct attempt){ .end = ATTEMPT_CRASHED, .error_step = -1, .rank = -1 };
    struct watch *w = calloc(1, sizeof *w);
    if (!w) return FAIL(e, ERR_MEMORY, "process table");
    w->options = options;
    w->out = out;
    w->begin_ms = w->last_event_ms = clock_ms();
    enum status st = ranks_start(options, &w->ranks, e);
    if (st != OK) {
        verdict_settle(w, ATTEMPT_FAILED);
        watch_kill(w);
    }
    watch_until_gone(w);
    remote_show_ranks(w);
    if (watch_leads(w)) verdict_conclude(w);
    ranks_close(&w->ranks);
    free(w);
    return st;
}
