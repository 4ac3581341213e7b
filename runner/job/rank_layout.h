/* Which rank of a run is where: as many on each task of the job, each with a GPU of its own (a
 * slot); and what is left when some of them may not be used any more. */
#ifndef FP8LAB_RUNNER_JOB_FORMATION_H
#define FP8LAB_RUNNER_JOB_FORMATION_H

#include "runner/job/supervise.h"

enum { TASKS_MAX = SUPERVISE_RANKS_MAX };

struct rank_layout {
    int64_t tasks, each; /* tasks of the job, slots of each */
    bool unusable[TASKS_MAX][SUPERVISE_RANKS_MAX]; /* [task][slot] */
    /* As it is laid out: */
    int64_t world;
    int64_t first_rank[TASKS_MAX], ranks[TASKS_MAX];
    int64_t slot[TASKS_MAX][SUPERVISE_RANKS_MAX]; /* [task][its i-th rank] */
};

/* ERR_CONFIG unless `gpus` can be shared out among the tasks alike. */
NODISCARD enum status rank_layout_init(struct rank_layout *f, int64_t gpus, int64_t tasks,
                                     struct err *e);

/* Lays ranks out on the slots that are usable: as many as `micro` times their number still divides
 * `batch`. ERR_UNSUPPORTED where none is left on task 0, which leads. */
NODISCARD enum status rank_layout_assign(struct rank_layout *f, int64_t batch, int64_t micro,
                                    struct err *e);

/* The task and slot of a rank of the present layout are not used any more. */
void rank_layout_drop_rank(struct rank_layout *f, int64_t rank);
/* Nor is a whole task; whether it has ranks of the present layout. */
bool rank_layout_drop_task(struct rank_layout *f, int64_t task);

#endif
