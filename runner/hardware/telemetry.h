/* The GPU's state during a run, from the driver (NVML), beside the worker's own figures: clocks,
 * power, temperature, throttling, memory and processes. */
#ifndef FP8LAB_RUNNER_HARDWARE_TELEMETRY_H
#define FP8LAB_RUNNER_HARDWARE_TELEMETRY_H

#include "kernels/base.h"

struct json_t;
struct telemetry;

/* Opens NVML for the GPUs that a CUDA program sees here. NULL without a driver, a GPU or memory;
 * telemetry then has only the workers' figures. */
struct telemetry *telemetry_open(void);
void telemetry_close(struct telemetry *t); /* NULL is fine */

/* Adds the driver's figures of GPU `device` (an index among the driver's GPUs) to a record. A
 * figure that the driver does not have is left out:
 *   gpu_clock_sm_mhz   gpu_clock_mem_mhz   gpu_power_mw   gpu_temperature_c
 *   gpu_utilization         percent of the last period in which a kernel ran
 *   gpu_memory_used_bytes   of all processes
 *   gpu_throttle            NVML's bits of reasons why clocks are low: 0x1 idle, 0x4 software power
 *                           cap, 0x8 hardware slowdown, 0x20 software thermal, 0x40 hardware
 *                           thermal, 0x80 power brake
 *   gpu_processes           with a context on the GPU, including the worker
 *   gpu_processes_other     the same without the children of this process
 *   gpu_nvlink_tx_kib   gpu_nvlink_rx_kib   all links, since an unspecified earlier moment
 * Adds nothing if t is NULL or there is no such GPU. ERR_MEMORY. */
NODISCARD enum status telemetry_add(const struct telemetry *t, int64_t device,
                                    struct json_t *record, struct err *e);

/* Energy that GPU `device` has used since the driver was loaded, in mJ. The driver renews its
 * counter some ten times a second. False, *out unchanged: no such GPU, or it has no counter. */
NODISCARD bool telemetry_energy_mj(const struct telemetry *t, int64_t device, int64_t *out);

/* NVML's bits of reasons as words, "power cap, thermal (software)"; idle is none. */
void throttle_text(int64_t bits, char *out, size_t size);

#endif
