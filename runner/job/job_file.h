/* The file by which the tasks of a job find their leader: <runs>/.job-<name>. It has the leader's
 * addresses and port, and the job's secret; only its owner can read it. */
#ifndef FP8LAB_RUNNER_JOB_JOB_FILE_H
#define FP8LAB_RUNNER_JOB_JOB_FILE_H

#include "runner/job/task.h"

struct json_t;

enum { JOB_FILE_CAP = 1024 };

/* Its absolute path in the folder of runs, which is created if it is missing. */
NODISCARD enum status job_file_path(const struct task *task, const char *runs,
                                    char path[JOB_FILE_CAP], struct err *e);
/* Writes secret, port, host and addresses, the launcher's master address first. Replaces the file
 * of a dead leader. ERR_STATE: the leader of another job with this name lives; it hears of
 * this and fails, too (job_file_name_conflict). On a file system without hard links, several
 * leaders may start at the same time. Then the last one replaces the files of the others. */
NODISCARD enum status job_file_publish(const char *path, const struct task *task,
                                       const char *secret, int port, struct err *e);
/* ERR_STATE: another job has this name, and its task 0 is on `host`. The tasks of both jobs know
 * the secret in the file, so neither leader can tell its own tasks. */
NODISCARD enum status job_file_name_conflict(const char *path, const char *host,
                                             const char *address, struct err *e);
/* Removes the file if it still has this secret. */
void job_file_remove(const char *path, const char *secret);
/* {"secret", "port", "host", "addresses"}; *out is NULL if there is no file. ERR_VERIFY: another
 * user can read or write it. */
NODISCARD enum status job_file_read(const char *path, struct json_t **out, struct err *e);

/* Connects to the leader of such a file: tries each address until one proves that it knows the
 * secret. *fd is then the caller's, and `address` is the one that answered. On an error *fd is -1;
 * the error is that of the last address, as of wire_connect or wire_call. ERR_FORMAT: the file
 * has no address. */
NODISCARD enum status job_file_call(const struct json_t *file, const struct json_t *hello,
                                    int *fd, char address[64], struct err *e);

#endif
