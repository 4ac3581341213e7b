/* One rendering: variables, limits and output. */
#ifndef FP8LAB_RUNNER_CHAT_JINJA_RUN_H
#define FP8LAB_RUNNER_CHAT_JINJA_RUN_H

#include "runner/chat/jinja_call.h"
#include "runner/chat/jinja_tree.h"

/* The limits of one rendering. A step is one node, one element or 64 bytes of text. */
enum {
    JINJA_STEPS = 20000000,
    JINJA_DEPTH = 600, /* nodes inside each other, calls of macros included */
    JINJA_MEMORY = 256 << 20,
    JINJA_OUTPUT = 64 << 20,
    JINJA_RANGE = 100000 /* elements of range(), as in Jinja's sandbox */
};

struct binding {
    const char *name; /* borrowed */
    struct value value;
};

struct scope {
    struct scope *parent;
    struct binding *binding;
    int64_t count, capacity;
    bool kept; /* a macro was made here */
};

struct loop {
    struct list *list;
    int64_t index; /* from 0 */
};

struct macro {
    const struct node *node;
    struct scope *scope; /* where it was made */
};

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

struct run {
    struct chat_arena *arena;
    const char *name;       /* of the template, for messages */
    const char *date;       /* what strftime_now prints: "2024-07-26"; NULL: no such function */
    struct scope *scope;    /* the present one */
    struct str_builder *out;
    struct value filtered;  /* the text of a set block, for its filters */
    int64_t steps;          /* used so far */
    int depth;
    bool generating, placed; /* inside {% generation %}; the error has its line */
    enum flow flow;
};

/* Counts steps. ERR_UNSUPPORTED when they are used up. */
NODISCARD enum status run_steps(struct run *r, int64_t n, struct err *e);
/* Enters a node: a step, and a level of depth that the caller takes back with r->depth--. */
NODISCARD enum status run_enter(struct run *r, struct err *e);
/* Puts template and line before the text of an error that has none yet; returns st. */
enum status run_place(struct run *r, const struct node *at, enum status st, struct err *e);

/* The variable, or NULL. */
const struct value *run_find(const struct run *r, const char *name);
NODISCARD enum status run_set(struct run *r, const char *name, const struct value *v,
                              struct err *e);
NODISCARD enum status run_scope(struct run *r, struct scope **out, struct err *e);

NODISCARD enum status jinja_eval(struct run *r, const struct node *node, struct value *out,
                                 struct err *e);
NODISCARD enum status jinja_exec(struct run *r, const struct node *node, struct err *e);
NODISCARD enum status jinja_call_macro(struct run *r, const struct macro *m,
                                       const struct arguments *all, struct value *out,
                                       struct err *e);

/* Python's str(v); strings keep their origins. ERR_UNSUPPORTED for what has no stable form. */
NODISCARD enum status jinja_str(struct run *r, const struct value *v, struct str **out,
                                struct err *e);

struct json_style {
    bool ascii, sort;
    struct str *indent; /* of one level; NULL: one line */
    struct str *item, *key; /* separators */
};
/* Python's json.dumps. */
NODISCARD enum status jinja_json(struct run *r, const struct value *v,
                                 const struct json_style *style, struct str **out, struct err *e);

/* value.name, and value[index]: undefined if there is no such thing. */
NODISCARD enum status jinja_attribute(struct run *r, const struct value *v, const char *name,
                                      struct value *out, struct err *e);
NODISCARD enum status jinja_item(struct run *r, const struct value *v, const struct value *index,
                                 struct value *out, struct err *e);
/* x in v. */
NODISCARD enum status jinja_contains(struct run *r, const struct value *x, const struct value *v,
                                     bool *out, struct err *e);
/* x + y and the other operators. */
NODISCARD enum status jinja_binary(struct run *r, const char *sign, const struct value *x,
                                   const struct value *y, struct value *out, struct err *e);
/* value_elements, with the steps that reading them costs. */
NODISCARD enum status run_elements(struct run *r, const struct value *v, struct list **list,
                                   struct err *e);

#endif
