#include "runner/job/remote.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"
#include "runner/job/peer_connection.h"
#include "runner/job/verdict.h"

bool remote_over(const struct watch *w) {
    for (int64_t i = 0; watch_leads(w) && i < w->options->peers; i++)
        if (!w->options->peer[i].ended) return false;
    return true;
}

void remote_request_stop(struct watch *w, int signo) {
    struct err e;
    w->out->signal = signo;
    for (int64_t i = 0; i < w->options->peers; i++)
        if (peer_connection_send_stop(&w->options->peer[i], signo, &e) != OK) watch_say(w, e.text);
}

/* ---- messages ---------------------------------------------------------------------------------*/

static void take_states(struct watch *w, const struct peer_connection *c, const json_t *ranks) {
    for (int64_t i = 0; i < c->ranks && i < (int64_t)json_array_size(ranks); i++)
        w->state[c->first_rank + i] = rank_state_unpack(json_array_get(ranks, (size_t)i));
}

static void handle_stop_request(struct watch *w, const struct peer_connection *c, int signo) {
    char text[160];
    if (w->out->stop_requested) return;
    snprintf(text, sizeof text, "task %" PRId64 " on %s got a stop request (signal %d, %s): all "
             "tasks stop", c->task, c->host, signo, strsignal(signo));
    watch_say(w, text);
    w->stop_requested_by = c;
    verdict_stop_request(w, signo);
}

static void handle_event(struct watch *w, const struct peer_connection *c, const json_t *message) {
    int64_t rank = json_int(message, "rank");
    if (peer_connection_has(c, rank)) verdict_event(w, rank, json_object_get(message, "body"));
}

/* Its ranks have reported before how they ended. */
static void handle_end(struct watch *w, struct peer_connection *c, const json_t *message) {
    struct attempt *out = w->out;
    c->ended = true;
    if (json_is_true(json_object_get(message, "unresponsive"))) out->unresponsive = true;
    if (!*out->unkillable)
        snprintf(out->unkillable, sizeof out->unkillable, "%s",
                 json_text(message, "unkillable", ""));
    if (!json_is_true(json_object_get(message, "done"))) verdict_unexplained(w, c);
    if (w->ended) watch_ask_to_stop(w, PEER_GRACE_S);
}

static void handle_message(struct watch *w, struct peer_connection *c, const json_t *message) {
    const char *kind = json_text(message, "event", "");
    bool leads = watch_leads(w);
    int signo = stop_request_signal(message);
    if (leads && !strcmp(kind, "beat")) take_states(w, c, json_object_get(message, "ranks"));
    if (leads && signo) handle_stop_request(w, c, signo);
    if (leads && !strcmp(kind, "rank")) handle_event(w, c, message);
    if (leads && !strcmp(kind, "ended")) handle_end(w, c, message);
    if (!leads && !strcmp(kind, "stop")) watch_ask_to_stop(w, json_int(message, "grace_s"));
    if (!leads && !strcmp(kind, "kill")) watch_kill(w);
}

/* The ranks of a lost host cannot be stopped from here, and the ranks here would wait for them. */
static void handle_loss(struct watch *w, struct peer_connection *c) {
    if (c->ended) return;
    c->ended = true;
    if (!watch_leads(w)) {
        watch_kill(w);
        return;
    }
    verdict_lost(w, c);
    watch_ask_to_stop(w, PEER_GRACE_S);
}

void remote_receive(struct watch *w) {
    for (int64_t i = 0; i < w->options->peers; i++) {
        struct peer_connection *c = &w->options->peer[i];
        peer_connection_fill(c);
        for (json_t *message; (message = peer_connection_next(c)) != NULL;) {
            handle_message(w, c, message);
            json_decref(message);
        }
        if (c->lost) handle_loss(w, c);
    }
}

/* ---- heartbeats -------------------------------------------------------------------------------*/

/* A follower's heartbeat holds the state of each of its ranks. The leader compares the states of
 * all ranks, and needs the last ones after a host is lost. */
static void send_heartbeat(struct watch *w, struct peer_connection *c) {
    json_t *ranks = json_array();
    bool failed = false;
    struct err e;
    for (int64_t i = 0; i < w->ranks.started && !watch_leads(w); i++)
        json_append(ranks, rank_state_pack(watch_state(w, w->options->first_rank + i)), &failed);
    json_t *message = json_pack("{s:s,s:o}", "event", "beat", "ranks", json_whole(ranks, failed));
    if (peer_connection_send(c, message, &e) != OK) watch_say(w, e.text);
}

void remote_show_ranks(struct watch *w) {
    for (int64_t i = 0; !watch_leads(w) && i < w->options->peers; i++)
        send_heartbeat(w, &w->options->peer[i]);
}

void remote_tick(struct watch *w) {
    int64_t limit_s = watch_leads(w) ? SUPERVISE_FROZEN_S : SUPERVISE_LEADER_S;
    for (int64_t i = 0; i < w->options->peers; i++) {
        struct peer_connection *c = &w->options->peer[i];
        if (c->lost || c->ended) continue;
        send_heartbeat(w, c);
        if (++c->silent_ticks < limit_s * 1000 / TICK_MS) continue;
        c->lost = true;
        snprintf(c->why_lost, sizeof c->why_lost, "no sign of life for %" PRId64 " s", limit_s);
        handle_loss(w, c);
    }
}
