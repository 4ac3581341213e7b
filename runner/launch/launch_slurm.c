/* slurm.json: the kinds of nodes of a cluster. They translate an experiment's hardware query into
 * the scheduler's constraint. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/canonical.h"
#include "runner/hardware/facts.h"
#include "runner/hardware/query.h"
#include "runner/launch/launch.h"

static const char SCHEMA[] = "fp8lab.slurm/1";

/* The configurations whose queries a node must match. */
struct requirements {
    const json_t *const *configs;
    int64_t count;
    int64_t gpus; /* largest number of GPUs of a configuration; 0: none are requested */
};

/* The user's own file; false if there is none. */
static bool default_file(char out[PATH_CAP]) {
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int n = -1;
    if (config && *config) n = snprintf(out, PATH_CAP, "%s/fp8lab/slurm.json", config);
    else if (home && *home) n = snprintf(out, PATH_CAP, "%s/.config/fp8lab/slurm.json", home);
    return n > 0 && n < PATH_CAP && path_exists(out);
}

/* Whether text is a feature's name, which becomes part of one word for srun. */
static bool is_feature(const char *text) {
    static const char PLAIN[] = "abcdefghijklmnopqrstuvwxyz" "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789" "_.-&";
    return *text && text[strspn(text, PLAIN)] == '\0';
}

static enum status read_flags(const json_t *file, const char *path, struct words *out,
                              struct err *e) {
    const json_t *list = json_object_get(file, "flags"), *item;
    size_t i;
    if (list && !json_is_array(list)) return FAIL(e, ERR_CONFIG, "%s: flags is not a list", path);
    json_array_foreach(list, i, item) {
        const char *text = json_string_value(item);
        if (!text || strncmp(text, "--", 2) != 0)
            return FAIL(e, ERR_CONFIG, "%s: flags, entry %zu: a long flag of srun was expected, "
                        "as \"--account=me\"", path, i + 1);
        words_add(out, text);
    }
    return out->failed ? FAIL(e, ERR_MEMORY, "%s", path) : OK;
}

/* The facts of one kind of node: an object in the file, or a fact file beside it. */
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

/* Whether every row's query matches; if not, adds the reason to `text`. */
static enum status node_matches(const json_t *facts, const char *feature,
                                const struct requirements *required, bool *matches,
                                struct text *text, struct err *e) {
    *matches = true;
    for (int64_t i = 0; *matches && i < required->count; i++) {
        const json_t *hardware = json_object_get(required->configs[i], "hardware");
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

/* The kinds of nodes that match every query: { "feature", "gpus" } each; gpus -1 if the file does
 * not say. */
static enum status read_nodes(const json_t *file, const char *path,
                              const struct requirements *required, json_t *kinds, struct text *why,
                              struct err *e) {
    const json_t *nodes = json_object_get(file, "nodes"), *node;
    size_t i;
    if (nodes && !json_is_array(nodes)) return FAIL(e, ERR_CONFIG, "%s: nodes is not a list", path);
    json_array_foreach(nodes, i, node) {
        const char *feature = json_text(node, "constraint", "");
        json_t *facts = NULL;
        bool matches = false;
        if (!is_feature(feature))
            return FAIL(e, ERR_CONFIG, "%s: nodes, entry %zu: constraint is not a name of a "
                        "feature (letters, digits, _ . - and &)", path, i + 1);
        TRY(node_facts(node, path, i, &facts, e));
        enum status st = node_matches(facts, feature, required, &matches, why, e);
        const json_t *count = json_object_get(facts, "gpu.count");
        json_int_t gpus = json_is_integer(count) ? json_integer_value(count) : -1;
        json_decref(facts);
        TRY(st);
        if (matches && json_array_append_new(kinds, json_pack("{s:s, s:I}", "feature", feature,
                                                              "gpus", gpus)) != 0)
            return FAIL(e, ERR_MEMORY, "%s", path);
    }
    return why->failed ? FAIL(e, ERR_MEMORY, "%s", path) : OK;
}

/* Whether a node of this kind has that many GPUs. */
static bool holds(const json_t *kind, int64_t gpus) {
    int64_t has = json_int(kind, "gpus");
    return has < 0 || has >= gpus;
}

/* The smallest number of nodes of this kind over which the GPUs of every configuration divide
 * evenly; 0: none. */
static int64_t nodes_needed(const json_t *kind, const struct requirements *required) {
    for (int64_t n = 1; n == 1 || n <= required->gpus; n++) {
        bool fits = holds(kind, ceil_div(required->gpus, n));
        for (int64_t i = 0; fits && n > 1 && i < required->count; i++) {
            const json_t *hardware = json_object_get(required->configs[i], "hardware");
            fits = json_int(hardware, "gpus") % n == 0;
        }
        if (fits) return n;
    }
    return 0;
}

static void add_too_small(struct text *why, const json_t *kind,
                          const struct requirements *required) {
    char line[400];
    snprintf(line, sizeof line, "  %.200s:\n    gpu.count is %" PRId64 ", and %" PRId64
             " GPUs cannot be shared out alike among such nodes%s\n",
             json_text(kind, "feature", ""), json_int(kind, "gpus"),
             required->gpus, required->count > 1 ? ", in every row (--only leaves rows out)" : "");
    text_puts(why, line);
}

/* Makes the constraint of the kinds that need the fewest nodes. The nodes of a job are all of one
 * kind (sbatch(1), --constraint, "Matching OR"). */
static enum status choose_nodes(const json_t *kinds, const struct requirements *required,
                                struct launch_slurm *out, struct text *why, struct err *e) {
    struct text features = { 0 };
    const json_t *kind;
    int64_t fewest = 0, alike = 0;
    size_t i;
    json_array_foreach(kinds, i, kind) {
        int64_t n = nodes_needed(kind, required);
        if (n && (!fewest || n < fewest)) fewest = n, alike = 0;
        alike += n && n == fewest;
        if (!n) add_too_small(why, kind, required);
    }
    bool choice = fewest > 1 && alike > 1;
    text_puts(&features, choice ? "[" : "");
    json_array_foreach(kinds, i, kind) {
        if (!fewest || nodes_needed(kind, required) != fewest) continue;
        text_puts(&features, json_text(kind, "feature", ""));
        if (--alike) text_puts(&features, "|");
    }
    text_puts(&features, choice ? "]" : "");
    if (features.failed || why->failed) {
        text_free(&features);
        return FAIL(e, ERR_MEMORY, "a constraint");
    }
    if (!fewest) {
        text_free(&features);
        return OK;
    }
    out->constraint = features.bytes; /* moved */
    out->nodes = fewest;
    return OK;
}

static bool any_query(const struct requirements *required) {
    for (int64_t i = 0; i < required->count; i++)
        if (json_text(json_object_get(required->configs[i], "hardware"), "query", NULL))
            return true;
    return false;
}

enum status launch_slurm_read(const char *file, const json_t *const *configs, int64_t count,
                              int64_t gpus, struct launch_slurm *out, char **explanation,
                              struct err *e) {
    struct requirements required = { configs, count, gpus };
    char found[PATH_CAP];
    const char *path = file ? file : found;
    json_t *json = NULL, *kinds = json_array();
    struct text why = { 0 };
    *out = (struct launch_slurm){ .nodes = 1 };
    *explanation = NULL;
    if (!file && !default_file(found)) {
        json_decref(kinds);
        return OK;
    }
    enum status st = json_file_read(path, &json, e);
    if (st == OK && strcmp(json_text(json, "schema", ""), SCHEMA) != 0)
        st = FAIL(e, ERR_CONFIG, "%s: \"schema\" is not \"%s\"", path, SCHEMA);
    if (st == OK) st = read_flags(json, path, &out->flags, e);
    bool choose = (any_query(&required) || gpus > 1) &&
                  json_array_size(json_object_get(json, "nodes")) > 0;
    if (st == OK && choose) st = read_nodes(json, path, &required, kinds, &why, e);
    if (st == OK && choose) st = choose_nodes(kinds, &required, out, &why, e);
    json_decref(json);
    json_decref(kinds);
    if (st == OK && choose && !out->constraint) {
        *explanation = why.bytes; /* moved */
        why.bytes = NULL;
    }
    text_free(&why);
    if (st != OK) launch_slurm_free(out);
    return st;
}

void launch_slurm_free(struct launch_slurm *s) {
    free(s->constraint);
    words_free(&s->flags);
    *s = (struct launch_slurm){ 0 };
}
