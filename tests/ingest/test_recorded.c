/* Exactness: ours makes the ids that the packages tokenizers 0.23.3 and tiktoken 0.14 made. The
 * texts are in many scripts; there is a tokenizer of each family. Decoding is tested too. record.py
 * wrote the files; compare_packages.py compares more with the packages themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "runner/base/run_files.h"
#include "runner/ingest/json_line.h"
#include "runner/ingest/tokenizer.h"
#include "tests/support/must.h"

#define RECORDED "tests/ingest/recorded/"

static const struct { const char *file, *pattern, *ids; } CASES[] = {
    { "gpt2.json", NULL, "gpt2.ids" },
    { "llama3.json", NULL, "llama3.ids" },
    { "qwen2.json", NULL, "qwen2.ids" },
    { "smollm2.json", NULL, "smollm2.ids" },
    { "deepseek.json", NULL, "deepseek.ids" },
    { "mistral.json", NULL, "mistral.ids" },
    { "metaspace.json", NULL, "metaspace.ids" },
    { "tekken.json", NULL, "tekken.ids" },
    { "o200k.json", NULL, "o200k.ids" },
    { "others.json", NULL, "others.ids" },
    { "ranks.tiktoken", "gpt2", "tiktoken_gpt2.ids" },
    { "ranks.tiktoken", "cl100k", "tiktoken_cl100k.ids" },
    { "ranks.tiktoken", "o200k", "tiktoken_o200k.ids" },
};

static char *read_recorded(const char *name, size_t *n) {
    char path[PATH_CAP], *text;
    snprintf(path, sizeof path, RECORDED "%s", name);
    MUST(file_read(path, 1 << 20, &text, n, E));
    return text;
}

/* One line of texts.jsonl against one line of ids; adds the decoded text to the hash. */
static void check_line(const struct tokenizer *t, struct encoder *x, const char *name, int line,
                       const struct bytes *text, const char *want, struct sha256 *sha) {
    int64_t count;
    char *got = calloc(1, 16 * text->count + 256), *decoded;
    size_t n = 0, decoded_n;
    encoder_clear(x);
    MUST(encoder_begin(x, E));
    MUST(encoder_add(x, (const char *)text->bytes, text->count, E));
    MUST(encoder_end(x, E));
    const uint32_t *ids = encoder_ids(x, &count);
    for (int64_t i = 0; i < count; i++)
        n += (size_t)sprintf(got + n, "%s%u", i ? " " : "", ids[i]);
    if (strcmp(got, want) != 0)
        fail_msg("%s, text %d: \"%.*s\"\n  ours   %s\n  theirs %s", name, line, (int)text->count,
                 (const char *)text->bytes, got, want);
    MUST(tokenizer_decode(t, ids, count, false, &decoded, &decoded_n, E));
    sha256_add(sha, decoded, decoded_n);
    sha256_add(sha, "\n", 1);
    free(decoded);
    free(got);
}

static void recorded_ids_are_ours(void **state) {
    (void)state;
    size_t texts_n, ids_n;
    char *texts = read_recorded("texts.jsonl", &texts_n);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char path[PATH_CAP], digest[SHA256_HEX], *ids = read_recorded(CASES[i].ids, &ids_n);
            struct tokenizer *t;
        struct encoder *x;
        struct sha256 *sha;
        struct bytes text = { 0 };
        int line = 0;
        snprintf(path, sizeof path, RECORDED "%s", CASES[i].file);
        MUST(tokenizer_open(&t, path, &(struct tokenizer_options){ CASES[i].pattern, 0, 0 }, E));
        MUST(encoder_create(&x, t, E));
        MUST(sha256_create(&sha, E));
        char *want = ids, *end;
        for (char *p = texts, *next; (next = strchr(p, '\n')); p = next + 1) {
            text.count = 0;
            MUST(json_line_text(p, (size_t)(next - p), "text", &text, E));
            assert_non_null(end = strchr(want, '\n'));
            *end = 0;
            check_line(t, x, CASES[i].ids, ++line, &text, want, sha);
            want = end + 1;
        }
        assert_int_equal(line, 256);
        sha256_finish(sha, digest);
        if (strncmp(digest, want, 64) != 0) fail_msg("%s: decoded texts differ", CASES[i].ids);
        sha256_destroy(sha);
        encoder_destroy(x);
        tokenizer_close(t);
        free(text.bytes);
        free(ids);
    }
    free(texts);
}

/* A plain text may be cut where tokenizer_cut() says: the parts' ids are the whole's. */
static void parts_are_the_whole(void **state) {
    (void)state;
    static const char TEXT[] =
        "One  two\n\nthree, 12345 four's\n \n five!\n\nsix\xe4\xb8\xad\xe6\x96\x87\n"
        "\xe6\x96\x87\xe5\xad\x97 don't\n seven\xc2\xa0 eight\xff nine\n"
        "\xcc\x81ten \xd9\x85\xd9\x86"
        "\r\nA. <|im_end|> B\n\n\nc 'S x' re'LL\t y  \n z ok";
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char path[PATH_CAP];
            struct tokenizer *t;
        struct encoder *x;
        int64_t count, parts_count;
        snprintf(path, sizeof path, RECORDED "%s", CASES[i].file);
        MUST(tokenizer_open(&t, path, &(struct tokenizer_options){ CASES[i].pattern, 0, 0 }, E));
        MUST(encoder_create(&x, t, E));
        bool cut = tokenizer_may_cut(t);
        bool marks = strstr(CASES[i].file, "m") == CASES[i].file; /* mistral, metaspace */
        assert_int_equal(cut, !marks && strcmp(CASES[i].file, "o200k.json") != 0 &&
                                  strcmp(CASES[i].file, "others.json") != 0);
        MUST(encoder_add(x, TEXT, sizeof TEXT - 1, E));
        uint32_t *whole = malloc(sizeof TEXT * 16);
        const uint32_t *all = encoder_ids(x, &count);
        memcpy(whole, all, (size_t)count * sizeof *whole);
        for (size_t n = 8, places = 0; cut && n < sizeof TEXT; n++) {
            size_t at = tokenizer_cut(t, TEXT, n);
            encoder_clear(x);
            MUST(encoder_add(x, TEXT, at, E));
            MUST(encoder_add(x, TEXT + at, sizeof TEXT - 1 - at, E));
            const uint32_t *parts = encoder_ids(x, &parts_count);
            if (parts_count != count || memcmp(parts, whole, (size_t)count * sizeof *whole))
                fail_msg("%s differs when it is cut at %zu: \"%.12s\"", CASES[i].ids, at,
                         TEXT + at);
            places += at > 0;
            if (n + 1 == sizeof TEXT) assert_true(places > 100);
        }
        free(whole);
        encoder_destroy(x);
        tokenizer_close(t);
    }
}

/* Special tokens in a text are text when the options say so, as in tiktoken's encode_ordinary. */
static void special_tokens_may_be_text(void **state) {
    (void)state;
    static const char TEXT[] = "a<|im_end|>b<tool_call>";
    int64_t count[2];
    for (int ordinary = 0; ordinary < 2; ordinary++) {
        struct tokenizer *t;
        struct encoder *x;
        MUST(tokenizer_open(&t, RECORDED "qwen2.json",
                            &(struct tokenizer_options){ .ordinary = ordinary != 0 }, E));
        MUST(encoder_create(&x, t, E));
        MUST(encoder_add(x, TEXT, sizeof TEXT - 1, E));
        const uint32_t *ids = encoder_ids(x, &count[ordinary]);
        int64_t special = 0, tool = 0;
        for (int64_t i = 0; i < count[ordinary]; i++) {
            special += (int32_t)ids[i] == tokenizer_id(t, "<|im_end|>");
            tool += (int32_t)ids[i] == tokenizer_id(t, "<tool_call>");
        }
        assert_int_equal(special, !ordinary);
        assert_int_equal(tool, 1); /* added, but not special */
        encoder_destroy(x);
        tokenizer_close(t);
    }
    assert_true(count[1] > count[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_ids_are_ours),
        cmocka_unit_test(parts_are_the_whole),
        cmocka_unit_test(special_tokens_may_be_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
