#include "runner/plan/idle_key.h"

#include <jansson.h>
#include <string.h>

#include "runner/base/run_files.h"

#define IDLE_CODES \
    "train.grad_dtype = \"fp8\" does nothing on one rank, which sends no gradients: its bits are " \
    "those of \"f32\""

static bool is_after_the_end(const json_t *config) {
    const json_t *list = json_object_get(json_object_get(config, "checkpoint"), "milestones");
    int64_t steps = json_int(json_object_get(config, "train"), "steps");
    const json_t *item;
    size_t i;
    json_array_foreach(list, i, item) {
        if (steps > 0 && json_integer_value(item) > steps) return true;
    }
    return false;
}

const char *idle_key_text(const json_t *config, bool smoke) {
    const json_t *train = json_object_get(config, "train");
    bool codes = !strcmp(json_text(train, "grad_dtype", ""), "fp8");
    if (codes && json_int(json_object_get(config, "hardware"), "gpus") == 1)
        return smoke ? IDLE_CODES " (a smoke run has one GPU, whatever the script asks for)"
                     : IDLE_CODES;
    if (!smoke && is_after_the_end(config))
        return "a step of checkpoint.milestones is after train.steps: it is saved only if the run "
               "is extended";
    return NULL;
}
