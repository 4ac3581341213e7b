/* The folders visible in a container, under the same path as outside: every path of a script or a
 * command means the same in both. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/launch/launch.h"
#include "runner/plan/options.h"

/* Whether `path` is `folder` or lies below it. */
static bool is_below(const char *path, const char *folder) {
    size_t n = strlen(folder);
    return !strncmp(path, folder, n) && (path[n] == '\0' || path[n] == '/');
}

static enum status check(const char *path, struct err *e) {
    /* A mount over one of these hides the image's own folder. */
    static const char *const TAKEN[] = { "/",    "/bin",  "/dev", "/etc",  "/lib", "/lib64", "/opt",
                                         "/proc", "/run", "/sbin", "/sys", "/usr", "/var" };
    for (const char *c = path; *c; c++)
        if (strchr(",:\"'\\", *c) || (unsigned char)*c < 0x20)
            return FAIL(e, ERR_CONFIG, "%s cannot be mounted: the launchers' syntax has no way to "
                        "write a comma, colon, quote or backslash in a path", path);
    for (size_t i = 0; i < sizeof TAKEN / sizeof *TAKEN; i++)
        if (!strcmp(path, TAKEN[i]))
            return FAIL(e, ERR_CONFIG, "%s would hide the image's own folder: start from a folder "
                        "of your own, with data and runs below it", path);
    return OK;
}

/* The absolute form of `path`, "." and ".." resolved, links not. */
static enum status absolute(const char *path, char out[PATH_CAP], struct err *e) {
    char full[PATH_CAP], *cwd = NULL;
    if (path[0] != '/' && !(cwd = realpath(".", NULL)))
        return FAIL(e, ERR_IO, "the working directory cannot be read");
    int n = snprintf(full, sizeof full, "%s%s%s", cwd ? cwd : "", cwd ? "/" : "", path);
    free(cwd);
    if (n < 0 || n >= PATH_CAP) return FAIL(e, ERR_ARG, "path too long: %.200s…", path);
    size_t used = 0;
    for (const char *at = full; *at;) {
        at += strspn(at, "/");
        size_t part = strcspn(at, "/");
        if (part == 2 && !strncmp(at, "..", 2)) {
            while (used && out[--used] != '/') continue;
        } else if (part && !(part == 1 && *at == '.')) {
            out[used++] = '/';
            memcpy(out + used, at, part);
            used += part;
        }
        at += part;
    }
    if (!used) out[used++] = '/';
    out[used] = '\0';
    return OK;
}

enum status mounts_add(struct launch_mounts *m, const char *path, bool writable, struct err *e) {
    char full[PATH_CAP];
    TRY(absolute(path, full, e));
    for (int64_t i = 0; i < m->count; i++)
        if (is_below(full, m->mount[i].path) && (m->mount[i].writable || !writable)) return OK;
    TRY(check(full, e));
    struct launch_mount *fresh = realloc(m->mount, (size_t)(m->count + 1) * sizeof *fresh);
    if (!fresh) return FAIL(e, ERR_MEMORY, "%lld mounts", (long long)m->count + 1);
    m->mount = fresh;
    struct launch_mount *last = &m->mount[m->count++];
    memcpy(last->path, full, sizeof full);
    last->writable = writable;
    return OK;
}

enum status mounts_add_parent(struct launch_mounts *m, const char *file, struct err *e) {
    char folder[PATH_CAP];
    path_parent(folder, file);
    return mounts_add(m, folder, false, e);
}

/* Adds the folders of a file and of its link target, or a folder. A missing file is reported by the
 * run itself. */
static enum status add_file(struct launch_mounts *m, const char *path, struct err *e) {
    if (!path_exists(path)) return OK;
    bool folder = path_is_directory(path);
    TRY(folder ? mounts_add(m, path, false, e) : mounts_add_parent(m, path, e));
    char *real = realpath(path, NULL);
    if (!real) return OK;
    enum status st = folder ? mounts_add(m, real, false, e) : mounts_add_parent(m, real, e);
    free(real);
    return st;
}

/* The name of Megatron's files has no suffix. */
static enum status add_data_path(struct launch_mounts *m, const char *root, const char *path,
                                 struct err *e) {
    static const char *const SUFFIX[] = { "", ".bin", ".idx" };
    for (size_t i = 0; i < sizeof SUFFIX / sizeof *SUFFIX; i++) {
        char full[PATH_CAP];
        int n = snprintf(full, sizeof full, "%s%s%s%s", root ? root : "", root ? "/" : "", path,
                         SUFFIX[i]);
        if (n < 0 || n >= PATH_CAP) return FAIL(e, ERR_ARG, "path too long: %.200s…", path);
        TRY(add_file(m, full, e));
    }
    return OK;
}

enum status mounts_add_data(struct launch_mounts *m, const json_t *config, const char *root,
                            struct err *e) {
    static const char *const BESIDE[][2] = {
        { "data", "tokenizer" }, { "data", "template" }, { "sample", "tokenizer" },
        { "init", "from" },
    };
    struct data_options data;
    TRY(options_read_data(config, &data, e));
    enum status st = OK;
    for (int64_t i = 0; st == OK && i < data.path_count; i++)
        st = add_data_path(m, root, data.paths[i], e);
    if (st == OK && data.eval_path) st = add_data_path(m, root, data.eval_path, e);
    for (int64_t i = 0; i < data.set_count; i++)
        for (int64_t k = 0; st == OK && k < data.sets[i].path_count; k++)
            st = add_data_path(m, root, data.sets[i].paths[k], e);
    for (size_t i = 0; st == OK && i < sizeof BESIDE / sizeof *BESIDE; i++) {
        const json_t *table = json_object_get(config, BESIDE[i][0]);
        const char *path = json_text(table, BESIDE[i][1], NULL);
        if (path) st = add_data_path(m, root, path, e); /* "bytes" and a run's id are no files */
    }
    options_free_data(&data);
    return st;
}

enum status mounts_add_cache(struct launch_mounts *m, const struct cli *cli, struct err *e) {
    const char *cache = cli_value(cli, "cache");
    if (!cache) return OK;
    if (!cli_has(cli, "dry-run")) TRY(directory_make(cache, e));
    return mounts_add(m, cache, true, e);
}

void mounts_free(struct launch_mounts *m) {
    free(m->mount);
    *m = (struct launch_mounts){ 0 };
}
