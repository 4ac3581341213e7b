/* Ranks or tasks with their hosts, for messages: "1, 2 on n1, 5 on n2". */
#ifndef FP8LAB_RUNNER_JOB_HOST_LIST_H
#define FP8LAB_RUNNER_JOB_HOST_LIST_H

#include <stdint.h>

#include "runner/base/host_name.h"

struct host_list {
    char text[600];           /* complete after host_list_end */
    char host[HOST_NAME_CAP]; /* of the last number; written once after several of one host */
};

/* Adds to a zeroed list; `host` is "" if it is unknown. What does not fit is left out. */
void host_list_add(struct host_list *list, int64_t number, const char *host);
const char *host_list_end(struct host_list *list); /* returns list->text */

#endif
