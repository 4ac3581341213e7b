#include "runner/base/plain_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"

static const char ELLIPSIS[] = "\xe2\x80\xa6";
enum { NOT_UTF8 = 0xfffd };

/* The characters to replace: first to last code point. */
static const struct { uint32_t first, last; } UNSAFE[] = {
    { 0x0000, 0x001f },   { 0x007f, 0x009f },   { 0x00ad, 0x00ad },   { 0x061c, 0x061c },
    { 0x180e, 0x180e },   { 0x200b, 0x200f },   { 0x2028, 0x202e },   { 0x2060, 0x206f },
    { 0xfeff, 0xfeff },   { 0xfff9, 0xfffb },   { 0xe0000, 0xe007f },
};

static uint32_t decode(const unsigned char *s, size_t length) {
    static const unsigned char LEAD[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
    uint32_t code = s[0] & LEAD[length];
    for (size_t i = 1; i < length; i++) code = code << 6 | (s[i] & 0x3f);
    return code;
}

size_t plain_character(const char *text, uint32_t *code, bool *plain) {
    size_t length = utf8_character(text, strnlen(text, 4));
    *code = length ? decode((const unsigned char *)text, length) : NOT_UTF8;
    *plain = length > 0;
    for (size_t i = 0; i < sizeof UNSAFE / sizeof *UNSAFE; i++)
        if (*code >= UNSAFE[i].first && *code <= UNSAFE[i].last) *plain = false;
    return length ? length : 1;
}

/* Replaces in place, except the characters of `keep`. */
static char *replace(char *text, const char *keep) {
    char *to = text;
    for (const char *at = text; *at;) {
        uint32_t code;
        bool plain;
        size_t n = plain_character(at, &code, &plain);
        if (plain || strchr(keep, *at)) {
            memmove(to, at, n);
            to += n;
        } else {
            *to++ = '?';
        }
        at += n;
    }
    *to = '\0';
    return text;
}

char *plain_text(char *text) { return replace(text, ""); }

char *plain_lines(char *text) { return replace(text, "\n\t"); }

const char *plain_copy(char *out, size_t size, const char *text) {
    size_t n = text ? strlen(text) : 0, room = size - sizeof ELLIPSIS;
    bool cut = n > size - 1;
    if (cut) {
        n = room;
        while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80) n--;
    }
    if (n) memcpy(out, text, n);
    out[n] = '\0';
    plain_text(out);
    if (cut) strcat(out, ELLIPSIS);
    return out;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

char *plain_json(const char *json) {
    struct text t = { 0 };
    text_puts(&t, "");
    while (*json) {
        uint32_t code;
        bool plain;
        char form[16];
        size_t n = plain_character(json, &code, &plain);
        if (plain)
            text_add(&t, json, n);
        else if (code < 0x10000)
            snprintf(form, sizeof form, "\\u%04x", code);
        else
            snprintf(form, sizeof form, "\\u%04x\\u%04x", 0xd7c0 + (code >> 10),
                     0xdc00 + (code & 0x3ff));
        if (!plain) text_puts(&t, form);
        json += n;
    }
    if (!t.failed) return t.bytes; /* moved to the caller */
    text_free(&t);
    return NULL;
}

static json_t *plain_string(const char *text) {
    char *copy = strdup(text);
    json_t *string = copy ? json_string(plain_text(copy)) : NULL;
    free(copy);
    return string;
}

static json_t *tree(const json_t *value, int depth);

static json_t *plain_object(const json_t *value, int depth) {
    json_t *out = json_object();
    bool failed = !out;
    const char *key;
    json_t *member;
    json_object_foreach((json_t *)value, key, member) { /* jansson's iterators take no const */
        char *name = strdup(key);
        json_put(out, name ? plain_text(name) : "", name ? tree(member, depth) : NULL, &failed);
        free(name);
    }
    return json_whole(out, failed);
}

static json_t *tree(const json_t *value, int depth) {
    enum { DEPTH_MAX = 128 };
    if (depth > DEPTH_MAX) return NULL;
    if (json_is_string(value)) return plain_string(json_string_value(value));
    if (json_is_object(value)) return plain_object(value, depth + 1);
    if (!json_is_array(value)) return json_deep_copy(value);
    json_t *out = json_array();
    bool failed = !out;
    for (size_t i = 0; i < json_array_size(value); i++)
        json_append(out, tree(json_array_get(value, i), depth + 1), &failed);
    return json_whole(out, failed);
}

json_t *plain_tree(const json_t *value) { return tree(value, 0); }
