#include "runner/job/attempt.h"

#include <string.h>

static const char *const NAMES[ATTEMPT_ENDS] = {
    [ATTEMPT_DONE] = "done",       [ATTEMPT_TIME_LIMIT] = "time_limit",
    [ATTEMPT_SIGNAL] = "signal",   [ATTEMPT_FAILED] = "failed",
    [ATTEMPT_CRASHED] = "crashed", [ATTEMPT_HUNG] = "hung",
    [ATTEMPT_ABANDONED] = "abandoned",
};

const char *attempt_end_name(enum attempt_end end) { return NAMES[end]; }

enum attempt_end attempt_end_of_name(const char *name) {
    for (int end = 0; end < ATTEMPT_ENDS; end++)
        if (!strcmp(NAMES[end], name)) return (enum attempt_end)end;
    return ATTEMPT_FAILED;
}
