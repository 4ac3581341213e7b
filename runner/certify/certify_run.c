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
#include "runner/certify/certify_child.h"
#include "runner/hardware/gpu_watch.h"
#include "runner/hardware/telemetry.h"
#include "runner/plan/backends.h"
#include "runner/record/choice_cache.h"
#include "runner/record/documents.h"
#include "runner/record/run_dir.h"
#include "runner/record/run_log.h"

/* A child that takes longer hangs. A way alone is done sooner. */
enum { SECONDS_ALL = 300, SECONDS_ONE = 60 };

/* The backend of a device, also where the user said "auto". */
static const char FORBIDDEN[] = "forbidden", DEVICE_BACKEND[] = "cuda";

struct certifying {
    const struct certify_options *o;
    struct run_dir *dir;
    struct ways ways;
    struct certify_cache cache;
    json_t *kept, *list; /* of the cache; of this run */
    json_t *fresh;       /* made now */
    char config[PATH_CAP];
    double seconds;      /* that the child took */
    int64_t timed;       /* shapes whose algorithms it timed */
    struct telemetry *telemetry; /* owned; NULL: no GPU is seen */
    struct gpu_watch watch;
};

static enum status no_memory(struct err *e) {
    return FAIL(e, ERR_MEMORY, "no memory for the certificates of a run");
}

static bool is_on_device(const char *backend) {
    return strcmp(backend, "cpu") != 0 &&
           (!strcmp(backend, "cuda") || !backend_without_gpu(backend));
}

char *forbidden_text(const json_t *forbidden) {
    size_t i, bytes = 0;
    const json_t *way;
    char *text = NULL;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return NULL;
    json_array_foreach(forbidden, i, way)
        fprintf(out, "%s%s", i ? "; " : "", json_string_value(way));
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}

/* ---- making them ------------------------------------------------------------------------------*/

static enum status append_all(json_t *to, const json_t *from, struct err *e) {
    return from && json_array_extend(to, (json_t *)from) == 0 ? OK : no_memory(e);
}

static int64_t find_missing(const struct certifying *c, int64_t from) {
    char text[WAY_TEXT_CAP];
    for (int64_t i = from; i < c->ways.count; i++) {
        certify_way_text(&c->ways.way[i], text);
        json_t *have = certificates_of(c->kept, text);
        bool missing = json_array_size(have) == 0;
        json_decref(have);
        if (missing) return i;
    }
    return -1;
}

/* The certificate of a way whose trial crashed or hung the child. */
static enum status put_crash(struct certifying *c, int64_t i, const struct err *why,
                             struct err *e) {
    char way[WAY_TEXT_CAP], name[FORBIDDEN_WAY_CAP] = "";
    const struct certify_way *w = &c->ways.way[i];
    certify_way_text(w, way);
    struct tensor a = { .dtype = w->a, .scale.kind = w->scale_a };
    struct tensor b = { .dtype = w->b, .scale.kind = w->scale_b };
    struct matmul_args args = { .a = &a, .b = &b };
    if (w->section == WAY_GEMM && dtype_is_fp8(w->a)) gemm_way_name(&args, name);
    static const char *const SECTIONS[] = { "gemm", "cast", "attention" };
    json_t *one = json_pack("{s:s,s:s,s:s,s:s,s:s,s:s?,s:[]}", "way", way, "section",
                            SECTIONS[w->section], "outcome", "failed", "fault", "crash", "found",
                            why->text, "forbid", *name ? name : NULL, "agreed");
    bool failed = false;
    json_append(c->fresh, one, &failed);
    return failed ? no_memory(e) : OK;
}

static enum status take_answer(struct certifying *c, const json_t *answer, struct err *e) {
    const json_t *one;
    bool failed = false;
    size_t i;
    c->seconds += json_number_value(json_object_get(answer, "seconds"));
    json_array_foreach(json_object_get(answer, "certificates"), i, one) {
        json_t *have = certificates_of(c->kept, json_text(one, "way", ""));
        if (!json_array_size(have)) json_append(c->fresh, json_incref((json_t *)one), &failed);
        json_decref(have);
    }
    return failed ? no_memory(e) : OK;
}

static void tick(void *context) {
    struct certifying *c = context;
    gpu_watch_sample(&c->watch, c->telemetry);
}

static void say_problem(const struct certifying *c, const char *problem) {
    if (!*problem) return;
    cli_warn(c->o->cli, "%s", problem);
    run_log(c->dir, "%s", problem);
}

/* What the child timed serves this run and later ones, unless its GPU was disturbed: then the run
 * times its own, as without memory for a table. */
static void take_choices(struct certifying *c, const json_t *answer) {
    char why[256], problem[CHOICE_PROBLEM_CAP] = "";
    const char *timed = json_text(answer, "choices", "");
    struct err e;
    if (!c->o->choices || !*timed) return;
    tick(c);
    c->timed += choices_count(timed);
    if (gpu_watch_disturbed(&c->watch, why, sizeof why))
        run_log(c->dir, "the algorithms that the certificates timed are not used: while GPU %"
                PRId64 " was certified, %s", c->watch.device, why);
    else if (choice_cache_add(c->o->choices, json_text(answer, "architecture", ""), timed, true,
                              problem, &e) != OK)
        run_log(c->dir, "the algorithms that the certificates timed are not used: %s", e.text);
    say_problem(c, problem);
}

/* Asks for one way, or all from the first missing one on (count 0). *crashed: the child died. */
static enum status ask(struct certifying *c, int64_t first, int64_t count, bool *crashed,
                       struct err *e) {
    json_t *answer = NULL;
    struct certify_request r = {
        .backend = DEVICE_BACKEND, .caps = c->o->caps, .config = c->config, .ranks = c->o->ranks,
        .device = c->o->device, .first = first, .count = count,
        .seconds = count ? SECONDS_ONE : SECONDS_ALL,
        .offers = c->o->choices ? c->dir->path : NULL, .tick = tick, .context = c,
    };
    TRY(certify_ask(&r, &answer, crashed, e));
    enum status st = take_answer(c, answer, e);
    if (st == OK) take_choices(c, answer);
    json_decref(answer);
    return st;
}

/* Certifies what is missing. *possible false: there is no device, which the worker will say. */
static enum status make_missing(struct certifying *c, bool *possible, struct err *e) {
    int64_t first = find_missing(c, 0);
    bool crashed;
    struct err why;
    *possible = true;
    if (first < 0) return OK;
    cli_note(c->o->cli, "certifying how this device computes (once for new shapes)");
    enum status st = ask(c, first, 0, &crashed, &why);
    *possible = st == OK || crashed;
    if (!*possible) run_log(c->dir, "no certificates were made: %s", why.text);
    for (int64_t i = first; crashed && i >= 0; i = find_missing(c, i + 1)) {
        bool again;
        st = ask(c, i, 1, &again, &why);
        if (st == OK) continue;
        TRY(put_crash(c, i, &why, e));
    }
    return OK;
}

/* ---- what they say ----------------------------------------------------------------------------*/

static bool has_text(const json_t *array, const char *text) {
    const json_t *one;
    size_t i;
    json_array_foreach(array, i, one)
        if (!strcmp(json_string_value(one), text)) return true;
    return false;
}

/* Says that a way is not used. ERR_HARDWARE if it has no other. */
static enum status refuse(struct certifying *c, const json_t *one, json_t *forbidden,
                          struct err *e) {
    char name[96], text[700];
    const char *forbid = json_text(one, "forbid", "");
    const char *way = json_text(one, "way", "?"), *fault = json_text(one, "fault", "?");
    if (!*forbid)
        return FAIL(e, ERR_HARDWARE, "%s computes wrong results here, and there is no other way: "
                    "%s: %s; `fp8lab doctor --report FILE` writes what to report", way, fault,
                    json_text(one, "found", ""));
    snprintf(name, sizeof name, "%s %s", json_text(one, "section", ""), forbid);
    if (has_text(forbidden, name)) return OK;
    snprintf(text, sizeof text, "%s is not used on this device, and another way is: %s: %s: %s",
             name, way, fault, json_text(one, "found", ""));
    cli_warn(c->o->cli, "%s", text);
    run_log(c->dir, "%s", text);
    return json_array_append_new(forbidden, json_string(name)) == 0 ? OK : no_memory(e);
}

/* The run's certificates, in the order of its ways, and what they forbid. */
static enum status collect(struct certifying *c, json_t *forbidden, struct err *e) {
    char text[WAY_TEXT_CAP];
    for (int64_t i = 0; i < c->ways.count; i++) {
        certify_way_text(&c->ways.way[i], text);
        json_t *all = certificates_of(c->kept, text), *one;
        size_t k;
        enum status st = append_all(c->list, all, e);
        json_array_foreach(all, k, one)
            if (st == OK && !strcmp(json_text(one, "outcome", ""), "failed"))
                st = refuse(c, one, forbidden, e);
        json_decref(all);
        TRY(st);
    }
    return OK;
}

/* A run that is resumed or repeated computes as it did then, or not at all. */
static enum status compare_then(const struct certifying *c, const json_t *forbidden,
                                struct err *e) {
    const json_t *then = c->o->then ? c->o->then : json_object_get(c->dir->run, FORBIDDEN), *one;
    size_t i;
    if (!c->o->then && !c->o->resumed) return OK;
    json_array_foreach(forbidden, i, one)
        if (!has_text(then, json_string_value(one)))
            return FAIL(e, ERR_HARDWARE, "this device fails in %s, which the run used: its results "
                        "would differ; start a new run, or use the device and libraries of then",
                        json_string_value(one));
    json_array_foreach(then, i, one)
        if (!has_text(forbidden, json_string_value(one)))
            return FAIL(e, ERR_HARDWARE, "the run did not use %s, which failed then and passes "
                        "here: its results would differ; start a new run, or use the device and "
                        "libraries of then", json_string_value(one));
    return OK;
}

static enum status write(struct certifying *c, json_t *forbidden, struct err *e) {
    json_t *document = json_pack("{s:s,s:O,s:O,s:O}", "schema", "fp8lab.certificates/1",
                                 "key", c->cache.key, "forbidden", forbidden, "certificates",
                                 c->list);
    if (!document || json_object_set(c->dir->run, FORBIDDEN, forbidden) != 0) {
        json_decref(document);
        return no_memory(e);
    }
    enum status st = run_dir_put(c->dir, DOCUMENT_certificates, document, e);
    json_decref(document);
    return st == OK ? run_dir_save(c->dir, e) : st;
}

static enum status judge(struct certifying *c, struct err *e) {
    json_t *forbidden = json_array();
    if (!forbidden) return no_memory(e);
    enum status st = collect(c, forbidden, e);
    if (st == OK) st = compare_then(c, forbidden, e);
    if (st == OK) st = write(c, forbidden, e);
    if (st == OK)
        run_log(c->dir, "certificates: %" PRId64 " ways, %zu certificates made now in %.1f s, %zu "
                "ways not used, %" PRId64 " shapes timed", c->ways.count,
                json_array_size(c->fresh), c->seconds, json_array_size(forbidden), c->timed);
    json_decref(forbidden);
    return st;
}

/* ---- all --------------------------------------------------------------------------------------*/

static enum status open_cache(struct certifying *c, struct err *e) {
    const struct certify_options *o = c->o;
    char problem[KEPT_PROBLEM_CAP];
    TRY(certify_cache_of_run(&c->cache, o->cache, o->runs, o->facts, DEVICE_BACKEND, o->caps, e));
    TRY(certify_cache_read(&c->cache, &c->kept, problem, e));
    say_problem(c, problem);
    return OK;
}

/* A child that died handed nothing back: the file and the run then lack what it timed. */
static enum status make_with_offers(struct certifying *c, bool *possible, struct err *e) {
    char problem[CHOICE_PROBLEM_CAP];
    struct err end;
    if (!c->o->choices) return make_missing(c, possible, e);
    TRY(choice_cache_offer(c->o->choices, c->dir->path, problem, e)); /* said when workers start */
    c->telemetry = telemetry_open();
    enum status st = make_missing(c, possible, e);
    telemetry_close(c->telemetry);
    if (choice_cache_withdraw(c->dir->path, &end) != OK && st == OK)
        return FAIL(e, end.code, "%s", end.text);
    return st;
}

static enum status certify_all(struct certifying *c, struct err *e) {
    char problem[KEPT_PROBLEM_CAP];
    bool possible;
    TRY(path_join(c->config, c->dir->path, DOCUMENT_resolved, e));
    TRY(ways_of_config(c->o->resolved, (int)c->o->ranks, &c->ways, e));
    if (!c->ways.count) return OK;
    TRY(open_cache(c, e));
    c->list = json_array();
    c->fresh = json_array();
    if (!c->list || !c->fresh) return no_memory(e);
    TRY(make_with_offers(c, &possible, e));
    if (!possible) return OK;
    TRY(certify_cache_add(&c->cache, c->fresh, problem, e));
    say_problem(c, problem);
    TRY(append_all(c->kept, c->fresh, e));
    return judge(c, e);
}

enum status certify_run(const struct certify_options *o, struct run_dir *dir, struct err *e) {
    struct certifying c = { .o = o, .dir = dir, .watch.device = o->device };
    if (!is_on_device(o->backend)) return OK;
    enum status st = certify_all(&c, e);
    ways_free(&c.ways);
    certify_cache_close(&c.cache);
    json_decref(c.kept);
    json_decref(c.list);
    json_decref(c.fresh);
    return st;
}
