#include "runner/script/schema_sets.h"

#include <string.h>

#include "runner/script/rule_places.h"
#include "runner/script/schema.h"

/* Where a path is named: a key, and the place of the item. */
struct named {
    struct diagnostics *d;
    const char *path, *key;
    struct place place;
};

/* A path of the set that is also in `list`, from item `first` on, is an error. */
static void compare(const struct named *n, const struct value *list, int64_t first,
                    const char *key) {
    for (int64_t i = first; list && i < list->item_count; i++) {
        if (!value_is(list->items[i], n->path)) continue;
        if (!strncmp(key, "data.", 5))
            diagnostics_add(n->d, changed(n->place, list->items[i]->place), n->key, "%s is also in "
                            "%s: its loss would be that of text that is trained on; take it out "
                            "of one of the two", n->path, key);
        else if (strcmp(key, n->key) != 0)
            diagnostics_add(n->d, n->place, n->key, "%s is also in %s; take it out of one of the "
                            "two", n->path, key);
        else
            diagnostics_add(n->d, list->items[i]->place, n->key, "%s is named twice", n->path);
        return;
    }
}

static void compare_one(const struct named *n, const struct value *path, const char *key) {
    struct value one = { .item_count = 1, .items = (struct value *[]){ (struct value *)path } };
    if (path) compare(n, &one, 0, key);
}

static void compare_data(const struct named *n, const struct value *data) {
    const struct value *parts = value_get(data, "parts");
    compare(n, value_get(data, "paths"), 0, "data.paths");
    compare_one(n, value_get(data, "path"), "data.path");
    compare_one(n, value_get(data, "eval_path"), "data.eval_path");
    for (int64_t i = 0; parts && i < parts->item_count; i++) {
        compare(n, value_get(parts->items[i], "paths"), 0, "data.parts");
        compare_one(n, value_get(parts->items[i], "path"), "data.parts");
    }
}

void schema_sets_rules(struct diagnostics *d, const struct value *experiment) {
    const struct value *eval = value_get(experiment, "eval"), *also = value_get(eval, "also");
    const struct value *data = value_get(experiment, "data");
    if (!also || !data) return;
    if (value_is(value_get(data, "kind"), "synthetic")) {
        diagnostics_add(d, changed(place_of(eval, "also"), place_of(experiment, "data")),
                        "eval.also", "data = synthetic has no files, so there are no others to "
                        "evaluate on; leave also out, or use text, chats or tokens");
        return;
    }
    for (int64_t k = 0; k < also->member_count; k++) {
        const struct value *files = also->members[k].value;
        const char *key = schema_path(d->pool, "eval.also", also->members[k].key);
        for (int64_t i = 0; i < files->item_count; i++) {
            const struct named n = { d, files->items[i]->string, key, files->items[i]->place };
            compare_data(&n, data);
            compare(&n, files, i + 1, key);
            for (int64_t j = 0; j < k; j++)
                compare(&n, also->members[j].value, 0,
                        schema_path(d->pool, "eval.also", also->members[j].key));
        }
    }
}
