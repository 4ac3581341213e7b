#include "runner/bundle/kept.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/checkpoint.h"
#include "runner/record/documents.h"

enum status kept_folder(char out[PATH_CAP], const char *path, struct err *e) {
    static const char SUFFIX[] = ".tar.zst";
    char old[PATH_CAP];
    size_t n = strlen(path), suffix = sizeof SUFFIX - 1;
    while (n > 1 && path[n - 1] == '/') n--;
    if (n > suffix && !strncmp(path + n - suffix, SUFFIX, suffix)) n -= suffix;
    if (snprintf(old, sizeof old, "%.*s.checkpoints", (int)n, path) >= PATH_CAP)
        return FAIL(e, ERR_ARG, "path too long: %.200s", path);
    snprintf(out, PATH_CAP, "%.*s.ckpt", (int)n, path);
    if (!path_is_directory(out) && path_is_directory(old)) memcpy(out, old, sizeof old);
    return OK;
}

static int64_t step_of(const json_t *row) {
    return json_integer_value(json_object_get(row, "step"));
}

static bool is_beside(const json_t *row) {
    return !strcmp(json_text(row, "where", ""), "beside");
}

/* ---- moving ---------------------------------------------------------------------------------- */

static enum status copy_bytes(int in, int out, const char *to, struct err *e) {
    char block[1 << 16];
    for (;;) {
        ssize_t n = read(in, block, sizeof block);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return FAIL(e, ERR_IO, "copy to %s: %s", to, strerror(errno));
        if (n == 0) return OK;
        TRY(write_all(out, block, (size_t)n, to, e));
    }
}

static enum status copy_file(const char *from, const char *to, struct err *e) {
    char partial[PATH_CAP + 16];
    snprintf(partial, sizeof partial, "%s.partial", to);
    int in = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    int out = open(partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    enum status st = in < 0 || out < 0
                         ? FAIL(e, ERR_IO, "copy %s to %s: %s", from, to, strerror(errno))
                         : copy_bytes(in, out, to, e);
    if (st == OK && fsync(out) != 0) st = FAIL(e, ERR_IO, "sync %s: %s", to, strerror(errno));
    if (in >= 0) close(in);
    if (out >= 0) close(out);
    if (st == OK && rename(partial, to) != 0)
        st = FAIL(e, ERR_IO, "rename %s: %s", partial, strerror(errno));
    if (st != OK) (void)unlink(partial);
    return st;
}

enum status kept_share(const char *from, const char *to, struct err *e) {
    static const char *const FILES[] = { "model.safetensors", "state.safetensors",
                                         "checkpoint.json" };
    TRY(directory_make(to, e));
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        char a[PATH_CAP], b[PATH_CAP];
        TRY(path_join(a, from, FILES[i], e));
        TRY(path_join(b, to, FILES[i], e));
        if (path_exists(b) && !path_exists(a)) continue; /* the bundle has no such file */
        if (link(a, b) != 0 && errno != EEXIST) TRY(copy_file(a, b, e));
    }
    return directory_sync(to, e);
}

static enum status move_one(const char *parent, const char *folder, int64_t step, bool packed,
                            struct err *e) {
    char from[CHECKPOINT_PATH_CAP], to[CHECKPOINT_PATH_CAP];
    TRY(checkpoint_path(from, parent, step, e));
    TRY(checkpoint_path(to, folder, step, e));
    if (!path_is_directory(from)) return OK; /* moved earlier, or removed by the user */
    if (packed) return kept_share(from, to, e);
    if (rename(from, to) == 0) return OK;
    return FAIL(e, ERR_IO, "rename %s to %s: %s", from, to, strerror(errno));
}

enum status kept_move(const char *run_dir, const json_t *run, bool packed, struct err *e) {
    char parent[PATH_CAP], folder[PATH_CAP];
    size_t i;
    const json_t *row;
    bool any = false;
    TRY(path_join(parent, run_dir, RUN_PATH_checkpoints, e));
    TRY(kept_folder(folder, run_dir, e));
    json_array_foreach(json_object_get(run, "kept"), i, row) {
        if (!is_beside(row)) continue;
        TRY(directory_make(folder, e));
        TRY(move_one(parent, folder, step_of(row), packed, e));
        any = true;
    }
    return any ? directory_sync(folder, e) : OK;
}

/* ---- looking --------------------------------------------------------------------------------- */

enum status kept_verify(const char *path, const json_t *row, bool *there, struct err *e) {
    char folder[PATH_CAP], step[CHECKPOINT_PATH_CAP];
    struct checkpoint_info info;
    struct err why;
    *there = false;
    if (!is_beside(row)) return OK;
    TRY(kept_folder(folder, path, e));
    TRY(checkpoint_path(step, folder, step_of(row), e));
    struct stat found;
    if (stat(step, &found) != 0 && errno != ENOENT && errno != ENOTDIR)
        return FAIL(e, ERR_IO, "%s: %s", step, strerror(errno)); /* it may be here */
    if (!path_is_directory(step)) return OK;
    *there = true;
    enum status st = checkpoint_verify(step, &info, &why);
    if (st == ERR_FORMAT || (st != OK && st != ERR_MEMORY && checkpoint_lacks_file(step)))
        st = ERR_VERIFY;
    if (st != OK) return FAIL(e, st, "%s", why.text);
    if (!strcmp(info.sha256, json_text(row, "sha256", ""))) return OK;
    return FAIL(e, ERR_VERIFY, "%s is not the checkpoint that the run kept: run.json has another "
                "hash than %.16s…", step, info.sha256);
}

void kept_text(const json_t *row, char out[64]) {
    const json_t *as;
    size_t i;
    int used = snprintf(out, 64, "step %" PRId64 " (", step_of(row));
    json_array_foreach(json_object_get(row, "as"), i, as)
        if (used < 40) /* a bundle may be foreign */
            used += snprintf(out + used, (size_t)(64 - used), "%s%.16s", i ? ", " : "",
                             json_is_string(as) ? json_string_value(as) : "?");
    snprintf(out + used, (size_t)(64 - used), ")");
}

int64_t kept_step(const json_t *run, const char *as) {
    const json_t *row, *one;
    size_t i, k;
    json_array_foreach(json_object_get(run, "kept"), i, row)
        json_array_foreach(json_object_get(row, "as"), k, one)
            if (json_is_string(one) && !strcmp(json_string_value(one), as)) return step_of(row);
    return -1;
}
