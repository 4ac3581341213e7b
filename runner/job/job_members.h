/* The runners of a job, one for each task that a launcher started, on one host or several. This is
 * the leader's side: task 0 does what a single runner does, and writes the one bundle. The others
 * follow (job_follow.h).
 *
 * They find the leader by a file in the folder of runs, which all hosts must share (job_file.h). */
#ifndef FP8LAB_RUNNER_JOB_JOB_MEMBERS_H
#define FP8LAB_RUNNER_JOB_JOB_MEMBERS_H

#include "runner/base/cli.h"
#include "runner/job/job_file.h"
#include "runner/job/peer_connection.h"
#include "runner/job/rank_layout.h"
#include "runner/job/secret.h"

struct job_members {
    struct task task; /* this process */
    struct peer_connection *peer; /* [task.count - 1] the leader's followers; owned */
    struct json_t *hosts; /* for the bundle, of each task {task, host, facts, environment}; owned */
    char file[JOB_FILE_CAP];  /* the job file, while tasks are missing; otherwise "" */
    char secret[SHA256_HEX];  /* of the job */
    const struct cli *cli;    /* for messages while tasks are missing; borrowed */
    int64_t remind_ms;        /* when to name the missing tasks again (clock.h); 0: done */
    int stopped_by; /* the signal, to any task, that ended the wait for tasks; 0: none */
};

enum { JOB_WAIT_S = 300 };

/* Waits for all other tasks. Tells the user so at once, and again after TASK_REMIND_S. `facts` are
 * of this machine. ERR_PEER names the missing tasks, and the connected ones with their hosts;
 * ERR_INTERRUPTED: a stop request came first. Release *out with job_members_release whatever the
 * status. */
NODISCARD enum status job_members_gather(const struct cli *cli, const struct task *task,
                                         const char *runs, int64_t wait_s,
                                         const struct json_t *facts, struct job_members *out,
                                         struct err *e);
/* Between attempts: the signal of a stop request that a follower has sent; 0: none. During an
 * attempt supervise() receives them. */
int job_members_stop_signal(struct job_members *members);
/* Tells the followers to exit with `exit_code`, and closes the connections. Safe on a zeroed
 * struct. */
void job_members_release(struct job_members *members, int exit_code);

#endif
