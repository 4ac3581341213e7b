/* What Megatron's format cannot hold is refused, and not written wrong. */
#include <stdint.h>

#include "runner/base/run_files.h"
#include "runner/ingest/shards.h"
#include "tests/support/must.h"
#include "tests/support/run_fixture.h"

static struct shards *open_shards(const char *folder, bool loss) {
    struct shards *s = NULL;
    char prefix[PATH_CAP];
    MUST(path_join(prefix, folder, "made", E));
    MUST(shards_open(&s, prefix, 2, loss, E));
    MUST(shards_begin(s, E));
    return s;
}

static void ids_have_the_width_that_megatron_gives_them(void **state) {
    assert_int_equal(shards_id_bytes(65499), 2);
    assert_int_equal(shards_id_bytes(65500), 4);
}

static void a_document_may_have_2_31_tokens_less_one(void **state) {
    char folder[PATH_CAP];
    scratch_directory(folder);
    struct shards *s = open_shards(folder, false);
    MUST(shards_end_document(s, INT32_MAX, E));
    MUST_FAIL(ERR_FORMAT, "a document has 2147483648 tokens; Megatron's index holds at most",
              shards_end_document(s, (int64_t)INT32_MAX + 1, E));
    shards_destroy(s, false);
    MUST(tree_remove(folder, E));
}

static void each_token_needs_its_byte_of_loss(void **state) {
    static const uint16_t IDS[3] = { 1, 2, 3 };
    static const uint8_t LOSS[3] = { 1, 0, 1 };
    char folder[PATH_CAP];
    scratch_directory(folder);
    struct shards *s = open_shards(folder, true);
    MUST(shards_add(s, IDS, 3, E));
    MUST(shards_add_loss(s, LOSS, 2, E));
    MUST(shards_end_document(s, 3, E));
    json_t *description = json_object();
    MUST_FAIL(ERR_STATE, "3 tokens, but 2 bytes of loss", shards_finish(s, description, E));
    json_decref(description);
    shards_destroy(s, false);
    MUST(tree_remove(folder, E));
}

/* A killed run of conversations left it; a run of plain text has none. */
static void a_loss_file_of_another_kind_of_run_is_removed(void **state) {
    char folder[PATH_CAP], path[PATH_CAP];
    scratch_directory(folder);
    put_file(folder, "made.loss.part", "left");
    MUST(path_join(path, folder, "made.loss.part", E));
    struct shards *s = open_shards(folder, false);
    assert_false(path_exists(path));
    shards_destroy(s, false);
    MUST(tree_remove(folder, E));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_have_the_width_that_megatron_gives_them),
        cmocka_unit_test(a_document_may_have_2_31_tokens_less_one),
        cmocka_unit_test(each_token_needs_its_byte_of_loss),
        cmocka_unit_test(a_loss_file_of_another_kind_of_run_is_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
