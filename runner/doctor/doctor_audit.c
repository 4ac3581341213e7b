/* The audit of `doctor --audit`: every GPU in turn, or the CPU. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "runner/base/run_files.h"
#include "runner/doctor/doctor.h"
#include "runner/doctor/probe.h"

enum { SLOWER = 4, START_SECONDS = 180 }; /* how long a probe may take beside its seconds */

static void say(struct doctor *d, const char *device, const json_t *audit) {
    const char *difference = json_text(audit, "difference", NULL);
    int64_t unknown = json_int(audit, "unknown");
    char more[80] = "";
    if (unknown)
        snprintf(more, sizeof more, "; %" PRId64 " products not comparable", unknown);
    if (difference)
        doctor_say(d, FINDING_WRONG, "audit", "run on another device; the vendor's diagnostics "
                   "test this one (NVIDIA: dcgmi diag -r 3)", "%s: %s", device, difference);
    else
        doctor_say(d, FINDING_FINE, "audit", NULL, "%s: %" PRId64 " products and %" PRId64
                   " FP8 codes of %" PRId64 " recipes compared with the host's, all equal%s",
                   device, json_int(audit, "products"), json_int(audit, "codes"),
                   json_int(audit, "recipes"), more);
}

static void audit_one(struct doctor *d, int64_t device, int64_t seconds) {
    const struct probe_options o = { .backend = d->gpu ? "cuda" : "cpu", .device = device,
                                     .audit_seconds = seconds };
    char name[32] = "the CPU";
    struct err e = { 0 };
    json_t *answer = NULL;
    if (d->gpu) snprintf(name, sizeof name, "GPU %" PRId64, device);
    if (probe_ask(&o, seconds * SLOWER + START_SECONDS, &answer, &e) != OK)
        doctor_say(d, FINDING_WRONG, "audit", "fp8lab doctor without --audit says what is missing",
                   "%s: %s", name, e.text);
    else
        say(d, name, json_object_get(answer, "audit"));
    json_decref(answer);
}

void doctor_audit(struct doctor *d, int64_t seconds) {
    if (!d->here) {
        doctor_say(d, FINDING_NOTE, "audit", NULL, "needs the machine itself, not a fact file");
        return;
    }
    int64_t count = d->gpu ? json_int(d->facts, "gpu.count") : 1;
    for (int64_t i = 0; i < count; i++) audit_one(d, i, seconds);
}
