/* An attempt in progress: the processes here, what is known of all ranks, and what every part of
 * the supervision may do to them. Decides nothing: verdict.h says why the attempt ends, supervise.c
 * when to look. */
#ifndef FP8LAB_RUNNER_JOB_WATCH_H
#define FP8LAB_RUNNER_JOB_WATCH_H

#include "runner/job/peer_connection.h"
#include "runner/job/ranks.h"

enum {
    TICK_MS = 500,
    /* Grace for ranks with nothing to save: they have made no step, or wait in a collective for a
     * rank that died. */
    PEER_GRACE_S = 5
};

struct watch {
    const struct supervise_options *options;
    struct attempt *out;
    struct ranks ranks;                           /* the processes here */
    struct rank_state state[SUPERVISE_RANKS_MAX]; /* of rank r at [r]; see watch_state */
    int64_t begin_ms, tick_ms, last_event_ms;
    int64_t kill_at_ms; /* when ranks that were asked to stop are killed; 0: not stopping */
    const struct peer_connection *stop_requested_by; /* whose task got it; NULL: this one */
    int64_t killed_ms; /* since when this process sends SIGKILL; 0: it does not */
    bool ended;        /* out->end is settled; a real cause may still replace a reported loss */
    bool discards_events; /* on_event failed: later events are read and discarded */
};

bool watch_leads(const struct watch *w); /* rank 0 is on this host */
void watch_say(const struct watch *w, const char *what); /* to the user; NULL: only a tick */

/* SIGTERM to all ranks now, SIGKILL after grace_s; also on the other hosts if this one leads.
 * Of several calls the earliest SIGKILL counts. */
void watch_ask_to_stop(struct watch *w, int64_t grace_s);
void watch_kill(struct watch *w); /* SIGKILL to all ranks now */

/* Updates out->last_step and similar members from an event of a rank of any host. Calls on_event.
 * Errors are on_event's; later events are discarded then. */
NODISCARD enum status watch_event(struct watch *w, int64_t rank, const struct json_t *event,
                                  struct err *e);

/* What is known of a rank: of a rank here now or when it died, of another by its runner's last
 * heartbeat. A follower knows only the ranks here. */
const struct rank_state *watch_state(struct watch *w, int64_t rank);
void watch_survey(struct watch *w); /* brings w->state of all ranks here up to date */
const char *watch_host(const struct watch *w, int64_t rank); /* "": unknown */

#endif
