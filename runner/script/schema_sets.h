/* eval.also beside the other keys: further sets of held-out data. */
#ifndef FP8LAB_RUNNER_SCRIPT_SCHEMA_SETS_H
#define FP8LAB_RUNNER_SCRIPT_SCHEMA_SETS_H

#include "runner/base/diagnostics.h"

/* Rules over the whole experiment: its data have files, and none of a set is named twice. */
void schema_sets_rules(struct diagnostics *d, const struct value *experiment);

#endif
