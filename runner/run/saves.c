#include "runner/run/saves.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"

static void add(json_t *saves, const char *key, int64_t value, bool largest, bool *failed) {
    int64_t before = json_int(saves, key), sum = before + value;
    json_put(saves, key, json_integer(!largest ? sum : value > before ? value : before), failed);
}

enum status saves_event(json_t *run, const json_t *event, struct err *e) {
    const char *kind = json_text(event, "event", "");
    bool written = !strcmp(kind, "checkpoint"), lost = !strcmp(kind, "unsaved"), failed = false;
    if (!written && !lost) return OK;
    json_t *saves = json_object_get(run, "saves");
    if (!saves) json_put(run, "saves", json_object(), &failed);
    saves = json_object_get(run, "saves");
    if (failed || !saves) return FAIL(e, ERR_MEMORY, "run record");
    int64_t stall = json_int(event, "stall_us");
    add(saves, "written", written, false, &failed);
    add(saves, "failed", lost, false, &failed);
    add(saves, "stall_us_sum", stall, false, &failed);
    add(saves, "stall_us_max", stall, true, &failed);
    add(saves, "write_us_max", json_int(event, "write_us"), true, &failed);
    return failed ? FAIL(e, ERR_MEMORY, "run record") : OK;
}

void saves_text(const json_t *event, char *out, size_t size) {
    *out = '\0';
    if (strcmp(json_text(event, "event", ""), "unsaved") != 0) return;
    snprintf(out, size, "the checkpoint of step %" PRId64 " could not be written; the run goes on, "
             "and the older one stays: %s", json_int(event, "step"), json_text(event, "text", ""));
}
