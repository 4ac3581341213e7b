#include "runner/script/render_child.h"

#include <errno.h>
#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/script/function_name.h"
#include "runner/script/render_json.h"
#include "runner/script/render_value.h"
#include "runner/script/script_child.h"

/* ---- frames ---------------------------------------------------------------------------------- */
struct frame_head {
    int64_t status, bytes;
};

static bool send_bytes(int fd, const void *bytes, size_t n) {
    for (const char *at = bytes; n > 0;) {
        ssize_t done = send(fd, at, n, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return false;
        at += done;
        n -= (size_t)done;
    }
    return true;
}

static bool receive_bytes(int fd, void *bytes, size_t n) {
    for (char *at = bytes; n > 0;) {
        ssize_t done = recv(fd, at, n, 0);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        at += done;
        n -= (size_t)done;
    }
    return true;
}

bool frame_send(int fd, enum status st, const char *bytes, size_t n) {
    struct frame_head head = { st, (int64_t)n };
    return send_bytes(fd, &head, sizeof head) && send_bytes(fd, bytes, n);
}

bool frame_receive(int fd, enum status *st, struct text *out) {
    struct frame_head head;
    char chunk[16384];
    out->size = 0;
    if (!receive_bytes(fd, &head, sizeof head)) return false;
    *st = (enum status)head.status;
    text_puts(out, ""); /* makes it a string if there is no byte */
    for (int64_t left = head.bytes; left > 0 && !out->failed;) {
        size_t n = left < (int64_t)sizeof chunk ? (size_t)left : sizeof chunk;
        if (!receive_bytes(fd, chunk, n)) return false;
        text_add(out, chunk, n);
        left -= (int64_t)n;
    }
    return !out->failed;
}

/* ---- one conversation, in a process of its own ----------------------------------------------- */
struct server {
    const struct render_servers *start;
    struct script *script;
    int function;      /* in the registry */
    const char *place; /* of its definition, for messages */
    int fd;
    struct text request; /* a conversation; owned */
};

struct rendering {
    const struct server *server;
    json_t *conversation;
    struct text fragments;
};

/* [raises] */
static void call_function(struct script *s, void *argument) {
    struct rendering *r = argument;
    lua_rawgeti(s->L, LUA_REGISTRYINDEX, r->server->function);
    render_push_json(s->L, r->conversation);
    render_push_writer(s->L);
    int below = lua_gettop(s->L) - 3;
    lua_call(s->L, 2, LUA_MULTRET);
    render_read_fragments(s->L, below, r->server->place, &r->fragments);
    if (r->fragments.size > CHILD_REPORT_MAX - 1)
        luaL_error(s->L, "%s: what it returned is longer than %d MiB", r->server->place,
                   CHILD_REPORT_MAX >> 20);
}

/* The body of a struct script_child. An error's text begins with '!', fragments with '['. */
static void render_one(void *context, struct text *report) {
    struct server *server = context;
    struct script *s = server->script;
    struct rendering r = { .server = server };
    json_error_t why;
    struct err e;
    close(server->fd);
    enum status st = json_parse(&r.conversation, server->request.bytes, server->request.size,
                                JSON_ALLOW_NUL, &why);
    report->failed = st == ERR_MEMORY;
    if (st == OK) st = script_protect(s, call_function, &r, &e);
    else FAIL(&e, st, "the conversation: %s", why.text);
    report->failed |= r.fragments.failed;
    if (st != OK) text_puts(report, "!");
    if (!report->failed) text_puts(report, st == OK ? r.fragments.bytes : e.text);
}

/* ---- servers --------------------------------------------------------------------------------- */
static bool answer(struct server *server, struct script_trail *trail) {
    const struct script_child child = { .path = server->start->path, .what = "the function",
                                        .limits = server->start->limits, .trail = trail,
                                        .body = render_one, .context = server };
    struct text report = { 0 };
    struct err e;
    *trail = (struct script_trail){ 0 };
    enum status st = child_run(&child, &report, &e);
    bool failed = st == OK && *report.bytes == '!';
    bool sent = st != OK ? frame_send(server->fd, st, e.text, strlen(e.text))
                : failed ? frame_send(server->fd, ERR_FORMAT, report.bytes + 1, report.size - 1)
                         : frame_send(server->fd, OK, report.bytes, report.size);
    text_free(&report);
    return sent;
}

static void serve(struct server *server, int channel) {
    const struct render_servers *start = server->start;
    struct script *s = server->script;
    enum status ignored;
    for (int i = 0; i < start->count; i++)
        if (i != channel) close(start->channels[i][1]);
    server->fd = start->channels[channel][1];
    s->trail = child_trail_create();
    s->trail_source = NULL;
    s->instructions = 0;
    s->rendering = true;
    while (s->trail && frame_receive(server->fd, &ignored, &server->request))
        if (!answer(server, s->trail)) break;
}

/* ---- the start ------------------------------------------------------------------------------- */
/* [raises] */
static void evaluate(struct script *s, void *argument) {
    struct server *server = argument;
    const struct render_servers *start = server->start;
    lua_Debug ar;
    script_run(s, start->path, start->lib);
    if (!function_push(s, start->function))
        luaL_error(s->L, *start->function ? "%s: its result has no function %s"
                                          : "%s: it returns no function; end it with return "
                                            "function(conversation) ... end", start->path,
                   start->function);
    lua_pushvalue(s->L, -1);
    lua_getinfo(s->L, ">S", &ar);
    server->place = *ar.source == '@'
                        ? pool_format(&s->pool, "%s:%d", ar.source + 1, ar.linedefined)
                        : start->path; /* a function of C, as string.upper */
    server->function = luaL_ref(s->L, LUA_REGISTRYINDEX);
}

static void add_files(struct text *out, const struct script *s) {
    for (int64_t i = 0; i < s->file_count; i++) {
        text_puts(out, i ? ",{\"name\":" : "[{\"name\":");
        canonical_add_string(out, s->files[i].name, strlen(s->files[i].name));
        text_puts(out, ",\"sha256\":\"");
        text_puts(out, s->files[i].sha256);
        text_puts(out, "\"}");
    }
    text_puts(out, "]");
}

static enum status begin(struct server *server, struct err *e) {
    struct script *s = calloc(1, sizeof *s);
    if (!s) return FAIL(e, ERR_MEMORY, "no memory to evaluate %s", server->start->path);
    server->script = s;
    s->limits = server->start->limits;
    s->trail = server->start->trail;
    child_confine(s->limits, false);
    TRY(script_open(s, e));
    TRY(script_protect(s, evaluate, server, e));
    child_unconfine_time(); /* from now on each conversation has its own */
    return OK;
}

/* Each further server is a copy of this process. False: this process is one of them. */
static bool copy_servers(struct server *server, int *channel, enum status *st, struct err *e) {
    for (*channel = 1; *channel < server->start->count; ++*channel) {
        pid_t copy = fork();
        if (copy == 0) return false;
        if (copy > 0) continue;
        *st = FAIL(e, ERR_IO, "fork: %s", strerror(errno));
        break;
    }
    *channel = 0;
    return true;
}

_Noreturn void render_serve(const struct render_servers *r) {
    struct server server = { .start = r };
    struct text files = { 0 };
    struct err e;
    int channel = 0;
    for (int i = 0; i < r->count; i++) close(r->channels[i][0]);
    enum status st = begin(&server, &e);
    bool first = st != OK || copy_servers(&server, &channel, &st, &e);
    if (first && st == OK) {
        add_files(&files, server.script);
        if (files.failed) st = FAIL(&e, ERR_MEMORY, "no memory for the files of %s", r->path);
    }
    if (first && st != OK) (void)frame_send(r->channels[0][1], st, e.text, strlen(e.text));
    if (first && st == OK && !frame_send(r->channels[0][1], OK, files.bytes, files.size))
        st = ERR_IO;
    if (st == OK) serve(&server, channel);
    while (wait(NULL) > 0 || errno == EINTR) {} /* the copies, which end as this process does */
    _exit(0);
}
