/* The live view: what it reads of a run's directory, and what stands on a terminal of 80 and of 40
 * columns, after a resize, after Ctrl-C, and where the terminal can do nothing. */
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pty.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "runner/base/clock.h"
#include "runner/bundle/bundle.h"
#include "runner/bundle/run_view.h"
#include "runner/live/live_bundle.h"
#include "runner/live/live_reader.h"
#include "runner/record/run_lock.h"
#include "tests/support/run_fixture.h"

#define TRAIN "data/metrics/train.jsonl"

/* ---- a run's directory ----------------------------------------------------------------------- */

struct place { char parent[PATH_CAP], run[PATH_CAP]; };

static void set_up(struct place *p, const char *status) {
    struct run_fixture f = run_fixture_default();
    f.status = status;
    f.planned = 100;
    f.sets = "{\"code\":\"aa\",\"law\":\"bb\"}";
    scratch_directory(p->parent);
    run_fixture_write(p->parent, &f, p->run);
}

static void take_down(struct place *p) {
    struct err e = { 0 };
    CHECK(tree_remove(p->parent, &e));
}

static void append(const struct place *p, const char *file, const char *text) {
    char path[PATH_CAP];
    struct err e = { 0 };
    CHECK(path_join(path, p->run, file, &e));
    FILE *f = fopen(path, "a");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void cut(const struct place *p, const char *file, int64_t bytes) {
    char path[PATH_CAP];
    struct err e = { 0 };
    CHECK(path_join(path, p->run, file, &e));
    assert_int_equal(truncate(path, bytes), 0);
}

static int64_t size_of(const struct place *p, const char *file) {
    char path[PATH_CAP];
    struct stat info;
    struct err e = { 0 };
    CHECK(path_join(path, p->run, file, &e));
    assert_int_equal(stat(path, &info), 0);
    return info.st_size;
}

static void append_step(const struct place *p, int step) {
    char text[200];
    snprintf(text, sizeof text, "{\"step\":%d,\"loss\":2.5,\"grad_norm\":1.5,\"lr\":1e-3,"
             "\"step_time_us\":1000,\"tokens_per_s\":2048000}\n", step);
    append(p, TRAIN, text);
}

static void polls(struct live_reader *r) {
    struct err e = { 0 };
    CHECK(live_reader_poll(r, &e));
}

static void begin(struct live_reader *r, const struct place *p) {
    struct err e = { 0 };
    CHECK(live_reader_open(r, p->run, &e));
    polls(r);
}

/* ---- the reader ------------------------------------------------------------------------------ */

static void it_reads_what_is_new_and_no_half_line(void **state) {
    struct place p;
    struct live_reader r;
    set_up(&p, "running");
    begin(&r, &p);
    assert_int_equal(r.live.step, 20);
    assert_int_equal(r.live.steps, 100);
    assert_int_equal(r.live.fp8_step, 20);
    assert_true(isfinite(r.live.eval_loss) && isfinite(r.live.saturated.share));
    assert_true(r.live.set_count == 2 && r.live.set_step == 20);
    assert_string_equal(r.live.set[1].name, "law");
    assert_float_equal(r.live.set[1].loss, r.live.eval_loss + 2, 1e-5);
    assert_string_equal(r.live.event, "ended");
    append(&p, TRAIN, "{\"step\":21,\"loss\":2.25");
    append(&p, "data/logs/runner.log", "2026-11-21T02:48:59Z a \033[2J\tword\nand half a li");
    polls(&r);
    assert_string_equal(r.live.event, "02:48:59Z a ?[2J?word");
    assert_int_equal(r.live.step, 20);
    append(&p, TRAIN, ",\"lr\":1e-3}\n");
    polls(&r);
    assert_int_equal(r.live.step, 21);
    assert_true(r.live.loss == 2.25 && r.live.first_step == 1);
    append(&p, TRAIN, "not a record\n"); /* read again from the beginning, once, and left out */
    polls(&r);
    append_step(&p, 22);
    polls(&r);
    assert_int_equal(r.live.step, 22);
    assert_int_equal(r.damaged, 1);
    live_reader_close(&r);
    take_down(&p);
}

static void it_begins_before_the_first_record(void **state) {
    struct place p;
    struct live_reader r;
    struct err e = { 0 };
    char metrics[PATH_CAP];
    set_up(&p, "running");
    CHECK(path_join(metrics, p.run, "data/metrics", &e));
    CHECK(tree_remove(metrics, &e));
    begin(&r, &p);
    assert_int_equal(r.live.step, -1);
    assert_int_equal(r.live.steps, 100);
    polls(&r);
    put_file(p.run, TRAIN, "{\"step\":1,\"loss\":5.5,\"lr\":1e-3}\n");
    polls(&r);
    assert_int_equal(r.live.step, 1);
    assert_int_equal(r.live.fp8_step, -1);
    live_reader_close(&r);
    take_down(&p);
}

static void records_that_were_cut_back_are_read_again(void **state) {
    struct place p;
    struct live_reader r;
    set_up(&p, "running");
    int64_t before = size_of(&p, TRAIN);
    for (int i = 21; i <= 30; i++) append_step(&p, i);
    begin(&r, &p);
    assert_int_equal(r.live.step, 30);
    cut(&p, TRAIN, before);
    polls(&r);
    assert_int_equal(r.live.step, 20);
    for (int i = 21; i <= 30; i++) append_step(&p, i);
    polls(&r);
    cut(&p, TRAIN, before - 7); /* grown beyond the old size before we look again */
    append(&p, TRAIN, "\n");
    for (int i = 20; i <= 40; i++) append_step(&p, i);
    polls(&r);
    assert_int_equal(r.live.step, 40);
    assert_int_equal(r.damaged, 1); /* the line that was cut */
    live_reader_close(&r);
    take_down(&p);
}

static void a_new_attempt_starts_another_pace(void **state) {
    struct place p;
    struct live_reader r;
    set_up(&p, "running");
    append(&p, "data/metrics/telemetry.jsonl", "{\"step\":20,\"time\":1795229000,\"rank\":0}\n");
    begin(&r, &p);
    double pace = r.live.pace_time;
    put_file(p.run, "data/run.json", "{\"name\":\"tiny\",\"status\":\"running\",\"attempts\":"
             "[{},{}],\"attempt\":{\"started\":\"2099-01-01T00:00:00Z\",\"from_step\":20}}");
    polls(&r);
    assert_false(isnan(pace));
    assert_true(isnan(r.live.pace_time));
    assert_int_equal(r.live.attempts, 3);
    assert_int_equal(r.live.step, 20);
    live_reader_close(&r);
    take_down(&p);
}

static void it_says_what_is_no_run_and_when_a_run_is_gone(void **state) {
    struct place p;
    struct live_reader r;
    struct err e = { 0 };
    set_up(&p, "running");
    CHECK(live_reader_open(&r, p.parent, &e));
    assert_int_equal(live_reader_poll(&r, &e), ERR_ARG);
    assert_non_null(strstr(e.text, "is not a run: it has no data/run.json"));
    live_reader_close(&r);
    begin(&r, &p);
    put_file(p.run, "data/run.json", "[1, 2");
    assert_int_equal(live_reader_poll(&r, &e), ERR_FORMAT);
    take_down(&p);
    polls(&r);
    assert_true(r.gone);
    assert_int_equal(r.live.step, 20);
    live_reader_close(&r);
}

static void a_bundle_gives_the_same_state(void **state) {
    struct place p;
    struct live_reader r;
    struct run_view view;
    struct live *l = calloc(1, sizeof *l);
    struct err e = { 0 };
    assert_non_null(l);
    set_up(&p, "done");
    begin(&r, &p);
    CHECK(run_view_load(p.run, RUN_VIEW_FULL, &view, &e));
    live_of_view(l, &view);
    json_t *a = live_json(&r.live, "x", 0), *b = live_json(l, "x", 0);
    assert_true(a && b && json_equal(a, b));
    assert_memory_equal(&r.live.losses, &l->losses, sizeof l->losses);
    json_decref(a);
    json_decref(b);
    free(l);
    run_view_free(&view);
    live_reader_close(&r);
    take_down(&p);
}

/* ---- a terminal ------------------------------------------------------------------------------ */

enum { COLUMNS_MAX = 120, ROWS = 30, RAW_MAX = 1 << 20 };

/* What stands on a terminal that breaks no lines again: a character that is not ASCII is '*'. */
struct terminal {
    int fd;
    pid_t pid;
    int columns, row, column;
    char cell[ROWS][COLUMNS_MAX + 1];
    char *raw; /* owned; all bytes, with a NUL */
    size_t used, parsed;
};

static void clear_from(struct terminal *t, int row, int column) {
    for (; row < ROWS; row++, column = 0)
        memset(t->cell[row] + column, ' ', (size_t)(COLUMNS_MAX - column));
}

static void line_feed(struct terminal *t) {
    if (++t->row < ROWS) return;
    memmove(t->cell[0], t->cell[1], sizeof *t->cell * (ROWS - 1));
    t->row = ROWS - 1;
    clear_from(t, t->row, 0);
}

static void sequence(struct terminal *t, int number, char final) {
    if (final == 'A') t->row = t->row < number ? 0 : t->row - number;
    else if (final == 'J') clear_from(t, t->row, t->column);
    else if (final == 'K')
        memset(t->cell[t->row] + t->column, ' ', (size_t)(COLUMNS_MAX - t->column));
    else if (final != 'm') fail_msg("an unexpected sequence ends with %c", final);
}

static void put_character(struct terminal *t, char c) {
    if (t->column == t->columns) { /* a line that is too long wraps */
        t->column = 0;
        line_feed(t);
    }
    t->cell[t->row][t->column++] = c;
}

/* Parses the bytes that came; stops before a sequence that is not whole. */
static void parse(struct terminal *t) {
    while (t->parsed < t->used) {
        const char *at = t->raw + t->parsed;
        unsigned char c = (unsigned char)*at;
        size_t n = 1;
        if (c == '\033') {
            n = 2 + strspn(at + (at[1] ? 2 : 1), "0123456789");
            if (t->parsed + n >= t->used) return;
            assert_int_equal(at[1], '['); /* and no "?", which changes a mode */
            sequence(t, atoi(at + 2), at[n++]);
        } else if (c == '\r') t->column = 0;
        else if (c == '\n') line_feed(t);
        else if (c >= 0xc0) put_character(t, '*');
        else if (c >= ' ' && c < 0x80) put_character(t, (char)c);
        t->parsed += n;
    }
}

static void resize(struct terminal *t, int columns) {
    struct winsize size = { .ws_col = (unsigned short)columns, .ws_row = ROWS };
    assert_int_equal(ioctl(t->fd, TIOCSWINSZ, &size), 0);
    t->columns = columns;
    for (int r = 0; r < ROWS; r++)
        memset(t->cell[r] + columns, ' ', (size_t)(COLUMNS_MAX - columns));
}

/* At Ctrl-C the kernel drops the output that the terminal has not read yet, unless NOFLSH is set.
 * Where this test reads late, lost rows would be missing on the screen: it would judge the kernel
 * and not the program. */
static void keep_output_at_ctrl_c(int fd) {
    struct termios mode;
    assert_int_equal(tcgetattr(fd, &mode), 0);
    mode.c_lflag |= NOFLSH;
    assert_int_equal(tcsetattr(fd, TCSANOW, &mode), 0);
}

/* Starts the program on a new terminal, behind a line of another program. */
static void start(struct terminal *t, int columns, const char *term, const char *const *argv) {
    struct winsize size = { .ws_col = (unsigned short)columns, .ws_row = ROWS };
    const char *program = getenv("FP8LAB");
    *t = (struct terminal){ .columns = columns, .raw = calloc(1, RAW_MAX + 1) };
    assert_non_null(t->raw);
    clear_from(t, 0, 0);
    t->pid = forkpty(&t->fd, NULL, NULL, &size);
    assert_true(t->pid >= 0);
    if (t->pid > 0) {
        keep_output_at_ctrl_c(t->fd);
        return;
    }
    setenv("TERM", term, 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    unsetenv("NO_COLOR");
    unsetenv("TMUX");
    (void)!write(1, "before\n", 7);
    execv(program ? program : "build/release/fp8lab", (char *const *)argv);
    _exit(99);
}

/* Reads once; false: the program has closed the terminal. */
static bool read_some(struct terminal *t) {
    struct pollfd p = { .fd = t->fd, .events = POLLIN };
    (void)poll(&p, 1, 1000);
    if (!p.revents) return true;
    ssize_t n = read(t->fd, t->raw + t->used, RAW_MAX - t->used);
    if (n <= 0) return false;
    t->used += (size_t)n;
    t->raw[t->used] = '\0';
    parse(t);
    return true;
}

/* The number of rows that contain the text. */
static int rows_with(const struct terminal *t, const char *text) {
    int count = 0;
    for (int r = 0; r < ROWS; r++) count += strstr(t->cell[r], text) != NULL;
    return count;
}

static void print_screen(const struct terminal *t) {
    for (int r = 0; r < ROWS; r++) print_message("%2d|%.*s|\n", r, t->columns, t->cell[r]);
}

/* Waits for two minutes at most until that many rows have the text. */
static void await_rows(struct terminal *t, const char *text, int count) {
    int64_t end = clock_ms() + 120000;
    while (rows_with(t, text) != count && clock_ms() < end && read_some(t)) continue;
    if (rows_with(t, text) == count) return;
    print_screen(t);
    fail_msg("not in %d rows: %s", count, text);
}

/* Reads the rest of a view that is being drawn: the rows that come after a resize would break where
 * no row of a whole view does. */
static void await_drawn(struct terminal *t) {
    int64_t end = clock_ms() + 120000;
    while (t->used < 3 || memcmp(t->raw + t->used - 3, "\033[J", 3) != 0)
        if (clock_ms() >= end || !read_some(t)) fail_msg("a view has no end");
}

/* The status of waitpid, once the program has ended. */
static int finish(struct terminal *t) {
    int status = 0;
    while (read_some(t)) continue;
    assert_int_equal(waitpid(t->pid, &status, 0), t->pid);
    close(t->fd);
    return status;
}

/* ---- watch ----------------------------------------------------------------------------------- */

static void the_view_is_right_at_80_and_40_columns_and_after_a_resize(void **state) {
    struct place p;
    struct terminal t;
    struct err e = { 0 };
    int lock;
    set_up(&p, "running");
    CHECK(run_lock_take(p.run, false, &lock, &e));
    start(&t, 80, "xterm", (const char *[]){ "fp8lab", "watch", p.run, NULL });
    await_rows(&t, "step 20/100", 1);
    await_rows(&t, "tokens/s", 1);
    append_step(&p, 21);
    await_rows(&t, "step 21/100", 1);
    await_drawn(&t);
    assert_int_equal(rows_with(&t, "/100"), 1);
    assert_int_equal(rows_with(&t, "step 21/100  21 %  ETA "), 1);
    resize(&t, 40);
    await_rows(&t, "tiny  running", 1);
    await_drawn(&t);
    append_step(&p, 22);
    await_rows(&t, "step 22/100", 1);
    await_drawn(&t);
    assert_int_equal(rows_with(&t, "tiny  running"), 1);
    assert_int_equal(rows_with(&t, "loss 2.5000"), 1);
    assert_int_equal(rows_with(&t, "tokens/s"), 1);
    for (int r = 0; r < ROWS; r++) assert_int_equal(t.cell[r][39], ' '); /* no line is full */
    resize(&t, 100);
    append_step(&p, 23);
    await_rows(&t, "step 23/100", 1);
    await_drawn(&t);
    assert_int_equal(rows_with(&t, "tiny  running"), 1);
    assert_int_equal(rows_with(&t, "before"), 1); /* text above the view */
    assert_non_null(strstr(t.raw, "\033[1mtiny\033[0m"));
    assert_int_equal(write(t.fd, "\003", 1), 1);  /* Ctrl-C */
    int status = finish(&t);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
    assert_int_equal(rows_with(&t, "step 23/100"), 1);
    close(lock);
    free(t.raw);
    take_down(&p);
}

static void a_run_whose_runner_died_is_called_killed(void **state) {
    struct place p;
    struct terminal t;
    struct err e = { 0 };
    int lock;
    set_up(&p, "running");
    CHECK(run_lock_take(p.run, false, &lock, &e));
    start(&t, 80, "xterm", (const char *[]){ "fp8lab", "--no-color", "watch", p.run, NULL });
    await_rows(&t, "tiny  running", 1);
    close(lock); /* as the kernel does for a process that was killed */
    await_rows(&t, "its runner is gone", 1);
    int status = finish(&t);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(rows_with(&t, "tiny  killed"), 1);
    assert_true(strstr(t.raw, "\033[K") && !strstr(t.raw, "\033[0m"));
    assert_int_equal(rows_with(&t, "Next: fp8lab close"), 1);
    free(t.raw);
    take_down(&p);
}

/* What a runner does at the end: the last line of the log, run.json, the bundle instead of the
 * directory. */
static void end_run(const struct place *p, int lock) {
    struct bundle_options options = { .checkpoints = BUNDLE_CHECKPOINTS_NONE, .threads = 1 };
    struct bundle_result result;
    struct err e = { 0 };
    json_t *run;
    char path[PATH_CAP];
    CHECK(path_join(path, p->run, "data/run.json", &e));
    append(p, "data/logs/runner.log", "2026-11-21T02:49:00Z the last words\n");
    CHECK(json_file_read(path, &run, &e));
    assert_int_equal(json_object_set_new(run, "status", json_string("time_limit")), 0);
    CHECK(json_file_write(path, run, &e));
    json_decref(run);
    CHECK(bundle_finish(p->run, &options, &result, &e));
    run_lock_drop(p->run, lock);
}

static void a_run_that_ends_is_followed_into_its_bundle(void **state) {
    static const char *const VERBS[][3] = {
        { "log", "ended", "Z the last words" }, { "watch", "tiny  running", "tiny  time_limit" },
    };
    for (size_t i = 0; i < sizeof VERBS / sizeof *VERBS; i++) {
        struct place p;
        struct terminal t;
        struct err e = { 0 };
        int lock;
        set_up(&p, "running");
        CHECK(run_lock_take(p.run, false, &lock, &e));
        start(&t, 80, "xterm", (const char *[]){ "fp8lab", VERBS[i][0], p.run,
                                                 i ? NULL : "-f", NULL });
        await_rows(&t, VERBS[i][1], 1);
        end_run(&p, lock);
        int status = finish(&t);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        assert_int_equal(rows_with(&t, VERBS[i][2]), 1);
        assert_int_equal(rows_with(&t, "started"), !i); /* no line of the log twice */
        free(t.raw);
        take_down(&p);
    }
}

static void a_dumb_terminal_gets_lines(void **state) {
    static const char *const TERMS[] = { "dumb", "" };
    struct place p;
    set_up(&p, "time_limit");
    for (size_t i = 0; i < sizeof TERMS / sizeof *TERMS; i++) {
        struct terminal t;
        start(&t, 80, TERMS[i],
              (const char *[]){ "fp8lab", "--no-color", "watch", p.run, NULL });
        int status = finish(&t);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        assert_null(strchr(t.raw, '\033'));
        assert_int_equal(rows_with(&t, "step 20/100  loss "), 1);
        assert_int_equal(rows_with(&t, "time_limit"), 1);
        free(t.raw);
    }
    take_down(&p);
}

/* ---- run ------------------------------------------------------------------------------------- */

/* The experiment of this test's folder, from the root of the repository. */
static void ctrl_c_leaves_the_last_state_and_the_messages(void **state) {
    char runs[PATH_CAP];
    struct terminal t;
    struct err e = { 0 };
    scratch_directory(runs);
    start(&t, 80, "xterm",
          (const char *[]){ "fp8lab", "run", "tests/cli/tiny.lua", "--lib", "experiments/lib",
                            "--backend", "cpu", "--threads", "1", "--runs", runs, "--set",
                            "train.steps=100000", "--set", "checkpoint=false", NULL });
    await_rows(&t, "tokens/s", 1);
    assert_int_equal(rows_with(&t, "tiny  running"), 1);
    assert_int_equal(write(t.fd, "\003", 1), 1);
    int status = finish(&t);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGINT);
    assert_int_equal(rows_with(&t, "tiny  interrupted"), 1);
    assert_int_equal(rows_with(&t, "loss "), 2);        /* of the view, and of the result below */
    assert_int_equal(rows_with(&t, "signal"), 1);       /* the message stands above the view */
    assert_int_equal(rows_with(&t, "before"), 1);
    if (rows_with(&t, "Next: ") != 1) print_screen(&t);
    assert_int_equal(rows_with(&t, "Next: "), 1);
    free(t.raw);
    CHECK(tree_remove(runs, &e));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_reads_what_is_new_and_no_half_line),
        cmocka_unit_test(it_begins_before_the_first_record),
        cmocka_unit_test(records_that_were_cut_back_are_read_again),
        cmocka_unit_test(a_new_attempt_starts_another_pace),
        cmocka_unit_test(it_says_what_is_no_run_and_when_a_run_is_gone),
        cmocka_unit_test(a_bundle_gives_the_same_state),
        cmocka_unit_test(the_view_is_right_at_80_and_40_columns_and_after_a_resize),
        cmocka_unit_test(a_run_whose_runner_died_is_called_killed),
        cmocka_unit_test(a_run_that_ends_is_followed_into_its_bundle),
        cmocka_unit_test(a_dumb_terminal_gets_lines),
        cmocka_unit_test(ctrl_c_leaves_the_last_state_and_the_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
