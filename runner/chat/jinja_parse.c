#include "runner/chat/jinja_parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- tokens ---------------------------------------------------------------------------------- */

enum status parse_fail(const struct parser *p, struct err *e, enum status code, const char *format,
                       ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return FAIL(e, code, "%s:%d: %s", p->name, (int)p->token->line, text);
}

static const char *found(const struct token *t, char *form, size_t size) {
    switch (t->kind) {
    case TOKEN_END: return "the end of the template";
    case TOKEN_TEXT: return "text";
    case TOKEN_OUTPUT_BEGIN: return "'{{'";
    case TOKEN_OUTPUT_END: return "'}}'";
    case TOKEN_BLOCK_BEGIN: return "'{%'";
    case TOKEN_BLOCK_END: return "'%}'";
    case TOKEN_STRING: return "a string";
    case TOKEN_INTEGER:
    case TOKEN_REAL: return "a number";
    case TOKEN_NAME:
    case TOKEN_OPERATOR: break;
    }
    snprintf(form, size, "'%.100s'", t->text);
    return form;
}

enum status parse_wanted(const struct parser *p, const char *wanted, struct err *e) {
    char form[128];
    return parse_fail(p, e, ERR_CONFIG, "expected %s, found %s", wanted,
                      found(p->token, form, sizeof form));
}

bool parse_at(const struct parser *p, enum token_kind kind, const char *text) {
    return p->token->kind == kind && (!text || !strcmp(p->token->text, text));
}

bool parse_take(struct parser *p, enum token_kind kind, const char *text) {
    if (!parse_at(p, kind, text)) return false;
    p->token++;
    return true;
}

enum status parse_expect(struct parser *p, enum token_kind kind, const char *text, struct err *e) {
    char form[128];
    if (parse_take(p, kind, text)) return OK;
    if (text) snprintf(form, sizeof form, "'%s'", text);
    return parse_wanted(p, text ? form : kind == TOKEN_BLOCK_END ? "'%}'" :
                        kind == TOKEN_OUTPUT_END ? "'}}'" : "a name", e);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

enum status parse_node(struct parser *p, enum node_kind kind, struct node **out, struct err *e) {
    struct node *node;
    TRY(chat_alloc(p->arena, sizeof *node, &node, e));
    node->kind = kind;
    node->line = p->token->line;
    *out = node;
    return OK;
}

enum status parse_item(struct parser *p, struct node *to, struct node *item, struct err *e) {
    TRY(chat_grow(p->arena, &to->item, to->count, &to->capacity, sizeof *to->item, e));
    to->item[to->count++] = item;
    return OK;
}

enum status parse_name(struct parser *p, struct node *to, const char *name, struct err *e) {
    TRY(chat_grow(p->arena, &to->names, to->name_count, &to->name_capacity, sizeof *to->names, e));
    to->names[to->name_count++] = name;
    return OK;
}

enum status parse_deeper(struct parser *p, struct err *e) {
    if (++p->depth > PARSE_DEPTH)
        return parse_fail(p, e, ERR_UNSUPPORTED, "more than %d levels of nesting", PARSE_DEPTH);
    return OK;
}

void parse_done(struct parser *p) { p->depth--; }

/* ---- statements ------------------------------------------------------------------------------ */

static enum status body(struct parser *p, const char *const *ends, struct node **out,
                        struct err *e);

static enum status take_word(struct parser *p, const char **out, struct err *e) {
    *out = p->token->text;
    return parse_expect(p, TOKEN_NAME, NULL, e);
}

/* "%}", a body, and "{% end %}". */
static enum status block(struct parser *p, const char *end, struct node **out, struct err *e) {
    const char *const ends[] = { end, NULL };
    TRY(parse_expect(p, TOKEN_BLOCK_END, NULL, e));
    TRY(body(p, ends, out, e));
    p->token += 2; /* '{%' and the word that ended the body */
    return parse_expect(p, TOKEN_BLOCK_END, NULL, e);
}

static enum status statement_if(struct parser *p, struct node *node, struct err *e) {
    static const char *const ENDS[] = { "elif", "else", "endif", NULL };
    static const char *const LAST[] = { "endif", NULL };
    bool more = true;
    while (more) {
        struct node *condition, *branch;
        TRY(parse_tuple(p, false, &condition, e));
        TRY(parse_expect(p, TOKEN_BLOCK_END, NULL, e));
        TRY(body(p, ENDS, &branch, e));
        p->token++;
        TRY(parse_item(p, node, condition, e));
        TRY(parse_item(p, node, branch, e));
        more = parse_take(p, TOKEN_NAME, "elif");
    }
    if (parse_take(p, TOKEN_NAME, "else")) {
        struct node *branch;
        TRY(parse_expect(p, TOKEN_BLOCK_END, NULL, e));
        TRY(body(p, LAST, &branch, e));
        p->token++;
        TRY(parse_item(p, node, NULL, e));
        TRY(parse_item(p, node, branch, e));
    }
    TRY(parse_expect(p, TOKEN_NAME, "endif", e));
    return parse_expect(p, TOKEN_BLOCK_END, NULL, e);
}

/* Names with commas between them, in parentheses or not. */
static enum status targets(struct parser *p, struct node *node, struct err *e) {
    bool bracket = parse_take(p, TOKEN_OPERATOR, "(");
    do {
        const char *name;
        if (node->name_count && !parse_at(p, TOKEN_NAME, NULL)) break;
        if (node->name_count && parse_at(p, TOKEN_NAME, "in")) break;
        TRY(take_word(p, &name, e));
        TRY(parse_name(p, node, name, e));
    } while (parse_take(p, TOKEN_OPERATOR, ","));
    return bracket ? parse_expect(p, TOKEN_OPERATOR, ")", e) : OK;
}

static enum status statement_for(struct parser *p, struct node *node, struct err *e) {
    static const char *const ENDS[] = { "else", "endfor", NULL };
    static const char *const LAST[] = { "endfor", NULL };
    TRY(targets(p, node, e));
    TRY(parse_expect(p, TOKEN_NAME, "in", e));
    TRY(parse_tuple(p, false, &node->left, e));
    if (parse_take(p, TOKEN_NAME, "if")) TRY(parse_expression(p, true, &node->third, e));
    if (parse_at(p, TOKEN_NAME, "recursive"))
        return parse_fail(p, e, ERR_UNSUPPORTED, "a recursive loop is not supported");
    TRY(parse_expect(p, TOKEN_BLOCK_END, NULL, e));
    p->loops++;
    TRY(body(p, ENDS, &node->right, e));
    p->loops--;
    p->token++;
    if (parse_take(p, TOKEN_NAME, "else")) {
        struct node *otherwise;
        TRY(parse_expect(p, TOKEN_BLOCK_END, NULL, e));
        TRY(body(p, LAST, &otherwise, e));
        p->token++;
        TRY(parse_item(p, node, otherwise, e));
    }
    TRY(parse_expect(p, TOKEN_NAME, "endfor", e));
    return parse_expect(p, TOKEN_BLOCK_END, NULL, e);
}

static enum status statement_set(struct parser *p, struct node *node, struct err *e) {
    bool attribute = parse_at(p, TOKEN_NAME, NULL) && p->token[1].kind == TOKEN_OPERATOR &&
                     !strcmp(p->token[1].text, ".");
    if (attribute) {
        TRY(take_word(p, &node->name, e));
        p->token++;
    }
    TRY(targets(p, node, e));
    if (parse_take(p, TOKEN_OPERATOR, "=")) {
        TRY(parse_tuple(p, true, &node->left, e));
        return parse_expect(p, TOKEN_BLOCK_END, NULL, e);
    }
    if (node->name_count > 1) return parse_wanted(p, "'='", e);
    node->kind = NODE_SET_BLOCK;
    TRY(parse_filters(p, &node->left, e));
    return block(p, "endset", &node->right, e);
}

static enum status statement_macro(struct parser *p, struct node *node, struct err *e) {
    int loops = p->loops;
    TRY(take_word(p, &node->name, e));
    TRY(parse_expect(p, TOKEN_OPERATOR, "(", e));
    while (!parse_take(p, TOKEN_OPERATOR, ")")) {
        const char *name;
        struct node *otherwise = NULL;
        if (node->name_count) TRY(parse_expect(p, TOKEN_OPERATOR, ",", e));
        TRY(take_word(p, &name, e));
        TRY(parse_name(p, node, name, e));
        if (parse_take(p, TOKEN_OPERATOR, "=")) TRY(parse_expression(p, true, &otherwise, e));
        else if (node->count && node->item[node->count - 1])
            return parse_fail(p, e, ERR_CONFIG, "a parameter without a default follows one with a "
                              "default");
        TRY(parse_item(p, node, otherwise, e));
    }
    p->loops = 0;
    p->macros++;
    TRY(block(p, "endmacro", &node->right, e));
    p->macros--;
    p->loops = loops;
    return OK;
}

static enum status statement_generation(struct parser *p, struct node *node, struct err *e) {
    int loops = p->loops;
    p->loops = 0; /* it is a call of its own in Jinja */
    p->generation = true;
    TRY(block(p, "endgeneration", &node->right, e));
    p->loops = loops;
    return OK;
}

static enum status statement_jump(struct parser *p, struct node *node, struct err *e) {
    if (!p->loops)
        return parse_fail(p, e, ERR_CONFIG, "'%s' stands outside of a loop", p->token[-1].text);
    return parse_expect(p, TOKEN_BLOCK_END, NULL, e);
}

/* The statement behind "{%". */
static enum status statement(struct parser *p, struct node **out, struct err *e) {
    static const struct {
        const char *word;
        enum node_kind kind;
        enum status (*parse)(struct parser *p, struct node *node, struct err *e);
    } ROWS[] = {
        { "if", NODE_IF, statement_if },
        { "for", NODE_FOR, statement_for },
        { "set", NODE_SET, statement_set },
        { "macro", NODE_MACRO, statement_macro },
        { "generation", NODE_GENERATION, statement_generation },
        { "break", NODE_BREAK, statement_jump },
        { "continue", NODE_CONTINUE, statement_jump },
    };
    if (p->token->kind != TOKEN_NAME) return parse_wanted(p, "the name of a statement", e);
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        if (strcmp(ROWS[i].word, p->token->text) != 0) continue;
        TRY(parse_node(p, ROWS[i].kind, out, e));
        p->token++;
        return ROWS[i].parse(p, *out, e);
    }
    return parse_fail(p, e, ERR_UNSUPPORTED, "the statement '%s' is not supported",
                      p->token->text);
}

static bool ends_here(const struct parser *p, const char *const *ends) {
    if (p->token->kind != TOKEN_BLOCK_BEGIN || p->token[1].kind != TOKEN_NAME) return false;
    for (; *ends; ends++)
        if (!strcmp(p->token[1].text, *ends)) return true;
    return false;
}

/* Statements and text up to one of the words `ends`; the present token is then its "{%". No words:
 * up to the end of the template. */
static enum status body(struct parser *p, const char *const *ends, struct node **out,
                        struct err *e) {
    TRY(parse_deeper(p, e));
    TRY(parse_node(p, NODE_BODY, out, e));
    if (*ends) (*out)->line = p->token[-1].line; /* of the tag that begins the block */
    while (!ends_here(p, ends)) {
        struct node *item = NULL;
        if (p->token->kind == TOKEN_END && !*ends) break;
        if (p->token->kind == TOKEN_END)
            return parse_fail(p, e, ERR_CONFIG, "the block of line %d has no {%% %s %%}",
                              (int)(*out)->line, ends[1] ? "endif or endfor" : ends[0]);
        if (p->token->kind == TOKEN_TEXT) {
            TRY(parse_node(p, NODE_TEXT, &item, e));
            TRY(value_text(p->arena, p->token->text, p->token->n, &item->constant, e));
            p->token++;
        } else if (parse_take(p, TOKEN_OUTPUT_BEGIN, NULL)) {
            TRY(parse_node(p, NODE_OUTPUT, &item, e));
            TRY(parse_tuple(p, true, &item->left, e));
            TRY(parse_expect(p, TOKEN_OUTPUT_END, NULL, e));
        } else {
            TRY(parse_expect(p, TOKEN_BLOCK_BEGIN, NULL, e));
            TRY(statement(p, &item, e));
        }
        TRY(parse_item(p, *out, item, e));
    }
    parse_done(p);
    return OK;
}

enum status jinja_parse(struct chat_arena *a, const char *name, const char *source, int64_t n,
                        struct node **out, bool *generation, struct err *e) {
    static const char *const NO_ENDS[] = { NULL };
    struct token_list tokens = { 0 };
    TRY(jinja_lex(a, name, source, n, &tokens, e));
    struct parser p = { .arena = a, .name = name, .token = tokens.token };
    TRY(body(&p, NO_ENDS, out, e));
    *generation = p.generation;
    return OK;
}
