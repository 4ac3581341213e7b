/* A disk that fails while a bundle is read: each read fails in turn. The error must be ERR_IO (exit
 * code 6), never a verdict on the bundle (exit code 4): its bytes may be intact. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "runner/base/cli.h"
#include "runner/bundle/bag.h"
#include "runner/bundle/bundle.h"
#include "runner/bundle/run_view.h"
#include "runner/bundle/unpack.h"
#include "tests/support/must.h"
#include "tests/support/run_fixture.h"

/* ---- in place of the C library's ---- */

static int64_t reads, fail_at; /* fail_at: number of the read that fails; 0: none. Tests only */

static bool fails(void) {
    bool now = ++reads == fail_at;
    if (now) errno = EIO;
    return now;
}

ssize_t read(int fd, void *buffer, size_t n) {
    return fails() ? -1 : (ssize_t)syscall(SYS_read, fd, buffer, n);
}

ssize_t pread(int fd, void *buffer, size_t n, off_t offset) {
    return fails() ? -1 : (ssize_t)syscall(SYS_pread64, fd, buffer, n, offset);
}

/* ---- the readers ---- */

static enum status verify(const char *path, struct err *e) {
    struct unpack_report report;
    return bundle_unpack(path, NULL, &BUNDLE_LIMITS, &report, e);
}

static enum status view(const char *path, struct err *e) {
    struct run_view v;
    enum status st = run_view_load(path, RUN_VIEW_FULL, &v, e);
    if (st == OK) run_view_free(&v);
    return st;
}

static enum status unchanged(const char *path, struct err *e) {
    return bag_unchanged(path, BAG_ALL, e);
}

/* Repeats the call, with the next read failing each time, until no read is left to fail. */
static void each_read_fails(enum status (*call)(const char *, struct err *), const char *path) {
    int64_t at = 1;
    for (;; at++) {
        struct err e = { .text = "" };
        reads = 0;
        fail_at = at;
        enum status st = call(path, &e);
        bool failed = reads >= at;
        fail_at = 0;
        if (!failed && st != OK) fail_msg("%s: %s", path, e.text);
        if (!failed) break;
        if (st != ERR_IO || exit_code_of(st) != EXIT_SYSTEM || !strstr(e.text, strerror(EIO)))
            fail_msg("read %lld of %s failed: %s \"%s\"", (long long)at, path, status_name(st),
                     e.text);
    }
    if (at < 4) fail_msg("%s: only %lld reads", path, (long long)at - 1);
}

/* A closed run with its checkpoints, which keeps its directory. */
static void close_run(char parent[PATH_CAP], char dir[PATH_CAP], struct bundle_result *result) {
    static const struct bundle_options KEEP = { .checkpoints = BUNDLE_CHECKPOINTS_FULL,
                                                .keep_directory = true, .threads = 1 };
    struct run_fixture f = run_fixture_default();
    scratch_directory(parent);
    run_fixture_write(parent, &f, dir);
    MUST(bundle_finish(dir, &KEEP, result, E));
}

static void a_failing_disk_gives_no_verdict(void **state) {
    struct bundle_result result;
    char parent[PATH_CAP], dir[PATH_CAP];
    close_run(parent, dir, &result);
    each_read_fails(verify, dir);
    each_read_fails(verify, result.path);
    each_read_fails(view, dir);
    each_read_fails(view, result.path);
    each_read_fails(unchanged, dir);
    MUST(tree_remove(parent, E));
}

/* A file that is gone or has other bytes is a verdict. */
static void a_changed_file_gives_a_verdict(void **state) {
    static const struct bundle_options KEEP = { .keep_directory = true, .threads = 1 };
    struct run_fixture f = run_fixture_default();
    struct bundle_result result;
    char parent[PATH_CAP], dir[PATH_CAP], path[PATH_CAP];
    scratch_directory(parent);
    run_fixture_write(parent, &f, dir);
    MUST(bundle_finish(dir, &KEEP, &result, E));
    MUST(bag_unchanged(dir, BAG_ALL, E));
    MUST(path_join(path, dir, "data/run.json", E));
    put_file(dir, "data/run.json", "{}");
    MUST_FAIL(ERR_VERIFY, "data/run.json changed since the run was closed",
              bag_unchanged(dir, BAG_ALL, E));
    assert_int_equal(unlink(path), 0);
    MUST_FAIL(ERR_VERIFY, "data/run.json is gone since the run was closed",
              bag_unchanged(dir, BAG_ALL, E));
    MUST(tree_remove(parent, E));
}

/* A run resumes from an intact checkpoint; all else must be as it was. */
static void checkpoints_are_told_from_the_rest(void **state) {
    struct bundle_result result;
    char parent[PATH_CAP], dir[PATH_CAP];
    close_run(parent, dir, &result);
    put_file(dir, "data/metrics/summary.json", "{}");
    MUST(bag_unchanged(dir, BAG_CHECKPOINTS, E));
    MUST_FAIL(ERR_VERIFY, "summary.json changed", bag_unchanged(dir, BAG_OTHERS, E));
    MUST(tree_remove(parent, E));
    close_run(parent, dir, &result);
    put_file(dir, "data/checkpoints/step-000020/state.safetensors", "%s", "other bytes");
    MUST(bag_unchanged(dir, BAG_OTHERS, E));
    MUST_FAIL(ERR_VERIFY, "changed since", bag_unchanged(dir, BAG_CHECKPOINTS, E));
    MUST(tree_remove(parent, E));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failing_disk_gives_no_verdict),
        cmocka_unit_test(a_changed_file_gives_a_verdict),
        cmocka_unit_test(checkpoints_are_told_from_the_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
