#include "runner/supervise.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runner/events.h"
#include "runner/run_files.h"
#include "runner/signals.h"
#include "runner/spawn.h"

enum {
    TICK_MS = 500,
    HANG_FIRST_S = 3600, /* before the first step: loading, tuning, compiling */
    HANG_LEAST_S = 600,
    HANG_GAPS = 20,      /* times the longest silence so far */
    PEER_GRACE_S = 5     /* what the other ranks get when one has died: they wait in a collective */
};

struct rank {
    pid_t pid; /* 0: reaped */
    struct event_reader *events;
    bool open, done;
};

struct watch {
    const struct supervise_options *options;
    struct attempt *out;
    struct rank rank[SUPERVISE_RANKS_MAX];
    int64_t started; /* ranks that were started */
    int64_t begin_ms, last_event_ms, longest_gap_ms, kill_at_ms; /* kill_at_ms 0: not stopping */
    bool ended; /* out->end is settled */
    bool deaf;  /* on_event failed: later events are read and dropped */
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

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void say(const struct watch *w, const char *what) {
    if (w->options->on_tick) w->options->on_tick(w->options->user, what);
}

/* ---- stopping ---------------------------------------------------------------------------------*/

static void signal_all(const struct watch *w, int signo) {
    for (int64_t i = 0; i < w->started; i++)
        if (w->rank[i].pid) (void)kill(w->rank[i].pid, signo);
}

/* Settles why the attempt ends; the first cause stays. */
static void settle(struct watch *w, enum attempt_end end) {
    if (w->ended) return;
    w->ended = true;
    w->out->end = end;
}

static void ask_to_stop(struct watch *w, int64_t grace_s) {
    if (w->kill_at_ms) return;
    w->kill_at_ms = now_ms() + grace_s * 1000;
    signal_all(w, SIGTERM);
}

static void kill_all(struct watch *w) {
    signal_all(w, SIGKILL);
    if (!w->kill_at_ms) w->kill_at_ms = now_ms();
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
        settle(w, ATTEMPT_SIGNAL);
        say(w, "stopping: checkpoint, bundle, leave (a second signal leaves at once)");
        ask_to_stop(w, w->options->stop_grace_s);
    }
}

static int64_t hang_limit_ms(const struct watch *w) {
    if (w->options->hang_s) return w->options->hang_s * 1000;
    if (!w->out->last_step) return (int64_t)HANG_FIRST_S * 1000;
    int64_t gaps = HANG_GAPS * w->longest_gap_ms, least = (int64_t)HANG_LEAST_S * 1000;
    return gaps > least ? gaps : least;
}

static void watch_clocks(struct watch *w) {
    const struct supervise_options *o = w->options;
    int64_t now = now_ms(), silent = now - w->last_event_ms;
    if (!w->kill_at_ms && o->time_limit_s && now - w->begin_ms >= o->time_limit_s * 1000) {
        settle(w, ATTEMPT_TIME_LIMIT);
        say(w, "time limit reached: checkpoint, bundle, leave");
        ask_to_stop(w, o->stop_grace_s);
    } else if (!w->kill_at_ms && silent >= hang_limit_ms(w)) {
        settle(w, ATTEMPT_HUNG);
        (void)FAIL(&w->out->error, ERR_PEER,
                   "the worker hung: no event for %" PRId64 " s after step %" PRId64
                   "; it was killed",
                   silent / 1000, w->out->last_step);
        kill_all(w);
    } else if (w->kill_at_ms && now >= w->kill_at_ms) {
        for (int64_t i = 0; i < w->started; i++)
            if (w->rank[i].pid && !w->rank[i].done) w->out->unresponsive = true;
        signal_all(w, SIGKILL);
    }
}

/* ---- events -----------------------------------------------------------------------------------*/

static void take_error_event(struct watch *w, const json_t *event) {
    if (w->ended && w->out->end != ATTEMPT_SIGNAL && w->out->end != ATTEMPT_TIME_LIMIT) return;
    const char *code = json_text(event, "code", "ERR_STATE");
    enum status status = ERR_STATE;
    for (int s = ERR_ARG; s <= ERR_STATE; s++)
        if (!strcmp(status_name((enum status)s), code)) status = (enum status)s;
    (void)FAIL(&w->out->error, status, "%s", json_text(event, "text", "no text"));
    const json_t *step = json_object_get(event, "step");
    w->out->error_step = step ? json_integer_value(step) : -1;
    w->out->end = ATTEMPT_FAILED;
    w->ended = true;
}

static void note_event(struct watch *w, struct rank *rank, const json_t *event) {
    const char *kind = json_text(event, "event", "");
    int64_t step = json_integer_value(json_object_get(event, "step"));
    int64_t now = now_ms(), gap = now - w->last_event_ms;
    if (w->out->last_step && gap > w->longest_gap_ms) w->longest_gap_ms = gap;
    w->last_event_ms = now;
    if (!strcmp(kind, "error")) take_error_event(w, event);
    if (!strcmp(kind, "done")) rank->done = true;
    if (rank != &w->rank[0]) return;
    if (!strcmp(kind, "step")) w->out->last_step = step;
    if (!strcmp(kind, "checkpoint")) w->out->checkpoint_step = step;
}

static void deliver(struct watch *w, const struct rank *rank, const json_t *event) {
    const char *kind = json_text(event, "event", "");
    bool wanted = rank == &w->rank[0] || !strcmp(kind, "log") || !strcmp(kind, "error");
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

/* The last line that the worker printed, for the error text; "" where there is none. */
static void last_log_line(const struct watch *w, int64_t rank, char *out, size_t size) {
    char name[64], path[PATH_CAP], tail[512] = "";
    *out = '\0';
    snprintf(name, sizeof name, "data/logs/worker-%" PRId64 ".log", rank);
    if (path_join(path, w->options->run_path, name, NULL) != OK) return;
    FILE *f = fopen(path, "re");
    if (!f) return;
    if (fseek(f, -(long)(sizeof tail - 1), SEEK_END) != 0) rewind(f);
    size_t n = fread(tail, 1, sizeof tail - 1, f);
    fclose(f);
    while (n && (tail[n - 1] == '\n' || tail[n - 1] == ' ')) tail[--n] = '\0';
    const char *line = strrchr(tail, '\n');
    snprintf(out, size, "; its last words: %s", line ? line + 1 : tail);
    if (!*tail) *out = '\0';
}

static void judge_death(struct watch *w, int64_t i, int wait_status) {
    if (w->rank[i].done || w->ended) return;
    char words[600];
    last_log_line(w, i, words, sizeof words);
    w->out->worker_signal = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
    if (WIFSIGNALED(wait_status))
        (void)FAIL(&w->out->error, ERR_PEER, "worker %" PRId64 " was killed by signal %d (%s)%s", i,
                   WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)), words);
    else
        (void)FAIL(&w->out->error, ERR_PEER,
                   "worker %" PRId64 " left with exit status %d without saying why%s", i,
                   WEXITSTATUS(wait_status), words);
    settle(w, ATTEMPT_CRASHED);
}

static void reap(struct watch *w) {
    for (int64_t i = 0; i < w->started; i++) {
        struct rank *rank = &w->rank[i];
        int wait_status = 0;
        if (!rank->pid || waitpid(rank->pid, &wait_status, WNOHANG) != rank->pid) continue;
        rank->pid = 0;
        take_events(w, rank); /* what it wrote before it died */
        rank->open = false;
        judge_death(w, i, wait_status);
        if (!rank->done) ask_to_stop(w, PEER_GRACE_S);
    }
}

static bool all_gone(const struct watch *w) {
    for (int64_t i = 0; i < w->started; i++)
        if (w->rank[i].pid) return false;
    return true;
}

/* ---- the loop ---------------------------------------------------------------------------------*/

static enum status start_rank(struct watch *w, int64_t i, struct err *e) {
    char log[64];
    snprintf(log, sizeof log, "data/logs/worker-%" PRId64 ".log", i);
    struct spawn_options spawn = {
        .argv = w->options->argv, .envp = w->options->envp, .rank = i, .world = w->options->ranks,
        .keep_fd = w->options->lock_fd, .old_mask = &w->options->signals->old,
    };
    TRY(path_join(spawn.log_path, w->options->run_path, log, e));
    int events = -1;
    TRY(spawn_worker(&spawn, &w->rank[i].pid, &events, e));
    w->started = i + 1;
    enum status st = event_reader_create(events, &w->rank[i].events, e);
    if (st != OK) close(events);
    w->rank[i].open = st == OK;
    return st;
}

static void wait_for_something(struct watch *w) {
    struct pollfd fds[SUPERVISE_RANKS_MAX + 1];
    nfds_t n = 0;
    fds[n++].fd = w->options->signals->fd;
    for (int64_t i = 0; i < w->started; i++)
        if (w->rank[i].open)
            fds[n++].fd = event_reader_fd(w->rank[i].events);
    for (nfds_t i = 0; i < n; i++) fds[i].events = POLLIN;
    (void)poll(fds, n, TICK_MS);
}

static void watch_until_gone(struct watch *w) {
    while (!all_gone(w)) {
        wait_for_something(w);
        take_signals(w);
        for (int64_t i = 0; i < w->started; i++)
            if (w->rank[i].open) take_events(w, &w->rank[i]);
        reap(w);
        watch_clocks(w);
        say(w, NULL);
    }
    bool all_done = w->started == w->options->ranks;
    for (int64_t i = 0; i < w->started; i++) all_done = all_done && w->rank[i].done;
    if (!w->ended && all_done) settle(w, ATTEMPT_DONE);
}

enum status supervise(const struct supervise_options *options, struct attempt *out, struct err *e) {
    if (options->ranks < 1 || options->ranks > SUPERVISE_RANKS_MAX)
        return FAIL(e, ERR_ARG, "%" PRId64 " worker processes: from 1 to %d", options->ranks,
                    SUPERVISE_RANKS_MAX);
    *out = (struct attempt){ .end = ATTEMPT_CRASHED, .error_step = -1 };
    struct watch *w = calloc(1, sizeof *w);
    if (!w) return FAIL(e, ERR_MEMORY, "process table");
    w->options = options;
    w->out = out;
    w->begin_ms = w->last_event_ms = now_ms();
    enum status st = OK;
    for (int64_t i = 0; i < options->ranks && st == OK; i++) st = start_rank(w, i, e);
    if (st != OK) {
        settle(w, ATTEMPT_FAILED);
        kill_all(w);
    }
    watch_until_gone(w);
    for (int64_t i = 0; i < w->started; i++) event_reader_destroy(w->rank[i].events);
    free(w);
    return st;
}
