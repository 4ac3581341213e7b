#include "runner/certify/certify_run.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/choices.h"
#include "model/ground/json_safe.h"
#include "runner/base/cli.h"
#include "runner/certify/certify_cache.h"
#include "runner/certify/certify_make.h"
#include "runner/certify/forbidden.h"
#include "runner/hardware/gpu_watch.h"
#include "runner/hardware/telemetry.h"
#include "runner/plan/backends.h"
#include "runner/record/choice_cache.h"
#include "runner/record/documents.h"
#include "runner/record/run_dir.h"
#include "runner/record/run_log.h"

static const char FORBIDDEN[] = "forbidden", COUNTS[] = "certificates"; /* in run.json */
/* Devices are certified again if another one forbade more ways than they had. */
enum { PASSES_MAX = 3 };

/* One of the run's devices that are certified. */
struct part {
    int64_t device;
    struct certify_cache cache;
    struct making making;
};

struct certifying {
    const struct certify_options *o;
    struct run_dir *dir;
    struct ways ways;
    struct part part[CERTIFY_DEVICES_MAX];
    int parts;
    json_t *list;        /* of this run */
    int64_t timed;       /* shapes whose algorithms children timed */
    struct telemetry *telemetry; /* owned, open while ways are tried; NULL: no GPU is seen */
    bool watching;
    struct gpu_watch watch;
};

static enum status no_memory(struct err *e) {
    return FAIL(e, ERR_MEMORY, "no memory for the certificates of a run");
}

/* Shows a sentence to the user, and writes it to the run's log. */
static void say(const struct certifying *c, const char *text) {
    if (!*text) return;
    cli_warn(c->o->cli, "%s", text);
    run_log(c->dir, "%s", text);
}

/* ---- making them ------------------------------------------------------------------------------*/

/* Opens NVML at the first look, which takes 50 ms: a run whose certificates are kept needs none. */
static void look(struct certifying *c) {
    if (!c->watching && c->o->choices) c->telemetry = telemetry_open();
    c->watching = true;
    gpu_watch_sample(&c->watch, c->telemetry);
}

static bool tick(void *context) {
    struct certifying *c = context;
    look(c);
    return !c->o->asked_to_stop(c->o->context);
}

/* What the child timed serves this run and later ones, unless its GPU was disturbed: then the run
 * times its own, as without memory for a table. */
static void take_choices(void *context, const json_t *answer) {
    struct certifying *c = context;
    char why[256], problem[CHOICE_PROBLEM_CAP] = "";
    const char *timed = json_text(answer, "choices", "");
    struct err e;
    if (!c->o->choices || !*timed) return;
    look(c);
    c->timed += choices_count(timed);
    if (gpu_watch_disturbed(&c->watch, why, sizeof why))
        run_log(c->dir, "the algorithms that the certificates timed are not used: while GPU %"
                PRId64 " was certified, %s", c->watch.device, why);
    else if (choice_cache_add(c->o->choices, json_text(answer, "architecture", ""), timed,
                              CHOICES_UNUSED, problem, &e) != OK)
        run_log(c->dir, "the algorithms that the certificates timed are not used: %s", e.text);
    say(c, problem);
}

static enum status open_part(struct certifying *c, int64_t device, struct err *e) {
    const struct certify_options *o = c->o;
    struct part *p = &c->part[c->parts++];
    const struct certify_device d = { CERTIFY_BACKEND, o->caps, device };
    char problem[KEPT_PROBLEM_CAP];
    bool first = c->parts == 1; /* rank 0's chooses algorithms */
    p->device = device;
    p->making = (struct making){
        .request = { .backend = CERTIFY_BACKEND, .caps = o->caps, .device = device, .tick = tick,
                     .context = c, .choices = o->table,
                     .offers = o->choices && first ? c->dir->path : NULL },
        .ways = &c->ways, .answered = o->choices && first ? take_choices : NULL, .context = c,
        .fresh = json_array(), .untried = json_object(),
    };
    TRY(certify_cache_of_run(&p->cache, o->cache, o->runs, o->facts, &d, e));
    TRY(certify_cache_read(&p->cache, &p->making.list, problem, e));
    say(c, problem);
    return p->making.fresh && p->making.untried ? OK : no_memory(e);
}

/* GPUs of one product, with one driver, compute alike: one of them is tried. */
static enum status open_parts(struct certifying *c, struct err *e) {
    bool mixed = json_is_true(json_object_get(c->o->facts, "gpu.mixed"));
    for (int64_t i = 0; i < (mixed ? c->o->devices : 1); i++)
        TRY(open_part(c, c->o->devices ? c->o->device[i] : 0, e));
    return OK;
}

static void close_parts(struct certifying *c) {
    for (int i = 0; i < c->parts; i++) {
        certify_cache_close(&c->part[i].cache);
        json_decref(c->part[i].making.list);
        json_decref(c->part[i].making.fresh);
        json_decref(c->part[i].making.untried);
    }
}

/* Certifies what is missing, on each device under what all of them forbid. */
static enum status make_missing(struct certifying *c, json_t *forbidden, struct err *e) {
    for (int pass = 0; pass < PASSES_MAX; pass++) {
        size_t before = json_array_size(forbidden);
        for (int i = 0; i < c->parts; i++) {
            struct making *m = &c->part[i].making;
            json_t *names, *name;
            size_t k;
            bool failed = false;
            m->base = forbidden;
            c->watch.device = c->part[i].device;
            if (!m->impossible) TRY(certify_make(m, e));
            names = certify_forbids(&c->ways, m->list);
            json_array_foreach(names, k, name)
                forbidden_add(forbidden, json_string_value(name), &failed);
            failed |= !names;
            json_decref(names);
            if (failed) return no_memory(e);
        }
        if (c->parts == 1 || json_array_size(forbidden) == before) break;
    }
    return OK;
}

static enum status keep(struct certifying *c, struct err *e) {
    for (int i = 0; i < c->parts; i++) {
        char problem[KEPT_PROBLEM_CAP];
        TRY(certify_cache_add(&c->part[i].cache, c->part[i].making.fresh, problem, e));
        say(c, problem);
    }
    return OK;
}

/* ---- what they say ----------------------------------------------------------------------------*/

/* Says why a way is not used. */
static void say_forbidden(const struct certifying *c, const char *name) {
    char text[700];
    const json_t *list = NULL;
    for (int i = 0; i < c->parts; i++)
        if (!list || !certify_failure(list, name)) list = c->part[i].making.list;
    certify_forbidden_text(list, name, text, sizeof text);
    say(c, text);
}

/* The run's certificates, in the order of its ways. */
static enum status collect(struct certifying *c, const struct making *m, int64_t *absent,
                           struct err *e) {
    char text[WAY_TEXT_CAP];
    for (int64_t i = 0; i < c->ways.count; i++) {
        certify_way_text(&c->ways.way[i], text);
        json_t *all = certificates_of(m->list, text), *one;
        size_t k;
        enum status st = all && json_array_extend(c->list, all) == 0 ? OK : no_memory(e);
        json_array_foreach(all, k, one) {
            if (st == OK) st = certify_check(one, e);
            if (st != OK || strcmp(json_text(one, "outcome", ""), "absent") != 0) continue;
            run_log(c->dir, "absent on this device: %s: %s", text, json_text(one, "found", ""));
            (*absent)++;
        }
        json_decref(all);
        TRY(st);
    }
    return OK;
}

/* Says which ways the run uses without a certificate. */
static int64_t say_untried(const struct certifying *c, const struct part *p) {
    const char *way;
    json_t *why, *first = NULL;
    char text[1400];
    int64_t n = certify_missing(&p->making);
    if (!n) return 0;
    json_object_foreach(p->making.untried, way, why) {
        run_log(c->dir, "not certified: %s: %s", way, json_string_value(why));
        if (!first) first = why;
    }
    snprintf(text, sizeof text, "%" PRId64 " of %" PRId64 " ways in which this run computes on "
             "device %" PRId64 " are not certified: %s", n, c->ways.count, p->device,
             p->making.impossible ? p->making.why.text
                                  : first ? json_string_value(first) : "no reason is known");
    say(c, text);
    return n;
}

/* Other hosts compute as this one does, or nobody knows how. */
static void say_hosts(const struct certifying *c) {
    static const char *const FACTS[] = { "gpu.product_name", "gpu.cc", "gpu.driver" };
    const json_t *host;
    size_t k;
    char text[400];
    json_array_foreach(c->o->hosts, k, host)
        for (size_t i = 0; i < sizeof FACTS / sizeof *FACTS; i++) {
            const json_t *facts = json_object_get(host, "facts");
            const char *here = json_text(c->o->facts, FACTS[i], "?");
            const char *there = json_text(facts, FACTS[i], "?");
            if (!strcmp(here, there)) continue;
            snprintf(text, sizeof text, "how host %.64s computes is not certified: its %s is "
                     "%.96s, and %.96s here, where ways were tried",
                     json_text(host, "host", "?"), FACTS[i], there, here);
            say(c, text);
            break;
        }
}

/* A run that is resumed or repeated computes as it did then, or not at all. */
static enum status compare_then(const struct certifying *c, const json_t *forbidden,
                                struct err *e) {
    const json_t *then = c->o->then ? c->o->then : json_object_get(c->dir->run, FORBIDDEN), *one;
    size_t i;
    if (!c->o->then && !c->o->resumed) return OK;
    json_array_foreach(forbidden, i, one)
        if (!forbidden_has(then, json_string_value(one)))
            return FAIL(e, ERR_HARDWARE, "this device fails in %s, which the run used: its results "
                        "would differ; start a new run, or use that run's device and libraries",
                        json_string_value(one));
    json_array_foreach(then, i, one)
        if (!forbidden_has(forbidden, json_string_value(one)))
            return FAIL(e, ERR_HARDWARE, "the run did not use %s, which failed then and passes "
                        "here: its results would differ; start a new run, or use that run's "
                        "device and libraries", json_string_value(one));
    return OK;
}

/* Where some way could not be tried, a run that is resumed or repeated leaves out what it left out
 * then. */
static enum status leave_out(const struct certifying *c, json_t *forbidden, struct err *e) {
    const json_t *then = c->o->then ? c->o->then : json_object_get(c->dir->run, FORBIDDEN), *name;
    bool failed = false;
    int64_t missing = 0;
    size_t k;
    for (int i = 0; i < c->parts; i++) missing += certify_missing(&c->part[i].making);
    if (!missing || (!c->o->then && !c->o->resumed)) return OK;
    json_array_foreach(then, k, name) forbidden_add(forbidden, json_string_value(name), &failed);
    return failed ? no_memory(e) : OK;
}

/* How many of the run's certificates have each outcome; `untried` ways have none. NULL: no
 * memory. */
static json_t *count_outcomes(const json_t *list, int64_t untried) {
    static const char *const OUTCOMES[] = { "passed", "failed", "absent" };
    int64_t count[3] = { 0 };
    const json_t *one;
    size_t k;
    json_array_foreach(list, k, one)
        for (int i = 0; i < 3; i++)
            count[i] += !strcmp(json_text(one, "outcome", ""), OUTCOMES[i]);
    return json_pack("{s:I,s:I,s:I,s:I}", OUTCOMES[0], (json_int_t)count[0], OUTCOMES[1],
                     (json_int_t)count[1], OUTCOMES[2], (json_int_t)count[2], "not_certified",
                     (json_int_t)untried);
}

static enum status write(struct certifying *c, json_t *forbidden, int64_t untried,
                         struct err *e) {
    json_t *document = json_pack("{s:s,s:O,s:O,s:O}", "schema", "fp8lab.certificates/1",
                                 "key", c->part[0].cache.key, "forbidden", forbidden,
                                 "certificates", c->list);
    if (!document || json_object_set(c->dir->run, FORBIDDEN, forbidden) != 0 ||
        json_object_set_new(c->dir->run, COUNTS, count_outcomes(c->list, untried)) != 0) {
        json_decref(document);
        return no_memory(e);
    }
    enum status st = run_dir_put(c->dir, DOCUMENT_certificates, document, e);
    json_decref(document);
    return st == OK ? run_dir_save(c->dir, e) : st;
}

static double seconds_of(const json_t *certificate, const char *key) {
    return (double)json_integer_value(json_object_get(certificate, key)) / 1000;
}

/* Adds up where the time of new certificates went, by kind of way, in seconds; *choosing: the part
 * in which the device chose algorithms, of the run's shapes and of the small ones of trials. */
static void add_times(const json_t *fresh, double spent[WAY_SECTION_COUNT], double *choosing) {
    const json_t *one;
    size_t k;
    json_array_foreach(fresh, k, one) {
        *choosing += seconds_of(one, "choosing_ms");
        for (int i = 0; i < WAY_SECTION_COUNT; i++)
            if (!strcmp(json_text(one, "section", ""), way_section_name((enum way_section)i)))
                spent[i] += seconds_of(one, "ms");
    }
}

static enum status judge(struct certifying *c, json_t *forbidden, struct err *e) {
    const json_t *name;
    double seconds = 0, choosing = 0, spent[WAY_SECTION_COUNT] = { 0 };
    int64_t absent = 0, untried = 0, made = 0;
    size_t k;
    json_array_foreach(forbidden, k, name) say_forbidden(c, json_string_value(name));
    for (int i = 0; i < c->parts; i++) {
        const struct making *m = &c->part[i].making;
        TRY(collect(c, m, &absent, e));
        untried += say_untried(c, &c->part[i]);
        made += (int64_t)json_array_size(m->fresh);
        seconds += m->seconds;
        add_times(m->fresh, spent, &choosing);
    }
    say_hosts(c);
    TRY(compare_then(c, forbidden, e));
    TRY(write(c, forbidden, untried, e));
    run_log(c->dir, "certificates: %" PRId64 " ways, %" PRId64 " certificates made now in %.1f s "
            "(GEMM %.1f, casts %.1f, attention %.1f; choosing algorithms took %.1f of it), %zu "
            "ways not used, %" PRId64 " shapes timed; %d of %" PRId64 " devices tried, %" PRId64
            " ways absent, %" PRId64 " not certified", c->ways.count, made, seconds,
            spent[WAY_GEMM], spent[WAY_CAST], spent[WAY_ATTENTION], choosing,
            json_array_size(forbidden), c->timed, c->parts, c->o->devices, absent, untried);
    return OK;
}

/* ---- all --------------------------------------------------------------------------------------*/

/* A child that died handed nothing back: the file and the run then lack what it timed. */
static enum status make_with_offers(struct certifying *c, json_t *forbidden, struct err *e) {
    char problem[CHOICE_PROBLEM_CAP];
    struct err end;
    bool missing = false;
    for (int i = 0; i < c->parts; i++) missing |= certify_missing(&c->part[i].making) > 0;
    if (missing)
        cli_note(c->o->cli, "certifying how this device computes (once for new shapes)");
    if (!c->o->choices) return make_missing(c, forbidden, e);
    TRY(choice_cache_offer(c->o->choices, c->dir->path, problem, e)); /* said when workers start */
    enum status st = make_missing(c, forbidden, e);
    telemetry_close(c->telemetry);
    if (choice_cache_withdraw(c->dir->path, &end) != OK && st == OK)
        return FAIL(e, end.code, "%s", end.text);
    return st;
}

static enum status certify_all(struct certifying *c, json_t *forbidden, struct err *e) {
    unsigned twins = ways_twins(c->o->caps, c->o->facts);
    TRY(ways_of_config(c->o->resolved, (int)c->o->ranks, twins, &c->ways, e));
    if (!c->ways.count) return OK;
    TRY(open_parts(c, e));
    TRY(make_with_offers(c, forbidden, e));
    TRY(keep(c, e));
    TRY(leave_out(c, forbidden, e));
    return judge(c, forbidden, e);
}

enum status certify_run(const struct certify_options *o, struct run_dir *dir, struct err *e) {
    if (!certify_applies(o->backend)) return OK;
    struct certifying *c = calloc(1, sizeof *c);
    json_t *forbidden = json_array();
    if (c) c->list = json_array();
    enum status st = c && c->list && forbidden ? OK : no_memory(e);
    if (c) c->o = o;
    if (c) c->dir = dir;
    if (st == OK) st = certify_all(c, forbidden, e);
    if (c) ways_free(&c->ways);
    if (c) close_parts(c);
    if (c) json_decref(c->list);
    json_decref(forbidden);
    free(c);
    return st;
}
