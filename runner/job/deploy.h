/* One attempt on all hosts, for the leader: opens the rendezvous of the ranks, sends every other
 * host its part, and supervises the part of this host. */
#ifndef FP8LAB_RUNNER_JOB_DEPLOY_H
#define FP8LAB_RUNNER_JOB_DEPLOY_H

#include "runner/job/attempt.h"
#include "runner/job/rank_layout.h"
#include "runner/job/run_settings.h"
#include "runner/record/run_dir.h"

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

/* Sends each follower its part (part.h), and makes rendezvous->secret. `orders` are the members
 * that are the same for all tasks. Followers without ranks are marked as ended. */
NODISCARD enum status deploy_parts(const struct job_members *members, const struct json_t *orders,
                                   const struct rank_layout *layout, struct rendezvous *rendezvous,
                                   struct err *e);

/* As supervise(). */
NODISCARD enum status deploy(const struct deployment *d, struct attempt *out, struct err *e);

#endif
