/* Two spellings of the same token shards are no change of a configuration. */
#include <jansson.h>

#include "runner/repro/repro_config.h"
#include "tests/support/must.h"

static json_t *config(const char *format, const char *path, const char *part, const char *eval) {
    return json_pack("{s:s, s:{s:s, s:s, s:s, s:[s], s:[{s:s}], s:s?}}", "name", "x", "data",
                     "kind", "tokens", "format", format, "path", path, "paths", path, "parts",
                     "path", part, "eval_path", eval);
}

/* The keys that changed. */
static size_t changes(json_t *then, json_t *now) {
    struct config_change change;
    MUST(config_change_find(then, now, &change, E));
    size_t count = json_array_size(change.changed) + json_array_size(change.newer);
    config_change_free(&change);
    json_decref(then);
    json_decref(now);
    return count;
}

static void spellings_are_no_change(void **state) {
    const char *m = "megatron";
    assert_int_equal(changes(config(m, "a", "b", "c"), config(m, "a.bin", "b.idx", "c.bin")), 0);
    assert_int_equal(changes(config(m, "a.idx", "b.bin", NULL), config(m, "a", "b", NULL)), 0);
    assert_int_equal(changes(config(m, "a", "b", "c"), config(m, "a", "b", "d.bin")), 1);
    assert_int_equal(changes(config(m, "a", "b", "c"), config(m, "d", "e", "c")), 3);
    assert_int_equal(changes(config(m, "a.bin", "b", "c"), config(m, "a.bin.bin", "b", "c")), 2);
    assert_int_equal(changes(config(m, "a/", "b", "c"), config(m, "a/.bin", "b", "c")), 2);
    /* In llm.c's format the names are whole. */
    assert_int_equal(changes(config("llmc", "a", "b", "c"), config("llmc", "a.bin", "b", "c")), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(spellings_are_no_change) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
