/* The version of this source tree. It is no input of a run; the hash of the code is. */
#ifndef FP8LAB_RUNNER_BASE_VERSION_H
#define FP8LAB_RUNNER_BASE_VERSION_H

#define FP8LAB_VERSION "0.1.0"

#endif
