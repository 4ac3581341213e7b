#include "runner/chat/jinja_lex.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/canonical.h"
#include "runner/chat/jinja_text.h"

enum { BRACKETS_MAX = 100 };

struct lexer {
    struct chat_arena *arena;
    const char *name, *source; /* newlines are '\n' only */
    int64_t n, at;
    int32_t line;
    bool line_starts; /* the last tag ended at the end of a line, or nothing was read */
    char bracket[BRACKETS_MAX];
    int brackets;
    struct token_list *out;
};

/* An error at the present line. */
static enum status lex_fail(const struct lexer *x, struct err *e, enum status code,
                            const char *format, ...) PRINTF_LIKE(4, 5);
static enum status lex_fail(const struct lexer *x, struct err *e, enum status code,
                            const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return FAIL(e, code, "%s:%d: %s", x->name, (int)x->line, text);
}

static enum status push(struct lexer *x, struct token t, struct err *e) {
    struct token_list *l = x->out;
    TRY(chat_grow(x->arena, &l->token, l->count, &l->capacity, sizeof t, e));
    t.line = x->line;
    l->token[l->count++] = t;
    return OK;
}

/* Moves ahead by n bytes and counts their lines. */
static void advance(struct lexer *x, int64_t n) {
    for (int64_t end = x->at + n; x->at < end; x->at++) x->line += x->source[x->at] == '\n';
}

static bool looking_at(const struct lexer *x, int64_t at, const char *word) {
    int64_t n = (int64_t)strlen(word);
    return n <= x->n - at && !memcmp(x->source + at, word, (size_t)n);
}

/* The first byte at or behind `at` that is not white space. */
static int64_t skip_space(const struct lexer *x, int64_t at) {
    for (int64_t n; (n = str_space(x->source + at, x->n - at)) > 0;) at += n;
    return at;
}

static bool is_sign(char c) { return c == '-' || c == '+'; }

/* ---- text between tags ----------------------------------------------------------------------- */

/* Emits the text before a tag. '-' strips all white space at its end. Otherwise the indentation of
 * a tag that stands first in its line is removed, unless '+' or {{ forbids it. */
static enum status text_before(struct lexer *x, int64_t end, char sign, bool output,
                               struct err *e) {
    const char *text = x->source + x->at;
    int64_t n = end - x->at, keep = n;
    if (sign == '-') {
        keep = n - str_space_behind(text, n);
    } else if (sign != '+' && !output) {
        int64_t line = n;
        while (line > 0 && text[line - 1] != '\n') line--;
        bool first = line > 0 || x->line_starts;
        if (first && n - line == str_space_behind(text + line, n - line)) keep = line;
    }
    if (keep > 0)
        TRY(push(x, (struct token){ .kind = TOKEN_TEXT, .text = text, .n = keep }, e));
    advance(x, n);
    return OK;
}

/* The end of a tag at `at`: the closing word, a sign before it, white space behind it. Returns the
 * place behind, or -1. A block without sign drops one newline. */
static int64_t tag_end(const struct lexer *x, int64_t at, const char *word, bool plus, bool trim) {
    char sign = 0;
    if (at < x->n && (x->source[at] == '-' || (plus && x->source[at] == '+')))
        sign = x->source[at++];
    if (!looking_at(x, at, word)) return -1;
    at += 2;
    if (sign == '-') return skip_space(x, at);
    if (!sign && trim && at < x->n && x->source[at] == '\n') at++;
    return at;
}

static void tag_ends(struct lexer *x, int64_t behind) {
    advance(x, behind - x->at);
    x->line_starts = x->source[x->at - 1] == '\n';
}

static enum status comment(struct lexer *x, struct err *e) {
    int64_t end = -1;
    for (int64_t at = x->at + 2; at < x->n && end < 0; at++) end = tag_end(x, at, "#}", true, true);
    if (end < 0) return lex_fail(x, e, ERR_CONFIG, "the comment has no end; write #}");
    tag_ends(x, end);
    return OK;
}

/* Whether a block tag at x->at begins a raw block; *behind is the place behind the tag. */
static bool raw_begins(const struct lexer *x, int64_t *behind) {
    int64_t at = x->at + 2;
    if (at < x->n && is_sign(x->source[at])) at++;
    at = skip_space(x, at);
    if (!looking_at(x, at, "raw")) return false;
    *behind = tag_end(x, skip_space(x, at + 3), "%}", false, false);
    return *behind >= 0;
}

static enum status raw_block(struct lexer *x, int64_t behind, struct err *e) {
    tag_ends(x, behind);
    for (int64_t at = x->at; at < x->n; at++) {
        if (!looking_at(x, at, "{%")) continue;
        char sign = at + 2 < x->n && is_sign(x->source[at + 2]) ? x->source[at + 2] : 0;
        int64_t word = skip_space(x, at + 2 + (sign != 0));
        if (!looking_at(x, word, "endraw")) continue;
        int64_t end = tag_end(x, skip_space(x, word + 6), "%}", true, true);
        if (end < 0) continue;
        TRY(text_before(x, at, sign, false, e));
        tag_ends(x, end);
        return OK;
    }
    return lex_fail(x, e, ERR_CONFIG, "the raw block has no end; write {%% endraw %%}");
}

/* ---- inside a tag ---------------------------------------------------------------------------- */

static bool is_word(char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static enum status copy_word(struct lexer *x, enum token_kind kind, int64_t n, struct err *e) {
    char *word;
    TRY(chat_alloc(x->arena, n + 1, &word, e));
    memcpy(word, x->source + x->at, (size_t)n);
    TRY(push(x, (struct token){ .kind = kind, .text = word, .n = n }, e));
    x->at += n;
    return OK;
}

/* Digits with single underscores between them. */
static int64_t digits_end(const struct lexer *x, int64_t at) {
    while (at < x->n && (is_digit(x->source[at]) ||
                         (x->source[at] == '_' && at + 1 < x->n && is_digit(x->source[at + 1]))))
        at++;
    return at;
}

static enum status number(struct lexer *x, struct err *e) {
    enum { DIGITS_MAX = 64 };
    char form[DIGITS_MAX];
    int64_t begin = x->at, end = digits_end(x, begin), n = 0;
    bool real = false, part = begin > 0 && x->source[begin - 1] == '.';
    if (!part && end + 1 < x->n && x->source[end] == '.' && is_digit(x->source[end + 1])) {
        real = true;
        end = digits_end(x, end + 1);
    }
    if (!part && end < x->n && (x->source[end] | 32) == 'e') {
        int64_t digits = end + 1 + (end + 1 < x->n && is_sign(x->source[end + 1]));
        if (digits < x->n && is_digit(x->source[digits])) {
            real = true;
            end = digits_end(x, digits);
        }
    }
    for (int64_t i = begin; i < end && n < DIGITS_MAX - 1; i++)
        if (x->source[i] != '_') form[n++] = x->source[i];
    form[n] = 0;
    struct token t = { .kind = real ? TOKEN_REAL : TOKEN_INTEGER };
    errno = 0;
    if (real) t.real = strtod(form, NULL);
    else t.integer = strtoll(form, NULL, 10);
    bool octal = !real && form[0] == '0' && strspn(form, "0") < (size_t)n;
    if (errno || end - begin >= DIGITS_MAX || octal || (end < x->n && is_word(x->source[end]))) {
        int64_t shown = end + (end < x->n) - begin;
        return lex_fail(x, e, ERR_UNSUPPORTED, "the number '%.*s' has a form that is not "
                        "supported; write a decimal number of at most 64 bits",
                        (int)(shown > 40 ? 40 : shown), x->source + begin);
    }
    x->at = end;
    return push(x, t, e);
}

/* Appends a code point; false for a surrogate and beyond U+10FFFF. */
static bool put_code(char *to, int64_t *n, uint32_t c) {
    if ((c >= 0xd800 && c < 0xe000) || c > 0x10ffff) return false;
    if (c < 0x80) {
        to[(*n)++] = (char)c;
        return true;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char LEAD[] = { 0, 0xc0, 0xe0, 0xf0 };
    to[(*n)++] = (char)(LEAD[more] | c >> 6 * more);
    while (more-- > 0) to[(*n)++] = (char)(0x80 | (c >> 6 * more & 0x3f));
    return true;
}

/* One escape of a Python string at s, behind the backslash. Returns the bytes read; 0: refused. No
 * escape becomes longer than its source. */
static int64_t escape(const char *s, int64_t n, char *to, int64_t *out) {
    static const char FROM[] = "abfnrtv\\'\"\n", INTO[] = "\a\b\f\n\r\t\v\\'\"";
    const char *simple = memchr(FROM, s[0], sizeof FROM - 1);
    if (simple) {
        if (*simple != '\n') to[(*out)++] = INTO[simple - FROM];
        return 1;
    }
    int64_t digits = s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : s[0] == 'U' ? 8 : 0, at = 1, base = 16;
    if (s[0] >= '0' && s[0] <= '7') digits = 3, at = 0, base = 8;
    if (s[0] == 'N') return 0;
    if (!digits) { /* Python keeps an unknown escape as it is */
        to[(*out)++] = '\\';
        return -1;
    }
    uint32_t code = 0;
    int64_t read = 0;
    for (; read < digits && at < n; read++, at++) {
        char c = (char)(s[at] | 32);
        int value = is_digit(s[at]) ? s[at] - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 16;
        if (value >= base) break;
        code = code * (uint32_t)base + (uint32_t)value;
    }
    if (base == 16 && read < digits) return 0;
    return put_code(to, out, code) ? at : 0;
}

static enum status string(struct lexer *x, struct err *e) {
    char quote = x->source[x->at], *text;
    int64_t begin = x->at + 1, end = begin, n = 0;
    while (end < x->n && x->source[end] != quote) end += x->source[end] == '\\' ? 2 : 1;
    if (end >= x->n) return lex_fail(x, e, ERR_CONFIG, "the string has no end; write %c", quote);
    TRY(chat_alloc(x->arena, end - begin + 1, &text, e));
    for (int64_t at = begin; at < end;) {
        if (x->source[at] != '\\') {
            text[n++] = x->source[at++];
            continue;
        }
        int64_t read = escape(x->source + at + 1, end - at - 1, text, &n);
        if (read == 0)
            return lex_fail(x, e, ERR_UNSUPPORTED, "the escape '%.*s' in a string is not supported",
                            2, x->source + at);
        at += read < 0 ? 1 : 1 + read;
    }
    TRY(push(x, (struct token){ .kind = TOKEN_STRING, .text = text, .n = n }, e));
    advance(x, end + 1 - x->at);
    return OK;
}

/* An opening bracket is remembered, a closing one must match: inside brackets "}}" ends no tag. */
static enum status bracket(struct lexer *x, char c, struct err *e) {
    static const char OPEN[] = "([{", CLOSE[] = ")]}";
    if (strchr(OPEN, c)) {
        if (x->brackets == BRACKETS_MAX)
            return lex_fail(x, e, ERR_UNSUPPORTED, "more than %d brackets inside each other",
                            BRACKETS_MAX);
        x->bracket[x->brackets++] = CLOSE[strchr(OPEN, c) - OPEN];
    } else if (strchr(CLOSE, c)) {
        if (!x->brackets || x->bracket[--x->brackets] != c)
            return lex_fail(x, e, ERR_CONFIG, "'%c' closes no bracket", c);
    }
    return OK;
}

static enum status operator(struct lexer *x, struct err *e) {
    static const char *const LONG[] = { "//", "**", "==", "!=", ">=", "<=" };
    for (size_t i = 0; i < sizeof LONG / sizeof *LONG; i++)
        if (looking_at(x, x->at, LONG[i])) return copy_word(x, TOKEN_OPERATOR, 2, e);
    char c = x->source[x->at];
    if (!c || !strchr("+-/*%~[](){}><=.:|,;", c))
        return lex_fail(x, e, ERR_CONFIG, "the character 0x%02x cannot stand here",
                        (unsigned char)c);
    TRY(bracket(x, c, e));
    return copy_word(x, TOKEN_OPERATOR, 1, e);
}

/* The tokens from behind "{{" or "{%" to the end of the tag. */
static enum status tag(struct lexer *x, bool output, struct err *e) {
    const char *close = output ? "}}" : "%}";
    TRY(push(x, (struct token){ .kind = output ? TOKEN_OUTPUT_BEGIN : TOKEN_BLOCK_BEGIN }, e));
    x->brackets = 0;
    for (;;) {
        advance(x, skip_space(x, x->at) - x->at);
        if (x->at >= x->n) return lex_fail(x, e, ERR_CONFIG, "the tag has no end; write %s", close);
        int64_t end = x->brackets ? -1 : tag_end(x, x->at, close, !output, !output);
        if (end >= 0) {
            TRY(push(x, (struct token){ .kind = output ? TOKEN_OUTPUT_END : TOKEN_BLOCK_END }, e));
            tag_ends(x, end);
            return OK;
        }
        char c = x->source[x->at];
        if (is_digit(c)) TRY(number(x, e));
        else if (c == '\'' || c == '"') TRY(string(x, e));
        else if (is_word(c)) {
            int64_t n = 1;
            while (x->at + n < x->n && is_word(x->source[x->at + n])) n++;
            TRY(copy_word(x, TOKEN_NAME, n, e));
        } else TRY(operator(x, e));
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Copies the source with '\n' as the only newline, and without the last one. */
static enum status newlines(struct lexer *x, const char *source, int64_t n, struct err *e) {
    char *copy;
    TRY(chat_alloc(x->arena, n + 1, &copy, e));
    for (int64_t i = 0; i < n; i++) {
        if (source[i] == '\r' && i + 1 < n && source[i + 1] == '\n') continue;
        copy[x->n++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (x->n && copy[x->n - 1] == '\n') x->n--;
    copy[x->n] = 0;
    x->source = copy;
    int64_t valid = (int64_t)utf8_valid_prefix(copy, (size_t)x->n);
    if (valid == x->n) return OK;
    advance(x, valid);
    return lex_fail(x, e, ERR_CONFIG, "the template is not UTF-8 text: byte 0x%02x",
                    (unsigned char)copy[valid]);
}

enum status jinja_lex(struct chat_arena *a, const char *name, const char *source, int64_t n,
                      struct token_list *out, struct err *e) {
    struct lexer x = { .arena = a, .name = name, .line = 1, .line_starts = true, .out = out };
    TRY(newlines(&x, source, n, e));
    while (x.at < x.n) {
        int64_t at = x.at, behind;
        while (at < x.n && !(x.source[at] == '{' && at + 1 < x.n &&
                             strchr("{%#", x.source[at + 1]) && x.source[at + 1]))
            at++;
        if (at >= x.n) {
            TRY(text_before(&x, at, '+', false, e));
            break;
        }
        char kind = x.source[at + 1], sign = at + 2 < x.n ? x.source[at + 2] : 0;
        if (!is_sign(sign)) sign = 0;
        TRY(text_before(&x, at, sign, kind == '{', e));
        if (kind == '%' && raw_begins(&x, &behind)) {
            TRY(raw_block(&x, behind, e));
            continue;
        }
        x.line_starts = false;
        if (kind == '#') {
            x.at += sign != 0; /* "{#-#}" is a whole comment */
            TRY(comment(&x, e));
            continue;
        }
        x.at += 2 + (sign != 0);
        TRY(tag(&x, kind == '{', e));
    }
    return push(&x, (struct token){ .kind = TOKEN_END }, e);
}
