#include "runner/certify/certify_child.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/certify/certify.h"
#include "kernels/certify/producer_check.h"
#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/clock.h"
#include "runner/base/run_files.h"
#include "runner/base/self_ask.h"
#include "runner/certify/forbidden.h"
#include "runner/plan/backends.h"
#include "runner/record/choice_cache.h"
#include "runner/record/choice_file.h"

static const char SCHEMA[] = "fp8lab.certificates/1";

enum { CASTS_MAX = 16 };

struct child {
    const struct certify_request *request;
    struct backend_handle reference, device;
    struct device_info info; /* of the device: one that broke answers no more */
    struct ways ways;
    json_t *forbidden; /* names: those of the request, and those that failed so far */
    bool failed;  /* a way did: its choices, and those beside it, are for no run */
    bool broken;  /* the device is: nothing more can be tried here */
    json_t *list; /* of certificates */
    json_t *untried;
    struct certificate cast[CASTS_MAX]; /* casts whose operators passed, on this device */
    int casts;
};

static enum status no_memory(struct err *e) {
    return FAIL(e, ERR_MEMORY, "no memory for certificates");
}

/* ---- JSON -------------------------------------------------------------------------------------*/

static json_t *number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static const char *text_or_null(const char *text) { return *text ? text : NULL; }

/* Those of the forbidden names that this way might have used. */
static json_t *without_json(const struct certify_way *way, const json_t *forbidden) {
    json_t *name, *out = json_array();
    bool failed = false;
    size_t i;
    json_array_foreach(forbidden, i, name)
        if (way_may_use(way, json_string_value(name)))
            json_append(out, json_incref(name), &failed);
    return json_whole(out, failed);
}

static json_t *certificate_json(const struct certificate *c, const json_t *forbidden) {
    static const char *const OUTCOMES[] = { "passed", "failed", "absent" };
    char way[WAY_TEXT_CAP];
    const struct arithmetic *m;
    json_t *agreed = json_array();
    bool failed = false;
    certify_way_text(&c->way, way);
    for (int i = 0; (m = arithmetic_at(i)); i++)
        if (c->agreed >> i & 1) json_append(agreed, json_string(m->name), &failed);
    return json_pack("{s:s,s:s,s:s,s:s?,s:s?,s:o,s:I,s:o,s:o,s:s?,s:s?,s:o,s:s?,s:o}", "way",
                     way, "section", way_section_name(c->way.section), "outcome",
                     OUTCOMES[c->outcome], "how", text_or_null(c->how), "fault",
                     text_or_null(c->fault), "found", json_from_text(c->found), "outputs",
                     (json_int_t)c->outputs, "error", number(c->error), "bound", number(c->bound),
                     "reason", text_or_null(c->reason), "order", text_or_null(c->order), "agreed",
                     json_whole(agreed, failed), "forbid", text_or_null(c->forbid), "without",
                     without_json(&c->way, forbidden));
}

/* ---- the child --------------------------------------------------------------------------------*/

/* The run's own table comes before kept choices, as in its worker. One that this device rejects is
 * left out: the worker says so, and may drop it. */
static enum status load_choices(const char *source, struct backend *b, struct err *e) {
    char *text = NULL;
    if (!source) return OK;
    TRY(choice_file_source(source, &text, e));
    enum status st = b->ops->choices_load(b, text, e);
    free(text);
    return st == ERR_CONFIG ? OK : st;
}

/* Without a file of them: as the device wants twins. */
static enum status find_ways(struct child *c, struct err *e) {
    const struct certify_request *r = c->request;
    struct backend *b = c->device.backend;
    bool untransposed = b->ops->twins_untransposed(b, SCALE_1X32);
    unsigned twins = untransposed ? TWINS_UNTRANSPOSED : TWINS_TRANSPOSED;
    json_t *config = NULL;
    if (r->ways) return ways_read(r->ways, &c->ways, e);
    if (!r->config) return ways_standard(twins, &c->ways, e);
    TRY(json_file_read(r->config, &config, e));
    enum status st = ways_of_config(config, (int)r->ranks, twins, &c->ways, e);
    json_decref(config);
    return st;
}

/* The device times its own algorithms for shapes that neither the table nor the offers have. */
static enum status set_up(struct child *c, const char *forbidden, struct err *e) {
    const struct certify_request *r = c->request;
    struct backend *b = c->device.backend;
    struct err ignored;
    if (r->caps) TRY(b->ops->assume_architecture(b, r->caps, e));
    if (!c->ways.count) TRY(find_ways(c, e));
    for (int64_t i = 0; i < c->ways.count; i++) {
        enum attention_backend kernel = c->ways.way[i].kernel;
        if (kernel == ATTENTION_AUTO) continue;
        TRY(b->ops->attention_backend(b, kernel, e));
        break; /* a run asks for one */
    }
    TRY(forbidden_apply(b, forbidden, e));
    TRY(load_choices(r->choices, b, e));
    if (r->offers && choice_cache_take(r->offers, b, &ignored) == ERR_MEMORY) return no_memory(e);
    return b->ops->info(b, &c->info, e);
}

static enum status open_device(struct child *c, struct err *e) {
    const struct certify_request *r = c->request;
    char *forbidden = forbidden_text(c->forbidden);
    backend_close(&c->device);
    c->device = (struct backend_handle){ 0 };
    c->casts = 0;
    enum status st = forbidden ? backend_open(r->backend, 0, r->device, &c->device, e)
                               : no_memory(e);
    if (st == OK) st = set_up(c, forbidden, e);
    free(forbidden);
    return st;
}

/* The time so far, in ms: all of it, and what of it the device chose algorithms in. */
struct spent { int64_t all, choosing; };

static struct spent spent_so_far(const struct child *c) {
    struct backend *b = c->device.backend;
    return (struct spent){ clock_ms(), llround(1000 * b->ops->choosing_seconds(b)) };
}

/* begin: of this certificate. */
static enum status put(struct child *c, const struct certificate *one, const struct spent *begin,
                       struct err *e) {
    bool failed = false;
    struct spent end = spent_so_far(c);
    json_t *certificate = certificate_json(one, c->forbidden);
    json_put(certificate, "ms", json_integer(end.all - begin->all), &failed);
    json_put(certificate, "choosing_ms", json_integer(end.choosing - begin->choosing), &failed);
    json_put(certificate, "device", json_from_text(c->info.name), &failed);
    json_put(certificate, "architecture", json_string(c->info.architecture), &failed);
    json_append(c->list, certificate, &failed);
    return failed ? no_memory(e) : OK;
}

/* An error that says nothing about the way: memory that others have, a device that is broken or
 * gone. After the latter nothing more works in this process. */
static bool is_of_device(enum status st) { return st == ERR_DEVICE || st == ERR_HARDWARE; }

static enum status put_untried(struct child *c, const struct certify_way *way,
                               const struct err *why, struct err *e) {
    char text[WAY_TEXT_CAP];
    bool failed = false;
    c->broken = is_of_device(why->code);
    certify_way_text(way, text);
    json_append(c->untried, json_pack("{s:s,s:b,s:o}", "way", text, "broken", c->broken, "why",
                                      json_from_text(why->text)), &failed);
    return failed ? no_memory(e) : OK;
}

/* The operators that make a cast. One trial serves all casts that are alike. */
static enum status try_producers(struct child *c, const struct certify_way *way,
                                 struct certificate *out, struct err *e) {
    for (int i = 0; i < c->casts; i++) {
        const char *names = strstr(c->cast[i].found, "; cast by ");
        size_t used = strlen(out->found);
        if (!certify_producers_alike(&c->cast[i].way, way)) continue;
        if (names) snprintf(out->found + used, sizeof out->found - used, "%s", names);
        return OK;
    }
    TRY(certify_producers(c->device.backend, c->reference.backend, way, out, e));
    if (out->outcome == CERTIFY_PASSED && c->casts < CASTS_MAX) c->cast[c->casts++] = *out;
    return OK;
}

/* A CPU multiplies codes by definition: its operators have no other way, and the table of recipes
 * calls them emulated. */
static enum status certify_one(struct child *c, const struct certify_way *way,
                               struct certificate *out, struct err *e) {
    struct backend *b = c->device.backend;
    enum status st = certify(b, c->reference.backend, way, out, e);
    if (st == OK && way->section == WAY_CAST && out->outcome == CERTIFY_PASSED)
        st = try_producers(c, way, out, e);
    if (strcmp(b->ops->name, "cpu") != 0) return st;
    if (!strcmp(out->how, "native")) snprintf(out->how, sizeof out->how, "emulated");
    *out->forbid = '\0';
    return st;
}

/* Certifies a way. If it fails and the backend has another, that one is tried on a new backend. */
static enum status try_way(struct child *c, const struct certify_way *way, struct err *e) {
    char name[FORBIDDEN_NAME_CAP];
    bool failed = false;
    for (;;) {
        struct certificate one;
        struct err why;
        const struct spent begin = spent_so_far(c);
        enum status st = certify_one(c, way, &one, &why);
        if (st == ERR_MEMORY || is_of_device(st)) return put_untried(c, way, &why, e);
        if (st != OK) certify_fail(&one, "error", "%.250s", why.text);
        TRY(put(c, &one, &begin, e));
        c->failed |= one.outcome == CERTIFY_FAILED;
        snprintf(name, sizeof name, "%s %s", way_section_name(way->section), one.forbid);
        if (one.outcome != CERTIFY_FAILED || !*one.forbid || forbidden_has(c->forbidden, name))
            return OK;
        forbidden_add(c->forbidden, name, &failed);
        if (failed) return no_memory(e);
        TRY(open_device(c, e));
    }
}

static enum status try_ways(struct child *c, struct err *e) {
    const struct certify_request *r = c->request;
    int64_t end = r->count ? r->first + r->count : c->ways.count;
    for (int64_t i = r->first; i < end && i < c->ways.count && !c->broken; i++)
        TRY(try_way(c, &c->ways.way[i], e));
    return OK;
}

static enum status answer_of(struct child *c, int64_t begin_ms, json_t **out, struct err *e) {
    struct backend *b = c->device.backend;
    struct library l;
    char libraries[320] = "", *timed = NULL;
    bool hands_back = !c->failed && !c->broken;
    size_t used = 0;
    for (int64_t i = 0; b->ops->library(b, i, &l) && used < sizeof libraries - 60; i++)
        if (*l.version)
            used += (size_t)snprintf(libraries + used, sizeof libraries - used, "%s%s %s",
                                     used ? ", " : "", l.name, l.version);
    if (hands_back) TRY(b->ops->choices_timed(b, &timed, e));
    *out = json_pack("{s:s,s:s,s:s,s:s,s:f,s:O,s:O,s:s}", "schema", SCHEMA, "device", c->info.name,
                     "architecture", c->info.architecture, "libraries", libraries, "seconds",
                     (double)(clock_ms() - begin_ms) / 1000, "certificates", c->list, "untried",
                     c->untried, "choices", hands_back ? timed : "");
    free(timed);
    return *out ? OK : no_memory(e);
}

enum status certify_answer(const struct certify_request *r, json_t **out, struct err *e) {
    struct child c = { .request = r, .list = json_array(), .untried = json_array(),
                       .forbidden = forbidden_names(r->forbidden) };
    int64_t begin = clock_ms();
    *out = NULL;
    enum status st = c.list && c.untried && c.forbidden
        ? backend_open("cpu", 0, 0, &c.reference, e) : no_memory(e);
    if (st == OK) st = open_device(&c, e);
    if (st == OK) st = try_ways(&c, e);
    if (st == OK) st = answer_of(&c, begin, out, e);
    backend_close(&c.device);
    backend_close(&c.reference);
    ways_free(&c.ways);
    json_decref(c.list);
    json_decref(c.untried);
    json_decref(c.forbidden);
    return st;
}

/* ---- the parent -------------------------------------------------------------------------------*/

enum status certify_ask(const struct certify_request *r, json_t **out, bool *crashed,
                        struct err *e) {
    char device[24], first[24], count[24];
    const char *args[24] = { "probe", "--json", "--certify", "--backend", r->backend, "--ways",
                             r->ways, "--device", device, "--first", first };
    int n = 11;
    snprintf(device, sizeof device, "%" PRId64, r->device);
    snprintf(first, sizeof first, "%" PRId64, r->first);
    snprintf(count, sizeof count, "%" PRId64, r->count);
    const char *const flags[][2] = {
        { "--count", r->count ? count : NULL }, { "--caps", r->caps }, { "--offers", r->offers },
        { "--choices", r->choices },
        { "--forbid", r->forbidden && *r->forbidden ? r->forbidden : NULL },
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (!flags[i][1]) continue;
        args[n++] = flags[i][0];
        args[n++] = flags[i][1];
    }
    const struct self_ask ask = { .args = args, .schema = SCHEMA, .seconds = r->seconds,
                                  .tick = r->tick, .context = r->context };
    return self_ask(&ask, out, crashed, e);
}
