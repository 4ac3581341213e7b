/* Which task of a job this process is, from the variables of its launcher. Launchers are srun,
 * mpirun (Open MPI, or another with PMI), torchrun, and others with torchrun's variables. The
 * documentation of each launcher names its variables. */
#ifndef FP8LAB_RUNNER_JOB_TASK_H
#define FP8LAB_RUNNER_JOB_TASK_H

#include "kernels/base.h"

enum {
    TASK_JOB_CAP = 160,
    TASK_EXPLAIN_CAP = 320,
    TASK_REMIND_S = 10 /* a waiting task explains itself at once, and again after this time */
};

struct task {
    const char *launcher; /* "srun", "mpirun", "PMI", "torchrun"; NULL: none, this is task 0 of 1 */
    int64_t index, count;
    int64_t local_index, local_count; /* among the tasks of this host */
    const char *index_name, *count_name; /* the variables of index and count; NULL: no launcher */
    const char *unset_local_index; /* the variable of local_index, if it is not set, or NULL */
    char job[TASK_JOB_CAP]; /* the same for all tasks, different for other jobs; fits a file name */
    char master[128]; /* the host of task 0; "": the launcher does not set it */
    char nodes[128];  /* the launcher's list of hosts, "n[1-4]"; "": it sets none */
};

/* `get` is getenv, or a test's replacement. ERR_CONFIG names variables that contradict each other.
 * FP8LAB_JOB, if it is set, is the job's name. */
NODISCARD enum status task_find(const char *(*get)(const char *name), struct task *out,
                                struct err *e);

/* "RANK=0 and WORLD_SIZE=2 are set, as by torchrun: this is task 0 of 2", and what to do where
 * these variables were left in a shell. One line without a newline. */
void task_explain(const struct task *t, char *out, size_t size);

/* Whether a task of `ranks` ranks sees only its own GPUs: CUDA_VISIBLE_DEVICES (`visible`, or NULL)
 * lists exactly as many. */
bool task_sees_its_own(const char *visible, int64_t ranks);

/* The GPU of the i-th of this task's `ranks` ranks. If the task sees only its own GPUs it is the
 * i-th, otherwise the GPUs of lower tasks on this host come first. */
int64_t task_device(const struct task *t, const char *visible, int64_t ranks, int64_t i);

#endif
