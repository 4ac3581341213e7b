/* How a device runs FP8 attention: its kernel is chosen apart from the recipe's products. */
#ifndef FP8LAB_RUNNER_ADVISE_ATTENTION_WAY_H
#define FP8LAB_RUNNER_ADVISE_ATTENTION_WAY_H

struct json_t;

/* "FP8 attention is emulated here": static; "" without FP8 attention, and on the CPU, which
 * defines it. config: resolved. cc: of the GPU, 90 for 9.0; 0: the CPU. */
const char *attention_way(const struct json_t *config, int cc);

#endif
