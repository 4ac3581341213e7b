#include "runner/profile/profile.h"

#include <stdio.h>

enum status profile_start(struct backend *b, bool uncaptured, struct profile *p, struct err *e) {
    struct err why = { 0 };
    bool asked = nvtx_is_asked();
    *p = (struct profile){ .text = "no profiler asks for ranges" };
    bool found = asked && nvtx_open(&p->nvtx, &why) == OK;
    if (found) snprintf(p->text, sizeof p->text, "a profiler gets ranges by %s", p->nvtx.name);
    else if (asked) snprintf(p->text, sizeof p->text, "%.300s", why.text);
    if (!found && !uncaptured) return OK;
    return ranges_start(b, found ? &p->nvtx : NULL, uncaptured, &p->ranges, e);
}

void profile_stop(struct profile *p) {
    ranges_stop(p->ranges);
    nvtx_close(&p->nvtx);
    p->ranges = NULL;
}
