/* The program with a backend in which one rank misbehaves while its process lives. It is linked
 * like fp8lab, but opening the reference backend and a runner's wait go through this file. A file
 * "fault" beside the program selects the fault as soon as it exists. "cut 2" closes rank 2's links;
 * "stuck 2" stops its main thread (heartbeats continue); "slow 2" makes each of its forward passes
 * slower; "broken 2" fails like a device; "emulates 0" reports one of two GEMMs as emulated. With
 * "unkillable 1" a runner does not see the end of a process that SIGKILL ended. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernels/cpu/cpu_backend.h"
#include "runner/base/clock.h"

/* A slow rank sleeps for SLOWER times the duration of the rest of a step, on any machine. */
enum { SLOWER = 6, SLOW_LEAST_MS = 60 };

/* Begins with the table that callers see; the real table is behind it. */
struct faulty {
    struct backend_ops ops;
    const struct backend_ops *real;
    const struct comm_group *group;
    bool cut;
    int64_t slept_ms; /* when a slow rank last slept (clock.h); 0: not yet */
};

static struct faulty *faulty_of(struct backend *b) { return (struct faulty *)(uintptr_t)b->ops; }

static void cut_links(struct faulty *f) {
    for (int i = 0; i < f->group->world && !f->cut; i++)
        if (i != f->group->rank) (void)shutdown(f->group->link[i], SHUT_RDWR);
    f->cut = true;
}

static void be_slow(struct faulty *f) {
    int64_t now = clock_ms(), ms = f->slept_ms ? SLOWER * (now - f->slept_ms) : 0;
    if (ms < SLOW_LEAST_MS) ms = SLOW_LEAST_MS;
    struct timespec slow = { ms / 1000, ms % 1000 * 1000000L };
    (void)nanosleep(&slow, NULL);
    f->slept_ms = clock_ms();
}

/* Reads the file's current content; false: there is none. */
static bool read_fault(char kind[16], int *rank) {
    char path[4096] = "";
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - sizeof "fault");
    char *slash = n > 0 ? strrchr(path, '/') : NULL;
    strcpy(slash ? slash + 1 : path, "fault");
    FILE *file = fopen(path, "re");
    if (!file) return false;
    bool whole = fscanf(file, "%15s %d", kind, rank) == 2;
    fclose(file);
    return whole;
}

/* The fault that this rank must have now; false: none. */
static bool current_fault(const struct faulty *f, char kind[16]) {
    int rank;
    return f->group && read_fault(kind, &rank) && rank == f->group->rank;
}

static enum status misbehave(struct faulty *f, struct err *e) {
    char kind[16] = "";
    if (!current_fault(f, kind)) return OK;
    if (!strcmp(kind, "slow")) be_slow(f);
    if (!strcmp(kind, "cut")) cut_links(f);
    while (!strcmp(kind, "stuck")) (void)pause();
    return strcmp(kind, "broken") ? OK : FAIL(e, ERR_DEVICE, "broken on purpose");
}

static enum status faulty_init(struct backend *b, const struct comm_group *group, struct err *e) {
    struct faulty *f = faulty_of(b);
    f->group = group;
    return f->real->comm.init(b, group, e);
}

static enum status faulty_embedding_fwd(struct backend *b, int lane, const struct tensor *x,
                                        const struct tensor *tokens, const struct tensor *table,
                                        const struct tensor *position,
                                        const struct tensor *positions, struct err *e) {
    TRY(misbehave(faulty_of(b), e));
    return faulty_of(b)->real->embedding_fwd(b, lane, x, tokens, table, position,
                                              positions, e);
}

static bool faulty_decision(struct backend *b, int64_t i, struct decision *out) {
    static const struct decision MADE[] = {
        { .section = "gemm", .name = "layers.0.qkv.weight", .direction = "fprop",
          .way = "native", .detail = "e4m3 tensor x e4m3 tensor" },
        { .section = "gemm", .name = "layers.0.qkv.weight", .direction = "dgrad",
          .way = "emulated", .detail = "bf16 tensor x bf16 tensor" },
    };
    char kind[16] = "";
    bool emulates = current_fault(faulty_of(b), kind) && !strcmp(kind, "emulates");
    if (!emulates || i >= (int64_t)(sizeof MADE / sizeof *MADE)) return false;
    *out = MADE[i];
    return true;
}

static void faulty_close(struct backend *b) {
    struct faulty *f = faulty_of(b);
    b->ops = f->real;
    b->ops->close(b);
    free(f);
}

/* The linker's --wrap: calls of X go to __wrap_X, and __real_X is the original. */
enum status __wrap_cpu_backend_open(struct backend **out, int threads, struct err *e);
enum status __real_cpu_backend_open(struct backend **out, int threads, struct err *e);

enum status __wrap_cpu_backend_open(struct backend **out, int threads, struct err *e) {
    TRY(__real_cpu_backend_open(out, threads, e));
    struct faulty *f = calloc(1, sizeof *f);
    if (!f) return FAIL(e, ERR_MEMORY, "the faulty backend");
    f->real = (*out)->ops;
    f->ops = *f->real;
    f->ops.comm.init = faulty_init;
    f->ops.embedding_fwd = faulty_embedding_fwd;
    f->ops.decision = faulty_decision;
    f->ops.close = faulty_close;
    (*out)->ops = &f->ops;
    return OK;
}

pid_t __wrap_waitpid(pid_t pid, int *status, int options);
pid_t __real_waitpid(pid_t pid, int *status, int options);

pid_t __wrap_waitpid(pid_t pid, int *status, int options) {
    char kind[16];
    int rank;
    siginfo_t gone = { .si_code = 0 };
    if (read_fault(kind, &rank) && !strcmp(kind, "unkillable") &&
        waitid(P_PID, (id_t)pid, &gone, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        gone.si_code == CLD_KILLED && gone.si_status == SIGKILL)
        return 0;
    return __real_waitpid(pid, status, options);
}
