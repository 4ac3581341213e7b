#include "runner/ingest/json_line.h"

#include <string.h>

#include "runner/ingest/eight_bytes.h"

enum { DEPTH_MAX = 128 };

struct cursor {
    const uint8_t *p, *end, *begin;
    struct err *e;
};

static enum status bad(const struct cursor *c, const char *what) {
    return FAIL(c->e, ERR_FORMAT, "no JSON object: %s at byte %lld of the line", what,
                (long long)(c->p - c->begin));
}

static void spaces(struct cursor *c) {
    while (c->p < c->end && memchr(" \t\r\n", *c->p, 4)) c->p++;
}

static bool next_is(struct cursor *c, uint8_t byte) {
    if (c->p == c->end || *c->p != byte) return false;
    c->p++;
    return true;
}

/* ---- strings ------------------------------------------------------------------------------- */

/* Four hexadecimal digits at p, or -1. */
static int32_t four_digits(const uint8_t *p, const uint8_t *end) {
    int32_t code = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        uint8_t lower = p[i] | 0x20;
        int digit = p[i] >= '0' && p[i] <= '9' ? p[i] - '0'
                    : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
        if (digit < 0) return -1;
        code = 16 * code + digit;
    }
    return code;
}

/* What follows "\u"; a pair of surrogates is one character. */
static enum status unicode_escape(struct cursor *c, struct bytes *out) {
    int32_t code = four_digits(c->p, c->end), low;
    uint8_t utf8[4];
    if (code < 0) return bad(c, "\\u without four hexadecimal digits");
    c->p += 4;
    if (code >= 0xd800 && code < 0xdc00 && c->end - c->p >= 6 && c->p[0] == '\\' &&
        c->p[1] == 'u' && (low = four_digits(c->p + 2, c->end)) >= 0xdc00 && low < 0xe000) {
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        c->p += 6;
    }
    if (code >= 0xd800 && code < 0xe000) code = UNICODE_REPLACEMENT;
    return out ? bytes_add(out, utf8, (size_t)utf8_put((uint32_t)code, utf8), c->e) : OK;
}

static enum status escape(struct cursor *c, struct bytes *out) {
    static const char FROM[] = "\"\\/bfnrt", TO[] = "\"\\/\b\f\n\r\t";
    const char *found = c->p < c->end && *c->p ? strchr(FROM, *c->p) : NULL;
    if (c->p < c->end && *c->p == 'u') {
        c->p++;
        return unicode_escape(c, out);
    }
    if (!found) return bad(c, "a wrong escape");
    c->p++;
    return out ? bytes_add(out, &TO[found - FROM], 1, c->e) : OK;
}

/* The first byte from p on that is a quote, a backslash or a control character, or the end. */
static const uint8_t *plain_end(const uint8_t *p, const uint8_t *end) {
    for (; end - p >= 8; p += 8) {
        uint64_t v = load8(p), stops = bytes_within(v, 0, 0x1f) | bytes_within(v, '"', '"') |
                                       bytes_within(v, '\\', '\\');
        if (stops) return first_of(stops, p);
    }
    while (p < end && *p != '"' && *p != '\\' && *p >= 0x20) p++;
    return p;
}

/* A string, from its quote on; appended to `out` unless that is NULL. */
static enum status string(struct cursor *c, struct bytes *out) {
    if (!next_is(c, '"')) return bad(c, "no string");
    for (;;) {
        const uint8_t *from = c->p;
        c->p = plain_end(from, c->end);
        if (out) TRY(bytes_add(out, from, (size_t)(c->p - from), c->e));
        if (c->p == c->end) return bad(c, "a string without an end");
        if (*c->p < 0x20) return bad(c, "a control character in a string");
        if (*c->p++ == '"') return OK;
        TRY(escape(c, out));
    }
}

/* ---- values -------------------------------------------------------------------------------- */

static bool digits(struct cursor *c) {
    const uint8_t *from = c->p;
    while (c->p < c->end && *c->p >= '0' && *c->p <= '9') c->p++;
    return c->p > from;
}

static enum status number(struct cursor *c) {
    next_is(c, '-');
    if (!digits(c)) return bad(c, "no value");
    if (next_is(c, '.') && !digits(c)) return bad(c, "a number without digits");
    if (next_is(c, 'e') || next_is(c, 'E')) {
        if (!next_is(c, '+')) next_is(c, '-');
        if (!digits(c)) return bad(c, "a number without digits");
    }
    return OK;
}

static enum status value(struct cursor *c, int depth);

/* An array, or with `keys` an object, from behind its bracket on. */
static enum status members(struct cursor *c, bool keys, int depth) {
    uint8_t close = keys ? '}' : ']';
    if (depth == DEPTH_MAX) return bad(c, "more than 128 levels");
    spaces(c);
    if (next_is(c, close)) return OK;
    for (;;) {
        spaces(c);
        if (keys) {
            TRY(string(c, NULL));
            spaces(c);
            if (!next_is(c, ':')) return bad(c, "no colon");
        }
        TRY(value(c, depth + 1));
        spaces(c);
        if (next_is(c, close)) return OK;
        if (!next_is(c, ',')) return bad(c, "no comma");
    }
}

static enum status value(struct cursor *c, int depth) {
    static const char *const WORDS[] = { "true", "false", "null", "NaN", "Infinity", "-Infinity" };
    spaces(c);
    if (c->p == c->end) return bad(c, "no value");
    if (*c->p == '"') return string(c, NULL);
    if (next_is(c, '{')) return members(c, true, depth);
    if (next_is(c, '[')) return members(c, false, depth);
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++) {
        size_t n = strlen(WORDS[i]);
        if ((size_t)(c->end - c->p) >= n && !memcmp(c->p, WORDS[i], n)) return c->p += n, OK;
    }
    return number(c);
}

#define FIELD_HINT "; --field NAME names another"

enum status json_line_text(const char *line, size_t n, const char *field, struct bytes *out,
                           struct err *e) {
    const uint8_t *begin = (const uint8_t *)line;
    struct cursor c = { begin, begin + n, begin, e };
    size_t length = strlen(field), start = out->count;
    int found = 0;
    spaces(&c);
    if (!next_is(&c, '{')) return bad(&c, "no opening brace");
    spaces(&c);
    bool more = !next_is(&c, '}');
    while (more) {
        size_t before = out->count;
        spaces(&c);
        TRY(string(&c, out)); /* the key, which goes again */
        bool wanted = out->count - before == length && !memcmp(out->bytes + before, field, length);
        out->count = before;
        spaces(&c);
        if (!next_is(&c, ':')) return bad(&c, "no colon");
        spaces(&c);
        if (wanted && (c.p == c.end || *c.p != '"'))
            return FAIL(e, ERR_FORMAT, "the field \"%s\" is not text", field);
        TRY(wanted ? string(&c, out) : value(&c, 0));
        found += wanted;
        spaces(&c);
        more = next_is(&c, ',');
        if (!more && !next_is(&c, '}')) return bad(&c, "no comma");
    }
    spaces(&c);
    if (c.p < c.end) return bad(&c, "more text behind the object");
    if (found == 1) return OK;
    out->count = start;
    return FAIL(e, ERR_FORMAT, found ? "the field \"%s\" stands twice"
                                     : "there is no field \"%s\"" FIELD_HINT,
                field);
}

void json_line_name_key(char *error) {
    static const char KEY[] = "; data.field names another"; /* shorter than the flag */
    char *flag = strstr(error, FIELD_HINT);
    if (flag) strcpy(flag, KEY);
}
