#include "model/ground/json_read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEVELS = 256, DIGITS = 18 /* never beyond 2^63 */, NUMBER_BYTES = 64 };

struct reader {
    const char *at, *end;
    int level;
    bool failed; /* no memory */
};

static json_t *read_value(struct reader *r);

static void skip_space(struct reader *r) {
    while (r->at < r->end &&
           (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
        r->at++;
}

/* Takes a byte if it is the next one behind white space. */
static bool take(struct reader *r, char c) {
    skip_space(r);
    if (r->at == r->end || *r->at != c) return false;
    r->at++;
    return true;
}

/* A value that jansson allocated, or NULL and a note that it did not. */
static json_t *made(struct reader *r, json_t *value) {
    if (!value) r->failed = true;
    return value;
}

/* ---- strings ---- */

/* The bytes of the UTF-8 character at `at`, whose first byte is above 127; 0: invalid. Too long
 * forms, surrogates and what is above U+10FFFF are invalid. */
static int character_bytes(const char *at, const char *end) {
    const unsigned char *b = (const unsigned char *)at;
    int n = b[0] >= 0xC2 && b[0] < 0xE0 ? 2 : b[0] >= 0xE0 && b[0] < 0xF0 ? 3
                                          : b[0] >= 0xF0 && b[0] < 0xF5 ? 4 : 0;
    if (n == 0 || end - at < n) return 0;
    for (int i = 1; i < n; i++)
        if ((b[i] & 0xC0) != 0x80) return 0;
    bool bad = (b[0] == 0xE0 && b[1] < 0xA0) || (b[0] == 0xED && b[1] > 0x9F) ||
               (b[0] == 0xF0 && b[1] < 0x90) || (b[0] == 0xF4 && b[1] > 0x8F);
    return bad ? 0 : n;
}

/* The end of the string that begins at r->at, behind its quote: where its other quote is. NULL if
 * it is invalid. *escaped: whether it has a backslash. */
static const char *string_end(const struct reader *r, bool *escaped) {
    *escaped = false;
    for (const char *at = r->at; at < r->end;) {
        unsigned char c = (unsigned char)*at;
        if (c == '"') return at;
        if (c < 0x20) return NULL;
        int n = c < 0x80 ? 1 : character_bytes(at, r->end);
        if (n == 0) return NULL;
        if (c == '\\') {
            *escaped = true;
            n = 2; /* unescape checks the second */
        }
        at += n;
    }
    return NULL;
}

/* The four hexadecimal digits at `at`; -1: others. */
static int64_t code_unit(const char *at, const char *end) {
    int64_t unit = 0;
    if (end - at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef0123456789ABCDEF", *found = strchr(digits, at[i]);
        if (!at[i] || !found) return -1;
        unit = unit * 16 + (found - digits) % 16;
    }
    return unit;
}

static char *put_character(char *out, int64_t c) {
    int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char LEAD[] = { 0, 0xC0, 0xE0, 0xF0 };
    *out++ = (char)(LEAD[more] | (c >> (6 * more)));
    while (more-- > 0) *out++ = (char)(0x80 | (c >> (6 * more) & 0x3F));
    return out;
}

/* The character of \uXXXX, or of two for a pair of surrogates; *at is behind the u, and becomes
 * what follows. -1: U+0000, half a pair, no digits. */
static int64_t escaped_character(const char **at, const char *end) {
    int64_t high = code_unit(*at, end), low;
    if (high <= 0 || (high >= 0xDC00 && high < 0xE000)) return -1;
    *at += 4;
    if (high < 0xD800 || high >= 0xE000) return high;
    if (end - *at < 6 || (*at)[0] != '\\' || (*at)[1] != 'u') return -1;
    low = code_unit(*at + 2, end);
    *at += 6;
    if (low < 0xDC00 || low >= 0xE000) return -1;
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
}

/* Writes the string without escapes, which is never longer. Returns its end; NULL: invalid. */
static char *unescape(char *out, const char *at, const char *end) {
    static const char NAMES[] = "\"\\/bfnrt", MEAN[] = "\"\\/\b\f\n\r\t";
    while (at < end) {
        const char *slash = memchr(at, '\\', (size_t)(end - at)), *name;
        size_t plain = (size_t)((slash ? slash : end) - at);
        memcpy(out, at, plain);
        out += plain;
        at += plain;
        if (at == end) break;
        char c = at[1]; /* string_end saw that there is one */
        at += 2;
        if (c == 'u') {
            int64_t character = escaped_character(&at, end);
            if (character < 0) return NULL;
            out = put_character(out, character);
        } else if (c && (name = strchr(NAMES, c))) {
            *out++ = MEAN[name - NAMES];
        } else {
            return NULL;
        }
    }
    return out;
}

/* A string's text: in the document, or in *owned, which the caller frees. NULL: not accepted, or no
 * memory. r->at is behind its first quote, and is then behind the other. */
static const char *read_text(struct reader *r, size_t *n, char **owned) {
    bool escaped;
    const char *begin = r->at, *end = string_end(r, &escaped);
    *owned = NULL;
    if (!end) return NULL;
    r->at = end + 1;
    *n = (size_t)(end - begin);
    if (!escaped) return begin;
    *owned = malloc(*n);
    if (!*owned) r->failed = true;
    char *last = *owned ? unescape(*owned, begin, end) : NULL;
    if (last) *n = (size_t)(last - *owned);
    else free(*owned);
    return last ? *owned : NULL;
}

static json_t *read_string(struct reader *r) {
    char *owned;
    size_t n;
    const char *text = read_text(r, &n, &owned);
    json_t *value = text ? made(r, json_stringn_nocheck(text, n)) : NULL;
    if (text) free(owned);
    return value;
}

/* ---- numbers and words ---- */

static int64_t skip_digits(struct reader *r) {
    const char *begin = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') r->at++;
    return r->at - begin;
}

/* A fraction and an exponent behind the digits of a real number. False: digits are missing. */
static bool skip_rest_of_real(struct reader *r) {
    if (r->at < r->end && *r->at == '.') {
        r->at++;
        if (skip_digits(r) == 0) return false;
    }
    if (r->at == r->end || (*r->at != 'e' && *r->at != 'E')) return true;
    r->at++;
    if (r->at < r->end && (*r->at == '+' || *r->at == '-')) r->at++;
    return skip_digits(r) > 0;
}

static json_t *read_number(struct reader *r) {
    char copy[NUMBER_BYTES];
    const char *begin = r->at;
    bool minus = *begin == '-';
    r->at += minus;
    bool zero = r->at < r->end && *r->at == '0';
    int64_t digits = skip_digits(r);
    if (digits == 0 || digits > DIGITS || (zero && digits > 1)) return NULL;
    bool real = r->at < r->end && (*r->at == '.' || *r->at == 'e' || *r->at == 'E');
    if (real && !skip_rest_of_real(r)) return NULL;
    size_t n = (size_t)(r->at - begin);
    if (n >= sizeof copy) return NULL;
    memcpy(copy, begin, n);
    copy[n] = 0;
    if (!real) return made(r, json_integer(strtoll(copy, NULL, 10)));
    double value = strtod(copy, NULL); /* in the C locale: nothing here sets another */
    return isfinite(value) ? made(r, json_real(value)) : NULL;
}

static json_t *read_word(struct reader *r, const char *word, json_t *value) {
    size_t n = strlen(word);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0) return NULL;
    r->at += n;
    return value;
}

/* ---- values ---- */

static bool read_elements(struct reader *r, json_t *array) {
    if (take(r, ']')) return true;
    do {
        json_t *value = read_value(r);
        if (!value) return false;
        if (json_array_append_new(array, value) != 0) {
            r->failed = true;
            return false;
        }
    } while (take(r, ','));
    return take(r, ']');
}

/* A key and its value. */
static bool read_member(struct reader *r, json_t *object) {
    char *owned;
    size_t n;
    if (!take(r, '"')) return false;
    const char *key = read_text(r, &n, &owned);
    if (!key) return false;
    bool fresh = !json_object_getn(object, key, n);
    json_t *value = fresh && take(r, ':') ? read_value(r) : NULL;
    if (value && json_object_setn_new_nocheck(object, key, n, value) != 0) r->failed = true;
    free(owned);
    return value && !r->failed;
}

static bool read_members(struct reader *r, json_t *object) {
    if (take(r, '}')) return true;
    do {
        if (!read_member(r, object)) return false;
    } while (take(r, ','));
    return take(r, '}');
}

/* An object or array, whose bracket was taken. */
static json_t *read_inside(struct reader *r, bool is_object) {
    json_t *value = made(r, is_object ? json_object() : json_array());
    bool fits = value && ++r->level <= LEVELS;
    if (fits && (is_object ? read_members(r, value) : read_elements(r, value))) {
        r->level--;
        return value;
    }
    json_decref(value);
    return NULL;
}

static json_t *read_value(struct reader *r) {
    skip_space(r);
    if (r->at == r->end) return NULL;
    switch (*r->at) {
    case '{': r->at++; return read_inside(r, true);
    case '[': r->at++; return read_inside(r, false);
    case '"': r->at++; return read_string(r);
    case 't': return read_word(r, "true", json_true());
    case 'f': return read_word(r, "false", json_false());
    case 'n': return read_word(r, "null", json_null());
    case '-': case '0': case '1': case '2': case '3': case '4':
    case '5': case '6': case '7': case '8': case '9': return read_number(r);
    default: return NULL;
    }
}

json_t *json_read(const char *bytes, size_t n, bool *failed) {
    struct reader r = { .at = bytes, .end = bytes + n };
    skip_space(&r);
    bool nested = r.at < r.end && (*r.at == '{' || *r.at == '[');
    json_t *value = nested ? read_value(&r) : NULL;
    skip_space(&r);
    *failed = r.failed;
    if (!value || (r.at == r.end && !r.failed)) return value;
    json_decref(value);
    return NULL;
}
