#include "runner/cache/cache_room.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/ground/input_kind.h"
#include "runner/base/run_files.h"
#include "runner/cache/cache_chat.h"
#include "runner/cache/cache_key.h"
#include "runner/cache/eval_sets.h"
#include "runner/ingest/shards.h"
#include "runner/ingest/source_kind.h"

enum { UNPACKED = 4 }; /* bytes of text in a byte of a packed file, as gzip makes it */

/* The path of a file of text; one that is too long is of no file. */
static void path_of(char out[PATH_CAP], const char *root, const json_t *path) {
    const char *name = json_string_value(path);
    if (!root) snprintf(out, PATH_CAP, "%s", name);
    else if (path_join(out, root, name, NULL) != OK) *out = '\0';
}

static int64_t size_of(const char *path) {
    struct stat is;
    return stat(path, &is) == 0 ? (int64_t)is.st_size : 0;
}

static bool is_packed(const char *path) {
    char head[INPUT_KIND_HEAD];
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    size_t n = fread(head, 1, sizeof head, f);
    fclose(f);
    return source_kind(head, n).opened;
}

/* Whether the description names this tokenizer and files of these sizes. */
static bool describes(const json_t *d, const char *root, const json_t *paths,
                      const char *tokenizer) {
    char path[PATH_CAP];
    const json_t *sources = json_object_get(d, "sources");
    bool same = json_array_size(sources) == json_array_size(paths) &&
                !strcmp(json_text(json_object_get(d, "tokenizer"), "sha256", ""), tokenizer);
    for (size_t i = 0; same && i < json_array_size(paths); i++) {
        path_of(path, root, json_array_get(paths, i));
        same = json_int(json_array_get(sources, i), "bytes") == size_of(path);
    }
    return same;
}

static bool is_there(const char *folder, const char *root, const json_t *paths,
                     const char *tokenizer) {
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    bool found = false;
    while (dir && !found && (entry = readdir(dir))) {
        char path[PATH_CAP];
        size_t n = strlen(entry->d_name);
        json_t *d = NULL;
        if (n < 5 || strcmp(entry->d_name + n - 5, ".json") != 0) continue;
        if (path_join(path, folder, entry->d_name, NULL) != OK) continue;
        if (json_file_read(path, &d, NULL) == OK) found = describes(d, root, paths, tokenizer);
        json_decref(d);
    }
    if (dir) closedir(dir);
    return found;
}

/* Bytes of text that these files have and that `folder` has no tokens of. */
static int64_t text_of(const json_t *paths, const char *root, const char *folder,
                       const char *tokenizer) {
    const json_t *path;
    int64_t text = 0;
    size_t i;
    if (is_there(folder, root, paths, tokenizer)) return 0;
    json_array_foreach(paths, i, path) {
        char name[PATH_CAP];
        path_of(name, root, path);
        text += size_of(name) * (is_packed(name) ? UNPACKED : 1);
    }
    return text;
}

int64_t cache_room(const json_t *config, const char *root, const char *folder) {
    const json_t *data = json_object_get(config, "data");
    struct tokenizer_choice choice;
    struct err ignored; /* other checks say what is wrong */
    const char *name;
    json_t *files;
    if (!cache_is_needed(config) ||
        cache_tokenizer(data, root, NULL, &choice, &ignored) != OK)
        return 0;
    const struct tokenizer_facts facts = tokenizer_facts(choice.tokenizer);
    int64_t token = shards_id_bytes(choice.vocab) + cache_is_chat(data);
    int64_t text = text_of(json_object_get(data, "paths"), root, folder, facts.sha256);
    json_object_foreach(eval_sets_of(config), name, files)
        text += text_of(files, root, folder, facts.sha256);
    tokenizer_choice_free(&choice);
    return text * token;
}
