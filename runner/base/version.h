/* The version this source tree says it is; what changes results is the code hash, not this. */
#ifndef FP8LAB_RUNNER_BASE_VERSION_H
#define FP8LAB_RUNNER_BASE_VERSION_H

#define FP8LAB_VERSION "0.1.0"

#endif
