/* The name of this host. */
#ifndef FP8LAB_RUNNER_BASE_HOST_NAME_H
#define FP8LAB_RUNNER_BASE_HOST_NAME_H

enum { HOST_NAME_CAP = 65 }; /* HOST_NAME_MAX of Linux, and the terminating NUL */

/* As gethostname(2), always terminated; "" if the host has no name. */
void host_name(char out[HOST_NAME_CAP]);

#endif
