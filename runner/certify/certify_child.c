#include "runner/certify/certify_child.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/certify/certify.h"
#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/clock.h"
#include "runner/base/run_files.h"
#include "runner/base/self_ask.h"
#include "runner/plan/backends.h"
#include "runner/record/choice_cache.h"

enum { FORBIDDEN_MAX = 16 };

static const char SCHEMA[] = "fp8lab.certificates/1";

/* Ways that failed so far: backends that are opened later do not use them. */
struct forbidden { char section[16], way[FORBIDDEN_WAY_CAP]; };

struct child {
    const struct certify_request *request;
    struct backend_handle reference, device;
    struct ways ways;
    struct forbidden forbidden[FORBIDDEN_MAX];
    int forbidden_count;
    bool failed;  /* a way did: its choices, and those beside it, are for no run */
    json_t *list; /* of certificates */
};

static enum status no_memory(struct err *e) {
    return FAIL(e, ERR_MEMORY, "no memory for certificates");
}

static const char *section_name(enum way_section s) {
    return s == WAY_GEMM ? "gemm" : s == WAY_CAST ? "cast" : "attention";
}

/* ---- JSON -------------------------------------------------------------------------------------*/

static json_t *number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static const char *text_or_null(const char *text) { return *text ? text : NULL; }

static json_t *certificate_json(const struct certificate *c) {
    static const char *const OUTCOMES[] = { "passed", "failed", "absent" };
    char way[WAY_TEXT_CAP];
    const struct arithmetic *m;
    json_t *agreed = json_array();
    bool failed = false;
    certify_way_text(&c->way, way);
    for (int i = 0; (m = arithmetic_at(i)); i++)
        if (c->agreed >> i & 1) json_append(agreed, json_string(m->name), &failed);
    return json_pack("{s:s,s:s,s:s,s:s?,s:s?,s:o,s:I,s:o,s:o,s:s?,s:s?,s:o,s:s?}", "way", way,
                     "section", section_name(c->way.section), "outcome", OUTCOMES[c->outcome],
                     "how", text_or_null(c->how), "fault", text_or_null(c->fault), "found",
                     json_from_text(c->found), "outputs", (json_int_t)c->outputs, "error",
                     number(c->error), "bound", number(c->bound), "reason",
                     text_or_null(c->reason), "order", text_or_null(c->order), "agreed",
                     json_whole(agreed, failed), "forbid", text_or_null(c->forbid));
}

/* ---- the child --------------------------------------------------------------------------------*/

static enum status open_device(struct child *c, struct err *e) {
    const struct certify_request *r = c->request;
    backend_close(&c->device);
    c->device = (struct backend_handle){ 0 };
    TRY(backend_open(r->backend, 0, r->device, &c->device, e));
    struct backend *b = c->device.backend;
    if (r->caps) TRY(b->ops->assume_architecture(b, r->caps, e));
    for (int64_t i = 0; i < c->ways.count; i++) {
        enum attention_backend kernel = c->ways.way[i].kernel;
        if (kernel == ATTENTION_TIMED) continue;
        TRY(b->ops->attention_backend(b, kernel, e));
        break; /* a run asks for one */
    }
    for (int i = 0; i < c->forbidden_count; i++)
        TRY(b->ops->forbid(b, c->forbidden[i].section, c->forbidden[i].way, e));
    struct err ignored; /* without offers it times its own */
    if (r->offers && choice_cache_take(r->offers, b, &ignored) == ERR_MEMORY) return no_memory(e);
    return OK;
}

static enum status put(struct child *c, const struct certificate *one, struct err *e) {
    bool failed = false;
    struct backend *b = c->device.backend;
    struct device_info info;
    TRY(b->ops->info(b, &info, e));
    json_t *certificate = certificate_json(one);
    json_put(certificate, "device", json_from_text(info.name), &failed);
    json_put(certificate, "architecture", json_string(info.architecture), &failed);
    json_append(c->list, certificate, &failed);
    return failed ? no_memory(e) : OK;
}

/* Certifies a way. If it fails and the backend has another, that one is tried on a new backend. */
static enum status try_way(struct child *c, const struct certify_way *way, struct err *e) {
    struct certificate one;
    for (;;) {
        struct err why;
        if (certify(c->device.backend, c->reference.backend, way, &one, &why) != OK)
            certify_fail(&one, "error", "%.250s", why.text);
        TRY(put(c, &one, e));
        c->failed |= one.outcome == CERTIFY_FAILED;
        if (one.outcome != CERTIFY_FAILED || !*one.forbid || c->forbidden_count == FORBIDDEN_MAX)
            return OK;
        struct forbidden *f = &c->forbidden[c->forbidden_count++];
        snprintf(f->section, sizeof f->section, "%s", section_name(way->section));
        snprintf(f->way, sizeof f->way, "%s", one.forbid);
        TRY(open_device(c, e));
    }
}

static enum status find_ways(struct child *c, struct err *e) {
    const struct certify_request *r = c->request;
    json_t *config = NULL;
    if (!r->config) return ways_standard(&c->ways, e);
    TRY(json_file_read(r->config, &config, e));
    enum status st = ways_of_config(config, (int)r->ranks, &c->ways, e);
    json_decref(config);
    return st;
}

static enum status try_ways(struct child *c, struct err *e) {
    const struct certify_request *r = c->request;
    int64_t end = r->count ? r->first + r->count : c->ways.count;
    for (int64_t i = r->first; i < end && i < c->ways.count; i++)
        TRY(try_way(c, &c->ways.way[i], e));
    return OK;
}

static enum status answer_of(struct child *c, int64_t begin_ms, json_t **out, struct err *e) {
    struct backend *b = c->device.backend;
    struct device_info info;
    struct library l;
    char libraries[320] = "";
    size_t used = 0;
    TRY(b->ops->info(b, &info, e));
    for (int64_t i = 0; b->ops->library(b, i, &l) && used < sizeof libraries - 60; i++)
        if (*l.version)
            used += (size_t)snprintf(libraries + used, sizeof libraries - used, "%s%s %s",
                                     used ? ", " : "", l.name, l.version);
    char *timed = NULL;
    TRY(b->ops->choices_timed(b, &timed, e));
    *out = json_pack("{s:s,s:s,s:s,s:s,s:f,s:O,s:s}", "schema", SCHEMA, "device", info.name,
                     "architecture", info.architecture, "libraries", libraries, "seconds",
                     (double)(clock_ms() - begin_ms) / 1000, "certificates", c->list, "choices",
                     c->failed ? "" : timed);
    free(timed);
    return *out ? OK : no_memory(e);
}

enum status certify_answer(const struct certify_request *r, json_t **out, struct err *e) {
    struct child c = { .request = r, .list = json_array() };
    int64_t begin = clock_ms();
    *out = NULL;
    enum status st = c.list ? backend_open("cpu", 0, 0, &c.reference, e) : no_memory(e);
    if (st == OK) st = find_ways(&c, e);
    if (st == OK) st = open_device(&c, e);
    if (st == OK) st = try_ways(&c, e);
    if (st == OK) st = answer_of(&c, begin, out, e);
    backend_close(&c.device);
    backend_close(&c.reference);
    ways_free(&c.ways);
    json_decref(c.list);
    return st;
}

/* ---- the parent -------------------------------------------------------------------------------*/

enum status certify_ask(const struct certify_request *r, json_t **out, bool *crashed,
                        struct err *e) {
    char ranks[24], device[24], first[24], count[24];
    const char *args[24] = { "probe", "--json", "--certify", "--backend", r->backend,
                             "--ranks", ranks, "--device", device, "--first", first };
    int n = 11;
    snprintf(ranks, sizeof ranks, "%" PRId64, r->ranks);
    snprintf(device, sizeof device, "%" PRId64, r->device);
    snprintf(first, sizeof first, "%" PRId64, r->first);
    snprintf(count, sizeof count, "%" PRId64, r->count);
    if (r->count) args[n++] = "--count";
    if (r->count) args[n++] = count;
    if (r->config) args[n++] = "--config";
    if (r->config) args[n++] = r->config;
    if (r->caps) args[n++] = "--caps";
    if (r->caps) args[n++] = r->caps;
    if (r->offers) args[n++] = "--offers";
    if (r->offers) args[n++] = r->offers;
    const struct self_ask ask = { args, SCHEMA, r->seconds, r->tick, r->context };
    return self_ask(&ask, out, crashed, e);
}
