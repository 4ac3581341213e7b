#include "runner/base/paths.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum status path_join(char out[PATH_CAP], const char *dir, const char *name, struct err *e) {
    const char *slash = *dir && dir[strlen(dir) - 1] == '/' ? "" : "/";
    int n = snprintf(out, PATH_CAP, "%s%s%s", dir, slash, name);
    if (n < 0 || n >= PATH_CAP)
        return FAIL(e, ERR_ARG, "path of %d bytes is longer than %d: %.200s…", n, PATH_CAP, dir);
    return OK;
}

bool path_exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0;
}

bool path_is_directory(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static size_t length_without_slashes(const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    return n;
}

void path_base(char out[PATH_CAP], const char *path) {
    size_t end = length_without_slashes(path), start = end;
    while (start > 0 && path[start - 1] != '/') start--;
    snprintf(out, PATH_CAP, "%.*s", (int)(end - start), path + start);
}

void path_parent(char out[PATH_CAP], const char *path) {
    size_t n = length_without_slashes(path);
    while (n > 0 && path[n - 1] != '/') n--;
    while (n > 1 && path[n - 1] == '/') n--;
    if (n == 0) snprintf(out, PATH_CAP, ".");
    else snprintf(out, PATH_CAP, "%.*s", (int)n, path);
}
