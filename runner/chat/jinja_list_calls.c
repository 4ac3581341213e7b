/* Methods and filters of lists, mappings and numbers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runner/chat/jinja_run.h"

/* ---- mappings -------------------------------------------------------------------------------- */

static enum status pair(struct call *c, const struct entry *entry, struct value *out,
                        struct err *e) {
    TRY(value_list(c->run->arena, LIST_TUPLE, 2, out, e));
    out->origin = entry->value.origin;
    out->list->item[0] = entry->key;
    out->list->item[1] = entry->value;
    return OK;
}

static enum status items_as(struct call *c, enum list_form form, struct value *out,
                            struct err *e) {
    const struct map *m = c->self.map;
    TRY(run_steps(c->run, m->count, e));
    TRY(value_list(c->run->arena, form, m->count, out, e));
    for (int64_t i = 0; i < m->count; i++)
        TRY(pair(c, &m->entry[i], &out->list->item[i], e));
    return OK;
}

static enum status items_method(struct call *c, struct value *out, struct err *e) {
    return items_as(c, LIST_VIEW, out, e);
}

static enum status items_filter(struct call *c, struct value *out, struct err *e) {
    if (c->self.kind == VALUE_UNDEFINED) return value_list(c->run->arena, LIST_ITERATOR, 0, out, e);
    if (c->self.kind == VALUE_MAP) return items_as(c, LIST_ITERATOR, out, e);
    return FAIL(e, ERR_CONFIG, "'items' needs a mapping, not %s", value_kind_name(&c->self));
}

static enum status sides(struct call *c, bool keys, struct value *out, struct err *e) {
    const struct map *m = c->self.map;
    TRY(run_steps(c->run, m->count, e));
    TRY(value_list(c->run->arena, LIST_VIEW, m->count, out, e));
    for (int64_t i = 0; i < m->count; i++)
        out->list->item[i] = keys ? m->entry[i].key : m->entry[i].value;
    return OK;
}

static enum status keys_method(struct call *c, struct value *out, struct err *e) {
    return sides(c, true, out, e);
}

static enum status values_method(struct call *c, struct value *out, struct err *e) {
    return sides(c, false, out, e);
}

static enum status get(struct call *c, struct value *out, struct err *e) {
    const struct value *found = map_get(c->self.map, &c->arg[0], &c->run->steps);
    TRY(run_steps(c->run, 0, e));
    *out = found ? *found : c->arg[1].kind == VALUE_ABSENT ? VALUE(VALUE_NONE) : c->arg[1];
    return OK;
}

/* ---- order ----------------------------------------------------------------------------------- */

/* What an element is sorted by, and its place before. */
struct sorted {
    struct value key, item;
    int64_t at;
};

static int by_order(const void *a, const void *b) {
    const struct sorted *x = a, *y = b;
    struct err e;
    int order = 0;
    if (value_order(&x->key, &y->key, &order, &e) != OK || order == 0)
        return (x->at > y->at) - (x->at < y->at); /* stable; all pairs were checked before */
    return order;
}

/* Equal elements keep their order here too, as in Python. */
static int by_order_reversed(const void *a, const void *b) {
    const struct sorted *x = a, *y = b;
    struct err e;
    int order = 0;
    bool same = value_order(&x->key, &y->key, &order, &e) != OK || order == 0;
    return same ? by_order(a, b) : -order;
}

/* Letters compare as small ones unless case_sensitive. */
static enum status fold(struct call *c, struct value *key, bool case_sensitive, struct err *e) {
    if (case_sensitive || key->kind != VALUE_STR) return OK;
    struct value small;
    struct arguments all = { 0 };
    TRY(jinja_call(c->run, c->at, jinja_filter("lower"), key, &all, &small, e));
    *key = small;
    return OK;
}

static enum status sort_rows(struct call *c, struct sorted *row, int64_t count, bool reverse,
                             struct err *e) {
    int order;
    for (int64_t i = 0; i < count; i++)
        TRY(run_steps(c->run, 20 + 20 * value_cost(&row[i].key), e));
    for (int64_t i = 1; i < count; i++) TRY(value_order(&row[0].key, &row[i].key, &order, e));
    if (count > 1)
        qsort(row, (size_t)count, sizeof *row, reverse ? by_order_reversed : by_order);
    return OK;
}

static enum status dictsort(struct call *c, struct value *out, struct err *e) {
    struct sorted *row;
    struct str *by = NULL;
    if (c->self.kind != VALUE_MAP)
        return FAIL(e, ERR_CONFIG, "'dictsort' needs a mapping, not %s", value_kind_name(&c->self));
    const struct map *m = c->self.map;
    TRY(call_str(c, 1, NULL, &by, e));
    bool value = by && by->flat && by->n == 5 && !memcmp(by->flat, "value", 5);
    if (by && !value && !(by->flat && by->n == 3 && !memcmp(by->flat, "key", 3)))
        return FAIL(e, ERR_CONFIG, "dictsort: by must be 'key' or 'value'");
    TRY(chat_alloc(c->run->arena, m->count * (int64_t)sizeof *row, &row, e));
    for (int64_t i = 0; i < m->count; i++) {
        row[i] = (struct sorted){ .key = value ? m->entry[i].value : m->entry[i].key, .at = i };
        TRY(fold(c, &row[i].key, call_bool(c, 0, false), e));
        TRY(pair(c, &m->entry[i], &row[i].item, e));
    }
    TRY(sort_rows(c, row, m->count, call_bool(c, 2, false), e));
    TRY(value_list(c->run->arena, LIST_LIST, m->count, out, e));
    for (int64_t i = 0; i < m->count; i++) out->list->item[i] = row[i].item;
    return OK;
}

static enum status sort(struct call *c, struct value *out, struct err *e) {
    struct sorted *row;
    struct list *l;
    TRY(run_elements(c->run, &c->self, &l, e));
    TRY(chat_alloc(c->run->arena, l->count * (int64_t)sizeof *row, &row, e));
    for (int64_t i = 0; i < l->count; i++) {
        row[i] = (struct sorted){ .key = l->item[i], .item = l->item[i], .at = i };
        if (c->arg[2].kind != VALUE_ABSENT && c->arg[2].kind != VALUE_NONE)
            TRY(jinja_item(c->run, &l->item[i], &c->arg[2], &row[i].key, e));
        TRY(fold(c, &row[i].key, call_bool(c, 1, false), e));
    }
    TRY(sort_rows(c, row, l->count, call_bool(c, 0, false), e));
    TRY(value_list(c->run->arena, LIST_LIST, l->count, out, e));
    for (int64_t i = 0; i < l->count; i++) out->list->item[i] = row[i].item;
    return OK;
}

static enum status reverse(struct call *c, struct value *out, struct err *e) {
    struct list *l;
    struct str_builder b = { 0 };
    TRY(run_elements(c->run, &c->self, &l, e));
    if (c->self.kind == VALUE_STR) {
        for (int64_t i = l->count; i-- > 0;)
            TRY(str_add(c->run->arena, &b, l->item[i].str, e));
        *out = VALUE(VALUE_STR);
        return str_finish(c->run->arena, &b, &out->str, e);
    }
    TRY(value_list(c->run->arena, LIST_ITERATOR, l->count, out, e));
    for (int64_t i = 0; i < l->count; i++) out->list->item[i] = l->item[l->count - 1 - i];
    return OK;
}

/* ---- choosing and mapping -------------------------------------------------------------------- */

/* A dotted path of attributes: "function.name". */
static enum status attribute_path(struct call *c, const struct value *v, const struct value *path,
                                  struct value *out, struct err *e) {
    const char *bytes;
    *out = *v;
    if (path->kind != VALUE_STR) return jinja_item(c->run, v, path, out, e);
    TRY(str_flat(c->run->arena, path->str, &bytes, e));
    for (int64_t at = 0; at <= path->str->n;) {
        struct value name, next;
        int64_t end = str_find(bytes, path->str->n, at, ".", 1);
        if (end < 0) end = path->str->n;
        TRY(value_text(c->run->arena, bytes + at, end - at, &name, e));
        TRY(jinja_item(c->run, out, &name, &next, e));
        *out = next;
        at = end + 1;
    }
    return OK;
}

/* The callable that an argument names. */
static enum status named(struct call *c, const struct value *v, bool test,
                         const struct callable **out, struct err *e) {
    const char *bytes = "";
    char name[64] = "";
    if (v->kind != VALUE_STR)
        return FAIL(e, ERR_CONFIG, "'%s' needs the name of a %s, not %s", c->name,
                    test ? "test" : "filter", value_kind_name(v));
    TRY(str_flat(c->run->arena, v->str, &bytes, e));
    if (v->str->n < (int64_t)sizeof name) memcpy(name, bytes, (size_t)v->str->n);
    *out = test ? jinja_test(name) : jinja_filter(name);
    if (*out) return OK;
    return FAIL(e, ERR_UNSUPPORTED, "the %s '%.*s' is not supported", test ? "test" : "filter",
                (int)(v->str->n < 60 ? v->str->n : 60), bytes);
}

/* The arguments from the `skip`th positional one on. */
static struct arguments rest(const struct call *c, int64_t skip) {
    struct arguments all = *c->all;
    if (skip > all.positional) skip = all.positional;
    all.value += skip;
    all.count -= skip;
    all.positional -= skip;
    return all;
}

/* select(test, ...), reject, and by an attribute selectattr and rejectattr. */
static enum status choose(struct call *c, bool attribute, bool wanted, struct value *out,
                          struct err *e) {
    const struct callable *test = NULL;
    const struct arguments *all = c->all;
    struct list *l;
    if (all->count != all->positional)
        return FAIL(e, ERR_UNSUPPORTED, "'%s' takes no named arguments", c->name);
    if (attribute && all->count < 1) return FAIL(e, ERR_CONFIG, "'%s' needs an attribute", c->name);
    if (all->count > attribute) TRY(named(c, &all->value[attribute], true, &test, e));
    struct arguments more = rest(c, attribute + 1);
    TRY(run_elements(c->run, &c->self, &l, e));
    TRY(value_list(c->run->arena, LIST_ITERATOR, l->count, out, e));
    out->list->count = 0;
    for (int64_t i = 0; i < l->count; i++) {
        struct value v = l->item[i], holds;
        if (attribute) TRY(attribute_path(c, &l->item[i], &all->value[0], &v, e));
        holds = v;
        if (test) TRY(jinja_call(c->run, c->at, test, &v, &more, &holds, e));
        if (value_true(&holds) == wanted) out->list->item[out->list->count++] = l->item[i];
    }
    return OK;
}

static enum status select_filter(struct call *c, struct value *out, struct err *e) {
    return choose(c, false, true, out, e);
}

static enum status reject(struct call *c, struct value *out, struct err *e) {
    return choose(c, false, false, out, e);
}

static enum status selectattr(struct call *c, struct value *out, struct err *e) {
    return choose(c, true, true, out, e);
}

static enum status rejectattr(struct call *c, struct value *out, struct err *e) {
    return choose(c, true, false, out, e);
}

/* map(filter, ...) and map(attribute=..., default=...). */
static enum status map(struct call *c, struct value *out, struct err *e) {
    const struct arguments *all = c->all;
    const struct value *attribute = NULL, *otherwise = NULL;
    const struct callable *filter = NULL;
    struct list *l;
    for (int64_t i = all->positional; i < all->count && all->positional == 0; i++) {
        const char *name = all->names[i - all->positional];
        if (!strcmp(name, "attribute")) attribute = &all->value[i];
        else if (!strcmp(name, "default")) otherwise = &all->value[i];
        else return FAIL(e, ERR_CONFIG, "'map' has no argument '%s'", name);
    }
    if (!attribute && all->positional < 1)
        return FAIL(e, ERR_CONFIG, "'map' needs a filter or an attribute");
    if (!attribute) TRY(named(c, &all->value[0], false, &filter, e));
    struct arguments more = rest(c, 1);
    TRY(run_elements(c->run, &c->self, &l, e));
    TRY(value_list(c->run->arena, LIST_ITERATOR, l->count, out, e));
    for (int64_t i = 0; i < l->count; i++) {
        struct value *to = &out->list->item[i];
        if (attribute) TRY(attribute_path(c, &l->item[i], attribute, to, e));
        else TRY(jinja_call(c->run, c->at, filter, &l->item[i], &more, to, e));
        if (attribute && otherwise && to->kind == VALUE_UNDEFINED) *to = *otherwise;
    }
    return OK;
}

/* ---- elements -------------------------------------------------------------------------------- */

static enum status length(struct call *c, struct value *out, struct err *e) {
    *out = VALUE(VALUE_INT);
    return value_length(c->run->arena, &c->self, &out->integer, e);
}

static enum status list(struct call *c, struct value *out, struct err *e) {
    struct list *l;
    TRY(run_elements(c->run, &c->self, &l, e));
    TRY(value_list(c->run->arena, LIST_LIST, l->count, out, e));
    out->origin = c->self.origin;
    for (int64_t i = 0; i < l->count; i++) out->list->item[i] = l->item[i];
    return OK;
}

static enum status end_of(struct call *c, bool front, struct value *out, struct err *e) {
    struct list *l;
    TRY(run_elements(c->run, &c->self, &l, e));
    *out = VALUE(VALUE_UNDEFINED);
    if (l->count) *out = l->item[front ? 0 : l->count - 1];
    return OK;
}

static enum status first(struct call *c, struct value *out, struct err *e) {
    return end_of(c, true, out, e);
}

static enum status last(struct call *c, struct value *out, struct err *e) {
    return end_of(c, false, out, e);
}

static enum status unique(struct call *c, struct value *out, struct err *e) {
    struct list *l;
    TRY(run_elements(c->run, &c->self, &l, e));
    TRY(value_list(c->run->arena, LIST_ITERATOR, l->count, out, e));
    int64_t *count = &out->list->count;
    *count = 0;
    for (int64_t i = 0; i < l->count; i++) {
        bool seen = false;
        struct value key = l->item[i];
        TRY(run_steps(c->run, *count, e));
        TRY(fold(c, &key, call_bool(c, 0, false), e));
        for (int64_t k = 0; k < *count && !seen; k++) {
            struct value other = out->list->item[k];
            TRY(fold(c, &other, call_bool(c, 0, false), e));
            seen = value_equal(&key, &other, &c->run->steps);
        }
        if (!seen) out->list->item[(*count)++] = l->item[i];
    }
    return OK;
}

static enum status list_index(struct call *c, struct value *out, struct err *e) {
    for (int64_t i = 0; i < c->self.list->count; i++)
        if (value_equal(&c->self.list->item[i], &c->arg[0], &c->run->steps)) {
            *out = VALUE(VALUE_INT, .integer = i);
            return OK;
        }
    return FAIL(e, ERR_CONFIG, "index: the value is not in the list");
}

static enum status list_count(struct call *c, struct value *out, struct err *e) {
    (void)e;
    *out = VALUE(VALUE_INT);
    for (int64_t i = 0; i < c->self.list->count; i++)
        out->integer += value_equal(&c->self.list->item[i], &c->arg[0], &c->run->steps);
    return OK;
}

/* ---- numbers and defaults -------------------------------------------------------------------- */

static enum status default_filter(struct call *c, struct value *out, struct err *e) {
    bool missing = c->self.kind == VALUE_UNDEFINED ||
                   (call_bool(c, 1, false) && !value_true(&c->self));
    *out = c->self;
    if (!missing) return OK;
    *out = c->arg[0];
    return out->kind == VALUE_ABSENT ? value_text(c->run->arena, "", 0, out, e) : OK;
}

/* A string as a number; white space around it is allowed. */
static enum status parse_number(struct call *c, bool *is_number, double *real, int64_t *integer,
                                bool *whole, struct err *e) {
    struct str *s;
    const char *bytes;
    char form[64], *end;
    *is_number = false;
    TRY(str_strip(c->run->arena, c->self.str, NULL, true, true, &s, e));
    TRY(str_flat(c->run->arena, s, &bytes, e));
    if (s->n == 0 || s->n >= (int64_t)sizeof form) return OK;
    for (int64_t i = 0; i < s->n; i++)
        if (!strchr("0123456789+-.eE", bytes[i]) || !bytes[i]) return OK;
    memcpy(form, bytes, (size_t)s->n);
    form[s->n] = 0;
    *whole = !strpbrk(form, ".eE");
    *real = strtod(form, &end);
    *is_number = !*end;
    *integer = *whole ? strtoll(form, NULL, 10) : 0;
    return OK;
}

static enum status int_filter(struct call *c, struct value *out, struct err *e) {
    int64_t otherwise, integer = 0;
    double real = 0;
    bool number = value_is_number(&c->self), whole = false;
    TRY(call_int(c, 0, 0, &otherwise, e));
    *out = VALUE(VALUE_INT, .integer = otherwise);
    if (number && c->self.kind != VALUE_REAL) {
        out->integer = c->self.kind == VALUE_INT ? c->self.integer : c->self.boolean;
        return OK;
    }
    if (number) real = c->self.real;
    if (c->self.kind == VALUE_STR) TRY(parse_number(c, &number, &real, &integer, &whole, e));
    if (number && !whole && isfinite(real) && fabs(real) >= 0x1p63)
        return FAIL(e, ERR_UNSUPPORTED, "an integer of more than 64 bits is not supported");
    if (number && (whole || isfinite(real))) out->integer = whole ? integer : (int64_t)real;
    return OK;
}

static enum status float_filter(struct call *c, struct value *out, struct err *e) {
    int64_t integer;
    double real = 0;
    bool number = value_is_number(&c->self), whole;
    if (number) real = value_real(&c->self);
    if (c->self.kind == VALUE_STR) TRY(parse_number(c, &number, &real, &integer, &whole, e));
    *out = VALUE(VALUE_REAL, .real = real);
    if (!number && c->arg[0].kind != VALUE_ABSENT) *out = c->arg[0];
    return OK;
}

static enum status abs_filter(struct call *c, struct value *out, struct err *e) {
    struct value zero = VALUE(VALUE_INT);
    int order;
    *out = c->self;
    if (c->self.kind == VALUE_BOOL) *out = VALUE(VALUE_INT, .integer = c->self.boolean);
    TRY(value_order(&c->self, &zero, &order, e));
    return order < 0 ? jinja_binary(c->run, "-", &zero, &c->self, out, e) : OK;
}

const struct callable JINJA_LIST_FILTERS[] = {
    { "length", "", 0, length },
    { "count", "", 0, length },
    { "items", "", 0, items_filter },
    { "list", "", 0, list },
    { "first", "", 0, first },
    { "last", "", 0, last },
    { "reverse", "", 0, reverse },
    { "sort", "reverse case_sensitive attribute", 0, sort },
    { "unique", "case_sensitive", 0, unique },
    { "dictsort", "case_sensitive by reverse", 0, dictsort },
    { "map", "*", 0, map },
    { "select", "*", 0, select_filter },
    { "reject", "*", 0, reject },
    { "selectattr", "*", 0, selectattr },
    { "rejectattr", "*", 0, rejectattr },
    { "default", "default_value boolean", 0, default_filter },
    { "d", "default_value boolean", 0, default_filter },
    { "int", "default", 0, int_filter },
    { "float", "default", 0, float_filter },
    { "abs", "", 0, abs_filter },
    { .name = NULL },
};

const struct callable JINJA_MAP_METHODS[] = {
    { "items", "", 0, items_method },
    { "keys", "", 0, keys_method },
    { "values", "", 0, values_method },
    { "get", "key default", 1, get },
    /* Python has these too; Jinja's sandbox forbids those that change the mapping. */
    { .name = "clear" }, { .name = "copy" }, { .name = "fromkeys" }, { .name = "pop" },
    { .name = "popitem" }, { .name = "setdefault" }, { .name = "update" },
    { .name = NULL },
};

const struct callable JINJA_LIST_METHODS[] = {
    { "index", "value", 1, list_index },
    { "count", "value", 1, list_count },
    { .name = "append" }, { .name = "clear" }, { .name = "copy" }, { .name = "extend" },
    { .name = "insert" }, { .name = "pop" }, { .name = "remove" }, { .name = "reverse" },
    { .name = "sort" },
    { .name = NULL },
};
