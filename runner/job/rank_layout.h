/* Which rank of a run is where. Each task of the job has the same number of slots, one GPU each;
 * after a failure some slots may be dropped. */
#ifndef FP8LAB_RUNNER_JOB_RANK_LAYOUT_H
#define FP8LAB_RUNNER_JOB_RANK_LAYOUT_H

#include "runner/job/attempt.h"

enum { TASKS_MAX = SUPERVISE_RANKS_MAX };

struct rank_layout {
    int64_t tasks, each; /* tasks of the job; slots of each task */
    bool unusable[TASKS_MAX][SUPERVISE_RANKS_MAX]; /* [task][slot] */
    /* Filled by rank_layout_assign: */
    int64_t world;
    int64_t first_rank[TASKS_MAX], ranks[TASKS_MAX];
    int64_t slot[TASKS_MAX][SUPERVISE_RANKS_MAX]; /* [task][its i-th rank] */
};

/* ERR_CONFIG unless `gpus` is a multiple of `tasks`. */
NODISCARD enum status rank_layout_init(struct rank_layout *f, int64_t gpus, int64_t tasks,
                                     struct err *e);

/* Assigns ranks to the usable slots: the greatest number of ranks for which micro * ranks divides
 * `batch`. ERR_UNSUPPORTED if task 0, which leads, has none left. */
NODISCARD enum status rank_layout_assign(struct rank_layout *f, int64_t batch, int64_t micro,
                                    struct err *e);

/* Later assignments do not use the slot of this rank, of the present layout. */
void rank_layout_drop_rank(struct rank_layout *f, int64_t rank);
/* The same for all slots of a task. Returns whether it has ranks in the present layout. */
bool rank_layout_drop_task(struct rank_layout *f, int64_t task);

#endif
