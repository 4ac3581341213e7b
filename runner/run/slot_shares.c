#include "runner/run/slot_shares.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"
#include "runner/hardware/nvml.h"

/* ---- GPUs -------------------------------------------------------------------------------------*/

static enum status check_count(const struct nvml_report *r, const char *visible, int64_t slots,
                               int64_t each, struct err *e) {
    if (slots * each <= r->count) return OK;
    return FAIL(e, ERR_HARDWARE, "--side-by-side %" PRId64 ": %" PRId64 " rows at once, on %" PRId64
                " GPU%s each (hardware.gpus), need %" PRId64 " GPUs, and this process sees %" PRId64
                "%s%.200s; --side-by-side %" PRId64 " fits", slots, slots, each,
                each == 1 ? "" : "s", slots * each, r->count,
                visible ? ": CUDA_VISIBLE_DEVICES=" : "", visible ? visible : "",
                r->count / each > 1 ? r->count / each : 1);
}

/* Two slots on one GPU would slow each other down. */
static enum status check_distinct(const struct nvml_report *r, const char *visible,
                                  struct err *e) {
    for (int64_t i = 0; i < r->count; i++)
        for (int64_t k = 0; k < i; k++)
            if (r->gpus[i].index == r->gpus[k].index)
                return FAIL(e, ERR_CONFIG, "CUDA_VISIBLE_DEVICES=%.200s names GPU %" PRId64
                            " twice, but each row needs a GPU of its own", visible,
                            r->gpus[i].index);
    return OK;
}

/* The name of GPU `i` of the report: the user's entry, or its UUID. *n: its bytes. */
static const char *entry_of(const struct nvml_report *r, const char *visible, int64_t i,
                            size_t *n) {
    const char *at = visible ? visible : r->gpus[i].uuid;
    for (int64_t k = 0; visible && k < i; k++) at += strcspn(at, ",") + 1;
    *n = strcspn(at, ",");
    return at;
}

static bool share_gpus(const struct nvml_report *r, const char *visible, int64_t first,
                       int64_t each, struct slot_share *out) {
    size_t n, bytes = 0, used;
    out->gpu = calloc((size_t)each, sizeof *out->gpu);
    for (int64_t i = 0; i < each; i++) {
        (void)entry_of(r, visible, first + i, &n);
        bytes += n + 1;
    }
    char *to = out->visible = calloc(bytes + 1, 1);
    if (!out->gpu || !to) return false;
    used = (size_t)snprintf(out->name, sizeof out->name, each == 1 ? "gpu " : "gpus ");
    for (int64_t i = 0; i < each; i++) {
        const char *entry = entry_of(r, visible, first + i, &n);
        if (i) *to++ = ',';
        memcpy(to, entry, n);
        to += n;
        out->gpu[i] = r->gpus[first + i].index;
        if (used < sizeof out->name)
            used += (size_t)snprintf(out->name + used, sizeof out->name - used, "%s%" PRId64,
                                     i ? "," : "", out->gpu[i]);
    }
    out->gpus = each;
    return true;
}

enum status slot_shares_gpus(const struct nvml_report *report, const char *visible, int64_t slots,
                             int64_t each, struct slot_shares *out, struct err *e) {
    *out = (struct slot_shares){ 0 };
    TRY(check_distinct(report, visible ? visible : "", e));
    TRY(check_count(report, visible, slots, each, e));
    for (; out->count < slots; out->count++)
        if (!share_gpus(report, visible, out->count * each, each, &out->share[out->count])) {
            out->count++; /* it may own a part */
            return FAIL(e, ERR_MEMORY, "the GPUs of %" PRId64 " rows", slots);
        }
    return OK;
}

/* ---- threads ----------------------------------------------------------------------------------*/

enum status slot_shares_threads(int64_t processors, int64_t asked, int64_t slots, int64_t ranks,
                                struct slot_shares *out, struct err *e) {
    *out = (struct slot_shares){ 0 };
    if (!asked && processors < slots)
        return FAIL(e, ERR_HARDWARE, "--side-by-side %" PRId64 ": %" PRId64 " rows at once need as "
                    "many processors, and there are %" PRId64 "; --threads 1 lets them share",
                    slots, slots, processors);
    int64_t part = processors / (slots * ranks);
    for (; out->count < slots; out->count++) {
        struct slot_share *share = &out->share[out->count];
        share->threads = asked ? asked : part > 1 ? part : 1;
        snprintf(share->name, sizeof share->name, "slot %" PRId64, out->count);
    }
    return OK;
}

/* ---- both -------------------------------------------------------------------------------------*/

enum status slot_shares_facts(const struct slot_shares *s, const json_t *facts, json_t **out,
                              struct err *e) {
    static const char *const DIVIDED[] = { "memory.total", "memory.available" };
    bool failed = false;
    *out = json_copied(facts, &failed);
    for (size_t i = 0; i < sizeof DIVIDED / sizeof *DIVIDED; i++) {
        const json_t *whole = json_object_get(facts, DIVIDED[i]);
        if (json_is_integer(whole))
            json_put(*out, DIVIDED[i], json_integer(json_integer_value(whole) / s->count), &failed);
    }
    if (s->share[0].visible)
        json_put(*out, "gpu.count", json_integer(s->share[0].gpus), &failed);
    *out = json_whole(*out, failed);
    return *out ? OK : FAIL(e, ERR_MEMORY, "the facts of a part of this machine");
}

void slot_shares_free(struct slot_shares *s) {
    for (int64_t i = 0; i < s->count; i++) {
        free(s->share[i].visible);
        free(s->share[i].gpu);
    }
    *s = (struct slot_shares){ 0 };
}
