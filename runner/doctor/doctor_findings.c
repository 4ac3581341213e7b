#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/run_files.h"
#include "runner/doctor/doctor.h"

static const char *level_name(enum finding_level level) {
    static const char *const NAMES[] = { "fine", "note", "warning", "wrong" };
    return NAMES[level];
}

void doctor_say(struct doctor *d, enum finding_level level, const char *topic, const char *fix,
                const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    json_append(d->findings,
                json_pack("{s:s,s:s,s:o,s:s?}", "topic", topic, "level", level_name(level),
                          "found", json_from_text(text), "fix", fix), &d->no_memory);
}

enum finding_level doctor_worst(const struct doctor *d) {
    enum finding_level worst = FINDING_FINE;
    size_t i;
    const json_t *row;
    json_array_foreach(d->findings, i, row)
        for (enum finding_level l = FINDING_FINE; l <= FINDING_WRONG; l++)
            if (!strcmp(json_text(row, "level", ""), level_name(l)) && l > worst) worst = l;
    return worst;
}
