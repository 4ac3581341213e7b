/* The operator table: every slot that is empty is found, by its name. */
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/must.h"

static void every_empty_slot_is_named(void **state) {
    struct backend *b;
    MUST(cpu_backend_open(&b, 1, E));
    assert_null(backend_missing(b->ops));
    size_t begin = offsetof(struct backend_ops, comm), end = sizeof *b->ops, size = sizeof(void *);
    int found = 0;
    for (size_t at = begin; at < end; at += size) {
        struct backend_ops ops = *b->ops;
        memset((char *)&ops + at, 0, size);
        found += backend_missing(&ops) != NULL;
    }
    assert_int_equal(found, (end - begin) / size);
    struct backend_ops ops = *b->ops;
    ops.adamw = NULL;
    assert_string_equal(backend_missing(&ops), "adamw");
    ops.comm.poll = NULL;
    assert_string_equal(backend_missing(&ops), "comm.poll");
    b->ops->close(b);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_empty_slot_is_named) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
