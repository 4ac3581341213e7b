#include "runner/advise/attention_way.h"

#include <jansson.h>
#include <string.h>

#include "kernels/device.h"
#include "runner/advise/evidence.h"
#include "runner/base/run_files.h"

/* A window, or documents that do not see each other: a query has a first key. */
static bool is_masked(const json_t *config) {
    const json_t *model = json_object_get(config, "model"), *data = json_object_get(config, "data");
    int64_t window = json_int(model, "window");
    return (window > 0 && window < json_int(model, "seq_len")) ||
           json_is_true(json_object_get(data, "pack")) ||
           !strcmp(json_text(data, "mask", "none"), "document");
}

static bool cudnn_may_serve(const json_t *config, int cc) {
    const json_t *model = json_object_get(config, "model");
    const struct attention_size size = { .batch = 1, .length = json_int(model, "seq_len"),
                                         .heads = json_int(model, "heads"),
                                         .kv_heads = json_int(model, "kv_heads"),
                                         .head_dim = json_int(model, "head_dim") };
    return device_may_ask_fp8_attention(cc, &size, is_masked(config));
}

const char *attention_way(const json_t *config, int cc) {
    const char *backend = json_text(json_object_get(config, "attention"), "backend", "auto");
    if (!cc || !evidence_is_of_attention(config)) return "";
    if (!strcmp(backend, "cudnn"))
        return "a run ends unless cuDNN has a deterministic plan for FP8 attention";
    if (!strcmp(backend, "own") || !cudnn_may_serve(config, cc))
        return "FP8 attention is emulated here";
    return "FP8 attention runs in cuDNN if its plan is deterministic, else emulated";
}
