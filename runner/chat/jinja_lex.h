/* The tokens of a Jinja template, with the white-space rules of trim_blocks and lstrip_blocks, both
 * on (jinja2/lexer.py, release 3.1.6). Comments and raw blocks end here. */
#ifndef FP8LAB_RUNNER_CHAT_JINJA_LEX_H
#define FP8LAB_RUNNER_CHAT_JINJA_LEX_H

#include "runner/chat/chat_arena.h"

enum token_kind {
    TOKEN_END,
    TOKEN_TEXT,         /* text outside of tags */
    TOKEN_OUTPUT_BEGIN, /* {{ */
    TOKEN_OUTPUT_END,
    TOKEN_BLOCK_BEGIN, /* {% */
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_STRING, /* unescaped */
    TOKEN_INTEGER,
    TOKEN_REAL,
    TOKEN_OPERATOR
};

struct token {
    enum token_kind kind;
    int32_t line; /* from 1 */
    const char *text; /* text, string, name or operator; the last two are NUL-terminated */
    int64_t n;
    int64_t integer;
    double real;
};

struct token_list {
    struct token *token; /* the last one is TOKEN_END */
    int64_t count, capacity;
};

/* Cuts a template into tokens; they live in the arena. `name` begins each message. ERR_CONFIG or
 * ERR_UNSUPPORTED with the line. */
NODISCARD enum status jinja_lex(struct chat_arena *a, const char *name, const char *source,
                                int64_t n, struct token_list *out, struct err *e);

#endif
