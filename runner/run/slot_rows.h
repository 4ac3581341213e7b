/* A slot's rows: it runs those that its parent names. */
#ifndef FP8LAB_RUNNER_RUN_SLOT_ROWS_H
#define FP8LAB_RUNNER_RUN_SLOT_ROWS_H

#include "runner/run/slot.h"
#include "runner/run/suite.h"

/* Runs the rows that the parent names, until it sends "end". *code is 128+N if signal N came
 * between two rows. */
NODISCARD enum status slot_serve(struct slot *s, struct suite *suite, int *code, struct err *e);

#endif
