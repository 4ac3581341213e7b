/* Tokens and recursive descent. Every error shows the query with a caret under the place. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/nearest.h"
#include "runner/hardware/query_tree.h"

enum token_kind {
    TOKEN_END, TOKEN_WORD, TOKEN_NUMBER, TOKEN_STRING, TOKEN_OP, TOKEN_OPEN, TOKEN_CLOSE
};

struct token {
    enum token_kind kind;
    const char *start; /* in the query's text */
    int64_t length;    /* quotes included */
    enum query_op op;
};

enum { DEPTH_MAX = 64, TEXT_MAX = 512 };

struct parser {
    const char *text;
    const char *at; /* the next byte to read */
    struct token token;
    int64_t depth; /* open parentheses and nots */
    struct err *e;
};

static const struct { const char *text; enum query_op op; } OPS[] = {
    { "==", QUERY_EQ }, { "!=", QUERY_NE }, { "<=", QUERY_LE }, { ">=", QUERY_GE },
    { "=", QUERY_EQ },  { "<", QUERY_LT },  { ">", QUERY_GT },  { "~", QUERY_GLOB },
};
enum { OP_COUNT = sizeof OPS / sizeof *OPS };

const char *query_op_text(enum query_op op) {
    switch (op) {
    case QUERY_EQ: return "=";
    case QUERY_NE: return "!=";
    case QUERY_LT: return "<";
    case QUERY_LE: return "<=";
    case QUERY_GT: return ">";
    case QUERY_GE: return ">=";
    case QUERY_GLOB: return "~";
    }
    return "?";
}

/* ---- tokens -----------------------------------------------------------------------------------*/

static enum status caret(const struct parser *p, const char *at, const char *what) {
    return FAIL(p->e, ERR_CONFIG, "hardware query: %s\n  %s\n  %*s^", what, p->text,
                (int)(at - p->text), "");
}

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '-';
}

static enum status next_string(struct parser *p) {
    char quote = *p->at;
    const char *end = strchr(p->at + 1, quote);
    if (!end) return caret(p, p->at, "this string has no closing quote");
    p->token = (struct token){ TOKEN_STRING, p->at, end + 1 - p->at, QUERY_EQ };
    p->at = end + 1;
    return OK;
}

static enum status next_token(struct parser *p) {
    while (isspace((unsigned char)*p->at)) p->at++;
    const char *at = p->at;
    if (!*at) {
        p->token = (struct token){ TOKEN_END, at, 0, QUERY_EQ };
        return OK;
    }
    if (*at == '"' || *at == '\'') return next_string(p);
    if (*at == '(' || *at == ')') {
        p->token = (struct token){ *at == '(' ? TOKEN_OPEN : TOKEN_CLOSE, at, 1, QUERY_EQ };
        p->at++;
        return OK;
    }
    for (int64_t i = 0; i < OP_COUNT; i++) {
        size_t n = strlen(OPS[i].text);
        if (strncmp(at, OPS[i].text, n)) continue;
        p->token = (struct token){ TOKEN_OP, at, (int64_t)n, OPS[i].op };
        p->at += n;
        return OK;
    }
    if (!is_word(*at)) {
        bool word_op = !strncmp(at, "&&", 2) || !strncmp(at, "||", 2) || *at == '!';
        return caret(p, at,
                     word_op ? "write `and`, `or` and `not` as words" : "unexpected character");
    }
    while (is_word(*p->at)) p->at++;
    bool number = isdigit((unsigned char)*at) || (*at == '-' && isdigit((unsigned char)at[1]));
    p->token = (struct token){ number ? TOKEN_NUMBER : TOKEN_WORD, at, p->at - at, QUERY_EQ };
    return OK;
}

static bool token_is(const struct token *t, const char *word) {
    return t->kind == TOKEN_WORD && (int64_t)strlen(word) == t->length &&
           !strncmp(t->start, word, (size_t)t->length);
}

/* ---- values -----------------------------------------------------------------------------------*/

/* "80GiB" -> bytes; a number without a unit stays as it is. False for any other text. A single
 * letter is the power of two, as in Slurm and docker. */
static bool parse_number(const char *text, bool bytes, double *out) {
    static const struct { const char *unit; double factor; } UNITS[] = {
        { "", 1 },         { "B", 1 },        { "KiB", 0x1p10 }, { "MiB", 0x1p20 },
        { "GiB", 0x1p30 }, { "TiB", 0x1p40 }, { "KB", 1e3 },     { "MB", 1e6 },
        { "GB", 1e9 },     { "TB", 1e12 },    { "K", 0x1p10 },   { "M", 0x1p20 },
        { "G", 0x1p30 },   { "T", 0x1p40 },
    };
    char *end;
    double value = strtod(text, &end);
    if (end == text || strpbrk(text, "xXnN")) return false; /* no hex, nan or inf */
    int64_t units = bytes ? (int64_t)(sizeof UNITS / sizeof *UNITS) : 1;
    for (int64_t i = 0; i < units; i++) {
        if (strcmp(end, UNITS[i].unit)) continue;
        *out = value * UNITS[i].factor;
        return true;
    }
    return false;
}

/* A number of bytes that is too small without a unit: 80 probably means GiB, 81920 MiB. Only a page
 * size may be that small. */
static bool lacks_unit(const struct query_node *term) {
    bool bare = !strpbrk(term->text, "BKMGT");
    return bare && term->number != 0 && term->number < 0x1p20 &&
           strcmp(term->fact->name, "os.page_size") != 0;
}

static enum status check_size(const struct parser *p, struct query_node *term,
                              const struct token *value) {
    char what[256];
    if (!parse_number(term->text, true, &term->number))
        snprintf(what, sizeof what, "%s is a size: expected one such as 80GiB, 80G (the same) or "
                 "80GB", term->fact->name);
    else if (lacks_unit(term))
        snprintf(what, sizeof what, "%s is in bytes, and %.40s has no unit; write %.40sGiB, or "
                 "%.40sB", term->fact->name, term->text, term->text, term->text);
    else
        return OK;
    return caret(p, value->start, what);
}

/* Rejects a text that the fact can never have: gpu.family=Hopper would match no machine. */
static enum status check_word(const struct parser *p, const struct query_node *term,
                              const struct token *value) {
    const char *const *words = fact_words(term->fact);
    char what[256];
    int64_t n = 0, used;
    if (!words || term->op == QUERY_GLOB) return OK;
    for (; words[n]; n++)
        if (strcmp(words[n], term->text) == 0) return OK;
    const char *near = nearest_name(term->text, words, n);
    used = snprintf(what, sizeof what, "%s is never \"%.40s\"; ", term->fact->name, term->text);
    if (near) snprintf(what + used, sizeof what - (size_t)used, "did you mean %s?", near);
    else used += snprintf(what + used, sizeof what - (size_t)used, "it is one of");
    for (int64_t i = 0; !near && i < n; i++)
        used += snprintf(what + used, sizeof what - (size_t)used, " %s", words[i]);
    return caret(p, value->start, what);
}

/* Checks the value against the fact's kind, and the operator too. */
static enum status check_value(const struct parser *p, struct query_node *term,
                               const struct token *value, const struct token *op) {
    bool ordered = term->op != QUERY_EQ && term->op != QUERY_NE && term->op != QUERY_GLOB;
    char what[256];
    switch (term->fact->kind) {
    case FACT_STRING:
        if (!ordered) return check_word(p, term, value);
        snprintf(what, sizeof what, "%s is text: it takes =, != or ~", term->fact->name);
        return caret(p, op->start, what);
    case FACT_VERSION:
        if (term->op == QUERY_GLOB || fact_is_version(term->text)) return OK;
        snprintf(what, sizeof what, "%s is a version: expected dotted numbers such as 12.9",
                 term->fact->name);
        return caret(p, value->start, what);
    case FACT_BOOL:
        term->number = !strcmp(term->text, "true");
        if (term->number == 0 && strcmp(term->text, "false")) {
            snprintf(what, sizeof what, "%s is true or false", term->fact->name);
            return caret(p, value->start, what);
        }
        if (!ordered && term->op != QUERY_GLOB) return OK;
        snprintf(what, sizeof what, "%s is true or false: it takes = or !=", term->fact->name);
        return caret(p, op->start, what);
    case FACT_NUMBER:
    case FACT_COUNT:
    case FACT_BYTES: break;
    }
    if (term->fact->kind == FACT_BYTES) {
        TRY(check_size(p, term, value));
    } else if (value->kind == TOKEN_STRING || !parse_number(term->text, false, &term->number)) {
        snprintf(what, sizeof what, "%s is a number: expected one such as 8", term->fact->name);
        return caret(p, value->start, what);
    }
    if (term->op != QUERY_GLOB) return OK;
    snprintf(what, sizeof what, "%s is a number: it takes = != < <= > >=", term->fact->name);
    return caret(p, op->start, what);
}

/* ---- grammar ----------------------------------------------------------------------------------*/

static void node_free(struct query_node *node) {
    if (!node) return;
    node_free(node->left);
    node_free(node->right);
    free(node->text);
    free(node);
}

static enum status node_new(const struct parser *p, enum query_kind kind, struct query_node **out) {
    *out = calloc(1, sizeof **out);
    if (!*out) return FAIL(p->e, ERR_MEMORY, "hardware query");
    (*out)->kind = kind;
    return OK;
}

static enum status parse_fact(struct parser *p, struct query_node *term) {
    char name[128], what[256];
    const struct token *t = &p->token;
    if (t->kind == TOKEN_END) return caret(p, t->start, "expected a fact here, found the end");
    if (t->kind != TOKEN_WORD)
        return caret(p, t->start, "expected a fact here, such as gpu.product_name");
    snprintf(name, sizeof name, "%.*s", (int)t->length, t->start);
    term->fact = fact_find(name);
    if (!term->fact) {
        const char *near = fact_meant(name);
        if (near) snprintf(what, sizeof what, "there is no fact %s; did you mean %s?", name, near);
        else snprintf(what, sizeof what, "there is no fact %s; `fp8lab hw` lists them", name);
        return caret(p, t->start, what);
    }
    return next_token(p);
}

static enum status parse_term(struct parser *p, struct query_node *term) {
    const char *start = p->token.start;
    TRY(parse_fact(p, term));
    struct token op = p->token;
    if (op.kind != TOKEN_OP) {
        if (term->fact->kind != FACT_BOOL) {
            char what[160];
            snprintf(what, sizeof what, "%s needs an operator after it: = != < <= > >= ~",
                     term->fact->name);
            return caret(p, op.kind == TOKEN_END || op.kind == TOKEN_CLOSE ? start : op.start,
                         what);
        }
        term->number = 1;
        term->text = strdup("true");
        return term->text ? OK : FAIL(p->e, ERR_MEMORY, "hardware query");
    }
    term->op = op.op;
    TRY(next_token(p));
    struct token value = p->token;
    bool quoted = value.kind == TOKEN_STRING;
    bool keyword = token_is(&value, "and") || token_is(&value, "or") || token_is(&value, "not");
    if ((!quoted && value.kind != TOKEN_WORD && value.kind != TOKEN_NUMBER) || keyword)
        return caret(p, value.start, "expected a value here: \"text\", a word, a number or a size");
    term->text = strndup(value.start + quoted, (size_t)(value.length - 2 * quoted));
    if (!term->text) return FAIL(p->e, ERR_MEMORY, "hardware query");
    TRY(check_value(p, term, &value, &op));
    return next_token(p);
}

static enum status parse_or(struct parser *p, struct query_node **out);

static enum status parse_unary(struct parser *p, struct query_node **out) {
    if (p->depth >= DEPTH_MAX) return caret(p, p->token.start, "nested too deeply");
    if (token_is(&p->token, "not")) {
        TRY(node_new(p, QUERY_NOT, out));
        TRY(next_token(p));
        p->depth++;
        TRY(parse_unary(p, &(*out)->left));
        p->depth--;
        return OK;
    }
    if (p->token.kind == TOKEN_OPEN) {
        const char *open = p->token.start;
        TRY(next_token(p));
        p->depth++;
        TRY(parse_or(p, out));
        p->depth--;
        if (p->token.kind != TOKEN_CLOSE) return caret(p, open, "this ( is never closed");
        return next_token(p);
    }
    TRY(node_new(p, QUERY_TERM, out));
    return parse_term(p, *out);
}

/* A chain of operands joined by `word`, left to right; `next` parses an operand. */
static enum status parse_chain(struct parser *p, const char *word, enum query_kind kind,
                               enum status (*next)(struct parser *, struct query_node **),
                               struct query_node **out) {
    TRY(next(p, out));
    while (token_is(&p->token, word)) {
        struct query_node *left = *out;
        enum status st = node_new(p, kind, out);
        if (st != OK) {
            *out = left;
            return st;
        }
        (*out)->left = left;
        TRY(next_token(p));
        TRY(next(p, &(*out)->right));
    }
    return OK;
}

static enum status parse_and(struct parser *p, struct query_node **out) {
    return parse_chain(p, "and", QUERY_AND, parse_unary, out);
}

static enum status parse_or(struct parser *p, struct query_node **out) {
    return parse_chain(p, "or", QUERY_OR, parse_and, out);
}

static enum status parse_all(struct parser *p, struct query_node **root) {
    if (strlen(p->text) > TEXT_MAX)
        return FAIL(p->e, ERR_CONFIG, "hardware query: longer than %d characters", TEXT_MAX);
    for (const char *c = p->text; *c; c++)
        if ((unsigned char)*c < ' ')
            return FAIL(p->e, ERR_CONFIG, "hardware query: control character at position %" PRId64,
                        (int64_t)(c - p->text + 1));
    TRY(next_token(p));
    TRY(parse_or(p, root));
    if (p->token.kind == TOKEN_CLOSE) return caret(p, p->token.start, "this ) was never opened");
    if (p->token.kind != TOKEN_END)
        return caret(p, p->token.start, "expected `and`, `or` or the end here");
    return OK;
}

enum status query_parse(const char *text, struct query **out, struct err *e) {
    *out = NULL;
    struct query *query = calloc(1, sizeof *query);
    if (!query) return FAIL(e, ERR_MEMORY, "hardware query");
    struct parser p = { .text = text, .at = text, .e = e };
    enum status st = parse_all(&p, &query->root);
    if (st != OK) {
        query_free(query);
        return st;
    }
    *out = query;
    return OK;
}

void query_free(struct query *query) {
    if (!query) return;
    node_free(query->root);
    free(query);
}
