#include "runner/record/kept_file.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "model/ground/sha256.h"
#include "runner/base/canonical.h"

enum { LOCK_TRIES = 100, LOCK_WAIT_MS = 10 };

static enum status no_memory(struct err *e) {
    return FAIL(e, ERR_MEMORY, "no memory for a kept file");
}

enum status kept_folders(const char *folder, const char *spare, char out[PATH_CAP],
                         char out_spare[PATH_CAP], struct err *e) {
    const char *home = getenv("HOME"), *cache = getenv("XDG_CACHE_HOME");
    *out = *out_spare = '\0';
    if (spare) TRY(path_join(out_spare, spare, "cache", e));
    if (folder && strlen(folder) >= PATH_CAP)
        return FAIL(e, ERR_ARG, "path too long: %.200s…", folder);
    if (folder) snprintf(out, PATH_CAP, "%s", folder);
    if (folder) return OK;
    /* A relative path is invalid there (XDG Base Directory Specification). */
    if (cache && *cache == '/') return path_join(out, cache, "fp8lab", e);
    if (home && *home == '/') return path_join(out, home, ".cache/fp8lab", e);
    snprintf(out, PATH_CAP, "%s", out_spare);
    *out_spare = '\0';
    return OK;
}

/* Whether the schemas have one name, and the number behind it is higher in `schema`. */
static bool is_newer(const char *schema, const char *known) {
    size_t name = strcspn(known, "/") + 1;
    return !strncmp(schema, known, name) &&
           strtoll(schema + name, NULL, 10) > strtoll(known + name, NULL, 10);
}

static enum status check_file(const struct kept_kind *k, const json_t *file, struct err *e) {
    const char *schema = json_text(file, "schema", "");
    char hex[SHA256_HEX];
    if (is_newer(schema, k->schema))
        return FAIL(e, ERR_UNSUPPORTED, "a newer program wrote it: its schema is %.40s, and this "
                    "program knows %s", schema, k->schema);
    if (strcmp(schema, k->schema) != 0)
        return FAIL(e, ERR_FORMAT, "its schema is not %s", k->schema);
    const json_t *tables = json_object_get(file, "tables");
    if (!json_is_array(tables)) return FAIL(e, ERR_FORMAT, "it has no list of tables");
    TRY(k->check(tables, e));
    TRY(canonical_hash(tables, hex, e));
    return !strcmp(hex, json_text(file, "sha256", ""))
               ? OK
               : FAIL(e, ERR_FORMAT, "its content does not have the hash that it states");
}

/* The tables of the file; an empty list if there is none, or after an error. ERR_IO: nobody knows
 * what it has. ERR_UNSUPPORTED: a newer program does. */
static enum status read_file(const struct kept_kind *k, const char *path, json_t **tables,
                             struct err *e) {
    json_t *file = NULL;
    *tables = json_array();
    if (!*tables) return no_memory(e);
    if (!path_exists(path)) return OK;
    enum status st = json_file_read(path, &file, e);
    if (st == OK) st = check_file(k, file, e);
    if (st == OK) {
        json_decref(*tables);
        *tables = json_incref(json_object_get(file, "tables"));
    }
    json_decref(file);
    return st;
}

enum status kept_read(const struct kept_kind *k, const char *folder, json_t **tables,
                      char problem[KEPT_PROBLEM_CAP], struct err *e) {
    char path[PATH_CAP] = "";
    struct err why;
    *problem = '\0';
    if (*folder && path_join(path, folder, k->file, NULL) != OK) *path = '\0';
    enum status st = read_file(k, path, tables, &why);
    if (st == ERR_UNSUPPORTED)
        snprintf(problem, KEPT_PROBLEM_CAP, "%s %s, but it is not used here and stays as it is: "
                 "%s; --cache DIR names another folder", path, k->about, why.text);
    else if (st != OK && st != ERR_MEMORY)
        snprintf(problem, KEPT_PROBLEM_CAP, "%s %s, but it cannot be used and is ignored: %s; "
                 "%sdelete %s", path, k->about, why.text,
                 st == ERR_IO ? "make it readable, or " : "", k->file);
    if (st != ERR_MEMORY) return OK;
    json_decref(*tables);
    *tables = NULL;
    return no_memory(e);
}

static enum status write_file(const struct kept_kind *k, const char *path, json_t *tables,
                              struct err *e) {
    char hex[SHA256_HEX];
    TRY(canonical_hash(tables, hex, e));
    json_t *file = json_pack("{s:s,s:s,s:O}", "schema", k->schema, "sha256", hex, "tables", tables);
    if (!file) return no_memory(e);
    enum status st = json_file_write(path, file, e);
    json_decref(file);
    return st;
}

/* Who writes holds the lock: file_replace() has one temporary name. */
static enum status lock_folder(const struct kept_kind *k, const char *folder, int *fd,
                               struct err *e) {
    char path[PATH_CAP];
    const struct timespec wait = { .tv_nsec = LOCK_WAIT_MS * 1000000L };
    *fd = -1;
    TRY(directory_make(folder, e));
    TRY(path_join(path, folder, k->lock, e));
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (*fd < 0) return FAIL(e, ERR_IO, "open %s: %s", path, strerror(errno));
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(*fd, LOCK_EX | LOCK_NB) == 0) return OK;
        if (errno != EWOULDBLOCK && errno != EINTR) break;
        (void)nanosleep(&wait, NULL);
    }
    return FAIL(e, ERR_IO, "lock %s: %s", path, strerror(errno));
}

/* A damaged file is replaced. One that cannot be read, or only by a newer program, may be whole,
 * and stays. */
enum status kept_store(const struct kept_kind *k, const char *folder, const json_t *more,
                       struct err *e) {
    int fd;
    bool grew = false;
    char path[PATH_CAP];
    struct err damage;
    json_t *tables = NULL;
    TRY(path_join(path, folder, k->file, e));
    enum status st = lock_folder(k, folder, &fd, e);
    if (st == OK) {
        st = read_file(k, path, &tables, &damage);
        if (st == ERR_UNSUPPORTED) (void)FAIL(e, st, "%s: %s", path, damage.text);
        else if (st == ERR_IO || st == ERR_MEMORY) (void)FAIL(e, st, "%s", damage.text);
        else st = OK;
    }
    if (st == OK) st = k->merge(tables, more, &grew, e);
    if (st == OK && grew) st = write_file(k, path, tables, e);
    json_decref(tables);
    if (fd >= 0) close(fd);
    return st;
}
