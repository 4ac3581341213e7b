#include "runner/record/choice_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "kernels/choices.h"
#include "model/ground/json_safe.h"
#include "model/ground/sha256.h"
#include "runner/base/canonical.h"
#include "runner/plan/backends.h"

static const char SCHEMA[] = "fp8lab.choices/1", FILE_NAME[] = "choices.json",
                  LOCK_NAME[] = "choices.lock", OFFERED[] = "offered.json";
/* Tables over this number are dropped, the ones that grew longest ago first. */
enum { TABLES_MAX = 64, LOCK_TRIES = 100, LOCK_WAIT_MS = 10 };

/* What a table is for. All must be equal for two tables to be one. */
static const char *const KEYS[] = { "driver", "kernels", "architecture", "device", "libraries" };
enum { KEY_COUNT = sizeof KEYS / sizeof *KEYS };

static enum status no_memory(struct err *e) {
    return FAIL(e, ERR_MEMORY, "no memory for kept choices");
}

/* ---- tables -----------------------------------------------------------------------------------*/

/* A table is {the KEYS: text, "choices": ["gemm 1 2 3 : 00ff", ...]}, its lines as in
 * kernels/choices.h. */
static bool same_table(const json_t *a, const json_t *b) {
    for (int i = 0; i < KEY_COUNT; i++)
        if (strcmp(json_text(a, KEYS[i], ""), json_text(b, KEYS[i], "")) != 0) return false;
    return true;
}

static json_t *find_table(const json_t *tables, const json_t *like) {
    json_t *table;
    size_t i;
    json_array_foreach(tables, i, table)
        if (same_table(table, like)) return table;
    return NULL;
}

/* The bytes of a line before its value: the kind and the shape. */
static size_t shape_bytes(const char *line) {
    const char *end = strstr(line, " : ");
    return end ? (size_t)(end - line) + 3 : strlen(line);
}

static bool has_shape(const json_t *lines, const char *line) {
    size_t i, n = shape_bytes(line);
    const json_t *have;
    json_array_foreach(lines, i, have)
        if (!strncmp(json_string_value(have), line, n)) return true;
    return false;
}

/* Adds the lines of `from` whose shapes `to` lacks; *grew becomes true if there is one. */
static void add_lines(json_t *to, const json_t *from, bool *grew, bool *failed) {
    json_t *lines = json_object_get(to, "choices"), *line;
    size_t i;
    json_array_foreach(json_object_get(from, "choices"), i, line) {
        if (has_shape(lines, json_string_value(line))) continue;
        json_append(lines, json_incref(line), failed);
        *grew = true;
    }
}

/* Adds to `tables` what `more` has and they lack. A table that grew becomes the first. */
static enum status merge(json_t *tables, const json_t *more, bool *grew, struct err *e) {
    json_t *table;
    size_t i;
    bool failed = false;
    json_array_foreach(more, i, table) {
        json_t *have = find_table(tables, table);
        bool added = !have;
        if (have) add_lines(have, table, &added, &failed);
        *grew |= added;
        if (!added) continue;
        json_t *first = have ? json_incref(have) : json_deep_copy(table);
        size_t at = 0;
        while (have && json_array_get(tables, at) != have) at++;
        if (have) (void)json_array_remove(tables, at);
        failed |= json_array_insert_new(tables, 0, first) != 0;
    }
    while (json_array_size(tables) > TABLES_MAX)
        (void)json_array_remove(tables, json_array_size(tables) - 1);
    return failed ? no_memory(e) : OK;
}

/* The table as a backend reads it; the caller frees *text. */
static enum status table_text(const json_t *table, char **text, struct err *e) {
    size_t i, bytes = 0;
    json_t *line;
    *text = NULL;
    FILE *out = open_memstream(text, &bytes);
    if (!out) return no_memory(e);
    choices_begin(out, json_text(table, "device", ""), json_text(table, "libraries", ""));
    json_array_foreach(json_object_get(table, "choices"), i, line)
        fprintf(out, "%s\n", json_string_value(line));
    bool failed = ferror(out) != 0;
    if (fclose(out) == 0 && !failed && *text) return OK;
    free(*text);
    *text = NULL;
    return no_memory(e);
}

/* A table of the text that a backend wrote; its "choices" are empty if it has no lines. */
static enum status table_of(const struct choice_cache *c, const char *architecture,
                            const char *text, json_t **out, struct err *e) {
    struct choices_reader r;
    TRY(choices_open(&r, text, e));
    json_t *lines = json_array();
    bool failed = false, more = true;
    while (more) {
        const char *at = r.at;
        struct choice ignored;
        enum status st = choices_next(&r, &ignored, &more, e);
        if (st != OK) {
            json_decref(lines);
            return st;
        }
        while (more && *at == '#') at += strcspn(at, "\n") + 1;
        if (more) json_append(lines, json_stringn(at, strcspn(at, "\n")), &failed);
    }
    *out = json_pack("{s:s,s:s,s:s,s:s,s:s,s:o}", "driver", c->driver, "kernels",
                     backend_kernels_sha256(), "architecture", architecture, "device", r.device,
                     "libraries", r.libraries, "choices", json_whole(lines, failed));
    return *out ? OK : no_memory(e);
}

/* ---- the file ---------------------------------------------------------------------------------*/

static enum status hash_tables(const json_t *tables, char hex[SHA256_HEX], struct err *e) {
    char *bytes = NULL;
    size_t n = 0;
    TRY(json_canonical(tables, &bytes, &n, e));
    enum status st = sha256_bytes(bytes, n, hex, e);
    free(bytes);
    return st;
}

/* Checks what the hash cannot: that this program understands the tables. */
static enum status check_tables(const json_t *tables, struct err *e) {
    json_t *table, *line;
    size_t i, k;
    if (!json_is_array(tables)) return FAIL(e, ERR_FORMAT, "it has no list of tables");
    json_array_foreach(tables, i, table) {
        const json_t *lines = json_object_get(table, "choices");
        bool good = json_is_array(lines);
        for (k = 0; k < KEY_COUNT; k++) good = good && json_text(table, KEYS[k], NULL);
        json_array_foreach(lines, k, line) good = good && json_is_string(line);
        if (!good) return FAIL(e, ERR_FORMAT, "its table %zu is none", i);
        char *text;
        TRY(table_text(table, &text, e));
        struct choices_reader r;
        struct choice c;
        bool more = true;
        enum status st = choices_open(&r, text, e);
        while (st == OK && more) st = choices_next(&r, &c, &more, e);
        free(text);
        TRY(st);
    }
    return OK;
}

static enum status check_file(const json_t *file, struct err *e) {
    char hex[SHA256_HEX];
    if (strcmp(json_text(file, "schema", ""), SCHEMA) != 0)
        return FAIL(e, ERR_FORMAT, "its schema is not %s", SCHEMA);
    const json_t *tables = json_object_get(file, "tables");
    TRY(check_tables(tables, e));
    TRY(hash_tables(tables, hex, e));
    return !strcmp(hex, json_text(file, "sha256", ""))
               ? OK
               : FAIL(e, ERR_FORMAT, "its content does not have the hash that it states");
}

/* The tables of the file; an empty list, with the problem, if it is damaged or unreadable. */
static enum status read_file(const char *folder, json_t **tables, char *problem,
                             struct err *e) {
    char path[PATH_CAP];
    json_t *file = NULL;
    struct err why;
    *problem = '\0';
    *tables = json_array();
    if (!*tables) return no_memory(e);
    if (!*folder || path_join(path, folder, FILE_NAME, NULL) != OK || !path_exists(path))
        return OK;
    enum status st = json_file_read(path, &file, &why);
    if (st == OK) st = check_file(file, &why);
    if (st == OK) {
        json_decref(*tables);
        *tables = json_incref(json_object_get(file, "tables"));
    } else if (st != ERR_MEMORY) {
        snprintf(problem, CHOICE_PROBLEM_CAP, "%s keeps the algorithms that earlier runs timed, "
                 "but it cannot be used and is ignored: %s", path, why.text);
    }
    json_decref(file);
    return st == ERR_MEMORY ? no_memory(e) : OK;
}

static enum status write_file(const char *folder, json_t *tables, struct err *e) {
    char path[PATH_CAP], hex[SHA256_HEX];
    TRY(path_join(path, folder, FILE_NAME, e));
    TRY(hash_tables(tables, hex, e));
    json_t *file = json_pack("{s:s,s:s,s:O}", "schema", SCHEMA, "sha256", hex, "tables", tables);
    if (!file) return no_memory(e);
    enum status st = json_file_write(path, file, e);
    json_decref(file);
    return st;
}

/* Who writes holds the lock: file_replace() has one temporary name. */
static enum status lock_folder(const char *folder, int *fd, struct err *e) {
    char path[PATH_CAP];
    const struct timespec wait = { .tv_nsec = LOCK_WAIT_MS * 1000000L };
    *fd = -1;
    TRY(directory_make(folder, e));
    TRY(path_join(path, folder, LOCK_NAME, e));
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (*fd < 0) return FAIL(e, ERR_IO, "open %s: %s", path, strerror(errno));
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(*fd, LOCK_EX | LOCK_NB) == 0) return OK;
        if (errno != EWOULDBLOCK && errno != EINTR) break;
        (void)nanosleep(&wait, NULL);
    }
    return FAIL(e, ERR_IO, "lock %s: %s", path, strerror(errno));
}

/* Reads, merges and writes under the lock, so that two runs keep the choices of both. */
static enum status store(const char *folder, const json_t *more, struct err *e) {
    int fd;
    bool grew = false;
    char ignored[CHOICE_PROBLEM_CAP];
    json_t *tables = NULL;
    enum status st = lock_folder(folder, &fd, e);
    if (st == OK) st = read_file(folder, &tables, ignored, e);
    if (st == OK) st = merge(tables, more, &grew, e);
    if (st == OK && grew) st = write_file(folder, tables, e);
    json_decref(tables);
    if (fd >= 0) close(fd);
    return st;
}

/* ---- interface --------------------------------------------------------------------------------*/

enum status choice_cache_open(struct choice_cache *c, const char *folder, const char *spare,
                              const char *driver, struct err *e) {
    const char *home = getenv("HOME"), *cache = getenv("XDG_CACHE_HOME");
    *c = (struct choice_cache){ 0 };
    snprintf(c->driver, sizeof c->driver, "%s", driver);
    c->tables = json_array();
    if (!c->tables) return no_memory(e);
    if (spare) TRY(path_join(c->spare, spare, "cache", e));
    if (folder && strlen(folder) >= sizeof c->folder)
        return FAIL(e, ERR_ARG, "path too long: %.200s…", folder);
    if (folder) snprintf(c->folder, sizeof c->folder, "%s", folder);
    if (folder) return OK;
    /* A relative path is invalid there (XDG Base Directory Specification). */
    if (cache && *cache == '/') return path_join(c->folder, cache, "fp8lab", e);
    if (home && *home == '/') return path_join(c->folder, home, ".cache/fp8lab", e);
    snprintf(c->folder, sizeof c->folder, "%s", c->spare);
    *c->spare = '\0';
    return OK;
}

void choice_cache_close(struct choice_cache *c) {
    json_decref(c->tables);
    c->tables = NULL;
}

enum status choice_cache_withdraw(const char *run_path, struct err *e) {
    char path[PATH_CAP];
    TRY(path_join(path, run_path, OFFERED, e));
    return tree_remove(path, e);
}

enum status choice_cache_offer(struct choice_cache *c, const char *run_path,
                               char problem[CHOICE_PROBLEM_CAP], struct err *e) {
    char path[PATH_CAP];
    json_t *kept = NULL, *table, *offered = json_array();
    size_t i;
    bool failed = false, ignored = false;
    enum status st = offered ? OK : no_memory(e);
    const char *const places[] = { c->folder, c->spare };
    *problem = '\0';
    for (i = 0; st == OK && i < sizeof places / sizeof *places; i++) {
        char one[CHOICE_PROBLEM_CAP];
        st = read_file(places[i], &kept, one, e);
        if (*one) snprintf(problem, CHOICE_PROBLEM_CAP, "%s", one);
        if (st == OK) st = merge(c->tables, kept, &ignored, e);
        json_decref(kept);
        kept = NULL;
    }
    json_array_foreach(c->tables, i, table)
        if (!strcmp(json_text(table, "driver", ""), c->driver) &&
            !strcmp(json_text(table, "kernels", ""), backend_kernels_sha256()))
            json_append(offered, json_incref(table), &failed);
    if (st == OK && failed) st = no_memory(e);
    if (st == OK) st = choice_cache_withdraw(run_path, e);
    if (st == OK && json_array_size(offered)) {
        st = path_join(path, run_path, OFFERED, e);
        if (st == OK) st = json_file_write(path, offered, e);
    }
    json_decref(offered);
    return st;
}

enum status choice_cache_add(struct choice_cache *c, const char *architecture, const char *timed,
                             bool stored, char problem[CHOICE_PROBLEM_CAP], struct err *e) {
    json_t *table = NULL, *list;
    struct err why;
    bool grew = false;
    *problem = '\0';
    if (!*timed) return OK;
    TRY(table_of(c, architecture, timed, &table, e));
    if (!json_array_size(json_object_get(table, "choices"))) {
        json_decref(table);
        return OK;
    }
    list = json_pack("[o]", table);
    if (!list) return no_memory(e);
    enum status st = merge(c->tables, list, &grew, e);
    if (st == OK && stored && *c->folder && store(c->folder, list, &why) != OK) {
        struct err ignored;
        bool kept = *c->spare && store(c->spare, list, &ignored) == OK;
        snprintf(problem, CHOICE_PROBLEM_CAP, "the algorithms that this run timed are %s%s: %s",
                 kept ? "kept for later runs in " : "not kept for later runs, which time their own",
                 kept ? c->spare : "", why.text);
        if (c->said) *problem = '\0';
        c->said = true;
    }
    json_decref(list);
    return st;
}

enum status choice_cache_take(const char *run_path, struct backend *b, struct err *e) {
    char path[PATH_CAP];
    struct device_info info;
    json_t *offered = NULL, *table;
    size_t i;
    TRY(path_join(path, run_path, OFFERED, e));
    if (!path_exists(path)) return OK;
    TRY(b->ops->info(b, &info, e));
    TRY(json_file_read(path, &offered, e));
    enum status st = OK;
    json_array_foreach(offered, i, table) {
        char *text = NULL;
        struct err other;
        if (strcmp(json_text(table, "architecture", ""), info.architecture) != 0) continue;
        st = table_text(table, &text, e);
        if (st != OK) break;
        bool fits = b->ops->choices_offer(b, text, &other) == OK; /* not another device's */
        free(text);
        if (fits) break;
    }
    json_decref(offered);
    return st;
}
