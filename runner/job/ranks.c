#include "runner/job/ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runner/base/run_files.h"
#include "runner/base/signals.h"
#include "runner/job/events.h"

/* ---- one worker process -----------------------------------------------------------------------*/

enum { ARGS_MAX = 64, ADDED_MAX = 12, MOVED_FD = 100 };

struct command_line {
    char *argv[ARGS_MAX]; /* points into the caller's argv and into number */
    char number[ADDED_MAX / 2][24];
    int64_t n, numbers;
};

static void add_number(struct command_line *c, const char *flag, int64_t value) {
    char *text = c->number[c->numbers++];
    snprintf(text, sizeof *c->number, "%" PRId64, value);
    c->argv[c->n++] = (char *)flag;
    c->argv[c->n++] = text;
}

static enum status make_command_line(const struct supervise_options *o, int64_t i,
                                     struct command_line *c, struct err *e) {
    *c = (struct command_line){ .n = 0 };
    for (; o->argv[c->n]; c->n++) {
        if (c->n + ADDED_MAX > ARGS_MAX)
            return FAIL(e, ERR_ARG, "the command line of a worker has over %d words",
                        ARGS_MAX - ADDED_MAX);
        c->argv[c->n] = (char *)o->argv[c->n];
    }
    if (o->world > 1) {
        add_number(c, "--rank", o->first_rank + i);
        add_number(c, "--world", o->world);
        add_number(c, "--device", o->device ? o->device[i] : i);
    }
    add_number(c, "--board-fd", SUPERVISE_BOARD_FD);
    if (o->first_rank + i == 0 && o->rendezvous_fd >= 0)
        add_number(c, "--rendezvous-fd", SUPERVISE_RENDEZVOUS_FD);
    return OK;
}

static enum status log_path_of(const struct supervise_options *o, int64_t i, char out[PATH_CAP],
                               struct err *e) {
    char name[64];
    snprintf(name, sizeof name, "data/logs/worker-%" PRId64 ".log", o->first_rank + i);
    return path_join(out, o->run_path, name, e);
}

/* A descriptor of the runner, and its number in the worker. */
struct inherited { int from, to; };
enum { INHERITED = 5 };

/* Copies all descriptors before it moves them, since one's old number may be another's new number.
 * `from` -1: none. Async-signal-safe. */
static bool inherit(const struct inherited all[INHERITED]) {
    int copy[INHERITED];
    for (int i = 0; i < INHERITED; i++) {
        copy[i] = all[i].from < 0 ? -1 : fcntl(all[i].from, F_DUPFD_CLOEXEC, MOVED_FD);
        if (copy[i] < 0 && all[i].from >= 0) return false;
    }
    for (int i = 0; i < INHERITED; i++)
        if (copy[i] >= 0 && dup2(copy[i], all[i].to) != all[i].to) return false;
    return true;
}

/* In the child, between fork and exec: only async-signal-safe calls. Does not return. On a failure
 * writes errno to `report` and exits. */
static void become_worker(const struct supervise_options *o, char *const *argv,
                          const struct inherited all[INHERITED], int report, pid_t runner) {
    int report_copy = fcntl(report, F_DUPFD_CLOEXEC, MOVED_FD);
    int kept = o->lock_fd >= 0 ? fcntl(o->lock_fd, F_DUPFD, MOVED_FD) : -1;
    bool ready = report_copy >= 0 && (kept >= 0 || o->lock_fd < 0) && inherit(all) &&
                 setpgid(0, 0) == 0 &&
                 prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == runner &&
                 sigprocmask(SIG_SETMASK, &o->signals->old, NULL) == 0;
    int null = ready ? open("/dev/null", O_RDONLY) : -1;
    if (null >= 0 && dup2(null, 0) == 0 && close(null) == 0)
        (void)execve(argv[0], argv, (char *const *)o->envp);
    int why = errno;
    ssize_t ignored = write(report_copy >= 0 ? report_copy : report, &why, sizeof why);
    (void)ignored;
    _exit(127);
}

/* Waits until the child has executed the program (the pipe closes) or failed (errno arrives). */
static enum status await_exec(const char *program, int report, pid_t pid, struct err *e) {
    int why = 0;
    ssize_t n;
    do n = read(report, &why, sizeof why);
    while (n < 0 && errno == EINTR);
    if (n <= 0) return OK;
    (void)waitpid(pid, NULL, 0);
    return FAIL(e, ERR_IO, "start worker %s: %s%s", program, strerror(why),
                why == EINVAL ? ": raise the limit of open files (ulimit -n)" : "");
}

/* Starts the i-th worker. *events is the reading end of its events, owned by the caller. */
static enum status start_worker(const struct supervise_options *o, int64_t i, int board_fd,
                                pid_t *pid, int *events, struct err *e) {
    struct command_line line;
    char log_path[PATH_CAP];
    TRY(make_command_line(o, i, &line, e));
    TRY(log_path_of(o, i, log_path, e));

    enum status st = OK;
    int event_pipe[2] = { -1, -1 }, report[2] = { -1, -1 };
    int log = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log < 0) {
        st = FAIL(e, ERR_IO, "open %s: %s", log_path, strerror(errno));
        goto done;
    }
    if (pipe2(event_pipe, O_CLOEXEC) != 0 || pipe2(report, O_CLOEXEC) != 0) {
        st = FAIL(e, ERR_IO, "create a pipe for a worker: %s", strerror(errno));
        goto done;
    }
    const struct inherited all[INHERITED] = {
        { log, 1 }, { log, 2 }, { event_pipe[1], SUPERVISE_EVENTS_FD },
        { board_fd, SUPERVISE_BOARD_FD },
        { o->first_rank + i == 0 ? o->rendezvous_fd : -1, SUPERVISE_RENDEZVOUS_FD },
    };
    pid_t runner = getpid(), child = fork();
    if (child == 0) become_worker(o, line.argv, all, report[1], runner);
    if (child < 0) {
        st = FAIL(e, ERR_IO, "start a worker process: %s", strerror(errno));
        goto done;
    }
    close(report[1]);
    report[1] = -1;
    st = await_exec(line.argv[0], report[0], child, e);
    if (st != OK) goto done;
    *pid = child;
    *events = event_pipe[0];
    event_pipe[0] = -1;
done:
    if (log >= 0) close(log);
    for (int k = 0; k < 2; k++) {
        if (event_pipe[k] >= 0) close(event_pipe[k]);
        if (report[k] >= 0) close(report[k]);
    }
    return st;
}

/* ---- starting ---------------------------------------------------------------------------------*/

static enum status start_rank(struct ranks *r, int64_t i, struct err *e) {
    const struct supervise_options *o = r->options;
    struct rank *rank = &r->rank[i];
    int board = -1, events = -1;
    TRY(board_create(&rank->board, &board, e));
    if (o->rendezvous) rank->board->rendezvous = *o->rendezvous;
    enum status st = start_worker(o, i, board, &rank->pid, &events, e);
    close(board);
    r->started = i + 1;
    if (st != OK) return st;
    st = event_reader_create(events, &rank->events, e);
    if (st != OK) close(events);
    rank->open = st == OK;
    return st;
}

enum status ranks_start(const struct supervise_options *options, struct ranks *out,
                        struct err *e) {
    *out = (struct ranks){ .options = options };
    host_name(out->host);
    enum status st = OK;
    for (int64_t i = 0; i < options->ranks && st == OK; i++) st = start_rank(out, i, e);
    return st;
}

void ranks_close(struct ranks *r) {
    for (int64_t i = 0; i < r->started; i++) {
        event_reader_destroy(r->rank[i].events);
        board_close(r->rank[i].board);
    }
}

/* ---- all ranks --------------------------------------------------------------------------------*/

void ranks_signal(const struct ranks *r, int signo) {
    for (int64_t i = 0; i < r->started; i++)
        if (r->rank[i].pid) (void)kill(r->rank[i].pid, signo);
}

bool ranks_exited(const struct ranks *r) {
    for (int64_t i = 0; i < r->started; i++)
        if (r->rank[i].pid && !r->rank[i].unkillable) return false;
    return true;
}

bool ranks_done(const struct ranks *r) {
    bool done = r->started == r->options->ranks;
    for (int64_t i = 0; i < r->started; i++) done = done && r->rank[i].done;
    return done;
}

void ranks_check_heartbeats(struct ranks *r) {
    for (int64_t i = 0; i < r->started; i++) {
        struct rank *rank = &r->rank[i];
        int64_t beats = board_beats(rank->board);
        bool counts = rank->pid && beats > 0 && beats == rank->beats;
        rank->silent_ticks = counts ? rank->silent_ticks + 1 : 0;
        rank->beats = beats;
    }
}

/* ---- the log ----------------------------------------------------------------------------------*/

void ranks_last_log_line(const struct ranks *r, int64_t i, char *out, size_t size) {
    char path[PATH_CAP], tail[512] = "";
    *out = '\0';
    if (log_path_of(r->options, i, path, NULL) != OK) return;
    FILE *f = fopen(path, "re");
    if (!f) return;
    if (fseek(f, -(long)(sizeof tail - 1), SEEK_END) != 0) rewind(f);
    size_t n = fread(tail, 1, sizeof tail - 1, f);
    fclose(f);
    while (n && (tail[n - 1] == '\n' || tail[n - 1] == ' ')) tail[--n] = '\0';
    const char *line = strrchr(tail, '\n');
    snprintf(out, size, "; last line of its log: %s", line ? line + 1 : tail);
    if (!*tail) *out = '\0';
}
