/* A run directory: no reader sees a run without its run.json. Only the host that created a
 * directory removes it. A directory that contains a link is not changed. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runner/record/run_dir.h"
#include "runner/record/run_lock.h"
#include "tests/support/must.h"

static const char INPUTS[] = "0123456789abcdef";

static int setup(void **state) {
    char *runs = strdup("/tmp/fp8lab-run-dir-XXXXXX");
    *state = runs;
    return runs && mkdtemp(runs) ? 0 : -1;
}

static int teardown(void **state) {
    MUST(tree_remove(*state, E));
    free(*state);
    return 0;
}

/* The number of hidden or of other entries; `path` is that of the last one. */
static int entries(const char *runs, bool hidden, char path[PATH_CAP]) {
    DIR *d = opendir(runs);
    int n = 0;
    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        if ((entry->d_name[0] == '.') != hidden) continue;
        MUST(path_join(path, runs, entry->d_name, E));
        n++;
    }
    closedir(d);
    return n;
}

/* A process that dies between mkdir and run.json. */
static void begin_and_die(const char *runs) {
    pid_t child = fork();
    if (child == 0) {
        struct run_dir dir;
        struct err e;
        _exit(run_dir_create(runs, "t", INPUTS, &dir, &e) == OK ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void save(struct run_dir *dir) {
    assert_int_equal(json_object_set_new(dir->run, "status", json_string("running")), 0);
    MUST(run_dir_save(dir, E));
}

static void a_run_without_run_json_is_invisible(void **state) {
    const char *runs = *state;
    char path[PATH_CAP], file[PATH_CAP];
    struct run_dir dir;
    begin_and_die(runs);
    assert_int_equal(entries(runs, false, path), 0);
    assert_int_equal(entries(runs, true, path), 1);
    run_dir_clean(runs);
    assert_int_equal(entries(runs, true, path), 0);

    MUST(run_dir_create(runs, "t", INPUTS, &dir, E));
    run_dir_clean(runs); /* its process lives */
    assert_int_equal(entries(runs, true, path), 1);
    assert_int_equal(entries(runs, false, path), 0);
    save(&dir);
    assert_int_equal(entries(runs, true, path), 0);
    assert_int_equal(entries(runs, false, path), 1);
    assert_string_equal(path, dir.path);
    MUST(path_join(file, path, "data/run.json", E));
    assert_true(path_exists(file));
    run_dir_close(&dir);
}

/* run_dir_create() fails at each of its open() calls in turn, because descriptors run out. */
static void a_failed_create_leaves_no_folder(void **state) {
    const char *runs = *state;
    char path[PATH_CAP];
    struct run_dir dir;
    struct rlimit limit;
    struct err e;
    int failures = 0, next = dup(STDIN_FILENO);
    enum status st = ERR_IO;
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int allowed = 0; allowed < 16 && st != OK; allowed++) {
        const struct rlimit low = { (rlim_t)(next + allowed), limit.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        st = run_dir_create(runs, "t", INPUTS, &dir, &e);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        if (st == OK) break;
        failures++;
        assert_int_equal(entries(runs, true, path), 0);
        assert_int_equal(entries(runs, false, path), 0);
    }
    assert_int_equal(st, OK);
    assert_true(failures >= 2); /* the lock, and the directory itself */
    run_dir_close(&dir);
}

/* Two processes that begin runs of one name in one second. */
static void ids_are_unique(void **state) {
    struct run_dir dir[3];
    char path[PATH_CAP];
    for (int i = 0; i < 3; i++) {
        MUST(run_dir_create(*state, "t", INPUTS, &dir[i], E));
        if (i != 1) save(&dir[i]); /* dir[1] has reserved its id without a save */
    }
    save(&dir[1]);
    assert_int_equal(entries(*state, false, path), 3);
    for (int i = 0; i < 3; i++) run_dir_close(&dir[i]);
}

static void write_lock(const char *run, const char *text) {
    char path[PATH_CAP];
    MUST(path_join(path, run, "lock", E));
    FILE *f = fopen(path, "w");
    assert_true(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void make_old(const char *run) {
    const struct timespec then[2] = { { .tv_sec = 1000000000 }, { .tv_sec = 1000000000 } };
    char path[PATH_CAP];
    MUST(path_join(path, run, "lock", E));
    (void)utimensat(AT_FDCWD, path, then, 0);
    assert_int_equal(utimensat(AT_FDCWD, run, then, 0), 0);
}

/* A run of another host, or of a process that has not taken its lock yet, may still be live. Only
 * old directories of that kind are removed. */
static void only_directories_of_dead_runs_are_removed(void **state) {
    static const char *const LOCK[] = {
        "17\nnode17\n00000000-0000-0000-0000-000000000000\n", "", NULL,
    };
    const char *runs = *state;
    char path[PATH_CAP], lock[PATH_CAP];
    for (int i = 0; i < 3; i++) {
        begin_and_die(runs);
        assert_int_equal(entries(runs, true, path), 1);
        MUST(path_join(lock, path, "lock", E));
        assert_int_equal(unlink(lock), 0);
        if (LOCK[i]) write_lock(path, LOCK[i]);
        run_dir_clean(runs);
        assert_int_equal(entries(runs, true, path), 1);
        make_old(path);
        run_dir_clean(runs);
        assert_int_equal(entries(runs, true, path), 0);
    }
    begin_and_die(runs);
    assert_int_equal(entries(runs, true, path), 1);
    MUST(path_join(lock, path, "lock", E));
    int fd = open(lock, O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX), 0); /* old, but locked */
    make_old(path);
    run_dir_clean(runs);
    assert_int_equal(entries(runs, true, path), 1);
    close(fd);
}

/* A run whose lock was released without a bundle names the host that left it, and blocks no other
 * process. */
static void a_run_left_open_names_its_host(void **state) {
    struct run_dir dir;
    struct run_writer writer;
    char path[PATH_CAP], bundle[PATH_CAP + 16];
    MUST(run_dir_create(*state, "t", INPUTS, &dir, E));
    save(&dir);
    memcpy(path, dir.path, sizeof path);
    run_dir_close(&dir);
    assert_int_equal(run_lock_look(path, &writer), RUN_LIFE_NONE);
    assert_true(writer.here);
    assert_int_equal(writer.pid, 0);
    write_lock(path, "0\nnode17\n00000000-0000-0000-0000-000000000000\n");
    assert_int_equal(run_lock_look(path, &writer), RUN_LIFE_NONE); /* released by another host */
    assert_false(writer.here);
    MUST(run_dir_open(path, false, &dir, E));
    snprintf(bundle, sizeof bundle, "%s.tar.zst", path);
    assert_int_equal(close(open(bundle, O_CREAT | O_WRONLY, 0644)), 0);
    run_dir_close(&dir); /* a closed run has no lock */
    assert_int_equal(run_lock_look(path, &writer), RUN_LIFE_NONE);
    assert_false(writer.here);
}

/* A link that appears during the run is not followed for a write, and no open waits for a FIFO. */
static void no_link_is_followed(void **state) {
    static const char *const AT[] = { "data/metrics", "data/metrics/x.json.partial",
                                      "data/metrics/x.json" };
    struct run_dir dir;
    char path[PATH_CAP], outside[PATH_CAP], text[16] = "";
    json_t *value = json_object();
    MUST(run_dir_create(*state, "t", INPUTS, &dir, E));
    save(&dir);
    MUST(path_join(outside, *state, "outside", E));
    assert_int_equal(mkdir(outside, 0777), 0);
    for (int i = 0; i < 3; i++) {
        MUST(path_join(path, dir.path, AT[i], E));
        if (i == 0) assert_int_equal(rmdir(path), 0);
        if (i == 2) assert_int_equal(unlink(path), 0);
        assert_int_equal(symlink(outside, path), 0);
        if (i > 0) MUST(run_dir_put(&dir, "data/metrics/x.json", value, E));
        else MUST_FAIL(ERR_FORMAT, AT[0], run_dir_put(&dir, "data/metrics/x.json", value, E));
        if (i == 0) assert_int_equal(unlink(path) || mkdir(path, 0777), 0);
        MUST(path_join(path, outside, "x.json", E));
        assert_false(path_exists(path));
    }
    MUST(path_join(path, dir.path, "data/metrics/x.json", E));
    assert_int_equal(readlink(path, text, sizeof text), -1); /* a file replaced the link */
    MUST(path_join(path, dir.path, "data/metrics/y.json.partial", E));
    assert_int_equal(mkfifo(path, 0666), 0);
    MUST(run_dir_put(&dir, "data/metrics/y.json", value, E));
    run_dir_close(&dir);
    json_decref(value);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_run_without_run_json_is_invisible, setup, teardown),
        cmocka_unit_test_setup_teardown(a_failed_create_leaves_no_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(ids_are_unique, setup, teardown),
        cmocka_unit_test_setup_teardown(only_directories_of_dead_runs_are_removed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_run_left_open_names_its_host, setup, teardown),
        cmocka_unit_test_setup_teardown(no_link_is_followed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
