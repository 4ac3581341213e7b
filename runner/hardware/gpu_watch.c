#include "runner/hardware/gpu_watch.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "runner/base/run_files.h"
#include "runner/hardware/telemetry.h"

/* NVML's reasons that are a defect of cooling or supply. The power cap is none: a GPU at work is
 * held by it, and algorithms are timed at the clock that it leaves. */
enum { HARMFUL = 0x8 | 0x20 | 0x40 | 0x80 };

void gpu_watch_sample(struct gpu_watch *w, const struct telemetry *telemetry) {
    struct err ignored;
    json_t *sample = telemetry ? json_object() : NULL;
    if (!sample) return;
    if (telemetry_add(telemetry, w->device, sample, &ignored) == OK) {
        int64_t others = json_int(sample, "gpu_processes_other");
        w->throttled |= json_int(sample, "gpu_throttle") & HARMFUL;
        if (others > w->others) w->others = others;
    }
    json_decref(sample);
}

bool gpu_watch_disturbed(const struct gpu_watch *w, char *why, size_t size) {
    char reasons[160];
    throttle_text(w->throttled, reasons, sizeof reasons);
    if (w->throttled) snprintf(why, size, "it was slowed down: %s", reasons);
    else if (w->others)
        snprintf(why, size, "%" PRId64 " other process%s used it", w->others,
                 w->others == 1 ? "" : "es");
    return w->throttled || w->others;
}
