#include "runner/job/crew_file.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <jansson.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/run_files.h"

enum { FILE_MAX = 1 << 16 };

enum status crew_file_path(const struct task *task, const char *runs, char path[512],
                           struct err *e) {
    if (mkdir(runs, 0777) != 0 && errno != EEXIST)
        return FAIL(e, ERR_IO, "create %s: %s", runs, strerror(errno));
    if (snprintf(path, 512, "%s/.job-%s", runs, task->job) < 512) return OK;
    return FAIL(e, ERR_ARG, "%s: the path is too long", runs);
}

/* This host's addresses in the order in which interfaces are listed, loopback last: it serves the
 * other tasks of this host where there is no network at all. */
static json_t *own_addresses(const char *master) {
    json_t *list = json_array();
    struct ifaddrs *all = NULL;
    bool failed = false;
    if (*master) json_append(list, json_from_text(master), &failed);
    if (getifaddrs(&all) != 0) all = NULL;
    for (int loopback = 0; loopback < 2; loopback++)
        for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
            char text[64];
            if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP) ||
                !(i->ifa_flags & IFF_LOOPBACK) != !loopback)
                continue;
            if (getnameinfo(i->ifa_addr, sizeof(struct sockaddr_in), text, sizeof text, NULL, 0,
                            NI_NUMERICHOST) == 0)
                json_append(list, json_string(text), &failed);
        }
    if (all) freeifaddrs(all);
    return json_whole(list, failed);
}

enum status crew_file_write(const char *path, const struct task *task, const char *secret,
                            int port, struct err *e) {
    json_t *content = json_pack("{s:s,s:i,s:o}", "secret", secret, "port", port, "addresses",
                                own_addresses(task->master));
    char *text = content ? json_dump_text(content, JSON_COMPACT) : NULL;
    char partial[600];
    json_decref(content);
    if (!text) return FAIL(e, ERR_MEMORY, "%s", path);
    snprintf(partial, sizeof partial, "%s.%d", path, (int)getpid());
    (void)unlink(partial);
    int fd = open(partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    enum status st = fd < 0 ? FAIL(e, ERR_IO, "create %s: %s", partial, strerror(errno))
                            : write_all(fd, text, strlen(text), partial, e);
    if (fd >= 0 && close(fd) != 0 && st == OK)
        st = FAIL(e, ERR_IO, "write %s: %s", partial, strerror(errno));
    if (st == OK && rename(partial, path) != 0)
        st = FAIL(e, ERR_IO, "rename %s: %s", partial, strerror(errno));
    if (st != OK) (void)unlink(partial);
    free(text);
    return st;
}

enum status crew_file_read(const char *path, json_t **out, struct err *e) {
    struct stat info;
    char *text = NULL;
    size_t n = 0;
    json_error_t why;
    *out = NULL;
    if (lstat(path, &info) != 0)
        return errno == ENOENT ? OK : FAIL(e, ERR_IO, "%s: %s", path, strerror(errno));
    bool ours = S_ISREG(info.st_mode) && info.st_uid == geteuid() && !(info.st_mode & 0077);
    if (!ours)
        return FAIL(e, ERR_VERIFY, "%s is not this user's alone: whoever wrote it could start "
                    "programs here", path);
    TRY(file_read(path, FILE_MAX, &text, &n, e));
    enum status st = json_parse(out, text, n, JSON_REJECT_DUPLICATES, &why);
    free(text);
    return st == OK ? OK : FAIL(e, st, "%s: %s", path, why.text);
}
