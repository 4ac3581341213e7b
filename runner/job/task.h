/* Which of a job's processes this one is, as its launcher says in the environment: srun, mpirun
 * (Open MPI, or whatever speaks PMI), torchrun and what works like it. The names are those
 * launchers' own documentation's. */
#ifndef FP8LAB_RUNNER_JOB_TASK_H
#define FP8LAB_RUNNER_JOB_TASK_H

#include "kernels/base.h"

enum {
    TASK_JOB_CAP = 160,
    TASK_EXPLAIN_CAP = 320,
    TASK_REMIND_S = 10 /* a task that waits for others explains itself at once, and then again */
};

struct task {
    const char *launcher; /* "srun", "mpirun", "PMI", "torchrun"; NULL: started alone, as 0 of 1 */
    int64_t index, count;
    int64_t local_index, local_count; /* among the tasks of this host */
    const char *index_name, *count_name; /* the variables that say index and count; NULL: alone */
    const char *unsaid; /* the variable that would have told local_index, 0 without it; or NULL */
    char job[TASK_JOB_CAP]; /* alike for all tasks, another for any other job; fits a file name */
    char master[128]; /* where task 0 is, as far as the launcher says; else "" */
    char nodes[128];  /* the hosts of the job as the launcher lists them, "n[1-4]"; else "" */
};

/* `get` is getenv, or a test's stand-in. ERR_CONFIG for numbers that do not fit together, naming
 * the variables. FP8LAB_JOB, where it is set, names the job. */
NODISCARD enum status task_find(const char *(*get)(const char *name), struct task *out,
                                struct err *e);

/* "RANK=0 and WORLD_SIZE=2 are set: this is task 0 of 2" and what to do where that is not meant:
 * for whoever has these variables left in a shell. One line without its end, at most `size`. */
void task_explain(const struct task *t, char *out, size_t size);

/* Whether the launcher showed a task of `ranks` ranks its own GPUs and no others:
 * CUDA_VISIBLE_DEVICES (`visible`, or NULL) lists as many. */
bool task_sees_its_own(const char *visible, int64_t ranks);

/* The GPU of this task's i-th rank, of `ranks`: of its own where it sees no others, else the next
 * after those of the tasks before it here. */
int64_t task_device(const struct task *t, const char *visible, int64_t ranks, int64_t i);

#endif
