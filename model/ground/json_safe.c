#include "model/ground/json_safe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void json_put(json_t *object, const char *key, json_t *value, bool *failed) {
    if (json_object_set_new(object, key, value) != 0) *failed = true;
}

void json_append(json_t *array, json_t *value, bool *failed) {
    if (json_array_append_new(array, value) != 0) *failed = true;
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
 * jansson sees ["~~~~~", DOCUMENT]. Its lexer keeps one buffer for all tokens, so the first string,
 * as long as the longest token that follows, is the only one that makes it grow. An allocation that
 * fails sets errno, and the input is handed out byte by byte: the first byte after a failed growth
 * is the end of the input. After the first string errno may be cleared (before numbers), but then a
 * failure is one of jansson's values, which it does report. */

enum { TOKEN_SLACK = 8, TOKEN_MIN = 16 }; /* quotes and NUL; what jansson's buffer starts with */

struct input {
    int64_t opening; /* bytes of the first string that are left, its quotes and the bracket too */
    int64_t length;  /* what opening was */
    const char *at, *end;
    bool closed, no_memory;
};

/* No token is longer than the longest stretch between two quotes that are not escaped. */
static int64_t longest_token(const char *bytes, size_t n) {
    int64_t longest = 0, length = 0;
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '\\') i++, length++;
        length = i < n && bytes[i] == '"' && (i == 0 || bytes[i - 1] != '\\') ? 0 : length + 1;
        if (length > longest) longest = length;
    }
    return longest;
}

static char opening_byte(const struct input *in) {
    int64_t at = in->length - in->opening;
    return at == 0 ? '[' : at == 1 || at == in->length - 2 ? '"' : at == in->length - 1 ? ',' : '~';
}

static size_t next_byte(void *buffer, size_t capacity, void *context) {
    struct input *in = context;
    in->no_memory |= errno == ENOMEM;
    if (in->no_memory || in->closed) return 0;
    if (in->opening > 0) {
        *(char *)buffer = opening_byte(in);
        in->opening--;
    } else if (in->at < in->end) {
        *(char *)buffer = *in->at++;
    } else {
        *(char *)buffer = ']';
        in->closed = true;
    }
    return 1;
}

enum status json_parse(json_t **out, const char *bytes, size_t n, size_t flags, json_error_t *why) {
    int64_t capacity = TOKEN_MIN; /* of the buffer, which doubles */
    while (capacity < longest_token(bytes, n) + 2 * TOKEN_SLACK) capacity *= 2;
    struct input in = { .opening = capacity - TOKEN_SLACK, .length = capacity - TOKEN_SLACK,
                        .at = bytes, .end = bytes + n };
    errno = 0;
    json_t *both = json_load_callback(next_byte, &in, flags, why);
    in.no_memory |= errno == ENOMEM;
    *out = json_array_size(both) == 2 ? json_incref(json_array_get(both, 1)) : NULL;
    json_decref(both);
    if (!in.no_memory && (json_is_object(*out) || json_is_array(*out))) return OK;
    json_decref(*out);
    *out = NULL;
    if (both) strcpy(why->text, "an object or array expected");
    if (n == 0) strcpy(why->text, "nothing in it, an object or array expected");
    if (in.no_memory) strcpy(why->text, "no memory to parse it");
    return in.no_memory ? ERR_MEMORY : ERR_FORMAT;
}
