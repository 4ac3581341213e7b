#include "runner/script/script_child.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runner/base/clock.h"
#include "runner/base/run_files.h"

struct script_trail *child_trail_create(void) {
    void *trail = mmap(NULL, sizeof(struct script_trail), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return trail == MAP_FAILED ? NULL : trail;
}

void child_trail_destroy(struct script_trail *trail) {
    if (trail) munmap(trail, sizeof *trail);
}

/* ---- the child ------------------------------------------------------------------------------- */
void child_confine(const struct script_limits *limits, bool ends) {
    static const int SIGNALS[] = { SIGINT, SIGTERM, SIGHUP, SIGXCPU, SIGPIPE, SIGCHLD };
    sigset_t none;
    for (size_t i = 0; i < sizeof SIGNALS / sizeof *SIGNALS; i++) signal(SIGNALS[i], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setlocale(LC_ALL, "C");
    /* Lowering a limit does not fail. */
    struct rlimit cpu, zero = { 0, 0 };
    getrlimit(RLIMIT_CPU, &cpu);
    cpu.rlim_cur = (rlim_t)limits->cpu_s;
    if (ends) cpu.rlim_max = (rlim_t)limits->cpu_s + 1;
    setrlimit(RLIMIT_CPU, &cpu);
    setrlimit(RLIMIT_CORE, &zero);
    setrlimit(RLIMIT_FSIZE, &zero);
#if !defined(__SANITIZE_ADDRESS__) /* its shadow memory has terabytes of addresses */
    struct rlimit memory = { (rlim_t)limits->address_bytes, (rlim_t)limits->address_bytes };
    setrlimit(RLIMIT_AS, &memory);
#endif
}

void child_unconfine_time(void) {
    struct rlimit cpu;
    getrlimit(RLIMIT_CPU, &cpu);
    cpu.rlim_cur = cpu.rlim_max;
    setrlimit(RLIMIT_CPU, &cpu);
}

_Noreturn static void child_main(const struct script_child *c, int pipe_fd) {
    struct text report = { 0 };
    struct err e;
    child_confine(c->limits, true);
    c->body(c->context, &report);
    if (report.failed) _exit(CHILD_NO_MEMORY);
    _exit(write_all(pipe_fd, report.bytes, report.size, "the pipe", &e) == OK ? 0 : 1);
}

/* ---- the parent ------------------------------------------------------------------------------ */
enum report { REPORT_WHOLE, REPORT_LATE, REPORT_TOO_LARGE, REPORT_LOST };

/* Reads until the child closes its end. REPORT_LOST: out of memory, or the pipe failed. */
static enum report read_report(int fd, int64_t deadline_ms, struct text *out) {
    char chunk[16384];
    for (;;) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int64_t left = deadline_ms - clock_ms();
        if (left <= 0) return REPORT_LATE;
        int ready = poll(&p, 1, (int)left);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return ready == 0 ? REPORT_LATE : REPORT_LOST;
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n == 0 ? REPORT_WHOLE : REPORT_LOST;
        text_add(out, chunk, (size_t)n);
        if (out->failed) return REPORT_LOST;
        if (out->size > CHILD_REPORT_MAX) return REPORT_TOO_LARGE;
    }
}

static int wait_for(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    return status;
}

/* The error of a child that wrote no report. */
static enum status killed(const struct script_child *c, int status, enum report got,
                          struct err *e) {
    const struct script_trail *trail = c->trail;
    const char *file = trail->line ? trail->file : c->path;
    int by = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (got == REPORT_WHOLE && WIFEXITED(status) && WEXITSTATUS(status) == CHILD_NO_MEMORY)
        return FAIL(e, ERR_MEMORY, "no memory to evaluate %s", c->path);
    if (got == REPORT_TOO_LARGE)
        return FAIL(e, ERR_CONFIG, "%s: what it resolves to, its sources and its output are more "
                    "than %d MiB in all", c->path, CHILD_REPORT_MAX >> 20);
    if (by == SIGXCPU || (by == SIGKILL && got == REPORT_WHOLE))
        return FAIL(e, ERR_CONFIG, "%s:%d: stopped after %d s of processor time; one call of a "
                    "library function (string.find, string.rep, ...) took too long", file,
                    trail->line, c->limits->cpu_s);
    if (got == REPORT_LATE)
        return FAIL(e, ERR_CONFIG, "%s:%d: stopped after %d s", file, trail->line,
                    c->limits->wall_s);
    return FAIL(e, ERR_CONFIG, "%s:%d: %s ended without a result (%s %d)", file, trail->line,
                c->what, by ? "signal" : "exit status", by ? by : WEXITSTATUS(status));
}

enum status child_run(const struct script_child *c, struct text *report, struct err *e) {
    int ends[2];
    enum status st = OK;
    if (pipe2(ends, O_CLOEXEC) != 0) return FAIL(e, ERR_IO, "pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child == 0) child_main(c, ends[1]);
    close(ends[1]);
    if (child < 0) {
        st = FAIL(e, ERR_IO, "fork: %s", strerror(errno));
        close(ends[0]);
        return st;
    }
    enum report got = read_report(ends[0], clock_ms() + c->limits->wall_s * 1000, report);
    if (got != REPORT_WHOLE) kill(child, SIGKILL);
    close(ends[0]);
    int status = wait_for(child);
    if (report->failed)
        return FAIL(e, ERR_MEMORY, "no memory for what %s resolves to", c->path);
    if (got == REPORT_LOST)
        return FAIL(e, ERR_IO, "the pipe from the evaluation of %s broke", c->path);
    if (got == REPORT_WHOLE && WIFEXITED(status) && WEXITSTATUS(status) == 0) return OK;
    return killed(c, status, got, e);
}
