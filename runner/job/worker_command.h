/* The command line of a worker, made by the runner of each host from the same orders. */
#ifndef FP8LAB_RUNNER_JOB_WORKER_COMMAND_H
#define FP8LAB_RUNNER_JOB_WORKER_COMMAND_H

#include <jansson.h>

#include "runner/base/run_files.h"

struct worker_command {
    const char *argv[32]; /* NULL-terminated; into this struct and the orders */
    char self[PATH_CAP], config[PATH_CAP], threads[24], from[24], stop[24];
};

/* orders: {"run": the run directory, "backend", "threads" (0: a share of this host's processors,
 * of which `sharing` workers get one each), "caps" or null, "data_root" or null, "choose_anew",
 * "from" (the step to go on from), "choices" (SHA-256 of the run's table) or null, "stop_after" (0:
 * never)}; borrowed while *out is used. */
NODISCARD enum status worker_command_make(const json_t *orders, int64_t sharing,
                                          struct worker_command *out, struct err *e);

#endif
