/* The file of choices of earlier runs (runner/record/choice_cache.h): what is offered to whom, what
 * joins it, and what happens if it is locked or full. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "kernels/choices.h"
#include "runner/plan/backends.h"
#include "runner/record/choice_cache.h"
#include "tests/support/must.h"

#define HEAD(device, library) "fp8lab choices 1\ndevice " device "\nlibraries " library "\n"

static char folder[] = "/tmp/fp8lab-choices-XXXXXX";

/* A process with this driver. */
static struct choice_cache opened(const char *driver) {
    struct choice_cache c;
    MUST(choice_cache_open(&c, folder, NULL, driver, E));
    return c;
}

static void add(const char *driver, const char *architecture, const char *text) {
    struct choice_cache c = opened(driver);
    char problem[CHOICE_PROBLEM_CAP];
    MUST(choice_cache_add(&c, architecture, text, CHOICES_USED, problem, E));
    assert_string_equal(problem, "");
    choice_cache_close(&c);
}

/* ---- a backend that only records what it is offered ---- */

struct listener {
    struct backend base;
    struct backend_ops ops;
    const char *device, *libraries, *architecture;
    char *offered;
};

static enum status listener_info(struct backend *b, struct device_info *info, struct err *e) {
    *info = (struct device_info){ .name = "listener" };
    snprintf(info->architecture, sizeof info->architecture, "%s",
             ((struct listener *)(void *)b)->architecture);
    return OK;
}

static enum status listener_offer(struct backend *b, const char *text, struct err *e) {
    struct listener *l = (struct listener *)(void *)b;
    struct choices_reader r;
    TRY(choices_open(&r, text, e));
    TRY(choices_expect(&r, l->device, l->libraries, e));
    l->offered = strdup(text);
    return OK;
}

/* What a worker with this device is offered by this process, or "". */
static void offer(struct choice_cache *c, const char *architecture, const char *device,
                  const char *libraries, char text[4096]) {
    struct listener l = { .device = device, .libraries = libraries,
                          .architecture = architecture };
    char problem[CHOICE_PROBLEM_CAP];
    l.base.ops = &l.ops;
    l.ops.info = listener_info;
    l.ops.choices_offer = listener_offer;
    MUST(choice_cache_offer(c, folder, problem, E));
    assert_string_equal(problem, "");
    MUST(choice_cache_take(folder, &l.base, E));
    MUST(choice_cache_withdraw(folder, E));
    snprintf(text, 4096, "%s", l.offered ? l.offered : "");
    free(l.offered);
}

/* The same by a new process with this driver. Valid until the next call. */
static const char *offered(const char *driver, const char *architecture, const char *device,
                           const char *libraries, char text[4096]) {
    struct choice_cache c = opened(driver);
    offer(&c, architecture, device, libraries, text);
    choice_cache_close(&c);
    return text;
}

static const char A[] = HEAD("H200", "lt 1") "# comment\ngemm 1 2 : 01\nattention 8 : -\n";

static void a_table_serves_its_own_kind_only(void **state) {
    char text[4096];
    add("580", "sm_90", A);
    assert_string_equal(offered("580", "sm_90", "H200", "lt 1", text),
                        HEAD("H200", "lt 1") "gemm 1 2 : 01\nattention 8 : -\n");
    assert_string_equal(offered("581", "sm_90", "H200", "lt 1", text), "");
    assert_string_equal(offered("580", "sm_100", "H200", "lt 1", text), "");
    assert_string_equal(offered("580", "sm_90", "H100", "lt 1", text), "");
    assert_string_equal(offered("580", "sm_90", "H200", "lt 2", text), "");
}

static void the_first_choice_of_a_shape_stays(void **state) {
    char text[4096];
    add("580", "sm_90", HEAD("H200", "lt 1") "gemm 1 2 : 02\ngemm 1 : 03\ngemm 1 2 3 : 04\n");
    assert_string_equal(offered("580", "sm_90", "H200", "lt 1", text),
                        HEAD("H200", "lt 1") "gemm 1 2 : 01\nattention 8 : -\ngemm 1 : 03\n"
                        "gemm 1 2 3 : 04\n");
}

/* What a process has seen wins over the file, which another process may have changed meanwhile. */
static void a_process_stays_with_what_it_has_seen(void **state) {
    struct choice_cache c = opened("580");
    char problem[CHOICE_PROBLEM_CAP], path[PATH_CAP], text[4096];
    MUST(choice_cache_add(&c, "sm_90", HEAD("B200", "lt 1") "gemm 1 : 0a\n", CHOICES_DISTURBED,
                          problem, E));
    add("580", "sm_90", HEAD("B200", "lt 1") "gemm 1 : 0b\ngemm 2 : 0c\n");
    offer(&c, "sm_90", "B200", "lt 1", text);
    assert_string_equal(text, HEAD("B200", "lt 1") "gemm 1 : 0a\ngemm 2 : 0c\n");
    MUST(path_join(path, folder, "offered.json", E));
    assert_false(path_exists(path));
    choice_cache_close(&c);
}

/* Two processes whose certificates timed the same shapes at once: no run has computed with the
 * choices of either yet, so both take those that were stored first. */
static void processes_at_once_agree(void **state) {
    (void)state;
    static const char FIRST[] = HEAD("B300", "lt 1") "gemm 1 : 01\ngemm 2 : 01\n";
    struct choice_cache first = opened("580"), second = opened("580");
    char problem[CHOICE_PROBLEM_CAP], text[4096];
    MUST(choice_cache_add(&second, "sm_103", HEAD("B300", "lt 1") "gemm 4 : 04\n",
                          CHOICES_DISTURBED, problem, E));
    MUST(choice_cache_add(&first, "sm_103", FIRST, CHOICES_UNUSED, problem, E));
    MUST(choice_cache_add(&first, "sm_103", HEAD("B300", "lt 1") "gemm 4 : 01\n", CHOICES_USED,
                          problem, E));
    MUST(choice_cache_add(&second, "sm_103", HEAD("B300", "lt 1") "gemm 2 : 02\ngemm 3 : 02\n",
                          CHOICES_UNUSED, problem, E));
    offer(&second, "sm_103", "B300", "lt 1", text);
    assert_string_equal(text, HEAD("B300", "lt 1") "gemm 4 : 04\ngemm 1 : 01\ngemm 2 : 01\n"
                                                   "gemm 3 : 02\n");
    choice_cache_close(&first);
    choice_cache_close(&second);
}

static void old_tables_make_room(void **state) {
    char text[4096], table[256];
    for (int i = 0; i < 64; i++) {
        snprintf(table, sizeof table, HEAD("GPU %d", "lt 1") "gemm 1 : 01\n", i);
        add("580", "sm_90", table);
    }
    assert_string_equal(offered("580", "sm_90", "H200", "lt 1", text), "");
    assert_string_not_equal(offered("580", "sm_90", "GPU 0", "lt 1", text), "");
    assert_string_not_equal(offered("580", "sm_90", "GPU 63", "lt 1", text), "");
}

/* A process that holds the lock for ever delays a run by a second, and is named once. */
static void a_held_lock_is_no_hang(void **state) {
    struct choice_cache c = opened("580");
    char problem[CHOICE_PROBLEM_CAP], path[PATH_CAP];
    MUST(path_join(path, folder, "choices.lock", E));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0 && flock(fd, LOCK_EX) == 0);
    MUST(choice_cache_add(&c, "sm_90", HEAD("L", "lt 1") "gemm 1 : 01\n", CHOICES_USED, problem,
                          E));
    assert_non_null(strstr(problem, "are not kept for later runs"));
    assert_non_null(strstr(problem, "choices.lock"));
    MUST(choice_cache_add(&c, "sm_90", HEAD("L", "lt 1") "gemm 2 : 01\n", CHOICES_USED, problem,
                          E));
    assert_string_equal(problem, "");
    close(fd);
    choice_cache_close(&c);
}

/* One that cannot be read may be whole: it is not replaced, and the spare folder serves. A socket
 * is such a file for every user. */
static void what_cannot_be_read_stays(void **state) {
    (void)state;
    struct choice_cache c;
    char home[PATH_CAP], runs[PATH_CAP], path[PATH_CAP], problem[CHOICE_PROBLEM_CAP];
    struct stat info;
    MUST(path_join(home, folder, "home", E));
    MUST(path_join(runs, folder, "runs", E));
    MUST(path_join(path, home, "choices.json", E));
    MUST(directory_make(home, E));
    assert_int_equal(mknod(path, S_IFSOCK | 0600, 0), 0);
    MUST(choice_cache_open(&c, NULL, runs, "580", E));
    snprintf(c.folder, sizeof c.folder, "%s", home);
    snprintf(c.spare, sizeof c.spare, "%s", runs);
    MUST(choice_cache_add(&c, "sm_90", HEAD("S", "lt 1") "gemm 1 : 01\n", CHOICES_USED, problem,
                          E));
    assert_non_null(strstr(problem, "are kept for later runs in"));
    assert_non_null(strstr(problem, path));
    assert_true(lstat(path, &info) == 0 && S_ISSOCK(info.st_mode));
    choice_cache_close(&c);
}

/* Opens a cache whose file in `home` has these bytes, with a spare folder. */
static struct choice_cache opened_over(const char *bytes, const char *home, const char *runs,
                                       char path[PATH_CAP]) {
    struct choice_cache c;
    MUST(choice_cache_open(&c, NULL, NULL, "580", E));
    MUST(path_join(c.folder, folder, home, E));
    MUST(path_join(c.spare, folder, runs, E));
    MUST(path_join(path, c.folder, "choices.json", E));
    MUST(directory_make(c.folder, E));
    MUST(file_replace(path, bytes, strlen(bytes), E));
    return c;
}

/* A newer program wrote the file: it stays, which is said once, and the spare folder serves. A
 * schema of another name, or an older one, is damage, and is replaced. */
static void a_newer_file_stays(void **state) {
    static const struct { const char *bytes; bool newer; } FILES[] = {
        { "{\"schema\": \"fp8lab.choices/2\", \"tables\": {\"new\": 1}}", true },
        { "{\"schema\": \"fp8lab.choices/10\"}", true },
        { "{\"schema\": \"fp8lab.choices/0\"}", false },
        { "{\"schema\": \"fp8lab.others/2\"}", false },
    };
    (void)state;
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        char path[PATH_CAP], problem[CHOICE_PROBLEM_CAP], home[32], runs[32], *now;
        size_t n;
        snprintf(home, sizeof home, "newer-%zu", i);
        snprintf(runs, sizeof runs, "newer-%zu-runs", i);
        struct choice_cache c = opened_over(FILES[i].bytes, home, runs, path);
        MUST(choice_cache_offer(&c, folder, problem, E));
        assert_non_null(strstr(problem, path));
        assert_int_equal(strstr(problem, "stays as it is: a newer program wrote it") != NULL,
                         FILES[i].newer);
        for (int k = 0; k < 2; k++) {
            MUST(choice_cache_add(&c, "sm_90", k ? HEAD("N", "lt 1") "gemm 2 : 01\n"
                                                 : HEAD("N", "lt 1") "gemm 1 : 01\n",
                                  CHOICES_USED, problem, E));
            assert_string_equal(problem, "");
        }
        MUST(file_read(path, 1 << 20, &now, &n, E));
        assert_int_equal(strcmp(now, FILES[i].bytes) == 0, FILES[i].newer);
        free(now);
        MUST(path_join(path, c.spare, "choices.json", E));
        assert_int_equal(path_exists(path), FILES[i].newer);
        choice_cache_close(&c);
    }
}

static void an_empty_part_adds_nothing(void **state) {
    struct choice_cache c = opened("580");
    char problem[CHOICE_PROBLEM_CAP], text[4096];
    MUST(choice_cache_add(&c, "sm_90", "", CHOICES_USED, problem, E));
    MUST(choice_cache_add(&c, "sm_90", HEAD("E", "lt 1") "# nothing\n", CHOICES_USED, problem, E));
    MUST_FAIL(ERR_CONFIG, "no choice table",
              choice_cache_add(&c, "sm_90", "x\n", CHOICES_USED, problem, E));
    assert_string_equal(offered("580", "sm_90", "E", "lt 1", text), "");
    choice_cache_close(&c);
}

static int set_up(void **state) { return mkdtemp(folder) ? 0 : 1; }

static int tear_down(void **state) {
    struct err e;
    return tree_remove(folder, &e) == OK ? 0 : 1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_serves_its_own_kind_only),
        cmocka_unit_test(the_first_choice_of_a_shape_stays),
        cmocka_unit_test(a_process_stays_with_what_it_has_seen),
        cmocka_unit_test(processes_at_once_agree),
        cmocka_unit_test(what_cannot_be_read_stays),
        cmocka_unit_test(a_newer_file_stays),
        cmocka_unit_test(an_empty_part_adds_nothing),
        cmocka_unit_test(old_tables_make_room),
        cmocka_unit_test(a_held_lock_is_no_hang),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
