/* Damaged tokenizer files. Each field broken in turn is an error that names the file and the place.
 * Random damage is accepted or an error, never a crash. CONFIG=asan is where this counts. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "runner/base/run_files.h"
#include "runner/ingest/json_line.h"
#include "runner/ingest/tokenizer.h"
#include "tests/support/must.h"

#define RECORDED "tests/ingest/recorded/"
enum { ROUNDS = 400, LINES = 4000 };

static int make_folder(void **state) {
    const char *parent = getenv("TEST_TMP");
    char *folder = malloc(PATH_CAP);
    snprintf(folder, PATH_CAP, "%s/ingest-XXXXXX", parent ? parent : "/tmp");
    *state = folder;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    char path[2 * PATH_CAP];
    snprintf(path, sizeof path, "%s/tokenizer.json", (char *)*state);
    unlink(path);
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", (char *)*state, i ? "ranks.tiktoken" : "good.json");
        unlink(path);
    }
    rmdir(*state);
    free(*state);
    return 0;
}

/* Opens the text as a file of this name. */
static enum status open_text(const char *folder, const char *name, const char *text, size_t n,
                             struct err *e) {
    char path[2 * PATH_CAP];
    const struct tokenizer_options o = { .pattern = strstr(name, "json") ? NULL : "llama3" };
    struct tokenizer *t = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    MUST(file_replace(path, text, n, E));
    enum status st = tokenizer_open(&t, path, &o, e);
    tokenizer_close(t);
    return st;
}

/* In `file`, `find` is replaced; the error must have the words. */
static const struct { const char *file, *find, *put, *words; } DAMAGE[] = {
    { "llama3", "{\"version\":\"1.0\"", "[\"version\"", "" },
    { "llama3", "\"1.0\"", "\"2.0\"", "version is \"2.0\"; 1.0 is known" },
    { "llama3", "\"1.0\"", "1.0", "version is a number; a text belongs there" },
    { "llama3", "\"truncation\"", "\"trunk\"", "the file.trunk is a setting" },
    { "llama3", "\"added_tokens\":[", "\"added_tokens\":7,\"padding\":[", ":1: no JSON" },
    { "llama3", "\"id\":697", "\"id\":9223372036854775808", ":1: no JSON: too big integer" },
    { "llama3", "\"id\":697", "\"id\":9223372036854775807", "would give it 697" },
    { "llama3", "\"id\":697", "\"id\":-1",
      "added_tokens[0], \"<|begin_of_text|>\", has the id -1" },
    { "llama3", "\"id\":697", "\"id\":\"x\"", "added_tokens[0] needs a content" },
    { "llama3", "\"id\":698", "\"id\":700", "has the id 700, and the package tokenizers" },
    { "llama3", "\"content\":\"<|eot_id|>\"", "\"content\":\"\"",
      "added_tokens[2] needs a content" },
    { "llama3", "\"content\":\"<|eot_id|>\"", "\"content\":[]",
      "added_tokens[2].content is an array" },
    { "llama3", "\"single_word\":false", "\"single_word\":true", "single_word, which fp8lab" },
    { "llama3", "\"lstrip\":false", "\"lstrip\":0", "added_tokens[0].lstrip is a whole number" },
    { "llama3", "\"rstrip\"", "\"rtrip\"", "added_tokens[0].rtrip is a setting" },
    { "llama3", "\"normalizer\":null", "\"normalizer\":3", "normalizer is not an object" },
    { "llama3", "\"normalizer\":null", "\"normalizer\":{}", "normalizer has no type" },
    { "llama3", "\"normalizer\":null", "\"normalizer\":{\"type\":\"Lowercase\"}",
      "normalizer asks for Lowercase, which fp8lab does not know; it knows NFC" },
    { "llama3", "\"normalizer\":null", "\"normalizer\":{\"type\":\"NFC\",\"x\":1}",
      "normalizer.x" },
    { "mistral", "\"prepend\":\"▁\"", "\"prepend\":1", "normalizers[0].prepend is a whole number" },
    { "mistral", "{\"String\":\" \"}", "{\"String\":\"\"}", "normalizers[1].pattern is no" },
    { "mistral", "{\"String\":\" \"}", "{\"Regex\":\" \"}", "Replace by a Regex" },
    { "mistral", "\"content\":\"▁\"", "\"content\":null", "normalizers[1] has no text in content" },
    { "llama3", "\"pretokenizers\":[{\"type\":\"Split\"", "\"pretokenizers\":[{\"type\":\"Punct\"",
      "pre_tokenizer.pretokenizers[0] asks for Punct" },
    { "llama3", "\"pretokenizers\":[", "\"pretokenizers\":{},\"x\":[", "pre_tokenizer.x" },
    { "llama3", "\"Regex\":\"(?i", "\"Regex\":\"((?i", "pretokenizers[0].pattern: the regular" },
    { "llama3", "\"Regex\"", "\"Wrong\"", "pretokenizers[0].Wrong is a setting" },
    { "llama3", "\"behavior\":\"Isolated\"", "\"behavior\":\"Gone\"", "asks for Gone" },
    { "llama3", "\"invert\":false", "\"invert\":\"no\"", "pretokenizers[0].invert is a text" },
    { "llama3", "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
      "\"use_regex\":false}]", "{\"type\":\"ByteLevel\"},{\"type\":\"Digits\"}]",
      "pretokenizers[1], ByteLevel, is not the last" },
    { "metaspace", "\"prepend_scheme\":\"first\"", "\"prepend_scheme\":\"last\"", "asks for last" },
    { "metaspace", "\"replacement\":\"▁\"", "\"replacement\":\"ab\"",
      "one character belongs there" },
    { "metaspace", "\"replacement\":\"▁\"", "\"replacement\":\"\"", "one character belongs there" },
    { "llama3", "\"type\":\"TemplateProcessing\"", "\"type\":\"BertProcessing\"",
      "post_processor asks for BertProcessing" },
    { "llama3", "\"ids\":[697]", "\"ids\":[7000]", "an id that no token has" },
    { "llama3", "\"ids\":[697]", "\"ids\":[-1]", "an id that no token has" },
    { "llama3", "\"ids\":[697]", "\"ids\":697", "post_processor.special_tokens has no ids" },
    { "llama3", "\"single\":[{\"SpecialToken\"", "\"single\":[{\"Special\"",
      "single[0] is neither" },
    { "llama3", "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\"", "5],\"pair\"",
      "single[1] is neither" },
    { "llama3", "\"decoder\":{\"type\":\"ByteLevel\"", "\"decoder\":{\"type\":\"WordPiece\"",
      "decoder asks for WordPiece" },
    { "mistral", "\"start\":1", "\"start\":-1", "decoders[3].start is not a whole number" },
    { "mistral", "\"decoders\":[", "\"decoders\":null,\"x\":[", "decoder.x is a setting" },
    { "llama3", "\"model\":{", "\"model\":5,\"version\":{", "no JSON" },
    { "llama3", "\"model\":{\"type\":\"BPE\"", "\"model\":{\"type\":\"Unigram\"",
      "model.type is \"Unigram\"; only BPE" },
    { "llama3", "\"dropout\":null", "\"dropout\":0.1", "model.dropout is set" },
    { "llama3", "\"unk_token\":null", "\"unk_token\":\"nowhere\"",
      "model.unk_token is \"nowhere\"" },
    { "llama3", "\"continuing_subword_prefix\":null", "\"continuing_subword_prefix\":\"##\"",
      "model.continuing_subword_prefix is \"##\"" },
    { "llama3", "\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"",
      "model.end_of_word_suffix is \"</w>\"" },
    { "llama3", "\"fuse_unk\":false", "\"fuse_unk\":1", "model.fuse_unk is a whole number" },
    { "llama3", "\"ignore_merges\":true", "\"ignore_merges\":{}",
      "model.ignore_merges is an object" },
    { "llama3", "\"ignore_merges\"", "\"ignore_merge\"", "model.ignore_merge is a setting" },
    { "llama3", "\"vocab\":{\"!\":0", "\"vocab\":{\"!\":\"0\"", "model.vocab[\"!\"] is a text" },
    { "llama3", "\"vocab\":{\"!\":0", "\"vocab\":{\"!\":-5",
      "gives \"!\" the id -5; ids are 0 to" },
    { "llama3", "\"vocab\":{\"!\":0", "\"vocab\":{\"!\":4194304", "gives \"!\" the id 4194304" },
    { "llama3", "\"vocab\":{\"!\":0", "\"vocab\":{\"!\":1", "gives the id 1 to" },
    { "llama3", "\"vocab\":{\"!\":0", "\"vocab\":{\"!\":0,\"!\":0", "duplicate object key" },
    { "llama3", "\"vocab\":{", "\"vocab\":[],\"merges\":{", "duplicate object key" },
    { "llama3", "\"merges\":[[", "\"merges\":5,\"x\":[[", "model.x is a setting" },
    { "llama3", "\"merges\":[[\"Ġ\",\"Ġ\"]", "\"merges\":[[\"Ġ\",\"nowhere\"]",
      "model.merges[0] names \"nowhere\"" },
    { "llama3", "\"merges\":[[\"Ġ\",\"Ġ\"]", "\"merges\":[[\"!\",\"#\"]",
      "merges[0] makes \"!#\"" },
    { "llama3", "\"merges\":[[\"Ġ\",\"Ġ\"]", "\"merges\":[[\"Ġ\"]", "merges[0] is not two tokens" },
    { "llama3", "\"merges\":[[\"Ġ\",\"Ġ\"]", "\"merges\":[\"a b c\"",
      "merges[0] is not two tokens" },
    { "llama3", "\"merges\":[[\"Ġ\",\"Ġ\"]", "\"merges\":[7", "merges[0] is not two tokens" },
};

static void each_field_broken_is_named(void **state) {
    for (size_t i = 0; i < sizeof DAMAGE / sizeof *DAMAGE; i++) {
        char path[PATH_CAP], *text, *at;
        size_t n;
        struct err e = { 0 };
        snprintf(path, sizeof path, RECORDED "%s.json", DAMAGE[i].file);
        MUST(file_read(path, 1 << 20, &text, &n, E));
        at = strstr(text, DAMAGE[i].find);
        if (!at) fail_msg("%s.json has no %s", DAMAGE[i].file, DAMAGE[i].find);
        char *broken = malloc(n + 200);
        int length = sprintf(broken, "%.*s%s%s", (int)(at - text), text, DAMAGE[i].put,
                             at + strlen(DAMAGE[i].find));
        enum status st = open_text(*state, "tokenizer.json", broken, (size_t)length, &e);
        if (st != ERR_FORMAT || !strstr(e.text, "tokenizer.json") ||
            !strstr(e.text, DAMAGE[i].words))
            fail_msg("%s for %s: %s \"%s\"; wanted \"%s\"", DAMAGE[i].put, DAMAGE[i].find,
                     status_name(st), e.text, DAMAGE[i].words);
        free(broken);
        free(text);
    }
}

/* Older files have "" where newer ones have null, and no type. */
static void an_older_file_is_read(void **state) {
    static const char TEXT[] =
        "{\"version\":\"1.0\",\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{"
        "\"unk_token\":\"\",\"continuing_subword_prefix\":\"\",\"end_of_word_suffix\":\"\","
        "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}";
    struct err e;
    enum status st = open_text(*state, "tokenizer.json", TEXT, sizeof TEXT - 1, &e);
    if (st != OK) fail_msg("%s", e.text);
}

/* The settings of a batch may be absent, and the name may be any. */
static void a_tokenizer_has_any_name(void **state) {
    static const char TEXT[] =
        "{\"version\":\"1.0\",\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{"
        "\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}";
    static const char LINE[] = "{\"model\":\"x\",\"text\":\"\\\"vocab\\\"\"}\n";
    enum tokenizer_kind kind;
    char path[2 * PATH_CAP];
    struct err e = { 0 };
    snprintf(path, sizeof path, "%s/good.json", (char *)*state);
    if (open_text(*state, "good.json", TEXT, sizeof TEXT - 1, &e) != OK) fail_msg("%s", e.text);
    MUST(tokenizer_find(path, &kind, E));
    assert_int_equal(kind, TOKENIZER_JSON);
    /* Lines of text with a key `model` are text, unless the user calls them a tokenizer. */
    assert_int_equal(open_text(*state, "good.json", LINE, sizeof LINE - 1, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "good.json"));
    MUST(tokenizer_find(path, &kind, E));
    assert_int_equal(kind, TOKENIZER_BYTES);
}

static void an_empty_side_of_a_merge_is_no_cycle(void **state) {
    static const char TEXT[] =
        "{\"version\":\"1.0\",\"model\":{\"vocab\":{\"a\":0,\"\":1},\"merges\":[[\"a\",\"\"]]}}";
    struct err e;
    assert_int_equal(open_text(*state, "tokenizer.json", TEXT, sizeof TEXT - 1, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "model.merges[0] has an empty side"));
}

static const struct { const char *find, *put, *words; } RANKS[] = {
    { "Ig== 1\n", "Ig== x\n", "ranks.tiktoken:2: \"Ig== x\" is not a token" },
    { "Ig== 1\n", "Ig==\n", "ranks.tiktoken:2: \"Ig==\" is not a token" },
    { "Ig== 1\n", "I=g= 1\n", "is not a token" },
    { "Ig== 1\n", "Ig 1\n", "is not a token" },
    { "Ig== 1\n", "Ig== 9223372036854775808\n", "a rank from 0 to" },
    { "Ig== 1\n", "Ig== -1\n", "is not a token" },
    { "Ig== 1\n", "Ig== 0\n", "ranks.tiktoken:2: the rank 0 is already another token's" },
    { "Ig== 1\n", "IQ== 1\n", "the ranks 0 and 1 are the same token" },
    { "Ig== 1\n", "", "the byte 34 is not a token of its own" },
};

static void each_broken_rank_is_named(void **state) {
    char *text, *at;
    size_t n;
    MUST(file_read(RECORDED "ranks.tiktoken", 1 << 20, &text, &n, E));
    for (size_t i = 0; i < sizeof RANKS / sizeof *RANKS; i++) {
        struct err e = { 0 };
        char *broken = malloc(n + 200);
        assert_non_null(at = strstr(text, RANKS[i].find));
        int length = sprintf(broken, "%.*s%s%s", (int)(at - text), text, RANKS[i].put,
                             at + strlen(RANKS[i].find));
        enum status st = open_text(*state, "ranks.tiktoken", broken, (size_t)length, &e);
        if (st != ERR_FORMAT || !strstr(e.text, RANKS[i].words))
            fail_msg("%s: %s \"%s\"; wanted \"%s\"", RANKS[i].put, status_name(st), e.text,
                     RANKS[i].words);
        free(broken);
    }
    free(text);
}

/* ---- random damage ------------------------------------------------------------------------- */

static uint64_t draw(uint64_t *state) { /* xorshift64* */
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1du;
}


/* A few bytes are changed, cut out or doubled. Returns the new length; `text` has room for 64
 * more. */
static size_t damage(char *text, size_t n, uint64_t *state) {
    static const char BYTES[] = "\"{}[]:,0123456789-.\\eu \n\xff\xc3\x80nultrfa";
    for (int edits = 1 + (int)(draw(state) % 4); edits > 0 && n > 40; edits--) {
        size_t at = draw(state) % (n - 32), run = 1 + draw(state) % 16;
        switch (draw(state) % 4) {
        case 0: text[at] ^= (char)(1 << (draw(state) % 8)); break;
        case 1: text[at] = BYTES[draw(state) % (sizeof BYTES - 1)]; break;
        case 2:
            memmove(text + at, text + at + run, n - at - run);
            n -= run;
            break;
        default: memmove(text + at + run, text + at, 16);
        }
    }
    if (draw(state) % 16 == 0) n = draw(state) % n;
    text[n] = 0;
    return n;
}

/* A tokenizer that is accepted must encode and decode anything. */
static void use(const char *path, uint64_t *state) {
    const struct tokenizer_options o = { .pattern = strstr(path, "json") ? NULL : "o200k" };
    struct tokenizer *t;
    struct encoder *x;
    struct err e;
    char text[600], *decoded;
    int64_t count;
    size_t n;
    if (tokenizer_open(&t, path, &o, &e) != OK) return;
    MUST(encoder_create(&x, t, E));
    for (int i = 0; i < 20; i++) {
        size_t length = draw(state) % sizeof text;
        for (size_t k = 0; k < length; k++)
            text[k] = (char)(draw(state) % 3 ? draw(state) % 128 : draw(state) % 256);
        encoder_clear(x);
        assert_true(tokenizer_cut(t, text, length) < sizeof text);
        if (encoder_begin(x, &e) != OK || encoder_add(x, text, length, &e) != OK) continue;
        const uint32_t *ids = encoder_ids(x, &count);
        if (tokenizer_decode(t, ids, count, true, &decoded, &n, &e) == OK) free(decoded);
    }
    encoder_destroy(x);
    tokenizer_close(t);
}

static void random_damage_is_no_crash(void **state) {
    static const char *const FILES[] = { "llama3.json", "mistral.json", "metaspace.json",
                                         "others.json", "qwen2.json", "ranks.tiktoken" };
    uint64_t seed = 0x5eed;
    for (int round = 0; round < ROUNDS; round++) {
        const char *name = FILES[round % 6];
        char path[2 * PATH_CAP], *text, *copy;
        size_t n;
        snprintf(path, sizeof path, RECORDED "%s", name);
        MUST(file_read(path, 1 << 20, &text, &n, E));
        copy = malloc(n + 65);
        memcpy(copy, text, n + 1);
        free(text);
        /* Half of the damage hits what stands before the vocabulary. */
        char *vocab = strstr(copy, "\"vocab\"");
        if (vocab && round % 2) {
            size_t head = (size_t)(vocab - copy), left = n - head;
            char *tail = malloc(left + 1);
            memcpy(tail, vocab, left + 1);
            head = damage(copy, head, &seed);
            memcpy(copy + head, tail, left + 1);
            n = head + left;
            free(tail);
        } else {
            n = damage(copy, n, &seed);
        }
        snprintf(path, sizeof path, "%s/%s", (char *)*state,
                 strstr(name, "json") ? "tokenizer.json" : name);
        MUST(file_replace(path, copy, n, E));
        free(copy);
        use(path, &seed);
    }
}

static void random_lines_are_no_crash(void **state) {
    static const char LINE[] = "{\"id\": 12, \"a\": [1, {\"b\": null}, -1.5e3, true, NaN], "
                               "\"text\": \"x\\u00e9\\ud83d\\ude00\\n\\\\ \xc3\xa9\", \"z\": \"\"}";
    struct bytes out = { 0 };
    uint64_t seed = 0x11e5;
    int good = 0;
    (void)state;
    for (int round = 0; round < LINES; round++) {
        struct err e;
        char *copy = malloc(sizeof LINE + 64);
        memcpy(copy, LINE, sizeof LINE);
        size_t n = round ? damage(copy, sizeof LINE - 1, &seed) : sizeof LINE - 1;
        char *exact = malloc(n + 1); /* so that a read behind it is found */
        memcpy(exact, copy, n);
        exact = realloc(exact, n ? n : 1);
        out.count = 0;
        if (json_line_text(exact, n, "text", &out, &e) == OK) good++;
        free(exact);
        free(copy);
        if (round == 0) {
            assert_int_equal(good, 1);
            assert_int_equal(out.count, 12);
            assert_memory_equal(out.bytes, "x\xc3\xa9\xf0\x9f\x98\x80\n\\ \xc3\xa9", 12);
        }
    }
    assert_in_range(good, 100, LINES - 100);
    free(out.bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_field_broken_is_named, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(an_empty_side_of_a_merge_is_no_cycle, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(a_tokenizer_has_any_name, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(an_older_file_is_read, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(each_broken_rank_is_named, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(random_damage_is_no_crash, make_folder, remove_folder),
        cmocka_unit_test(random_lines_are_no_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
