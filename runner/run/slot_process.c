#include "runner/run/slot_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runner/job/events.h"
#include "runner/run/slot.h"

/* A line without an end that is longer is printed in parts. */
enum { READ_BYTES = 4096, LINE_MAX_BYTES = 1 << 20 };

/* ---- starting ---------------------------------------------------------------------------------*/

/* The descriptors of a start: this end and the child's of each. -1: closed. */
struct ends { int message[2], stream[SLOT_STREAMS][2]; };

static void close_end(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static void close_all(struct ends *x) {
    for (int i = 0; i < 2; i++) {
        close_end(&x->message[i]);
        for (int k = 0; k < SLOT_STREAMS; k++) close_end(&x->stream[k][i]);
    }
}

static enum status open_ends(struct ends *x, struct err *e) {
    *x = (struct ends){ { -1, -1 }, { { -1, -1 }, { -1, -1 } } };
    bool made = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, x->message) == 0;
    for (int k = 0; k < SLOT_STREAMS; k++) made = made && pipe2(x->stream[k], O_CLOEXEC) == 0;
    return made ? OK : FAIL(e, ERR_IO, "pipes to a row's process: %s", strerror(errno));
}

/* This process's environment, with the slot's variables. */
struct slot_environment { char **vars, *own[2]; }; /* both owned; vars points into own, too */

static void free_environment(struct slot_environment *x) {
    free(x->vars);
    free(x->own[0]);
    free(x->own[1]);
}

static enum status make_environment(const char *visible, int message, struct slot_environment *x,
                                    struct err *e) {
    static const char *const NAMES[] = { SLOT_VARIABLE "=", "CUDA_VISIBLE_DEVICES=" };
    size_t count = 0, n = 0;
    *x = (struct slot_environment){ 0 };
    while (environ[count]) count++;
    x->vars = calloc(count + 3, sizeof *x->vars);
    bool good = x->vars && asprintf(&x->own[0], "%s%d:%d", NAMES[0], (int)getpid(), message) > 0 &&
                (!visible || asprintf(&x->own[1], "%s%s", NAMES[1], visible) > 0);
    if (!good) return FAIL(e, ERR_MEMORY, "the environment of a row's process");
    for (size_t i = 0; i < count; i++) {
        bool replaced = false;
        for (int k = 0; k < 2; k++)
            replaced = replaced || (x->own[k] && !strncmp(environ[i], NAMES[k], strlen(NAMES[k])));
        if (!replaced) x->vars[n++] = environ[i];
    }
    for (int k = 0; k < 2; k++)
        if (x->own[k]) x->vars[n++] = x->own[k];
    return OK;
}

/* In the child, between fork and exec: only async-signal-safe calls. */
_Noreturn static void become_slot(const struct ends *x, const char *const *argv, char *const *vars,
                                  const sigset_t *mask, pid_t parent) {
    bool ready = setpgid(0, 0) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 &&
                 getppid() == parent && fcntl(x->message[1], F_SETFD, 0) == 0 &&
                 dup2(x->stream[SLOT_OUT][1], STDOUT_FILENO) >= 0 &&
                 dup2(x->stream[SLOT_ERR][1], STDERR_FILENO) >= 0 &&
                 sigprocmask(SIG_SETMASK, mask, NULL) == 0;
    int null = ready ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
    if (null >= 0 && dup2(null, STDIN_FILENO) >= 0)
        (void)execve("/proc/self/exe", (char *const *)(uintptr_t)argv, vars);
    _exit(127);
}

/* Takes over the ends that this process keeps. */
static enum status adopt(struct ends *x, FILE *results, struct slot_process *out, struct err *e) {
    for (int k = 0; k < SLOT_STREAMS; k++) {
        out->lines[k] = (struct slot_lines){ .fd = x->stream[k][0],
                                             .to = k == SLOT_OUT ? results : stderr };
        x->stream[k][0] = -1;
        (void)fcntl(out->lines[k].fd, F_SETFL, O_RDONLY | O_NONBLOCK);
    }
    int copy = fcntl(x->message[0], F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return FAIL(e, ERR_IO, "a row's process: %s", strerror(errno));
    enum status st = event_writer_create(copy, &out->out, e);
    if (st != OK) close(copy);
    TRY(st);
    TRY(event_reader_create(x->message[0], &out->in, e));
    x->message[0] = -1;
    out->open = true;
    return OK;
}

enum status slot_process_start(const char *const *argv, const char *visible,
                               const struct signals *signals, FILE *results, const char *name,
                               struct slot_process *out, struct err *e) {
    struct ends x;
    *out = (struct slot_process){ .name = name, .lines = { { .fd = -1 }, { .fd = -1 } } };
    enum status st = open_ends(&x, e);
    struct slot_environment vars = { 0 };
    if (st == OK) st = make_environment(visible, x.message[1], &vars, e);
    if (st == OK) st = adopt(&x, results, out, e);
    if (st == OK) {
        pid_t parent = getpid();
        (void)fflush(NULL); /* a copy would print it again */
        out->pid = fork();
        if (out->pid == 0) become_slot(&x, argv, vars.vars, &signals->old, parent);
        if (out->pid < 0) st = FAIL(e, ERR_IO, "start a row's process: %s", strerror(errno));
        if (out->pid < 0) out->pid = 0;
    }
    free_environment(&vars);
    close_all(&x);
    return st;
}

void slot_process_close(struct slot_process *p) {
    if (p->pid > 0 && kill(p->pid, SIGKILL) == 0) (void)waitpid(p->pid, NULL, 0);
    p->pid = 0;
    event_reader_destroy(p->in);
    event_writer_destroy(p->out);
    p->in = NULL;
    p->out = NULL;
    for (int k = 0; k < SLOT_STREAMS && p->name; k++) {
        close_end(&p->lines[k].fd);
        free(p->lines[k].text);
        p->lines[k].text = NULL;
    }
}

/* ---- what it prints ---------------------------------------------------------------------------*/

/* Prints the lines at the beginning, each in one piece; `all`: also the last one without an end. */
static void print_lines(const char *name, struct slot_lines *l, bool all) {
    size_t at = 0;
    for (;;) {
        char *begin = l->text + at, *end = l->used > at ? memchr(begin, '\n', l->used - at) : NULL;
        if (!end && (!all || l->used == at)) break;
        size_t n = end ? (size_t)(end - begin) : l->used - at;
        if (l->to == stderr) (void)fflush(stdout);
        fprintf(l->to, "%s: %.*s\n", name, (int)n, begin);
        at += n + (end != NULL);
    }
    if (at) (void)fflush(l->to);
    memmove(l->text, l->text + at, l->used - at);
    l->used -= at;
}

static bool make_room(struct slot_lines *l) {
    if (l->room - l->used >= READ_BYTES) return true;
    char *grown = realloc(l->text, l->used + 2 * READ_BYTES);
    if (!grown) return false;
    l->text = grown;
    l->room = l->used + 2 * READ_BYTES;
    return true;
}

/* Reads and prints what has come, without waiting. */
static void print_stream(const char *name, struct slot_lines *l, bool all) {
    while (l->fd >= 0 && make_room(l)) {
        ssize_t n = read(l->fd, l->text + l->used, READ_BYTES);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) break;
        if (n <= 0) close_end(&l->fd);
        else l->used += (size_t)n;
        if (l->used) print_lines(name, l, l->fd < 0 || l->used > LINE_MAX_BYTES);
    }
    if (all && l->used) print_lines(name, l, true);
}

void slot_process_print(struct slot_process *p, bool all) {
    for (int k = 0; k < SLOT_STREAMS; k++) print_stream(p->name, &p->lines[k], all);
}

/* ---- its end ----------------------------------------------------------------------------------*/

bool slot_process_reap(struct slot_process *p) {
    if (p->pid && waitpid(p->pid, &p->ended_how, WNOHANG) == p->pid) {
        p->pid = 0;
        slot_process_print(p, true);
    }
    return p->pid == 0;
}

void slot_process_end_text(const struct slot_process *p, char *out, size_t size) {
    if (WIFSIGNALED(p->ended_how))
        snprintf(out, size, "signal %d (%s)", WTERMSIG(p->ended_how),
                 strsignal(WTERMSIG(p->ended_how)));
    else snprintf(out, size, "exit code %d", WEXITSTATUS(p->ended_how));
}
