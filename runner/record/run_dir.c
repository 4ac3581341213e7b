#include "runner/record/run_dir.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runner/record/run_lock.h"

enum { TRIES_MAX = 1000 };

static const char *const FOLDERS[] = {
    "data",         "data/experiment", "data/system", "data/source",
    "data/metrics", "data/logs",       "data/checkpoints",
};

void run_time_now(char out[32]) {
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

int64_t run_time_parse(const char *text) {
    struct tm t = { 0 };
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d", &t.tm_year, &t.tm_mon, &t.tm_mday, &t.tm_hour,
               &t.tm_min, &t.tm_sec) != 6)
        return 0;
    t.tm_year -= 1900;
    t.tm_mon -= 1;
    return (int64_t)timegm(&t);
}

enum status run_dir_tidy(const struct run_dir *dir, struct err *e) {
    static const char *const HALF_MADE[] = { "data/checkpoints/.unfinished",
                                             "data/checkpoints/.replaced" };
    char path[PATH_CAP];
    for (size_t i = 0; i < sizeof HALF_MADE / sizeof *HALF_MADE; i++) {
        TRY(path_join(path, dir->path, HALF_MADE[i], e));
        TRY(tree_remove(path, e));
    }
    return OK;
}

void run_dir_close(struct run_dir *dir) {
    if (dir->lock_fd >= 0) run_lock_drop(dir->path, dir->lock_fd);
    dir->lock_fd = -1;
    json_decref(dir->run);
    dir->run = NULL;
}

/* ---- create, open -----------------------------------------------------------------------------*/

/* Makes the directory itself, under a name that nobody has. */
static enum status make_unique(const char *runs, const char *name, const char *inputs_sha256,
                               struct run_dir *out, struct err *e) {
    char when[32], clean[80];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(when, sizeof when, "%Y%m%dT%H%M%SZ", &utc);
    snprintf(clean, sizeof clean, "%s", *name ? name : "run");
    for (char *c = clean; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-", *c)) *c = '-';
    for (int64_t i = 1; i <= TRIES_MAX; i++) {
        char again[24] = "";
        if (i > 1) snprintf(again, sizeof again, "-%" PRId64, i);
        snprintf(out->id, sizeof out->id, "%s%s-%s-%.8s", when, again, clean, inputs_sha256);
        TRY(path_join(out->path, runs, out->id, e));
        char bundle[PATH_CAP + 16];
        snprintf(bundle, sizeof bundle, "%s.tar.zst", out->path);
        if (path_exists(bundle)) continue;
        if (mkdir(out->path, 0777) == 0) return OK;
        if (errno == EACCES || errno == EROFS)
            return FAIL(e, ERR_IO, "mkdir %s: %s; this is user %d, and --runs names another folder "
                        "(in a container -u \"$(id -u):$(id -g)\" is you)", out->path,
                        strerror(errno), (int)geteuid());
        if (errno != EEXIST) return FAIL(e, ERR_IO, "mkdir %s: %s", out->path, strerror(errno));
    }
    return FAIL(e, ERR_STATE, "%s: %d runs began this second", runs, TRIES_MAX);
}

enum status run_dir_create(const char *runs, const char *name, const char *inputs_sha256,
                           struct run_dir *out, struct err *e) {
    *out = (struct run_dir){ .lock_fd = -1 };
    TRY(directory_make(runs, e));
    TRY(make_unique(runs, name, inputs_sha256, out, e));
    TRY(run_lock_take(out->path, false, &out->lock_fd, e));
    char path[PATH_CAP];
    enum status st = OK;
    for (size_t i = 0; i < sizeof FOLDERS / sizeof *FOLDERS && st == OK; i++) {
        st = path_join(path, out->path, FOLDERS[i], e);
        if (st == OK) st = directory_make(path, e);
    }
    if (st == OK && !(out->run = json_object())) st = FAIL(e, ERR_MEMORY, "run record");
    if (st != OK) run_dir_close(out);
    return st;
}

enum status run_dir_open(const char *path, bool presumed_dead, struct run_dir *out,
                         struct err *e) {
    char file[PATH_CAP], base[PATH_CAP];
    struct run_dir dir = { .lock_fd = -1 };
    TRY(path_join(file, path, "data/run.json", e));
    path_base(base, path);
    snprintf(dir.id, sizeof dir.id, "%.*s", (int)sizeof dir.id - 1, base);
    snprintf(dir.path, sizeof dir.path, "%s", path);
    *out = dir;
    if (!path_exists(file))
        return FAIL(e, ERR_ARG, "%s is no run directory: no data/run.json", out->path);
    TRY(run_lock_take(out->path, presumed_dead, &out->lock_fd, e));
    enum status st = json_file_read(file, &out->run, e);
    if (st == OK && !json_text(out->run, "status", NULL))
        st = FAIL(e, ERR_FORMAT, "%s is no record of a run: it lacks \"status\"", file);
    if (st != OK) run_dir_close(out);
    return st;
}

/* ---- files ------------------------------------------------------------------------------------*/

enum status run_dir_put(const struct run_dir *dir, const char *file, const json_t *value,
                        struct err *e) {
    char path[PATH_CAP];
    TRY(path_join(path, dir->path, file, e));
    return json_file_write(path, value, e);
}

enum status run_dir_save(struct run_dir *dir, struct err *e) {
    enum status st = run_dir_put(dir, "data/run.json", dir->run, e);
    if (st != ERR_IO || dir->lock_fd < 0) return st;
    if (!path_is_directory(dir->path))
        return FAIL(e, ERR_IO, "%s is gone: it was removed or renamed while the run wrote to it; "
                    "run it again, or rename it back and `fp8lab close` it", dir->path);
    if (!run_lock_give_reserve(dir->lock_fd)) return st;
    return run_dir_put(dir, "data/run.json", dir->run, e);
}
