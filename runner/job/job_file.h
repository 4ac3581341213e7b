/* The file by which the runners of a job find their leader: <runs>/.job-<name>. */
#ifndef FP8LAB_RUNNER_JOB_CREW_FILE_H
#define FP8LAB_RUNNER_JOB_CREW_FILE_H

#include "runner/job/job_members.h"

/* Its whole path, in the folder of runs, which is made where it is not there. */
NODISCARD enum status job_file_path(const struct task *task, const char *runs,
                                     char path[JOB_FILE_CAP], struct err *e);
/* Written for its owner only: secret, port, host and its addresses, the launcher's word for it
 * first. What a dead leader left is replaced. ERR_STATE: a leader lives that wrote one of this
 * name, in another job; it is told, and gives up, too (job_file_name_conflict). Without hard links,
 * of leaders that come at once the last replaces the others' files. */
NODISCARD enum status job_file_publish(const char *path, const struct task *task,
                                        const char *secret, int port, struct err *e);
/* ERR_STATE: says that another job of this name is there, whose task 0 is on `host`. The tasks of
 * both know the file's secret, so that whose a task is that comes by it cannot be told. */
NODISCARD enum status job_file_name_conflict(const char *path, const char *host, const char *address,
                                          struct err *e);
/* Removes the file if it still is the one that tells `secret`. */
void job_file_remove(const char *path, const char *secret);
/* {"secret", "port", "host", "addresses"}; *out NULL where there is no such file yet. ERR_VERIFY
 * where it is somebody else's. */
NODISCARD enum status job_file_read(const char *path, struct json_t **out, struct err *e);

/* Calls the leader that such a file tells of, at each address, until one proves that it knows the
 * secret. *fd is then the caller's, and `address` is where it answered. *fd is -1 on any error,
 * which is that of the last address: wire_connect_once's or wire_call's; ERR_FORMAT: the file names
 * no address. */
NODISCARD enum status job_file_call(const struct json_t *file, const struct json_t *hello,
                                     int *fd, char address[64], struct err *e);

#endif
