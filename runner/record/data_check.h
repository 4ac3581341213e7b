/* Checks, by sizes and samples, that a worker opened the same data files that its runner hashed. */
#ifndef FP8LAB_RUNNER_RECORD_DATA_CHECK_H
#define FP8LAB_RUNNER_RECORD_DATA_CHECK_H

#include "model/data.h"

/* Compares the files with data/experiment/data.json of the run directory; without that file there
 * is no check. ERR_CONFIG names the first file with another size or other bytes. */
NODISCARD enum status data_check(const char *run_path, const struct data *data, struct err *e);

#endif
