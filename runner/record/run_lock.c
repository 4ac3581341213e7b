#include "runner/record/run_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runner/base/run_files.h"

/* TEXT_BYTES: size of the text at the start of the file. RESERVE_BYTES: enough for run.json and the
 * last log lines when the disk is full. */
enum { TEXT_BYTES = 256, RESERVE_BYTES = 256 << 10 };

static enum status lock_path(char out[PATH_CAP], const char *run, struct err *e) {
    return path_join(out, run, "lock", e);
}

/* ---- writer -----------------------------------------------------------------------------------*/

static void this_process(struct run_writer *out) {
    *out = (struct run_writer){ .pid = getpid() };
    host_name(out->host);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out->boot, sizeof out->boot - 1) : 0;
    out->boot[n > 0 ? strcspn(out->boot, "\n") : 0] = '\0';
    if (fd >= 0) close(fd);
}

/* Another host has another name and another boot id. A container has its own name on the same
 * kernel; a rebooted machine has a new boot id under its old name. */
static bool is_elsewhere(const struct run_writer *w) {
    struct run_writer here;
    this_process(&here);
    return *w->host && *here.host && strcmp(w->host, here.host) != 0 &&
           (!*w->boot || strcmp(w->boot, here.boot) != 0);
}

static bool is_recent(const struct stat *info) {
    return time(NULL) - info->st_mtime < RUN_LOCK_SILENT_S;
}

static bool heard_of(const char *run, int fd) {
    char archive[PATH_CAP + 24];
    struct stat info;
    snprintf(archive, sizeof archive, "%s.tar.zst.partial", run);
    return (fstat(fd, &info) == 0 && is_recent(&info)) ||
           (stat(archive, &info) == 0 && is_recent(&info));
}

static void read_writer(const char *run, int fd, struct run_writer *out) {
    char text[TEXT_BYTES] = "";
    *out = (struct run_writer){ 0 };
    if (pread(fd, text, sizeof text - 1, 0) > 0)
        (void)sscanf(text, "%" SCNd64 "\n%63s\n%39s", &out->pid, out->host, out->boot);
    out->elsewhere = is_elsewhere(out);
    out->here = *out->host && !out->elsewhere;
    out->heard_of = out->pid > 0 && heard_of(run, fd);
}

/* Opens the lock file. A link or a FIFO, which would block, is rejected: -1 and errno. */
static int open_lock(const char *path, int flags) {
    struct stat info;
    int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    if (fd < 0 || (fstat(fd, &info) == 0 && S_ISREG(info.st_mode))) return fd;
    close(fd);
    errno = EINVAL;
    return -1;
}

enum run_life run_lock_look(const char *run, struct run_writer *out) {
    char path[PATH_CAP];
    *out = (struct run_writer){ 0 };
    if (lock_path(path, run, NULL) != OK) return RUN_LIFE_NONE;
    int fd = open_lock(path, O_RDONLY);
    if (fd < 0) return RUN_LIFE_NONE;
    bool held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    read_writer(run, fd, out);
    close(fd);
    if (held) return RUN_LIFE_LOCKED;
    return out->elsewhere && out->heard_of ? RUN_LIFE_ELSEWHERE : RUN_LIFE_NONE;
}

/* ---- take -------------------------------------------------------------------------------------*/

/* Whether the content of the locked file allows us to take it. If the last holder deleted the file
 * while we opened it, another process may hold a new one: ERR_STATE. */
static enum status may_have(int fd, const char *run, bool presumed_dead, struct err *e) {
    struct run_writer last;
    struct stat info;
    if (fstat(fd, &info) != 0 || info.st_nlink == 0)
        return FAIL(e, ERR_STATE, "%s: another process has just closed this run; try again", run);
    read_writer(run, fd, &last);
    if (presumed_dead || !last.elsewhere || !last.heard_of) return OK;
    return FAIL(e, ERR_STATE, "%s: process %" PRId64 " on host %s seems to be writing this run "
                "(locks do not work across hosts on every shared file system); if it is dead, wait "
                "until it has been silent for %d minutes, or: fp8lab close --force %s",
                run, last.pid, last.host, RUN_LOCK_SILENT_S / 60, run);
}

/* Writes this process into the file as the writer; pid 0: the lock is released. */
static enum status sign(int fd, int64_t pid, const char *path, struct err *e) {
    struct run_writer me;
    char text[TEXT_BYTES] = "";
    this_process(&me);
    snprintf(text, sizeof text, "%" PRId64 "\n%s\n%s\n", pid, me.host, me.boot);
    if (lseek(fd, 0, SEEK_SET) != 0) return FAIL(e, ERR_IO, "seek %s: %s", path, strerror(errno));
    /* Writes all of `text`, since the old text may be longer. */
    return write_all(fd, text, sizeof text, path, e);
}

/* 0, or errno. run_lock_look() holds the lock for microseconds, hence the retries. */
static int lock_now(int fd) {
    static const struct timespec MOMENT = { .tv_nsec = 2000000 };
    for (int left = 5; flock(fd, LOCK_EX | LOCK_NB) != 0; left--) {
        if (errno != EWOULDBLOCK || left == 0) return errno;
        (void)nanosleep(&MOMENT, NULL);
    }
    return 0;
}

enum status run_lock_take(const char *run, bool presumed_dead, int *out, struct err *e) {
    char path[PATH_CAP];
    TRY(lock_path(path, run, e));
    int fd = open_lock(path, O_RDWR | O_CREAT);
    if (fd < 0) return FAIL(e, ERR_IO, "open %s: %s", path, strerror(errno));
    int why = lock_now(fd);
    if (why != 0) {
        struct run_writer owner;
        read_writer(run, fd, &owner);
        close(fd);
        if (why != EWOULDBLOCK) return FAIL(e, ERR_IO, "lock %s: %s", path, strerror(why));
        return FAIL(e, ERR_STATE, "%s: process %" PRId64 "%s%s is writing this run", run, owner.pid,
                    owner.elsewhere ? " on host " : "", owner.elsewhere ? owner.host : "");
    }
    enum status st = may_have(fd, run, presumed_dead, e);
    if (st == OK) st = sign(fd, getpid(), path, e);
    if (st == OK) (void)posix_fallocate(fd, 0, RESERVE_BYTES); /* may fail: only a reserve */
    if (st != OK) close(fd);
    else *out = fd;
    return st;
}

void run_lock_beat(int fd) { (void)futimens(fd, NULL); }

bool run_lock_give_reserve(int fd) { return ftruncate(fd, TEXT_BYTES) == 0; }

void run_lock_drop(const char *run, int fd) {
    char path[PATH_CAP];
    if (lock_path(path, run, NULL) == OK) (void)unlink(path);
    close(fd);
}

void run_lock_leave(const char *run, int fd) {
    struct err ignored; /* on error the file names this process, which exits soon */
    (void)!sign(fd, 0, run, &ignored);
    close(fd);
}
