/* For rules over several keys: a key's integer, and the place that an error names. */
#ifndef FP8LAB_RUNNER_SCRIPT_RULE_PLACES_H
#define FP8LAB_RUNNER_SCRIPT_RULE_PLACES_H

#include "runner/base/value.h"

/* Whether the table has the key as an integer, then in *out. */
static inline bool get_int(const struct value *table, const char *key, int64_t *out) {
    const struct value *v = value_get(table, key);
    if (!v || v->type != VALUE_INT) return false;
    *out = v->i;
    return true;
}

/* An axis has one place, each of its values another. `table` may be NULL. */
static inline struct place place_of(const struct value *table, const char *key) {
    const struct value_member *m = table ? value_member(table, key) : NULL;
    struct place place = table ? table->place : (struct place){ 0 };
    place.in_module = true; /* a default is nobody's change */
    if (!m) return place;
    place = m->place.in_matrix ? m->value->place : m->place;
    place.in_matrix = m->place.in_matrix;
    return place;
}

static inline int rank(struct place place) {
    return place.origin ? 3 : place.in_matrix ? 2 : !place.in_module;
}

/* The place that an error names if two keys do not fit each other: the one that the user changed,
 * by --set, by an axis, or in the script, since the other one may be a preset's. Else the first. */
static inline struct place changed(struct place a, struct place b) {
    return rank(b) > rank(a) ? b : a;
}

static inline struct place changed_key(const struct value *table, const char *a, const char *b) {
    return changed(place_of(table, a), place_of(table, b));
}

#endif
