/* slurm.json: which kinds of nodes a cluster has, so that an experiment's hardware query becomes
 * the scheduler's constraint. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/canonical.h"
#include "runner/hardware/facts.h"
#include "runner/hardware/query.h"
#include "runner/launch/launch.h"

static const char SCHEMA[] = "fp8lab.slurm/1";

/* The configurations whose queries a node has to match. */
struct asked {
    const json_t *const *configs;
    int64_t count;
};

/* The user's own file; false where there is none. */
static bool default_file(char out[PATH_CAP]) {
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int n = -1;
    if (config && *config) n = snprintf(out, PATH_CAP, "%s/fp8lab/slurm.json", config);
    else if (home && *home) n = snprintf(out, PATH_CAP, "%s/.config/fp8lab/slurm.json", home);
    return n > 0 && n < PATH_CAP && path_exists(out);
}

/* A feature's name, which becomes part of one word for srun. */
static bool is_feature(const char *text) {
    static const char PLAIN[] = "abcdefghijklmnopqrstuvwxyz" "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789" "_.-&";
    return *text && text[strspn(text, PLAIN)] == '\0';
}

static enum status read_flags(const json_t *file, const char *path, struct words *out,
                              struct err *e) {
    const json_t *list = json_object_get(file, "flags"), *item;
    size_t i;
    if (list && !json_is_array(list)) return FAIL(e, ERR_CONFIG, "%s: flags is no list", path);
    json_array_foreach(list, i, item) {
        const char *text = json_string_value(item);
        if (!text || strncmp(text, "--", 2) != 0)
            return FAIL(e, ERR_CONFIG, "%s: flags, entry %zu: a long flag of srun was expected, "
                        "as \"--account=me\"", path, i + 1);
        words_add(out, text);
    }
    return out->failed ? FAIL(e, ERR_MEMORY, "%s", path) : OK;
}

/* The facts of one kind of node: in the file, or in a fact file that lies beside it. */
static enum status node_facts(const json_t *node, const char *path, size_t at, json_t **out,
                              struct err *e) {
    const json_t *facts = json_object_get(node, "facts");
    char folder[PATH_CAP], file[PATH_CAP];
    if (json_is_string(facts)) {
        path_parent(folder, path);
        const char *name = json_string_value(facts);
        if (name[0] == '/') return facts_load(name, out, e);
        TRY(path_join(file, folder, name, e));
        return facts_load(file, out, e);
    }
    if (!json_is_object(facts))
        return FAIL(e, ERR_CONFIG, "%s: nodes, entry %zu: facts is neither an object of facts nor "
                    "the name of a fact file (fp8lab hw --json)", path, at + 1);
    *out = json_deep_copy(facts);
    enum status st = *out ? facts_complete(*out, path, e) : FAIL(e, ERR_MEMORY, "%s", path);
    if (st == OK) return OK;
    json_decref(*out);
    *out = NULL;
    return st;
}

/* Whether the query of every row matches; if not, why is added to `text`. */
static enum status node_matches(const json_t *facts, const char *feature,
                                const struct asked *asked, bool *matches, struct text *text,
                                struct err *e) {
    *matches = true;
    for (int64_t i = 0; *matches && i < asked->count; i++) {
        const json_t *hardware = json_object_get(asked->configs[i], "hardware");
        const char *query_text = json_text(hardware, "query", NULL);
        struct query *query = NULL;
        json_t *mismatch = NULL;
        if (!query_text) continue;
        TRY(query_parse(query_text, &query, e));
        enum status st = query_match(query, facts, &mismatch, e);
        query_free(query);
        TRY(st);
        *matches = mismatch == NULL;
        char *why = mismatch ? query_mismatch_text(mismatch) : NULL;
        if (mismatch) {
            text_puts(text, "  ");
            text_puts(text, feature);
            text_puts(text, ":\n");
            text_puts(text, why ? why : "");
        }
        free(why);
        json_decref(mismatch);
    }
    return OK;
}

static enum status read_nodes(const json_t *file, const char *path, const struct asked *asked,
                              struct text *features, struct text *why, struct err *e) {
    const json_t *nodes = json_object_get(file, "nodes"), *node;
    size_t i;
    if (nodes && !json_is_array(nodes)) return FAIL(e, ERR_CONFIG, "%s: nodes is no list", path);
    json_array_foreach(nodes, i, node) {
        const char *feature = json_text(node, "constraint", "");
        json_t *facts = NULL;
        bool matches = false;
        if (!is_feature(feature))
            return FAIL(e, ERR_CONFIG, "%s: nodes, entry %zu: constraint is no name of a feature "
                        "(letters, digits, _ . - and &)", path, i + 1);
        TRY(node_facts(node, path, i, &facts, e));
        enum status st = node_matches(facts, feature, asked, &matches, why, e);
        json_decref(facts);
        TRY(st);
        if (!matches) continue;
        text_puts(features, features->size ? "|" : "");
        text_puts(features, feature);
    }
    return features->failed || why->failed ? FAIL(e, ERR_MEMORY, "%s", path) : OK;
}

static bool any_query(const struct asked *asked) {
    for (int64_t i = 0; i < asked->count; i++)
        if (json_text(json_object_get(asked->configs[i], "hardware"), "query", NULL)) return true;
    return false;
}

enum status launch_slurm_read(const char *file, const json_t *const *configs, int64_t count,
                              struct launch_slurm *out, char **explanation, struct err *e) {
    struct asked asked = { configs, count };
    char found[PATH_CAP];
    const char *path = file ? file : found;
    json_t *json = NULL;
    struct text features = { 0 }, why = { 0 };
    *out = (struct launch_slurm){ 0 };
    *explanation = NULL;
    if (!file && !default_file(found)) return OK;
    TRY(json_file_read(path, &json, e));
    enum status st = OK;
    if (strcmp(json_text(json, "schema", ""), SCHEMA) != 0)
        st = FAIL(e, ERR_CONFIG, "%s: \"schema\" is not \"%s\"", path, SCHEMA);
    if (st == OK) st = read_flags(json, path, &out->flags, e);
    bool choose = any_query(&asked) && json_array_size(json_object_get(json, "nodes")) > 0;
    if (st == OK && choose) st = read_nodes(json, path, &asked, &features, &why, e);
    json_decref(json);
    if (st == OK && features.bytes) {
        out->constraint = features.bytes; /* moved */
        features.bytes = NULL;
    } else if (st == OK && choose) {
        *explanation = why.bytes; /* moved */
        why.bytes = NULL;
    }
    text_free(&features);
    text_free(&why);
    if (st != OK) launch_slurm_free(out);
    return st;
}

void launch_slurm_free(struct launch_slurm *s) {
    free(s->constraint);
    words_free(&s->flags);
    *s = (struct launch_slurm){ 0 };
}
