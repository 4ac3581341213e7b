/* The supervisor against a scripted stand-in worker: this program itself, called as
 * `test_supervise worker BEHAVIOUR...`, speaks the event protocol and misbehaves on request. */
/* long: 11, waits */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "runner/base/signals.h"
#include "runner/job/events.h"
#include "runner/job/stop_grace.h"
#include "runner/job/supervise.h"
#include "runner/record/run_dir.h"
#include "runner/record/run_lock.h"
#include "runner/record/run_log.h"
#include "runner/run/milestones.h"
#include "runner/record/records.h"
#include "runner/worker/worker_events.h"

/* ---- the stand-in -----------------------------------------------------------------------------*/

static void put(const char *line) {
    size_t n = strlen(line);
    while (n) {
        ssize_t written = write(SUPERVISE_EVENTS_FD, line, n);
        if (written < 0) _exit(9);
        line += written;
        n -= (size_t)written;
    }
}

static void put_step(int64_t step) {
    char line[128];
    snprintf(line, sizeof line, "{\"event\":\"step\",\"step\":%" PRId64 ",\"loss\":2.5}\n", step);
    put(line);
}

static void nap(int64_t ms) {
    struct timespec t = { ms / 1000, ms % 1000 * 1000000 };
    (void)nanosleep(&t, NULL);
}

/* Makes steps until it is asked to stop, then writes a checkpoint and exits, as a worker should. */
static int train_until_stopped(struct signals *s, int64_t step_ms) {
    for (int64_t step = 1; step < 10000; step++) {
        put_step(step);
        nap(step_ms);
        if (signals_take(s) != SIGTERM) continue;
        char line[128];
        snprintf(line, sizeof line, "{\"event\":\"checkpoint\",\"step\":%" PRId64 "}\n", step);
        put(line);
        put("{\"event\":\"done\",\"stopped\":true}\n");
        return 0;
    }
    return 1;
}

static int stand_in(const char *behaviour, const char *rank) {
    struct signals s;
    if (signals_open(&s, NULL) != OK) return 2;
    bool dies = !strcmp(behaviour, "rank1-dies-others-train") && !strcmp(rank, "1");
    if (dies) return 3;
    if (!strcmp(behaviour, "train") || strstr(behaviour, "others-train"))
        return train_until_stopped(&s, 20);
    put("{\"event\":\"start\"}\n");
    if (!strcmp(behaviour, "loading")) {
        if (!strcmp(rank, "0")) (void)kill(getppid(), SIGTERM); /* one rank: once */
        nap(60000);
    }
    for (int64_t step = 1; !strcmp(behaviour, "stubborn"); step++) { /* SIGTERM is blocked */
        put_step(step);
        nap(20);
    }
    put_step(1);
    if (!strcmp(behaviour, "crash")) {
        fprintf(stderr, "first words\nout of paper\n");
        return 7;
    }
    if (!strcmp(behaviour, "signalled") || !strcmp(behaviour, "signalled-twice")) {
        put("{\"event\":\"done\",\"step\":1,\"stopped\":true,\"signal\":2}\n");
        while (!strcmp(behaviour, "signalled-twice") && !signals_take(&s)) nap(10);
        return 0;
    }
    if (!strcmp(behaviour, "kill")) {
        put("{\"event\":\"step\",\"step\":2,"); /* incomplete */
        (void)raise(SIGKILL);
    }
    if (!strcmp(behaviour, "hang")) nap(60000); /* SIGTERM is blocked: only SIGKILL helps */
    if (!strcmp(behaviour, "garbage")) {
        put("this is not JSON\n");
        nap(60000);
    }
    if (!strcmp(behaviour, "error")) {
        put("{\"event\":\"error\",\"code\":\"ERR_NUMERIC\",\"step\":2,"
            "\"text\":\"grad:x is not finite\"}\n");
        return 1;
    }
    if (!strcmp(behaviour, "rank1-dies") && !strcmp(rank, "1")) return 3;
    if (!strcmp(behaviour, "rank1-dies")) nap(60000);
    put("{\"event\":\"checkpoint\",\"step\":1}\n{\"event\":\"done\",\"step\":1}\n");
    return 0;
}

/* ---- the harness ------------------------------------------------------------------------------*/

struct fixture {
    char runs[64], self[PATH_CAP];
    struct run_dir dir;
    struct signals signals;
    struct records *records;
    int64_t events, fail_after, signals_to_send, sent;
    const char *fail_at; /* a kind of event */
    bool in_pairs;       /* each stop arrives as two signals, which are pending together */
};

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    snprintf(f->runs, sizeof f->runs, "/tmp/fp8lab-supervise-XXXXXX");
    assert_non_null(mkdtemp(f->runs));
    ssize_t n = readlink("/proc/self/exe", f->self, sizeof f->self - 1);
    assert_true(n > 0);
    assert_int_equal(run_dir_create(f->runs, "t", "0123456789abcdef", &f->dir, NULL), OK);
    assert_int_equal(records_open(&f->dir, 0, &f->records, NULL), OK);
    assert_int_equal(signals_open(&f->signals, NULL), OK);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    while (signals_take(&f->signals)) continue; /* surplus signals of a case */
    signals_close(&f->signals);
    records_close(f->records);
    run_dir_close(&f->dir);
    assert_int_equal(tree_remove(f->runs, NULL), OK);
    free(f);
    return 0;
}

static enum status on_event(void *user, int64_t rank, const json_t *event, struct err *e) {
    struct fixture *f = user;
    f->events++;
    bool fails = f->fail_at && !strcmp(json_text(event, "event", ""), f->fail_at);
    if (fails || (f->fail_after && f->events > f->fail_after))
        return FAIL(e, ERR_IO, "write train.jsonl: %s", strerror(ENOSPC));
    bool done = !strcmp(json_text(event, "event", ""), "done");
    if (f->signals_to_send > f->sent && (f->events > 3 || done)) {
        f->sent++;
        (void)kill(getpid(), SIGTERM);
        if (f->in_pairs) (void)kill(getpid(), SIGHUP); /* two SIGTERM would be merged */
    }
    return records_put(f->records, event, e);
}

static struct attempt attempt(struct fixture *f, const char *behaviour, int64_t ranks,
                              int64_t time_limit_s, int64_t hang_s, int64_t grace_s) {
    const char *argv[] = { f->self, "worker", behaviour, NULL }, *envp[] = { NULL };
    struct supervise_options options = {
        .argv = argv, .envp = envp, .run_path = f->dir.path, .ranks = ranks, .world = ranks,
        .rendezvous_fd = -1,
        .time_limit_s = time_limit_s, .hang_s = hang_s, .stop_grace_s = grace_s,
        .signal_grace_s = grace_s,
        .on_event = on_event, .user = f, .signals = &f->signals, .lock_fd = f->dir.lock_fd,
    };
    struct attempt out;
    struct err e = { 0 };
    if (supervise(&options, &out, &e) != OK) fail_msg("%s", e.text);
    return out;
}

static int64_t line_count(const struct fixture *f, const char *file) {
    char path[PATH_CAP], *text = NULL;
    size_t n = 0;
    int64_t lines = 0;
    assert_int_equal(path_join(path, f->dir.path, file, NULL), OK);
    if (file_read(path, 1 << 20, &text, &n, NULL) != OK) return 0;
    for (size_t i = 0; i < n; i++) lines += text[i] == '\n';
    free(text);
    return lines;
}

/* ---- cases ------------------------------------------------------------------------------------*/

static void done_is_done(void **state) {
    struct attempt a = attempt(*state, "good", 1, 0, 0, 5);
    assert_int_equal(a.end, ATTEMPT_DONE);
    assert_int_equal(a.last_step, 1);
    assert_int_equal(a.checkpoint_step, 1);
    assert_int_equal(line_count(*state, "data/metrics/train.jsonl"), 1);
}

static void a_crash_has_exit_status_and_last_log_line(void **state) {
    struct attempt a = attempt(*state, "crash", 1, 0, 0, 5);
    assert_int_equal(a.end, ATTEMPT_CRASHED);
    assert_string_equal(a.error.text, "worker 0 exited with status 7 and reported no error, last "
                                      "at the start; last line of its log: out of paper");
}

static void a_killed_worker_keeps_whole_records_only(void **state) {
    struct attempt a = attempt(*state, "kill", 1, 0, 0, 5);
    assert_int_equal(a.end, ATTEMPT_CRASHED);
    assert_string_equal(a.error.text, "worker 0 was killed by signal 9 (Killed), last at the "
                                      "start");
    assert_int_equal(a.last_step, 1);
    assert_int_equal(line_count(*state, "data/metrics/train.jsonl"), 1);
}

static void a_hung_worker_is_detected_and_killed(void **state) {
    struct attempt a = attempt(*state, "hang", 1, 0, 1, 5);
    assert_int_equal(a.end, ATTEMPT_HUNG);
    int silent_s = 0, step = 0; /* one second, or more if the watcher itself was delayed */
    assert_int_equal(sscanf(a.error.text, "the worker hung: no event for %d s after step %d",
                            &silent_s, &step), 2);
    assert_true(silent_s >= 1);
    assert_int_equal(step, 1);
}

static void garbage_on_the_pipe_is_an_error_that_quotes_it(void **state) {
    struct attempt a = attempt(*state, "garbage", 1, 0, 0, 1);
    assert_int_equal(a.end, ATTEMPT_FAILED);
    assert_int_equal(a.error.code, ERR_FORMAT);
    assert_non_null(strstr(a.error.text, "this is not JSON"));
}

static void an_error_event_keeps_code_text_and_step(void **state) {
    struct attempt a = attempt(*state, "error", 1, 0, 0, 5);
    assert_int_equal(a.end, ATTEMPT_FAILED);
    assert_int_equal(a.error.code, ERR_NUMERIC);
    assert_string_equal(a.error.text, "grad:x is not finite");
    assert_int_equal(a.error_step, 2);
}

static void the_time_limit_stops_with_a_checkpoint(void **state) {
    struct attempt a = attempt(*state, "train", 1, 1, 0, 5);
    assert_int_equal(a.end, ATTEMPT_TIME_LIMIT);
    assert_true(a.checkpoint_step > 0 && a.checkpoint_step == a.last_step);
    assert_false(a.unresponsive);
}

static void a_signal_stops_with_a_checkpoint(void **state) {
    struct fixture *f = *state;
    f->signals_to_send = 1;
    struct attempt a = attempt(f, "train", 1, 0, 0, 5);
    assert_int_equal(a.end, ATTEMPT_SIGNAL);
    assert_int_equal(a.signal, SIGTERM);
    assert_true(a.checkpoint_step > 0);
}

/* A signal that another process sends to the worker stops the run; the run does not end as done. */
static void a_foreign_signal_is_a_stop(void **state) {
    struct fixture *f = *state;
    struct attempt a = attempt(f, "signalled", 1, 0, 0, 5);
    assert_int_equal(a.end, ATTEMPT_SIGNAL);
    assert_int_equal(a.signal, SIGINT);
    assert_int_equal(a.error.code, ERR_INTERRUPTED);
    assert_non_null(strstr(a.error.text, "signal 2 (Interrupt), which its runner did not send, "
                                         "after step 1"));
}

/* A stop of a whole process group reaches runner and worker. The runner may get its first signal
 * after the worker has stopped; it must not count as a second signal. */
static void a_foreign_signal_does_not_count_as_the_first(void **state) {
    struct fixture *f = *state;
    f->signals_to_send = 1;
    struct attempt a = attempt(f, "signalled-twice", 1, 0, 0, 60);
    assert_int_equal(a.end, ATTEMPT_SIGNAL);
    assert_int_equal(a.signal, SIGINT);
    assert_true(a.stop_requested);
}

/* As GNU timeout sends them: to the process, and to its group. */
static void a_pair_of_signals_is_one_stop(void **state) {
    struct fixture *f = *state;
    f->signals_to_send = 1;
    f->in_pairs = true;
    struct attempt a = attempt(f, "train", 1, 0, 0, 60);
    assert_int_equal(a.end, ATTEMPT_SIGNAL);
    assert_true(a.checkpoint_step > 0);
}

static void another_signal_exits_at_once(void **state) {
    struct fixture *f = *state;
    f->signals_to_send = INT64_MAX; /* one per event: one of them comes a second after the first */
    struct attempt a = attempt(f, "stubborn", 1, 0, 0, 60);
    assert_int_equal(a.end, ATTEMPT_ABANDONED);
}

static void a_worker_that_ignores_stop_is_killed_after_its_grace(void **state) {
    struct attempt a = attempt(*state, "hang", 1, 1, 0, 1);
    assert_int_equal(a.end, ATTEMPT_TIME_LIMIT);
    assert_true(a.unresponsive);
}

static void a_stop_before_the_first_step_does_not_wait(void **state) {
    struct attempt a = attempt(*state, "loading", 2, 0, 0, 3600);
    assert_int_equal(a.end, ATTEMPT_SIGNAL);
    assert_int_equal(a.signal, SIGTERM);
    assert_true(a.unresponsive);
    char text[400];
    stop_grace_explain(0, &a, text, sizeof text);
    assert_string_equal(text, "the worker was killed before its first step; nothing is lost");
}

static void a_full_disk_stops_the_run_and_is_reported(void **state) {
    struct fixture *f = *state;
    f->fail_after = 4;
    struct attempt a = attempt(f, "train", 1, 0, 0, 5);
    assert_int_equal(a.end, ATTEMPT_FAILED);
    assert_int_equal(a.error.code, ERR_IO);
    assert_non_null(strstr(a.error.text, "No space left on device"));
    assert_int_equal(line_count(f, "data/metrics/train.jsonl"), 4);
}

static void one_dead_rank_ends_all(void **state) {
    struct attempt a = attempt(*state, "rank1-dies", 2, 0, 0, 1);
    assert_int_equal(a.end, ATTEMPT_CRASHED);
    assert_non_null(strstr(a.error.text, "rank 1 on "));
    assert_non_null(strstr(a.error.text, " exited with status 3 and reported no error"));
    assert_int_equal(a.rank, 1);
    assert_true(*a.host != 0);
}

static void a_full_disk_does_not_hide_why_the_attempt_ends(void **state) {
    struct fixture *f = *state;
    f->fail_at = "checkpoint"; /* rank 0's, after rank 1 died and rank 0 was asked to stop */
    struct attempt a = attempt(f, "rank1-dies-others-train", 2, 0, 0, 5);
    assert_int_equal(a.end, ATTEMPT_CRASHED);
    assert_non_null(strstr(a.error.text, " exited with status 3 and reported no error"));
    assert_int_equal(a.rank, 1);
}

static void a_full_disk_is_blamed_on_no_rank(void **state) {
    struct fixture *f = *state;
    f->fail_at = "checkpoint";
    f->signals_to_send = 1; /* a normal stop, in which it fails */
    struct attempt a = attempt(f, "train", 2, 0, 0, 5);
    assert_int_equal(a.end, ATTEMPT_FAILED);
    assert_int_equal(a.error.code, ERR_IO);
    assert_int_equal(a.rank, -1);
}

static void a_program_that_cannot_start_is_an_error(void **state) {
    struct fixture *f = *state;
    snprintf(f->self, sizeof f->self, "/nonexistent/fp8lab");
    const char *argv[] = { f->self, NULL }, *envp[] = { NULL };
    struct supervise_options options = { .argv = argv, .envp = envp, .run_path = f->dir.path,
                                         .ranks = 1, .world = 1, .rendezvous_fd = -1,
                                         .on_event = on_event, .user = f,
                                         .signals = &f->signals, .lock_fd = -1 };
    struct attempt out;
    struct err e = { 0 };
    assert_int_equal(supervise(&options, &out, &e), ERR_IO);
    assert_string_equal(e.text, "start worker /nonexistent/fp8lab: No such file or directory");
}

static void a_resumed_attempt_removes_records_after_its_checkpoint(void **state) {
    struct fixture *f = *state;
    struct err e = { 0 };
    for (int64_t step = 1; step <= 9; step++) {
        json_t *event = json_pack("{s:s,s:I,s:f}", "event", "step", "step", (json_int_t)step,
                                  "loss", 0.1);
        assert_int_equal(records_put(f->records, event, &e), OK);
        json_decref(event);
    }
    records_close(f->records);
    f->records = NULL;
    assert_int_equal(records_open(&f->dir, 4, &f->records, &e), OK);
    assert_int_equal(line_count(f, "data/metrics/train.jsonl"), 4);
}

/* An invalid line with whole records after it is an error, and no record is removed. An invalid
 * last line is the effect of a kill or a power cut. */
static void an_invalid_record_is_not_removed_with_the_later_ones(void **state) {
    struct fixture *f = *state;
    struct err e = { 0 };
    char path[PATH_CAP];
    records_close(f->records);
    f->records = NULL;
    assert_int_equal(path_join(path, f->dir.path, "data/metrics/eval.jsonl", &e), OK);
    FILE *out = fopen(path, "w");
    assert_true(out && fputs("{\"step\":1}\n{\"st\377p\":2}\n{\"step\":3}\n", out) >= 0);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(records_check(&f->dir, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "eval.jsonl: line 2 is not a record, but whole records "
                                   "follow it"));
    assert_int_equal(records_open(&f->dir, 3, &f->records, &e), ERR_FORMAT);
    assert_int_equal(line_count(f, "data/metrics/eval.jsonl"), 3);
    out = fopen(path, "w");
    assert_true(out && fputs("{\"step\":1}\n{\"step\":3}\n\001\001\001\n{\"st", out) >= 0);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(records_check(&f->dir, &e), OK);
    assert_int_equal(records_open(&f->dir, 3, &f->records, &e), OK);
    assert_int_equal(line_count(f, "data/metrics/eval.jsonl"), 2);
}

/* The last step of an attempt is among them, even directly after the first one. */
static void the_log_has_the_milestones(void **state) {
    static const char *const EVENTS[] = {
        "{'event':'start','step':4,'steps':7}",
        "{'event':'decisions','backend':'cuda','device':'H200','gemm_ways':{'native':12,'bf16':3}}",
        "{'event':'step','step':5,'loss':2.5,'tokens_per_s':1000}",
        "{'event':'step','step':6,'loss':null,'tokens_per_s':1000}",
        "{'event':'eval','step':6,'loss':2.25,'tokens':64}",
        "{'event':'checkpoint','step':6,'sha256':'ab'}",
        "{'event':'log','text':'something fell back'}",
        "{'event':'step','step':7,'loss':1.125,'tokens_per_s':1100.4}",
    };
    static const char *const LINES[] = {
        "start after step 4 of 7",
        "backend cuda on H200, GEMMs: 12 native, 3 bf16",
        "step 5 of 7: loss 2.50000, 1000 tokens/s",
        "evaluation after step 6: loss 2.25000, 64 tokens", "checkpoint of step 6, sha256 ab",
        "worker 0: something fell back", "step 7 of 7: loss 1.12500, 1100 tokens/s",
    };
    struct fixture *f = *state;
    struct milestones m;
    char path[PATH_CAP], *text = NULL, *at;
    size_t n = 0;
    milestones_begin(&m, &f->dir);
    for (size_t i = 0; i < sizeof EVENTS / sizeof *EVENTS; i++) {
        char json[200];
        snprintf(json, sizeof json, "%s", EVENTS[i]);
        for (char *c = json; *c; c++) *c = *c == '\'' ? '"' : *c;
        json_t *event = json_loads(json, 0, NULL);
        assert_non_null(event);
        milestones_event(&m, 0, event);
        json_decref(event);
    }
    milestones_end(&m);
    milestones_end(&m); /* logs nothing twice */
    assert_int_equal(path_join(path, f->dir.path, RUN_LOG_FILE, NULL), OK);
    assert_int_equal(file_read(path, 1 << 20, &text, &n, NULL), OK);
    at = text;
    for (size_t i = 0; i < sizeof LINES / sizeof *LINES; i++) {
        char wanted[100];
        snprintf(wanted, sizeof wanted, "Z %s\n", LINES[i]);
        if (!(at = strstr(at, wanted))) fail_msg("missing or out of order: %s\n%s", LINES[i], text);
        at += strlen(wanted);
    }
    assert_int_equal(*at, 0);
    free(text);
}

static void a_locked_directory_is_rejected(void **state) {
    struct fixture *f = *state;
    struct run_dir second;
    struct run_writer writer;
    struct err e = { 0 };
    assert_int_equal(json_object_set_new(f->dir.run, "status", json_string("running")), 0);
    assert_int_equal(run_dir_save(&f->dir, &e), OK);
    assert_int_equal(run_lock_look(f->dir.path, &writer), RUN_LIFE_LOCKED);
    assert_int_equal(writer.pid, getpid());
    assert_int_equal(run_dir_open(f->dir.path, true, &second, &e), ERR_STATE);
    assert_non_null(strstr(e.text, "is writing this run"));
    run_dir_close(&f->dir);
    assert_int_equal(run_lock_look(f->dir.path, &writer), RUN_LIFE_NONE);
    assert_int_equal(run_dir_open(f->dir.path, false, &f->dir, &e), OK);
}

static void telemetry_is_dropped_and_losses_are_not(void **state) {
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    struct err e = { 0 };
    struct event_writer *w = NULL;
    struct event_reader *r = NULL;
    assert_int_equal(event_writer_create(fds[1], &w, &e), OK);
    assert_int_equal(event_reader_create(fds[0], &r, &e), OK);
    json_t *step = json_pack("{s:s,s:s}", "event", "step", "pad", "012345678901234567890123456789");
    json_t *telemetry = json_pack("{s:s}", "event", "telemetry");
    for (int64_t i = 0; i < 40000; i++) { /* some 2.5 MB: more than the pipe takes */
        assert_int_equal(event_emit(w, step, false, &e), OK);
        assert_int_equal(event_emit(w, telemetry, true, &e), OK);
    }
    assert_true(event_dropped(w) > 0);
    int64_t steps = 0, others = 0;
    for (bool open = true; steps < 40000;) {
        assert_int_equal(event_fill(r, &open, &e), OK);
        json_t *event = NULL;
        while (event_next(r, &event, &e) == OK && event) {
            bool is_step = !strcmp(json_text(event, "event", ""), "step");
            steps += is_step;
            others += !is_step;
            json_decref(event);
        }
        assert_int_equal(event_emit(w, telemetry, true, &e), OK);
    }
    assert_int_equal(steps, 40000);
    assert_true(others > 0);
    event_reader_destroy(r);
    assert_true(event_reader_gone(w));
    assert_int_equal(event_emit(w, step, false, &e), ERR_PEER);
    event_writer_destroy(w);
    json_decref(step);
    json_decref(telemetry);
}

static void a_step_without_loss_is_said(void **state) {
    int fds[2];
    bool open = true;
    struct err e = { 0 };
    struct event_writer *w = NULL;
    struct event_reader *r = NULL;
    json_t *event = NULL;
    const struct step_result step = { .step = 12, .tokens = 64 };
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(event_writer_create(fds[1], &w, &e), OK);
    assert_int_equal(event_reader_create(fds[0], &r, &e), OK);
    assert_int_equal(say_no_loss(w, &step, &e), OK);
    assert_int_equal(event_fill(r, &open, &e), OK);
    assert_int_equal(event_next(r, &event, &e), OK);
    assert_string_equal(json_text(event, "event", ""), "log");
    assert_non_null(strstr(json_text(event, "text", ""), "step 12: none of its 64 tokens has"));
    json_decref(event);
    event_reader_destroy(r);
    event_writer_destroy(w);
}

/* A checkpoint must not be newer than the records that the runner has. */
static void settled_events_were_read_by_the_runner(void **state) {
    int fds[2], status = 0;
    bool open = true;
    struct err e = { 0 };
    struct event_writer *w = NULL;
    struct event_reader *r = NULL;
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(event_writer_create(fds[1], &w, &e), OK);
    pid_t child = fork();
    if (child == 0) {
        close(fds[0]);
        json_t *step = json_pack("{s:s}", "event", "step");
        enum status st = event_emit(w, step, false, &e);
        _exit(st == OK && event_settle(w, &e) == OK ? 0 : 1);
    }
    assert_int_equal(event_reader_create(fds[0], &r, &e), OK);
    struct pollfd p = { .fd = fds[0], .events = POLLIN };
    assert_int_equal(poll(&p, 1, 60000), 1);
    nap(50);
    assert_int_equal(waitpid(child, &status, WNOHANG), 0); /* it waits */
    assert_int_equal(event_fill(r, &open, &e), OK);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    event_reader_destroy(r);
    assert_int_equal(event_settle(w, &e), OK); /* no event was pending */
    event_writer_destroy(w);
}

/* The runner died, and the events in the pipe are lost. */
static void no_wait_for_a_runner_that_died(void **state) {
    int fds[2];
    struct err e = { 0 };
    struct event_writer *w = NULL;
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(event_writer_create(fds[1], &w, &e), OK);
    json_t *step = json_pack("{s:s}", "event", "step");
    assert_int_equal(event_emit(w, step, false, &e), OK);
    close(fds[0]);
    assert_int_equal(event_settle(w, &e), ERR_PEER);
    json_decref(step);
    event_writer_destroy(w);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[1], "worker")) return stand_in(argv[2], argc > 4 ? argv[4] : "0");
    const struct CMUnitTest tests[] = {
        CASE(done_is_done),
        CASE(a_crash_has_exit_status_and_last_log_line),
        CASE(a_killed_worker_keeps_whole_records_only),
        CASE(a_hung_worker_is_detected_and_killed),
        CASE(garbage_on_the_pipe_is_an_error_that_quotes_it),
        CASE(an_error_event_keeps_code_text_and_step),
        CASE(the_time_limit_stops_with_a_checkpoint),
        CASE(a_signal_stops_with_a_checkpoint),
        CASE(a_foreign_signal_is_a_stop),
        CASE(a_foreign_signal_does_not_count_as_the_first),
        CASE(a_pair_of_signals_is_one_stop),
        CASE(another_signal_exits_at_once),
        CASE(a_worker_that_ignores_stop_is_killed_after_its_grace),
        CASE(a_stop_before_the_first_step_does_not_wait),
        CASE(a_full_disk_stops_the_run_and_is_reported),
        CASE(a_full_disk_does_not_hide_why_the_attempt_ends),
        CASE(a_full_disk_is_blamed_on_no_rank),
        CASE(one_dead_rank_ends_all),
        CASE(a_program_that_cannot_start_is_an_error),
        CASE(a_resumed_attempt_removes_records_after_its_checkpoint),
        CASE(an_invalid_record_is_not_removed_with_the_later_ones),
        CASE(the_log_has_the_milestones),
        CASE(a_locked_directory_is_rejected),
        CASE(telemetry_is_dropped_and_losses_are_not), CASE(a_step_without_loss_is_said),
        CASE(settled_events_were_read_by_the_runner),
        CASE(no_wait_for_a_runner_that_died),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
