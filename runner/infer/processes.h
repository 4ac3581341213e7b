/* Work divided among processes of this host, each with a backend of its own. They are copies of
 * this process, so it must not have opened a GPU, or used a backend's threads. */
#ifndef FP8LAB_RUNNER_INFER_PROCESSES_H
#define FP8LAB_RUNNER_INFER_PROCESSES_H

#include "kernels/base.h"

enum { PROCESSES_MAX = 64 };

/* The share of process `rank`. What it writes is lost, except into memory of processes_share(). */
typedef enum status (*process_body)(void *user, int64_t rank, struct err *e);

/* Runs `body` in `count` processes; one alone is this process. The first that fails or dies ends
 * the others, and its error, with its rank, is the error here. They die with this process. */
NODISCARD enum status processes_run(int64_t count, process_body body, void *user, struct err *e);

/* Zeroed memory that this process shares with those that it starts later. */
NODISCARD enum status processes_share(size_t bytes, void **out, struct err *e);
void processes_unshare(void *memory, size_t bytes); /* NULL is fine */

#endif
