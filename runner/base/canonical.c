#include "runner/base/canonical.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a growing text -------------------------------------------------------------------------- */
void text_add(struct text *t, const char *bytes, size_t n) {
    if (t->failed) return;
    if (t->size + n + 1 > t->capacity) {
        size_t capacity = t->capacity ? t->capacity : 256;
        while (capacity < t->size + n + 1) capacity *= 2;
        char *grown = realloc(t->bytes, capacity);
        if (!grown) {
            t->failed = true;
            return;
        }
        t->bytes = grown;
        t->capacity = capacity;
    }
    memcpy(t->bytes + t->size, bytes, n);
    t->size += n;
    t->bytes[t->size] = '\0';
}

void text_puts(struct text *t, const char *string) { text_add(t, string, strlen(string)); }

void text_free(struct text *t) {
    free(t->bytes);
    *t = (struct text){ 0 };
}

/* ---- UTF-8 ----------------------------------------------------------------------------------- */
size_t utf8_character(const char *text, size_t n) {
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] == 0) return 0;
    if (s[0] < 0x80) return 1;
    size_t length = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    if (s[0] < 0xC2 || s[0] > 0xF4 || n < length) return 0;
    for (size_t i = 1; i < length; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    if (s[0] == 0xE0 && s[1] < 0xA0) return 0;
    if (s[0] == 0xED && s[1] > 0x9F) return 0;
    if (s[0] == 0xF0 && s[1] < 0x90) return 0;
    if (s[0] == 0xF4 && s[1] > 0x8F) return 0;
    return length;
}

size_t utf8_valid_prefix(const char *s, size_t n) {
    size_t at = 0;
    while (at < n) {
        size_t length = utf8_character(s + at, n - at);
        if (!length) break;
        at += length;
    }
    return at;
}

json_t *json_from_text(const char *text) {
    struct text t = { 0 };
    size_t left = strlen(text);
    text_puts(&t, "");
    while (left) {
        size_t valid = utf8_valid_prefix(text, left);
        text_add(&t, text, valid);
        if (valid < left) text_puts(&t, "\xef\xbf\xbd");
        valid += valid < left;
        text += valid;
        left -= valid;
    }
    json_t *string = t.failed ? NULL : json_string(t.bytes);
    text_free(&t);
    return string;
}

/* ---- scalars --------------------------------------------------------------------------------- */
static void add_escaped(struct text *t, unsigned char c) {
    static const char SHORT[] = { ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f',
                                  ['\r'] = 'r', ['"'] = '"', ['\\'] = '\\' };
    char form[8];
    if (c < sizeof SHORT && SHORT[c])
        snprintf(form, sizeof form, "\\%c", SHORT[c]);
    else
        snprintf(form, sizeof form, "\\u%04x", c);
    text_puts(t, form);
}

void canonical_add_string(struct text *t, const char *bytes, size_t n) {
    const unsigned char *s = (const unsigned char *)bytes;
    text_puts(t, "\"");
    for (size_t at = 0; at < n;) {
        size_t length = utf8_character(bytes + at, n - at);
        if (length == 0 && s[at] != 0) {
            text_puts(t, "\xEF\xBF\xBD");
            at++;
        } else if (s[at] < 0x20 || s[at] == '"' || s[at] == '\\') {
            add_escaped(t, s[at++]);
        } else {
            text_add(t, bytes + at, length);
            at += length;
        }
    }
    text_puts(t, "\"");
}

void canonical_add_int(struct text *t, int64_t i) {
    char form[32];
    snprintf(form, sizeof form, "%" PRId64, i);
    text_puts(t, form);
}

void canonical_add_double(struct text *t, double d) {
    assert(isfinite(d));
    char form[40];
    int digits = 1, exponent;
    for (;; digits++) {
        snprintf(form, sizeof form, "%.*e", digits - 1, d);
        if (digits == 17 || strtod(form, NULL) == d) break;
    }
    exponent = atoi(strchr(form, 'e') + 1);
    if (exponent >= -4 && exponent < 16) { /* plain, as %.17g would choose */
        int decimals = digits - 1 - exponent;
        snprintf(form, sizeof form, "%.*f", decimals > 0 ? decimals : 0, d);
    }
    text_puts(t, form);
    if (!strpbrk(form, ".e")) text_puts(t, ".0");
}

/* ---- values ---------------------------------------------------------------------------------- */
enum { DEPTH_MAX = 128 };

static int compare_keys(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum status add_value(struct text *t, const json_t *v, int depth, struct err *e);

static enum status add_object(struct text *t, const json_t *v, int depth, struct err *e) {
    size_t count = json_object_size(v), i = 0;
    const char **keys = calloc(count ? count : 1, sizeof *keys);
    if (!keys) return FAIL(e, ERR_MEMORY, "canonical JSON: %zu keys", count);
    json_t *object = (json_t *)v; /* jansson's iterators take no const; nothing is changed */
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it))
        keys[i++] = json_object_iter_key(it);
    qsort(keys, count, sizeof *keys, compare_keys);
    enum status st = OK;
    text_puts(t, "{");
    for (i = 0; i < count && st == OK; i++) {
        if (i) text_puts(t, ",");
        canonical_add_string(t, keys[i], strlen(keys[i]));
        text_puts(t, ":");
        st = add_value(t, json_object_get(v, keys[i]), depth + 1, e);
    }
    text_puts(t, "}");
    free(keys);
    return st;
}

static enum status add_array(struct text *t, const json_t *v, int depth, struct err *e) {
    text_puts(t, "[");
    for (size_t i = 0; i < json_array_size(v); i++) {
        if (i) text_puts(t, ",");
        TRY(add_value(t, json_array_get(v, i), depth + 1, e));
    }
    text_puts(t, "]");
    return OK;
}

static enum status add_value(struct text *t, const json_t *v, int depth, struct err *e) {
    if (!v || depth > DEPTH_MAX)
        return FAIL(e, ERR_ARG, "canonical JSON: %s",
                    v ? "more than 128 levels of nesting" : "a value is missing");
    switch (json_typeof(v)) {
    case JSON_OBJECT: return add_object(t, v, depth, e);
    case JSON_ARRAY: return add_array(t, v, depth, e);
    case JSON_STRING: canonical_add_string(t, json_string_value(v), json_string_length(v)); break;
    case JSON_INTEGER: canonical_add_int(t, json_integer_value(v)); break;
    case JSON_REAL:
        if (!isfinite(json_real_value(v)))
            return FAIL(e, ERR_ARG, "canonical JSON: %g has no JSON form", json_real_value(v));
        canonical_add_double(t, json_real_value(v));
        break;
    case JSON_TRUE: text_puts(t, "true"); break;
    case JSON_FALSE: text_puts(t, "false"); break;
    case JSON_NULL: text_puts(t, "null"); break;
    }
    return OK;
}

enum status json_canonical(const json_t *v, char **out, size_t *n, struct err *e) {
    struct text t = { 0 };
    enum status st = add_value(&t, v, 0, e);
    if (st == OK && t.failed) st = FAIL(e, ERR_MEMORY, "canonical JSON: %zu bytes", t.capacity);
    if (st == OK) {
        *out = t.bytes; /* moved to the caller */
        *n = t.size;
        return OK;
    }
    text_free(&t);
    return st;
}

enum status canonical_hash(const json_t *value, char hex[SHA256_HEX], struct err *e) {
    char *bytes = NULL;
    size_t n = 0;
    TRY(json_canonical(value, &bytes, &n, e));
    enum status st = sha256_bytes(bytes, n, hex, e);
    free(bytes);
    return st;
}
