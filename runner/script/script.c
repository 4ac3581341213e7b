#include "runner/script/script.h"

#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/clock.h"
#include "runner/base/run_files.h"
#include "runner/script/script_state.h"

enum { REPORT_MAX = 64 << 20, EXIT_NO_MEMORY = 12 /* of the child */ };

/* ---- the child: evaluates, reports, leaves by _exit ------------------------------------------ */
struct evaluation {
    const struct script_task *task;
    const char *directory; /* of the script */
    struct text result;
};

static void confine(const struct script_limits *limits) {
    static const int SIGNALS[] = { SIGINT, SIGTERM, SIGHUP, SIGXCPU, SIGPIPE, SIGCHLD };
    sigset_t none;
    for (size_t i = 0; i < sizeof SIGNALS / sizeof *SIGNALS; i++) signal(SIGNALS[i], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setlocale(LC_ALL, "C");
    /* Lowering a limit does not fail. */
    struct rlimit cpu = { (rlim_t)limits->cpu_s, (rlim_t)limits->cpu_s + 1 }, zero = { 0, 0 };
    setrlimit(RLIMIT_CPU, &cpu);
    setrlimit(RLIMIT_CORE, &zero);
    setrlimit(RLIMIT_FSIZE, &zero);
#if !defined(__SANITIZE_ADDRESS__) /* its shadow memory has terabytes of addresses */
    struct rlimit memory = { (rlim_t)limits->address_bytes, (rlim_t)limits->address_bytes };
    setrlimit(RLIMIT_AS, &memory);
#endif
}

static void add_root(struct script *s, const char *directory, const char *below,
                     const char *prefix) {
    const char *path = *below ? strcmp(directory, ".") == 0
                                    ? below
                                    : pool_format(&s->pool, "%s/%s", directory, below)
                              : directory;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) script_add_root(s, pool_copy(&s->pool, path), prefix, fd);
}

/* Loads and runs the main chunk, then the task's body. [raises] */
static void evaluate(struct script *s, void *argument) {
    struct evaluation *v = argument;
    int fd = open(v->task->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) luaL_error(s->L, "%s: %s", v->task->path, strerror(errno));
    add_root(s, v->directory, "", "");
    add_root(s, v->directory, "lib", "lib/");
    if (v->task->lib) add_root(s, v->task->lib, "", "lib/");
    script_load(s, "main.lua", v->task->path, fd);
    lua_call(s->L, 0, LUA_MULTRET);
    if (lua_gettop(s->L) == 0) lua_pushnil(s->L);
    v->task->body(s, v->task->argument, &v->result);
}

static int compare_text(const char *a, const char *b) { return strcmp(a ? a : "", b ? b : ""); }

static int compare_diagnostics(const void *left, const void *right) {
    const struct diagnostic *a = left, *b = right;
    int order = compare_text(a->place.file, b->place.file);
    if (!order) order = compare_text(a->place.origin, b->place.origin);
    if (!order) order = (a->place.line > b->place.line) - (a->place.line < b->place.line);
    if (!order) order = (a->place.column > b->place.column) - (a->place.column < b->place.column);
    if (!order) order = compare_text(a->path, b->path);
    return order ? order : compare_text(a->text, b->text);
}

static void add_text_member(struct text *out, const char *key, const char *text) {
    canonical_add_string(out, key, strlen(key));
    text_puts(out, ":");
    if (text)
        canonical_add_string(out, text, strlen(text));
    else
        text_puts(out, "null");
}

static void write_diagnostics(struct text *out, const struct diagnostics *d) {
    if (d->count) qsort(d->list, (size_t)d->count, sizeof *d->list, compare_diagnostics);
    text_puts(out, "\"diagnostics\":[");
    for (int64_t i = 0; i < d->count; i++) {
        const struct diagnostic *x = &d->list[i];
        text_puts(out, i ? ",{\"line\":" : "{\"line\":");
        canonical_add_int(out, x->place.line);
        text_puts(out, ",\"column\":");
        canonical_add_int(out, x->place.column);
        text_puts(out, ",");
        add_text_member(out, "file", x->place.file);
        text_puts(out, ",");
        add_text_member(out, "origin", x->place.origin);
        text_puts(out, ",");
        add_text_member(out, "path", x->path);
        text_puts(out, ",");
        add_text_member(out, "text", x->text);
        text_puts(out, "}");
    }
    text_puts(out, "],");
}

static void write_files(struct text *out, const struct script *s) {
    text_puts(out, "\"files\":[");
    for (int64_t i = 0; i < s->file_count; i++) {
        const struct script_file *f = &s->files[i];
        text_puts(out, i ? ",{" : "{");
        add_text_member(out, "name", f->name);
        text_puts(out, ",");
        add_text_member(out, "path", f->path);
        text_puts(out, ",");
        add_text_member(out, "sha256", f->sha256);
        text_puts(out, ",\"text\":");
        canonical_add_string(out, f->text, f->bytes);
        text_puts(out, "}");
    }
    text_puts(out, "],");
}

static void write_report(struct text *out, struct script *s, const struct evaluation *v,
                         const char *error) {
    text_puts(out, "{");
    add_text_member(out, "error", error);
    text_puts(out, ",");
    write_diagnostics(out, &s->diagnostics);
    write_files(out, s);
    text_puts(out, "\"log\":");
    canonical_add_string(out, s->log.bytes ? s->log.bytes : "", s->log.size);
    text_puts(out, ",\"result\":");
    text_puts(out, v->result.size && !error ? v->result.bytes : "null");
    text_puts(out, "}");
}

_Noreturn static void child_main(const struct script_task *task, const char *directory,
                                 struct script_trail *trail, int pipe_fd) {
    struct script *s = calloc(1, sizeof *s);
    struct evaluation v = { .task = task, .directory = directory };
    struct text report = { 0 };
    struct err e = { 0 };
    if (!s) _exit(EXIT_NO_MEMORY);
    s->limits = task->limits ? task->limits : &SCRIPT_LIMITS;
    s->trail = trail;
    confine(s->limits);
    enum status st = script_open(s, &e);
    if (st == OK) st = script_protect(s, evaluate, &v, &e);
    write_report(&report, s, &v, st == OK ? NULL : e.text);
    if (report.failed || v.result.failed || s->log.failed) _exit(EXIT_NO_MEMORY);
    st = write_all(pipe_fd, report.bytes, report.size, "the pipe", &e);
    _exit(st == OK ? 0 : 1);
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
        if (out->size > REPORT_MAX) return REPORT_TOO_LARGE;
    }
}

static int wait_for(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    return status;
}

/* The report for a child that did not write one. */
static enum status killed_report(const struct script_task *task, int status, enum report got,
                                 const struct script_trail *trail, json_t **report, struct err *e) {
    const struct script_limits *limits = task->limits ? task->limits : &SCRIPT_LIMITS;
    const char *file = trail->line ? trail->file : task->path;
    int by = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (got == REPORT_WHOLE && WIFEXITED(status) && WEXITSTATUS(status) == EXIT_NO_MEMORY)
        return FAIL(e, ERR_MEMORY, "no memory to evaluate %s", task->path);
    if (got == REPORT_TOO_LARGE)
        FAIL(e, ERR_CONFIG, "%s: what it resolves to, its sources and its output are more than %d "
             "MiB in all", task->path, REPORT_MAX >> 20);
    else if (by == SIGXCPU || (by == SIGKILL && got == REPORT_WHOLE))
        FAIL(e, ERR_CONFIG, "%s:%d: stopped after %d s of processor time; one call of a library "
             "function (string.find, string.rep, ...) took too long", file, trail->line,
             limits->cpu_s);
    else if (got == REPORT_LATE)
        FAIL(e, ERR_CONFIG, "%s:%d: stopped after %d s", file, trail->line, limits->wall_s);
    else
        FAIL(e, ERR_CONFIG, "%s:%d: the evaluation ended without a result (%s %d)", file,
             trail->line, by ? "signal" : "exit status", by ? by : WEXITSTATUS(status));
    *report = json_pack("{s:o, s:[], s:[], s:s, s:n}", "error", json_from_text(e->text),
                        "diagnostics", "files", "log", "", "result");
    return *report ? ERR_CONFIG : FAIL(e, ERR_MEMORY, "no memory for a report");
}

static enum status parse_report(const struct text *text, json_t **report, struct err *e) {
    json_error_t why;
    enum status st = json_parse(report, text->bytes, text->size, JSON_ALLOW_NUL, &why);
    if (st != OK) return FAIL(e, st, "the script's report: %s", why.text);
    const char *error = json_string_value(json_object_get(*report, "error"));
    const json_t *diagnostics = json_object_get(*report, "diagnostics");
    const json_t *first = json_array_get(diagnostics, 0);
    if (error) return FAIL(e, ERR_CONFIG, "%s", error);
    if (!first) return OK;
    return FAIL(e, ERR_CONFIG, "%s", json_string_value(json_object_get(first, "text")));
}

enum status script_evaluate(const struct script_task *task, json_t **report, struct err *e) {
    const struct script_limits *limits = task->limits ? task->limits : &SCRIPT_LIMITS;
    char directory[PATH_CAP];
    int ends[2];
    enum status st;
    struct text text = { 0 };
    *report = NULL;
    path_parent(directory, task->path);
    struct script_trail *trail = mmap(NULL, sizeof *trail, PROT_READ | PROT_WRITE,
                                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (trail == MAP_FAILED) return FAIL(e, ERR_MEMORY, "mmap: %s", strerror(errno));
    if (pipe2(ends, O_CLOEXEC) != 0) {
        munmap(trail, sizeof *trail);
        return FAIL(e, ERR_IO, "pipe: %s", strerror(errno));
    }
    pid_t child = fork();
    if (child == 0) child_main(task, directory, trail, ends[1]);
    close(ends[1]);
    if (child < 0) {
        st = FAIL(e, ERR_IO, "fork: %s", strerror(errno));
        goto done;
    }
    enum report got = read_report(ends[0], clock_ms() + limits->wall_s * 1000, &text);
    if (got != REPORT_WHOLE) kill(child, SIGKILL);
    int status = wait_for(child);
    if (text.failed)
        st = FAIL(e, ERR_MEMORY, "no memory for what %s resolves to", task->path);
    else if (got == REPORT_LOST)
        st = FAIL(e, ERR_IO, "the pipe from the evaluation of %s broke", task->path);
    else if (got == REPORT_WHOLE && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        st = parse_report(&text, report, e);
    else
        st = killed_report(task, status, got, trail, report, e);
done:
    text_free(&text);
    close(ends[0]);
    munmap(trail, sizeof *trail);
    return st;
}
