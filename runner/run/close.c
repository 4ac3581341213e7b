#include "runner/run/close.h"

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
#include "runner/record/records.h"
#include "runner/record/run_checkpoint.h"
#include "runner/record/run_lock.h"
#include "runner/record/run_log.h"
#include "runner/record/streams.h"
#include "runner/run/attempts.h"
#include "runner/run/reopen.h"
#include "runner/run/run_status.h"

/* The time of the run's last record; now if there is none. */
static void last_sign_of_life(const struct run_dir *dir, char when[32]) {
    struct stat info;
    struct tm utc;
    struct err ignored;
    int fd;
    run_time_now(when);
    (void)!open_file_beneath(dir->root, STREAMS[STREAM_TRAIN].file, O_RDONLY, dir->path, &fd,
                             &ignored);
    if (fd < 0) return;
    if (fstat(fd, &info) == 0 && gmtime_r(&info.st_mtime, &utc))
        strftime(when, 32, "%Y-%m-%dT%H:%M:%SZ", &utc);
    close(fd);
}

static enum status mark_killed(struct run_dir *dir, struct err *e) {
    char ended[32], text[200];
    int64_t recorded;
    struct checkpoint_info info;
    TRY(run_dir_tidy(dir, e));
    TRY(run_checkpoint_latest(dir, &info, e));
    TRY(records_last_step(dir, &recorded, e));
    last_sign_of_life(dir, ended);
    TRY(attempts_end_dead(dir->run, ended, recorded, e));
    snprintf(text, sizeof text, "the runner died; the last recorded step is %" PRId64
             ", the newest checkpoint of step %" PRId64, recorded, info.step);
    json_t *error =
        json_pack("{s:s,s:s,s:s}", "code", "ERR_INTERRUPTED", "text", text, "where", "");
    bool bad = !error || json_object_set_new(dir->run, "error", error) != 0 ||
               json_object_set_new(dir->run, "status", json_string("killed")) != 0 ||
               json_object_set_new(dir->run, "exit_code", json_null()) != 0 ||
               json_object_set_new(dir->run, "ended", json_string(ended)) != 0 ||
               json_object_set_new(dir->run, "checkpoint_step", json_integer(info.step)) != 0;
    if (bad) return FAIL(e, ERR_MEMORY, "run record");
    run_log(dir, "closed as killed: %s", text);
    return run_dir_save(dir, e);
}

static enum status pack(const struct run_dir *dir, struct bundle_result *out, struct err *e) {
    json_t *resolved = NULL;
    int fd;
    TRY(bundle_checkpoints_back(dir->path, e));
    TRY(open_file_beneath(dir->root, DOCUMENT_resolved, O_RDONLY, dir->path, &fd, e));
    if (fd >= 0) close(fd);
    if (fd >= 0) TRY(json_read_beneath(dir->root, DOCUMENT_resolved, dir->path, &resolved, e));
    const char *status = json_text(dir->run, "status", "");
    bool resumable = json_int(dir->run, "checkpoint_step") > 0;
    struct bundle_options options = {
        .checkpoints =
            bundle_policy(resolved ? json_text(resolved, "archive", NULL) : NULL, status),
        .keep_directory = resumable && run_may_go_on(dir->run, NULL) == OK,
        .threads = 1,
    };
    json_decref(resolved);
    return bundle_finish(dir->path, &options, out, e);
}

/* Makes data/metrics again if it was deleted; says so in *problem and in the run's log. */
static enum status metrics_back(const struct run_dir *dir, char *problem, size_t size,
                                struct err *e) {
    static const char FOLDER[] = "data/metrics";
    if (mkdirat(dir->root, FOLDER, 0777) != 0)
        return errno == EEXIST ? OK : FAIL(e, ERR_IO, "mkdir %s/%s: %s", dir->path, FOLDER,
                                           strerror(errno));
    snprintf(problem, size, "%s was deleted: the bundle lacks the records of the run's steps",
             FOLDER);
    run_log(dir, "%s", problem);
    return OK;
}

enum status close_run(const char *path, bool presumed_dead, struct bundle_result *out,
                      struct err *e) {
    struct run_dir dir;
    char lost[128] = "";
    enum status st = run_dir_open(path, presumed_dead, &dir, e);
    bool open = st == OK && !strcmp(json_text(dir.run, "status", "running"), "running");
    if (open) st = mark_killed(&dir, e);
    else if (st == OK) st = reopen_unchanged(dir.path, e);
    if (st == OK) st = metrics_back(&dir, lost, sizeof lost, e);
    if (st == OK) st = pack(&dir, out, e);
    if (st == OK && *lost) memcpy(out->problem, lost, sizeof lost);
    run_dir_close(&dir);
    return st;
}

/* ---- directories left open --------------------------------------------------------------------*/

/* Whether `path` is a run directory of this user without writer and without bundle. A directory
 * whose name is not its run's id is an unpacked copy, and does not count. */
static bool lies_open(const char *path, struct run_writer *writer) {
    char base[PATH_CAP], bundle[PATH_CAP + 16];
    struct stat info;
    json_t *run = NULL;
    struct err ignored;
    snprintf(bundle, sizeof bundle, "%s.tar.zst", path);
    if (lstat(path, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid() ||
        path_exists(bundle) || run_lock_look(path, writer) != RUN_LIFE_NONE)
        return false;
    int root = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (root < 0) return false;
    path_base(base, path);
    bool found = json_read_beneath(root, DOCUMENT_run, path, &run, &ignored) == OK &&
                 !strcmp(json_text(run, "id", base), base);
    json_decref(run);
    close(root);
    return found;
}

static void close_and_say(const struct cli *cli, const char *path) {
    struct bundle_result result;
    struct err e = { 0 };
    enum status st = close_run(path, false, &result, &e);
    if (st == OK) cli_note(cli, "closed %s, which its runner left open", result.path);
    else if (st != ERR_STATE) /* another process is closing it */
        cli_warn(cli, "%s cannot be closed: %s", path, e.text);
    if (st == OK && *result.stays) cli_note(cli, "%s: %s", result.path, result.stays);
    if (st == OK && *result.problem) cli_warn(cli, "%s: %s", result.path, result.problem);
}

void close_left_open(const struct cli *cli, const char *path) {
    struct run_writer writer;
    if (lies_open(path, &writer)) close_and_say(cli, path);
}

void close_dead_runs(const struct cli *cli, const char *runs) {
    run_dir_clean(runs);
    DIR *d = opendir(runs);
    if (!d) return;
    for (struct dirent *entry; (entry = readdir(d));) {
        char path[PATH_CAP];
        struct run_writer writer;
        struct err e = { 0 };
        if (entry->d_name[0] == '.' || path_join(path, runs, entry->d_name, &e) != OK) continue;
        if (lies_open(path, &writer) && writer.here) close_and_say(cli, path);
    }
    closedir(d);
}
