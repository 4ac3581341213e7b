#include "runner/advise/certified.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/certify/certify_cache.h"

const char *certified_name(enum certified_finding finding) {
    static const char *const NAMES[] = { "not needed", "not tried", "certified", "failed" };
    return NAMES[finding];
}

/* The certificates of one way: two if it failed and another one was tried. */
static bool take(const json_t *all, const char *way, struct certified *out) {
    const json_t *one;
    size_t i;
    bool tried = false;
    json_array_foreach(all, i, one) {
        const char *outcome = json_text(one, "outcome", "");
        bool failed = !strcmp(outcome, "failed");
        tried = tried || failed || !strcmp(outcome, "passed");
        if (!failed || *out->way) continue;
        snprintf(out->way, sizeof out->way, "%s", way);
        snprintf(out->fault, sizeof out->fault, "%.31s", json_text(one, "fault", "?"));
    }
    return tried;
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
    return OK;
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
