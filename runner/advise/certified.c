#include "runner/advise/certified.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/certify/certify_cache.h"
#include "runner/certify/certify_make.h"

const char *certified_name(enum certified_finding finding) {
    static const char *const NAMES[] = { "not needed", "not tried", "certified", "failed" };
    return NAMES[finding];
}

/* The certificates of one way: two if it failed and another one was tried. Of failures, the first
 * that ends a run counts, else the first. */
static bool take(const json_t *all, const char *way, struct certified *out) {
    const json_t *one;
    size_t i;
    bool tried = false;
    json_array_foreach(all, i, one) {
        const char *outcome = json_text(one, "outcome", "");
        bool failed = !strcmp(outcome, "failed");
        tried = tried || failed || !strcmp(outcome, "passed");
        bool ends = failed && !*json_text(one, "forbid", "");
        if (!failed || out->ends || (*out->way && !ends)) continue;
        out->ends = ends;
        snprintf(out->way, sizeof out->way, "%s", way);
        snprintf(out->fault, sizeof out->fault, "%.31s", json_text(one, "fault", "?"));
    }
    return tried;
}

static void say_widened(const json_t *list, const char *name, struct certified *out) {
    const json_t *one = certify_failure(list, name);
    snprintf(out->widens, sizeof out->widens, "%s failed its certificate: %.31s", name,
             json_text(one, "fault", "?"));
}

/* The products that a run does not compute natively: it forbids kinds of them, as `list` says. */
static enum status find_widened(const struct ways *ways, const json_t *list,
                                struct certified *out, struct err *e) {
    json_t *names = certify_forbids(ways, list), *name;
    if (!names) return FAIL(e, ERR_MEMORY, "no memory for what certificates forbid");
    for (int64_t i = 0; i < ways->count; i++) {
        const struct certify_way *w = &ways->way[i];
        size_t k;
        if (w->section != WAY_GEMM || !dtype_is_fp8(w->a)) continue;
        out->products++;
        json_array_foreach(names, k, name) {
            if (!way_may_use(w, json_string_value(name))) continue;
            out->widened++;
            if (!*out->widens) say_widened(list, json_string_value(name), out);
        }
    }
    json_decref(names);
    return OK;
}

enum status certified_judge(const struct ways *ways, const json_t *list, struct certified *out,
                            struct err *e) {
    *out = (struct certified){ .ways = ways->count };
    for (int64_t i = 0; i < ways->count; i++) {
        char text[WAY_TEXT_CAP];
        certify_way_text(&ways->way[i], text);
        json_t *all = certificates_of(list, text);
        if (!all) return FAIL(e, ERR_MEMORY, "no memory for the certificates of a recipe");
        out->tried += take(all, text, out);
        json_decref(all);
    }
    out->finding = *out->way ? CERTIFIED_FAILED
                   : out->tried < out->ways || !out->ways ? CERTIFIED_UNTRIED : CERTIFIED_ALL;
    return find_widened(ways, list, out, e);
}

enum status certified_find(const json_t *config, int ranks, unsigned twins,
                           const json_t *list, struct certified *out, struct err *e) {
    struct ways ways;
    struct err why;
    enum status st = ways_of_config(config, ranks, twins, &ways, &why);
    *out = (struct certified){ .finding = CERTIFIED_UNTRIED };
    if (st == ERR_MEMORY) return FAIL(e, st, "%s", why.text);
    if (st != OK) return OK;
    st = certified_judge(&ways, list, out, e);
    ways_free(&ways);
    return st;
}
