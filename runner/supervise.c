#include "runner/supervise.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runner/clock.h"
#include "runner/events.h"
#include "runner/ranks.h"
#include "runner/run_files.h"
#include "runner/signals.h"

enum {
    TICK_MS = 500,
    HANG_FIRST_S = 3600, /* before the first step: loading, tuning, compiling */
    HANG_LEAST_S = 600,
    HANG_GAPS = 20,      /* times the longest silence so far */
    PEER_GRACE_S = 5     /* what the other ranks get when one has died: they wait in a collective */
};

struct watch {
    const struct supervise_options *options;
    struct attempt *out;
    struct ranks ranks;
    int64_t begin_ms, tick_ms, last_event_ms;
    int64_t kill_at_ms; /* 0: not stopping */
    bool ended;         /* out->end is settled */
    bool hearsay; /* by what a rank says of its peers: a rank that fails itself replaces it */
    bool killed;  /* by this process: a death by SIGKILL says nothing then */
    bool deaf;    /* on_event failed: later events are read and dropped */
};

const char *attempt_end_name(enum attempt_end end) {
    switch (end) {
    case ATTEMPT_DONE: return "done";
    case ATTEMPT_TIME_LIMIT: return "time_limit";
    case ATTEMPT_SIGNAL: return "signal";
    case ATTEMPT_FAILED: return "failed";
    case ATTEMPT_CRASHED: return "crashed";
    case ATTEMPT_HUNG: return "hung";
    case ATTEMPT_ABANDONED: return "abandoned";
    }
    return "unknown";
}

static void say(const struct watch *w, const char *what) {
    if (w->options->on_tick) w->options->on_tick(w->options->user, what);
}

/* ---- stopping ---------------------------------------------------------------------------------*/

/* Settles why the attempt ends; the first cause stays. */
static void settle(struct watch *w, enum attempt_end end) {
    if (w->ended) return;
    w->ended = true;
    w->out->end = end;
}

/* Whether a rank's own failure may still become the cause. */
static bool undecided(const struct watch *w) { return !w->ended || w->hearsay; }

static void settle_failure(struct watch *w, enum attempt_end end) {
    w->ended = w->hearsay = false;
    settle(w, end);
}

static void ask_to_stop(struct watch *w, int64_t grace_s) {
    if (w->kill_at_ms) return;
    w->kill_at_ms = clock_ms() + grace_s * 1000;
    ranks_signal(&w->ranks, SIGTERM);
}

static void kill_all(struct watch *w) {
    w->killed = true;
    ranks_signal(&w->ranks, SIGKILL);
    if (!w->kill_at_ms) w->kill_at_ms = clock_ms();
}

static void take_signals(struct watch *w) {
    for (int signo; (signo = signals_take(w->options->signals)) != 0;) {
        if (signo == SIGCHLD) continue;
        if (w->out->signal) {
            w->out->end = ATTEMPT_ABANDONED;
            w->ended = true;
            say(w, "second signal: leaving at once; steps since the last checkpoint are lost");
            kill_all(w);
            return;
        }
        w->out->signal = signo;
        w->out->signal_ms = clock_ms();
        settle(w, ATTEMPT_SIGNAL);
        say(w, "stopping: checkpoint, bundle, leave (a second signal leaves at once)");
        ask_to_stop(w, w->options->signal_grace_s);
    }
}

static int64_t hang_limit_ms(const struct watch *w) {
    if (w->options->hang_s) return w->options->hang_s * 1000;
    if (!w->out->last_step) return (int64_t)HANG_FIRST_S * 1000;
    int64_t gaps = HANG_GAPS * w->out->longest_gap_ms, least = (int64_t)HANG_LEAST_S * 1000;
    return gaps > least ? gaps : least;
}

static void kill_hung(struct watch *w, int64_t silent_ms) {
    settle(w, ATTEMPT_HUNG);
    if (w->ranks.started) {
        char name[128];
        ranks_describe(&w->ranks, 0, w->out, name);
    }
    (void)FAIL(&w->out->error, ERR_PEER,
               "the worker hung: no event for %" PRId64 " s after step %" PRId64
               " (last at %s); it was killed", silent_ms / 1000, w->out->last_step, w->out->operation);
    kill_all(w);
}

/* A process that is stopped, or that its host no longer runs, holds all others up. */
static void kill_frozen(struct watch *w) {
    int64_t limit_s = w->options->hang_s ? w->options->hang_s : SUPERVISE_FROZEN_S;
    int64_t i = ranks_frozen(&w->ranks, limit_s * 1000 / TICK_MS);
    if (i < 0 || w->kill_at_ms) return;
    char name[128];
    settle(w, ATTEMPT_HUNG);
    ranks_describe(&w->ranks, i, w->out, name);
    (void)FAIL(&w->out->error, ERR_PEER, "%s stands still: no sign of life for %" PRId64
               " s (last at %s); it was killed", name, limit_s, w->out->operation);
    kill_all(w);
}

static void watch_clocks(struct watch *w) {
    const struct supervise_options *o = w->options;
    int64_t now = clock_ms(), silent = now - w->last_event_ms;
    if (now - w->tick_ms >= TICK_MS) {
        w->tick_ms = now;
        kill_frozen(w);
    }
    if (!w->kill_at_ms && o->time_limit_s && now - w->begin_ms >= o->time_limit_s * 1000) {
        settle(w, ATTEMPT_TIME_LIMIT);
        say(w, "time limit reached: checkpoint, bundle, leave");
        ask_to_stop(w, o->stop_grace_s);
    } else if (!w->kill_at_ms && silent >= hang_limit_ms(w)) {
        kill_hung(w, silent);
    } else if (w->kill_at_ms && now >= w->kill_at_ms) {
        for (int64_t i = 0; i < w->ranks.started; i++)
            if (w->ranks.rank[i].pid && !w->ranks.rank[i].done) w->out->unresponsive = true;
        kill_all(w);
    }
}

/* ---- events -----------------------------------------------------------------------------------*/

static enum status status_of_name(const char *name) {
    for (int s = ERR_ARG; s <= ERR_STATE; s++)
        if (!strcmp(status_name((enum status)s), name)) return (enum status)s;
    return ERR_STATE;
}

/* A rank that lost a peer says so, too: that is why it stops, but hardly why the attempt does. */
static void take_error_event(struct watch *w, int64_t i, const json_t *event) {
    enum status status = status_of_name(json_text(event, "code", "ERR_STATE"));
    bool hearsay = status == ERR_PEER && w->options->ranks > 1;
    bool stopping = w->out->end == ATTEMPT_SIGNAL || w->out->end == ATTEMPT_TIME_LIMIT;
    if (!undecided(w) && !stopping) return;
    if (w->hearsay && hearsay) return;
    char name[128];
    (void)FAIL(&w->out->error, status, "%s", json_text(event, "text", "no text"));
    const json_t *step = json_object_get(event, "step");
    w->out->error_step = step ? json_integer_value(step) : -1;
    ranks_describe(&w->ranks, i, w->out, name);
    settle_failure(w, ATTEMPT_FAILED);
    w->hearsay = hearsay;
    if (w->options->ranks > 1) ask_to_stop(w, PEER_GRACE_S);
}

static void note_event(struct watch *w, struct rank *rank, const json_t *event) {
    const char *kind = json_text(event, "event", "");
    int64_t step = json_integer_value(json_object_get(event, "step"));
    int64_t now = clock_ms(), gap = now - w->last_event_ms;
    if (w->out->last_step && gap > w->out->longest_gap_ms) w->out->longest_gap_ms = gap;
    w->last_event_ms = now;
    if (!strcmp(kind, "error")) take_error_event(w, rank - w->ranks.rank, event);
    if (!strcmp(kind, "done")) rank->done = true;
    if (rank != &w->ranks.rank[0]) return;
    if (!strcmp(kind, "step")) w->out->last_step = step;
    if (!strcmp(kind, "checkpoint")) w->out->checkpoint_step = step;
}

static void deliver(struct watch *w, const struct rank *rank, const json_t *event) {
    const char *kind = json_text(event, "event", "");
    bool wanted = rank == &w->ranks.rank[0] || !strcmp(kind, "log") || !strcmp(kind, "error");
    if (!wanted || w->deaf) return;
    if (w->options->on_event(w->options->user, event, &w->out->error) == OK) return;
    w->deaf = true;
    w->out->end = ATTEMPT_FAILED;
    w->ended = true;
    ask_to_stop(w, w->options->stop_grace_s);
}

static void bad_line(struct watch *w, const struct err *why) {
    if (!w->ended) w->out->error = *why;
    settle(w, ATTEMPT_FAILED);
    ask_to_stop(w, w->options->stop_grace_s);
}

static void take_events(struct watch *w, struct rank *rank) {
    struct err why = { 0 };
    if (rank->open && event_fill(rank->events, &rank->open, &why) != OK) {
        bad_line(w, &why);
        rank->open = false;
    }
    for (;;) {
        json_t *event = NULL;
        if (event_next(rank->events, &event, &why) != OK) {
            bad_line(w, &why);
            continue;
        }
        if (!event) return;
        note_event(w, rank, event);
        deliver(w, rank, event);
        json_decref(event);
    }
}

/* ---- deaths -----------------------------------------------------------------------------------*/

static void judge_death(struct watch *w, int64_t i, int wait_status) {
    if (w->ranks.rank[i].done || !undecided(w)) return;
    bool told = w->hearsay && w->out->rank == i; /* it said why, then left */
    if (told && !WIFSIGNALED(wait_status)) return;
    bool ours = WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL && w->killed;
    if (ours) return;
    char words[600], name[128];
    ranks_last_words(&w->ranks, i, words, sizeof words);
    ranks_describe(&w->ranks, i, w->out, name);
    w->out->worker_signal = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
    w->out->error_step = -1;
    if (WIFSIGNALED(wait_status))
        (void)FAIL(&w->out->error, ERR_PEER, "%s was killed by signal %d (%s), last at %s%s", name,
                   WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)), w->out->operation,
                   words);
    else
        (void)FAIL(&w->out->error, ERR_PEER,
                   "%s left with exit status %d without saying why, last at %s%s", name,
                   WEXITSTATUS(wait_status), w->out->operation, words);
    settle_failure(w, ATTEMPT_CRASHED);
}

static void reap(struct watch *w) {
    for (int64_t i = 0; i < w->ranks.started; i++) {
        struct rank *rank = &w->ranks.rank[i];
        int wait_status = 0;
        if (!rank->pid || waitpid(rank->pid, &wait_status, WNOHANG) != rank->pid) continue;
        rank->pid = 0;
        take_events(w, rank); /* what it wrote before it died */
        rank->open = false;
        judge_death(w, i, wait_status);
        if (!rank->done) ask_to_stop(w, PEER_GRACE_S);
    }
}

/* ---- the loop ---------------------------------------------------------------------------------*/

static void wait_for_something(struct watch *w) {
    struct pollfd fds[SUPERVISE_RANKS_MAX + 1];
    nfds_t n = 0;
    fds[n++].fd = w->options->signals->fd;
    for (int64_t i = 0; i < w->ranks.started; i++)
        if (w->ranks.rank[i].open)
            fds[n++].fd = event_reader_fd(w->ranks.rank[i].events);
    for (nfds_t i = 0; i < n; i++) fds[i].events = POLLIN;
    (void)poll(fds, n, TICK_MS);
}

static void watch_until_gone(struct watch *w) {
    while (!ranks_gone(&w->ranks)) {
        wait_for_something(w);
        take_signals(w);
        for (int64_t i = 0; i < w->ranks.started; i++)
            if (w->ranks.rank[i].open) take_events(w, &w->ranks.rank[i]);
        reap(w);
        watch_clocks(w);
        say(w, NULL);
    }
    if (!w->ended && ranks_done(&w->ranks)) settle(w, ATTEMPT_DONE);
}

enum status supervise(const struct supervise_options *options, struct attempt *out, struct err *e) {
    if (options->ranks < 1 || options->ranks > SUPERVISE_RANKS_MAX)
        return FAIL(e, ERR_ARG, "%" PRId64 " worker processes: from 1 to %d", options->ranks,
                    SUPERVISE_RANKS_MAX);
    *out = (struct attempt){ .end = ATTEMPT_CRASHED, .error_step = -1, .rank = -1 };
    struct watch *w = calloc(1, sizeof *w);
    if (!w) return FAIL(e, ERR_MEMORY, "process table");
    w->options = options;
    w->out = out;
    w->begin_ms = w->last_event_ms = clock_ms();
    enum status st = ranks_start(options, &w->ranks, e);
    if (st != OK) {
        settle(w, ATTEMPT_FAILED);
        kill_all(w);
    }
    watch_until_gone(w);
    ranks_close(&w->ranks);
    free(w);
    return st;
}
