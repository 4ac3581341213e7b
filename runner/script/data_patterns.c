#include "runner/script/data_patterns.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"
#include "runner/base/run_files.h"
#include "runner/base/shell_word.h"
#include "runner/base/words.h"
#include "runner/cache/eval_sets.h"

enum { FILES_MAX = 4096 /* each stays open: main.c */, PARTS_MAX = 2 };

static bool is_pattern(const char *path) { return strpbrk(path, "*?[") != NULL; }

static bool is_listed(const json_t *paths, const char *path) {
    size_t i;
    const json_t *row;
    json_array_foreach(paths, i, row)
        if (strcmp(json_string_value(row), path) == 0) return true;
    return false;
}

static int compare_words(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* ---- one name -------------------------------------------------------------------------------- */
/* Whether the byte is in the set at *p, "[a-z]" or "[!a-z]". *p moves past the set. A '[' without
 * a ']' matches itself. */
static bool in_set(const char **p, char byte) {
    const char *at = *p + 1;
    bool negated = *at == '!', in = false;
    unsigned char c = (unsigned char)byte;
    at += negated;
    const char *first = at, *end = *at ? strpbrk(at + 1, "]/") : NULL; /* ']' first is a member */
    if (!end || *end == '/') return *(*p)++ == byte;
    for (; at < end; at++) {
        bool range = at[1] == '-' && at + 2 < end;
        unsigned char low = (unsigned char)*at, high = (unsigned char)(range ? at[2] : *at);
        in = in || (c >= low && c <= high);
        at += range ? 2 : 0;
    }
    *p = end + 1;
    return first < end && in != negated;
}

/* Whether the path matches the pattern. After a mismatch only the last '*' is tried again. That is
 * sufficient because every component is matched separately. The time is at most the product of the
 * lengths (fnmatch() can take exponential time). */
static bool matches(const char *p, const char *path) {
    const char *star = NULL, *from = NULL;
    for (const char *s = path; *s;) {
        bool hidden = *s == '.' && (s == path || s[-1] == '/');
        const char *next = p;
        bool fits = false;
        if (*p == '*' && !hidden) {
            star = ++p;
            from = s;
            continue;
        }
        if (*p == '?' || *p == '[') fits = !hidden && *s != '/';
        if (*p == '[') fits = in_set(&next, *s) && fits;
        else if (*p) next++;
        if (fits || (*p && !strchr("*?[", *p) && *p == *s)) {
            if (*s == '/') star = NULL;
            p = next;
            s++;
        } else if (star && *from != '/') {
            p = star;
            s = ++from;
        } else {
            return false;
        }
    }
    while (*p == '*') p++;
    return *p == '\0';
}

/* ---- what a pattern matches ------------------------------------------------------------------ */
static enum status add_file(struct words *out, const char *folder, const char *name, size_t skip,
                            struct err *e) {
    struct stat info;
    char path[PATH_CAP];
    int n = snprintf(path, sizeof path, "%s%s", folder, name);
    bool regular = n < PATH_CAP && stat(path, &info) == 0 && S_ISREG(info.st_mode);
    if (regular) words_add(out, path + skip);
    return out->failed ? FAIL(e, ERR_MEMORY, "the files of %s", folder) : OK;
}

/* Adds the matching files below `folder` ("" or ending in '/'), without their first `skip` bytes,
 * in the folders' order. An unreadable folder counts as empty. */
static enum status match_files(const char *folder, const char *pattern, size_t skip,
                               struct words *out, struct err *e) {
    size_t plain = strcspn(pattern, "*?[");
    while (plain > 0 && pattern[plain] && pattern[plain - 1] != '/') plain--;
    const char *first = pattern + plain; /* the component with the pattern */
    size_t n = strcspn(first, "/");
    const char *rest = first + n + strspn(first + n, "/");
    char part[PATH_CAP], here[PATH_CAP], below[PATH_CAP];
    if (!*first) return add_file(out, folder, pattern, skip, e);
    snprintf(part, sizeof part, "%.*s", (int)n, first);
    int used = snprintf(here, sizeof here, "%s%.*s", folder, (int)plain, pattern);
    DIR *names = used < PATH_CAP ? opendir(*here ? here : ".") : NULL;
    enum status st = OK;
    for (struct dirent *entry; names && st == OK && (entry = readdir(names));) {
        if (!matches(part, entry->d_name)) continue;
        used = snprintf(below, sizeof below, "%s%s/", here, entry->d_name);
        if (first[n] == '\0') st = add_file(out, here, entry->d_name, skip, e);
        else if (used < PATH_CAP) st = match_files(below, rest, skip, out, e);
    }
    if (names) closedir(names);
    return st;
}

static enum status match_here(const char *root, const char *pattern, struct words *out,
                              struct err *e) {
    char folder[PATH_CAP];
    int n = snprintf(folder, sizeof folder, "%s%s", root ? root : "", root ? "/" : "");
    return n < PATH_CAP ? match_files(folder, pattern, (size_t)n, out, e)
                        : FAIL(e, ERR_ARG, "--data-root of %d bytes is too long", n);
}

/* The number of components of a path that are patterns. */
static int64_t pattern_parts(const char *path) {
    int64_t parts = 0;
    while (*path) {
        size_t n = strcspn(path, "/"), plain = strcspn(path, "*?[");
        parts += plain < n;
        path += n + strspn(path + n, "/");
    }
    return parts;
}

/* The same for the files that a bundle names. */
static enum status match_known(const json_t *known, const char *path, struct words *out,
                               struct err *e) {
    size_t i;
    const json_t *row;
    json_array_foreach(known, i, row) {
        const char *name = json_text(row, "path", "");
        if (matches(path, name)) words_add(out, name);
    }
    return out->failed ? FAIL(e, ERR_MEMORY, "the files of %s", path) : OK;
}

static bool has_that_name(const struct pattern_source *source, const char *path) {
    size_t i;
    const json_t *row;
    char *full = NULL;
    json_array_foreach(source->known, i, row)
        if (strcmp(json_text(row, "path", ""), path) == 0) return true;
    if (source->known) return false;
    if (source->root && asprintf(&full, "%s/%s", source->root, path) < 0) return false;
    bool there = access(full ? full : path, F_OK) == 0;
    free(full);
    return there;
}

/* ---- the list -------------------------------------------------------------------------------- */
/* A script may name no other files either: JSON holds only UTF-8. */
static enum status check_name(const char *key, const char *pattern, const char *name,
                              struct err *e) {
    size_t n = strlen(name);
    const char *wrong = utf8_valid_prefix(name, n) < n ? "is not UTF-8" : NULL;
    for (size_t i = 0; i < n && !wrong; i++)
        if ((unsigned char)name[i] < 0x20) wrong = "has a control character";
    if (!wrong) return OK;
    return FAIL(e, ERR_CONFIG, "%s: \"%s\" matches %s, whose name %s; rename the file", key,
                pattern, PLAIN(name), wrong);
}

/* Appends the path, or the files that its pattern matches. */
static enum status expand_path(const struct pattern_source *source, const char *key,
                               const char *path, json_t *out, struct err *e) {
    struct words found = { 0 };
    bool failed = false;
    if (!is_pattern(path) || has_that_name(source, path)) {
        json_append(out, json_string(path), &failed);
        return failed ? FAIL(e, ERR_MEMORY, "the list of %s", key) : OK;
    }
    if (pattern_parts(path) > PARTS_MAX)
        return FAIL(e, ERR_CONFIG, "%s: \"%s\" is a pattern in more than %d components of its "
                    "path; name the folders", key, path, PARTS_MAX);
    enum status st = source->known ? match_known(source->known, path, &found, e)
                                   : match_here(source->root, path, &found, e);
    if (st == OK && found.count == 0 && source->must_match)
        st = FAIL(e, ERR_CONFIG, "%s: no file matches \"%s\" in %s; --data-root DIR counts paths "
                  "from another folder", key, path, source->root ? source->root : "this folder");
    if (st == OK && found.count == 0) words_add(&found, path);
    if (st == OK && found.count > 1)
        qsort(found.word, (size_t)found.count, sizeof *found.word, compare_words);
    for (int64_t i = 0; st == OK && i < found.count; i++) {
        st = check_name(key, path, found.word[i], e);
        if (st == OK && !is_listed(out, found.word[i]))
            json_append(out, json_string(found.word[i]), &failed);
    }
    if (st == OK && (failed || found.failed)) st = FAIL(e, ERR_MEMORY, "the files of %s", path);
    words_free(&found);
    return st;
}

static bool ends_in(const char *path, const char *suffix) {
    size_t n = strlen(path), m = strlen(suffix);
    return n >= m && strcmp(path + n - m, suffix) == 0;
}

/* A Megatron dataset is a .bin and an .idx: where a pattern matched both, the .idx is dropped. */
static enum status drop_indices(json_t *files, struct err *e) {
    for (size_t i = json_array_size(files); i-- > 0;) {
        const char *path = json_string_value(json_array_get(files, i));
        char *bin = NULL;
        if (!ends_in(path, ".idx")) continue;
        if (asprintf(&bin, "%.*s.bin", (int)strlen(path) - 4, path) < 0)
            return FAIL(e, ERR_MEMORY, "a path");
        if (is_listed(files, bin)) json_array_remove(files, i);
        free(bin);
    }
    return OK;
}

/* Expands the list `paths` of a table in place; `path` as a pattern becomes such a list. */
static enum status expand_table(json_t *table, const char *key, const struct pattern_source *source,
                                struct err *e) {
    const json_t *paths = json_object_get(table, "paths"), *item;
    const char *path = json_text(table, "path", NULL);
    char name[64];
    size_t i;
    bool single = path && is_pattern(path) && !has_that_name(source, path), any = single;
    bool failed = false;
    json_array_foreach(paths, i, item) any = any || is_pattern(json_string_value(item));
    if (!any) return OK;
    snprintf(name, sizeof name, "%s.%s", key, single ? "path" : "paths");
    json_t *files = json_array();
    enum status st = files ? OK : FAIL(e, ERR_MEMORY, "the list of %s", name);
    if (st == OK && single) st = expand_path(source, name, path, files, e);
    for (i = 0; st == OK && i < json_array_size(paths); i++)
        st = expand_path(source, name, json_string_value(json_array_get(paths, i)), files, e);
    if (st == OK) st = drop_indices(files, e);
    if (st == OK && json_array_size(files) > FILES_MAX)
        st = FAIL(e, ERR_CONFIG, "%s: its patterns match %zu files, at most %d are read", name,
                  json_array_size(files), FILES_MAX);
    if (st == OK && single) json_put(table, "path", json_null(), &failed);
    if (st == OK) json_put(table, "paths", json_incref(files), &failed);
    json_decref(files);
    return st == OK && failed ? FAIL(e, ERR_MEMORY, "the list of %s", name) : st;
}

/* The lists of eval.also, in place. A file that two of them match is an error later. */
static enum status expand_sets(json_t *config, const struct pattern_source *source,
                               struct err *e) {
    json_t *also = eval_sets_of(config), *paths, *item;
    const char *name;
    json_object_foreach(also, name, paths) {
        char key[EVAL_SET_NAME_CAP + 16];
        json_t *files = json_array();
        enum status st = files ? OK : FAIL(e, ERR_MEMORY, "the list of eval.also.%s", name);
        size_t i;
        snprintf(key, sizeof key, "eval.also.%.*s", EVAL_SET_NAME_CAP, name);
        json_array_foreach(paths, i, item)
            if (st == OK) st = expand_path(source, key, json_string_value(item), files, e);
        if (st == OK) st = drop_indices(files, e);
        if (st == OK && (json_array_clear(paths) != 0 || json_array_extend(paths, files) != 0))
            st = FAIL(e, ERR_MEMORY, "the list of eval.also.%s", name);
        json_decref(files);
        TRY(st);
    }
    return OK;
}

enum status data_patterns_expand(json_t *config, const struct pattern_source *source,
                                 struct err *e) {
    json_t *data = json_object_get(config, "data"), *part;
    char key[48];
    size_t i;
    TRY(expand_sets(config, source, e));
    TRY(expand_table(data, "data", source, e));
    json_array_foreach(json_object_get(data, "parts"), i, part) {
        snprintf(key, sizeof key, "data.parts[%zu]", i + 1);
        TRY(expand_table(part, key, source, e));
    }
    return OK;
}

/* The number of names, from paths[i] on, that are one name ROOT/a,b of a file here, while ROOT/a is
 * none; else 1. */
static size_t name_parts(const json_t *paths, size_t i, const char *root, char name[PATH_CAP]) {
    char full[PATH_CAP];
    size_t used = 0;
    for (size_t k = i; k < json_array_size(paths) && used < PATH_CAP; k++) {
        int n = snprintf(name + used, PATH_CAP - used, "%s%s", k > i ? "," : "",
                         json_string_value(json_array_get(paths, k)));
        used += (size_t)n;
        n = snprintf(full, sizeof full, "%s%s%s", root ? root : "", root ? "/" : "", name);
        if (used >= PATH_CAP || n >= PATH_CAP) return 1;
        if (path_exists(full)) return k - i + 1;
    }
    return 1;
}

/* The same list where names that a comma has cut are whole again; the first of these is in `name`.
 * NULL: there is none, or no memory. */
static json_t *whole_names(const json_t *paths, const char *root, char name[PATH_CAP]) {
    char joined[PATH_CAP];
    bool failed = false;
    json_t *out = json_array();
    name[0] = '\0';
    for (size_t i = 0, n; out && i < json_array_size(paths); i += n) {
        n = name_parts(paths, i, root, joined);
        if (n > 1 && !*name) snprintf(name, PATH_CAP, "%s", joined);
        json_append(out, n > 1 ? json_string(joined) : json_incref(json_array_get(paths, i)),
                    &failed);
    }
    return json_whole(out, failed || !*name);
}

/* "A,B" as a list. NULL: no memory, or no UTF-8. */
static json_t *cut_at_commas(const char *text) {
    bool failed = false;
    json_t *out = json_array();
    for (;; text++) {
        size_t n = strcspn(text, ",");
        json_append(out, json_stringn(text, n), &failed);
        text += n;
        if (!*text) return json_whole(out, failed);
    }
}

void data_comma_hint(const char *set, const char *root, struct err *e) {
    char name[PATH_CAP];
    if (!set || *set == '[') return; /* a JSON list: no comma cuts its names */
    json_t *cut = cut_at_commas(set);
    json_t *paths = cut ? whole_names(cut, root, name) : NULL;
    char *list = paths ? json_dump_text(paths, JSON_COMPACT) : NULL, *flag = NULL, *word = NULL;
    if (list && asprintf(&flag, "data.paths=%s", list) >= 0) word = shell_word(flag);
    size_t n = strlen(e->text), room = sizeof e->text - n;
    if (paths && snprintf(e->text + n, room, "; in --set a comma separates files, but there is a "
                          "file %.256s: --set %s", PLAIN(name), word ? word : "") >= (int)room)
        snprintf(e->text + n, room, "; in --set a comma separates files, but there is a file "
                 "%.256s: write the files as a JSON list", PLAIN(name));
    free(word);
    free(flag);
    free(list);
    json_decref(paths);
    json_decref(cut);
}

bool data_pattern_is_here(const char *path) {
    struct words found = { 0 };
    struct err ignored; /* out of memory counts as no match */
    if (access(path, R_OK) == 0) return true;
    bool here = is_pattern(path) && pattern_parts(path) <= PARTS_MAX &&
                match_here(NULL, path, &found, &ignored) == OK && found.count > 0;
    words_free(&found);
    return here;
}
