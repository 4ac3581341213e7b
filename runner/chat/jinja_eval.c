#include <string.h>

#include "runner/chat/jinja_run.h"

static enum status eval(struct run *r, const struct node *node, struct value *out, struct err *e) {
    return jinja_eval(r, node, out, e);
}

/* ---- names ----------------------------------------------------------------------------------- */

const struct value *run_find(const struct run *r, const char *name) {
    for (const struct scope *s = r->scope; s; s = s->parent)
        for (int64_t i = s->count; i-- > 0;)
            if (s->binding[i].name == name || !strcmp(s->binding[i].name, name))
                return &s->binding[i].value;
    return NULL;
}

static enum status name(struct run *r, const struct node *node, struct value *out) {
    const struct value *found = run_find(r, node->name);
    const struct callable *function = found ? NULL : jinja_function(node->name);
    if (function && !r->date && !strcmp(node->name, "strftime_now")) function = NULL;
    if (found) *out = *found;
    else if (function) *out = VALUE(VALUE_FUNCTION, .function = function);
    else *out = VALUE(VALUE_UNDEFINED, .name = node->name);
    return OK;
}

/* ---- parts of values ------------------------------------------------------------------------- */

static enum status undefined_error(const struct value *v, struct err *e) {
    return FAIL(e, ERR_CONFIG, "%s%s%s is undefined", v->name ? "'" : "", v->name ? v->name :
                "a value", v->name ? "'" : "");
}

static enum status loop_attribute(const struct loop *l, const char *name_, struct value *out,
                                  struct err *e) {
    int64_t left = l->list->count - l->index;
    const struct { const char *name; int64_t value; } NUMBERS[] = {
        { "index", l->index + 1 },    { "index0", l->index },      { "revindex", left },
        { "revindex0", left - 1 },    { "length", l->list->count }, { "depth", 1 },
        { "depth0", 0 }, /* only recursive loops, which are rejected, have more */
    };
    for (size_t i = 0; i < sizeof NUMBERS / sizeof *NUMBERS; i++)
        if (!strcmp(name_, NUMBERS[i].name)) {
            *out = VALUE(VALUE_INT, .integer = NUMBERS[i].value);
            return OK;
        }
    bool first = !strcmp(name_, "first"), previous = !strcmp(name_, "previtem");
    if (first || !strcmp(name_, "last")) {
        *out = VALUE(VALUE_BOOL, .boolean = first ? l->index == 0 : left == 1);
        return OK;
    }
    if (!previous && strcmp(name_, "nextitem") != 0)
        return FAIL(e, ERR_UNSUPPORTED, "loop.%s is not supported", name_);
    int64_t at = l->index + (previous ? -1 : 1);
    *out = VALUE(VALUE_UNDEFINED, .name = previous ? "loop.previtem" : "loop.nextitem");
    if (at >= 0 && at < l->list->count) *out = l->list->item[at];
    return OK;
}

static enum status method(struct run *r, const struct value *v, const char *name_, int64_t n,
                          struct value *out, struct err *e) {
    const struct callable *found = jinja_method(v, name_, n);
    if (!found) return OK;
    if (!found->body)
        return FAIL(e, ERR_UNSUPPORTED, "the method '%s' of %s is not supported", found->name,
                    value_kind_name(v));
    *out = VALUE(VALUE_METHOD);
    TRY(chat_alloc(r->arena, sizeof *out->method, &out->method, e));
    *out->method = (struct method){ found, *v };
    return OK;
}

enum status jinja_attribute(struct run *r, const struct value *v, const char *name_,
                            struct value *out, struct err *e) {
    *out = VALUE(VALUE_UNDEFINED, .name = name_);
    if (v->kind == VALUE_UNDEFINED) return undefined_error(v, e);
    if (v->kind == VALUE_LOOP) return loop_attribute(v->loop, name_, out, e);
    if (v->kind == VALUE_MAP || v->kind == VALUE_NAMESPACE) {
        if (v->kind == VALUE_MAP) TRY(method(r, v, name_, (int64_t)strlen(name_), out, e));
        const struct value *found = map_get_text(v->map, name_, &r->steps);
        if (found && out->kind == VALUE_UNDEFINED) *out = *found;
        return run_steps(r, 0, e);
    }
    return method(r, v, name_, (int64_t)strlen(name_), out, e);
}

enum status jinja_item(struct run *r, const struct value *v, const struct value *index,
                       struct value *out, struct err *e) {
    const char *bytes = NULL;
    *out = VALUE(VALUE_UNDEFINED);
    if (v->kind == VALUE_UNDEFINED) return undefined_error(v, e);
    if (index->kind == VALUE_STR) TRY(str_flat(r->arena, index->str, &bytes, e));
    if (v->kind == VALUE_MAP || v->kind == VALUE_NAMESPACE) {
        const struct value *found = map_get(v->map, index, &r->steps);
        TRY(run_steps(r, 0, e));
        if (found) *out = *found;
        if (found) return OK;
    }
    if (bytes) return method(r, v, bytes, index->str->n, out, e);
    if (index->kind != VALUE_INT && index->kind != VALUE_BOOL) return OK;
    int64_t at = index->kind == VALUE_INT ? index->integer : index->boolean, count;
    if (v->kind == VALUE_LIST && v->list->form != LIST_ITERATOR && v->list->form != LIST_VIEW) {
        if (at < 0) at += v->list->count;
        if (at >= 0 && at < v->list->count) *out = v->list->item[at];
    } else if (v->kind == VALUE_STR) {
        TRY(run_steps(r, v->str->n / 64, e));
        TRY(str_flat(r->arena, v->str, &bytes, e));
        count = str_count(bytes, v->str->n);
        if (at < 0) at += count;
        if (at < 0 || at >= count) return OK;
        int64_t begin = str_offset(bytes, v->str->n, at), length;
        str_code(bytes + begin, v->str->n - begin, &length);
        *out = VALUE(VALUE_STR);
        return str_cut(r->arena, v->str, begin, begin + length, &out->str, e);
    }
    return OK;
}

/* ---- slices ---------------------------------------------------------------------------------- */

/* A bound or the step: an integer. It may be missing or none; then *given is false. */
static enum status slice_part(struct run *r, const struct node *node, const char *what, bool *given,
                              int64_t *out, struct err *e) {
    struct value v = VALUE(VALUE_NONE);
    if (node) TRY(eval(r, node, &v, e));
    *given = v.kind != VALUE_NONE;
    if (!*given) return OK;
    if (v.kind != VALUE_INT && v.kind != VALUE_BOOL)
        return FAIL(e, ERR_CONFIG, "%s cannot be the %s of a slice", value_kind_name(&v), what);
    *out = v.kind == VALUE_INT ? v.integer : v.boolean;
    return OK;
}

/* Python's slice.indices for one bound. */
static enum status bound(struct run *r, const struct node *node, int64_t count, int64_t step,
                         bool end, int64_t *out, struct err *e) {
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? count - 1 : count, at = 0;
    bool given;
    TRY(slice_part(r, node, "bound", &given, &at, e));
    if (at < 0) at = at < -count ? low : at + count;
    *out = at < low ? low : at > high ? high : at;
    if (!given) *out = (step < 0) == end ? low : high;
    return OK;
}

/* The step, within the length either way: the elements are the same, and nothing overflows. */
static enum status slice_step(struct run *r, const struct node *node, int64_t length, int64_t *step,
                              struct err *e) {
    int64_t most = length ? length : 1;
    bool given;
    *step = 1;
    TRY(slice_part(r, node, "step", &given, step, e));
    if (*step == 0) return FAIL(e, ERR_CONFIG, "the step of a slice is 0");
    if (*step > most) *step = most;
    if (*step < -most) *step = -most;
    return OK;
}

static enum status check_sliced(const struct value *v, struct err *e) {
    if (v->kind == VALUE_UNDEFINED) return undefined_error(v, e);
    if (v->kind == VALUE_LIST && (v->list->form == LIST_ITERATOR || v->list->form == LIST_VIEW))
        return FAIL(e, ERR_CONFIG, "an iterator cannot be sliced; apply the filter 'list'");
    if (v->kind == VALUE_LIST || v->kind == VALUE_STR) return OK;
    return FAIL(e, ERR_CONFIG, "%s cannot be sliced", value_kind_name(v));
}

static enum status slice_str(struct run *r, struct str *s, int64_t begin, int64_t count,
                             int64_t step, struct value *out, struct err *e) {
    struct str_builder b = { 0 };
    const char *bytes;
    TRY(str_flat(r->arena, s, &bytes, e));
    *out = VALUE(VALUE_STR);
    if (count == 0) return str_cut(r->arena, s, 0, 0, &out->str, e);
    if (step == 1) {
        int64_t from = str_offset(bytes, s->n, begin);
        int64_t to = from + str_offset(bytes + from, s->n - from, count);
        return str_cut(r->arena, s, from, to, &out->str, e);
    }
    struct value all = VALUE(VALUE_STR, .str = s);
    struct list *list;
    TRY(run_elements(r, &all, &list, e));
    for (int64_t i = 0; i < count; i++)
        TRY(str_add(r->arena, &b, list->item[begin + i * step].str, e));
    return str_finish(r->arena, &b, &out->str, e);
}

static enum status slice(struct run *r, const struct node *node, struct value *out,
                         struct err *e) {
    struct value v;
    int64_t length, begin, end, step;
    TRY(eval(r, node->left, &v, e));
    TRY(check_sliced(&v, e));
    TRY(value_length(r->arena, &v, &length, e));
    TRY(slice_step(r, node->item[2], length, &step, e));
    TRY(bound(r, node->item[0], length, step, false, &begin, e));
    TRY(bound(r, node->item[1], length, step, true, &end, e));
    int64_t count = step > 0 ? (end > begin ? (end - begin - 1) / step + 1 : 0)
                             : (begin > end ? (begin - end - 1) / -step + 1 : 0);
    TRY(run_steps(r, count, e));
    if (v.kind == VALUE_STR) return slice_str(r, v.str, begin, count, step, out, e);
    TRY(value_list(r->arena, v.list->form, count, out, e));
    for (int64_t i = 0; i < count; i++) out->list->item[i] = v.list->item[begin + i * step];
    return OK;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static enum status arguments(struct run *r, const struct node *node, struct arguments *all,
                             struct err *e) {
    *all = (struct arguments){ .count = node->count, .positional = node->count - node->name_count,
                               .names = node->names };
    TRY(chat_alloc(r->arena, node->count * (int64_t)sizeof *all->value, &all->value, e));
    for (int64_t i = 0; i < node->count; i++) TRY(eval(r, node->item[i], &all->value[i], e));
    return OK;
}

static enum status call(struct run *r, const struct node *node, struct value *out, struct err *e) {
    struct value callee, nothing = VALUE(VALUE_NONE);
    struct arguments all;
    TRY(eval(r, node->left, &callee, e));
    TRY(arguments(r, node, &all, e));
    switch (callee.kind) {
    case VALUE_MACRO: return jinja_call_macro(r, callee.macro, &all, out, e);
    case VALUE_FUNCTION: return jinja_call(r, node, callee.function, &nothing, &all, out, e);
    case VALUE_METHOD:
        return jinja_call(r, node, callee.method->callable, &callee.method->self, &all, out, e);
    case VALUE_UNDEFINED: return undefined_error(&callee, e);
    default: return FAIL(e, ERR_CONFIG, "%s cannot be called", value_kind_name(&callee));
    }
}

static enum status filter_or_test(struct run *r, const struct node *node, struct value *out,
                                  struct err *e) {
    struct value self = r->filtered;
    struct arguments all;
    if (node->left) TRY(eval(r, node->left, &self, e));
    TRY(arguments(r, node, &all, e));
    return jinja_call(r, node, node->callable, &self, &all, out, e);
}

/* ---- operators ------------------------------------------------------------------------------- */

static enum status compare_one(struct run *r, const char *sign, const struct value *x,
                               const struct value *y, bool *out, struct err *e) {
    int order;
    if (!strcmp(sign, "in") || !strcmp(sign, "not in")) {
        TRY(jinja_contains(r, x, y, out, e));
        *out ^= *sign == 'n';
        return OK;
    }
    if (sign[1] == '=' && (*sign == '=' || *sign == '!')) {
        *out = value_equal(x, y, &r->steps) ^ (*sign == '!');
        return OK;
    }
    if (x->kind == VALUE_UNDEFINED) return undefined_error(x, e);
    if (y->kind == VALUE_UNDEFINED) return undefined_error(y, e);
    TRY(value_order(x, y, &order, e));
    *out = *sign == '<' ? order < 0 : order > 0;
    if (sign[1] == '=') *out |= order == 0;
    return OK;
}

static enum status compare(struct run *r, const struct node *node, struct value *out,
                           struct err *e) {
    struct value x, y;
    bool holds = true;
    TRY(eval(r, node->left, &x, e));
    for (int64_t i = 0; i < node->count && holds; i++) {
        TRY(eval(r, node->item[i], &y, e));
        TRY(run_steps(r, value_cost(&x), e));
        TRY(compare_one(r, node->names[i], &x, &y, &holds, e));
        x = y;
    }
    *out = VALUE(VALUE_BOOL, .boolean = holds);
    return OK;
}

static enum status sign(struct run *r, const struct node *node, struct value *out, struct err *e) {
    struct value v, zero = VALUE(VALUE_INT);
    TRY(eval(r, node->left, &v, e));
    if (v.kind == VALUE_UNDEFINED) return undefined_error(&v, e);
    if (!value_is_number(&v))
        return FAIL(e, ERR_CONFIG, "%s has no sign", value_kind_name(&v));
    if (v.kind == VALUE_REAL && node->kind == NODE_MINUS) {
        *out = VALUE(VALUE_REAL, .real = -v.real);
        return OK;
    }
    return jinja_binary(r, node->kind == NODE_MINUS ? "-" : "+", &zero, &v, out, e);
}

static enum status logical(struct run *r, const struct node *node, struct value *out,
                           struct err *e) {
    TRY(eval(r, node->left, out, e));
    if (value_true(out) == (node->kind == NODE_AND)) return eval(r, node->right, out, e);
    return OK;
}

static enum status choice(struct run *r, const struct node *node, struct value *out,
                          struct err *e) {
    struct value condition;
    TRY(eval(r, node->left, &condition, e));
    if (value_true(&condition)) return eval(r, node->right, out, e);
    if (node->third) return eval(r, node->third, out, e);
    *out = VALUE(VALUE_UNDEFINED);
    return OK;
}

static enum status binary(struct run *r, const struct node *node, struct value *out,
                          struct err *e) {
    struct value x, y;
    TRY(eval(r, node->left, &x, e));
    TRY(eval(r, node->right, &y, e));
    if (x.kind == VALUE_UNDEFINED) return undefined_error(&x, e);
    if (y.kind == VALUE_UNDEFINED) return undefined_error(&y, e);
    return jinja_binary(r, node->name, &x, &y, out, e);
}

static enum status concat(struct run *r, const struct node *node, struct value *out,
                          struct err *e) {
    struct str_builder b = { 0 };
    for (int64_t i = 0; i < node->count; i++) {
        struct value v;
        struct str *s;
        TRY(eval(r, node->item[i], &v, e));
        TRY(jinja_str(r, &v, &s, e));
        TRY(run_steps(r, s->count, e));
        TRY(str_add(r->arena, &b, s, e));
    }
    *out = VALUE(VALUE_STR);
    return str_finish(r->arena, &b, &out->str, e);
}

/* ---- literals -------------------------------------------------------------------------------- */

static enum status list(struct run *r, const struct node *node, struct value *out, struct err *e) {
    struct value made;
    TRY(value_list(r->arena, node->kind == NODE_LIST ? LIST_LIST : LIST_TUPLE, node->count, &made,
                   e));
    for (int64_t i = 0; i < node->count; i++)
        TRY(eval(r, node->item[i], &made.list->item[i], e));
    *out = made;
    return OK;
}

static enum status dict(struct run *r, const struct node *node, struct value *out, struct err *e) {
    struct value made = VALUE(VALUE_MAP), key, value;
    TRY(chat_alloc(r->arena, sizeof *made.map, &made.map, e));
    for (int64_t i = 0; i < node->count; i += 2) {
        TRY(eval(r, node->item[i], &key, e));
        TRY(eval(r, node->item[i + 1], &value, e));
        if (key.kind == VALUE_LIST || key.kind >= VALUE_MAP || key.kind == VALUE_UNDEFINED)
            return FAIL(e, ERR_UNSUPPORTED, "%s cannot be a key", value_kind_name(&key));
        TRY(map_put(r->arena, made.map, &key, &value, &r->steps, e));
        TRY(run_steps(r, 0, e));
    }
    *out = made;
    return OK;
}

/* ---- one node -------------------------------------------------------------------------------- */

static enum status eval_node(struct run *r, const struct node *node, struct value *out,
                             struct err *e) {
    struct value x, y;
    switch (node->kind) {
    case NODE_CONSTANT: *out = node->constant; return OK;
    case NODE_NAME: return name(r, node, out);
    case NODE_ATTRIBUTE:
        TRY(eval(r, node->left, &x, e));
        return jinja_attribute(r, &x, node->name, out, e);
    case NODE_ITEM:
        TRY(eval(r, node->left, &x, e));
        TRY(eval(r, node->right, &y, e));
        return jinja_item(r, &x, &y, out, e);
    case NODE_SLICE: return slice(r, node, out, e);
    case NODE_CALL: return call(r, node, out, e);
    case NODE_FILTER:
    case NODE_TEST: return filter_or_test(r, node, out, e);
    case NODE_NOT:
        TRY(eval(r, node->left, &x, e));
        *out = VALUE(VALUE_BOOL, .boolean = !value_true(&x));
        return OK;
    case NODE_MINUS:
    case NODE_PLUS: return sign(r, node, out, e);
    case NODE_BINARY: return binary(r, node, out, e);
    case NODE_AND:
    case NODE_OR: return logical(r, node, out, e);
    case NODE_COMPARE: return compare(r, node, out, e);
    case NODE_CONCAT: return concat(r, node, out, e);
    case NODE_CHOICE: return choice(r, node, out, e);
    case NODE_LIST:
    case NODE_TUPLE: return list(r, node, out, e);
    case NODE_DICT: return dict(r, node, out, e);
    default: return FAIL(e, ERR_CONFIG, "a statement cannot stand in an expression");
    }
}

enum status jinja_eval(struct run *r, const struct node *node, struct value *out, struct err *e) {
    enum status st = run_enter(r, e);
    if (st == OK) st = eval_node(r, node, out, e);
    r->depth--;
    return run_place(r, node, st, e);
}
