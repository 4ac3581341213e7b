#include "runner/run/sharing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "runner/record/run_lock.h"
#include "runner/run/close.h"
#include "runner/run/run_status.h"

/* A claim is held while a run directory is created, or a closed run is reopened. */
enum { CLAIM_WAIT_MS = 60000, CLAIM_NAP_MS = 20 };

static void set_state(struct row_state *s, enum row_state_kind kind, const char *path,
                      const char *id, const char *status) {
    char bundle[PATH_CAP + 16];
    s->kind = kind;
    snprintf(bundle, sizeof bundle, "%s.tar.zst", path);
    bool packed = kind == ROW_ENDED && path_exists(bundle); /* the directory may be deleted soon */
    snprintf(s->path, sizeof s->path, "%.*s", PATH_CAP - 1, packed ? bundle : path);
    snprintf(s->id, sizeof s->id, "%s", id);
    snprintf(s->status, sizeof s->status, "%s", status);
}

void row_state_note(struct row_state *s, const struct run_view *view) {
    const char *status = json_text(view->run, "status", ""), *id = json_text(view->run, "id", "?");
    bool ended = !strcmp(status, "done") || !strcmp(status, "time_limit");
    bool stopped = !strcmp(status, "interrupted") || !strcmp(status, "killed") ||
                   (!strcmp(status, "failed") && !run_fails_again(view->run));
    int64_t checkpoint = json_int(view->run, "checkpoint_step");
    bool repeated = run_repeats(view->run);
    if (repeated && (!ended || (s->kind == ROW_ENDED && !s->repeated))) return;
    if (ended) s->repeated = repeated;
    if (ended) set_state(s, ROW_ENDED, view->path, id, status);
    else if (s->kind == ROW_NEW && strcmp(status, "running") != 0) {
        set_state(s, stopped && checkpoint > 0 ? ROW_RESUMABLE : ROW_NEW, view->path, id, status);
        s->checkpoint_step = checkpoint;
    }
}

/* Whether the name of a directory or bundle ends in -<8 hex digits of the inputs' hash>. */
static bool has_input_hash(const char *path, const char *sha256) {
    static const char SUFFIX[] = ".tar.zst";
    size_t n = strlen(path), suffix = sizeof SUFFIX - 1;
    if (n > suffix && !strcmp(path + n - suffix, SUFFIX)) n -= suffix;
    return n > 9 && path[n - 9] == '-' && !strncmp(path + n - 8, sha256, 8);
}

static bool is_taken(const json_t *taken, const char *path) {
    char stem[PATH_CAP];
    run_stem(stem, path);
    return json_object_get(taken, stem) != NULL;
}

enum status row_state_read(const char *runs, const struct inputs *in, const json_t *taken,
                          struct row_state *s, struct err *e) {
    struct tree all;
    *s = (struct row_state){ .kind = ROW_NEW };
    TRY(run_list(runs, &all, e));
    for (int64_t i = 0; i < all.count; i++) {
        const char *path = all.file[i].path;
        struct run_view view;
        struct run_writer writer = { 0 };
        if (!has_input_hash(path, in->all) || is_taken(taken, path)) continue;
        enum run_life life = path_is_directory(path) ? run_lock_look(path, &writer) : RUN_LIFE_NONE;
        if (life != RUN_LIFE_NONE) {
            if (s->kind == ROW_ENDED) continue;
            set_state(s, ROW_RUNNING, path, "", "");
            s->seen_locked = life == RUN_LIFE_LOCKED;
            s->writer = writer;
            continue;
        }
        if (run_view_load(path, RUN_VIEW_INPUTS, &view, NULL) != OK) continue;
        if (inputs_asked(view.run, in)) {
            row_state_note(s, &view);
            if (!strcmp(json_text(view.run, "status", ""), "running")) s->left_open = true;
        }
        run_view_free(&view);
    }
    tree_free(&all);
    return OK;
}

enum status row_state_close_left(const struct cli *cli, const char *runs, const struct inputs *in,
                                struct err *e) {
    struct tree all;
    TRY(run_list(runs, &all, e));
    for (int64_t i = 0; i < all.count; i++) {
        struct run_view view;
        if (!has_input_hash(all.file[i].path, in->all) ||
            run_view_load(all.file[i].path, RUN_VIEW_INPUTS, &view, NULL) != OK)
            continue;
        if (inputs_asked(view.run, in)) close_left_open(cli, all.file[i].path);
        run_view_free(&view);
    }
    tree_free(&all);
    return OK;
}

bool row_state_is_running(struct row_state *s) {
    struct run_writer writer;
    enum run_life life = run_lock_look(s->path, &writer);
    if (life == RUN_LIFE_LOCKED) s->seen_locked = true;
    return life == RUN_LIFE_LOCKED || (life == RUN_LIFE_ELSEWHERE && !s->seen_locked);
}

enum status row_state_close_dead(struct row_state *s, struct err *e) {
    struct bundle_result result;
    struct run_writer writer;
    if (!s->seen_locked || run_lock_look(s->path, &writer) != RUN_LIFE_ELSEWHERE) return OK;
    enum status st = close_run(s->path, true, &result, e);
    return st == ERR_STATE ? OK : st; /* another process is closing it */
}

enum status claim_take(const char *runs, int *claim, struct err *e) {
    char path[PATH_CAP];
    *claim = -1;
    TRY(path_join(path, runs, ".claim", e));
    if (directory_make(runs, NULL) != OK) return OK;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW); /* another user's */
    if (fd < 0) return OK;
    const struct timespec nap = { .tv_nsec = CLAIM_NAP_MS * 1000000L };
    for (int64_t waited = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; waited += CLAIM_NAP_MS) {
        int why = errno;
        if (why == EWOULDBLOCK && waited < CLAIM_WAIT_MS) {
            (void)nanosleep(&nap, NULL);
            continue;
        }
        close(fd);
        if (why != EWOULDBLOCK) return FAIL(e, ERR_IO, "lock %s: %s", path, strerror(why));
        return FAIL(e, ERR_STATE, "%s: another process has held this lock for %d s, to begin "
                    "a run; it probably hangs: stop it", path, CLAIM_WAIT_MS / 1000);
    }
    *claim = fd;
    return OK;
}

void claim_drop(int *claim) {
    if (!claim || *claim < 0) return;
    close(*claim);
    *claim = -1;
}
