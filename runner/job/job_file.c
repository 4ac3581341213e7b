#include "runner/job/job_file.h"

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

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/clock.h"
#include "runner/base/host_name.h"
#include "runner/base/run_files.h"
#include "runner/job/wire.h"

enum {
    FILE_MAX = 1 << 16,
    CONNECT_MS = 2000,
    ANSWER_MS = 10000,
    TRIES = 5
};

enum status job_file_path(const struct task *task, const char *runs, char path[JOB_FILE_CAP],
                           struct err *e) {
    if (mkdir(runs, 0777) != 0 && errno != EEXIST)
        return FAIL(e, ERR_IO, "create %s: %s", runs, strerror(errno));
    char *whole = realpath(runs, NULL); /* working directories may differ */
    int n = snprintf(path, JOB_FILE_CAP, "%s/.job-%s", whole ? whole : runs, task->job);
    free(whole);
    return n < JOB_FILE_CAP ? OK : FAIL(e, ERR_ARG, "%s: the path is too long", runs);
}

/* Whether other tasks can use the address. A link-local address is a different host on each
 * link. */
static bool is_reachable(const struct ifaddrs *i, bool loopback) {
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || !(i->ifa_flags & IFF_LOOPBACK) != !loopback)
        return false;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)i->ifa_addr;
    return i->ifa_addr->sa_family == AF_INET ||
           (i->ifa_addr->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr));
}

/* This host's addresses in the order of its interfaces, loopback last: without a network the other
 * tasks of this host still need one. */
static json_t *own_addresses(const char *master) {
    json_t *list = json_array();
    struct ifaddrs *all = NULL;
    bool failed = false;
    if (*master) json_append(list, json_from_text(master), &failed);
    if (getifaddrs(&all) != 0) all = NULL;
    for (int loopback = 0; loopback < 2; loopback++)
        for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
            char text[64];
            if (!is_reachable(i, loopback)) continue;
            socklen_t size = i->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                                               : sizeof(struct sockaddr_in6);
            if (getnameinfo(i->ifa_addr, size, text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0)
                json_append(list, json_string(text), &failed);
        }
    if (all) freeifaddrs(all);
    return json_whole(list, failed);
}

/* Another leader may replace the file between the check and the removal. That needs a leader which
 * did not answer before and does so now; the other leader then reports its tasks as missing. */
void job_file_remove(const char *path, const char *secret) {
    struct err unread;
    json_t *file = NULL;
    (void)!job_file_read(path, &file, &unread);
    if (!strcmp(json_text(file, "secret", ""), secret)) (void)unlink(path);
    json_decref(file);
}

enum status job_file_name_conflict(const char *path, const char *host, const char *address,
                                struct err *e) {
    return FAIL(e, ERR_STATE, "another job of this name is waiting for its tasks: its task 0 is on "
                "%s (%s), and the tasks of both jobs would use %s; set FP8LAB_JOB to a name of its "
                "own for each job", host, address, path);
}

/* Removes the file of a dead leader. ERR_STATE: it lives, since only it can prove the secret. */
static enum status replace_dead(const char *path, struct err *e) {
    char address[64], self[HOST_NAME_CAP];
    struct err ignored;
    int fd = -1;
    host_name(self);
    json_t *file = NULL;
    json_t *hello = json_pack("{s:b,s:o}", "probe", 1, "host", json_from_text(self));
    enum status st = hello ? job_file_read(path, &file, e) : FAIL(e, ERR_MEMORY, "a handshake");
    if (st == OK && file && job_file_call(file, hello, &fd, address, &ignored) == OK) {
        close(fd);
        st = job_file_name_conflict(path, json_text(file, "host", "?"), address, e);
    } else if (st == OK || st == ERR_FORMAT) {
        job_file_remove(path, json_text(file, "secret", ""));
        st = OK;
    }
    json_decref(hello);
    json_decref(file);
    return st;
}

/* Links `partial` to `path`, which must not exist. On a network file system link() may succeed and
 * its reply be lost; the file then has two links. Without hard links rename() replaces the file of
 * another leader. */
static enum status take_name(const char *partial, const char *path, struct err *e) {
    struct stat info;
    for (int i = 0; i < TRIES; i++) {
        if (link(partial, path) == 0) return OK;
        int why = errno;
        if (lstat(partial, &info) == 0 && info.st_nlink == 2) return OK;
        if (why == EEXIST) TRY(replace_dead(path, e));
        else if (rename(partial, path) == 0) return OK;
        else return FAIL(e, ERR_IO, "rename %s: %s", partial, strerror(errno));
    }
    return FAIL(e, ERR_STATE, "create %s: other leaders created it again %d times", path, TRIES);
}

static json_t *make_content(const struct task *task, const char *secret, int port) {
    char host[HOST_NAME_CAP];
    host_name(host);
    return json_pack("{s:s,s:i,s:o,s:o}", "secret", secret, "port", port, "host",
                     json_from_text(host), "addresses", own_addresses(task->master));
}

enum status job_file_publish(const char *path, const struct task *task, const char *secret,
                              int port, struct err *e) {
    json_t *content = make_content(task, secret, port);
    char *text = content ? json_dump_text(content, JSON_COMPACT) : NULL;
    char partial[PATH_CAP];
    json_decref(content);
    if (!text) return FAIL(e, ERR_MEMORY, "%s", path);
    snprintf(partial, sizeof partial, "%s.XXXXXX", path);
    int fd = mkostemp(partial, O_CLOEXEC); /* mode 0600 */
    enum status st = fd < 0 ? FAIL(e, ERR_IO, "create %s: %s", partial, strerror(errno))
                            : write_all(fd, text, strlen(text), partial, e);
    if (fd >= 0 && close(fd) != 0 && st == OK)
        st = FAIL(e, ERR_IO, "write %s: %s", partial, strerror(errno));
    if (st == OK) st = take_name(partial, path, e);
    if (fd >= 0) (void)unlink(partial);
    free(text);
    return st;
}

/* *text is NULL where there is no file. Another user with write access to the folder may replace
 * the file at any time, so the check is of the opened file. */
static enum status read_ours(const char *path, char **text, size_t *n, struct err *e) {
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT) return OK;
    if (fd < 0 && errno != ELOOP && errno != EACCES)
        return FAIL(e, ERR_IO, "open %s: %s", path, strerror(errno));
    bool ours = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
                info.st_uid == geteuid() && !(info.st_mode & 0077);
    enum status st = ours ? file_read_open(fd, path, FILE_MAX, text, n, e)
                          : FAIL(e, ERR_VERIFY, "%s: another user owns it or has access to it, and "
                                 "could start programs here; remove it", path);
    if (fd >= 0) close(fd);
    return st;
}

enum status job_file_read(const char *path, json_t **out, struct err *e) {
    char *text = NULL;
    size_t n = 0;
    json_error_t why;
    *out = NULL;
    TRY(read_ours(path, &text, &n, e));
    if (!text) return OK;
    enum status st = json_parse(out, text, n, JSON_REJECT_DUPLICATES, &why);
    free(text);
    return st == OK ? OK : FAIL(e, st, "%s: %s", path, why.text);
}

/* The port may belong to another process by now, which cannot prove the secret. */
static enum status call_at(int fd, const char *secret, const json_t *hello, const char *address,
                           int port, struct err *e) {
    enum status st = wire_call(fd, secret, hello, clock_ms() + ANSWER_MS, e);
    if (st != OK && st != ERR_MEMORY)
        err_prefix(e, "the process at %s, port %d, may be another job's task 0, or the file may "
                   "have changed (all tasks of a job need the same folder of runs, and no other "
                   "job its name, see FP8LAB_JOB)", address, port);
    return st;
}

enum status job_file_call(const json_t *file, const json_t *hello, int *fd, char address[64],
                           struct err *e) {
    const char *secret = json_text(file, "secret", "");
    int port = (int)json_int(file, "port");
    const json_t *addresses = json_object_get(file, "addresses");
    enum status st = FAIL(e, ERR_FORMAT, "the file has no address");
    *fd = -1;
    for (size_t i = 0; i < json_array_size(addresses); i++) {
        const char *at = json_string_value(json_array_get(addresses, i));
        if (!at) continue;
        st = wire_connect(at, port, clock_ms() + CONNECT_MS, fd, e);
        if (st == OK) st = call_at(*fd, secret, hello, at, port, e);
        if (st == OK) st = wire_peer(*fd, address, e);
        if (st == OK) return OK;
        if (*fd >= 0) close(*fd);
        *fd = -1;
    }
    return st;
}
