/* The hand-written splitters beside Oniguruma with the same regular expressions, on random strings
 * of letters, digits, spaces and signs: runs of any length at any place, since 8 or 64 bytes are
 * read at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "runner/ingest/split.h"
#include "runner/ingest/split_ascii.h"
#include "tests/support/must.h"

#define REST "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define SHORT "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define BEFORE "[^\\r\\n\\p{L}\\p{N}]?"

/* cl100k in Oniguruma's words: there {1,3}+ repeats a group, and $ matches at each line. */
static const struct { enum split_kind kind; const char *regex; } ROWS[] = {
    { SPLIT_GPT2,
      "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+" },
    { SPLIT_LLAMA3,
      SHORT "|" BEFORE "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
      "\\s+(?!\\S)|\\s+" },
    { SPLIT_QWEN2,
      SHORT "|" BEFORE "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
      "\\s+(?!\\S)|\\s+" },
    { SPLIT_CL100K,
      "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}| "
      "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++\\z|\\s*[\\r\\n]|\\s+(?!\\S)|\\s" },
    { SPLIT_O200K,
      BEFORE UPPER "*" LOWER "+" SHORT "?|" BEFORE UPPER "+" LOWER "*" SHORT "?" REST },
    { SPLIT_TEKKEN,
      BEFORE UPPER "*" LOWER "+|" BEFORE UPPER "+" LOWER "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|"
      "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" },
    { SPLIT_DEEPSEEK,
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"
      "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" },
};
enum { PATTERNS = sizeof ROWS / sizeof *ROWS, STRINGS = 20000, STRING = 320, MOST = 64 };

static uint64_t draw(uint64_t *state) { /* xorshift64* */
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1du >> 32;
}

/* Runs of one kind of character, half of the strings of ASCII alone. */
static size_t make_string(uint64_t *seed, char *out) {
    static const char *const KINDS[9][8] = {
        { "a", "b", "z", "A", "Z", "s", "t", "re" }, { "`", "{", "@", "[", "'", "'", "/", "." },
        { "0", "9", "1", "2", "3", "4", "5", "7" },
        { " ", " ", " ", "\t", "\x0b", "\x0c", " ", " " },
        { "\n", "\r", "\n", "\r\n", " \n", "\n ", "\n", "\n\n" },
        { "s", "ll", "'s", "'Ve", "d", "'M", "l", "x" },
        { "é", "ß", "Ж", "中", "あ", "\u0301", "ǅ", "ª" },
        { "\u00a0", "\u3000", "\xc2\x85", "\u2028", "\u200b", "\x08", "\x0e", "\x1f" },
        { "€", "٣", "½", "😀", "ſ", "—", "\x7f", "!" },
    };
    uint64_t kinds = draw(seed) % 2 ? 6 : 9;
    size_t n = 0, wanted = draw(seed) % (draw(seed) % 4 ? 100 : STRING - 8);
    while (n < wanted) {
        const char *const *kind = KINDS[draw(seed) % kinds];
        for (uint64_t run = draw(seed) % (draw(seed) % 4 ? 3 : 20) + 1; run && n < wanted; run--) {
            const char *next = kind[draw(seed) % 8];
            memcpy(out + n, next, strlen(next));
            n += strlen(next);
        }
    }
    return n;
}

static void pieces_are_those_of_the_regular_expressions(void **state) {
    struct unicode *u;
    uint64_t seed = 0x5b117;
    int64_t pieces = 0;
    (void)state;
    MUST(unicode_create(&u, E));
    for (int at = 0; at < PATTERNS; at++) {
        struct pattern *pattern;
        struct pattern_work work = { 0 };
        enum split_kind kind = ROWS[at].kind;
        const char *regex = ROWS[at].regex;
        assert_int_equal(split_known(regex), kind == SPLIT_CL100K ? SPLIT_NONE : kind);
        MUST(pattern_create(&pattern, regex, strlen(regex), false, E));
        for (int i = 0; i < STRINGS; i++) {
            char string[STRING];
            size_t n = make_string(&seed, string), piece = 0;
            uint8_t *text = malloc(n + 1); /* of its size, so that a sanitizer sees its end */
            const uint8_t *p = text, *ends[MOST];
            memcpy(text, string, n);
            work.count = 0;
            if (n) MUST(pattern_split(pattern, SPLIT_ISOLATED, false, text, n, &work, E));
            while (p < text + n) {
                int count = split_next(u, kind, p, text + n, ends, i % 2 ? 3 : MOST);
                assert_in_range(count, 1, i % 2 ? 3 : MOST);
                for (int k = 0; k < count; k++, piece++) {
                    if (piece >= work.count || ends[k] != text + work.piece[2 * piece + 1])
                        fail_msg("%s: piece %zu of \"%.*s\" ends at %td", split_name(kind), piece,
                                 (int)n, string, ends[k] - text);
                }
                p = ends[count - 1];
            }
            assert_int_equal(piece, work.count);
            pieces += (int64_t)piece;
            free(text);
        }
        pattern_work_free(&work);
        pattern_destroy(pattern);
    }
    assert_true(pieces > STRINGS * PATTERNS * 5);
    unicode_destroy(u);
}

static void bits_are_equal_without_vectors(void **state) {
    uint64_t seed = 0xb175;
    uint8_t text[ASCII_BLOCK + 1];
    (void)state;
    for (int i = 0; i < 20000; i++) {
        struct ascii_bits b, portable;
        uint8_t mask = i % 2 ? 0x7f : 0xff;
        for (size_t k = 0; k < sizeof text; k++) text[k] = (uint8_t)draw(&seed) & mask;
        ascii_bits(&b, text + i % 2);
        ascii_bits_portable(&portable, text + i % 2);
        assert_memory_equal(&b, &portable, sizeof b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_equal_without_vectors),
        cmocka_unit_test(pieces_are_those_of_the_regular_expressions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
