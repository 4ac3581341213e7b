#include "runner/chat/jinja_value.h"

#include <string.h>

enum { EQUAL_DEPTH = 64 };

const char *value_kind_name(const struct value *v) {
    static const char *const NAMES[] = {
        "nothing", "an undefined value", "none", "a boolean", "an integer", "a real number",
        "a string", "a list", "a mapping", "a namespace", "a loop", "a macro", "a function",
        "a method",
    };
    return NAMES[v->kind];
}

bool value_true(const struct value *v) {
    switch (v->kind) {
    case VALUE_ABSENT:
    case VALUE_UNDEFINED:
    case VALUE_NONE: return false;
    case VALUE_BOOL: return v->boolean;
    case VALUE_INT: return v->integer != 0;
    case VALUE_REAL: return v->real != 0;
    case VALUE_STR: return v->str->n > 0;
    case VALUE_LIST: return v->list->form == LIST_ITERATOR || v->list->count > 0;
    case VALUE_MAP: return v->map->count > 0;
    default: return true;
    }
}

bool value_is_number(const struct value *v) {
    return v->kind == VALUE_BOOL || v->kind == VALUE_INT || v->kind == VALUE_REAL;
}

static int64_t integer_of(const struct value *v) {
    return v->kind == VALUE_BOOL ? v->boolean : v->integer;
}

double value_real(const struct value *v) {
    return v->kind == VALUE_REAL ? v->real : (double)integer_of(v);
}

/* ---- equality and order ---------------------------------------------------------------------- */

static bool equal(const struct value *x, const struct value *y, int depth, int64_t *steps);

static bool equal_lists(const struct list *x, const struct list *y, int depth,
                        int64_t *steps) {
    if (x->form != y->form || x->count != y->count || x->form == LIST_ITERATOR) return x == y;
    for (int64_t i = 0; i < x->count; i++)
        if (!equal(&x->item[i], &y->item[i], depth + 1, steps)) return false;
    return true;
}

static bool equal_maps(const struct map *x, const struct map *y, int depth,
                       int64_t *steps) {
    if (x->count != y->count) return false;
    for (int64_t i = 0; i < x->count; i++) {
        const struct value *other = map_get(y, &x->entry[i].key, steps);
        if (!other || !equal(&x->entry[i].value, other, depth + 1, steps)) return false;
    }
    return true;
}

static bool equal_texts(const struct str *x, const struct str *y, int64_t *steps) {
    if (x->n != y->n) return false;
    *steps += str_cost(x) + str_cost(y);
    return str_order(x, y) == 0;
}

static bool equal(const struct value *x, const struct value *y, int depth, int64_t *steps) {
    if (depth > EQUAL_DEPTH || ++*steps > EQUAL_STEPS_MAX) return false;
    if (value_is_number(x) && value_is_number(y)) {
        if (x->kind == VALUE_REAL || y->kind == VALUE_REAL) return value_real(x) == value_real(y);
        return integer_of(x) == integer_of(y);
    }
    if (x->kind != y->kind) return false;
    switch (x->kind) {
    case VALUE_UNDEFINED:
    case VALUE_NONE: return true;
    case VALUE_STR: return equal_texts(x->str, y->str, steps);
    case VALUE_LIST: return equal_lists(x->list, y->list, depth, steps);
    case VALUE_MAP: return equal_maps(x->map, y->map, depth, steps);
    case VALUE_METHOD: return x->method->callable == y->method->callable;
    default: return x->map == y->map; /* the same object */
    }
}

bool value_equal(const struct value *x, const struct value *y, int64_t *steps) {
    return equal(x, y, 0, steps);
}

int64_t value_cost(const struct value *v) { return v->kind == VALUE_STR ? str_cost(v->str) : 0; }

enum status value_order(const struct value *x, const struct value *y, int *order, struct err *e) {
    if (value_is_number(x) && value_is_number(y)) {
        if (x->kind == VALUE_REAL || y->kind == VALUE_REAL) {
            double p = value_real(x), q = value_real(y);
            *order = (p > q) - (p < q);
        } else {
            int64_t p = integer_of(x), q = integer_of(y);
            *order = (p > q) - (p < q);
        }
        return OK;
    }
    if (x->kind == VALUE_STR && y->kind == VALUE_STR) {
        *order = str_order(x->str, y->str);
        return OK;
    }
    return FAIL(e, ERR_CONFIG, "%s and %s have no order", value_kind_name(x), value_kind_name(y));
}

/* ---- making ---------------------------------------------------------------------------------- */

enum status value_text(struct chat_arena *a, const char *bytes, int64_t n, struct value *out,
                       struct err *e) {
    *out = VALUE(VALUE_STR);
    return str_from(a, bytes, n, CHAT_FROM_TEMPLATE, &out->str, e);
}

enum status value_list(struct chat_arena *a, enum list_form form, int64_t count, struct value *out,
                       struct err *e) {
    struct list *l;
    TRY(chat_alloc(a, sizeof *l, &l, e));
    *l = (struct list){ .form = form, .count = count };
    if (count > a->limit / (int64_t)sizeof *l->item) count = a->limit; /* chat_alloc refuses it */
    TRY(chat_alloc(a, count * (int64_t)sizeof *l->item, &l->item, e));
    *out = VALUE(VALUE_LIST, .list = l);
    return OK;
}

/* ---- mappings -------------------------------------------------------------------------------- */

/* Eight short keys cost one step. */
struct value *map_get(const struct map *m, const struct value *key, int64_t *steps) {
    int64_t i = 0, used = 0;
    while (i < m->count && !value_equal(&m->entry[i].key, key, &used)) i++;
    *steps += used - i + i / 8;
    return i < m->count ? &m->entry[i].value : NULL;
}

struct value *map_get_text(const struct map *m, const char *key, int64_t *steps) {
    struct piece piece = { key, (int64_t)strlen(key), CHAT_FROM_TEMPLATE };
    struct str s = { .n = piece.n, .count = 1, .pieces = &piece, .flat = key };
    return map_get(m, &VALUE(VALUE_STR, .str = &s), steps);
}

enum status map_put(struct chat_arena *a, struct map *m, const struct value *key,
                    const struct value *value, int64_t *steps, struct err *e) {
    struct value *old = map_get(m, key, steps);
    if (old) {
        *old = *value;
        return OK;
    }
    TRY(chat_grow(a, &m->entry, m->count, &m->capacity, sizeof *m->entry, e));
    m->entry[m->count++] = (struct entry){ *key, *value };
    return OK;
}

/* ---- elements -------------------------------------------------------------------------------- */

static enum status characters(struct chat_arena *a, struct str *s, struct value *out,
                              struct err *e) {
    const char *bytes;
    TRY(str_flat(a, s, &bytes, e));
    TRY(value_list(a, LIST_LIST, str_count(bytes, s->n), out, e));
    for (int64_t i = 0, at = 0, length; at < s->n; at += length, i++) {
        str_code(bytes + at, s->n - at, &length);
        out->list->item[i] = VALUE(VALUE_STR);
        TRY(str_cut(a, s, at, at + length, &out->list->item[i].str, e));
    }
    return OK;
}

enum status value_elements(struct chat_arena *a, const struct value *v, struct list **list,
                           struct err *e) {
    struct value made = VALUE(VALUE_LIST);
    switch (v->kind) {
    case VALUE_LIST:
        *list = v->list;
        if (v->list->form != LIST_ITERATOR) return OK;
        if (!v->list->consumed) {
            v->list->consumed = true;
            return OK;
        }
        TRY(value_list(a, LIST_LIST, 0, &made, e));
        break;
    case VALUE_MAP:
        TRY(value_list(a, LIST_LIST, v->map->count, &made, e));
        for (int64_t i = 0; i < v->map->count; i++) made.list->item[i] = v->map->entry[i].key;
        break;
    case VALUE_STR: TRY(characters(a, v->str, &made, e)); break;
    case VALUE_UNDEFINED: TRY(value_list(a, LIST_LIST, 0, &made, e)); break;
    default: return FAIL(e, ERR_CONFIG, "%s has no elements", value_kind_name(v));
    }
    *list = made.list;
    return OK;
}

enum status value_length(struct chat_arena *a, const struct value *v, int64_t *n, struct err *e) {
    const char *bytes;
    switch (v->kind) {
    case VALUE_UNDEFINED: *n = 0; return OK;
    case VALUE_MAP: *n = v->map->count; return OK;
    case VALUE_STR:
        TRY(str_flat(a, v->str, &bytes, e));
        *n = str_count(bytes, v->str->n);
        return OK;
    case VALUE_LIST:
        if (v->list->form != LIST_ITERATOR) {
            *n = v->list->count;
            return OK;
        } /* fall through */
    default: return FAIL(e, ERR_CONFIG, "%s has no length", value_kind_name(v));
    }
}
