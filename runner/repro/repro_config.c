#include "runner/repro/repro_config.h"

#include <stdio.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/script/token_paths.h"

static void add(json_t *list, const char *path, bool *failed) {
    json_append(list, json_string_nocheck(path), failed); /* a truncated path may not be UTF-8 */
}

static void find(const json_t *then, const json_t *now, const char *prefix,
                 struct config_change *out, bool *failed) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)now, key, value) {
        const json_t *old = json_object_get(then, key);
        char path[512];
        snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", key);
        if (!old) add(out->newer, path, failed);
        else if (json_is_object(old) && json_is_object(value))
            find(old, value, path, out, failed);
        else if (!json_equal(old, value)) add(out->changed, path, failed);
    }
    json_object_foreach((json_t *)then, key, value) {
        char path[512];
        snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", key);
        if (!json_object_get(now, key)) add(out->changed, path, failed);
    }
}

enum status config_change_find(const json_t *then, const json_t *now, struct config_change *out,
                               struct err *e) {
    bool failed = false;
    json_t *a = NULL, *b = NULL;
    *out = (struct config_change){ json_array(), json_array() };
    enum status st = token_paths_cut(then, &a, e);
    if (st == OK) st = token_paths_cut(now, &b, e);
    if (st == OK) find(a, b, "", out, &failed);
    json_decref(a);
    json_decref(b);
    TRY(st);
    return failed || !out->newer || !out->changed
               ? FAIL(e, ERR_MEMORY, "the configuration then and now")
               : OK;
}

void config_change_free(struct config_change *c) {
    json_decref(c->newer);
    json_decref(c->changed);
    *c = (struct config_change){ 0 };
}

bool config_change_is_newer(const struct config_change *c, const char *key) {
    const json_t *item;
    size_t i;
    json_array_foreach(c->newer, i, item) {
        const char *newer = json_string_value(item);
        size_t n = strlen(newer);
        if (!strncmp(key, newer, n) && (key[n] == '\0' || key[n] == '.')) return true;
    }
    return false;
}
