#include <string.h>

#include "runner/chat/jinja_call.h"
#include "runner/chat/jinja_parse.h"

static bool at_operator(const struct parser *p, const char *text) {
    return parse_at(p, TOKEN_OPERATOR, text);
}

static bool take_operator(struct parser *p, const char *text) {
    return parse_take(p, TOKEN_OPERATOR, text);
}

static bool at_word(const struct parser *p, const char *text) {
    return parse_at(p, TOKEN_NAME, text);
}

static enum status binary(struct parser *p, enum node_kind kind, struct node *left,
                          struct node **out, struct err *e) {
    TRY(parse_node(p, kind, out, e));
    (*out)->left = left;
    return OK;
}

/* ---- primaries ------------------------------------------------------------------------------- */

static enum status constant(struct parser *p, struct value value, struct node **out,
                            struct err *e) {
    TRY(parse_node(p, NODE_CONSTANT, out, e));
    (*out)->constant = value;
    p->token++;
    return OK;
}

/* Strings that follow each other are one. */
static enum status strings(struct parser *p, struct node **out, struct err *e) {
    struct str_builder b = { 0 };
    TRY(parse_node(p, NODE_CONSTANT, out, e));
    for (; p->token->kind == TOKEN_STRING; p->token++) {
        struct piece piece = { p->token->text, p->token->n, CHAT_FROM_TEMPLATE };
        TRY(str_add_piece(p->arena, &b, piece, e));
    }
    (*out)->constant = VALUE(VALUE_STR);
    TRY(str_finish(p->arena, &b, &(*out)->constant.str, e));
    const char *flat;
    return str_flat(p->arena, (*out)->constant.str, &flat, e);
}

static enum status word(struct parser *p, struct node **out, struct err *e) {
    const char *text = p->token->text;
    if (!strcmp(text, "true") || !strcmp(text, "True"))
        return constant(p, VALUE(VALUE_BOOL, .boolean = true), out, e);
    if (!strcmp(text, "false") || !strcmp(text, "False"))
        return constant(p, VALUE(VALUE_BOOL, .boolean = false), out, e);
    if (!strcmp(text, "none") || !strcmp(text, "None"))
        return constant(p, VALUE(VALUE_NONE), out, e);
    if (p->macros && (!strcmp(text, "varargs") || !strcmp(text, "kwargs") ||
                      !strcmp(text, "caller")))
        return parse_fail(p, e, ERR_UNSUPPORTED, "'%s' in a macro is not supported", text);
    TRY(parse_node(p, NODE_NAME, out, e));
    (*out)->name = text;
    p->token++;
    return OK;
}

static enum status list(struct parser *p, struct node **out, struct err *e) {
    TRY(parse_node(p, NODE_LIST, out, e));
    while (!take_operator(p, "]")) {
        struct node *item;
        if ((*out)->count) TRY(parse_expect(p, TOKEN_OPERATOR, ",", e));
        if (take_operator(p, "]")) break;
        TRY(parse_expression(p, true, &item, e));
        TRY(parse_item(p, *out, item, e));
    }
    return OK;
}

static enum status dict(struct parser *p, struct node **out, struct err *e) {
    TRY(parse_node(p, NODE_DICT, out, e));
    while (!take_operator(p, "}")) {
        struct node *key, *value;
        if ((*out)->count) TRY(parse_expect(p, TOKEN_OPERATOR, ",", e));
        if (take_operator(p, "}")) break;
        TRY(parse_expression(p, true, &key, e));
        TRY(parse_expect(p, TOKEN_OPERATOR, ":", e));
        TRY(parse_expression(p, true, &value, e));
        TRY(parse_item(p, *out, key, e));
        TRY(parse_item(p, *out, value, e));
    }
    return OK;
}

static enum status primary(struct parser *p, struct node **out, struct err *e) {
    const struct token *t = p->token;
    if (t->kind == TOKEN_NAME) return word(p, out, e);
    if (t->kind == TOKEN_STRING) return strings(p, out, e);
    if (t->kind == TOKEN_INTEGER)
        return constant(p, VALUE(VALUE_INT, .integer = t->integer), out, e);
    if (t->kind == TOKEN_REAL) return constant(p, VALUE(VALUE_REAL, .real = t->real), out, e);
    if (take_operator(p, "[")) return list(p, out, e);
    if (take_operator(p, "{")) return dict(p, out, e);
    if (!take_operator(p, "(")) return parse_wanted(p, "an expression", e);
    if (take_operator(p, ")")) return parse_node(p, NODE_TUPLE, out, e);
    TRY(parse_tuple(p, true, out, e));
    return parse_expect(p, TOKEN_OPERATOR, ")", e);
}

/* ---- what stands behind a primary ------------------------------------------------------------ */

/* The arguments of a call up to ')'. The '(' was read. */
static enum status arguments(struct parser *p, struct node *call, struct err *e) {
    while (!take_operator(p, ")")) {
        struct node *value;
        if (call->count) TRY(parse_expect(p, TOKEN_OPERATOR, ",", e));
        if (take_operator(p, ")")) break;
        if (at_operator(p, "*") || at_operator(p, "**"))
            return parse_fail(p, e, ERR_UNSUPPORTED, "'%s' before an argument is not supported",
                              p->token->text);
        bool named = p->token->kind == TOKEN_NAME && p->token[1].kind == TOKEN_OPERATOR &&
                     !strcmp(p->token[1].text, "=");
        if (named) {
            TRY(parse_name(p, call, p->token->text, e));
            p->token += 2;
        } else if (call->name_count) {
            return parse_fail(p, e, ERR_CONFIG, "a positional argument follows a named one");
        }
        TRY(parse_expression(p, true, &value, e));
        TRY(parse_item(p, call, value, e));
    }
    return OK;
}

static enum status subscript(struct parser *p, struct node *left, struct node **out,
                             struct err *e) {
    struct node *part[3] = { NULL, NULL, NULL };
    int colons = 0;
    if (at_operator(p, "]")) return parse_wanted(p, "an index", e);
    while (!at_operator(p, "]")) {
        if (at_operator(p, ","))
            return parse_fail(p, e, ERR_UNSUPPORTED, "an index of several values is not supported");
        if (take_operator(p, ":")) {
            if (++colons > 2) return parse_wanted(p, "]", e);
        } else if (part[colons]) {
            return parse_wanted(p, "]", e);
        } else {
            TRY(parse_expression(p, true, &part[colons], e));
        }
    }
    p->token++;
    TRY(binary(p, colons ? NODE_SLICE : NODE_ITEM, left, out, e));
    (*out)->right = part[0];
    for (int i = 0; colons && i < 3; i++) TRY(parse_item(p, *out, part[i], e));
    return OK;
}

static enum status attribute(struct parser *p, struct node *left, struct node **out,
                             struct err *e) {
    if (p->token->kind == TOKEN_NAME) {
        TRY(binary(p, NODE_ATTRIBUTE, left, out, e));
        (*out)->name = p->token->text;
        p->token++;
        return OK;
    }
    if (p->token->kind != TOKEN_INTEGER) return parse_wanted(p, "a name", e);
    TRY(binary(p, NODE_ITEM, left, out, e));
    return constant(p, VALUE(VALUE_INT, .integer = p->token->integer), &(*out)->right, e);
}

static enum status postfix(struct parser *p, struct node **out, struct err *e) {
    for (;;) {
        struct node *left = *out;
        if (take_operator(p, ".")) {
            TRY(attribute(p, left, out, e));
        } else if (take_operator(p, "[")) {
            TRY(subscript(p, left, out, e));
        } else if (take_operator(p, "(")) {
            TRY(binary(p, NODE_CALL, left, out, e));
            TRY(arguments(p, *out, e));
        } else {
            return OK;
        }
    }
}

enum status parse_filters(struct parser *p, struct node **out, struct err *e) {
    while (take_operator(p, "|")) {
        struct node *left = *out;
        if (p->token->kind != TOKEN_NAME) return parse_wanted(p, "the name of a filter", e);
        TRY(binary(p, NODE_FILTER, left, out, e));
        (*out)->name = p->token->text;
        (*out)->callable = jinja_filter(p->token->text);
        if (!(*out)->callable)
            return parse_fail(p, e, ERR_UNSUPPORTED, "the filter '%s' is not supported",
                              p->token->text);
        p->token++;
        if (take_operator(p, "(")) TRY(arguments(p, *out, e));
    }
    return OK;
}

static bool test_argument_begins(const struct parser *p) {
    switch (p->token->kind) {
    case TOKEN_STRING:
    case TOKEN_INTEGER:
    case TOKEN_REAL: return true;
    case TOKEN_NAME: return !at_word(p, "else") && !at_word(p, "or") && !at_word(p, "and") &&
                            !at_word(p, "if") && !at_word(p, "is");
    default: return at_operator(p, "[") || at_operator(p, "{");
    }
}

/* `is` was read. */
static enum status test(struct parser *p, struct node **out, struct err *e) {
    struct node *left = *out, *found, *argument;
    bool negated = parse_take(p, TOKEN_NAME, "not");
    if (p->token->kind != TOKEN_NAME) return parse_wanted(p, "the name of a test", e);
    TRY(binary(p, NODE_TEST, left, &found, e));
    found->name = p->token->text;
    found->callable = jinja_test(p->token->text);
    if (!found->callable)
        return parse_fail(p, e, ERR_UNSUPPORTED, "the test '%s' is not supported", p->token->text);
    p->token++;
    if (take_operator(p, "(")) {
        TRY(arguments(p, found, e));
    } else if (test_argument_begins(p)) {
        TRY(primary(p, &argument, e));
        TRY(postfix(p, &argument, e));
        TRY(parse_item(p, found, argument, e));
    }
    *out = found;
    return negated ? binary(p, NODE_NOT, found, out, e) : OK;
}

/* ---- operators, from the strongest ----------------------------------------------------------- */

static enum status unary(struct parser *p, bool filters, struct node **out, struct err *e) {
    struct node *left;
    TRY(parse_deeper(p, e));
    if (at_operator(p, "-") || at_operator(p, "+")) {
        enum node_kind kind = at_operator(p, "-") ? NODE_MINUS : NODE_PLUS;
        p->token++;
        TRY(unary(p, false, &left, e));
        TRY(binary(p, kind, left, out, e));
    } else {
        TRY(primary(p, out, e));
    }
    TRY(postfix(p, out, e));
    while (filters) {
        if (at_operator(p, "|")) {
            TRY(parse_filters(p, out, e));
        } else if (parse_take(p, TOKEN_NAME, "is")) {
            TRY(test(p, out, e));
        } else if (take_operator(p, "(")) {
            left = *out;
            TRY(binary(p, NODE_CALL, left, out, e));
            TRY(arguments(p, *out, e));
        } else {
            break;
        }
    }
    parse_done(p);
    return OK;
}

typedef enum status operand(struct parser *p, struct node **out, struct err *e);

/* Operands between operators of one strength, from the left. */
static enum status chain(struct parser *p, const char *const *operators, operand *next,
                         struct node **out, struct err *e) {
    TRY(next(p, out, e));
    for (;;) {
        const char *const *found = operators;
        while (*found && !at_operator(p, *found)) found++;
        if (!*found) return OK;
        struct node *left = *out;
        TRY(binary(p, NODE_BINARY, left, out, e));
        (*out)->name = *found;
        p->token++;
        TRY(next(p, &(*out)->right, e));
    }
}

static enum status filtered(struct parser *p, struct node **out, struct err *e) {
    return unary(p, true, out, e);
}

static enum status power(struct parser *p, struct node **out, struct err *e) {
    static const char *const OPERATORS[] = { "**", NULL };
    return chain(p, OPERATORS, filtered, out, e);
}

static enum status product(struct parser *p, struct node **out, struct err *e) {
    static const char *const OPERATORS[] = { "*", "/", "//", "%", NULL };
    return chain(p, OPERATORS, power, out, e);
}

static enum status concat(struct parser *p, struct node **out, struct err *e) {
    struct node *first, *item;
    TRY(product(p, &first, e));
    *out = first;
    if (!at_operator(p, "~")) return OK;
    TRY(parse_node(p, NODE_CONCAT, out, e));
    TRY(parse_item(p, *out, first, e));
    while (take_operator(p, "~")) {
        TRY(product(p, &item, e));
        TRY(parse_item(p, *out, item, e));
    }
    return OK;
}

static enum status sum(struct parser *p, struct node **out, struct err *e) {
    static const char *const OPERATORS[] = { "+", "-", NULL };
    return chain(p, OPERATORS, concat, out, e);
}

/* The comparison at the present token, which is stepped over; NULL: none. */
static const char *comparison(struct parser *p) {
    static const char *const SIGNS[] = { "==", "!=", "<=", ">=", "<", ">" };
    for (size_t i = 0; i < sizeof SIGNS / sizeof *SIGNS; i++)
        if (take_operator(p, SIGNS[i])) return SIGNS[i];
    if (parse_take(p, TOKEN_NAME, "in")) return "in";
    bool not_in = at_word(p, "not") && p->token[1].kind == TOKEN_NAME &&
                  !strcmp(p->token[1].text, "in");
    if (not_in) p->token += 2;
    return not_in ? "not in" : NULL;
}

static enum status compare(struct parser *p, struct node **out, struct err *e) {
    struct node *left, *item;
    TRY(sum(p, &left, e));
    *out = left;
    for (const char *sign; (sign = comparison(p));) {
        if (*out == left) TRY(binary(p, NODE_COMPARE, left, out, e));
        TRY(sum(p, &item, e));
        TRY(parse_item(p, *out, item, e));
        TRY(parse_name(p, *out, sign, e));
    }
    return OK;
}

static enum status negation(struct parser *p, struct node **out, struct err *e) {
    struct node *left;
    if (!parse_take(p, TOKEN_NAME, "not")) return compare(p, out, e);
    TRY(parse_deeper(p, e));
    TRY(negation(p, &left, e));
    parse_done(p);
    return binary(p, NODE_NOT, left, out, e);
}

static enum status logical(struct parser *p, const char *word_, enum node_kind kind, operand *next,
                           struct node **out, struct err *e) {
    TRY(next(p, out, e));
    while (parse_take(p, TOKEN_NAME, word_)) {
        struct node *left = *out;
        TRY(binary(p, kind, left, out, e));
        TRY(next(p, &(*out)->right, e));
    }
    return OK;
}

static enum status conjunction(struct parser *p, struct node **out, struct err *e) {
    return logical(p, "and", NODE_AND, negation, out, e);
}

static enum status disjunction(struct parser *p, struct node **out, struct err *e) {
    return logical(p, "or", NODE_OR, conjunction, out, e);
}

enum status parse_expression(struct parser *p, bool choice, struct node **out, struct err *e) {
    TRY(parse_deeper(p, e));
    TRY(disjunction(p, out, e));
    while (choice && parse_take(p, TOKEN_NAME, "if")) {
        struct node *value = *out, *condition;
        TRY(disjunction(p, &condition, e));
        TRY(binary(p, NODE_CHOICE, condition, out, e));
        (*out)->right = value;
        if (parse_take(p, TOKEN_NAME, "else")) TRY(parse_expression(p, true, &(*out)->third, e));
    }
    parse_done(p);
    return OK;
}

enum status parse_tuple(struct parser *p, bool choice, struct node **out, struct err *e) {
    struct node *first, *item;
    TRY(parse_expression(p, choice, &first, e));
    *out = first;
    if (!at_operator(p, ",")) return OK;
    TRY(parse_node(p, NODE_TUPLE, out, e));
    TRY(parse_item(p, *out, first, e));
    while (take_operator(p, ",")) {
        if (at_operator(p, ")") || at_operator(p, "=") || p->token->kind == TOKEN_BLOCK_END ||
            p->token->kind == TOKEN_OUTPUT_END || at_word(p, "in"))
            break;
        TRY(parse_expression(p, choice, &item, e));
        TRY(parse_item(p, *out, item, e));
    }
    return OK;
}
