/* An attempt under way: what supervise.c (its clock and its loop), verdict.c (why it ends) and
 * remote.c (its part on other hosts) share. */
#ifndef FP8LAB_RUNNER_JOB_WATCH_H
#define FP8LAB_RUNNER_JOB_WATCH_H

#include "runner/job/ranks.h"

enum {
    TICK_MS = 500,
    PEER_GRACE_S = 5 /* what ranks get that have nothing to save: another has died, and they wait in
                      * a collective; or they have made no step yet */
};

struct watch {
    const struct supervise_options *options;
    struct attempt *out;
    struct ranks ranks;
    int64_t begin_ms, tick_ms, last_event_ms;
    int64_t kill_at_ms; /* 0: not stopping */
    const struct peer_connection *asked_by; /* the one whose task was, and not this process; or NULL */
    int64_t killed_ms;  /* since when this process kills: a death by SIGKILL says nothing then; 0 */
    bool ended;         /* out->end is settled, though a reported_loss one may be replaced */
    bool discards_events;   /* on_event failed: later events are read and dropped */
};

/* ---- supervise.c ---- */
void watch_say(const struct watch *w, const char *what);
void watch_ask_to_stop(struct watch *w, int64_t grace_s); /* SIGTERM now, SIGKILL then */
void watch_kill(struct watch *w);
void watch_asked(struct watch *w, int signo); /* a stop request came, to whichever task */
/* An event of a rank, wherever it runs. */
void watch_event(struct watch *w, int64_t rank, const struct json_t *event);

/* ---- verdict.c ---- */
/* Settles why the attempt ends; the first cause stays. */
void verdict_settle(struct watch *w, enum attempt_end end);
void verdict_error_event(struct watch *w, int64_t rank, const struct json_t *event);
/* What a rank says cannot be kept here (a full disk): no rank is to blame. */
void verdict_unrecorded(struct watch *w, const struct err *why);
/* Rank 0 has come to its end, in good order. */
void verdict_done(struct watch *w, const struct json_t *event);
void verdict_death(struct watch *w, int64_t i, int wait_status); /* of the i-th rank here */
/* No rank has said anything for so long. */
void verdict_hung(struct watch *w, int64_t silent_ms);
/* Whether a rank here has stood still for so long, which ends the attempt. */
bool verdict_frozen(struct watch *w, int64_t ticks);
/* Another runner's part of the attempt has ended as its message says, whatever that lacks; or that
 * runner is lost. */
void verdict_adopt(struct watch *w, const struct peer_connection *c, const struct json_t *ended);
void verdict_lost(struct watch *w, const struct peer_connection *c);
/* Once no rank is left, of a rank that lost another, which is all that is known: whose fault that
 * was, by what all of them noted. */
void verdict_conclude(struct watch *w);
/* An attempt as a message, for the leader: new reference, NULL without memory. */
struct json_t *verdict_message(const struct attempt *attempt);

/* ---- remote.c ---- */
bool remote_leads(const struct watch *w); /* rank 0 is here */
bool remote_over(const struct watch *w);  /* nobody else has a part in the attempt any more */
void remote_stop(struct watch *w, int64_t grace_s);
void remote_kill(struct watch *w);
void remote_ask(struct watch *w, int signo); /* a follower tells its leader of a stop request */
void remote_take(struct watch *w); /* what the peers say */
void remote_tick(struct watch *w); /* signs of life, both ways */
void remote_conclude(struct watch *w); /* a follower's last one, when its ranks have ended */
/* What is known of a rank, wherever it runs; returns its host, or "". */
const char *remote_rank(const struct watch *w, int64_t rank, struct rank_state *out);

#endif
