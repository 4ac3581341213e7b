#include "runner/job/watch.h"

#include <jansson.h>
#include <signal.h>
#include <string.h>

#include "runner/base/clock.h"
#include "runner/base/run_files.h"

bool watch_leads(const struct watch *w) { return w->options->first_rank == 0; }

void watch_say(const struct watch *w, const char *what) {
    if (w->options->on_tick) w->options->on_tick(w->options->user, what);
}

/* ---- stopping ---------------------------------------------------------------------------------*/

/* To every follower with ranks in this attempt. A failure to send must not fail the attempt. */
static void send_to_followers(struct watch *w, const char *event, int64_t grace_s) {
    for (int64_t i = 0; watch_leads(w) && i < w->options->peers; i++) {
        struct peer_connection *c = &w->options->peer[i];
        struct err e;
        if (!c->ended &&
            peer_connection_send(c, json_pack("{s:s,s:I}", "event", event, "grace_s",
                                              (json_int_t)grace_s), &e) != OK)
            watch_say(w, e.text);
    }
}

void watch_ask_to_stop(struct watch *w, int64_t grace_s) {
    int64_t at = clock_ms() + grace_s * 1000;
    if (w->kill_at_ms && w->kill_at_ms <= at) return;
    bool first = !w->kill_at_ms;
    w->kill_at_ms = at;
    if (first) ranks_signal(&w->ranks, SIGTERM);
    send_to_followers(w, "stop", grace_s);
}

void watch_kill(struct watch *w) {
    if (!w->killed_ms) {
        send_to_followers(w, "kill", 0);
        w->killed_ms = clock_ms();
    }
    ranks_signal(&w->ranks, SIGKILL);
    if (!w->kill_at_ms) w->kill_at_ms = w->killed_ms;
}

/* ---- events -----------------------------------------------------------------------------------*/

static bool is_wanted(int64_t rank, const char *kind) {
    static const char *const OTHERS[] = { "log", "error", "exit", "telemetry",
                                         "pace", "unsaved", "audit", "ready", "table" };
    for (size_t i = 0; i < sizeof OTHERS / sizeof *OTHERS; i++)
        if (!strcmp(kind, OTHERS[i])) return true;
    return rank == 0;
}

enum status watch_event(struct watch *w, int64_t rank, const json_t *event, struct err *e) {
    const char *kind = json_text(event, "event", "");
    int64_t step = json_int(event, "step");
    int64_t now = clock_ms(), gap = now - w->last_event_ms;
    if (w->out->last_step && gap > w->out->longest_gap_ms) w->out->longest_gap_ms = gap;
    w->last_event_ms = now;
    if (rank == 0 && !strcmp(kind, "step")) w->out->last_step = step;
    if (rank == 0 && !strcmp(kind, "checkpoint")) w->out->checkpoint_step = step;
    if (w->discards_events || !is_wanted(rank, kind)) return OK;
    enum status st = w->options->on_event(w->options->user, rank, event, e);
    w->discards_events = st != OK;
    return st;
}

/* ---- all ranks --------------------------------------------------------------------------------*/

const struct rank_state *watch_state(struct watch *w, int64_t rank) {
    int64_t here = rank - w->options->first_rank;
    if (here >= 0 && here < w->ranks.started) {
        w->state[rank] = board_read(w->ranks.rank[here].board);
        w->state[rank].silent_ticks = w->ranks.rank[here].silent_ticks;
    }
    return &w->state[rank];
}

void watch_survey(struct watch *w) {
    for (int64_t i = 0; i < w->ranks.started; i++)
        (void)watch_state(w, w->options->first_rank + i);
}

const char *watch_host(const struct watch *w, int64_t rank) {
    const struct supervise_options *o = w->options;
    if (rank >= o->first_rank && rank < o->first_rank + w->ranks.started) return w->ranks.host;
    for (int64_t i = 0; i < o->peers; i++)
        if (peer_connection_has(&o->peer[i], rank)) return o->peer[i].host;
    return "";
}
