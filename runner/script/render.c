#include "runner/script/render.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/script/render_child.h"
#include "runner/script/script_child.h"

enum { SERVERS_MAX = 128 }; /* each has a socket, and a shell often allows 1024 open files */

struct servers {
    struct render_servers start;
    char *path, *function; /* owned */
    pid_t first;           /* the server that is our child; 0: none */
    pthread_mutex_t lock;
    pthread_cond_t freed;
    int *idle, idle_count; /* channels without a conversation; owned */
    json_t *files;         /* [{"name", "sha256"}] of the script; owned */
};

/* ---- rendering ------------------------------------------------------------------------------- */
static int take(struct servers *v) {
    pthread_mutex_lock(&v->lock);
    while (v->idle_count == 0) pthread_cond_wait(&v->freed, &v->lock);
    int channel = v->idle[--v->idle_count];
    pthread_mutex_unlock(&v->lock);
    return channel;
}

static void give_back(struct servers *v, int channel) {
    pthread_mutex_lock(&v->lock);
    v->idle[v->idle_count++] = channel;
    pthread_cond_signal(&v->freed);
    pthread_mutex_unlock(&v->lock);
}

/* A server that ended stays among the idle ones: its socket fails for each further conversation. */
static enum status ask(struct servers *v, const char *request, size_t n, struct text *answer,
                       struct err *e) {
    int channel = take(v), fd = v->start.channels[channel][0];
    enum status st = OK;
    bool answered = frame_send(fd, OK, request, n) && frame_receive(fd, &st, answer);
    give_back(v, channel);
    if (answer->failed) return FAIL(e, ERR_MEMORY, "no memory for what %s rendered", v->path);
    if (!answered)
        return FAIL(e, ERR_IO, "the process that renders conversations by %s has ended: it was "
                    "killed, or the machine has no memory; start again", v->path);
    return st == OK ? OK : FAIL(e, st, "%s", answer->bytes);
}

static enum status render(void *context, const json_t *conversation, json_t **fragments,
                          struct err *e) {
    struct servers *v = context;
    struct text answer = { 0 };
    json_error_t why;
    char *request = json_dump_text(conversation, JSON_COMPACT); /* keys in the order of the line */
    enum status st = request ? ask(v, request, strlen(request), &answer, e)
                             : FAIL(e, ERR_MEMORY, "a conversation as JSON");
    if (st == OK) {
        st = json_parse(fragments, answer.bytes, answer.size, JSON_ALLOW_NUL, &why);
        if (st != OK) st = FAIL(e, st, "what %s rendered: %s", v->path, why.text);
    }
    free(request);
    text_free(&answer);
    return st;
}

/* The place and the files: what else the script computes is determined by them. */
static json_t *describe(const void *context) {
    const struct servers *v = context;
    return json_pack("{s:s,s:O}", "render", v->function, "render_files", v->files);
}

/* ---- opening --------------------------------------------------------------------------------- */
static void close_servers(void *context) {
    struct servers *v = context;
    for (int i = 0; i < v->start.count; i++) close(v->start.channels[i][0]); /* each server ends */
    while (v->first > 0 && waitpid(v->first, NULL, 0) < 0 && errno == EINTR) {}
    pthread_cond_destroy(&v->freed);
    pthread_mutex_destroy(&v->lock);
    child_trail_destroy(v->start.trail);
    json_decref(v->files);
    free(v->start.channels);
    free(v->idle);
    free(v->path);
    free(v->function);
    free(v);
}

static enum status make(struct servers **out, const char *path, const char *function, int count,
                        struct err *e) {
    struct servers *v = calloc(1, sizeof *v);
    *out = v;
    if (!v) return FAIL(e, ERR_MEMORY, "no memory to render by %s", path);
    pthread_mutex_init(&v->lock, NULL);
    pthread_cond_init(&v->freed, NULL);
    v->path = strdup(path);
    v->function = strdup(function);
    v->idle = calloc((size_t)count, sizeof *v->idle);
    v->start.channels = calloc((size_t)count, sizeof *v->start.channels);
    v->start.trail = child_trail_create();
    if (!v->path || !v->function || !v->idle || !v->start.channels || !v->start.trail)
        return FAIL(e, ERR_MEMORY, "no memory to render by %s", path);
    for (; v->start.count < count; v->start.count++) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, v->start.channels[v->start.count]))
            return FAIL(e, ERR_IO, "make a socket: %s", strerror(errno));
        v->idle[v->idle_count++] = v->start.count;
    }
    return OK;
}

/* The first frame, or why there is none. */
static enum status read_files(struct servers *v, struct err *e) {
    const struct script_limits *limits = v->start.limits;
    struct pollfd p = { .fd = v->start.channels[0][0], .events = POLLIN };
    struct text text = { 0 };
    json_error_t why;
    enum status st = OK;
    int ready;
    do ready = poll(&p, 1, limits->wall_s * 1000);
    while (ready < 0 && errno == EINTR);
    if (ready == 0) kill(v->first, SIGKILL); /* its copies do not exist yet */
    bool received = ready > 0 && frame_receive(p.fd, &st, &text);
    if (text.failed)
        st = FAIL(e, ERR_MEMORY, "no memory for the files of %s", v->path);
    else if (!received)
        st = FAIL(e, ERR_CONFIG, "%s:%d: its evaluation, to render conversations, %s",
                  v->start.trail->line ? v->start.trail->file : v->path, v->start.trail->line,
                  ready == 0 ? "takes too long" : "was stopped: by a limit on processor time, or "
                  "because the machine has no memory");
    else if (st != OK)
        st = FAIL(e, st, "%s", text.bytes);
    else if ((st = json_parse(&v->files, text.bytes, text.size, 0, &why)) != OK)
        st = FAIL(e, st, "the files of %s: %s", v->path, why.text);
    text_free(&text);
    return st;
}

static enum status start(struct servers *v, struct err *e) {
    v->first = fork();
    if (v->first == 0) render_serve(&v->start);
    for (int i = 0; i < v->start.count; i++) close(v->start.channels[i][1]);
    if (v->first < 0) return FAIL(e, ERR_IO, "fork: %s", strerror(errno));
    return read_files(v, e);
}

enum status render_open(const char *path, const char *lib, const char *function,
                        const struct script_limits *limits, int servers,
                        struct chat_renderer *out, struct err *e) {
    struct servers *v;
    enum status st = make(&v, path, function, servers < SERVERS_MAX ? servers : SERVERS_MAX, e);
    if (st == OK) {
        v->start.path = v->path;
        v->start.lib = lib;
        v->start.function = v->function;
        v->start.limits = limits ? limits : &SCRIPT_LIMITS;
        st = start(v, e);
    } else if (v) { /* nobody has the servers' ends */
        for (int i = 0; i < v->start.count; i++) close(v->start.channels[i][1]);
    }
    if (st == OK) *out = (struct chat_renderer){ v, render, describe, close_servers };
    else if (v) close_servers(v);
    return st;
}

static enum status open_named(const struct chat_render_source *s, const char *name, int threads,
                              struct chat_renderer *out, struct err *e) {
    return render_open(s->script, s->lib, name, NULL, threads, out, e);
}

struct chat_render_source script_render(const char *path, const char *lib) {
    return (struct chat_render_source){ .open = open_named, .script = path, .lib = lib };
}
