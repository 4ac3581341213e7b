#include "runner/advise/link.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "runner/base/run_files.h"

static const double BYTES_PER_US = 1e5;
enum { LINKS_MIN = 12 };

/* "nvlink x18", or kinds of connections with their pairs, "nvlink x4: 0-1; sys: 0-2 1-2". */
static bool all_wide(const char *links) {
    for (const char *at = links; at; at = strchr(at, ';')) {
        int64_t count = 0;
        at += strspn(at, "; ");
        if (sscanf(at, "nvlink x%" SCNd64, &count) != 1 || count < LINKS_MIN) return false;
    }
    return true;
}

bool link_is_nvlink(const json_t *facts, int ranks) {
    const char *links = json_text(facts, "gpu.links", "");
    if (json_integer_value(json_object_get(facts, "gpu.count")) < ranks) return false;
    return *links ? all_wide(links) : json_is_true(json_object_get(facts, "gpu.nvlink"));
}

double link_us(double bytes, int ranks) {
    return ranks < 2 ? 0 : bytes * (ranks - 1) / ranks / BYTES_PER_US;
}
