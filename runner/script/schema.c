#include "runner/script/schema.h"

#include <string.h>

const char *schema_path(struct pool *p, const char *path, const char *key) {
    return *path ? pool_format(p, "%s.%s", path, key) : pool_copy(p, key);
}

const struct field *schema_field(const struct schema *schema, const char *key) {
    for (const struct field *f = schema->fields; f->key; f++)
        if (strcmp(f->key, key) == 0) return f;
    return NULL;
}
