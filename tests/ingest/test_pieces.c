/* The pieces that a normalizer, added tokens and Metaspace make of a text. The wanted tokens are
 * those of the package tokenizers 0.23.3. Where it fails or chooses at random, the file is
 * rejected. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runner/base/run_files.h"
#include "runner/ingest/tokenizer.h"
#include "tests/support/must.h"

/* U+0958 decomposes into U+0915 and U+093C, and NFC leaves it so. */
#define KA "\u0915"
#define NUKTA "\u093c"
#define QA "\u0958"
#define VOCAB "\"\u2581\":0,\"X\":1,\"a\":2,\"b\":3,\"c\":4,\"e\":5,\"x\":6,\"y\":7,\" \":8," \
    "\"\\n\":9,\"" KA "\":10,\"" NUKTA "\":11,\"\u0301\":12,\"\u00e9\":13"
#define RAW(id, text, more) "{\"id\":" id ",\"content\":\"" text "\",\"normalized\":false" more "}"
#define NORMAL(id, text, more) "{\"id\":" id ",\"content\":\"" text "\"" more "}"
#define LSTRIP ",\"lstrip\":true"
#define RSTRIP ",\"rstrip\":true"
#define SPECIAL ",\"special\":true"

#define NONE "null"
#define NFC "{\"type\":\"NFC\"}"
#define PREPEND(a) "{\"type\":\"Prepend\",\"prepend\":\"" a "\"}"
#define REPLACE(a, b) "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" a "\"}," \
    "\"content\":\"" b "\"}"
#define STEPS(list) "{\"type\":\"Sequence\",\"normalizers\":[" list "]}"

#define CUT(a) "{\"type\":\"Split\",\"pattern\":{\"String\":\"" a "\"},\"behavior\":\"Isolated\"," \
    "\"invert\":false}"
#define META(mark) "{\"type\":\"Metaspace\",\"replacement\":\"" mark "\"," \
    "\"prepend_scheme\":\"first\",\"split\":false}"
#define FIRST META("\u2581")
#define STAGES(list) "{\"type\":\"Sequence\",\"pretokenizers\":[" list "]}"

static int make_folder(void **state) {
    const char *parent = getenv("TEST_TMP");
    char *folder = malloc(PATH_CAP);
    snprintf(folder, PATH_CAP, "%s/pieces-XXXXXX", parent ? parent : "/tmp");
    *state = folder;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    char path[2 * PATH_CAP];
    snprintf(path, sizeof path, "%s/tokenizer.json", (char *)*state);
    unlink(path);
    rmdir(*state);
    free(*state);
    return 0;
}

/* `tokens`: behind those of VOCAB. */
static enum status open_model(struct tokenizer **t, const char *folder, const char *added,
                              const char *normalizer, const char *pre, const char *settings,
                              const char *tokens, struct err *e) {
    char path[2 * PATH_CAP], text[4096];
    int n = snprintf(text, sizeof text, "{\"version\":\"1.0\",\"added_tokens\":[%s],"
                     "\"normalizer\":%s,\"pre_tokenizer\":%s,\"model\":{\"type\":\"BPE\",%s"
                     "\"vocab\":{" VOCAB "%s},\"merges\":[]}}", added, normalizer, pre, settings,
                     tokens);
    assert_true(n < (int)sizeof text);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    MUST(file_replace(path, text, (size_t)n, E));
    return tokenizer_open(t, path, &(struct tokenizer_options){ 0 }, e);
}

static enum status open_parts(struct tokenizer **t, const char *folder, const char *added,
                              const char *normalizer, const char *pre, struct err *e) {
    return open_model(t, folder, added, normalizer, pre, "", "", e);
}

/* The tokens' texts with a bar between them. */
static void name_tokens(const struct tokenizer *t, const uint32_t *ids, int64_t count, char *out) {
    for (int64_t i = 0; i < count; i++) {
        char *text;
        size_t n;
        MUST(tokenizer_decode(t, &ids[i], 1, false, &text, &n, E));
        out += sprintf(out, "%s%s", i ? "|" : "", text);
        free(text);
    }
}

struct piece_case { const char *added, *normalizer, *pre, *text, *tokens; };

/* The same with and without places, which rise. */
static void check(const char *folder, const struct piece_case *c) {
    const struct byte_range all = { 0, (int64_t)strlen(c->text) };
    struct tokenizer *t;
    struct encoder *x;
    int64_t count;
    MUST(open_parts(&t, folder, c->added, c->normalizer, c->pre, E));
    MUST(encoder_create(&x, t, E));
    for (int placed = 0; placed < 2; placed++) {
        char got[256] = "";
        encoder_clear(x);
        if (placed) MUST(encoder_add_placed(x, c->text, strlen(c->text), &all, 1, E));
        else MUST(encoder_add(x, c->text, strlen(c->text), E));
        const uint32_t *ids = encoder_ids(x, &count), *place = encoder_places(x);
        name_tokens(t, ids, count, got);
        if (strcmp(got, c->tokens) != 0)
            fail_msg("\"%s\" with %s, %s, [%s]\n  ours   %s\n  theirs %s", c->text, c->normalizer,
                     c->pre, c->added, got, c->tokens);
        for (int64_t i = 1; placed && i < count; i++) assert_true(place[i] >= place[i - 1]);
    }
    encoder_destroy(x);
    tokenizer_close(t);
}

/* "first" marks each piece that begins where the original text does, as the package counts. What a
 * normalizer makes of several characters counts as the last of them. What it adds behind a
 * character counts as that one. */
static const struct piece_case MARKED[] = {
    { "", NONE, FIRST, "ab c", "▁|a|b|▁|c" },
    { "", REPLACE("x", ""), FIRST, "xab c", "a|b|▁|c" },
    { "", REPLACE("x", ""), FIRST, "ab xc", "▁|a|b|▁|c" },
    { "", REPLACE("ab", "y"), FIRST, "abc", "y|c" },
    { "", REPLACE("a", "bc"), STAGES(CUT("c") "," FIRST), "ab", "▁|b|▁|c|b" },
    { "", REPLACE("a", "bc"), STAGES(CUT("c") "," FIRST), "ba", "▁|b|b|c" },
    { "", PREPEND("x"), STAGES(CUT("x") "," FIRST), "ab", "▁|x|▁|a|b" },
    { "", STEPS(PREPEND("x") "," REPLACE("x", "")), FIRST, "ab", "▁|a|b" },
    { "", STEPS(PREPEND("x") "," REPLACE("xa", "y")), FIRST, "ab", "▁|y|b" },
    { "", STEPS(PREPEND("xa") "," REPLACE("ab", "y") "," REPLACE("x", "")), FIRST, "b", "▁|y" },
    { "", NFC, STAGES(CUT(NUKTA) "," FIRST), QA "a", "▁|" KA "|▁|" NUKTA "|a" },
    { "", STEPS(PREPEND("e") "," NFC), STAGES(CUT("a") "," FIRST), "\u0301a", "▁|é|a" },
    { "", STEPS(REPLACE("a", QA "e") "," NFC), STAGES(CUT("e") "," CUT(NUKTA) "," FIRST), "ab",
      "▁|" KA "|▁|" NUKTA "|▁|e|b" },
    { "", STEPS(REPLACE("a", QA "e") "," NFC), STAGES(CUT("é") "," CUT(NUKTA) "," FIRST),
      "a\u0301b", "▁|" KA "|▁|" NUKTA "|▁|é|b" },
    { "", NONE, STAGES(FIRST "," CUT("▁") "," META("X")), "ab", "X|▁|X|a|b" },
    { NORMAL("6", "x", ""), REPLACE("a", "xb"), FIRST, "ac", "x|▁|b|c" },
    { NORMAL("14", "<a>", ""), REPLACE("x", ""), FIRST, "xb<a>b", "b|<a>|b" },
    { RAW("14", "<a>", ""), NONE, FIRST, "<a>b", "<a>|b" },
};

/* A token inside the spaces that another one has taken is found, and what follows it is there
 * again. lstrip takes nothing from the other token's spaces, and may leave nothing of this one. */
static const struct piece_case INSIDE[] = {
    { RAW("14", "<a>", RSTRIP) "," RAW("9", "\\n", ""), NONE, NONE, "<a> \n b", "<a>|\n| |b" },
    { RAW("14", "<a>", RSTRIP) "," RAW("9", "\\n", RSTRIP), NONE, NONE, "<a> \n b", "<a>|\n|b" },
    { RAW("14", "<a>", RSTRIP) "," RAW("9", "\\n", LSTRIP RSTRIP), NONE, NONE, "<a> \n b",
      "<a>|b" },
    { RAW("14", "<a>", RSTRIP) "," RAW("15", " x", ""), NONE, NONE, "<a>  xb", "<a>| x|b" },
    { RAW("14", "<a>", RSTRIP) "," RAW("15", " x", LSTRIP), NONE, NONE, "<a>   xb", "<a>| x|b" },
    { RAW("8", " ", RSTRIP), NONE, NONE, "a   b", "a| | | |b" },
    { NORMAL("14", "<a>", RSTRIP) "," NORMAL("9", "\\n", ""), REPLACE("y", " "), NONE, "<a>y\nb",
      "<a>|\n|b" },
    { RAW("14", "<a>", RSTRIP) "," NORMAL("9", "\\n", ""), NONE, NONE, "<a> \n b", "<a>|b" },
    { RAW("14", "<a>", "") "," RAW("14", "<a>", ""), NONE, NONE, "b<a>", "b|<a>" },
};

static void metaspace_marks_what_begins_the_original(void **state) {
    for (size_t i = 0; i < sizeof MARKED / sizeof *MARKED; i++) check(*state, &MARKED[i]);
}

static void added_tokens_are_found_in_the_spaces_of_others(void **state) {
    for (size_t i = 0; i < sizeof INSIDE / sizeof *INSIDE; i++) check(*state, &INSIDE[i]);
}

/* The normalized tokens of a piece are looked for after the other token behind it. */
static void special_tokens_of_both_kinds_are_found_in_their_ranges(void **state) {
    static const char TEXT[] = "<a>b<b><a>b<b>";
    const struct byte_range first = { 0, 7 }, two[] = { { 0, 3 }, { 4, 7 } }, last = { 7, 14 };
    const struct { const struct byte_range *range; int64_t count; const char *tokens; } CASES[] = {
        { two, 2, "<a>|b|<b>|a|b|b" }, { &first, 1, "<a>|b|<b>|a|b|b" },
        { &last, 1, "a|b|b|<a>|b|<b>" },
    };
    struct tokenizer *t;
    struct encoder *x;
    int64_t count;
    MUST(open_parts(&t, *state, NORMAL("14", "<a>", SPECIAL) "," RAW("15", "<b>", SPECIAL), NONE,
                    NONE, E));
    MUST(encoder_create(&x, t, E));
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char got[256] = "";
        encoder_clear(x);
        MUST(encoder_add_placed(x, TEXT, strlen(TEXT), CASES[i].range, CASES[i].count, E));
        const uint32_t *ids = encoder_ids(x, &count);
        name_tokens(t, ids, count, got);
        assert_string_equal(got, CASES[i].tokens);
    }
    encoder_destroy(x);
    tokenizer_close(t);
}

/* With ignore_merges a piece that is a token needs no merges. With Metaspace's "split": false the
 * piece is the whole text, so a word of it is not looked up. */
static void a_word_of_a_piece_is_no_piece(void **state) {
    static const struct { const char *settings, *text, *tokens; } CASES[] = {
        { "\"ignore_merges\":true,", "ab", "\u2581ab" },
        { "\"ignore_merges\":true,", "ab ab", "\u2581|a|b|\u2581|a|b" },
        { "", "ab", "\u2581|a|b" },
        { "", "ab ab", "\u2581|a|b|\u2581|a|b" },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct tokenizer *t;
        struct encoder *x;
        int64_t count;
        char got[256] = "";
        MUST(open_model(&t, *state, "", NONE, FIRST, CASES[i].settings, ",\"\u2581ab\":14", E));
        MUST(encoder_create(&x, t, E));
        MUST(encoder_add(x, CASES[i].text, strlen(CASES[i].text), E));
        const uint32_t *ids = encoder_ids(x, &count);
        name_tokens(t, ids, count, got);
        assert_string_equal(got, CASES[i].tokens);
        encoder_destroy(x);
        tokenizer_close(t);
    }
}

static const struct { const char *added, *normalizer, *words; } REJECTED[] = {
    { RAW("14", "<a>", RSTRIP) "," RAW("9", "\\n", LSTRIP), NONE,
      "the added token 9 is white space with lstrip and without rstrip" },
    { NORMAL("14", "<a>", RSTRIP) "," NORMAL("15", "yy", LSTRIP), REPLACE("y", " "),
      "the added token 15 is white space" },
    { NORMAL("14", "ab", "") "," NORMAL("15", "ax", ""), REPLACE("x", "b"),
      "the normalizer makes \"ab\" of the added tokens 14 and 15" },
    { NORMAL("14", "xx", ""), REPLACE("x", ""),
      "the normalizer leaves nothing of the added token 14" },
    { RAW("14", "<a>", "") "," RAW("14", "<a>", RSTRIP), NONE,
      "added_tokens[1], \"<a>\", is there already with other settings" },
    { RAW("14", "<a>", "") "," RAW("15", "<a>", ""), NONE, "\"<a>\", is there already" },
    { "", PREPEND(""), "normalizer has no text in prepend" },
};

static void what_the_package_cannot_do_is_rejected(void **state) {
    struct tokenizer *t;
    for (size_t i = 0; i < sizeof REJECTED / sizeof *REJECTED; i++)
        MUST_FAIL(ERR_FORMAT, REJECTED[i].words,
                  open_parts(&t, *state, REJECTED[i].added, REJECTED[i].normalizer, NONE, E));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metaspace_marks_what_begins_the_original),
        cmocka_unit_test(added_tokens_are_found_in_the_spaces_of_others),
        cmocka_unit_test(special_tokens_of_both_kinds_are_found_in_their_ranges),
        cmocka_unit_test(a_word_of_a_piece_is_no_piece),
        cmocka_unit_test(what_the_package_cannot_do_is_rejected),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
