#include "runner/job/job_follow.h"

#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runner/base/build_info.h"
#include "runner/base/canonical.h"
#include "runner/base/clock.h"
#include "runner/base/run_files.h"
#include "runner/base/signals.h"
#include "runner/hardware/telemetry.h"
#include "runner/job/deploy.h"
#include "runner/job/events.h"
#include "runner/job/job_file.h"
#include "runner/job/peer_connection.h"
#include "runner/job/watch.h"
#include "runner/record/documents.h"
#include "runner/record/environment.h"

enum { RETRY_MS = 200 };

struct follower {
    const struct cli *cli;
    const struct task *task;
    const json_t *facts;
    struct signals signals;
    int stopped_by; /* the signal that asked this task to stop; 0: none */
    struct peer_connection leader;
    struct rendezvous rendezvous; /* address: where the leader is */
    char secret[SHA256_HEX]; /* the job's */
    struct telemetry *telemetry; /* NULL: there is no GPU */
};

/* ---- finding the leader -----------------------------------------------------------------------*/

static enum status connect_leader(struct follower *f, const json_t *file, struct err *e) {
    json_t *hello = json_pack(
        "{s:I,s:I,s:I,s:o,s:s,s:O,s:o}", "task", (json_int_t)f->task->index, "tasks",
        (json_int_t)f->task->count, "local_tasks", (json_int_t)f->task->local_count, "host",
        json_from_text(f->rendezvous.host), "build", build_info().build_sha256, "facts", f->facts,
        "environment", environment_of_task());
    int fd;
    if (!hello) return FAIL(e, ERR_MEMORY, "a message to task 0");
    enum status st = job_file_call(file, hello, &fd, f->rendezvous.address, e);
    json_decref(hello);
    return st == OK ? peer_connection_open(fd, 0, f->rendezvous.address, &f->leader, e) : st;
}

/* Tells the user after the first attempt, and again after TASK_REMIND_S, why this task waits: the
 * launcher's variables may be left in a shell. *times counts the messages. */
static void explain_wait(const struct follower *f, int64_t since_ms, int64_t wait_s, int *times) {
    char explained[TASK_EXPLAIN_CAP];
    if (*times == 2 || (*times == 1 && clock_ms() < since_ms + TASK_REMIND_S * 1000)) return;
    task_explain(f->task, explained, sizeof explained);
    if (++*times == 1)
        cli_note(f->cli, "waiting up to %" PRId64 " s for task 0: %s", wait_s, explained);
    else
        cli_warn(f->cli, "after %d s task 0 has not been found: %s", TASK_REMIND_S, explained);
}

/* Retries: a dead leader may have left a file, which the new leader replaces. */
static enum status find_leader(struct follower *f, const char *runs, int64_t wait_s,
                               struct err *e) {
    char path[JOB_FILE_CAP];
    TRY(job_file_path(f->task, runs, path, e));
    int64_t begin = clock_ms(), deadline = begin + wait_s * 1000;
    for (int times = 0;;) {
        json_t *file = NULL;
        enum status st = job_file_read(path, &file, e);
        if (st == OK && !file)
            st = FAIL(e, ERR_PEER, "there is no such file, which task 0 creates: all tasks of a "
                      "job need the same folder of runs and the same job name (see FP8LAB_JOB)");
        else if (st == OK)
            st = connect_leader(f, file, e);
        snprintf(f->secret, sizeof f->secret, "%s", json_text(file, "secret", ""));
        json_decref(file);
        if (st == OK || st == ERR_VERIFY || st == ERR_MEMORY) return st;
        f->stopped_by = signals_take_request(&f->signals, clock_ms());
        if (f->stopped_by)
            return FAIL(e, ERR_INTERRUPTED, "stopped by signal %d (%s) before it found task 0",
                        f->stopped_by, strsignal(f->stopped_by));
        if (clock_ms() >= deadline) {
            err_prefix(e, "task %" PRId64 " of %" PRId64 " (%s) did not find task 0 within %" PRId64
                       " s by %s (for a run of one task unset %s and %s)", f->task->index,
                       f->task->count, f->task->launcher, wait_s, path, f->task->index_name,
                       f->task->count_name);
            return st;
        }
        explain_wait(f, begin, wait_s, &times);
        struct timespec nap = { 0, RETRY_MS * 1000000L };
        (void)nanosleep(&nap, NULL);
    }
}

/* ---- one attempt ------------------------------------------------------------------------------*/

/* Sends an event of a rank here to the leader. Adds this host's driver figures to telemetry. */
static enum status forward(void *user, int64_t rank, const json_t *event, struct err *e) {
    struct follower *f = user;
    json_t *body = json_copy((json_t *)event);
    if (!body) return FAIL(e, ERR_MEMORY, "an event");
    enum status st = OK;
    if (!strcmp(json_text(event, "event", ""), "telemetry"))
        st = telemetry_add(f->telemetry, json_int(event, "device"), body, e);
    json_t *message = json_pack("{s:s,s:I,s:o}", "event", "rank", "rank", (json_int_t)rank, "body",
                                body);
    if (st == OK) return peer_connection_send(&f->leader, message, e);
    json_decref(message);
    return st;
}

static void tell_user(void *user, const char *what) {
    const struct follower *f = user;
    if (what) cli_note(f->cli, "task %" PRId64 ": %s", f->task->index, what);
}

/* Supervises this task's part of an attempt. */
static enum status run_part(struct follower *f, const json_t *part, struct attempt *out,
                            struct err *e) {
    struct environment environment = { 0 };
    char config[PATH_CAP];
    json_t *resolved = NULL;
    TRY(secret_of_rendezvous(f->secret, json_text(part, "nonce", ""), f->rendezvous.secret, e));
    f->rendezvous.port = (int)json_int(part, "port");
    f->rendezvous.timeout_s = (int)json_int(part, "timeout_s");
    TRY(path_join(config, json_text(part, "run", ""), DOCUMENT_resolved, e));
    enum status st = json_file_read(config, &resolved, e);
    if (st != OK) {
        err_prefix(e, "%s does not see the run (the folder of runs must be on a file system that "
                   "all hosts share)", f->rendezvous.host);
        return st;
    }
    st = environment_make(json_object_get(resolved, "env"),
                          json_is_true(json_object_get(part, "profile")), &environment, e);
    struct supervise_options options = {
        .envp = (const char *const *)environment.vars, .signals = &f->signals, .lock_fd = -1,
        .rendezvous = &f->rendezvous, .rendezvous_fd = -1, .peer = &f->leader, .peers = 1,
        .stop_grace_s = PEER_GRACE_S,
        .on_event = forward, .on_tick = tell_user, .user = f,
    };
    if (st == OK) st = deploy_part(part, f->task, &options, out, e);
    environment_free(&environment);
    json_decref(resolved);
    return st;
}

/* Tells the leader as its first rank's error why this task's part failed here. */
static enum status send_error(struct follower *f, const json_t *part, const struct err *why,
                              struct err *e) {
    json_t *event = json_pack("{s:s,s:s,s:o}", "event", "error", "code", status_name(why->code),
                              "text", json_from_text(why->text));
    if (!event) return FAIL(e, ERR_MEMORY, "an event");
    enum status st = forward(f, json_int(part, "first_rank"), event, e);
    json_decref(event);
    return st;
}

/* Runs a part, and sends its end to the leader in any case. */
static enum status handle_part(struct follower *f, const json_t *part, struct err *e) {
    struct attempt a = { .end = ATTEMPT_FAILED };
    f->leader.silent_ticks = 0;
    if (run_part(f, part, &a, &a.error) != OK) a.end = ATTEMPT_FAILED;
    if (a.error.code != OK) TRY(send_error(f, part, &a.error, e));
    if (a.signalled) f->stopped_by = a.signal;
    json_t *ended = json_pack("{s:s,s:b,s:b,s:o}", "event", "ended", "done", a.end == ATTEMPT_DONE,
                              "unresponsive", a.unresponsive, "unkillable",
                              json_from_text(a.unkillable));
    return peer_connection_send(&f->leader, ended, e);
}

/* ---- orders -----------------------------------------------------------------------------------*/

/* Handles a stop request between attempts: asks the leader to stop the job. True: it is the second
 * one, and this task must exit at once. */
static bool take_stop_request(struct follower *f, int signo) {
    struct err e;
    if (f->stopped_by) return true;
    f->stopped_by = signo;
    tell_user(f, peer_connection_send_stop(&f->leader, signo, &e) == OK
                     ? "asking task 0 to stop (another signal after 1 s exits at once)" : e.text);
    return false;
}

/* Handles messages of the leader until it ends the job. *code: the exit code. */
static enum status serve(struct follower *f, int *code, struct err *e) {
    for (;;) {
        struct pollfd fds[2] = { { .fd = event_reader_fd(f->leader.in), .events = POLLIN },
                                 { .fd = f->signals.fd, .events = POLLIN } };
        (void)poll(fds, 2, TICK_MS);
        peer_connection_fill(&f->leader);
        for (json_t *message; (message = peer_connection_next(&f->leader)) != NULL;) {
            const char *kind = json_text(message, "event", "");
            enum status st = OK;
            bool over = !strcmp(kind, "end");
            if (over) *code = (int)json_int(message, "code");
            if (!strcmp(kind, "attempt")) st = handle_part(f, message, e);
            json_decref(message);
            if (over || st != OK) return st;
        }
        if (f->leader.lost)
            return FAIL(e, ERR_PEER, "task 0 on %s is lost: %s", f->leader.host,
                        f->leader.why_lost);
        int signo = signals_take_request(&f->signals, clock_ms());
        if (signo && take_stop_request(f, signo)) {
            *code = EXIT_SIGNAL + signo;
            return OK;
        }
    }
}

int job_follow(const struct cli *cli, const struct task *task, const char *runs, int64_t wait_s,
                const json_t *facts) {
    struct follower f = { .cli = cli, .task = task, .facts = facts, .signals = { .fd = -1 } };
    struct err e = { 0 };
    int code = EXIT_OK;
    host_name(f.rendezvous.host);
    enum status st = signals_open(&f.signals, &e);
    f.telemetry = telemetry_open();
    if (st == OK) st = find_leader(&f, runs, wait_s, &e);
    if (st == OK) st = serve(&f, &code, &e);
    peer_connection_close(&f.leader);
    telemetry_close(f.telemetry);
    signals_close(&f.signals);
    if (st != OK) code = cli_fail(cli, &e);
    return st != OK && f.stopped_by ? EXIT_SIGNAL + f.stopped_by : code;
}
