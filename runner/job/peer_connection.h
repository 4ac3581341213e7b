/* A connection between two runners of one job: JSON lines and heartbeats both ways. Before these, a
 * handshake in which both prove that they know the job's secret.
 *
 * Task 0 leads, and judges alone. It sends "attempt" (what to start), "stop", "kill" and "end". The
 * other tasks follow. They send "rank" (an event of a rank), "ended" (their part of the attempt has
 * ended), and at any time "stop_request" (this task got one). Both send "beat" while an attempt
 * runs. A follower's beat has the states of its ranks, and is also sent before each report. */
#ifndef FP8LAB_RUNNER_JOB_PEER_CONNECTION_H
#define FP8LAB_RUNNER_JOB_PEER_CONNECTION_H

#include "runner/job/attempt.h"

struct event_reader;
struct event_writer;

struct peer_connection {
    int64_t task;
    char host[HOST_NAME_CAP];
    int fd; /* for getsockname; owned by `in` */
    struct event_reader *in;
    struct event_writer *out;
    /* Of the present attempt: its ranks there, whether its part has ended, the last heartbeat. */
    int64_t first_rank, ranks;
    bool ended;
    int64_t silent_ticks;
    bool lost; /* no further message will come */
    char why_lost[256];
    int64_t local_count;  /* tasks of its host, as far as it knows; 0 for the leader */
    struct json_t *facts; /* of its machine; owned; NULL for the leader */
    struct json_t *environment; /* environment_of_task's there; owned; NULL for the leader */
};

/* Takes `fd` over. A connection to task 0 survives SUPERVISE_LEADER_S without a read there, since
 * the leader may be writing files. Close *out with peer_connection_close whatever the status. */
NODISCARD enum status peer_connection_open(int fd, int64_t task, const char *host,
                                           struct peer_connection *out, struct err *e);
void peer_connection_close(struct peer_connection *c); /* safe on a zeroed struct */

/* Sends and releases `message`; NULL means that it could not be allocated. A broken connection
 * makes *c lost, and is no error. ERR_MEMORY only. */
NODISCARD enum status peer_connection_send(struct peer_connection *c, struct json_t *message,
                                           struct err *e);
/* Reads what has arrived, without waiting. May make *c lost. */
void peer_connection_fill(struct peer_connection *c);
/* The next message that was read, owned by the caller; NULL if there is none. */
struct json_t *peer_connection_next(struct peer_connection *c);

/* Whether the rank of the present attempt is there. */
bool peer_connection_has(const struct peer_connection *c, int64_t rank);

/* Follower: tells the leader of a stop request by signal `signo`. ERR_MEMORY only. */
NODISCARD enum status peer_connection_send_stop(struct peer_connection *leader, int signo,
                                                struct err *e);
/* Leader: the signal in such a message; 0 for any other message. */
int stop_request_signal(const struct json_t *message);

#endif
