#include "tests/support/ranks.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runner/base/clock.h"
#include "runner/job/rendezvous.h"
#include "runner/job/wire.h"
#include "runner/plan/backends.h"

void *ranks_share(const void *what, size_t size) {
    void *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        abort();
    }
    return memcpy(shared, what, size);
}

static int be_rank(const struct rendezvous *rendezvous, const char *backend, int rank, int world,
                   int listening, rank_body body, void *user) {
    struct err e = { 0 };
    struct mesh mesh;
    (void)setenv("NCCL_NVLS_ENABLE", "0", 0); /* as the runner sets it for its workers */
    struct rank_test t = { .user = user };
    struct backend_handle handle = { 0 };
    int code = 2;
    enum status st = rendezvous_join(rendezvous, rank, world, listening, &mesh, &e);
    if (st == OK) st = backend_open(backend, 1, rank, &handle, &e);
    t.backend = handle.backend;
    if (st == OK) {
        t.group = (struct comm_group){ .rank = rank, .world = world, .link = mesh.link,
                                       .host = mesh.host, .note = &t.note };
        st = t.backend->ops->comm.init(t.backend, &t.group, &e);
    }
    if (st == OK) code = body(&t);
    else fprintf(stderr, "rank %d: %s\n", rank, e.text);
    backend_close(&handle);
    mesh_close(&mesh);
    return code;
}

/* Waits for one child until the deadline, then kills it. */
static int wait_for(pid_t pid, int64_t deadline_ms) {
    int status;
    for (;;) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : RANK_KILLED;
        if (clock_ms() >= deadline_ms) break;
        struct timespec nap = { 0, 2000000 };
        (void)nanosleep(&nap, NULL);
    }
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, &status, 0);
    return RANK_LATE;
}

void ranks_run(const char *backend, int world, rank_body body, void *user, int seconds, int *code) {
    struct rendezvous rendezvous = { .address = "127.0.0.1", .timeout_s = seconds };
    pid_t pid[RENDEZVOUS_RANKS_MAX];
    int listening;
    host_name(rendezvous.host);
    if (wire_listen("127.0.0.1", 0, &listening, &rendezvous.port, NULL) != OK ||
        secret_make(rendezvous.secret, NULL) != OK)
        abort();
    fflush(NULL);
    for (int r = 0; r < world; r++) {
        pid[r] = fork();
        if (pid[r] != 0) continue;
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a rank that hangs must not outlive its test */
        _exit(be_rank(&rendezvous, backend, r, world, listening, body, user));
    }
    close(listening);
    int64_t deadline = clock_ms() + (int64_t)seconds * 1000;
    for (int r = 0; r < world; r++) code[r] = wait_for(pid[r], deadline);
}
