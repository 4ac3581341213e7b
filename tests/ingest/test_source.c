/* A file that changes while it is read is an error: its text would end or go on anywhere. */
#include <stdlib.h>
#include <unistd.h>

#include "runner/ingest/source.h"
#include "tests/support/must.h"

enum { BYTES = 1 << 20 }; /* more than one block of the reader */

/* Reads the first bytes of a file of BYTES, gives it another size, and reads on to its end. */
static void read_changing(off_t size, bool changed) {
    char path[] = "/tmp/fp8lab-source-XXXXXX", out[1000], digest[SHA256_HEX];
    static char text[BYTES];
    const char *name;
    struct source *s;
    bool inside;
    size_t n = 1;
    int64_t bytes = 0;
    int fd = mkstemp(path);
    memset(text, 'a', BYTES);
    assert_int_equal(write(fd, text, BYTES), BYTES);
    MUST(source_open(&s, path, E));
    MUST(source_next(s, &name, &inside, E));
    MUST(source_read(s, out, sizeof out, &n, E));
    assert_int_equal(ftruncate(fd, size), 0);
    while (n > 0) MUST(source_read(s, out, sizeof out, &n, E));
    MUST(source_next(s, &name, &inside, E));
    assert_null(name);
    if (changed) MUST_FAIL(ERR_FORMAT, "it changed meanwhile", source_finish(s, digest, &bytes, E));
    else MUST(source_finish(s, digest, &bytes, E));
    assert_int_equal(bytes, changed ? 0 : BYTES);
    source_close(s);
    close(fd);
    assert_int_equal(unlink(path), 0);
}

static void a_file_that_changes(void **state) {
    (void)state;
    read_changing(BYTES, false);
    read_changing(BYTES / 2, true);
    read_changing(BYTES * 2, true);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_file_that_changes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
