/* Opening below a directory: the paths that open, and the errno for the others. Every case runs
 * three times. Once openat2(2) is the kernel's. Twice a seccomp filter in a child process makes it
 * fail: as on an old kernel (ENOSYS), and as in an old container (EPERM). */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runner/base/run_files.h"

enum { NAME_TOO_LONG = 256, CHILD_FAILED = 1, CHILD_NO_FILTER = 2 };

static char top[] = "/tmp/fp8lab-beneath-XXXXXX";
static char long_name[NAME_TOO_LONG + 1];

static const struct { const char *path; int flags, error; } CASES[] = {
    { "file", O_RDONLY, 0 },
    { "a/b/file", O_RDONLY, 0 },
    { "a/b", O_RDONLY | O_DIRECTORY, 0 },
    { ".", O_RDONLY | O_DIRECTORY, 0 },
    { "a/new", O_WRONLY | O_CREAT | O_EXCL, 0 },
    { "a/fifo", O_RDONLY | O_NONBLOCK, 0 },
    { "absent", O_RDONLY, ENOENT },
    { "a/absent/file", O_RDONLY, ENOENT },
    { "file", O_WRONLY | O_CREAT | O_EXCL, EEXIST },
    { "file/below", O_RDONLY, ENOTDIR },
    { "file", O_RDONLY | O_DIRECTORY, ENOTDIR },
    { "link", O_RDONLY, ELOOP },             /* to a file of the root itself */
    { "a/link", O_RDONLY, ELOOP },           /* to a file outside */
    { "linked/file", O_RDONLY, ELOOP },      /* through a link to a directory of the root */
    { "outside/file", O_RDONLY, ELOOP },     /* through a link to a directory outside */
    { "linked", O_RDONLY | O_DIRECTORY, ELOOP },
    { "dangling", O_WRONLY | O_CREAT, ELOOP },
    { "..", O_RDONLY, EINVAL },
    { "a/..", O_RDONLY, EINVAL },
    { "a/../file", O_RDONLY, EINVAL },
    { "../root/file", O_RDONLY, EINVAL },
    { "/etc/passwd", O_RDONLY, EINVAL },
    { "a//b", O_RDONLY, EINVAL },
    { "a/", O_RDONLY, EINVAL },
    { "", O_RDONLY, EINVAL },
    { long_name, O_RDONLY, ENAMETOOLONG },
};

static int make_root(void **state) {
    (void)state;
    if (!mkdtemp(top)) return -1;
    int at = open(top, O_RDONLY | O_DIRECTORY);
    bool made = at >= 0 && mkdirat(at, "root", 0700) == 0 && mkdirat(at, "other", 0700) == 0 &&
                close(openat(at, "other/file", O_WRONLY | O_CREAT, 0600)) == 0;
    int root = openat(at, "root", O_RDONLY | O_DIRECTORY);
    made = made && root >= 0 && mkdirat(root, "a", 0700) == 0 && mkdirat(root, "a/b", 0700) == 0 &&
           close(openat(root, "file", O_WRONLY | O_CREAT, 0600)) == 0 &&
           close(openat(root, "a/b/file", O_WRONLY | O_CREAT, 0600)) == 0 &&
           mkfifoat(root, "a/fifo", 0600) == 0 && symlinkat("file", root, "link") == 0 &&
           symlinkat("../../other/file", root, "a/link") == 0 &&
           symlinkat("a/b", root, "linked") == 0 && symlinkat("../other", root, "outside") == 0 &&
           symlinkat("../other/new", root, "dangling") == 0;
    memset(long_name, 'x', NAME_TOO_LONG);
    close(root);
    close(at);
    return made ? 0 : -1;
}

static int remove_root(void **state) {
    (void)state;
    return tree_remove(top, NULL) == OK ? 0 : -1;
}

static int open_root(void) {
    char path[PATH_CAP];
    snprintf(path, sizeof path, "%s/root", top);
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* The number of cases with another result than the table's; each is printed. */
static int wrong_cases(int root) {
    int wrong = 0;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        errno = 0;
        int fd = open_beneath(root, CASES[i].path, CASES[i].flags, 0600, 0);
        int error = fd < 0 ? errno : 0;
        bool cloexec = fd < 0 || fcntl(fd, F_GETFD) & FD_CLOEXEC;
        if (error != CASES[i].error || !cloexec) {
            fprintf(stderr, "\"%s\", flags %#x: %s, expected %s%s\n", CASES[i].path,
                    (unsigned)CASES[i].flags, strerror(error), strerror(CASES[i].error),
                    cloexec ? "" : "; without FD_CLOEXEC");
            wrong++;
        }
        if (fd >= 0) close(fd);
    }
    (void)unlinkat(root, "a/new", 0);
    return wrong;
}

/* From here on openat2(2) fails with `error` in this process. */
static bool fail_openat2(int error) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { .len = sizeof rules / sizeof *rules, .filter = rules };
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* The exit code of a child whose openat2(2) fails with `error`: that of `check`. */
static int without_openat2(int error, int (*check)(int root)) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        int root = open_root();
        _exit(!fail_openat2(error) ? CHILD_NO_FILTER : check(root) ? CHILD_FAILED : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == CHILD_NO_FILTER) skip(); /* a kernel or container without seccomp */
    return WEXITSTATUS(status);
}

static void the_kernels_openat2(void **state) {
    (void)state;
    int root = open_root();
    assert_int_equal(wrong_cases(root), 0);
    close(root);
}

static void a_kernel_without_openat2(void **state) {
    (void)state;
    assert_int_equal(without_openat2(ENOSYS, wrong_cases), 0);
}

static void a_container_that_forbids_openat2(void **state) {
    (void)state;
    assert_int_equal(without_openat2(EPERM, wrong_cases), 0);
}

/* 0 if open_beneath() returns the errno of openat2(2): openat(2) never sets EXDEV. */
static int openat2_unused(int root) {
    return !(open_beneath(root, "file", O_RDONLY, 0, 0) < 0 && errno == EXDEV);
}

static void openat2_is_used(void **state) {
    (void)state;
    assert_int_equal(without_openat2(EXDEV, openat2_unused), 0);
}

static void parents_are_made(void **state) {
    (void)state;
    int root = open_root();
    int fd = open_beneath(root, "x/y/z", O_WRONLY | O_CREAT | O_EXCL, 0600, 0700);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(faccessat(root, "x/y/z", F_OK, 0), 0);
    struct stat x;
    assert_int_equal(fstatat(root, "x", &x, 0), 0);
    assert_int_equal(x.st_mode & 0777, 0700);
    assert_int_equal(open_beneath(root, "outside/y/z", O_WRONLY | O_CREAT, 0600, 0700), -1);
    assert_int_equal(errno, ELOOP);
    assert_int_equal(open_beneath(root, "x/../../other/z", O_WRONLY | O_CREAT, 0600, 0700), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(open_beneath(root, "file/y/z", O_WRONLY | O_CREAT, 0600, 0700), -1);
    assert_int_equal(errno, ENOTDIR);
    close(root);
}

static void a_file_is_replaced_in_place(void **state) {
    (void)state;
    struct err e = { 0 };
    char *text = NULL, path[PATH_CAP];
    size_t n = 0;
    int root = open_root();
    assert_int_equal(replace_beneath(root, "a/b/file", "RUN", "new", 3, &e), OK);
    snprintf(path, sizeof path, "%s/root/a/b/file", top);
    assert_int_equal(file_read(path, 100, &text, &n, &e), OK);
    assert_string_equal(text, "new");
    free(text);
    assert_int_equal(replace_beneath(root, "outside/file", "RUN", "new", 3, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "RUN/outside"));
    assert_int_equal(replace_beneath(root, "absent/file", "RUN", "new", 3, &e), ERR_IO);
    close(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernels_openat2),
        cmocka_unit_test(a_kernel_without_openat2),
        cmocka_unit_test(a_container_that_forbids_openat2),
        cmocka_unit_test(openat2_is_used),
        cmocka_unit_test(parents_are_made),
        cmocka_unit_test(a_file_is_replaced_in_place),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
