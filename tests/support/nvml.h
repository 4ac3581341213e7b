/* The stand-in of the driver's library (stand_in/nvml.c), loaded first and under the library's
 * name, so that NVML is found on a machine without a GPU. */
#ifndef FP8LAB_TESTS_NVML_H
#define FP8LAB_TESTS_NVML_H

/* Set-up and tear-down of a cmocka group; *state is the library. Not 0: it cannot be built. */
int nvml_load(void **state);
int nvml_drop(void **state);

#endif
