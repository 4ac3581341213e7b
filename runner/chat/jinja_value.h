/* The values of a template: Python's, as far as templates need them. */
#ifndef FP8LAB_RUNNER_CHAT_JINJA_VALUE_H
#define FP8LAB_RUNNER_CHAT_JINJA_VALUE_H

#include "runner/chat/jinja_text.h"

enum value_kind {
    VALUE_ABSENT, /* an argument that was not given; never the result of an expression */
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_REAL,
    VALUE_STR,
    VALUE_LIST,
    VALUE_MAP,
    VALUE_NAMESPACE,
    VALUE_LOOP,
    VALUE_MACRO,
    VALUE_FUNCTION,
    VALUE_METHOD
};

struct value {
    enum value_kind kind;
    struct chat_origin origin; /* of the text that the value prints as; strings have their own */
    union {
        bool boolean;
        int64_t integer;
        double real;
        struct str *str;
        struct list *list;
        struct map *map;             /* a mapping or a namespace */
        struct loop *loop;           /* jinja_run.h */
        struct macro *macro;         /* jinja_run.h */
        const struct callable *function; /* jinja_call.h */
        struct method *method;
        const char *name; /* of what is undefined; NULL: unknown */
    };
};

enum list_form { LIST_LIST, LIST_TUPLE, LIST_RANGE, LIST_VIEW, LIST_ITERATOR };

struct list {
    enum list_form form; /* an iterator is always true, and can be read once */
    bool consumed;       /* an iterator that was read */
    int64_t count;
    struct value *item;
};

struct entry {
    struct value key, value;
};

/* Keys stay in the order of their first insertion. */
struct map {
    int64_t count, capacity;
    struct entry *entry;
};

/* A method of a value, such as text.split. */
struct method {
    const struct callable *callable;
    struct value self;
};

#define VALUE(kind_, ...) \
    ((struct value){ .kind = (kind_), .origin = CHAT_FROM_TEMPLATE, __VA_ARGS__ })

/* "a string", "a list" and so on, for messages. */
const char *value_kind_name(const struct value *v);

/* Python's bool(v). */
bool value_true(const struct value *v);
/* Python's x == y. Each comparison of two elements adds 1 to *steps, that of long texts and of wide
 * mappings more. Values compare as different beyond EQUAL_STEPS_MAX, and below 64 levels. */
enum { EQUAL_STEPS_MAX = 20000000 };
bool value_equal(const struct value *x, const struct value *y, int64_t *steps);
/* *order < 0, 0, > 0 for numbers or for strings. ERR_CONFIG for other pairs. The caller counts
 * value_cost() of one of them as steps. */
NODISCARD enum status value_order(const struct value *x, const struct value *y, int *order,
                                  struct err *e);
int64_t value_cost(const struct value *v); /* the steps that comparing it as a text costs */
bool value_is_number(const struct value *v); /* also true and false, as in Python */
double value_real(const struct value *v);

/* Makes values. */
NODISCARD enum status value_text(struct chat_arena *a, const char *bytes, int64_t n,
                                 struct value *out, struct err *e); /* bytes are borrowed */
NODISCARD enum status value_list(struct chat_arena *a, enum list_form form, int64_t count,
                                 struct value *out, struct err *e); /* the items are absent yet */

/* The value under a key, or NULL. All keys are read in turn: this adds to *steps. */
struct value *map_get(const struct map *m, const struct value *key, int64_t *steps);
struct value *map_get_text(const struct map *m, const char *key, int64_t *steps);
NODISCARD enum status map_put(struct chat_arena *a, struct map *m, const struct value *key,
                              const struct value *value, int64_t *steps, struct err *e);

/* The elements that a loop over v visits: items, keys, characters; nothing for an undefined value.
 * *list is borrowed from v or new. ERR_CONFIG if v has no elements. */
NODISCARD enum status value_elements(struct chat_arena *a, const struct value *v,
                                     struct list **list, struct err *e);
/* Python's len(v). ERR_CONFIG if v has none. */
NODISCARD enum status value_length(struct chat_arena *a, const struct value *v, int64_t *n,
                                   struct err *e);

#endif
