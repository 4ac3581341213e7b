#include "runner/run/close.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "runner/base/jsonl.h"
#include "runner/bundle/bundle.h"
#include "runner/record/run_checkpoint.h"
#include "runner/record/run_lock.h"
#include "runner/record/run_log.h"
#include "runner/run/attempts.h"
#include "runner/run/reopen.h"
#include "runner/run/run_one.h"

/* When the run last wrote a record; now, where it wrote none. */
static void last_sign_of_life(const struct run_dir *dir, char out[32]) {
    char path[PATH_CAP];
    struct stat info;
    struct tm utc;
    run_time_now(out);
    if (path_join(path, dir->path, "data/metrics/train.jsonl", NULL) != OK) return;
    if (stat(path, &info) != 0) return;
    gmtime_r(&info.st_mtime, &utc);
    strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

/* The step of the last whole record of a step; 0 without one. */
static int64_t last_recorded_step(const struct run_dir *dir) {
    char path[PATH_CAP];
    int64_t step = 0;
    if (path_join(path, dir->path, "data/metrics/train.jsonl", NULL) != OK) return 0;
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    struct jsonl lines;
    json_t *record = NULL;
    jsonl_open(&lines, f, path);
    while (jsonl_next(&lines, &record, NULL) == OK && record) {
        step = json_integer_value(json_object_get(record, "step"));
        json_decref(record);
    }
    jsonl_close(&lines);
    fclose(f);
    return step;
}

static enum status mark_killed(struct run_dir *dir, struct err *e) {
    char ended[32], text[200];
    struct checkpoint_info info;
    TRY(run_dir_tidy(dir, e));
    TRY(run_checkpoint_latest(dir, &info, e));
    last_sign_of_life(dir, ended);
    TRY(attempts_end_dead(dir->run, ended, last_recorded_step(dir), e));
    snprintf(text, sizeof text, "the runner died; the last recorded step is %" PRId64
             ", the newest checkpoint of step %" PRId64, last_recorded_step(dir), info.step);
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

static enum status pack(const struct run_dir *dir, char bundle[PATH_CAP], struct err *e) {
    char path[PATH_CAP];
    json_t *resolved = NULL;
    struct bundle_result result;
    TRY(bundle_checkpoints_back(dir->path, e));
    TRY(path_join(path, dir->path, "data/experiment/resolved.json", e));
    if (path_exists(path)) TRY(json_file_read(path, &resolved, e));
    const char *status = json_text(dir->run, "status", "");
    bool resumable = json_integer_value(json_object_get(dir->run, "checkpoint_step")) > 0;
    struct bundle_options options = {
        .checkpoints =
            bundle_policy(resolved ? json_text(resolved, "archive", NULL) : NULL, status),
        .keep_directory = resumable && run_may_go_on(dir->run, NULL) == OK,
        .threads = 1,
    };
    json_decref(resolved);
    TRY(bundle_finish(dir->path, &options, &result, e));
    snprintf(bundle, PATH_CAP, "%s", result.path);
    return OK;
}

enum status close_run(const char *path, bool presumed_dead, char bundle[PATH_CAP], struct err *e) {
    struct run_dir dir;
    enum status st = run_dir_open(path, presumed_dead, &dir, e);
    bool open = st == OK && !strcmp(json_text(dir.run, "status", "running"), "running");
    if (open) st = mark_killed(&dir, e);
    else if (st == OK) st = reopen_unchanged(path, e);
    if (st == OK) st = pack(&dir, bundle, e);
    run_dir_close(&dir);
    return st;
}

/* A directory of another name than its run's is a copy that somebody unpacked here. */
static bool is_copy(const char *path, const char *record) {
    char base[PATH_CAP];
    json_t *run = NULL;
    path_base(base, path);
    bool copy = json_file_read(record, &run, NULL) == OK &&
                strcmp(json_text(run, "id", base), base) != 0;
    json_decref(run);
    return copy;
}

static bool needs_closing(const char *path) {
    char file[PATH_CAP], bundle[PATH_CAP + 16];
    struct run_writer writer;
    snprintf(bundle, sizeof bundle, "%s.tar.zst", path);
    return path_join(file, path, "data/run.json", NULL) == OK && path_exists(file) &&
           !path_exists(bundle) && run_lock_look(path, &writer) == RUN_LIFE_NONE &&
           !is_copy(path, file);
}

void close_dead_runs(const struct cli *cli, const char *runs) {
    DIR *d = opendir(runs);
    if (!d) return;
    for (struct dirent *entry; (entry = readdir(d));) {
        char path[PATH_CAP], bundle[PATH_CAP];
        struct err e = { 0 };
        if (entry->d_name[0] == '.' || path_join(path, runs, entry->d_name, &e) != OK) continue;
        if (!path_is_directory(path) || !needs_closing(path)) continue;
        enum status st = close_run(path, false, bundle, &e);
        if (st == OK) cli_note(cli, "closed %s, which its runner had left open", bundle);
        else if (st != ERR_STATE) /* another process is closing it */
            cli_warn(cli, "%s cannot be closed: %s", path, e.text);
    }
    closedir(d);
}
