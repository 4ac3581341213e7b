#include "runner/base/folder_guard.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "runner/base/file_tree.h"

static const int ENDING[] = { SIGINT, SIGTERM, SIGHUP };
enum { ENDING_COUNT = sizeof ENDING / sizeof *ENDING, TRIES = 100 };

static sigset_t ending_set(void) {
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < ENDING_COUNT; i++) sigaddset(&set, ENDING[i]);
    return set;
}

/* A signal that the caller ignores (nohup) stays ignored. */
static bool is_ignored(int signo) {
    struct sigaction now;
    return sigaction(signo, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

/* The main thread goes on meanwhile and may add a file, so a removal is tried again. */
static void end_by(struct folder_guard *g, int signo) {
    struct err ignored;
    sigset_t set = ending_set();
    pthread_mutex_lock(&g->lock);
    for (int i = 0; i < TRIES && *g->path && tree_remove(g->path, &ignored) != OK; i++) continue;
    (void)signal(signo, SIG_DFL);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    (void)raise(signo);
    pthread_mutex_unlock(&g->lock);
}

static void *wait_for_signal(void *user) {
    struct folder_guard *g = user;
    struct signalfd_siginfo info;
    struct pollfd of[] = { { .fd = g->wake, .events = POLLIN },
                           { .fd = g->signals, .events = POLLIN } };
    for (;;) {
        if (poll(of, 2, -1) < 0 && errno != EINTR) return NULL;
        if (of[0].revents) return NULL;
        bool came = of[1].revents && read(g->signals, &info, sizeof info) == sizeof info;
        if (came && !is_ignored((int)info.ssi_signo)) end_by(g, (int)info.ssi_signo);
    }
}

static enum status start(struct folder_guard *g, struct err *e) {
    sigset_t set = ending_set();
    g->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    g->wake = eventfd(0, EFD_CLOEXEC);
    if (g->signals < 0 || g->wake < 0)
        return FAIL(e, ERR_IO, "wait for signals: %s", strerror(errno));
    int code = pthread_create(&g->thread, NULL, wait_for_signal, g);
    return code == 0 ? OK : FAIL(e, ERR_IO, "a thread that waits for signals: %s", strerror(code));
}

static void stop(struct folder_guard *g) {
    if (g->signals >= 0) close(g->signals);
    if (g->wake >= 0) close(g->wake);
    pthread_mutex_destroy(&g->lock);
    (void)pthread_sigmask(SIG_SETMASK, &g->old, NULL);
    g->open = false;
}

enum status folder_guard_open(struct folder_guard *out, struct err *e) {
    sigset_t set = ending_set();
    *out = (struct folder_guard){ .held = true, .signals = -1, .wake = -1 };
    int code = pthread_mutex_init(&out->lock, NULL);
    if (code == 0) code = pthread_sigmask(SIG_BLOCK, &set, &out->old);
    if (code != 0) return FAIL(e, ERR_IO, "block signals: %s", strerror(code));
    pthread_mutex_lock(&out->lock);
    enum status st = start(out, e);
    out->open = st == OK;
    if (st == OK) return OK;
    pthread_mutex_unlock(&out->lock);
    stop(out);
    return st;
}

void folder_guard_hold(struct folder_guard *g) {
    pthread_mutex_lock(&g->lock);
    g->held = true;
}

void folder_guard_watch(struct folder_guard *g, const char *path) {
    snprintf(g->path, sizeof g->path, "%s", path);
    g->held = false;
    pthread_mutex_unlock(&g->lock);
}

void folder_guard_close(struct folder_guard *g) {
    const uint64_t one = 1;
    if (!g->open) return;
    if (g->held) folder_guard_watch(g, "");
    (void)!write(g->wake, &one, sizeof one);
    pthread_join(g->thread, NULL);
    stop(g);
}
