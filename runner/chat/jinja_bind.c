/* Finding a callable by its name, and binding arguments to its parameters. */
#include <string.h>

#include "runner/chat/jinja_run.h"

/* ---- finding --------------------------------------------------------------------------------- */

static const struct callable *find(const struct callable *rows, const char *name, int64_t n) {
    for (; rows->name; rows++)
        if ((int64_t)strlen(rows->name) == n && !memcmp(rows->name, name, (size_t)n)) return rows;
    return NULL;
}

const struct callable *jinja_filter(const char *name) {
    int64_t n = (int64_t)strlen(name);
    const struct callable *found = find(JINJA_TEXT_FILTERS, name, n);
    return found ? found : find(JINJA_LIST_FILTERS, name, n);
}

const struct callable *jinja_test(const char *name) {
    return find(JINJA_TESTS, name, (int64_t)strlen(name));
}

const struct callable *jinja_function(const char *name) {
    return find(JINJA_FUNCTIONS, name, (int64_t)strlen(name));
}

const struct callable *jinja_method(const struct value *self, const char *name, int64_t n) {
    if (self->kind == VALUE_STR) return find(JINJA_TEXT_METHODS, name, n);
    if (self->kind == VALUE_MAP) return find(JINJA_MAP_METHODS, name, n);
    if (self->kind == VALUE_LIST && self->list->form == LIST_LIST)
        return find(JINJA_LIST_METHODS, name, n);
    return NULL;
}

/* ---- binding --------------------------------------------------------------------------------- */

/* The index of a parameter among "a b c", or -1. */
static int parameter(const char *names, const char *name) {
    size_t n = strlen(name);
    for (int i = 0; *names; i++) {
        size_t length = strcspn(names, " ");
        if (length == n && !memcmp(names, name, n)) return i;
        names += length + (names[length] == ' ');
    }
    return -1;
}

static int parameter_count(const char *names) {
    int count = *names != 0;
    for (; *names; names++) count += *names == ' ';
    return count;
}

static enum status bind(struct call *c, const struct callable *f, struct err *e) {
    const struct arguments *all = c->all;
    int count = parameter_count(f->parameters);
    if (all->positional > count)
        return FAIL(e, ERR_CONFIG, "'%s' takes %d arguments, not %lld", f->name, count,
                    (long long)all->positional);
    for (int64_t i = 0; i < all->count; i++) {
        const char *name = i < all->positional ? NULL : all->names[i - all->positional];
        int at = name ? parameter(f->parameters, name) : (int)i;
        if (at < 0 || c->arg[at].kind != VALUE_ABSENT)
            return FAIL(e, ERR_CONFIG, "'%s' %s argument '%s'", f->name,
                        at < 0 ? "has no" : "gets twice its", name);
        c->arg[at] = all->value[i];
    }
    for (int i = 0; i < f->required; i++)
        if (c->arg[i].kind == VALUE_ABSENT)
            return FAIL(e, ERR_CONFIG, "'%s' needs %d argument%s", f->name, f->required,
                        f->required > 1 ? "s" : "");
    return OK;
}

enum status jinja_call(struct run *r, const struct node *at, const struct callable *f,
                       const struct value *self, const struct arguments *all, struct value *out,
                       struct err *e) {
    struct call c = { .run = r, .at = at, .name = f->name, .self = *self, .all = all };
    if (strcmp(f->parameters, "*") != 0) TRY(bind(&c, f, e));
    if (self->kind == VALUE_STR) TRY(run_steps(r, self->str->n / 64, e));
    *out = VALUE(VALUE_NONE);
    return f->body(&c, out, e);
}

/* ---- reading arguments ----------------------------------------------------------------------- */

static enum status wrong(const struct call *c, int i, const char *wanted, struct err *e) {
    return FAIL(e, ERR_CONFIG, "argument %d of '%s' must be %s, not %s", i + 1, c->name, wanted,
                value_kind_name(&c->arg[i]));
}

enum status call_int(const struct call *c, int i, int64_t otherwise, int64_t *out, struct err *e) {
    const struct value *v = &c->arg[i];
    *out = v->kind == VALUE_INT ? v->integer : v->kind == VALUE_BOOL ? v->boolean : otherwise;
    if (v->kind == VALUE_ABSENT || v->kind == VALUE_INT || v->kind == VALUE_BOOL) return OK;
    return wrong(c, i, "an integer", e);
}

bool call_bool(const struct call *c, int i, bool otherwise) {
    return c->arg[i].kind == VALUE_ABSENT ? otherwise : value_true(&c->arg[i]);
}

enum status call_str(const struct call *c, int i, struct str *otherwise, struct str **out,
                     struct err *e) {
    const struct value *v = &c->arg[i];
    *out = v->kind == VALUE_STR ? v->str : otherwise;
    if (v->kind == VALUE_STR || v->kind == VALUE_ABSENT) return OK;
    return wrong(c, i, "a string", e);
}
