/* Digests of data files that a process has read: an unchanged file is not read again, and no change
 * is missed (runner/record/known_data.h). */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "runner/base/run_files.h"
#include "runner/record/known_data.h"
#include "tests/support/must.h"

enum { BYTES = 4096, SETTLED_NS = 2000000001 };

static char path[] = "/tmp/fp8lab-known-XXXXXX";

static void write_text(char fill) {
    char text[BYTES];
    memset(text, fill, sizeof text);
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    assert_true(fd >= 0 && write(fd, text, sizeof text) == BYTES && close(fd) == 0);
}

static struct data *opened(void) {
    const char *const paths[] = { path };
    struct data *d = NULL;
    const struct data_options o = { .kind = DATA_TEXT, .paths = paths, .path_count = 1 };
    MUST(data_open(&d, &o, 256, 32, 1, E));
    return d;
}

/* Hashes the file with what is known. The file counts as unchanged for a while before, as on any
 * day but that of its making. */
static void hash(struct known_data *k, struct data_file *file, bool settled) {
    char hex[65];
    struct data *d = opened();
    *file = (struct data_file){ .bytes = 0 };
    known_data_find(k, d, file);
    bool known = *file->sha256;
    MUST(data_sha256(d, file, hex, E));
    if (settled) k->began_ns = file->version[3] + SETTLED_NS;
    MUST(known_data_add(k, d, file, E));
    data_close(d);
    file->bytes = known; /* for the caller */
}

static void an_unchanged_file_is_not_read_again(void **state) {
    struct known_data k = { 0 };
    struct data_file first, second;
    write_text('a');
    hash(&k, &first, true);
    assert_false(first.bytes);
    assert_int_equal(k.count, 1);
    k.file[0].sha256[0] = 'x'; /* a digest that no file has: it can only be the remembered one */
    hash(&k, &second, true);
    assert_true(second.bytes);
    assert_string_equal(second.sha256 + 1, first.sha256 + 1);
    assert_int_equal(second.sha256[0], 'x');
    assert_string_equal(second.sample_sha256, first.sample_sha256);
    assert_int_equal(k.count, 1);
    known_data_free(&k);
}

/* As many bytes, other content; the time of the bytes is set back, as `touch -d` does. */
static void a_changed_file_is_read(void **state) {
    struct known_data k = { 0 };
    struct data_file first, second;
    struct stat before;
    write_text('a');
    hash(&k, &first, true);
    assert_int_equal(stat(path, &before), 0);
    for (int i = 0; i < 1000000; i++) { /* until the file's clock has advanced */
        struct stat now;
        write_text('b');
        const struct timespec times[2] = { before.st_atim, before.st_mtim };
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
        assert_int_equal(stat(path, &now), 0);
        if (now.st_ctim.tv_nsec != before.st_ctim.tv_nsec) break;
    }
    hash(&k, &second, true);
    assert_false(second.bytes);
    assert_string_not_equal(second.sha256, first.sha256);
    known_data_free(&k);
}

/* A file changed just now may change again without another time. */
static void a_fresh_file_is_not_remembered(void **state) {
    struct known_data k = { 0 };
    struct data_file file;
    write_text('c');
    hash(&k, &file, false);
    assert_int_equal(k.count, 0);
    known_data_free(&k);
}

/* A file of the data was one of a set before: another row of a suite has it there. */
static void a_known_file_is_of_no_set_of_another_row(void **state) {
    char own[] = "/tmp/fp8lab-known-XXXXXX", hex[65];
    const char *const first[] = { own }, *const second[] = { path };
    struct known_data k = { 0 };
    struct data_file files[2] = { { .bytes = 0 } };
    const struct data_set_options set = { "law", (const char **)second, 1 };
    const struct data_options o = { .kind = DATA_TEXT, .paths = first, .path_count = 1,
                                    .sets = &set, .set_count = 1 };
    struct data *d = NULL;
    int fd = mkstemp(own);
    assert_true(fd >= 0 && write(fd, own, sizeof own) == sizeof own && close(fd) == 0);
    write_text('d');
    MUST(data_open(&d, &o, 256, 4, 1, E));
    known_data_find(&k, d, files);
    MUST(data_sha256(d, files, hex, E));
    assert_int_equal(files[1].set, 0);
    k.began_ns = files[1].version[3] + SETTLED_NS;
    MUST(known_data_add(&k, d, files, E));
    data_close(d);
    d = opened();
    known_data_find(&k, d, files);
    assert_true(*files[0].sha256);
    assert_int_equal(files[0].set, -1);
    data_close(d);
    known_data_free(&k);
    assert_int_equal(unlink(own), 0);
}

static int set_up(void **state) {
    int fd = mkstemp(path);
    return fd >= 0 ? close(fd) : 1;
}

static int tear_down(void **state) { return unlink(path); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unchanged_file_is_not_read_again),
        cmocka_unit_test(a_changed_file_is_read),
        cmocka_unit_test(a_fresh_file_is_not_remembered),
        cmocka_unit_test(a_known_file_is_of_no_set_of_another_row),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
