#include <math.h>
#include <string.h>

#include "runner/chat/jinja_run.h"

/* ---- numbers --------------------------------------------------------------------------------- */

static enum status too_large(struct err *e) {
    return FAIL(e, ERR_UNSUPPORTED, "an integer of more than 64 bits is not supported");
}

static enum status by_zero(struct err *e) { return FAIL(e, ERR_CONFIG, "division by zero"); }

/* Rounds towards minus infinity, as in Python. y is not 0, and x / y has 64 bits. */
static int64_t floor_div(int64_t x, int64_t y) {
    return x / y - (x % y != 0 && (x < 0) != (y < 0));
}

static enum status power(int64_t x, int64_t y, struct value *out, struct err *e) {
    int64_t product = 1;
    if (y < 0) {
        *out = VALUE(VALUE_REAL, .real = pow((double)x, (double)y));
        return x == 0 ? by_zero(e) : OK;
    }
    for (; y > 0; y--) {
        if (x == 0 || x == 1) y = 1;
        if (x == -1 && y > 2) y = 2 - y % 2;
        if (__builtin_mul_overflow(product, x, &product)) return too_large(e);
    }
    *out = VALUE(VALUE_INT, .integer = product);
    return OK;
}

static enum status integers(const char *sign, int64_t x, int64_t y, struct value *out,
                            struct err *e) {
    int64_t z = 0;
    bool over = false;
    if (!strcmp(sign, "**")) return power(x, y, out, e);
    if (!strcmp(sign, "//")) {
        if (y == 0) return by_zero(e);
        over = x == INT64_MIN && y == -1;
        if (!over) z = floor_div(x, y);
    } else if (*sign == '%') {
        if (y == 0) return by_zero(e);
        if (y != -1) z = x - floor_div(x, y) * y;
    } else if (*sign == '+') {
        over = __builtin_add_overflow(x, y, &z);
    } else if (*sign == '-') {
        over = __builtin_sub_overflow(x, y, &z);
    } else if (*sign == '*') {
        over = __builtin_mul_overflow(x, y, &z);
    } else {
        if (y == 0) return by_zero(e);
        *out = VALUE(VALUE_REAL, .real = (double)x / (double)y);
        return OK;
    }
    *out = VALUE(VALUE_INT, .integer = z);
    return over ? too_large(e) : OK;
}

/* As CPython: x - rest is divided, because x / y may round up to a whole number. The rest has the
 * sign of y. */
static double real_floor_div(double x, double y, double *rest) {
    double mod = fmod(x, y), quotient = (x - mod) / y;
    bool other_sign = mod != 0 && (mod < 0) != (y < 0);
    *rest = mod == 0 ? copysign(0, y) : other_sign ? mod + y : mod;
    if (other_sign) quotient -= 1;
    double whole = floor(quotient);
    if (quotient == 0) return copysign(0, x / y);
    return quotient - whole > 0.5 ? whole + 1 : whole;
}

static enum status reals(const char *sign, double x, double y, struct value *out, struct err *e) {
    double z, rest = 0;
    bool power = !strcmp(sign, "**"), divides = *sign == '/' || *sign == '%';
    if (y == 0 ? divides : power && x == 0 && y < 0) return by_zero(e);
    double whole = divides ? real_floor_div(x, y, &rest) : 0;
    if (power) z = pow(x, y);
    else if (!strcmp(sign, "//")) z = whole;
    else if (*sign == '%') z = rest;
    else z = *sign == '+' ? x + y : *sign == '-' ? x - y : *sign == '*' ? x * y : x / y;
    *out = VALUE(VALUE_REAL, .real = z);
    return OK;
}

/* ---- strings and lists ----------------------------------------------------------------------- */

/* Python's Markup escapes HTML in a plain string that is added to it. */
static bool would_escape(const struct str *safe, struct str *plain) {
    if (!safe->safe || plain->safe) return false;
    for (int64_t i = 0; i < plain->count; i++)
        for (int64_t k = 0; k < plain->pieces[i].n; k++)
            if (memchr("&<>'\"", plain->pieces[i].bytes[k], 5)) return true;
    return false;
}

static enum status add_strings(struct run *r, struct str *x, struct str *y, struct value *out,
                               struct err *e) {
    struct str_builder b = { 0 };
    if (would_escape(x, y) || would_escape(y, x))
        return FAIL(e, ERR_UNSUPPORTED, "adding to a string that the filter 'safe' returned would "
                    "escape HTML, which is not supported");
    TRY(run_steps(r, x->count + y->count, e));
    TRY(str_add(r->arena, &b, x, e));
    TRY(str_add(r->arena, &b, y, e));
    *out = VALUE(VALUE_STR);
    TRY(str_finish(r->arena, &b, &out->str, e));
    out->str->safe = x->safe || y->safe;
    return OK;
}

static enum status add_lists(struct run *r, const struct list *x, const struct list *y,
                             struct value *out, struct err *e) {
    TRY(run_steps(r, x->count + y->count, e));
    TRY(value_list(r->arena, x->form, x->count + y->count, out, e));
    for (int64_t i = 0; i < x->count; i++) out->list->item[i] = x->item[i];
    for (int64_t i = 0; i < y->count; i++) out->list->item[x->count + i] = y->item[i];
    return OK;
}

/* v n times. */
static enum status repeat(struct run *r, const struct value *v, int64_t n, struct value *out,
                          struct err *e) {
    struct str_builder b = { 0 };
    int64_t parts = v->kind == VALUE_STR ? v->str->count : v->list->count;
    if (n < 0 || parts == 0) n = 0;
    if (n > JINJA_STEPS) n = JINJA_STEPS; /* run_steps refuses it */
    TRY(run_steps(r, n * parts, e));
    if (v->kind == VALUE_LIST) {
        TRY(value_list(r->arena, v->list->form, n * parts, out, e));
        for (int64_t i = 0; i < n * parts; i++) out->list->item[i] = v->list->item[i % parts];
        return OK;
    }
    if (v->str->n && n > JINJA_OUTPUT / v->str->n)
        return FAIL(e, ERR_UNSUPPORTED, "a string of more than %d MiB", JINJA_OUTPUT >> 20);
    for (int64_t i = 0; i < n; i++) TRY(str_add(r->arena, &b, v->str, e));
    *out = VALUE(VALUE_STR);
    return str_finish(r->arena, &b, &out->str, e);
}

static bool is_list(const struct value *v) {
    return v->kind == VALUE_LIST && (v->list->form == LIST_LIST || v->list->form == LIST_TUPLE);
}

static bool is_integer(const struct value *v) {
    return v->kind == VALUE_INT || v->kind == VALUE_BOOL;
}

enum status jinja_binary(struct run *r, const char *sign, const struct value *x,
                         const struct value *y, struct value *out, struct err *e) {
    if (value_is_number(x) && value_is_number(y)) {
        if (x->kind == VALUE_REAL || y->kind == VALUE_REAL)
            return reals(sign, value_real(x), value_real(y), out, e);
        return integers(sign, x->kind == VALUE_INT ? x->integer : x->boolean,
                        y->kind == VALUE_INT ? y->integer : y->boolean, out, e);
    }
    if (*sign == '+' && x->kind == VALUE_STR && y->kind == VALUE_STR)
        return add_strings(r, x->str, y->str, out, e);
    if (*sign == '+' && is_list(x) && is_list(y) && x->list->form == y->list->form)
        return add_lists(r, x->list, y->list, out, e);
    if (!strcmp(sign, "*") && (x->kind == VALUE_STR || is_list(x)) && is_integer(y))
        return repeat(r, x, y->kind == VALUE_INT ? y->integer : y->boolean, out, e);
    if (!strcmp(sign, "*") && (y->kind == VALUE_STR || is_list(y)) && is_integer(x))
        return repeat(r, y, x->kind == VALUE_INT ? x->integer : x->boolean, out, e);
    if (*sign == '%' && x->kind == VALUE_STR)
        return FAIL(e, ERR_UNSUPPORTED, "formatting a string with %% is not supported");
    return FAIL(e, ERR_CONFIG, "'%s' between %s and %s", sign, value_kind_name(x),
                value_kind_name(y));
}

/* ---- in -------------------------------------------------------------------------------------- */

enum status jinja_contains(struct run *r, const struct value *x, const struct value *v, bool *out,
                           struct err *e) {
    struct list *list;
    *out = false;
    if (v->kind == VALUE_STR) {
        const char *s, *part;
        if (x->kind != VALUE_STR)
            return FAIL(e, ERR_CONFIG, "%s cannot be in a string", value_kind_name(x));
        TRY(run_steps(r, v->str->n / 64, e));
        TRY(str_flat(r->arena, v->str, &s, e));
        TRY(str_flat(r->arena, x->str, &part, e));
        *out = str_find(s, v->str->n, 0, part, x->str->n) >= 0;
        return OK;
    }
    if (v->kind == VALUE_MAP) {
        *out = map_get(v->map, x, &r->steps) != NULL;
        return run_steps(r, 0, e);
    }
    TRY(run_elements(r, v, &list, e));
    for (int64_t i = 0; i < list->count && !*out; i++)
        *out = value_equal(x, &list->item[i], &r->steps);
    return OK;
}
