#include "runner/hardware.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/query.h"

static const char *query_text(const json_t *config) {
    return json_string_value(json_object_get(json_object_get(config, "hardware"), "query"));
}

static bool names_count(const json_t *mismatch) {
    size_t i;
    json_t *term;
    json_array_foreach(mismatch, i, term)
        if (!strcmp(json_string_value(json_object_get(term, "fact")), "gpu.count")) return true;
    return false;
}

/* Adds the term that the query leaves unsaid: as many GPUs as the experiment uses. */
static enum status match_count(const json_t *config, const json_t *facts, json_t **mismatch,
                               struct err *e) {
    const json_t *hardware = json_object_get(config, "hardware");
    int64_t wanted = json_integer_value(json_object_get(hardware, "gpus"));
    int64_t found = json_integer_value(json_object_get(facts, "gpu.count"));
    if (found >= wanted || names_count(*mismatch)) return OK;
    json_t *list = *mismatch ? *mismatch : json_array();
    json_t *term = json_pack("{s:s,s:o,s:o}", "fact", "gpu.count", "wanted",
                             json_sprintf(">= %" PRId64, wanted), "found",
                             json_sprintf("%" PRId64, found));
    *mismatch = list;
    if (!term || json_array_append_new(list, term) != 0)
        return FAIL(e, ERR_MEMORY, "explaining a hardware query");
    return OK;
}

enum status hardware_match(const json_t *config, const json_t *facts, json_t **mismatch,
                           struct err *e) {
    *mismatch = NULL;
    const char *text = query_text(config);
    struct query *query = NULL;
    if (!text) return OK;
    TRY(query_parse(text, &query, e));
    enum status st = query_match(query, facts, mismatch, e);
    query_free(query);
    if (st == OK) st = match_count(config, facts, mismatch, e);
    if (st != OK) {
        json_decref(*mismatch);
        *mismatch = NULL;
    }
    return st;
}

char *hardware_mismatch_text(const json_t *config, const json_t *mismatch) {
    char *terms = query_mismatch_text(mismatch), *text = NULL;
    const char *query = query_text(config);
    int n = asprintf(&text, "  hardware = %s\n%s", query ? query : "", terms ? terms : "");
    if (n < 0) text = NULL;
    free(terms);
    return text;
}
