#include "runner/record/run_dir.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runner/record/documents.h"
#include "runner/record/run_lock.h"

enum { TRIES_MAX = 1000 };

/* The suffix of a directory that is not a run yet: .<run-id>.new */
static const char BEGUN[] = ".new";

static const char *const FOLDERS[] = {
    "data",         "data/experiment", "data/system", "data/source",
    "data/metrics", "data/logs",       RUN_PATH_checkpoints,
};

void run_time_now(char out[32]) {
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

void run_time_now_ms(char out[32]) {
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t n = strftime(out, 32, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(out + n, 32 - n, ".%03dZ", (int)(now.tv_nsec / 1000000));
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
    static const char *const OF_WRITER[] = { "data/checkpoints/.unfinished",
                                             "data/checkpoints/.replaced", "offered.json",
                                             RUN_PATH_suite };
    char path[PATH_CAP];
    for (size_t i = 0; i < sizeof OF_WRITER / sizeof *OF_WRITER; i++) {
        TRY(path_join(path, dir->path, OF_WRITER[i], e));
        TRY(tree_remove(path, e));
    }
    return OK;
}

static bool has_bundle(const char *path) {
    char bundle[PATH_CAP + 16];
    snprintf(bundle, sizeof bundle, "%s.tar.zst", path);
    return path_exists(bundle);
}

void run_dir_close(struct run_dir *dir) {
    if (dir->lock_fd >= 0 && has_bundle(dir->path)) run_lock_drop(dir->path, dir->lock_fd);
    else if (dir->lock_fd >= 0) run_lock_leave(dir->path, dir->lock_fd);
    if (dir->root >= 0) close(dir->root);
    dir->lock_fd = dir->root = -1;
    json_decref(dir->run);
    dir->run = NULL;
}

/* ---- create -----------------------------------------------------------------------------------*/

static bool is_taken(const char *path) {
    return path_exists(path) || has_bundle(path);
}

/* Makes the directory under a hidden name, for an unused id. If two processes want the same id, one
 * makes the hidden directory. The other finds this directory, or the run that it became, and tries
 * the next id. */
static enum status make_unique(const char *runs, const char *name, const char *inputs_sha256,
                               struct run_dir *out, struct err *e) {
    char when[32], clean[80], path[PATH_CAP], hidden[sizeof out->id + sizeof BEGUN + 1];
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
        snprintf(hidden, sizeof hidden, ".%s%s", out->id, BEGUN);
        TRY(path_join(path, runs, out->id, e));
        TRY(path_join(out->path, runs, hidden, e));
        if (is_taken(path)) continue;
        if (mkdir(out->path, 0777) == 0) {
            if (!is_taken(path)) return OK;
            (void)rmdir(out->path);
            continue;
        }
        if (errno == EACCES || errno == EROFS)
            return FAIL(e, ERR_IO, "mkdir %s: %s; this is user %d; --runs DIR writes elsewhere "
                        "(in a container, -u \"$(id -u):$(id -g)\" runs as you)", path,
                        strerror(errno), (int)geteuid());
        if (errno != EEXIST) return FAIL(e, ERR_IO, "mkdir %s: %s", path, strerror(errno));
    }
    return FAIL(e, ERR_STATE, "%s: %d runs began this second", runs, TRIES_MAX);
}

static enum status open_root(struct run_dir *dir, struct err *e) {
    dir->root = open(dir->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return dir->root >= 0 ? OK : FAIL(e, ERR_IO, "open %s: %s", dir->path, strerror(errno));
}

static enum status make_folders(const struct run_dir *dir, struct err *e) {
    for (size_t i = 0; i < sizeof FOLDERS / sizeof *FOLDERS; i++)
        if (mkdirat(dir->root, FOLDERS[i], 0777) != 0)
            return FAIL(e, ERR_IO, "mkdir %s/%s: %s", dir->path, FOLDERS[i], strerror(errno));
    return OK;
}

enum status run_dir_create(const char *runs, const char *name, const char *inputs_sha256,
                           struct run_dir *out, struct err *e) {
    struct err ignored; /* the first error is returned */
    *out = (struct run_dir)RUN_DIR_NONE;
    TRY(directory_make(runs, e));
    TRY(make_unique(runs, name, inputs_sha256, out, e));
    out->unnamed = true;
    enum status st = run_lock_take(out->path, false, &out->lock_fd, e);
    if (st == OK) st = open_root(out, e);
    if (st == OK) st = make_folders(out, e);
    if (st == OK && !(out->run = json_object())) st = FAIL(e, ERR_MEMORY, "run record");
    if (st == OK) return OK;
    /* Without free descriptors tree_remove() fails: close ours first, and remove an empty directory
     * by rmdir(), which needs none. */
    run_dir_close(out);
    if (rmdir(out->path) != 0) (void)!tree_remove(out->path, &ignored);
    return st;
}

/* Gives the directory its final name, once run.json is there. */
static enum status give_name(struct run_dir *dir, struct err *e) {
    char runs[PATH_CAP], path[PATH_CAP];
    path_parent(runs, dir->path);
    TRY(path_join(path, runs, dir->id, e));
    if (rename(dir->path, path) != 0)
        return FAIL(e, ERR_IO, "rename %s to %s: %s", dir->path, path, strerror(errno));
    memcpy(dir->path, path, sizeof path);
    dir->unnamed = false;
    return OK;
}

/* Whether no process works on the directory: its writer was on this host and is gone. A writer on
 * another host counts as gone after a silence far longer than it takes to make a directory. */
static bool is_abandoned(const char *path) {
    struct stat info;
    struct run_writer writer;
    if (lstat(path, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid()) return false;
    if (run_lock_look(path, &writer) != RUN_LIFE_NONE) return false;
    return writer.here || time(NULL) - info.st_mtime > RUN_LOCK_SILENT_S;
}

void run_dir_clean(const char *runs) {
    DIR *d = opendir(runs);
    if (!d) return;
    for (struct dirent *entry; (entry = readdir(d));) {
        char path[PATH_CAP];
        struct err ignored; /* the next run_dir_clean() tries again */
        size_t n = strlen(entry->d_name), end = sizeof BEGUN - 1;
        bool begun = entry->d_name[0] == '.' && n > end && !strcmp(entry->d_name + n - end, BEGUN);
        if (begun && path_join(path, runs, entry->d_name, &ignored) == OK && is_abandoned(path))
            (void)!tree_remove(path, &ignored);
    }
    closedir(d);
}

/* ---- leftovers -------------------------------------------------------------------------------*/

bool run_dir_is_id(const char *name) {
    static const char WHEN[] = "00000000T000000Z";
    size_t n = strlen(name), when = sizeof WHEN - 1, hash = 8;
    if (n < when + hash + 2 || name[n - hash - 1] != '-') return false;
    for (size_t i = 0; i < when; i++)
        if (WHEN[i] == '0' ? !isdigit((unsigned char)name[i]) : name[i] != WHEN[i]) return false;
    for (size_t i = when; i < n - hash; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("._-", name[i])) return false;
    return strspn(name + n - hash, "0123456789abcdef") == hash;
}

enum status run_dir_check_leftover(const char *path, struct err *e) {
    char runs[PATH_CAP], base[PATH_CAP], clean[PATH_CAP]; /* clean: without a slash at its end */
    struct stat info;
    struct run_writer writer;
    struct tree files;
    path_parent(runs, path);
    path_base(base, path);
    TRY(path_join(clean, runs, base, e));
    if (!run_dir_is_id(base) || lstat(clean, &info) != 0 || !S_ISDIR(info.st_mode) ||
        has_bundle(clean) || run_lock_look(clean, &writer) != RUN_LIFE_NONE ||
        tree_list(clean, 1, &files, NULL) != OK)
        return OK;
    bool leftover = files.count == 0 || strcmp(files.file[0].path, "lock") == 0;
    tree_free(&files);
    if (!leftover) return OK;
    return FAIL(e, ERR_ARG, "%s holds no run: its program was killed before it wrote "
                "data/run.json, and nothing else is there; unless a program is starting this run "
                "now, remove the directory", clean);
}

/* ---- open -------------------------------------------------------------------------------------*/

static enum status take_over(struct run_dir *dir, bool presumed_dead, struct err *e) {
    int fd;
    TRY(open_root(dir, e));
    TRY(open_file_beneath(dir->root, DOCUMENT_run, O_RDONLY, dir->path, &fd, e));
    if (fd < 0) TRY(run_dir_check_leftover(dir->path, e));
    if (fd < 0)
        return FAIL(e, ERR_ARG, "%s is not a run directory: it has no %s", dir->path, DOCUMENT_run);
    close(fd);
    TRY(tree_check(dir->root, dir->path, e));
    TRY(run_lock_take(dir->path, presumed_dead, &dir->lock_fd, e));
    TRY(json_read_beneath(dir->root, DOCUMENT_run, dir->path, &dir->run, e));
    if (json_text(dir->run, "status", NULL)) return OK;
    return FAIL(e, ERR_FORMAT, "%s/%s is not the record of a run: it lacks \"status\"", dir->path,
                DOCUMENT_run);
}

enum status run_dir_open(const char *path, bool presumed_dead, struct run_dir *out,
                         struct err *e) {
    char base[PATH_CAP];
    struct run_dir dir = RUN_DIR_NONE;
    path_base(base, path);
    snprintf(dir.id, sizeof dir.id, "%.*s", (int)sizeof dir.id - 1, base);
    snprintf(dir.path, sizeof dir.path, "%s", path);
    for (size_t n = strlen(dir.path); n > 1 && dir.path[n - 1] == '/';) dir.path[--n] = '\0';
    *out = dir; /* `path` may be out->path */
    enum status st = take_over(out, presumed_dead, e);
    if (st != OK) run_dir_close(out);
    return st;
}

/* ---- files ------------------------------------------------------------------------------------*/

enum status run_dir_put(const struct run_dir *dir, const char *file, const json_t *value,
                        struct err *e) {
    return json_write_beneath(dir->root, file, dir->path, value, e);
}

/* Whether the directory is still at its path. */
static bool is_in_place(const struct run_dir *dir) {
    struct stat there, open;
    return stat(dir->path, &there) == 0 && fstat(dir->root, &open) == 0 &&
           there.st_dev == open.st_dev && there.st_ino == open.st_ino;
}

static enum status put_record(const struct run_dir *dir, struct err *e) {
    enum status st = run_dir_put(dir, DOCUMENT_run, dir->run, e);
    if (st != ERR_IO || dir->lock_fd < 0) return st;
    if (!run_lock_give_reserve(dir->lock_fd)) return st;
    return run_dir_put(dir, DOCUMENT_run, dir->run, e);
}

enum status run_dir_save(struct run_dir *dir, struct err *e) {
    if (!is_in_place(dir))
        return FAIL(e, ERR_IO, "%s is gone: it was deleted or renamed while the run wrote to it; "
                    "run again, or rename it back and `fp8lab close` it", dir->path);
    TRY(put_record(dir, e));
    return dir->unnamed ? give_name(dir, e) : OK;
}
