/* encoder_add_placed: the same ids as encoder_add, and places that rise to the end of the text. If
 * the tokens are the text's own bytes, each place is the sum of their lengths. Special tokens are
 * found only inside the ranges that allow them. */
#include <stdio.h>
#include <stdlib.h>

#include "runner/base/run_files.h"
#include "runner/ingest/json_line.h"
#include "runner/ingest/tokenizer.h"
#include "runner/ingest/unicode.h"
#include "tests/support/must.h"

#define RECORDED "tests/ingest/recorded/"

static struct tokenizer *open_recorded(const char *name) {
    struct tokenizer *t;
    char path[PATH_CAP];
    snprintf(path, sizeof path, strcmp(name, "bytes") ? RECORDED "%s.json" : "%s", name);
    MUST(tokenizer_open(&t, path, &(struct tokenizer_options){ 0 }, E));
    return t;
}

/* The bytes of ids[0..count-1] that are valid UTF-8 at the end are text[0..place-1]. */
static void check_place(const struct tokenizer *t, const uint32_t *ids, int64_t count,
                        const uint8_t *text, uint32_t place) {
    char *decoded;
    size_t n;
    if (utf8_valid(text, place) < place) return; /* inside a character */
    MUST(tokenizer_decode(t, ids, count, false, &decoded, &n, E));
    assert_int_equal(n, place);
    assert_memory_equal(decoded, text, n);
    free(decoded);
}

static void check_text(const struct tokenizer *t, struct encoder *x, bool own_bytes,
                       const struct bytes *text) {
    const struct byte_range all = { 0, (int64_t)text->count };
    int64_t count, placed;
    encoder_clear(x);
    MUST(encoder_add(x, (const char *)text->bytes, text->count, E));
    const uint32_t *ids = encoder_ids(x, &count);
    uint32_t *plain = malloc((size_t)count * sizeof *plain + 1);
    memcpy(plain, ids, (size_t)count * sizeof *plain);
    encoder_clear(x);
    MUST(encoder_add_placed(x, (const char *)text->bytes, text->count, &all, 1, E));
    ids = encoder_ids(x, &placed);
    const uint32_t *place = encoder_places(x);
    assert_int_equal(placed, count);
    assert_memory_equal(ids, plain, (size_t)count * sizeof *ids);
    for (int64_t i = 0; i < count; i++) {
        assert_true(place[i] >= (i ? place[i - 1] : 1) && place[i] <= text->count);
        if (own_bytes) check_place(t, ids, i + 1, text->bytes, place[i]);
    }
    if (count && own_bytes) assert_int_equal(place[count - 1], text->count);
    free(plain);
}

static void places_rise_to_the_end(void **state) {
    static const struct { const char *name; bool own_bytes; } CASES[] = {
        { "bytes", true },     { "gpt2", true },     { "llama3", true }, { "smollm2", true },
        { "deepseek", true },  { "tekken", true },   { "qwen2", false }, { "mistral", false },
        { "metaspace", false }, { "o200k", false },  { "others", false },
    };
    char *texts;
    size_t n;
    (void)state;
    MUST(file_read(RECORDED "texts.jsonl", 1 << 20, &texts, &n, E));
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct tokenizer *t = open_recorded(CASES[i].name);
        struct encoder *x;
        struct bytes text = { 0 };
        MUST(encoder_create(&x, t, E));
        for (char *line = texts, *end; (end = strchr(line, '\n')); line = end + 1) {
            text.count = 0;
            MUST(json_line_text(line, (size_t)(end - line), "text", &text, E));
            check_text(t, x, CASES[i].own_bytes, &text);
        }
        encoder_destroy(x);
        tokenizer_close(t);
        free(text.bytes);
    }
    free(texts);
}

/* The ids and places of a text, as "id@place". */
static void expect_placed(const char *name, const char *text, const struct byte_range *control,
                          int64_t ranges, const char *wanted) {
    struct tokenizer *t = open_recorded(name);
    struct encoder *x;
    int64_t count;
    char got[256] = "";
    MUST(encoder_create(&x, t, E));
    MUST(encoder_add_placed(x, text, strlen(text), control, ranges, E));
    const uint32_t *ids = encoder_ids(x, &count), *place = encoder_places(x);
    for (int64_t i = 0, n = 0; i < count; i++)
        n += snprintf(got + n, sizeof got - (size_t)n, "%s%u@%u", i ? " " : "", ids[i], place[i]);
    assert_string_equal(got, wanted);
    encoder_destroy(x);
    tokenizer_close(t);
}

static void special_tokens_are_found_where_they_may(void **state) {
    (void)state;
    const struct byte_range second = { 4, 7 }, inside = { 5, 7 }, third[] = { { 0, 3 }, { 8, 11 } };
    expect_placed("metaspace", "<s>x<s>", &second, 1, "472@1 291@1 343@2 293@3 348@4 1@7");
    expect_placed("metaspace", "<s>x<s>", &inside, 1,
                  "472@1 291@1 343@2 293@3 348@4 291@5 343@6 293@7");
    expect_placed("metaspace", "<s>x<s>y<s>", third, 2,
                  "1@3 348@4 291@5 343@6 293@7 349@8 1@11");
    /* <tool_call> is no special token. NFC joins o and U+0308: the token ends behind both. */
    expect_placed("qwen2", "<tool_call>", NULL, 0, "698@11");
    expect_placed("qwen2", "no\xcc\x88 a", NULL, 0, "77@1 127@4 114@4 286@6");
}

static void bad_text_is_an_error(void **state) {
    struct tokenizer *t = open_recorded("gpt2");
    struct encoder *x;
    (void)state;
    MUST(encoder_create(&x, t, E));
    MUST_FAIL(ERR_FORMAT, "byte 1 of the text is not UTF-8",
              encoder_add_placed(x, "a\xff", 2, NULL, 0, E));
    MUST(encoder_add_placed(x, "", 0, NULL, 0, E));
    encoder_destroy(x);
    tokenizer_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_rise_to_the_end),
        cmocka_unit_test(special_tokens_are_found_where_they_may),
        cmocka_unit_test(bad_text_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
