/* The line between two runners of one job: JSON lines both ways over a connection in which both
 * proved that they know its secret, and signs of life.
 *
 * Task 0 leads: it says "attempt" (what to start), "stop", "kill" and "end". The others follow:
 * they say "rank" (an event of a worker), "ended" (how their part of the attempt went), and at any
 * time "asked" (a stop request came to this task). Both say "beat" while an attempt runs, and once
 * at its end, with what is known of their ranks. */
#ifndef FP8LAB_RUNNER_JOB_COMPANION_H
#define FP8LAB_RUNNER_JOB_COMPANION_H

#include "runner/job/blame.h"
#include "runner/job/rendezvous.h"

struct json_t;
struct event_reader;
struct event_writer;

struct peer_connection {
    int64_t task;
    char host[HOST_NAME_CAP];
    int fd; /* for getsockname; owned by the reader */
    struct event_reader *in;
    struct event_writer *out;
    /* Of the attempt at hand: its ranks, whether its part is over, what its last beat said. */
    int64_t first_rank, ranks;
    bool ended;
    struct rank_state *state; /* [SUPERVISE_RANKS_MAX], owned */
    int64_t silent_ticks;
    bool lost;             /* nothing more will be heard */
    char why_lost[256];
    int64_t local_count;   /* tasks of its host, as far as it knows; 0 of the leader */
    struct json_t *facts;  /* of its machine; owned; NULL for the leader */
    struct json_t *environment; /* environment_of_task's there; likewise */
};

/* Takes `fd` over. The line to task 0 waits for it as long as its follower does
 * (SUPERVISE_LEADER_S), though its buffers are full: it may be writing files. *out is closed with
 * peer_connection_close whatever the status. */
NODISCARD enum status peer_connection_open(int fd, int64_t task, const char *host, struct peer_connection *out,
                                     struct err *e);
void peer_connection_close(struct peer_connection *c); /* safe on a zeroed struct */

/* Sends and lets go of `message` (NULL: it could not be made). A connection that broke makes *c
 * lost. ERR_MEMORY only. */
NODISCARD enum status peer_connection_send(struct peer_connection *c, struct json_t *message, struct err *e);
/* Reads what has arrived; false when nothing more will. Then peer_connection_next. */
void peer_connection_fill(struct peer_connection *c);
/* The next message, the caller's; NULL where none has arrived. */
struct json_t *peer_connection_next(struct peer_connection *c);

/* Follower: tells the leader of a stop request by signal `signo`. ERR_MEMORY only. */
NODISCARD enum status peer_connection_send_stop(struct peer_connection *leader, int signo, struct err *e);
/* Leader: the signal that such a message tells of; 0 for any other. */
int stop_request_signal(const struct json_t *message);

#endif
