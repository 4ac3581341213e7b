/* The set of documents that were seen: each key is fresh once, also after the table grew. */
#include "runner/ingest/unique.h"
#include "tests/support/must.h"

enum { KEYS = 20000 };

/* Keys of real digests, and keys that all want the same few slots. */
static void make_key(int i, unsigned char key[UNIQUE_KEY]) {
    char hex[SHA256_HEX];
    MUST(sha256_bytes(&i, sizeof i, hex, E));
    unique_key(hex, key);
    for (int k = 0; i % 2 && k < 8; k++) key[k] = (unsigned char)(k < 1 ? 255 : 0);
}

static void each_key_is_fresh_once(void **state) {
    struct unique u = { 0 };
    (void)state;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < KEYS; i++) {
            unsigned char key[UNIQUE_KEY];
            bool fresh = round;
            make_key(i, key);
            MUST(unique_add(&u, key, &fresh, E));
            if (fresh == (round == 1)) fail_msg("round %d, key %d: fresh %d", round, i, fresh);
        }
        assert_int_equal(u.count, KEYS);
    }
    assert_true(4 * u.count <= 3 * u.slots && u.slots <= 4 * u.count);
    unique_free(&u);
}

static void keys_are_the_first_digits(void **state) {
    static const unsigned char WANTED[UNIQUE_KEY] = { 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd,
                                                      0xef, 0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54,
                                                      0x32, 0x10 };
    unsigned char key[UNIQUE_KEY];
    (void)state;
    unique_key("0123456789abcdeffedcba98765432100000000000000000000000000000000f", key);
    assert_memory_equal(key, WANTED, UNIQUE_KEY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_key_is_fresh_once),
        cmocka_unit_test(keys_are_the_first_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
