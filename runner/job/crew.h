/* The runners of a job that a launcher started several times, on one host or many. Task 0 leads: it
 * does what a runner does that is alone, and writes the one bundle; the others follow: they start
 * workers when they are told to.
 *
 * They find one another through a file in the folder of runs, which all hosts must see: it holds
 * task 0's addresses and the job's secret, for its owner's eyes only. */
#ifndef FP8LAB_RUNNER_JOB_CREW_H
#define FP8LAB_RUNNER_JOB_CREW_H

#include "runner/base/cli.h"
#include "runner/job/companion.h"
#include "runner/job/task.h"

struct formation;
struct json_t;

enum { CREW_FILE_CAP = 1024 };

struct crew {
    struct task task; /* this process */
    struct companion *member; /* [task.count - 1] of the leader: those that follow; owned */
    struct json_t *hosts; /* for the bundle, of each task {task, host, facts, environment}; owned */
    char file[CREW_FILE_CAP]; /* while tasks are missing; "" then */
    char secret[SHA256_HEX];  /* of the job, that the file tells */
    const struct cli *cli; /* for messages while tasks are missing; borrowed */
    int64_t remind_ms;     /* by clock.h: when to say again who is missing; 0: it is said */
    int stopped_by; /* the signal, to whichever task, that ended the wait for tasks; 0: none */
};

enum { CREW_WAIT_S = 300 };

/* Leader: waits for all others, and says so at once and after TASK_REMIND_S; `facts` are of this
 * machine. ERR_PEER names the tasks that did not
 * come, and where those are that did; ERR_INTERRUPTED: a stop request came first. *out is closed
 * with crew_dismiss whatever the status. */
NODISCARD enum status crew_gather(const struct cli *cli, const struct task *task,
                                  const char *runs, int64_t wait_s, const struct json_t *facts,
                                  struct crew *out, struct err *e);
/* The signal by which a follower was asked to stop, where one has told so since the last attempt;
 * 0: none has. (While an attempt runs, supervise() hears it.) */
int crew_asked(struct crew *crew);
/* Tells the others to leave with `exit_code`, and lets them go. Safe on a zeroed struct. */
void crew_dismiss(struct crew *crew, int exit_code);

/* Sends each follower its part of an attempt: `orders` (worker_command.h) with what is its own
 * added, and makes meeting->secret, which does not travel. Those that have no part are marked as
 * done with it. */
NODISCARD enum status crew_order(struct crew *crew, const struct json_t *orders,
                                 const struct formation *formation, struct meeting *meeting,
                                 struct err *e);

/* Follower: finds the leader and does what it says, until it is told to leave. Returns the exit
 * code. */
int crew_follow(const struct cli *cli, const struct task *task, const char *runs, int64_t wait_s,
                const struct json_t *facts);

#endif
