#include "runner/base/self_ask.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/clock.h"
#include "runner/base/run_files.h"

/* KILLED_MS: what a killed child has to end. One that waits in the driver for a device that hangs
 * may never end, and neither would who waits for it. */
enum { ANSWER_MAX = 1 << 20, ARGS_MAX = 30, TICK_MS = 500, REAP_MS = 2, KILLED_MS = 5000 };

/* In the child, between fork and exec. It ends with its parent, however that ends. */
static void exec_self(const char *self, const struct self_ask *a, int out, pid_t parent) {
    const char *argv[ARGS_MAX + 2] = { self };
    for (int n = 0; a->args[n] && n < ARGS_MAX; n++) argv[n + 1] = a->args[n];
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(127);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0 && dup2(null, 0) == 0 && dup2(out, 1) == 1 && dup2(null, 2) == 2)
        (void)execv(self, (char *const *)(uintptr_t)argv);
    _exit(127);
}

/* Whether to wait on for the child; *left: at most how many ms. */
static enum status check_wait(const struct self_ask *a, int64_t deadline_ms, int64_t *left,
                              struct err *e) {
    *left = deadline_ms - clock_ms();
    if (*left <= 0)
        return FAIL(e, ERR_DEVICE, "no answer within %" PRId64 " s: the device hangs, or other "
                    "programs keep this machine busy", a->seconds);
    if (a->tick && !a->tick(a->context))
        return FAIL(e, ERR_INTERRUPTED, "stopped before the device had answered");
    return OK;
}

/* Reads until the other end closes. */
static enum status read_answer(const struct self_ask *a, int fd, int64_t deadline_ms, char *text,
                               size_t *length, struct err *e) {
    *length = 0;
    for (;;) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int64_t left;
        TRY(check_wait(a, deadline_ms, &left, e));
        int ready = poll(&p, 1, (int)(a->tick && left > TICK_MS ? TICK_MS : left));
        if (ready < 0 && errno == EINTR) continue;
        if (ready < 0) return FAIL(e, ERR_IO, "wait for a child process: %s", strerror(errno));
        if (ready == 0) continue;
        ssize_t n = read(fd, text + *length, ANSWER_MAX - *length);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0 || *length == ANSWER_MAX) return OK;
        *length += (size_t)n;
    }
}

/* Whether the child has ended after at most that many ms. */
static bool reap(pid_t pid, int64_t ms, int *status) {
    const struct timespec pause = { .tv_nsec = REAP_MS * 1000000L };
    int64_t until = clock_ms() + ms;
    for (;;) {
        pid_t ended = waitpid(pid, status, WNOHANG);
        if (ended == pid || (ended < 0 && errno != EINTR)) return true;
        if (clock_ms() >= until) return false;
        (void)nanosleep(&pause, NULL);
    }
}

/* A child that has answered closes its files first, and the device's after its answer: it may hang
 * in that. */
static enum status await_end(const struct self_ask *a, pid_t pid, int64_t deadline_ms, int *status,
                             struct err *e) {
    int64_t left = TICK_MS;
    while (!reap(pid, left < TICK_MS ? left : TICK_MS, status))
        TRY(check_wait(a, deadline_ms, &left, e));
    return OK;
}

static enum status start_self(const struct self_ask *a, pid_t *pid, int *fd, struct err *e) {
    char self[PATH_CAP];
    int ends[2];
    pid_t parent = getpid();
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return FAIL(e, ERR_IO, "read /proc/self/exe: %s", strerror(errno));
    self[n] = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0) return FAIL(e, ERR_IO, "create a pipe: %s", strerror(errno));
    *pid = fork();
    if (*pid == 0) exec_self(self, a, ends[1], parent);
    close(ends[1]);
    *fd = ends[0];
    if (*pid > 0) return OK;
    close(ends[0]);
    return FAIL(e, ERR_IO, "fork: %s", strerror(errno));
}

/* Parses the child's output; an error says why it is not an answer. */
static enum status parse_answer(const struct self_ask *a, const char *text, size_t length,
                                int status, json_t **out, bool *crashed, struct err *e) {
    json_error_t why;
    json_t *answer = NULL;
    *crashed = true;
    if (WIFSIGNALED(status))
        return FAIL(e, ERR_DEVICE, "the process that asked the GPU was killed by signal %d",
                    WTERMSIG(status));
    if (json_parse(&answer, text, length, 0, &why) != OK)
        return FAIL(e, ERR_DEVICE, "the process that asked the GPU ended with code %d, no answer",
                    WEXITSTATUS(status));
    *crashed = false;
    if (!strcmp(json_text(answer, "schema", ""), a->schema)) {
        *out = answer;
        return OK;
    }
    const json_t *error = json_object_get(answer, "error");
    bool hardware = !strcmp(json_text(error, "code", ""), status_name(ERR_HARDWARE));
    enum status st = FAIL(e, a->tells_hardware && hardware ? ERR_HARDWARE : ERR_DEVICE, "%s",
                          json_text(error, "text", "no reason was given"));
    json_decref(answer);
    return st;
}

enum status self_ask(const struct self_ask *a, json_t **out, bool *crashed, struct err *e) {
    pid_t pid;
    int fd, status = 0;
    size_t length = 0;
    *out = NULL;
    *crashed = false;
    char *text = malloc(ANSWER_MAX);
    if (!text) return FAIL(e, ERR_MEMORY, "the answer of a child process");
    int64_t deadline_ms = clock_ms() + a->seconds * 1000;
    enum status st = start_self(a, &pid, &fd, e);
    if (st == OK) {
        st = read_answer(a, fd, deadline_ms, text, &length, e);
        close(fd);
        if (st == OK) st = await_end(a, pid, deadline_ms, &status, e);
        if (st != OK) (void)kill(pid, SIGKILL);
        if (st != OK) (void)reap(pid, KILLED_MS, &status);
        *crashed = st != OK;
        if (st == OK) st = parse_answer(a, text, length, status, out, crashed, e);
    }
    free(text);
    return st;
}
