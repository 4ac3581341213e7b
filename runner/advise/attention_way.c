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

enum attention_way attention_way(const json_t *config, int cc) {
    const char *backend = json_text(json_object_get(config, "attention"), "backend", "auto");
    if (!cc || !evidence_is_of_attention(config)) return ATTENTION_WAY_PLAIN;
    if (!strcmp(backend, "cudnn")) return ATTENTION_WAY_CUDNN;
    if (!strcmp(backend, "own") || !cudnn_may_serve(config, cc)) return ATTENTION_WAY_EMULATED;
    return ATTENTION_WAY_EITHER;
}

const char *attention_way_name(enum attention_way way) {
    static const char *const NAMES[] = { NULL, "emulated", "cudnn or emulated", "cudnn" };
    return NAMES[way];
}

const char *attention_way_text(enum attention_way way) {
    static const char *const TEXTS[] = {
        "", "FP8 attention is emulated here",
        "FP8 attention runs in cuDNN if its plan is deterministic, else emulated",
        "a run ends unless cuDNN has a deterministic plan for FP8 attention"
    };
    return TEXTS[way];
}

/* Emulation widens the codes to BF16 and multiplies as attention in BF16 does. The times are of
 * experiments/RESULTS.md, "What the guides switch on". */
const char *attention_way_hint(enum attention_way way) {
    return way == ATTENTION_WAY_EMULATED
               ? "Attention in BF16 is faster: drop precision = \"fp8\" (on an H200 a step of "
                 "fp8_attention.lua in fp8.delayed takes 16.8 ms without it, 30.5 ms with it)."
               : "";
}
