/* What a template can call: filters, tests, methods and functions. Each is a row of a table, with
 * the names of its parameters as in Python. */
#ifndef FP8LAB_RUNNER_CHAT_JINJA_CALL_H
#define FP8LAB_RUNNER_CHAT_JINJA_CALL_H

#include "runner/chat/jinja_value.h"

struct run;
struct node;

enum { PARAMETERS_MAX = 5 };

/* The arguments of one call. */
struct arguments {
    int64_t count, positional; /* the positional ones stand first */
    struct value *value;
    const char *const *names; /* of value[positional], value[positional + 1], ... */
};

/* One call. arg[i] belongs to the ith parameter; VALUE_ABSENT if it was not given. */
struct call {
    struct run *run;
    const struct node *at; /* for messages */
    const char *name;
    struct value self; /* what is filtered or tested, or whose method it is */
    struct value arg[PARAMETERS_MAX];
    const struct arguments *all;
};

struct callable {
    const char *name;
    const char *parameters; /* "sep maxsplit"; "*": the function reads `all` itself */
    int required;           /* the number of parameters without a default */
    enum status (*body)(struct call *c, struct value *out, struct err *e);
};

/* NULL: unknown. */
const struct callable *jinja_filter(const char *name);
const struct callable *jinja_test(const char *name);
const struct callable *jinja_function(const char *name);
const struct callable *jinja_method(const struct value *self, const char *name, int64_t n);

/* Calls it with arguments bound to its parameters as Python binds them. */
NODISCARD enum status jinja_call(struct run *r, const struct node *at, const struct callable *f,
                                 const struct value *self, const struct arguments *all,
                                 struct value *out, struct err *e);

/* Reads argument i of a call: `otherwise` if it is absent; ERR_CONFIG if it has another kind. */
NODISCARD enum status call_int(const struct call *c, int i, int64_t otherwise, int64_t *out,
                               struct err *e);
NODISCARD enum status call_str(const struct call *c, int i, struct str *otherwise,
                               struct str **out, struct err *e);

/* The truth of argument i, or `otherwise` if it is absent. */
bool call_bool(const struct call *c, int i, bool otherwise);

/* The tables: rows end with a NULL name. */
extern const struct callable JINJA_TEXT_METHODS[], JINJA_TEXT_FILTERS[], JINJA_LIST_FILTERS[],
    JINJA_TESTS[], JINJA_FUNCTIONS[], JINJA_MAP_METHODS[], JINJA_LIST_METHODS[];

#endif
