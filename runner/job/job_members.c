#include "runner/job/job_members.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/build_info.h"
#include "runner/base/canonical.h"
#include "runner/base/clock.h"
#include "runner/base/run_files.h"
#include "runner/base/signals.h"
#include "runner/job/host_list.h"
#include "runner/job/listener.h"
#include "runner/job/watch.h"
#include "runner/job/wire.h"
#include "runner/record/environment.h"

/* ---- connections ------------------------------------------------------------------------------*/

/* Adds an authenticated connection as the follower that its hello names. Takes fd over. */
static enum status admit(struct job_members *members, int fd, const json_t *hello, struct err *e) {
    const struct task *own = &members->task;
    int64_t task = json_int(hello, "task"), tasks = json_int(hello, "tasks");
    const char *host = json_text(hello, "host", ""), *build = json_text(hello, "build", "");
    bool valid = task >= 1 && task < own->count && tasks == own->count;
    struct peer_connection *c = valid ? &members->peer[task - 1] : NULL;
    enum status st = OK;
    if (!valid)
        st = FAIL(e, ERR_STATE, "a process on %s is task %" PRId64 " of %" PRId64 "; this is task "
                  "0 of %" PRId64, host, task, tasks, own->count);
    else if (strcmp(build, build_info().build_sha256) != 0)
        st = FAIL(e, ERR_STATE, "task %" PRId64 " on %s is another build (sources %.12s) than task "
                  "0 (%.12s)", task, host, build, build_info().build_sha256);
    else if (c->in)
        st = FAIL(e, ERR_STATE, "two processes connected as task %" PRId64 ": on %s and on %s",
                  task, c->host, host);
    if (st != OK) {
        close(fd);
        return st;
    }
    TRY(peer_connection_open(fd, task, host, c, e));
    c->local_count = json_int(hello, "local_tasks");
    c->facts = json_incref(json_object_get(hello, "facts"));
    c->environment = json_incref(json_object_get(hello, "environment"));
    return OK;
}

/* A probe comes from another leader that found this leader's file (job_file_publish), and never
 * from a task of this job. Another job has the same name, and its tasks could connect here. */
static enum status fail_name_conflict(const struct job_members *members, int fd,
                                      const json_t *hello, struct err *e) {
    char address[64];
    enum status st = wire_peer(fd, address, e);
    close(fd);
    TRY(st);
    return job_file_name_conflict(members->file, json_text(hello, "host", "?"), address, e);
}

static enum status accept_task(struct job_members *members, int fd, const json_t *hello,
                             struct err *e) {
    bool probe = json_is_true(json_object_get(hello, "probe"));
    return probe ? fail_name_conflict(members, fd, hello, e) : admit(members, fd, hello, e);
}

/* ---- missing tasks ----------------------------------------------------------------------------*/

/* The tasks that have connected, or those that have not. */
static void list_tasks(const struct job_members *members, bool connected, struct host_list *out) {
    *out = (struct host_list){ 0 };
    for (int64_t t = 1; t < members->task.count; t++) {
        const struct peer_connection *c = &members->peer[t - 1];
        if ((c->in != NULL) == connected) host_list_add(out, t, c->host);
    }
    (void)host_list_end(out);
}

static enum status fail_missing(const struct job_members *members, const struct listener *listener,
                                int64_t wait_s, struct err *e) {
    char rejected[160] = "", self[HOST_NAME_CAP];
    struct host_list missing, connected;
    const struct task *task = &members->task;
    host_name(self);
    list_tasks(members, false, &missing);
    list_tasks(members, true, &connected);
    if (listener->rejected)
        snprintf(rejected, sizeof rejected, "; %" PRId64 " connections did not prove that they "
                 "know the job's secret, the last from %s", listener->rejected, listener->last);
    return FAIL(e, ERR_PEER, "task %.200s of the %" PRId64 " that %s started%s%s did not connect "
                "within %" PRId64 " s to task 0 on %s (connected: %.200s)%s: all tasks need the "
                "same folder of runs (%s) and must reach this host; for a run of one task unset %s "
                "and %s", missing.text, task->count, task->launcher, *task->nodes ? " on " : "",
                task->nodes, wait_s, self, *connected.text ? connected.text : "none", rejected,
                members->file, task->index_name, task->count_name);
}

/* A launcher's variables may be left in a shell; then no other task will connect. */
static void remind(struct job_members *members) {
    char explained[TASK_EXPLAIN_CAP];
    struct host_list missing;
    if (!members->remind_ms || clock_ms() < members->remind_ms) return;
    members->remind_ms = 0;
    list_tasks(members, false, &missing);
    task_explain(&members->task, explained, sizeof explained);
    cli_warn(members->cli, "after %d s task %.200s has not connected: %s", TASK_REMIND_S,
             missing.text, explained);
}

/* ---- gathering --------------------------------------------------------------------------------*/

int job_members_stop_signal(struct job_members *members) {
    int signo = 0;
    for (int64_t i = 0; members->peer && i < members->task.count - 1; i++) {
        struct peer_connection *c = &members->peer[i];
        if (!c->in) continue;
        peer_connection_fill(c);
        for (json_t *message; (message = peer_connection_next(c)) != NULL; json_decref(message))
            if (!signo) signo = stop_request_signal(message);
    }
    return signo;
}

/* Whether all connected followers are still there. */
static enum status check_members(const struct job_members *members, struct err *e) {
    for (int64_t i = 0; i < members->task.count - 1; i++) {
        const struct peer_connection *c = &members->peer[i];
        if (c->in && c->lost)
            return FAIL(e, ERR_PEER, "task %" PRId64 " on %s was lost before all tasks had "
                        "connected: %s", c->task, c->host, c->why_lost);
    }
    return OK;
}

/* The next authenticated connection; *fd is -1 where none came in time. */
static enum status await_task(struct job_members *members, struct listener *listener,
                              struct signals *signals, int64_t deadline_ms, int *fd,
                              json_t **hello, struct err *e) {
    for (*fd = -1; *fd < 0 && clock_ms() < deadline_ms;) {
        int signo = signals_take_request(signals, clock_ms());
        if (!signo) signo = job_members_stop_signal(members);
        if (signo) {
            members->stopped_by = signo;
            return FAIL(e, ERR_INTERRUPTED, "stopped by signal %d (%s) before all tasks had "
                        "connected",
                        signo, strsignal(signo));
        }
        TRY(check_members(members, e));
        remind(members);
        int64_t until = clock_ms() + TICK_MS; /* to read from the followers meanwhile */
        if (until > deadline_ms) until = deadline_ms;
        TRY(listener_next(listener, until, signals->fd, fd, hello, e));
    }
    return OK;
}

static enum status accept_tasks(struct job_members *members, int listening, struct signals *signals,
                              int64_t wait_s, struct err *e) {
    int64_t deadline = clock_ms() + wait_s * 1000;
    struct listener listener;
    enum status st = OK;
    char explained[TASK_EXPLAIN_CAP];
    task_explain(&members->task, explained, sizeof explained);
    cli_note(members->cli, "waiting up to %" PRId64 " s for other tasks: %s", wait_s, explained);
    members->remind_ms = clock_ms() + TASK_REMIND_S * 1000;
    listener_open(listening, members->secret, &listener);
    for (int64_t left = members->task.count - 1; left > 0 && st == OK; left--) {
        int fd;
        json_t *hello = NULL;
        st = await_task(members, &listener, signals, deadline, &fd, &hello, e);
        if (st == OK && fd < 0) st = fail_missing(members, &listener, wait_s, e);
        else if (st == OK) st = accept_task(members, fd, hello, e);
        json_decref(hello);
    }
    listener_close(&listener);
    return st;
}

/* Fills members->hosts. */
static enum status note_hosts(struct job_members *members, const json_t *facts, struct err *e) {
    char self[HOST_NAME_CAP];
    host_name(self);
    for (int64_t t = 0; t < members->task.count; t++) {
        const struct peer_connection *c = t ? &members->peer[t - 1] : NULL;
        json_t *row = json_pack("{s:I,s:o,s:O?,s:o?}", "task", (json_int_t)t, "host",
                                json_from_text(c ? c->host : self), "facts",
                                c ? c->facts : facts, "environment",
                                c ? json_incref(c->environment) : environment_of_task());
        if (!row || json_array_append_new(members->hosts, row) != 0)
            return FAIL(e, ERR_MEMORY, "the list of a job's hosts");
    }
    return OK;
}

static void remove_file(struct job_members *members) {
    if (*members->file) job_file_remove(members->file, members->secret);
    *members->file = '\0';
}

enum status job_members_gather(const struct cli *cli, const struct task *task, const char *runs,
                               int64_t wait_s, const json_t *facts, struct job_members *out,
                               struct err *e) {
    int listening = -1, port;
    struct signals signals;
    *out = (struct job_members){ .task = *task, .cli = cli };
    if (task->count == 1) return OK;
    if (task->count > TASKS_MAX)
        return FAIL(e, ERR_CONFIG, "%s started %" PRId64 " tasks; at most %d", task->launcher,
                    task->count, TASKS_MAX);
    out->peer = calloc((size_t)task->count, sizeof *out->peer);
    out->hosts = json_array();
    if (!out->peer || !out->hosts) return FAIL(e, ERR_MEMORY, "%" PRId64 " tasks", task->count);
    TRY(secret_make(out->secret, e));
    TRY(job_file_path(task, runs, out->file, e));
    TRY(wire_listen(NULL, 0, &listening, &port, e));
    enum status st = signals_open(&signals, e); /* a stop request must remove the file */
    if (st == OK) st = job_file_publish(out->file, task, out->secret, port, e);
    if (st == OK) st = accept_tasks(out, listening, &signals, wait_s, e);
    close(listening);
    remove_file(out); /* no task needs it any more */
    signals_close(&signals);
    return st == OK ? note_hosts(out, facts, e) : st;
}

void job_members_release(struct job_members *members, int exit_code) {
    struct err ignored; /* a follower that hears nothing has exited */
    remove_file(members);
    for (int64_t i = 0; members->peer && i < members->task.count - 1; i++) {
        struct peer_connection *c = &members->peer[i];
        if (c->in && !c->lost)
            (void)!peer_connection_send(
                c, json_pack("{s:s,s:i}", "event", "end", "code", exit_code), &ignored);
        peer_connection_close(c);
    }
    free(members->peer);
    json_decref(members->hosts);
    *members = (struct job_members){ 0 };
}
