#include "runner/record/provenance.h"

#include <archive.h>
#include <gnu/libc-version.h>
#include <lua.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/base/build_info.h"
#include "runner/base/foreground.h"
#include "runner/record/documents.h"
#include "runner/record/image_record.h"

/* OpenSSL has a type of the same name as one of our status codes; neither is used here. */
#define ERR_STATE OPENSSL_ERR_STATE
#include <openssl/crypto.h>
#undef ERR_STATE

enum { PATCH_MAX = 8 << 20 };

/* The git tree that holds the executable and fp8lab's sources; false: there is none. */
static bool source_root(char out[PATH_CAP]) {
    char path[PATH_CAP], probe[PATH_CAP];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0) return false;
    path[n] = '\0';
    while (strcmp(path, "/") != 0 && strcmp(path, ".") != 0) {
        path_parent(out, path);
        memcpy(path, out, PATH_CAP);
        if (path_join(probe, path, ".git", NULL) != OK || !path_exists(probe)) continue;
        return path_join(probe, path, "runner/main.c", NULL) == OK && path_exists(probe);
    }
    return false;
}

/* Records the tree's changes since its commit. The command line sets safe.directory, because a
 * mounted tree often belongs to another user. It turns autoRefreshIndex off, so that the index is
 * not locked while the user commits. */
static enum status write_patch(const struct run_dir *dir, bool *recorded, struct err *e) {
    char root[PATH_CAP], safe[PATH_CAP + 32], *patch = NULL;
    size_t n = 0;
    *recorded = true;
    if (!source_root(root)) return OK;
    snprintf(safe, sizeof safe, "safe.directory=%s", root);
    const char *argv[] = { "git", "-c", safe, "-c", "diff.autoRefreshIndex=false", "-C", root,
                           "diff", "--no-ext-diff", "--binary", "HEAD", NULL };
    *recorded = foreground_capture(argv, PATCH_MAX, &patch, &n);
    if (!*recorded || n == 0) {
        free(patch);
        return OK;
    }
    enum status st = replace_beneath(dir->root, RUN_PATH_dirty_patch, dir->path, patch, n, e);
    free(patch);
    return st;
}

static enum status put(const struct run_dir *dir, const char *file, json_t *value, struct err *e) {
    if (!value) return FAIL(e, ERR_MEMORY, "%s", file);
    enum status st = run_dir_put(dir, file, value, e);
    json_decref(value);
    return st;
}

/* archive_version_details() names all of libarchive's libraries, but leaks if called twice. */
static json_t *libraries(void) {
    return json_pack("{s:s,s:s,s:s,s:s,s:s?,s:s,s:s}", "libc", gnu_get_libc_version(), "lua",
                     LUA_RELEASE, "jansson", jansson_version_str(), "libarchive",
                     archive_version_string(), "zstd", archive_libzstd_version(), "libcrypto",
                     OpenSSL_version(OPENSSL_VERSION), "compiler", build_info().compiler);
}

enum status provenance_write(const struct run_dir *dir, char *warning, size_t warning_size,
                             struct err *e) {
    struct build_info build = build_info();
    bool recorded = true;
    TRY(put(dir, DOCUMENT_commit,
            json_pack("{s:s,s:b,s:s,s:s}", "commit", build.commit, "dirty", build.dirty,
                      "code_sha256", build.code_sha256, "build_sha256", build.build_sha256), e));
    TRY(write_patch(dir, &recorded, e));
    TRY(put(dir, DOCUMENT_libraries, libraries(), e));
    TRY(put(dir, DOCUMENT_image, image_record(IMAGE_RECORD_PATH), e));
    if (!warning) return OK;
    *warning = '\0';
    if (!strcmp(build.commit, "unknown"))
        snprintf(warning, warning_size, "the source commit is not known: git failed when this "
                 "program was built; the bundle records the hash of the sources (%.12s)",
                 build.build_sha256);
    else if (!recorded)
        snprintf(warning, warning_size, "git is missing or failed: uncommitted changes of the "
                 "sources are recorded as a hash only, not as a patch");
    return OK;
}
