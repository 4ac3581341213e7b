/* The runners of a job that a launcher started several times, on one host or many. Task 0 leads: it
 * does what a runner does that is alone, and writes the one bundle; the others follow: they start
 * workers when they are told to.
 *
 * They find one another through a file in the folder of runs, which all hosts must see: it holds
 * task 0's addresses and the job's secret, for its owner's eyes only. */
#ifndef FP8LAB_RUNNER_JOB_CREW_H
#define FP8LAB_RUNNER_JOB_CREW_H

#include "runner/base/cli.h"
#include "runner/job/peer_connection.h"
#include "runner/job/task.h"

struct rank_layout;
struct json_t;

enum { JOB_FILE_CAP = 1024 };

struct job_members {
    struct task task; /* this process */
    struct peer_connection *peer; /* [task.count - 1] of the leader: those that follow; owned */
    struct json_t *hosts; /* for the bundle, of each task {task, host, facts, environment}; owned */
    char file[JOB_FILE_CAP]; /* while tasks are missing; "" then */
    char secret[SHA256_HEX];  /* of the job, that the file tells */
    const struct cli *cli; /* for messages while tasks are missing; borrowed */
    int64_t remind_ms;     /* by clock.h: when to say again who is missing; 0: it is said */
    int stopped_by; /* the signal, to whichever task, that ended the wait for tasks; 0: none */
};

enum { JOB_WAIT_S = 300 };

/* Leader: waits for all others, and says so at once and after TASK_REMIND_S; `facts` are of this
 * machine. ERR_PEER names the tasks that did not
 * come, and where those are that did; ERR_INTERRUPTED: a stop request came first. *out is closed
 * with job_members_release whatever the status. */
NODISCARD enum status job_members_gather(const struct cli *cli, const struct task *task,
                                  const char *runs, int64_t wait_s, const struct json_t *facts,
                                  struct job_members *out, struct err *e);
/* The signal by which a follower was asked to stop, where one has told so since the last attempt;
 * 0: none has. (While an attempt runs, supervise() hears it.) */
int job_members_stop_signal(struct job_members *members);
/* Tells the others to leave with `exit_code`, and lets them go. Safe on a zeroed struct. */
void job_members_release(struct job_members *members, int exit_code);

/* Sends each follower its part of an attempt: `orders` (worker_command.h) with what is its own
 * added, and makes rendezvous->secret, which does not travel. Those that have no part are marked as
 * done with it. */
NODISCARD enum status job_members_send_orders(struct job_members *members, const struct json_t *orders,
                                 const struct rank_layout *layout, struct rendezvous *rendezvous,
                                 struct err *e);

/* Follower: finds the leader and does what it says, until it is told to leave. Returns the exit
 * code. */
int job_follow(const struct cli *cli, const struct task *task, const char *runs, int64_t wait_s,
                const struct json_t *facts);

#endif
