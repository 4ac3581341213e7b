/* The kinds of `fp8lab bench`. Each measures, then prints its rows or, under --json, fills
 * `report`. The meter is for --energy (bench_energy.h). */
#ifndef FP8LAB_RUNNER_BENCH_BENCH_H
#define FP8LAB_RUNNER_BENCH_BENCH_H

#include "kernels/backend.h"
#include "runner/base/cli.h"

struct energy_meter;
struct resolution;
struct json_t;

NODISCARD enum status bench_gemm(const struct cli *cli, struct backend *b,
                                const struct energy_meter *m, struct json_t *rows,
                                struct err *e);
NODISCARD enum status bench_attention(const struct cli *cli, struct backend *b,
                                     const struct energy_meter *m, struct json_t *rows,
                                     struct err *e);
NODISCARD enum status bench_quantise(const struct cli *cli, struct backend *b,
                                    const struct energy_meter *m, struct json_t *rows,
                                    struct err *e);
/* The steps of the runs of a script. */
NODISCARD enum status bench_step(const struct cli *cli, const struct resolution *script,
                                 struct backend *b, const struct energy_meter *m,
                                 struct json_t *rows, struct err *e);

#endif
