/* One attempt on all hosts. The leader opens the rendezvous of the ranks and makes a part for each
 * task. It sends the other tasks theirs as "attempt" messages, and each runner starts its workers
 * from its part:
 *   {"run": the run directory, "args": a worker's command line as far as it is the same on all
 *    hosts, "threads" (0: an equal share of the host's processors for each worker), "profile":
 *    whether the worker's environment lets a profiler follow, "world",
 *    "each": slots of a task, "slots": of this task's ranks, "first_rank", "port" and "timeout_s"
 *    of the rendezvous, "nonce"}
 * The secret of the rendezvous is not sent: the follower derives it from "nonce" (secret.h). */
#ifndef FP8LAB_RUNNER_JOB_DEPLOY_H
#define FP8LAB_RUNNER_JOB_DEPLOY_H

#include "runner/job/attempt.h"
#include "runner/job/rank_layout.h"
#include "runner/job/run_settings.h"
#include "runner/job/task.h"
#include "runner/record/run_dir.h"

struct job_members;

struct deployment {
    const struct run_settings *settings;
    const struct run_dir *dir;
    const struct rank_layout *layout;
    const char *const *envp;
    int64_t from_step;    /* resume from the checkpoint of this step; 0: from the beginning */
    int64_t stop_after;   /* as --stop-after of a worker; 0: none */
    int64_t time_limit_s; /* 0: none */
    enum status (*on_event)(void *user, int64_t rank, const struct json_t *event, struct err *e);
    void (*on_tick)(void *user, const char *what);
    void *user;
};

/* Sends each follower its part, and makes rendezvous->secret. `orders` are the members
 * that are the same for all tasks. Followers without ranks are marked as ended. */
NODISCARD enum status deploy_parts(const struct job_members *members, const struct json_t *orders,
                                   const struct rank_layout *layout, struct rendezvous *rendezvous,
                                   struct err *e);

/* Processors for each process of the CPU backend, of which `workers` share this host. 0, all of
 * them, for a single one. `asked` unless that is 0. */
int64_t deploy_threads(int64_t asked, int64_t workers);

/* For the leader; otherwise as supervise(). */
NODISCARD enum status deploy(const struct deployment *d, struct attempt *out, struct err *e);

/* supervise() with the workers of `part`. The caller fills *options except for the command line,
 * the ranks, their devices and run_path, which come from the part. */
NODISCARD enum status deploy_part(const struct json_t *part, const struct task *task,
                                  struct supervise_options *options, struct attempt *out,
                                  struct err *e);

#endif
