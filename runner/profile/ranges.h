/* What a trainer queues, as ranges for a profiler: step, micro-batch, forward or backward, layer,
 * operator. A range lasts while the host queues; a profiler projects it onto the kernels. */
#ifndef FP8LAB_RUNNER_PROFILE_RANGES_H
#define FP8LAB_RUNNER_PROFILE_RANGES_H

#include "kernels/backend.h"
#include "runner/profile/nvtx.h"

struct ranges; /* opaque */

/* From now on `b`'s scopes, operators and collectives are ranges of `nvtx`, until ranges_stop. With
 * `uncaptured`, no graph is captured or replayed: a replay has no ranges of operators. nvtx NULL:
 * no ranges. All are borrowed until then; nothing else may have replaced the table of `b` then. */
NODISCARD enum status ranges_start(struct backend *b, const struct nvtx *nvtx, bool uncaptured,
                                   struct ranges **out, struct err *e);
void ranges_stop(struct ranges *r); /* NULL is fine */

#endif
