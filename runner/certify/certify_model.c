#include "runner/certify/certify_model.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/cli.h"
#include "runner/certify/certify_cache.h"
#include "runner/certify/certify_make.h"
#include "runner/certify/forbidden.h"

static enum status no_memory(struct err *e) {
    return FAIL(e, ERR_MEMORY, "no memory for the certificates of a model");
}

static enum status make(struct making *m, const struct cli *cli, struct err *e) {
    if (certify_missing(m))
        cli_note(cli, "certifying how this device computes (once for new shapes)");
    return certify_make(m, e);
}

static void say_untried(const struct making *m, const struct cli *cli) {
    const char *way;
    json_t *why;
    int64_t n = certify_missing(m);
    if (n && m->impossible)
        cli_warn(cli, "%" PRId64 " of %" PRId64 " ways in which this computes are not certified: "
                 "%s", n, m->ways->count, m->why.text);
    if (m->impossible) return;
    json_object_foreach(m->untried, way, why)
        cli_warn(cli, "%s is not certified: %s", way, json_string_value(why));
}

/* ERR_HARDWARE for a way of this model that failed and has no other. */
static enum status check_all(const struct making *m, struct err *e) {
    enum status st = OK;
    for (int64_t i = 0; i < m->ways->count && st == OK; i++) {
        char text[WAY_TEXT_CAP];
        certify_way_text(&m->ways->way[i], text);
        json_t *have = certificates_of(m->list, text);
        const json_t *one;
        size_t k;
        json_array_foreach(have, k, one)
            if (st == OK) st = certify_check(one, e);
        json_decref(have);
    }
    return st;
}

static enum status add_names(json_t *to, const json_t *names, struct err *e) {
    const json_t *name;
    bool failed = false;
    size_t i;
    json_array_foreach(names, i, name)
        if (json_is_string(name)) forbidden_add(to, json_string_value(name), &failed);
    return failed ? no_memory(e) : OK;
}

/* Whatever failed on this device, in any shape. */
static enum status add_failures(json_t *to, const json_t *list, struct err *e) {
    const json_t *one;
    char text[FORBIDDEN_NAME_CAP];
    bool failed = false;
    size_t i;
    json_array_foreach(list, i, one) {
        const char *forbid = json_text(one, "forbid", "");
        if (strcmp(json_text(one, "outcome", ""), "failed") != 0 || !*forbid) continue;
        snprintf(text, sizeof text, "%s %s", json_text(one, "section", ""), forbid);
        forbidden_add(to, text, &failed);
    }
    return failed ? no_memory(e) : OK;
}

/* Where a class of products failed in one shape, a run may still use it in others: a model takes
 * the names of its own ways alone. Without ways it takes all. */
static enum status find_names(const struct certify_model *o, struct making *m, json_t *names,
                              struct err *e) {
    if (!o->ways) return add_failures(names, m->list, e);
    m->base = names;
    TRY(make(m, o->cli, e));
    TRY(check_all(m, e));
    json_t *mine = certify_forbids(m->ways, m->list);
    enum status st = mine ? add_names(names, mine, e) : no_memory(e);
    json_decref(mine);
    return st;
}

static enum status certify_on(const struct certify_model *o, const struct certify_cache *cache,
                              struct making *m, json_t *names, struct err *e) {
    char problem[KEPT_PROBLEM_CAP], text[700];
    const json_t *name;
    size_t i;
    if (!m->fresh || !m->untried || !names) return no_memory(e);
    TRY(certify_cache_read(cache, &m->list, problem, e));
    if (*problem) cli_warn(o->cli, "%s", problem);
    TRY(add_names(names, o->then, e));
    enum status st = find_names(o, m, names, e);
    struct err ignored; /* after a first error */
    enum status kept = certify_cache_add(cache, m->fresh, problem, st == OK ? e : &ignored);
    if (*problem) cli_warn(o->cli, "%s", problem);
    TRY(st);
    TRY(kept);
    json_array_foreach(names, i, name) {
        certify_forbidden_text(m->list, json_string_value(name), text, sizeof text);
        cli_warn(o->cli, "%s", text);
    }
    if (o->ways) say_untried(m, o->cli);
    return OK;
}

enum status certify_model(const struct certify_model *o, char **forbidden, struct err *e) {
    const struct certify_device device = { CERTIFY_BACKEND, NULL, o->device };
    struct certify_cache cache = { .key = NULL };
    struct making m = { .request = { .backend = CERTIFY_BACKEND, .ranks = 1, .device = o->device },
                        .ways = o->ways, .fresh = json_array(), .untried = json_object() };
    json_t *names = json_array();
    enum status st = OK;
    if (certify_applies(o->backend)) {
        st = certify_cache_of_run(&cache, o->cache, o->runs, o->facts, &device, e);
        if (st == OK) st = certify_on(o, &cache, &m, names, e);
    }
    *forbidden = st == OK ? forbidden_text(names) : NULL;
    if (st == OK && !*forbidden) st = no_memory(e);
    json_decref(names);
    json_decref(m.list);
    json_decref(m.fresh);
    json_decref(m.untried);
    certify_cache_close(&cache);
    return st;
}
