/* Ranges for a profiler that asks for them, while a backend is used. */
#ifndef FP8LAB_RUNNER_PROFILE_PROFILE_H
#define FP8LAB_RUNNER_PROFILE_PROFILE_H

#include "runner/profile/ranges.h"

struct profile {
    struct nvtx nvtx;
    struct ranges *ranges;
    char text[320]; /* who gets ranges, or why nobody does */
};

/* Without a profiler, or without the library, there are no ranges, and no error. uncaptured: as for
 * ranges_start, in any case. `b` is borrowed, and *p may not move, until profile_stop. */
NODISCARD enum status profile_start(struct backend *b, bool uncaptured, struct profile *p,
                                    struct err *e);
void profile_stop(struct profile *p); /* also of a zeroed struct */

#endif
