/* The parser's two halves share its state: expressions in jinja_expression.c, statements in
 * jinja_parse.c. */
#ifndef FP8LAB_RUNNER_CHAT_JINJA_PARSE_H
#define FP8LAB_RUNNER_CHAT_JINJA_PARSE_H

#include "runner/chat/jinja_lex.h"
#include "runner/chat/jinja_tree.h"

enum { PARSE_DEPTH = 150 };

struct parser {
    struct chat_arena *arena;
    const char *name;
    const struct token *token; /* the present one */
    int depth, loops, macros;  /* constructs around it; loops that break may leave; macros */
    bool generation;           /* the template has {% generation %} */
};

/* An error at the line of the present token. */
NODISCARD enum status parse_fail(const struct parser *p, struct err *e, enum status code,
                                 const char *format, ...) PRINTF_LIKE(4, 5);
/* An error: `wanted` was expected, and the present token was found. */
NODISCARD enum status parse_wanted(const struct parser *p, const char *wanted, struct err *e);

bool parse_at(const struct parser *p, enum token_kind kind, const char *text);
bool parse_take(struct parser *p, enum token_kind kind, const char *text); /* and steps behind it */
NODISCARD enum status parse_expect(struct parser *p, enum token_kind kind, const char *text,
                                   struct err *e);

NODISCARD enum status parse_node(struct parser *p, enum node_kind kind, struct node **out,
                                 struct err *e);
NODISCARD enum status parse_item(struct parser *p, struct node *to, struct node *item,
                                 struct err *e);
NODISCARD enum status parse_name(struct parser *p, struct node *to, const char *name,
                                 struct err *e);
/* Every construct that contains others calls the first, and the second when it is done. */
NODISCARD enum status parse_deeper(struct parser *p, struct err *e);
void parse_done(struct parser *p);

/* An expression, with "x if y else z" unless `choice` is false. */
NODISCARD enum status parse_expression(struct parser *p, bool choice, struct node **out,
                                       struct err *e);
/* The same, where "a, b" is a tuple. */
NODISCARD enum status parse_tuple(struct parser *p, bool choice, struct node **out,
                                  struct err *e);
/* Filters behind *out, which is NULL before the filters of a set block: the present token is '|',
 * and each filter takes what stands before it. */
NODISCARD enum status parse_filters(struct parser *p, struct node **out, struct err *e);

#endif
