#include "model/json_safe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void json_put(json_t *object, const char *key, json_t *value, bool *failed) {
    if (json_object_set_new(object, key, value) != 0) *failed = true;
}

void json_append(json_t *array, json_t *value, bool *failed) {
    if (json_array_append_new(array, value) != 0) *failed = true;
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
 * An allocation that fails sets errno, which jansson itself never reads but clears before it converts a
 * number. Between the two it asks for a byte, so the input is handed out byte by byte. */

struct input { const char *at, *end; bool no_memory; };

static size_t next_byte(void *buffer, size_t capacity, void *context) {
    struct input *in = context;
    in->no_memory |= errno == ENOMEM;
    if (in->at == in->end || in->no_memory) return 0;
    *(char *)buffer = *in->at++;
    return 1;
}

enum status json_parse(json_t **out, const char *bytes, size_t n, size_t flags, json_error_t *why) {
    struct input in = { .at = bytes, .end = bytes + n };
    errno = 0;
    *out = json_load_callback(next_byte, &in, flags, why);
    in.no_memory |= errno == ENOMEM;
    if (!in.no_memory) return *out ? OK : ERR_FORMAT;
    json_decref(*out);
    *out = NULL;
    strcpy(why->text, "no memory to parse it");
    return ERR_MEMORY;
}
