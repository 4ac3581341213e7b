#include "runner/base/open_beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Whether no component of path is empty, too long for a file system, or "..". Sets errno. */
static bool components_allowed(const char *path) {
    for (;; path++) {
        size_t n = strcspn(path, "/");
        bool up = n == 2 && memcmp(path, "..", 2) == 0;
        if (n == 0 || n > NAME_MAX || up) {
            errno = n > NAME_MAX ? ENAMETOOLONG : EINVAL;
            return false;
        }
        path += n;
        if (!*path) return true;
    }
}

/* Lets the kernel walk the path (Linux 5.6). */
static int open_by_kernel(int root, const char *path, int flags, unsigned mode) {
    struct open_how how = { .flags = (unsigned)flags, .mode = flags & O_CREAT ? mode : 0,
                            .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };
    return (int)syscall(SYS_openat2, root, path, &how, sizeof how);
}

/* Opens one component. errno for a link is ELOOP, as with openat2(2); openat(2) sets ENOTDIR if a
 * directory was requested. */
static int open_component(int at, const char *name, int flags, unsigned mode) {
    struct stat info;
    int fd = openat(at, name, flags | O_NOFOLLOW, mode);
    if (fd >= 0 || errno != ENOTDIR) return fd;
    bool link = fstatat(at, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(info.st_mode);
    errno = link ? ELOOP : ENOTDIR;
    return -1;
}

/* Opens one component after the other. */
static int open_by_walk(int root, const char *path, int flags, unsigned mode, unsigned parents) {
    int at = root, next = root;
    for (const char *slash; next >= 0 && (slash = strchr(path, '/')); path = slash + 1) {
        char part[NAME_MAX + 1];
        size_t n = (size_t)(slash - path);
        memcpy(part, path, n);
        part[n] = '\0';
        next = parents && mkdirat(at, part, parents) != 0 && errno != EEXIST
                   ? -1
                   : open_component(at, part, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
        int saved = errno;
        if (at != root) close(at);
        errno = saved;
        at = next;
    }
    if (next < 0) return -1;
    int fd = open_component(at, path, flags, mode), saved = errno;
    if (at != root) close(at);
    errno = saved;
    return fd;
}

int open_beneath(int root, const char *path, int flags, unsigned mode, unsigned parents) {
    if (!components_allowed(path)) return -1;
    flags |= O_CLOEXEC;
    if (parents) return open_by_walk(root, path, flags, mode, parents);
    int fd = open_by_kernel(root, path, flags, mode);
    /* ENOSYS: an older kernel. EPERM: perhaps a container whose filter does not know openat2(2). */
    if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) return fd;
    return open_by_walk(root, path, flags, mode, 0);
}

enum status open_beneath_failed(const char *root_name, const char *path, struct err *e) {
    int why = errno;
    bool wrong_kind = why == ELOOP || why == ENOTDIR || why == ENXIO;
    return FAIL(e, wrong_kind ? ERR_FORMAT : ERR_IO, "open %s/%s: %s%s", root_name, path,
                strerror(why), wrong_kind ? " (a run holds files and directories only)" : "");
}

enum status open_file_beneath(int root, const char *path, int flags, const char *root_name,
                              int *out, struct err *e) {
    struct stat info;
    *out = open_beneath(root, path, flags | O_NONBLOCK, 0644, 0);
    if (*out < 0 && errno == ENOENT && !(flags & O_CREAT)) return OK;
    if (*out < 0) return open_beneath_failed(root_name, path, e);
    if (fstat(*out, &info) == 0 && S_ISREG(info.st_mode)) return OK;
    close(*out);
    *out = -1;
    return FAIL(e, ERR_FORMAT, "%s/%s is not a regular file; a run holds files and "
                "directories only", root_name, path);
}

enum status open_stream_beneath(int root, const char *path, const char *root_name, FILE **out,
                                struct err *e) {
    int fd;
    *out = NULL;
    TRY(open_file_beneath(root, path, O_RDONLY, root_name, &fd, e));
    if (fd < 0) return OK;
    *out = fdopen(fd, "r");
    if (*out) return OK;
    close(fd);
    return FAIL(e, ERR_MEMORY, "no memory to read %s/%s", root_name, path);
}
