#include "runner/certify/forbidden.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"

char *forbidden_text(const json_t *names) {
    size_t i, bytes = 0;
    const json_t *way;
    char *text = NULL;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return NULL;
    json_array_foreach(names, i, way)
        fprintf(out, "%s%s", i ? "; " : "", json_string_value(way));
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}

/* The next name of a text, from *at on; "" at its end. false: it is too long for a name. */
static bool next_name(const char **at, char name[FORBIDDEN_NAME_CAP]) {
    size_t n = *at ? strcspn(*at, ";") : 0;
    *name = '\0';
    if (n >= FORBIDDEN_NAME_CAP) return false;
    if (!*at) return true;
    memcpy(name, *at, n);
    name[n] = '\0';
    *at += n;
    *at += strspn(*at, "; ");
    return true;
}

bool forbidden_has(const json_t *names, const char *name) {
    const json_t *one;
    size_t i;
    json_array_foreach(names, i, one)
        if (!strcmp(json_string_value(one), name)) return true;
    return false;
}

void forbidden_add(json_t *names, const char *name, bool *failed) {
    if (!forbidden_has(names, name)) json_append(names, json_string(name), failed);
}

json_t *forbidden_names(const char *ways) {
    char name[FORBIDDEN_NAME_CAP];
    json_t *names = json_array();
    bool failed = false;
    while (names && next_name(&ways, name) && *name) forbidden_add(names, name, &failed);
    return json_whole(names, failed);
}

enum status forbidden_apply(struct backend *b, const char *ways, struct err *e) {
    for (;;) {
        char name[FORBIDDEN_NAME_CAP], section[16];
        const char *from = ways;
        bool fits = next_name(&ways, name);
        size_t n = strcspn(name, " ");
        if (fits && !*name) return OK;
        if (!fits || !name[n] || n >= sizeof section || strlen(name + n) > FORBIDDEN_WAY_CAP)
            return FAIL(e, ERR_ARG, "--forbid %s: give a section, a space and a way", from);
        snprintf(section, sizeof section, "%.*s", (int)n, name);
        TRY(b->ops->forbid(b, section, name + n + 1, e));
    }
}
