/* The tests of "x is ...", and the global functions. */
#include <stdio.h>
#include <string.h>

#include "runner/chat/jinja_run.h"

static enum status answer(struct value *out, bool holds) {
    *out = VALUE(VALUE_BOOL, .boolean = holds);
    return OK;
}

/* ---- kinds ----------------------------------------------------------------------------------- */

static enum status is_defined(struct call *c, struct value *out, struct err *e) {
    return answer(out, c->self.kind != VALUE_UNDEFINED);
}

static enum status is_undefined(struct call *c, struct value *out, struct err *e) {
    return answer(out, c->self.kind == VALUE_UNDEFINED);
}

static enum status is_none(struct call *c, struct value *out, struct err *e) {
    return answer(out, c->self.kind == VALUE_NONE);
}

static enum status is_boolean(struct call *c, struct value *out, struct err *e) {
    return answer(out, c->self.kind == VALUE_BOOL);
}

static enum status is_true(struct call *c, struct value *out, struct err *e) {
    return answer(out, c->self.kind == VALUE_BOOL && c->self.boolean);
}

static enum status is_false(struct call *c, struct value *out, struct err *e) {
    return answer(out, c->self.kind == VALUE_BOOL && !c->self.boolean);
}

static enum status is_string(struct call *c, struct value *out, struct err *e) {
    return answer(out, c->self.kind == VALUE_STR);
}

static enum status is_number(struct call *c, struct value *out, struct err *e) {
    return answer(out, value_is_number(&c->self));
}

static enum status is_integer(struct call *c, struct value *out, struct err *e) {
    return answer(out, c->self.kind == VALUE_INT);
}

static enum status is_float(struct call *c, struct value *out, struct err *e) {
    return answer(out, c->self.kind == VALUE_REAL);
}

static enum status is_mapping(struct call *c, struct value *out, struct err *e) {
    return answer(out, c->self.kind == VALUE_MAP);
}

/* An undefined value can be read as an empty list. */
static enum status is_iterable(struct call *c, struct value *out, struct err *e) {
    enum value_kind kind = c->self.kind;
    return answer(out, kind == VALUE_STR || kind == VALUE_LIST || kind == VALUE_MAP ||
                           kind == VALUE_UNDEFINED || kind == VALUE_LOOP);
}

static enum status is_sequence(struct call *c, struct value *out, struct err *e) {
    enum value_kind kind = c->self.kind;
    bool list = kind == VALUE_LIST && c->self.list->form <= LIST_RANGE;
    return answer(out, list || kind == VALUE_STR || kind == VALUE_MAP || kind == VALUE_UNDEFINED);
}

static enum status is_callable(struct call *c, struct value *out, struct err *e) {
    return answer(out, c->self.kind >= VALUE_MACRO || c->self.kind == VALUE_UNDEFINED);
}

/* ---- comparisons ----------------------------------------------------------------------------- */

static enum status remainder_is(struct call *c, int64_t by, int64_t wanted, struct value *out,
                                struct err *e) {
    struct value divisor = VALUE(VALUE_INT, .integer = by), rest, is = VALUE(VALUE_INT);
    is.integer = wanted;
    TRY(jinja_binary(c->run, "%", &c->self, &divisor, &rest, e));
    return answer(out, value_equal(&rest, &is, &c->run->steps));
}

static enum status is_odd(struct call *c, struct value *out, struct err *e) {
    return remainder_is(c, 2, 1, out, e);
}

static enum status is_even(struct call *c, struct value *out, struct err *e) {
    return remainder_is(c, 2, 0, out, e);
}

static enum status is_divisible(struct call *c, struct value *out, struct err *e) {
    int64_t by;
    TRY(call_int(c, 0, 0, &by, e));
    return remainder_is(c, by, 0, out, e);
}

static enum status is_equal(struct call *c, struct value *out, struct err *e) {
    return answer(out, value_equal(&c->self, &c->arg[0], &c->run->steps));
}

static enum status is_unequal(struct call *c, struct value *out, struct err *e) {
    return answer(out, !value_equal(&c->self, &c->arg[0], &c->run->steps));
}

static enum status compared(struct call *c, bool less, bool equal, struct value *out,
                            struct err *e) {
    int order;
    TRY(run_steps(c->run, value_cost(&c->self), e));
    TRY(value_order(&c->self, &c->arg[0], &order, e));
    return answer(out, order == 0 ? equal : (order < 0) == less);
}

static enum status is_less(struct call *c, struct value *out, struct err *e) {
    return compared(c, true, false, out, e);
}

static enum status is_less_or_equal(struct call *c, struct value *out, struct err *e) {
    return compared(c, true, true, out, e);
}

static enum status is_greater(struct call *c, struct value *out, struct err *e) {
    return compared(c, false, false, out, e);
}

static enum status is_greater_or_equal(struct call *c, struct value *out, struct err *e) {
    return compared(c, false, true, out, e);
}

static enum status is_in(struct call *c, struct value *out, struct err *e) {
    bool holds;
    TRY(jinja_contains(c->run, &c->self, &c->arg[0], &holds, e));
    return answer(out, holds);
}

/* ---- functions ------------------------------------------------------------------------------- */

static enum status raise_exception(struct call *c, struct value *out, struct err *e) {
    struct str *message;
    const char *bytes;
    TRY(jinja_str(c->run, &c->arg[0], &message, e));
    TRY(str_flat(c->run->arena, message, &bytes, e));
    return FAIL(e, ERR_CONFIG, "the template rejects the conversation: %.*s",
                (int)(message->n < 400 ? message->n : 400), bytes);
}

static enum status range(struct call *c, struct value *out, struct err *e) {
    int64_t begin = 0, end, step, count = 0;
    bool one = c->arg[1].kind == VALUE_ABSENT;
    TRY(call_int(c, 0, 0, one ? &end : &begin, e));
    if (!one) TRY(call_int(c, 1, 0, &end, e));
    TRY(call_int(c, 2, 1, &step, e));
    if (step == 0) return FAIL(e, ERR_CONFIG, "range: the step is 0");
    __int128 span = (__int128)end - begin;
    if ((step > 0) == (span > 0) && span != 0) {
        __int128 n = (span + step - (step > 0 ? 1 : -1)) / step;
        count = n > JINJA_RANGE ? JINJA_RANGE + 1 : (int64_t)n;
    }
    if (count > JINJA_RANGE)
        return FAIL(e, ERR_UNSUPPORTED, "a range of more than %d elements", JINJA_RANGE);
    TRY(run_steps(c->run, count, e));
    TRY(value_list(c->run->arena, LIST_RANGE, count, out, e));
    for (int64_t i = 0; i < count; i++)
        out->list->item[i] = VALUE(VALUE_INT, .integer = begin + i * step);
    return OK;
}

/* namespace(mapping, name=value, ...) and dict(...). */
static enum status mapping_of(struct call *c, enum value_kind kind, struct value *out,
                              struct err *e) {
    const struct arguments *all = c->all;
    struct value made = VALUE(kind), key;
    TRY(chat_alloc(c->run->arena, sizeof *made.map, &made.map, e));
    if (all->positional > 1 || (all->positional && all->value[0].kind != VALUE_MAP))
        return FAIL(e, ERR_UNSUPPORTED, "'%s' takes one mapping and named values", c->name);
    for (int64_t i = 0; all->positional && i < all->value[0].map->count; i++) {
        const struct entry *entry = &all->value[0].map->entry[i];
        TRY(map_put(c->run->arena, made.map, &entry->key, &entry->value, &c->run->steps, e));
        TRY(run_steps(c->run, 1, e));
    }
    for (int64_t i = all->positional; i < all->count; i++) {
        const char *name = all->names[i - all->positional];
        TRY(value_text(c->run->arena, name, (int64_t)strlen(name), &key, e));
        TRY(map_put(c->run->arena, made.map, &key, &all->value[i], &c->run->steps, e));
        TRY(run_steps(c->run, 1, e));
    }
    *out = made;
    return OK;
}

static enum status namespace(struct call *c, struct value *out, struct err *e) {
    return mapping_of(c, VALUE_NAMESPACE, out, e);
}

static enum status dict(struct call *c, struct value *out, struct err *e) {
    return mapping_of(c, VALUE_MAP, out, e);
}

/* The fields of C's strftime that need only a date. Names are English, whatever the locale is. */
static enum status date_field(char field, int year, int month, int day, char form[32],
                              struct err *e) {
    static const char *const MONTHS[] = { "January", "February", "March", "April", "May", "June",
                                          "July", "August", "September", "October", "November",
                                          "December" };
    static const char *const DAYS[] = { "Sunday", "Monday", "Tuesday", "Wednesday", "Thursday",
                                        "Friday", "Saturday" };
    static const int SHIFT[] = { 0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4 };
    int y = year - (month < 3); /* Sakamoto's rule for the day of the week */
    int weekday = (y + y / 4 - y / 100 + y / 400 + SHIFT[month - 1] + day) % 7;
    switch (field) {
    case 'Y': snprintf(form, 32, "%04d", year); return OK;
    case 'y': snprintf(form, 32, "%02d", year % 100); return OK;
    case 'm': snprintf(form, 32, "%02d", month); return OK;
    case 'd': snprintf(form, 32, "%02d", day); return OK;
    case 'F': snprintf(form, 32, "%04d-%02d-%02d", year, month, day); return OK;
    case 'B': snprintf(form, 32, "%s", MONTHS[month - 1]); return OK;
    case 'b': snprintf(form, 32, "%.3s", MONTHS[month - 1]); return OK;
    case 'A': snprintf(form, 32, "%s", DAYS[weekday]); return OK;
    case 'a': snprintf(form, 32, "%.3s", DAYS[weekday]); return OK;
    case 'H':
    case 'M':
    case 'S': snprintf(form, 32, "00"); return OK;
    case '%': snprintf(form, 32, "%%"); return OK;
    default:
        return FAIL(e, ERR_UNSUPPORTED, "strftime_now: the field %%%c is not supported", field);
    }
}

static enum status strftime_now(struct call *c, struct value *out, struct err *e) {
    struct str *format;
    struct str_builder b = { 0 };
    const char *bytes;
    int year, month, day;
    TRY(call_str(c, 0, NULL, &format, e));
    TRY(str_flat(c->run->arena, format, &bytes, e));
    if (sscanf(c->run->date, "%4d-%2d-%2d", &year, &month, &day) != 3)
        return FAIL(e, ERR_ARG, "the date %s", c->run->date);
    for (int64_t i = 0; i < format->n; i++) {
        char form[32] = { bytes[i], 0 };
        struct str *part;
        if (bytes[i] == '%' && i + 1 < format->n)
            TRY(date_field(bytes[++i], year, month, day, form, e));
        TRY(str_format(c->run->arena, CHAT_FROM_TEMPLATE, &part, e, "%s", form));
        TRY(str_add(c->run->arena, &b, part, e));
    }
    *out = VALUE(VALUE_STR);
    return str_finish(c->run->arena, &b, &out->str, e);
}

const struct callable JINJA_TESTS[] = {
    { "defined", "", 0, is_defined },
    { "undefined", "", 0, is_undefined },
    { "none", "", 0, is_none },
    { "boolean", "", 0, is_boolean },
    { "true", "", 0, is_true },
    { "false", "", 0, is_false },
    { "string", "", 0, is_string },
    { "number", "", 0, is_number },
    { "integer", "", 0, is_integer },
    { "float", "", 0, is_float },
    { "mapping", "", 0, is_mapping },
    { "iterable", "", 0, is_iterable },
    { "sequence", "", 0, is_sequence },
    { "callable", "", 0, is_callable },
    { "odd", "", 0, is_odd },
    { "even", "", 0, is_even },
    { "divisibleby", "num", 1, is_divisible },
    { "equalto", "other", 1, is_equal },
    { "eq", "other", 1, is_equal },
    { "==", "other", 1, is_equal },
    { "ne", "other", 1, is_unequal },
    { "!=", "other", 1, is_unequal },
    { "lt", "other", 1, is_less },
    { "lessthan", "other", 1, is_less },
    { "<", "other", 1, is_less },
    { "le", "other", 1, is_less_or_equal },
    { "<=", "other", 1, is_less_or_equal },
    { "gt", "other", 1, is_greater },
    { "greaterthan", "other", 1, is_greater },
    { ">", "other", 1, is_greater },
    { "ge", "other", 1, is_greater_or_equal },
    { ">=", "other", 1, is_greater_or_equal },
    { "in", "seq", 1, is_in },
    { .name = NULL },
};

const struct callable JINJA_FUNCTIONS[] = {
    { "raise_exception", "message", 1, raise_exception },
    { "range", "start stop step", 1, range },
    { "namespace", "*", 0, namespace },
    { "dict", "*", 0, dict },
    { "strftime_now", "format", 1, strftime_now },
    { .name = NULL },
};
