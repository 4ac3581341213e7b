#include "runner/base/value.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct value *value_new(struct pool *p, enum value_type type, struct place place) {
    struct value *v = pool_alloc(p, sizeof *v);
    v->type = type;
    v->place = place;
    return v;
}

struct value *value_int(struct pool *p, int64_t i, struct place place) {
    struct value *v = value_new(p, VALUE_INT, place);
    v->i = i;
    return v;
}

struct value *value_float(struct pool *p, double f, struct place place) {
    struct value *v = value_new(p, VALUE_FLOAT, place);
    v->f = f;
    return v;
}

struct value *value_string(struct pool *p, const char *text, struct place place) {
    struct value *v = value_new(p, VALUE_STRING, place);
    v->string = pool_copy(p, text);
    v->string_bytes = strlen(text);
    return v;
}

struct value_member *value_member(const struct value *table, const char *key) {
    if (!table || table->type != VALUE_TABLE) return NULL;
    for (int64_t i = 0; i < table->member_count; i++)
        if (strcmp(table->members[i].key, key) == 0) return &table->members[i];
    return NULL;
}

struct value *value_get(const struct value *table, const char *key) {
    struct value_member *m = value_member(table, key);
    return m ? m->value : NULL;
}

/* Doubles a full array of the pool. The old array stays allocated as long as the pool. */
static void *grow_array(struct pool *p, void *old, int64_t count, int64_t *capacity, size_t size) {
    if (count < *capacity) return old;
    *capacity = *capacity ? *capacity * 2 : 8;
    void *array = pool_alloc(p, (size_t)*capacity * size);
    if (count) memcpy(array, old, (size_t)count * size);
    return array;
}

void value_set(struct pool *p, struct value *table, const char *key, struct value *v,
               struct place place) {
    assert(table->type == VALUE_TABLE);
    struct value_member *m = value_member(table, key);
    if (!m) {
        table->members = grow_array(p, table->members, table->member_count,
                                    &table->member_capacity, sizeof *table->members);
        m = &table->members[table->member_count++];
    }
    *m = (struct value_member){ .key = key, .value = v, .place = place };
}

void value_remove(struct value *table, const char *key) {
    struct value_member *m = value_member(table, key);
    if (!m) return;
    int64_t behind = table->member_count - 1 - (m - table->members);
    memmove(m, m + 1, (size_t)behind * sizeof *m);
    table->member_count--;
}

void value_append(struct pool *p, struct value *table, struct value *item) {
    assert(table->type == VALUE_TABLE);
    table->items =
        grow_array(p, table->items, table->item_count, &table->item_capacity, sizeof *table->items);
    table->items[table->item_count++] = item;
}

struct value *value_copy(struct pool *p, const struct value *v) {
    struct value *copy = pool_alloc(p, sizeof *copy);
    *copy = *v;
    if (v->type != VALUE_TABLE) return copy;
    copy->member_capacity = v->member_count;
    copy->members = pool_alloc(p, (size_t)v->member_count * sizeof *copy->members);
    for (int64_t i = 0; i < v->member_count; i++) {
        copy->members[i] = v->members[i];
        copy->members[i].value = value_copy(p, v->members[i].value);
    }
    copy->item_capacity = v->item_count;
    copy->items = pool_alloc(p, (size_t)v->item_count * sizeof *copy->items);
    for (int64_t i = 0; i < v->item_count; i++) copy->items[i] = value_copy(p, v->items[i]);
    return copy;
}

static int compare_members(const void *a, const void *b) {
    const struct value_member *x = a, *y = b;
    return strcmp(x->key, y->key);
}

void value_sort_members(struct value *table) {
    if (table->member_count) /* qsort must not get NULL, even with 0 items */
        qsort(table->members, (size_t)table->member_count, sizeof *table->members,
              compare_members);
}

int64_t value_int_at(const struct value *table, const char *key) {
    const struct value *v = value_get(table, key);
    assert(v && v->type == VALUE_INT);
    return v->i;
}

const char *value_string_at(const struct value *table, const char *key) {
    const struct value *v = value_get(table, key);
    assert(v && (v->type == VALUE_STRING || v->type == VALUE_NULL));
    return v->type == VALUE_STRING ? v->string : NULL;
}

bool value_is(const struct value *v, const char *string) {
    return v && v->type == VALUE_STRING && strcmp(v->string, string) == 0;
}

struct value *value_from_json(struct pool *p, const json_t *json, struct place place) {
    size_t i;
    const char *key;
    json_t *below;
    if (json_is_integer(json)) return value_int(p, json_integer_value(json), place);
    if (json_is_real(json)) return value_float(p, json_real_value(json), place);
    if (json_is_string(json))
        return value_string(p, pool_copy(p, json_string_value(json)), place);
    bool list = json_is_array(json);
    struct value *v = value_new(p, list || json_is_object(json) ? VALUE_TABLE
                                   : json_is_boolean(json) ? VALUE_BOOL : VALUE_NULL, place);
    v->b = json_is_true(json);
    v->list = list;
    json_array_foreach(json, i, below) value_append(p, v, value_from_json(p, below, place));
    json_object_foreach((json_t *)json, key, below)
        value_set(p, v, pool_copy(p, key), value_from_json(p, below, place), place);
    return v;
}

const char *value_describe(struct pool *p, const struct value *v) {
    struct text t = { 0 };
    const char *out;
    switch (v->type) {
    case VALUE_NULL: return "nothing";
    case VALUE_BOOL: return v->b ? "true" : "false";
    case VALUE_INT: return pool_format(p, "%" PRId64, v->i);
    case VALUE_FLOAT:
        if (v->f - v->f != 0) return v->f != v->f ? "NaN" : v->f > 0 ? "infinity" : "-infinity";
        canonical_add_double(&t, v->f);
        break;
    case VALUE_STRING:
    case VALUE_TEXT:
        text_puts(&t, v->type == VALUE_STRING ? "the string " : "");
        canonical_add_string(&t, v->string, v->string_bytes > 60 ? 60 : v->string_bytes);
        if (v->string_bytes > 60) text_puts(&t, "...");
        break;
    case VALUE_TABLE:
        if (v->kind) return pool_format(p, "%s {...}", v->kind);
        if (v->item_count == 0 && v->list) return "an empty list";
        return v->item_count ? "a list" : v->member_count ? "a table" : "an empty table";
    case VALUE_FUNCTION: return "a function";
    }
    out = pool_copy(p, t.bytes ? t.bytes : "");
    text_free(&t);
    return out;
}

static void write_table(struct text *out, struct pool *p, const struct value *v) {
    struct value sorted = *v;
    sorted.members = pool_alloc(p, (size_t)v->member_count * sizeof *sorted.members);
    if (v->member_count)
        memcpy(sorted.members, v->members, (size_t)v->member_count * sizeof *sorted.members);
    value_sort_members(&sorted);
    text_puts(out, "{");
    for (int64_t i = 0; i < v->member_count; i++) {
        const struct value_member *m = &sorted.members[i];
        if (i) text_puts(out, ",");
        canonical_add_string(out, m->key, strlen(m->key));
        text_puts(out, ":");
        value_write(out, p, m->value);
    }
    text_puts(out, "}");
}

void value_write(struct text *out, struct pool *p, const struct value *v) {
    switch (v->type) {
    case VALUE_NULL: text_puts(out, "null"); return;
    case VALUE_BOOL: text_puts(out, v->b ? "true" : "false"); return;
    case VALUE_INT: canonical_add_int(out, v->i); return;
    case VALUE_FLOAT: canonical_add_double(out, v->f); return;
    case VALUE_STRING: canonical_add_string(out, v->string, v->string_bytes); return;
    case VALUE_TABLE:
        if (!v->item_count && !v->list) {
            write_table(out, p, v);
            return;
        }
        text_puts(out, "[");
        for (int64_t i = 0; i < v->item_count; i++) {
            if (i) text_puts(out, ",");
            value_write(out, p, v->items[i]);
        }
        text_puts(out, "]");
        return;
    case VALUE_TEXT:
    case VALUE_FUNCTION: break;
    }
    assert(!"value_write: not a normalised tree");
}
