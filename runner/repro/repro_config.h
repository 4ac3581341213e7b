/* Compares the configuration that a bundle's script resolves to here with the one in the bundle. */
#ifndef FP8LAB_RUNNER_REPRO_REPRO_CONFIG_H
#define FP8LAB_RUNNER_REPRO_REPRO_CONFIG_H

#include <jansson.h>

#include "kernels/base.h"

struct config_change {
    json_t *newer;   /* ["train.shard"]: keys that the bundle's version did not have. Its script
                        cannot have set them, and the default of a new key changes nothing */
    json_t *changed; /* ["train.steps"]: keys with another value, or removed: this run is another
                        experiment */
};

/* Released with config_change_free(), after an error too. */
NODISCARD enum status config_change_find(const json_t *then, const json_t *now,
                                         struct config_change *out, struct err *e);
void config_change_free(struct config_change *c);

/* Whether the bundle's version did not have `key` or an object around it. */
bool config_change_is_newer(const struct config_change *c, const char *key);

#endif
