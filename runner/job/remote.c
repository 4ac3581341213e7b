/* The part of an attempt that other hosts have: watched through their runners. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "model/json_safe.h"
#include "runner/base/run_files.h"
#include "runner/job/peer_connection.h"
#include "runner/job/watch.h"

bool remote_leads(const struct watch *w) { return w->options->first_rank == 0; }

bool remote_over(const struct watch *w) {
    for (int64_t i = 0; remote_leads(w) && i < w->options->peers; i++)
        if (!w->options->peer[i].ended) return false;
    return true;
}

/* To everyone who has a part in the attempt still; messages are short and must not fail it. */
static void say_all(struct watch *w, const char *event, int64_t grace_s) {
    for (int64_t i = 0; i < w->options->peers; i++) {
        struct peer_connection *c = &w->options->peer[i];
        struct err e;
        if (!c->ended && peer_connection_send(c, json_pack("{s:s,s:I}", "event", event, "grace_s",
                                                    (json_int_t)grace_s), &e) != OK)
            watch_say(w, e.text);
    }
}

void remote_stop(struct watch *w, int64_t grace_s) {
    if (remote_leads(w)) say_all(w, "stop", grace_s);
}

void remote_kill(struct watch *w) {
    if (remote_leads(w)) say_all(w, "kill", 0);
}

void remote_ask(struct watch *w, int signo) {
    struct err e;
    for (int64_t i = 0; !remote_leads(w) && i < w->options->peers; i++)
        if (peer_connection_send_stop(&w->options->peer[i], signo, &e) != OK) watch_say(w, e.text);
}

/* ---- what they say ----------------------------------------------------------------------------*/

static void note_states(struct peer_connection *c, const json_t *ranks) {
    for (size_t i = 0; i < json_array_size(ranks) && i < SUPERVISE_RANKS_MAX; i++)
        rank_state_unpack(json_array_get(ranks, i), &c->state[i]);
}

static void take_stop_request(struct watch *w, const struct peer_connection *c, int signo) {
    char text[160];
    if (w->out->asked) return;
    snprintf(text, sizeof text, "task %" PRId64 " on %s was asked to stop (signal %d, %s): all do",
             c->task, c->host, signo, strsignal(signo));
    watch_say(w, text);
    w->asked_by = c;
    watch_asked(w, signo);
}

static void take_message(struct watch *w, struct peer_connection *c, const json_t *message) {
    const char *kind = json_text(message, "event", "");
    bool leads = remote_leads(w);
    int asked = stop_request_signal(message);
    if (leads && asked) take_stop_request(w, c, asked);
    if (!strcmp(kind, "beat")) note_states(c, json_object_get(message, "ranks"));
    if (leads && !strcmp(kind, "rank")) {
        int64_t rank = json_integer_value(json_object_get(message, "rank"));
        bool theirs = rank >= c->first_rank && rank < c->first_rank + c->ranks;
        if (theirs) watch_event(w, rank, json_object_get(message, "body"));
    }
    if (leads && !strcmp(kind, "ended")) {
        c->ended = true;
        verdict_adopt(w, c, message);
        if (w->ended) watch_ask_to_stop(w, PEER_GRACE_S);
    }
    if (!leads && !strcmp(kind, "stop"))
        watch_ask_to_stop(w, json_integer_value(json_object_get(message, "grace_s")));
    if (!leads && !strcmp(kind, "kill")) watch_kill(w);
}

/* Its ranks cannot be asked any more; those here would wait for them. */
static void take_loss(struct watch *w, struct peer_connection *c) {
    if (c->ended) return;
    c->ended = true;
    verdict_lost(w, c);
    if (remote_leads(w)) watch_ask_to_stop(w, PEER_GRACE_S);
    else watch_kill(w);
}

void remote_take(struct watch *w) {
    for (int64_t i = 0; i < w->options->peers; i++) {
        struct peer_connection *c = &w->options->peer[i];
        peer_connection_fill(c);
        for (json_t *message; (message = peer_connection_next(c)) != NULL;) {
            take_message(w, c, message);
            json_decref(message);
        }
        if (c->lost) take_loss(w, c);
    }
}

/* ---- signs of life ----------------------------------------------------------------------------*/

/* What each rank here is at, for comparison with the others, and for where this host's last word
 * must do. */
static json_t *pack_states(const struct watch *w) {
    json_t *ranks = json_array();
    bool failed = false;
    for (int64_t i = 0; i < w->ranks.started; i++) {
        struct rank_state state;
        ranks_state(&w->ranks, i, &state);
        json_append(ranks, rank_state_pack(&state), &failed);
    }
    return json_whole(ranks, failed);
}

static void beat(struct watch *w, struct peer_connection *c) {
    struct err e;
    if (peer_connection_send(c, json_pack("{s:s,s:o}", "event", "beat", "ranks", pack_states(w)), &e) !=
        OK)
        watch_say(w, e.text);
}

void remote_tick(struct watch *w) {
    int64_t limit_s = remote_leads(w) ? SUPERVISE_FROZEN_S : SUPERVISE_LEADER_S;
    for (int64_t i = 0; i < w->options->peers; i++) {
        struct peer_connection *c = &w->options->peer[i];
        if (c->lost || c->ended) continue;
        beat(w, c);
        if (++c->silent_ticks < limit_s * 1000 / TICK_MS) continue;
        c->lost = true;
        snprintf(c->why_lost, sizeof c->why_lost, "no sign of life for %" PRId64 " s", limit_s);
        take_loss(w, c);
    }
}

void remote_conclude(struct watch *w) {
    for (int64_t i = 0; !remote_leads(w) && i < w->options->peers; i++)
        beat(w, &w->options->peer[i]);
}

/* ---- all ranks --------------------------------------------------------------------------------*/

const char *remote_rank(const struct watch *w, int64_t rank, struct rank_state *out) {
    const struct supervise_options *o = w->options;
    int64_t i = rank - o->first_rank;
    *out = (struct rank_state){ .known = false };
    if (i >= 0 && i < w->ranks.started) {
        ranks_state(&w->ranks, i, out);
        return w->ranks.host;
    }
    for (int64_t k = 0; remote_leads(w) && k < o->peers; k++) {
        const struct peer_connection *c = &o->peer[k];
        if (rank < c->first_rank || rank >= c->first_rank + c->ranks) continue;
        *out = c->state[rank - c->first_rank];
        return c->host;
    }
    return "";
}
