#include "runner/hardware/hardware.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/plain_text.h"
#include "runner/hardware/query.h"

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

static int64_t gpus_wanted(const json_t *config) {
    return json_integer_value(json_object_get(json_object_get(config, "hardware"), "gpus"));
}

static enum status add_term(json_t **mismatch, const char *fact, int64_t wanted, json_t *found,
                            struct err *e) {
    if (!*mismatch) *mismatch = json_array();
    json_t *term = json_pack("{s:s,s:o,s:o}", "fact", fact, "wanted",
                             json_sprintf(">= %" PRId64, wanted), "found", found);
    if (!term || json_array_append_new(*mismatch, term) != 0)
        return FAIL(e, ERR_MEMORY, "explaining a hardware query");
    return OK;
}

/* Adds the implied term of the query: as many GPUs as the experiment uses. */
static enum status match_count(const json_t *config, const json_t *facts, json_t **mismatch,
                               struct err *e) {
    int64_t wanted = gpus_wanted(config);
    int64_t found = json_integer_value(json_object_get(facts, "gpu.count"));
    if (found >= wanted || names_count(*mismatch)) return OK;
    return add_term(mismatch, "gpu.count", wanted, json_sprintf("%" PRId64, found), e);
}

/* A run on one GPU must not pass for a run on the eight GPUs of its experiment. */
static enum status match_ranks(const json_t *config, json_t **mismatch, struct err *e) {
    if (gpus_wanted(config) <= RANKS_MAX) return OK;
    return add_term(mismatch, "GPUs used", gpus_wanted(config),
                    json_sprintf("%d: no run has more", RANKS_MAX), e);
}

enum status hardware_match(const json_t *config, const json_t *facts, json_t **mismatch,
                           struct err *e) {
    *mismatch = NULL;
    const char *text = query_text(config);
    struct query *query = NULL;
    enum status st = OK;
    if (text) {
        TRY(query_parse(text, &query, e));
        st = query_match(query, facts, mismatch, e);
        query_free(query);
        if (st == OK) st = match_count(config, facts, mismatch, e);
    }
    if (st == OK) st = match_ranks(config, mismatch, e);
    if (st != OK) {
        json_decref(*mismatch);
        *mismatch = NULL;
    }
    return st;
}

enum status hardware_match_backend(const json_t *config, const json_t *facts, const char *why,
                                   json_t **mismatch, struct err *e) {
    if (!why || !query_text(config) || !json_integer_value(json_object_get(facts, "gpu.count")))
        return OK;
    if (!*mismatch) *mismatch = json_array();
    json_t *term = json_pack("{s:s,s:s,s:o}", "fact", "backend", "wanted", "cuda", "found",
                             json_sprintf("cpu: %s", why));
    if (!term || json_array_append_new(*mismatch, term) != 0)
        return FAIL(e, ERR_MEMORY, "explaining a hardware query");
    return OK;
}

char *hardware_mismatch_text(const json_t *config, const json_t *mismatch) {
    char *terms = query_mismatch_text(mismatch), *text = NULL;
    const char *query = query_text(config);
    int64_t gpus = gpus_wanted(config);
    char count[48] = "";
    if (gpus > 1) snprintf(count, sizeof count, ", on %" PRId64 " GPUs", gpus);
    int n = asprintf(&text, "  hardware = %s%s\n%s", query ? PLAIN(query) : "any", count,
                     terms ? terms : "");
    if (n < 0) text = NULL;
    free(terms);
    return text;
}
