#include "runner/infer/processes.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a process reports, in shared memory. */
struct report {
    enum status st;
    bool ended; /* it came to its end; otherwise it was killed */
    struct err e;
};

struct group {
    int64_t count, started;
    pid_t pid[PROCESSES_MAX]; /* 0: it has ended */
    struct report *report;    /* [count] */
};

enum status processes_share(size_t bytes, void **out, struct err *e) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *out = memory == MAP_FAILED ? NULL : memory;
    if (*out) return OK;
    return FAIL(e, ERR_MEMORY, "%zu bytes that processes share: %s", bytes, strerror(errno));
}

void processes_unshare(void *memory, size_t bytes) {
    if (memory) munmap(memory, bytes);
}

_Noreturn static void be_process(struct report *r, process_body body, void *user, int64_t rank,
                                 pid_t parent) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(1);
    r->st = body(user, rank, &r->e);
    r->ended = true;
    _exit(0);
}

static enum status start(struct group *g, process_body body, void *user, struct err *e) {
    pid_t parent = getpid();
    (void)fflush(NULL); /* a copy would print it again */
    for (; g->started < g->count; g->started++) {
        pid_t child = fork();
        if (child == 0) be_process(&g->report[g->started], body, user, g->started, parent);
        if (child < 0)
            return FAIL(e, ERR_IO, "start process %" PRId64 " of %" PRId64 ": %s", g->started,
                        g->count, strerror(errno));
        g->pid[g->started] = child;
    }
    return OK;
}

static void kill_all(const struct group *g) {
    for (int64_t r = 0; r < g->started; r++)
        if (g->pid[r]) (void)kill(g->pid[r], SIGKILL);
}

/* The error of process `rank`, which has ended. */
static enum status error_of(const struct group *g, int64_t rank, int how, struct err *e) {
    const struct report *r = &g->report[rank];
    if (!r->ended)
        return FAIL(e, ERR_DEVICE, "rank %" PRId64 " of %" PRId64 " was killed (%s %d)%s", rank,
                    g->count, WIFSIGNALED(how) ? "signal" : "exit status",
                    WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how),
                    WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL ? ": was memory short?" : "");
    if (r->st == OK) return OK;
    *e = r->e;
    err_prefix(e, "rank %" PRId64 " of %" PRId64, rank, g->count);
    return r->st;
}

/* Waits until all have ended. */
static enum status reap(struct group *g, enum status st, struct err *e) {
    for (int64_t left = g->started; left > 0;) {
        int how;
        pid_t pid = waitpid(-1, &how, 0);
        if (pid < 0 && errno == EINTR) continue;
        if (pid < 0) return FAIL(e, ERR_IO, "wait for a process: %s", strerror(errno));
        for (int64_t r = 0; r < g->started; r++) {
            if (g->pid[r] != pid) continue;
            g->pid[r] = 0;
            left--;
            if (st != OK) continue;
            st = error_of(g, r, how, e);
            if (st != OK) kill_all(g);
        }
    }
    return st;
}

enum status processes_run(int64_t count, process_body body, void *user, struct err *e) {
    if (count == 1) return body(user, 0, e);
    struct group g = { .count = count };
    void *memory;
    size_t bytes = (size_t)count * sizeof *g.report;
    if (count < 1 || count > PROCESSES_MAX)
        return FAIL(e, ERR_ARG, "%" PRId64 " processes; from 1 to %d are possible", count,
                    PROCESSES_MAX);
    TRY(processes_share(bytes, &memory, e));
    g.report = memory;
    enum status st = start(&g, body, user, e);
    if (st != OK) kill_all(&g);
    st = reap(&g, st, e);
    processes_unshare(memory, bytes);
    return st;
}
