/* Merging: short words by scanning and long words by a queue of runs. Both are compared with the
 * rule itself, written naively, for tables whose ranks are in any order. Also a word of a million
 * equal characters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "runner/ingest/bpe.h"
#include "tests/support/must.h"

enum { LETTERS = 3, PAIRS = 60, WORD = 300, ROUNDS = 300, MILLION = 1000000 };

static uint64_t draw(uint64_t *state) { /* xorshift64* */
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1du;
}

struct table {
    struct bpe *bpe;
    uint32_t left[PAIRS], right[PAIRS], rank[PAIRS]; /* pair i becomes the symbol LETTERS + i */
};

/* Pairs of letters and of symbols made before; the ranks are a permutation. */
static void make_table(struct table *t, uint64_t *seed, bool ordered) {
    MUST(bpe_create(&t->bpe, PAIRS, E));
    for (uint32_t i = 0; i < PAIRS; i++) t->rank[i] = i;
    for (uint32_t i = PAIRS - 1; i > 0 && !ordered; i--) {
        uint32_t k = (uint32_t)(draw(seed) % (i + 1)), swap = t->rank[i];
        t->rank[i] = t->rank[k];
        t->rank[k] = swap;
    }
    for (uint32_t i = 0; i < PAIRS; i++) {
        do {
            t->left[i] = (uint32_t)(draw(seed) % (LETTERS + i));
            t->right[i] = (uint32_t)(draw(seed) % (LETTERS + i));
        } while (bpe_has(t->bpe, t->left[i], t->right[i]));
        bpe_set(t->bpe, t->left[i], t->right[i], t->rank[i], LETTERS + i);
    }
}

/* The rule: the lowest rank, the leftmost of equals, until no pair is left. */
static size_t merge_naively(const struct table *t, uint32_t *ids, size_t n) {
    for (;;) {
        uint32_t best = UINT32_MAX, made = 0;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++)
            for (uint32_t k = 0; k < PAIRS; k++)
                if (ids[i] == t->left[k] && ids[i + 1] == t->right[k] && t->rank[k] < best) {
                    best = t->rank[k];
                    made = LETTERS + k;
                    at = i;
                }
        if (best == UINT32_MAX) return n;
        ids[at] = made;
        memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof *ids);
        n--;
    }
}

static void words_of_any_length_follow_the_rule(void **state) {
    struct bpe_work work = { 0 };
    uint64_t seed = 0xb9e;
    int64_t merged = 0;
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct table t;
        uint32_t ours[WORD], theirs[WORD], by_bytes[WORD], byte_id[256];
        uint8_t bytes[WORD];
        size_t n = draw(&seed) % (round % 2 ? 60 : WORD), kept = 0;
        make_table(&t, &seed, round % 3 == 0);
        int letters = 1 + (int)(draw(&seed) % LETTERS);
        for (uint32_t i = 0; i < 256; i++) byte_id[i] = i % (uint32_t)letters;
        for (size_t i = 0; i < n; i++) {
            bytes[i] = (uint8_t)draw(&seed);
            ours[i] = theirs[i] = byte_id[bytes[i]];
        }
        MUST(bpe_merge(t.bpe, &work, ours, n, &kept, E));
        size_t wanted = merge_naively(&t, theirs, n);
        assert_int_equal(kept, wanted);
        assert_memory_equal(ours, theirs, kept * sizeof *ours);
        MUST(bpe_set_bytes(t.bpe, byte_id, E));
        MUST(bpe_merge_bytes(t.bpe, &work, bytes, n, by_bytes, &kept, E));
        assert_int_equal(kept, wanted);
        assert_memory_equal(by_bytes, theirs, kept * sizeof *theirs);
        merged += (int64_t)(n - kept);
        bpe_destroy(t.bpe);
    }
    assert_true(merged > ROUNDS * 10);
    bpe_work_free(&work);
}

static void a_pair_that_is_set_again_takes_the_last_rank(void **state) {
    struct bpe *b;
    struct bpe_work work = { 0 };
    uint32_t ids[3] = { 0, 1, 2 };
    size_t n;
    (void)state;
    MUST(bpe_create(&b, 3, E));
    bpe_set(b, 0, 1, 0, 3);
    bpe_set(b, 1, 2, 1, 4);
    bpe_set(b, 0, 1, 2, 3);
    MUST(bpe_merge(b, &work, ids, 3, &n, E));
    assert_int_equal(n, 2);
    assert_int_equal(ids[0], 0);
    assert_int_equal(ids[1], 4);
    bpe_destroy(b);
}

/* A quadratic merge would need 10^12 steps: the test would time out. */
static void a_million_equal_characters(void **state) {
    struct bpe *b;
    struct bpe_work work = { 0 };
    uint32_t *ids = calloc(MILLION, sizeof *ids);
    size_t n;
    (void)state;
    MUST(bpe_create(&b, 16, E));
    for (uint32_t i = 0; i < 16; i++) bpe_set(b, i, i, i, i + 1); /* 16 is 65,536 characters */
    MUST(bpe_merge(b, &work, ids, MILLION, &n, E));
    /* 1,000,000 = 15 x 65,536 + 16,960, and 16,960 has three bits set: 14, 9 and 6 */
    assert_int_equal(n, 18);
    for (size_t i = 0; i < 15; i++) assert_int_equal(ids[i], 16);
    assert_int_equal(ids[15], 14);
    assert_int_equal(ids[16], 9);
    assert_int_equal(ids[17], 6);
    bpe_work_free(&work);
    bpe_destroy(b);
    free(ids);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_of_any_length_follow_the_rule),
        cmocka_unit_test(a_pair_that_is_set_again_takes_the_last_rank),
        cmocka_unit_test(a_million_equal_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
