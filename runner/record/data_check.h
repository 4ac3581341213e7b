/* The data that a worker opens are those that its runner hashed, as far as sizes and samples
 * tell. */
#ifndef FP8LAB_RUNNER_RECORD_DATA_CHECK_H
#define FP8LAB_RUNNER_RECORD_DATA_CHECK_H

#include "model/data.h"

/* Holds the files against data/experiment/data.json of the run directory; without one there is
 * nothing to hold them against. ERR_CONFIG names the first that has another size or other bytes. */
NODISCARD enum status data_check(const char *run_path, const struct data *data, struct err *e);

#endif
