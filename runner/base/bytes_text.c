#include "runner/base/bytes_text.h"

#include <math.h>
#include <stdio.h>

static const char *const UNITS[] = { "B", "KiB", "MiB", "GiB", "TiB" };

/* *bytes in the unit that is returned. */
static int take_unit(double *bytes) {
    int unit = 0;
    for (; fabs(*bytes) >= 1024 && unit < 4; unit++) *bytes /= 1024;
    return unit;
}

const char *bytes_text(double bytes, char out[BYTES_TEXT_CAP]) {
    int unit = take_unit(&bytes);
    snprintf(out, BYTES_TEXT_CAP, "%.*f %s", unit && fabs(bytes) < 99.95 ? 1 : 0, bytes,
             unit ? UNITS[unit] : "bytes");
    return out;
}

const char *bytes_query_text(double bytes, char out[BYTES_TEXT_CAP]) {
    int unit = take_unit(&bytes);
    snprintf(out, BYTES_TEXT_CAP, "%.*f%s", bytes == floor(bytes) ? 0 : 1, bytes, UNITS[unit]);
    return out;
}
