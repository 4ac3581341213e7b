#include "model/ground/json_safe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_read.h"

void json_put(json_t *object, const char *key, json_t *value, bool *failed) {
    if (json_object_set_new(object, key, value) != 0) *failed = true;
}

void json_append(json_t *array, json_t *value, bool *failed) {
    if (json_array_append_new(array, value) != 0) *failed = true;
}

json_t *json_copied(const json_t *object, bool *failed) {
    json_t *copy = json_copy((json_t *)object);
    if (json_object_size(copy) != json_object_size(object)) *failed = true;
    return copy;
}

json_t *json_whole(json_t *value, bool failed) {
    if (!failed) return value;
    json_decref(value);
    return NULL;
}

/* ---- text ---- */

struct growing { char *text; size_t length, capacity; bool failed; };

static int grow(const char *bytes, size_t n, void *context) {
    struct growing *g = context;
    if (g->failed) return -1;
    if (g->length + n + 1 > g->capacity) {
        size_t wanted = 2 * (g->length + n + 1);
        char *fresh = realloc(g->text, wanted);
        if (!fresh) {
            g->failed = true;
            return -1;
        }
        g->text = fresh;
        g->capacity = wanted;
    }
    memcpy(g->text + g->length, bytes, n);
    g->length += n;
    g->text[g->length] = 0;
    return 0;
}

char *json_dump_text(const json_t *value, size_t flags) {
    struct growing g = { 0 };
    int rc = json_dump_callback(value, grow, &g, flags);
    if (rc == 0 && !g.failed) return g.text;
    free(g.text);
    return NULL;
}

/* ---- parsing ----
 * json_read accepts almost every valid text. Of the others jansson says what is wrong, or that they
 * are valid after all.
 *
 * jansson sees ["~~~~~", DOCUMENT]. Its lexer keeps one buffer for all tokens. The first string is
 * as long as the longest token of the document, so no later token makes the buffer grow.
 *
 * A failed allocation sets errno. The bytes of the first string are handed out one by one. So the
 * input ends right after a growth that failed.
 *
 * The document cannot make the buffer grow and is handed out in large pieces. jansson may clear
 * errno there (before numbers). But there only jansson's values allocate, and jansson reports their
 * failures. */

enum { TOKEN_SLACK = 8, TOKEN_MIN = 16 }; /* quotes and NUL; initial size of jansson's buffer */

struct input {
    int64_t opening; /* remaining bytes of the first string, with its quotes and the bracket */
    int64_t length;  /* initial value of opening */
    const char *at, *end;
    bool closed, no_memory;
};

static bool is_separator(char c) { return memchr(" \t\n\r,:[]{}", c, 10) != NULL; }

/* No token is longer than a string, or than a stretch without separators outside a string. */
static int64_t longest_token(const char *bytes, size_t n) {
    int64_t longest = 0, length = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '"' || (!in_string && is_separator(bytes[i]))) {
            in_string ^= bytes[i] == '"';
            length = 0;
        } else {
            bool escape = in_string && bytes[i] == '\\' && i + 1 < n;
            length += 1 + escape;
            i += escape;
        }
        if (length > longest) longest = length;
    }
    return longest;
}

static char opening_byte(const struct input *in) {
    int64_t at = in->length - in->opening;
    return at == 0 ? '[' : at == 1 || at == in->length - 2 ? '"' : at == in->length - 1 ? ',' : '~';
}

static size_t next_bytes(void *buffer, size_t capacity, void *context) {
    struct input *in = context;
    size_t left = (size_t)(in->end - in->at), n = left < capacity ? left : capacity;
    in->no_memory |= errno == ENOMEM;
    if (in->no_memory || in->closed) return 0;
    if (in->opening > 0) {
        *(char *)buffer = opening_byte(in);
        in->opening--;
        return 1;
    }
    if (n == 0) {
        *(char *)buffer = ']';
        in->closed = true;
        return 1;
    }
    memcpy(buffer, in->at, n);
    in->at += n;
    return n;
}

static bool is_space(char c) { return memchr(" \t\n\r", c, 4) != NULL; }

/* Where an object or array ends, and the spaces behind it; n if it does not end. */
static size_t end_of_value(const char *bytes, size_t n) {
    bool in_string = false;
    int64_t depth = 0;
    size_t i = 0;
    while (i < n && is_space(bytes[i])) i++;
    if (i == n || (bytes[i] != '{' && bytes[i] != '[')) return n;
    for (; i < n; i++) {
        if (in_string && bytes[i] == '\\') i++;
        else if (bytes[i] == '"') in_string = !in_string;
        else if (!in_string && (bytes[i] == '{' || bytes[i] == '[')) depth++;
        else if (!in_string && (bytes[i] == '}' || bytes[i] == ']') && --depth == 0) break;
    }
    while (++i < n && is_space(bytes[i])) continue;
    return i < n ? i : n;
}

/* Makes jansson's message one about the document, which has no bracket around it. `consumed`: the
 * bytes of the document, and the bracket behind it, that jansson read before the error. */
static void say_alone(const char *bytes, size_t n, int64_t consumed, json_error_t *why) {
    size_t end = end_of_value(bytes, n);
    if (end < n && consumed > (int64_t)end) {
        char c = bytes[end];
        int length = snprintf(why->text, sizeof why->text, "end of file expected");
        why->line = 1;
        for (size_t i = 0; i < end; i++) why->line += bytes[i] == '\n';
        if (c > ' ' && c <= '~')
            snprintf(why->text + length, sizeof why->text - (size_t)length, " near '%c'", c);
    } else if (consumed > (int64_t)n) {
        strcpy(why->text, "unexpected end of file (truncated?)");
    }
}

static enum status no_memory(json_error_t *why) {
    strcpy(why->text, "no memory to parse it");
    return ERR_MEMORY;
}

/* json_parse by jansson alone. */
static enum status judge(json_t **out, const char *bytes, size_t n, size_t flags,
                         json_error_t *why) {
    int64_t capacity = TOKEN_MIN; /* of the buffer, which doubles */
    while (capacity < longest_token(bytes, n) + 2 * TOKEN_SLACK) capacity *= 2;
    struct input in = { .opening = capacity - TOKEN_SLACK, .length = capacity - TOKEN_SLACK,
                        .at = bytes, .end = bytes + n };
    errno = 0;
    json_t *both = json_load_callback(next_bytes, &in, flags, why);
    in.no_memory |= errno == ENOMEM;
    *out = json_array_size(both) == 2 ? json_incref(json_array_get(both, 1)) : NULL;
    json_decref(both);
    if (!in.no_memory && (json_is_object(*out) || json_is_array(*out))) return OK;
    json_decref(*out);
    *out = NULL;
    if (both) {
        strcpy(why->text, "an object or array was expected");
        why->line = 1; /* jansson, which saw no error, leaves -1 */
    }
    say_alone(bytes, n, both ? (int64_t)n : why->position - in.length, why);
    if (n == 0) strcpy(why->text, "the text is empty; an object or array was expected");
    return in.no_memory ? no_memory(why) : ERR_FORMAT;
}

enum status json_parse(json_t **out, const char *bytes, size_t n, size_t flags, json_error_t *why) {
    bool failed = false, usual = !(flags & ~(size_t)(JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL));
    *out = usual ? json_read(bytes, n, &failed) : NULL;
    if (*out) return OK;
    return failed ? no_memory(why) : judge(out, bytes, n, flags, why);
}
