#include "runner/job/host_list.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { ENTRY_CAP = 32 }; /* ", ", a number of 64 bits, " on " and the terminating NUL */

const char *host_list_end(struct host_list *list) {
    size_t used = strlen(list->text);
    if (*list->host)
        snprintf(list->text + used, sizeof list->text - used, " on %s", list->host);
    *list->host = '\0';
    return list->text;
}

void host_list_add(struct host_list *list, int64_t number, const char *host) {
    if (strcmp(list->host, host) != 0) (void)host_list_end(list);
    size_t used = strlen(list->text);
    if (used + ENTRY_CAP + HOST_NAME_CAP > sizeof list->text) return;
    snprintf(list->text + used, sizeof list->text - used, "%s%" PRId64, used ? ", " : "", number);
    snprintf(list->host, sizeof list->host, "%s", host);
}
