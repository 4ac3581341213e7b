#include "runner/show_words.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "runner/base/canonical.h"

void show_words_model(const struct run_view *v, char out[SHOW_WORDS_CAP]) {
    const json_t *m = json_object_get(v->resolved, "model");
    int64_t layers = json_int(m, "layers"), heads = json_int(m, "heads");
    int64_t keys = json_int(m, "kv_heads");
    char shared[48] = "";
    out[0] = '\0';
    if (!json_is_object(m)) return;
    if (keys != heads) snprintf(shared, sizeof shared, " (%" PRId64 " of keys)", keys);
    snprintf(out, SHOW_WORDS_CAP, "%" PRId64 " layer%s, width %" PRId64 ", %" PRId64 " head%s%s, "
             "ffn %" PRId64 ", vocab %" PRId64 ", sequences of %" PRId64, layers,
             layers == 1 ? "" : "s", json_int(m, "width"), heads, heads == 1 ? "" : "s", shared,
             json_int(m, "ffn"), json_int(m, "vocab"), json_int(m, "seq_len"));
}

/* The files of the first part of a blend, or of all data; `parts`: how many more there are. */
static const json_t *first_files(const json_t *data, size_t *parts) {
    const json_t *blend = json_object_get(data, "parts");
    *parts = json_array_size(blend);
    return *parts ? json_array_get(blend, 0) : data;
}

void show_words_data(const struct run_view *v, char out[SHOW_WORDS_CAP]) {
    const json_t *data = json_object_get(v->resolved, "data");
    size_t parts, files;
    const json_t *first = first_files(data, &parts), *paths = json_object_get(first, "paths");
    const char *path = json_text(first, "path", json_string_value(json_array_get(paths, 0)));
    const char *kind = json_text(data, "kind", "");
    char more[64] = "";
    files = json_array_size(paths);
    if (files > 1) snprintf(more, sizeof more, " and %zu more", files - 1);
    else if (parts > 1) snprintf(more, sizeof more, ", a blend of %zu parts", parts);
    snprintf(out, SHOW_WORDS_CAP, "%.40s%s%.240s%s", kind, path ? ", " : "", path ? path : "",
             more);
}
