#include "runner/base/json_flat.h"

#include <stdio.h>

#include "model/ground/json_safe.h"

static void flatten(const char *prefix, json_t *object, json_t *out, bool *failed) {
    const char *key;
    json_t *item;
    json_object_foreach(object, key, item) {
        char name[512];
        snprintf(name, sizeof name, "%s%s%s", prefix, *prefix ? "." : "", key);
        if (json_is_object(item) && json_object_size(item) > 0) flatten(name, item, out, failed);
        else json_put(out, name, json_incref(item), failed);
    }
}

void json_flatten(json_t *object, json_t *out, bool *failed) { flatten("", object, out, failed); }
