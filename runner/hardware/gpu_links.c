#include "runner/hardware/gpu_links.h"

#include <inttypes.h>
#include <stdio.h>

#include "runner/base/canonical.h"

/* Two GPUs, lower number first: (0, 0) is before the first pair. */
struct pair { int64_t a, b; };

static bool next_pair(int64_t count, struct pair *p) {
    if (++p->b >= count) p->b = ++p->a + 1;
    return p->b < count;
}

static struct nvml_link link_of(const struct nvml_report *r, struct pair p) {
    return r->gpus[p.a].link[r->gpus[p.b].index];
}

static bool same_link(struct nvml_link a, struct nvml_link b) {
    return a.path == b.path && a.links == b.links;
}

/* Whether no earlier pair has the same kind of connection. */
static bool is_first(const struct nvml_report *r, struct pair p) {
    for (struct pair q = { 0, 0 }; next_pair(r->count, &q) && (q.a != p.a || q.b != p.b);)
        if (same_link(link_of(r, q), link_of(r, p))) return false;
    return true;
}

static void add_link_kind(struct text *t, struct nvml_link link) {
    static const char *const PATHS[] = { "?", "nvlink", "board", "pix", "pxb", "phb", "node",
                                         "sys" };
    char links[32] = "";
    if (link.path == NVML_PATH_NVLINK) snprintf(links, sizeof links, " x%" PRId64, link.links);
    if (t->size) text_puts(t, "; ");
    text_puts(t, PATHS[link.path]);
    text_puts(t, links);
}

static void add_pairs(struct text *t, const struct nvml_report *r, struct nvml_link link) {
    text_puts(t, ":");
    for (struct pair p = { 0, 0 }; next_pair(r->count, &p);) {
        char pair[48];
        if (!same_link(link_of(r, p), link)) continue;
        snprintf(pair, sizeof pair, " %" PRId64 "-%" PRId64, p.a, p.b);
        text_puts(t, pair);
    }
}

json_t *gpu_links(const struct nvml_report *r) {
    struct text t = { 0 };
    int64_t ways = 0;
    bool known = false;
    for (struct pair p = { 0, 0 }; next_pair(r->count, &p);) {
        ways += is_first(r, p);
        known = known || link_of(r, p).path != NVML_PATH_UNKNOWN;
    }
    for (struct pair p = { 0, 0 }; known && next_pair(r->count, &p);) {
        if (!is_first(r, p)) continue;
        add_link_kind(&t, link_of(r, p));
        if (ways > 1) add_pairs(&t, r, link_of(r, p));
    }
    json_t *out = t.failed ? NULL : known ? json_string(t.bytes) : json_null();
    text_free(&t);
    return out;
}
