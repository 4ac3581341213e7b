/* The state of a run that has ended, from its bundle. */
#ifndef FP8LAB_RUNNER_LIVE_LIVE_BUNDLE_H
#define FP8LAB_RUNNER_LIVE_LIVE_BUNDLE_H

#include "runner/bundle/run_view.h"
#include "runner/live/live.h"

/* Takes all records of a view of depth RUN_VIEW_FULL. */
void live_of_view(struct live *l, const struct run_view *view);

#endif
