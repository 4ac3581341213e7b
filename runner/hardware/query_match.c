/* Evaluation, and the explanation of a mismatch term by term. */
#include <fnmatch.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/bytes_text.h"
#include "runner/base/plain_text.h"
#include "runner/base/text_stream.h"
#include "runner/hardware/query_tree.h"

/* Three-valued (Kleene): UNKNOWN is a fact this machine does not have. The order makes "and" a
 * minimum and "or" a maximum. */
enum truth { TRUTH_FALSE, TRUTH_UNKNOWN, TRUTH_TRUE };

static enum truth truth_of(bool value) { return value ? TRUTH_TRUE : TRUTH_FALSE; }

/* -1, 0, 1: dotted numbers part by part; a missing part counts as 0, so 13 equals 13.0. A suffix
 * that is not a number ("6.1.0-18-amd64") ends the comparison. */
static int compare_versions(const char *a, const char *b) {
    while (*a || *b) {
        char *a_end, *b_end;
        unsigned long long x = strtoull(a, &a_end, 10), y = strtoull(b, &b_end, 10);
        if (x != y) return x < y ? -1 : 1;
        a = *a_end == '.' ? a_end + 1 : "";
        b = *b_end == '.' ? b_end + 1 : "";
    }
    return 0;
}

static enum truth holds(enum query_op op, int order) {
    switch (op) {
    case QUERY_EQ: return truth_of(order == 0);
    case QUERY_NE: return truth_of(order != 0);
    case QUERY_LT: return truth_of(order < 0);
    case QUERY_LE: return truth_of(order <= 0);
    case QUERY_GT: return truth_of(order > 0);
    case QUERY_GE: return truth_of(order >= 0);
    case QUERY_GLOB: break;
    }
    return TRUTH_FALSE;
}

static enum truth term_truth(const struct query_node *term, const json_t *found) {
    switch (term->fact->kind) {
    case FACT_STRING:
    case FACT_VERSION:
        if (!json_is_string(found)) return TRUTH_UNKNOWN;
        if (term->op == QUERY_GLOB)
            return truth_of(fnmatch(term->text, json_string_value(found), 0) == 0);
        return holds(term->op, term->fact->kind == FACT_VERSION
                                   ? compare_versions(json_string_value(found), term->text)
                                   : strcmp(json_string_value(found), term->text));
    case FACT_NUMBER:
    case FACT_COUNT:
    case FACT_BYTES: {
        if (!json_is_number(found)) return TRUTH_UNKNOWN;
        double value = json_number_value(found);
        return holds(term->op, (value > term->number) - (value < term->number));
    }
    case FACT_BOOL:
        if (!json_is_boolean(found)) return TRUTH_UNKNOWN;
        return holds(term->op, (double)json_is_true(found) != term->number);
    }
    return TRUTH_UNKNOWN;
}

static enum truth node_truth(const struct query_node *node, const json_t *facts) {
    if (node->kind == QUERY_TERM) return term_truth(node, json_object_get(facts, node->fact->name));
    enum truth left = node_truth(node->left, facts);
    if (node->kind == QUERY_NOT) return (enum truth)(TRUTH_TRUE - left);
    enum truth right = node_truth(node->right, facts);
    bool take_left = node->kind == QUERY_AND ? left <= right : left >= right;
    return take_left ? left : right;
}

/* ---- explanation ------------------------------------------------------------------------------*/

static void format_found(const struct query_node *term, const json_t *facts, char *out,
                         size_t size) {
    const json_t *found = json_object_get(facts, term->fact->name);
    char bytes[BYTES_TEXT_CAP];
    bool gpu_less = json_number_value(json_object_get(facts, "gpu.count")) == 0;
    if (json_is_string(found)) snprintf(out, size, "\"%s\"", json_string_value(found));
    else if (json_is_boolean(found))
        snprintf(out, size, "%s", json_is_true(found) ? "true" : "false");
    else if (json_is_number(found) && term->fact->kind == FACT_BYTES)
        snprintf(out, size, "%s", bytes_query_text(json_number_value(found), bytes));
    else if (json_is_number(found)) snprintf(out, size, "%.10g", json_number_value(found));
    else if (gpu_less && !strncmp(term->fact->name, "gpu.", 4))
        snprintf(out, size, "nothing: no NVIDIA GPU");
    else snprintf(out, size, "nothing: not known on this machine");
}

static void format_wanted(const struct query_node *term, bool negated, char *out, size_t size) {
    bool quoted = term->fact->kind == FACT_STRING || term->op == QUERY_GLOB;
    snprintf(out, size, "%s%s %s%s%s", negated ? "not " : "", query_op_text(term->op),
             quoted ? "\"" : "", term->text, quoted ? "\"" : "");
}

/* True for "NVIDIA GH200 480GB" against "H200" or "NVIDIA H200", which are not equal. */
static bool shares_last_word(const char *found, const char *wanted) {
    const char *space = strrchr(wanted, ' ');
    return strstr(found, space ? space + 1 : wanted) != NULL;
}

static enum status add_term(const struct query_node *term, bool negated, const json_t *facts,
                            json_t *list, struct err *e) {
    char wanted[640], found[640];
    format_wanted(term, negated, wanted, sizeof wanted);
    format_found(term, facts, found, sizeof found);
    json_t *object = json_pack("{s:s,s:s,s:s}", "fact", term->fact->name, "wanted", wanted, "found",
                               found);
    const char *have = json_string_value(json_object_get(facts, term->fact->name));
    bool failed = false;
    bool near = !negated && term->fact->kind == FACT_STRING && term->op == QUERY_EQ && have &&
                shares_last_word(have, term->text);
    if (near) {
        char hint[768];
        snprintf(hint, sizeof hint, "equality is exact; write ~ \"%s\" to accept this one", have);
        json_put(object, "hint", json_string(hint), &failed);
    }
    json_append(list, object, &failed);
    return failed ? FAIL(e, ERR_MEMORY, "explaining a hardware query") : OK;
}

/* Collects the terms that prevent `node` from being true (or, if negated, from being false). */
static enum status explain(const struct query_node *node, bool negated, const json_t *facts,
                           json_t *list, struct err *e) {
    enum truth truth = node_truth(node, facts);
    if (truth == (negated ? TRUTH_FALSE : TRUTH_TRUE)) return OK;
    if (node->kind == QUERY_TERM) return add_term(node, negated, facts, list, e);
    if (node->kind == QUERY_NOT) return explain(node->left, !negated, facts, list, e);
    TRY(explain(node->left, negated, facts, list, e));
    return explain(node->right, negated, facts, list, e);
}

enum status query_match(const struct query *query, const json_t *facts, json_t **mismatch,
                        struct err *e) {
    *mismatch = NULL;
    if (node_truth(query->root, facts) == TRUTH_TRUE) return OK;
    json_t *list = json_array();
    if (!list) return FAIL(e, ERR_MEMORY, "explaining a hardware query");
    enum status st = explain(query->root, false, facts, list, e);
    if (st != OK) {
        json_decref(list);
        return st;
    }
    *mismatch = list;
    return OK;
}

static const char *field(const json_t *term, const char *name) {
    const char *text = json_string_value(json_object_get(term, name));
    return text ? text : "";
}

char *query_mismatch_text(const json_t *mismatch) {
    struct text text = { 0 };
    FILE *out = text_stream_open(&text);
    if (!out) return NULL;
    size_t i;
    json_t *term;
    json_array_foreach(mismatch, i, term) {
        fprintf(out, "  %-18s wanted %s, found %s\n", field(term, "fact"),
                PLAIN(field(term, "wanted")), PLAIN(field(term, "found")));
        if (json_object_get(term, "hint"))
            fprintf(out, "  %-18s (%s)\n", "", PLAIN(field(term, "hint")));
    }
    text_add(&text, "", 0); /* allocates even an empty text */
    if (!text_stream_close(out, &text)) {
        text_free(&text);
        return NULL;
    }
    return text.bytes;
}
