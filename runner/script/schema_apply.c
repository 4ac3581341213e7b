#include "runner/script/schema_apply.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "runner/script/schema_tables.h"
#include "runner/script/schema_types.h"

/* ---- the probable name ----------------------------------------------------------------------- */
enum { NAMES_MAX = 64, DEPTH_MAX = 6 };

static int64_t field_names(const struct schema *schema, const char *names[NAMES_MAX]) {
    int64_t count = 0;
    for (const struct field *f = schema->fields; f->key && count < NAMES_MAX; f++)
        names[count++] = f->key;
    return count;
}

/* The path, below `path`, of a key of exactly this name somewhere in the schema; NULL if none. */
static const char *find_key(struct pool *p, const struct schema *schema, const char *key,
                            const char *path, int depth) {
    if (depth > DEPTH_MAX) return NULL;
    if (schema_field(schema, key)) return schema_path(p, path, key);
    for (const struct field *f = schema->fields; f->key; f++) {
        const char *below = schema_path(p, path, f->key), *found = NULL;
        if (f->schema) found = find_key(p, f->schema, key, below, depth + 1);
        for (int i = 0; f->variants && f->variants[i] && !found; i++)
            found = find_key(p, f->variants[i], key, below, depth + 1);
        if (found) return found;
    }
    return NULL;
}

/* The sections whose keys a matrix or an override may name without the section. */
static const char *const SECTIONS[] = { "train", "model", "recipe" };
enum { SECTION_COUNT = sizeof SECTIONS / sizeof *SECTIONS };

const char *schema_near_path(struct pool *p, const char *key) {
    const char *names[NAMES_MAX], *best = NULL, *of = NULL;
    for (int i = 0; i < SECTION_COUNT; i++) {
        const struct field *section = schema_field(&SCHEMA_EXPERIMENT, SECTIONS[i]);
        const struct schema *const one[] = { section->schema, NULL };
        const struct schema *const *each = section->schema ? one : section->variants;
        for (; each && *each; each++) {
            const char *near = nearest_name(key, names, field_names(*each, names));
            if (!near || (best && name_distance_x2(key, near) >= name_distance_x2(key, best)))
                continue;
            best = near;
            of = SECTIONS[i];
        }
    }
    return best ? pool_format(p, "%s.%s", of, best) : NULL;
}

/* The path of an unknown key that is one of another table; NULL: there is no such key. A key of the
 * experiment itself is read as in a matrix: "seed" is train.seed, not the one of the data. */
static const char *path_elsewhere(struct pool *p, const struct schema *schema, const char *key) {
    const char *path = schema == &SCHEMA_EXPERIMENT ? schema_expand_path(p, key) : key;
    return strcmp(path, key) ? path : find_key(p, &SCHEMA_EXPERIMENT, key, "", 0);
}

/* The other variants that have the key: "text has", "fp8.mxfp8 and fp4.nvfp4 have"; or NULL. */
static const char *variants_with(struct pool *p, const struct schema *const *variants,
                                 const struct schema *own, const char *key) {
    const char *all = NULL, *last = NULL;
    for (int i = 0; variants && variants[i]; i++) {
        if (variants[i] == own || !schema_field(variants[i], key)) continue;
        if (last) all = all ? pool_format(p, "%s, %s", all, last) : last;
        last = variants[i]->name;
    }
    if (all) return pool_format(p, "%s and %s have", all, last);
    return last ? pool_format(p, "%s has", last) : NULL;
}

static void report_unknown(struct diagnostics *d, const struct schema *schema,
                           const struct schema *const *variants, const struct value_member *m,
                           const char *path) {
    const char *names[NAMES_MAX];
    int64_t count = field_names(schema, names);
    const char *near = nearest_name(m->key, names, count);
    const char *full = schema_path(d->pool, path, m->key);
    const char *other = variants_with(d->pool, variants, schema, m->key);
    const char *ours = other_name_find(SCHEMA_OTHERS, m->key);
    const char *elsewhere = path_elsewhere(d->pool, schema, m->key);
    if (!elsewhere && schema == &SCHEMA_EXPERIMENT) elsewhere = schema_near_path(d->pool, m->key);
    if (schema == &SCHEMA_EXPERIMENT && strcmp(m->key, "matrix") == 0)
        diagnostics_add(d, m->place, full, "an experiment is one run; write the matrix in "
                        "suite { ... }");
    else if (variants && m->value->type == VALUE_TEXT && strcmp(m->key, "kind") == 0)
        diagnostics_add(d, m->place, full, "unknown key 'kind'; %s itself names the kind: "
                        "--set %s=%s", path, path, m->value->string);
    else if (ours)
        diagnostics_add(d, m->place, full, "unknown key '%s'; here it is %s", m->key, ours);
    else if (other)
        diagnostics_add(d, m->place, full, "%s has no '%s'; %s", schema->name, m->key, other);
    else if (elsewhere && !strcmp(elsewhere, m->key) && !near)
        diagnostics_add(d, m->place, full, "%s has no '%s'; the experiment itself has",
                        schema->name, m->key);
    else if (elsewhere && strcmp(elsewhere, full) != 0 && !near)
        diagnostics_add(d, m->place, full, "unknown key '%s'; did you mean %s?", m->key, elsewhere);
    else if (near)
        diagnostics_add(d, m->place, full, "unknown key '%s'; did you mean '%s'?", m->key, near);
    else {
        struct text all = { 0 };
        for (int64_t i = 0; i < count; i++) {
            text_puts(&all, i ? ", " : "");
            text_puts(&all, names[i]);
        }
        diagnostics_add(d, m->place, full, "unknown key '%s'; %s takes %s", m->key, schema->name,
                        count ? all.bytes : "no keys");
        text_free(&all);
    }
}

/* ---- applying -------------------------------------------------------------------------------- */
static struct value *apply_tables(struct diagnostics *d, const struct field *f,
                                  const struct value *v, const char *path) {
    struct value *out = value_new(d->pool, VALUE_TABLE, v->place);
    bool list = v->type == VALUE_TABLE && !v->kind && !v->member_count && v->item_count;
    out->list = true;
    for (int64_t i = 0; list && i < v->item_count; i++) {
        const char *below = pool_format(d->pool, "%s[%" PRId64 "]", path, i + 1);
        const struct value *item = v->items[i];
        if (item->type == VALUE_TABLE && !item->kind && !item->item_count)
            value_append(d->pool, out, schema_apply(d, f->schema, item, below));
        else
            diagnostics_add(d, item->place, below, "expected a table { ... }, found %s",
                            value_describe(d->pool, item));
    }
    if (list) return out;
    diagnostics_add(d, v->place, path, "expected %s, found %s", schema_expected(d->pool, f),
                    value_describe(d->pool, v));
    return NULL;
}

static struct value *apply_field(struct diagnostics *d, const struct field *f,
                                 const struct value *v, const char *path) {
    bool words = v->type == VALUE_TEXT; /* of --set */
    bool off = v->type == VALUE_NULL || (v->type == VALUE_BOOL && !v->b) ||
               (words && (!strcmp(v->string, "null") || !strcmp(v->string, "false")));
    if ((f->flags & FIELD_NULLABLE) && off) return value_new(d->pool, VALUE_NULL, v->place);
    if ((f->flags & FIELD_SHORT) && (words || v->type == VALUE_STRING)) {
        struct value *table = value_new(d->pool, VALUE_TABLE, v->place);
        value_set(d->pool, table, f->schema->fields[0].key, value_copy(d->pool, v), v->place);
        return schema_apply(d, f->schema, table, path);
    }
    if (f->type == FIELD_WORD && f->schema && v->type == VALUE_TABLE && !v->kind && !v->item_count)
        return schema_apply(d, f->schema, v, path);
    if ((f->flags & FIELD_SWITCH) && ((v->type == VALUE_BOOL && v->b) ||
                                      (words && !strcmp(v->string, "true"))))
        return schema_apply(d, f->schema, value_new(d->pool, VALUE_TABLE, v->place), path);
    if (f->type == FIELD_TABLE) {
        if (v->type == VALUE_TABLE && !v->kind && !v->item_count)
            return schema_apply(d, f->schema, v, path);
        diagnostics_add(d, v->place, path, "expected a table { ... }, found %s",
                        value_describe(d->pool, v));
        return NULL;
    }
    if (f->type == FIELD_TABLES) return apply_tables(d, f, v, path);
    if (f->type == FIELD_VARIANT) {
        const struct value *chosen = v;
        if (v->type == VALUE_TABLE && !v->kind && v->place.origin && f->initial) {
            struct value *copy = value_copy(d->pool, v); /* --set in an implied table */
            copy->kind = f->initial;
            chosen = copy;
        }
        return schema_apply_variant(d, f->variants, chosen, path);
    }
    return schema_typed(d, f, v, path);
}

/* Whether an unknown key of v probably means `key`: then `key` is not reported as missing. */
static bool misspelt(const struct schema *schema, const struct value *v, const char *key) {
    const char *names[NAMES_MAX];
    int64_t count = field_names(schema, names);
    for (int64_t i = 0; i < v->member_count; i++) {
        if (schema_field(schema, v->members[i].key)) continue;
        const char *near = nearest_name(v->members[i].key, names, count);
        const char *ours = other_name_find(SCHEMA_OTHERS, v->members[i].key);
        const char *leaf = ours && strrchr(ours, '.') ? strrchr(ours, '.') + 1 : ours;
        const char *meant = ours ? leaf : near;
        if (meant && strcmp(meant, key) == 0) return true;
    }
    return false;
}

static struct value *initial_value(struct diagnostics *d, const struct field *f,
                                   struct place place, const char *path) {
    if (f->initial) {
        struct value *text = value_new(d->pool, VALUE_TEXT, place);
        text->string = f->initial;
        text->string_bytes = strlen(f->initial);
        return apply_field(d, f, text, path);
    }
    if (f->flags & FIELD_ABSENT) return NULL;
    if (f->flags & FIELD_NULLABLE) return value_new(d->pool, VALUE_NULL, place);
    if (f->flags & FIELD_REQUIRED)
        diagnostics_add(d, place, path, "'%s' is missing; it needs %s", f->key,
                        schema_expected(d->pool, f));
    else if (f->type == FIELD_TABLE && !(f->flags & FIELD_SHORT))
        return schema_apply(d, f->schema, value_new(d->pool, VALUE_TABLE, place), path);
    else if (f->type == FIELD_ENV)
        return value_new(d->pool, VALUE_TABLE, place);
    return NULL;
}

/* Positional items become a member: text { "a" } is text { paths = { "a" } }. */
static const struct value *name_items(struct diagnostics *d, const struct schema *schema,
                                      const struct value *v, const char *path) {
    const struct value *given = schema->items_key ? value_get(v, schema->items_key) : NULL;
    if (!v->item_count) return v;
    if (given && given->place.origin) return v; /* --set replaces the items */
    if (!schema->items_key || given) {
        diagnostics_add(d, v->items[0]->place, path, "%s takes named keys, found the item %s",
                        schema->name, value_describe(d->pool, v->items[0]));
        return v;
    }
    struct value *named = value_copy(d->pool, v), *list = value_new(d->pool, VALUE_TABLE, v->place);
    list->items = named->items;
    list->item_count = list->item_capacity = named->item_count;
    named->item_count = 0;
    value_set(d->pool, named, schema->items_key, list, v->place);
    return named;
}

static struct value *apply_rows(struct diagnostics *d, const struct schema *schema,
                                const struct schema *const *variants, const struct value *v,
                                const char *path) {
    struct value *out = value_new(d->pool, VALUE_TABLE, v->place);
    v = name_items(d, schema, v, path);
    for (int64_t i = 0; i < v->member_count; i++)
        if (!schema_field(schema, v->members[i].key))
            report_unknown(d, schema, variants, &v->members[i], path);
    for (const struct field *f = schema->fields; f->key; f++) {
        const char *below = schema_path(d->pool, path, f->key);
        const struct value_member *m = value_member(v, f->key);
        struct value *typed = NULL;
        if (m)
            typed = apply_field(d, f, m->value, below);
        else if (!misspelt(schema, v, f->key))
            typed = initial_value(d, f, v->place, below);
        if (typed) value_set(d->pool, out, f->key, typed, m ? m->place : v->place);
    }
    return out;
}

struct value *schema_apply(struct diagnostics *d, const struct schema *schema,
                           const struct value *v, const char *path) {
    assert(v->type == VALUE_TABLE);
    return apply_rows(d, schema, NULL, v, path);
}

struct value *schema_apply_variant(struct diagnostics *d, const struct schema *const *variants,
                                   const struct value *v, const char *path) {
    const char *names[NAMES_MAX], *kind = v->type == VALUE_TABLE ? v->kind : NULL;
    struct text all = { 0 };
    int64_t count = 0;
    if (v->type == VALUE_TEXT) kind = v->string;
    for (int i = 0; variants[i]; i++) {
        if (kind && strcmp(kind, variants[i]->name) == 0) {
            struct value *table = value_new(d->pool, VALUE_TABLE, v->place);
            struct value *out = apply_rows(d, variants[i], variants,
                                           v->type == VALUE_TABLE ? v : table, path);
            value_set(d->pool, out, "kind", value_string(d->pool, kind, v->place), v->place);
            text_free(&all);
            return out;
        }
        text_puts(&all, count ? ", " : "");
        text_puts(&all, variants[i]->name);
        names[count++] = variants[i]->name;
    }
    const char *given = kind ? kind : v->type == VALUE_STRING ? v->string : NULL;
    const char *near = given ? nearest_name(given, names, count) : NULL;
    const char *several = schema_several(d->pool, v, path);
    if (given && near && !*several)
        diagnostics_add(d, v->place, path, "expected one of %s; found %s; did you mean %s%s?",
                        all.bytes, value_describe(d->pool, v), near,
                        v->type == VALUE_TEXT ? "" : " { ... }");
    else
        diagnostics_add(d, v->place, path, "expected one of %s; found %s%s", all.bytes,
                        value_describe(d->pool, v), several);
    text_free(&all);
    return NULL;
}

/* ---- paths ----------------------------------------------------------------------------------- */
const char *schema_expand_path(struct pool *p, const char *path) {
    size_t n = strcspn(path, ".");
    const char *head = pool_copy_n(p, path, n);
    if (schema_field(&SCHEMA_EXPERIMENT, head)) return path;
    for (int i = 0; i < SECTION_COUNT; i++) {
        const struct field *section = schema_field(&SCHEMA_EXPERIMENT, SECTIONS[i]);
        bool has = section->schema && schema_field(section->schema, head);
        for (int k = 0; section->variants && section->variants[k] && !has; k++)
            has = schema_field(section->variants[k], head) != NULL;
        if (has) return pool_format(p, "%s.%s", SECTIONS[i], path);
    }
    return path;
}

void schema_set_path(struct pool *p, struct value *root, const char *path, struct value *v,
                     struct place place) {
    struct value *at = root;
    for (;;) {
        size_t n = strcspn(path, ".");
        const char *key = pool_copy_n(p, path, n);
        if (path[n] == '\0') {
            value_set(p, at, key, v, place);
            return;
        }
        struct value *next = value_get(at, key);
        if (!next || next->type != VALUE_TABLE) {
            const char *kind = next && next->type == VALUE_TEXT ? next->string : NULL;
            next = value_new(p, VALUE_TABLE, place);
            next->kind = kind;
            value_set(p, at, key, next, place);
        }
        at = next;
        path += n + 1;
    }
}
