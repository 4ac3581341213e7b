#include "runner/job/attempt.h"

const char *attempt_end_name(enum attempt_end end) {
    static const char *const NAMES[] = {
        [ATTEMPT_DONE] = "done",       [ATTEMPT_TIME_LIMIT] = "time_limit",
        [ATTEMPT_SIGNAL] = "signal",   [ATTEMPT_FAILED] = "failed",
        [ATTEMPT_CRASHED] = "crashed", [ATTEMPT_HUNG] = "hung",
        [ATTEMPT_ABANDONED] = "abandoned",
    };
    return NAMES[end];
}
