#include "runner/job/ranks.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runner/base/run_files.h"
#include "runner/base/signals.h"
#include "runner/job/events.h"
#include "runner/job/spawn.h"

/* ---- starting ---------------------------------------------------------------------------------*/

static enum status start_rank(struct ranks *r, int64_t i, struct err *e) {
    const struct supervise_options *o = r->options;
    struct rank *rank = &r->rank[i];
    char log[64];
    int board = -1, events = -1;
    int64_t number = o->first_rank + i;
    snprintf(log, sizeof log, "data/logs/worker-%" PRId64 ".log", number);
    struct spawn_options spawn = {
        .argv = o->argv, .envp = o->envp, .rank = number, .world = o->world,
        .device = o->device ? o->device[i] : i,
        .rendezvous_fd = number == 0 ? o->rendezvous_fd : -1, .keep_fd = o->lock_fd,
        .old_mask = &o->signals->old,
    };
    TRY(path_join(spawn.log_path, o->run_path, log, e));
    TRY(board_create(&rank->board, &board, e));
    if (o->rendezvous) rank->board->rendezvous = *o->rendezvous;
    spawn.board_fd = board;
    enum status st = spawn_worker(&spawn, &rank->pid, &events, e);
    close(board);
    r->started = i + 1;
    if (st != OK) return st;
    st = event_reader_create(events, &rank->events, e);
    if (st != OK) close(events);
    rank->open = st == OK;
    return st;
}

enum status ranks_start(const struct supervise_options *options, struct ranks *out,
                        struct err *e) {
    *out = (struct ranks){ .options = options };
    host_name(out->host);
    enum status st = OK;
    for (int64_t i = 0; i < options->ranks && st == OK; i++) st = start_rank(out, i, e);
    return st;
}

void ranks_close(struct ranks *r) {
    for (int64_t i = 0; i < r->started; i++) {
        event_reader_destroy(r->rank[i].events);
        board_close(r->rank[i].board);
    }
}

/* ---- all ranks --------------------------------------------------------------------------------*/

void ranks_signal(const struct ranks *r, int signo) {
    for (int64_t i = 0; i < r->started; i++)
        if (r->rank[i].pid) (void)kill(r->rank[i].pid, signo);
}

bool ranks_gone(const struct ranks *r) {
    for (int64_t i = 0; i < r->started; i++)
        if (r->rank[i].pid && !r->rank[i].unkillable) return false;
    return true;
}

bool ranks_done(const struct ranks *r) {
    bool done = r->started == r->options->ranks;
    for (int64_t i = 0; i < r->started; i++) done = done && r->rank[i].done;
    return done;
}

void ranks_look(struct ranks *r) {
    for (int64_t i = 0; i < r->started; i++) {
        struct rank *rank = &r->rank[i];
        int64_t beats = board_beats(rank->board);
        bool counts = rank->pid && beats > 0 && beats == rank->beats;
        rank->silent_ticks = counts ? rank->silent_ticks + 1 : 0;
        rank->beats = beats;
    }
}

void ranks_state(const struct ranks *r, int64_t i, struct rank_state *out) {
    rank_state_read(r->rank[i].board, r->rank[i].silent_ticks, out);
}

/* ---- the log ----------------------------------------------------------------------------------*/

void ranks_last_log_line(const struct ranks *r, int64_t i, char *out, size_t size) {
    char name[64], path[PATH_CAP], tail[512] = "";
    *out = '\0';
    snprintf(name, sizeof name, "data/logs/worker-%" PRId64 ".log",
             r->options->first_rank + i);
    if (path_join(path, r->options->run_path, name, NULL) != OK) return;
    FILE *f = fopen(path, "re");
    if (!f) return;
    if (fseek(f, -(long)(sizeof tail - 1), SEEK_END) != 0) rewind(f);
    size_t n = fread(tail, 1, sizeof tail - 1, f);
    fclose(f);
    while (n && (tail[n - 1] == '\n' || tail[n - 1] == ' ')) tail[--n] = '\0';
    const char *line = strrchr(tail, '\n');
    snprintf(out, size, "; last line of its log: %s", line ? line + 1 : tail);
    if (!*tail) *out = '\0';
}
