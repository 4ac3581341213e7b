#include "runner/plan/factor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/json_flat.h"
#include "runner/base/nearest.h"

static bool starts(const char *text, const char *head) {
    return strncmp(text, head, strlen(head)) == 0;
}

/* ---- factors ------------------------------------------------------------------------------- */

/* Keys that are no factor of their own, by their beginning; factor NULL: they are none at all,
 * since names, and observing a run, change no bit of its results. The first match counts. */
static const struct { const char *head, *factor; } RULES[] = {
    { "name", NULL },         { "about", NULL },      { "schema", NULL },
    { "hardware.", NULL }, /* ranks are counted as such */
    { "archive", NULL },      { "trace", NULL },      { "fp8_error", NULL },
    { "train.audit", NULL },  { "checkpoint", NULL }, { "eval", NULL },
    { "sample", NULL },       { "tensorboard", NULL },
    { "train.time_limit_s", NULL },
    { "train.seed", "seed" }, { "data", "data" },
};

const char *factor_of_key(const char *key, bool kinds) {
    for (size_t i = 0; i < sizeof RULES / sizeof *RULES; i++)
        if (starts(key, RULES[i].head)) return RULES[i].factor;
    return kinds && starts(key, "recipe") ? "recipe" : key;
}

/* ---- the factor of a comparison ------------------------------------------------------------ */

bool factor_read(const char *text, struct factor *out) {
    const char *equals = strchr(text, '=');
    size_t n = equals ? (size_t)(equals - text) : 0;
    if (n == 0 || n >= sizeof out->key || !equals[1]) return false;
    snprintf(out->key, sizeof out->key, "%.*s", (int)n, text);
    out->value = equals + 1;
    return true;
}

/* The value at the dotted key, of which a last part may itself have dots; NULL: there is none. */
static const json_t *value_at(const json_t *table, const char *key) {
    const json_t *whole = json_object_get(table, key);
    const char *dot = strchr(key, '.');
    char head[sizeof ((struct factor *)0)->key];
    if (whole || !dot) return whole;
    snprintf(head, sizeof head, "%.*s", (int)(dot - key), key);
    return value_at(json_object_get(table, head), dot + 1);
}

/* Lists are equal if their JSON is, with numbers by value. */
static bool is_list(const json_t *found, const char *want) {
    const size_t flags = JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL;
    char *text = json_dump_text(found, JSON_COMPACT);
    json_t *a = text ? json_loads(text, flags, NULL) : NULL, *b = json_loads(want, flags, NULL);
    bool same = a && b && json_equal(a, b);
    json_decref(a);
    json_decref(b);
    free(text);
    return same;
}

static bool is_value(const json_t *found, const char *want) {
    if (json_is_string(found)) return !strcmp(json_string_value(found), want);
    if (json_is_boolean(found)) return !strcmp(json_is_true(found) ? "true" : "false", want);
    if (!json_is_number(found)) return is_list(found, want);
    char *end = NULL;
    double number = strtod(want, &end);
    return end != want && !*end && number == json_number_value(found);
}

enum factor_value factor_find(const struct factor *f, const json_t *config) {
    const json_t *found = value_at(config, f->key);
    if (!found && !strcmp(f->key, "attention.precision")) /* absent unless set */
        return strcmp(f->value, "bf16") != 0 ? FACTOR_OTHER : FACTOR_SAME;
    if (!found || json_is_null(found) || json_is_object(found)) return FACTOR_ABSENT;
    return is_value(found, f->value) ? FACTOR_SAME : FACTOR_OTHER;
}

/* ---- is it one? ---------------------------------------------------------------------------- */

/* The keys of all configurations by which --factor can ask. NULL: no memory. */
static json_t *keys_of(json_t *const *configs, int64_t count) {
    json_t *flat = json_object(), *keys = json_object(), *value;
    const char *key;
    bool failed = !flat || !keys;
    for (int64_t i = 0; i < count; i++) json_flatten(configs[i], flat, &failed);
    json_object_foreach(flat, key, value) {
        const char *factor = factor_of_key(key, false);
        bool own = factor && !strcmp(factor, key) && strcmp(key, "recipe.kind") != 0;
        if (own && !json_is_null(value)) json_put(keys, key, json_true(), &failed);
    }
    json_decref(flat);
    return json_whole(keys, failed);
}

/* The key of the table that `given` names, or the one that was meant; NULL: none. Borrowed. */
static const char *near_key(json_t *keys, const char *given, bool table, const char **names) {
    const char *key;
    json_t *value;
    int64_t n = 0;
    size_t length = strlen(given);
    json_object_foreach(keys, key, value) {
        size_t all = strlen(key);
        if (table && starts(key, given) && key[length] == '.') return key;
        if (all > length && key[all - length - 1] == '.' && !strcmp(key + all - length, given))
            return key; /* without its section */
        names[n++] = key;
    }
    return table ? NULL : nearest_name(given, names, n);
}

static void say_missing(const char *given, const char *near, bool table, char *why) {
    if (table)
        snprintf(why, FACTOR_WHY_CAP, "%.100s is a table; name one of its keys%s%.100s", given,
                 near ? ", such as " : "", near ? near : "");
    else
        snprintf(why, FACTOR_WHY_CAP, "no row has a value of %.100s%s%.100s%s", given,
                 near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

/* Why the key, which rows have, is none to ask by; "": it is one. */
static void say_other(const char *key, char *why) {
    const char *factor = factor_of_key(key, true);
    *why = '\0';
    if (!factor)
        snprintf(why, FACTOR_WHY_CAP, "%.100s is not a factor: for compare it is a key that "
                 "changes no result", key);
    else if (!strcmp(factor, "seed"))
        snprintf(why, FACTOR_WHY_CAP, "runs that differ in their seed are repeats of one row");
    else if (!strcmp(factor, "data"))
        snprintf(why, FACTOR_WHY_CAP, "losses on other data are not compared");
    else if (!strcmp(key, "recipe") || !strcmp(key, "recipe.kind"))
        snprintf(why, FACTOR_WHY_CAP, "recipes are judged against BF16 without a factor");
}

enum status factor_check(const struct factor *f, json_t *const *configs, int64_t count,
                         char why[FACTOR_WHY_CAP], struct err *e) {
    bool found = false, table = false;
    for (int64_t i = 0; i < count; i++) {
        found = found || factor_find(f, configs[i]) != FACTOR_ABSENT;
        table = table || json_is_object(value_at(configs[i], f->key));
    }
    why[0] = '\0';
    if (found || table) say_other(f->key, why);
    if (found || *why) return OK;
    json_t *keys = keys_of(configs, count);
    const char **names = keys ? calloc(json_object_size(keys) + 1, sizeof *names) : NULL;
    enum status st = names ? OK : FAIL(e, ERR_MEMORY, "the keys of runs");
    if (st == OK) say_missing(f->key, near_key(keys, f->key, table, names), table, why);
    json_decref(keys);
    free(names);
    return st;
}
