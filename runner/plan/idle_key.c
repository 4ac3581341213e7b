#include "runner/plan/idle_key.h"

#include <jansson.h>
#include <string.h>

#include "runner/base/run_files.h"

const char *idle_key_text(const json_t *config) {
    const json_t *train = json_object_get(config, "train");
    bool codes = !strcmp(json_text(train, "grad_dtype", ""), "fp8");
    if (!codes || json_int(json_object_get(config, "hardware"), "gpus") != 1) return NULL;
    return "train.grad_dtype = \"fp8\" does nothing on one rank, which sends no gradients: its "
           "bits are those of \"f32\"";
}
