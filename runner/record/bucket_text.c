#include "runner/record/bucket_text.h"

#include <inttypes.h>
#include <stdio.h>

json_t *bucket_text(const int64_t counts[HISTOGRAM_COUNTS]) {
    char text[HISTOGRAM_COUNTS * 32] = "";
    size_t n = 0;
    for (int i = 0; i < HISTOGRAM_COUNTS; i++)
        if (counts[i] != 0)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%d:%" PRId64, n ? " " : "", i,
                                  counts[i]);
    return json_stringn(text, n);
}

bool bucket_text_next(const char **at, int *bucket, int64_t *count) {
    int found = -1, taken = 0;
    long long n = 0;
    if (sscanf(*at, "%3d:%18lld%n", &found, &n, &taken) != 2) return false;
    if (found <= *bucket || found >= HISTOGRAM_COUNTS || n < 0) return false;
    *at += taken;
    *bucket = found;
    *count = n;
    return true;
}
