/* The tree of a parsed template, and its parser. The grammar is Jinja's (jinja2/parser.py, release
 * 3.1.6), without the statements that transformers' templates do not use. */
#ifndef FP8LAB_RUNNER_CHAT_JINJA_TREE_H
#define FP8LAB_RUNNER_CHAT_JINJA_TREE_H

#include "runner/chat/jinja_value.h"

enum node_kind {
    /* expressions */
    NODE_CONSTANT,  /* constant */
    NODE_NAME,      /* name */
    NODE_ATTRIBUTE, /* left.name */
    NODE_ITEM,      /* left[right] */
    NODE_SLICE,     /* left[item 0 : item 1 : item 2]; an item may be NULL */
    NODE_CALL,      /* left(arguments) */
    NODE_FILTER,    /* left | callable(arguments) */
    NODE_TEST,      /* left is callable(arguments) */
    NODE_NOT, NODE_MINUS, NODE_PLUS, /* left */
    NODE_BINARY,  /* left name right: + - * / // % ** */
    NODE_AND, NODE_OR, /* left, right */
    NODE_COMPARE, /* left names[0] item[0] names[1] item[1] ...: == != < <= > >= "in" "not in" */
    NODE_CONCAT,  /* item 0 ~ item 1 ... */
    NODE_CHOICE,  /* right if left else third; third may be NULL */
    NODE_LIST, NODE_TUPLE, /* items */
    NODE_DICT,    /* item 2i is a key, item 2i+1 its value */
    /* statements */
    NODE_TEXT,   /* constant */
    NODE_OUTPUT, /* left */
    NODE_BODY,   /* items */
    NODE_IF,     /* item 2i is a condition (NULL: else), item 2i+1 its body */
    NODE_FOR,    /* for names in left if third: right; else item 0, which may be NULL */
    NODE_SET,    /* names = left; with one name and an attribute: name.names[0] = left */
    NODE_SET_BLOCK, /* names[0] = the text of right, through the filters of left if not NULL */
    NODE_MACRO,     /* name(names): right; item i is a default or NULL */
    NODE_GENERATION, /* right */
    NODE_BREAK,
    NODE_CONTINUE
};

struct node {
    enum node_kind kind;
    int32_t line;
    const char *name;
    struct value constant;
    const struct callable *callable;
    struct node *left, *right, *third;
    struct node **item;  /* arguments: the positional ones first */
    const char **names;  /* arguments: the names of the last name_count items */
    int64_t count, capacity, name_count, name_capacity;
};

/* Parses a template into the arena. `name` is borrowed and begins each message. *generation:
 * whether it has {% generation %}. ERR_CONFIG for what Jinja rejects too, ERR_UNSUPPORTED for what
 * only this interpreter lacks; with the line. */
NODISCARD enum status jinja_parse(struct chat_arena *a, const char *name, const char *source,
                                  int64_t n, struct node **out, bool *generation, struct err *e);

#endif
