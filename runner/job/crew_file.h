/* The file by which the runners of a job find their leader: <runs>/.job-<name>. */
#ifndef FP8LAB_RUNNER_JOB_CREW_FILE_H
#define FP8LAB_RUNNER_JOB_CREW_FILE_H

#include "runner/job/crew.h"

/* Its path, in the folder of runs, which is made where it is not there. */
NODISCARD enum status crew_file_path(const struct task *task, const char *runs, char path[512],
                                     struct err *e);
/* Written for its owner only: secret, port, the addresses of this host, and the launcher's word for
 * it first. */
NODISCARD enum status crew_file_write(const char *path, const struct task *task,
                                      const char *secret, int port, struct err *e);
/* {"secret", "port", "addresses"}; *out NULL where there is no such file yet. ERR_VERIFY where it
 * is somebody else's. */
NODISCARD enum status crew_file_read(const char *path, struct json_t **out, struct err *e);

#endif
