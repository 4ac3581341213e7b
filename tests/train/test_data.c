/* Token files: the tokens, their order, and the errors for damaged files. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "model/data.h"
#include "model/ground/sha256.h"
#include "tests/support/must.h"
#include "tests/support/tiny.h"

static char DIR[64]; /* of this test program only */

static int make_directory(void **state) {
    strcpy(DIR, "/tmp/fp8lab-data-XXXXXX");
    return mkdtemp(DIR) ? 0 : -1;
}

static int remove_directory(void **state) { return rmdir(DIR); }

static const char *path_of(const char *name) {
    static char path[4][128];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", DIR, name);
    return path[next];
}

static void put(const char *name, const void *bytes, size_t n) {
    FILE *f = fopen(path_of(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void drop(const char *name) { assert_int_equal(unlink(path_of(name)), 0); }

static struct data_options options(enum data_kind kind, const char *const *path) {
    struct data_options o = { .kind = kind, .paths = path, .path_count = 1 };
    return o;
}

/* ---- text ---- */

static void text_windows(void **state) {
    unsigned char text[64];
    for (int i = 0; i < 64; i++) text[i] = (unsigned char)i;
    put("a.txt", text, 20);
    put("empty.txt", text, 0);
    put("b.txt", text + 20, 44);
    const char *paths[3];
    char copy[3][128];
    for (int i = 0; i < 3; i++)
        paths[i] = strcpy(copy[i], path_of(i == 0 ? "a.txt" : i == 1 ? "empty.txt" : "b.txt"));
    struct data_options o = { .kind = DATA_TEXT, .paths = paths, .path_count = 3, .holdout = 0.25 };
    struct data *d;
    MUST(data_open(&d, &o, 256, 5, 1, E));
    assert_int_equal(data_sequences(d, SPLIT_TRAIN), 9); /* 48 tokens: 9 of 5 and a last target */
    assert_int_equal(data_sequences(d, SPLIT_EVAL), 3);  /* 16 tokens */
    int32_t tokens[4 * 5], targets[4 * 5];
    MUST(data_batch(d, SPLIT_EVAL, 0, 4, tokens, targets, NULL, E));
    for (int i = 0; i < 15; i++) {
        assert_int_equal(tokens[i], 48 + i);
        assert_int_equal(targets[i], 49 + i);
    }
    for (int i = 15; i < 20; i++) { /* padding: the last sequence again, without targets */
        assert_int_equal(tokens[i], tokens[i - 5]);
        assert_int_equal(targets[i], -1);
    }
    data_close(d);
    drop("a.txt");
    drop("empty.txt");
    drop("b.txt");
}

/* All tokens but the first are targets once, over the ends of files too. */
static void all_is_evaluated(void **state) {
    enum { T = 5, N = 3 };
    unsigned char text[64];
    for (int i = 0; i < 64; i++) text[i] = (unsigned char)i;
    for (int count = 2; count <= 12; count++) {
        const char *paths[2];
        char copy[2][128];
        put("a.txt", text, 1);
        put("b.txt", text + 1, (size_t)count - 1);
        for (int i = 0; i < 2; i++) paths[i] = strcpy(copy[i], path_of(i ? "b.txt" : "a.txt"));
        struct data_options o = { .kind = DATA_TEXT, .paths = paths, .path_count = 2,
                                  .eval_only = true };
        struct data *d;
        int32_t tokens[N * T], targets[N * T], sequences = (count - 1 + T - 1) / T;
        int64_t counted;
        MUST(data_open(&d, &o, 256, T, 1, E));
        assert_int_equal(data_sequences(d, SPLIT_EVAL), sequences);
        assert_int_equal(data_sequences(d, SPLIT_TRAIN), 0);
        MUST(data_count(d, SPLIT_EVAL, 0, sequences, &counted, E));
        assert_int_equal(counted, count - 1);
        for (int i = 0; i < N * T; i++) targets[i] = 99; /* all must be written */
        MUST(data_batch(d, SPLIT_EVAL, 0, N, tokens, targets, NULL, E));
        for (int i = 0; i < N * T; i++) {
            assert_int_equal(targets[i], i < count - 1 ? i + 1 : -1);
            if (i < count - 1) assert_int_equal(tokens[i], i);
        }
        MUST_FAIL(ERR_STATE, "no sequence", data_batch(d, SPLIT_TRAIN, 0, 1, tokens, targets, NULL,
                                                       E));
        data_close(d);
    }
    put("b.txt", text, 0);
    const char *path = path_of("b.txt");
    struct data_options o = options(DATA_TEXT, &path);
    struct data *d;
    o.eval_only = true;
    MUST_FAIL(ERR_CONFIG, "0 tokens; to evaluate takes at least two",
              data_open(&d, &o, 256, T, 1, E));
    drop("a.txt");
    drop("b.txt");
}

/* A model would learn the bytes of an archive without an error. */
static void packed_text(void **state) {
    static const struct { size_t at; const char *bytes, *kind; } PACKED[] = {
        { 0, "\x1f\x8b\x08", "is a gzip file" },     { 0, "\x28\xb5\x2f\xfd", "is a zstd file" },
        { 0, "PK\x03\x04", "is a zip file" },        { 4, "1AY&SY", "is a bzip2 file" },
        { 0, "\xfd" "7zXZ", "is an xz file" },        { 257, "ustar", "is a tar file" },
        { 257, "ustar  ", "is a tar file" },          { 0, "PAR1", "is a Parquet file" },
    };
    unsigned char text[300];
    const char *path = path_of("a.txt");
    struct data_options o = options(DATA_TEXT, &path);
    struct data *d;
    (void)state;
    for (size_t i = 0; i < sizeof PACKED / sizeof *PACKED; i++) {
        memset(text, 'a', sizeof text);
        memcpy(text + PACKED[i].at, PACKED[i].bytes, strlen(PACKED[i].bytes) + 1);
        put("a.txt", text, sizeof text);
        MUST_FAIL(ERR_FORMAT, PACKED[i].kind, data_open(&d, &o, 256, 5, 1, E));
    }
    memset(text, 'a', sizeof text);
    memcpy(text + 257, "ustart", 6); /* a word of a text, as in a page about tar */
    put("a.txt", text, sizeof text);
    MUST(data_open(&d, &o, 256, 5, 1, E));
    data_close(d);
    drop("a.txt");
}

/* ---- reads ---- */

/* Byte ranges of files that were read, in order. */
static struct touched {
    bool on;
    struct { off_t at; size_t n; } read[64];
    int reads;
} touched; /* of this test program only */

/* Replaces the C library's function. */
ssize_t pread(int fd, void *out, size_t n, off_t at) {
    ssize_t (*real)(int, void *, size_t, off_t);
    *(void **)&real = dlsym(RTLD_NEXT, "pread");
    if (touched.on && touched.reads < 64) {
        touched.read[touched.reads].at = at;
        touched.read[touched.reads++].n = n;
    }
    return real(fd, out, n, at);
}

static void a_sequence_is_read_once(void **state) {
    enum { T = 100, BATCH = 3 };
    unsigned char text[1001];
    for (int i = 0; i < 1001; i++) text[i] = (unsigned char)(i * 7);
    put("t.txt", text, sizeof text);
    const char *path = path_of("t.txt");
    struct data_options o = options(DATA_TEXT, &path);
    struct data *d;
    int32_t tokens[BATCH * T], targets[BATCH * T];
    MUST(data_open(&d, &o, 256, T, 1, E));
    touched = (struct touched){ .on = true };
    MUST(data_batch(d, SPLIT_TRAIN, 4, BATCH, tokens, targets, NULL, E));
    touched.on = false;
    assert_int_equal(touched.reads, BATCH);
    for (int i = 0; i < BATCH; i++) {
        assert_int_equal(touched.read[i].n, T + 1);
        const unsigned char *at = text + touched.read[i].at;
        for (int k = 0; k < T; k++) {
            assert_int_equal(tokens[i * T + k], at[k]);
            assert_int_equal(targets[i * T + k], at[k + 1]);
        }
    }
    data_close(d);
    drop("t.txt");
}

/* ---- order: each epoch visits every sequence once, in its own order, from any position ---- */

static void epochs_are_permutations(void **state) {
    unsigned char text[201];
    for (int i = 0; i < 201; i++) text[i] = (unsigned char)i;
    put("t.txt", text, sizeof text);
    const char *path = path_of("t.txt");
    struct data_options o = options(DATA_TEXT, &path);
    struct data *d, *other;
    MUST(data_open(&d, &o, 256, 4, 1, E));
    MUST(data_open(&other, &o, 256, 4, 2, E));
    assert_int_equal(data_sequences(d, SPLIT_TRAIN), 50);
    int32_t first[2][50], same = 0, as_in_file = 0, as_other_seed = 0;
    for (int epoch = 0; epoch < 2; epoch++) {
        int seen[50] = { 0 };
        for (int i = 0; i < 50; i++) {
            int32_t tokens[4], targets[4], others[4];
            MUST(data_batch(d, SPLIT_TRAIN, epoch * 50 + i, 1, tokens, targets, NULL, E));
            MUST(data_batch(other, SPLIT_TRAIN, epoch * 50 + i, 1, others, targets, NULL, E));
            assert_int_equal(tokens[0] % 4, 0);
            seen[tokens[0] / 4]++;
            first[epoch][i] = tokens[0] / 4;
            as_in_file += tokens[0] / 4 == i;
            as_other_seed += tokens[0] == others[0];
        }
        for (int i = 0; i < 50; i++) assert_int_equal(seen[i], 1);
    }
    for (int i = 0; i < 50; i++) same += first[0][i] == first[1][i];
    assert_true(same < 10 && as_in_file < 20 && as_other_seed < 20);
    data_close(d);
    data_close(other);
    drop("t.txt");
}

static void ids_beyond_the_vocabulary(void **state) {
    put("t.txt", "abcdefgh\xC3\xA9 abcdefgh", 19);
    const char *path = path_of("t.txt");
    struct data_options o = options(DATA_TEXT, &path);
    struct data *d;
    MUST_FAIL(ERR_FORMAT, "t.txt: token id 195 at byte 8 is beyond the vocabulary of 128",
              data_open(&d, &o, 128, 4, 1, E));
    o.kind = DATA_MEGATRON; /* text that was meant to be shards */
    MUST_FAIL(ERR_CONFIG, "t.txt is no token shard: ", data_open(&d, &o, 256, 4, 1, E));
    o.root = "nowhere"; /* paths are counted from there */
    MUST_FAIL(ERR_IO, "t.txt.bin: No such file", data_open(&d, &o, 256, 4, 1, E));
    o.root = NULL;
    o.kind = DATA_TEXT;
    MUST_FAIL(ERR_CONFIG, "are too few for one sequence of 19", data_open(&d, &o, 256, 19, 1, E));
    drop("t.txt");
    MUST_FAIL(ERR_IO, "t.txt: No such file", data_open(&d, &o, 256, 4, 1, E));
    path = DIR;
    MUST_FAIL(ERR_CONFIG, "not a regular file", data_open(&d, &o, 256, 4, 1, E));
}

/* A file truncated while it is open: an error with both sizes, not a signal. */
static void a_file_that_shrinks(void **state) {
    unsigned char text[20000];
    memset(text, 'a', sizeof text);
    put("t.txt", text, sizeof text);
    const char *path = path_of("t.txt");
    struct data_options o = options(DATA_TEXT, &path);
    struct data *d;
    char hex[65];
    int32_t tokens[2000], targets[2000];
    MUST(data_open(&d, &o, 256, 2000, 1, E));
    MUST(data_sha256(d, NULL, hex, E));
    assert_int_equal(truncate(path, 1500), 0);
    MUST_FAIL(ERR_IO, "t.txt: 20000 bytes when it was opened, now 1500",
              data_batch(d, SPLIT_TRAIN, 0, 1, tokens, targets, NULL, E));
    MUST_FAIL(ERR_IO, "t.txt: 20000 bytes when it was opened, now 1500",
              data_sha256(d, NULL, hex, E));
    data_close(d);
    drop("t.txt");
}

/* Files large enough for several threads have the digests of a plain SHA-256, in their order. */
static void several_files_are_hashed_at_a_time(void **state) {
    enum { FILES = 5, BYTES = 20 << 20 };
    const char *path[FILES];
    char name[16], hex[SHA256_HEX], whole[SHA256_HEX], list[FILES * 96] = "";
    struct data_file files[FILES] = { { .bytes = 0 } };
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "%d.txt", i);
        put(name, name, strlen(name));
        path[i] = strdup(path_of(name));
        assert_int_equal(truncate(path[i], BYTES + i), 0); /* zeros after the name */
    }
    struct data_options o = options(DATA_TEXT, path);
    o.path_count = FILES;
    struct data *d;
    MUST(data_open(&d, &o, 256, 16, 1, E));
    MUST(data_sha256(d, files, whole, E));
    for (int i = 0; i < FILES; i++) {
        MUST(sha256_file(path[i], hex, NULL, E));
        assert_string_equal(files[i].sha256, hex);
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%d %s\n", BYTES + i, hex);
    }
    MUST(sha256_bytes(list, strlen(list), hex, E));
    assert_string_equal(whole, hex);
    for (int i = 1; i < FILES; i += 2) assert_int_equal(truncate(path[i], 100), 0);
    MUST_FAIL(ERR_IO, "1.txt: ", data_sha256(d, NULL, hex, E));
    data_close(d);
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "%d.txt", i);
        drop(name);
        free((void *)(uintptr_t)path[i]);
    }
}

/* ---- llm.c ---- */

static size_t llmc_file(unsigned char *out, int32_t magic, int32_t version, int32_t count,
                        int bytes) {
    memset(out, 0, 1024);
    memcpy(out, &magic, 4);
    memcpy(out + 4, &version, 4);
    memcpy(out + 8, &count, 4);
    for (int32_t i = 0; i < count; i++) {
        uint32_t id = (uint32_t)(i * 500 + (bytes == 4 ? 100000 : 0));
        memcpy(out + 1024 + i * bytes, &id, (size_t)bytes);
    }
    return 1024 + (size_t)(count * bytes);
}

static void llmc_shards(void **state) {
    static const struct { int32_t magic, version; int bytes; int32_t base; } GOOD[] = {
        { 20240520, 1, 2, 0 }, { 20240801, 7, 4, 100000 },
    };
    unsigned char file[2048];
    char copy[128];
    const char *path = strcpy(copy, path_of("s.bin"));
    struct data_options o = options(DATA_LLMC, &path);
    struct data *d;
    for (int i = 0; i < 2; i++) {
        put("s.bin", file, llmc_file(file, GOOD[i].magic, GOOD[i].version, 9, GOOD[i].bytes));
        MUST(data_open(&d, &o, 128256, 8, 1, E));
        int32_t tokens[8], targets[8];
        MUST(data_batch(d, SPLIT_TRAIN, 0, 1, tokens, targets, NULL, E));
        for (int k = 0; k < 8; k++) {
            assert_int_equal(tokens[k], GOOD[i].base + 500 * k);
            assert_int_equal(targets[k], GOOD[i].base + 500 * (k + 1));
        }
        data_close(d);
    }
    size_t n = llmc_file(file, 20240520, 1, 9, 2);
    MUST_FAIL(ERR_FORMAT, "token id 100500 at byte 1028", data_open(&d, &o, 100500, 8, 1, E));
    put("s.bin", file, n - 1);
    MUST_FAIL(ERR_FORMAT, "1041 bytes, but byte 8 announces 9 tokens, 1042 bytes (truncated?)",
              data_open(&d, &o, 50257, 8, 1, E));
    put("s.bin", file, 1000);
    MUST_FAIL(ERR_FORMAT, "header of 1024 (truncated?)", data_open(&d, &o, 50257, 8, 1, E));
    llmc_file(file, 20240326, 1, 9, 2);
    put("s.bin", file, n);
    MUST_FAIL(ERR_FORMAT, "magic 20240326 at byte 0", data_open(&d, &o, 50257, 8, 1, E));
    llmc_file(file, 20240520, 2, 9, 2);
    put("s.bin", file, n);
    MUST_FAIL(ERR_FORMAT, "version 2 at byte 4; only version 1 is supported",
              data_open(&d, &o, 50257, 8, 1, E));
    drop("s.bin");
}

/* ---- Megatron ---- */

/* An index of sequences of 3 and 7 u16 tokens. */
static size_t megatron_index(unsigned char *out) {
    uint64_t head[3] = { 1, 2, 2 };
    int32_t length[2] = { 3, 7 };
    int64_t pointer[2] = { 0, 6 }, document[2] = { 0, 2 };
    memcpy(out, "MMIDIDX\0\0", 9);
    memcpy(out + 9, &head[0], 8);
    out[17] = 8;
    memcpy(out + 18, &head[1], 16);
    memcpy(out + 34, length, 8);
    memcpy(out + 42, pointer, 16);
    memcpy(out + 58, document, 16);
    return 74;
}

static void put_megatron(const unsigned char *index, size_t n) { put("m.idx", index, n); }

static void megatron_datasets(void **state) {
    unsigned char index[128];
    uint16_t ids[10];
    char copy[128];
    size_t n = megatron_index(index);
    for (int i = 0; i < 10; i++) ids[i] = (uint16_t)(40000 + i);
    put("m.bin", ids, sizeof ids);
    put_megatron(index, n);
    const char *path = strcpy(copy, path_of("m"));
    struct data_options o = options(DATA_MEGATRON, &path);
    struct data *d;
    MUST(data_open(&d, &o, 50257, 9, 1, E));
    int32_t tokens[9], targets[9];
    MUST(data_batch(d, SPLIT_TRAIN, 0, 1, tokens, targets, NULL, E));
    assert_int_equal(tokens[0], 40000);
    assert_int_equal(targets[8], 40009);
    data_close(d);

    static const struct { int at; unsigned char value; const char *words; } DAMAGE[] = {
        { 0, 'X', "m.idx: not a Megatron index: wrong magic at byte 0" },
        { 9, 2, "index version 2 at byte 9" },
        { 17, 7, "token dtype code 7 at byte 17" },
        { 25, 0x40, "do not hold the" },
        { 34, 4, "sequence 1 at byte 50 points to byte 6 of" },
        { 37, 0x80, "sequence 0 at byte 34 has length -2147483645" },
        { 38, 8, "m.bin: 20 bytes, but" },
        { 17, 4, "sequence 1 at byte 50 points to byte 6 of" },
    };
    for (size_t i = 0; i < sizeof DAMAGE / sizeof *DAMAGE; i++) {
        megatron_index(index);
        index[DAMAGE[i].at] = DAMAGE[i].value;
        put_megatron(index, n);
        MUST_FAIL(ERR_FORMAT, DAMAGE[i].words, data_open(&d, &o, 50257, 9, 1, E));
    }
    megatron_index(index);
    put_megatron(index, 73);
    MUST_FAIL(ERR_FORMAT, "(truncated?)", data_open(&d, &o, 50257, 9, 1, E));
    put_megatron(index, 20);
    MUST_FAIL(ERR_FORMAT, "an index has at least 34", data_open(&d, &o, 50257, 9, 1, E));
    put_megatron(index, n);
    MUST_FAIL(ERR_FORMAT, "token id 40007 at byte 14", data_open(&d, &o, 40007, 9, 1, E));
    put("m.bin", ids, sizeof ids - 2);
    MUST_FAIL(ERR_FORMAT, "(truncated?)", data_open(&d, &o, 50257, 9, 1, E));
    drop("m.idx");
    MUST_FAIL(ERR_IO, "m.idx: No such file", data_open(&d, &o, 50257, 9, 1, E));
    drop("m.bin");
}

/* ---- synthetic ---- */

static void synthetic_is_the_same_everywhere(void **state) {
    struct data_options o = { .kind = DATA_SYNTHETIC, .seed = 7 };
    struct data *d;
    int32_t tokens[8], targets[8], eval[8];
    /* mostly 5 x + 7 mod 96 */
    static const int32_t EXPECTED[8] = { 91, 78, 13, 72, 79, 18, 1, 12 };
    MUST(data_open(&d, &o, 96, 8, 1, E));
    MUST(data_batch(d, SPLIT_TRAIN, 3, 1, tokens, targets, NULL, E));
    MUST(data_batch(d, SPLIT_EVAL, 3, 1, eval, targets, NULL, E));
    assert_memory_equal(tokens, EXPECTED, sizeof tokens);
    assert_memory_not_equal(tokens, eval, sizeof tokens);
    data_close(d);
}

static void data_has_an_identity(void **state) {
    char first[65], second[65], third[65], copy[128];
    struct data *d;
    put("t.txt", "abcdefgh", 8);
    const char *path = strcpy(copy, path_of("t.txt"));
    struct data_options o = options(DATA_TEXT, &path);
    MUST(data_open(&d, &o, 256, 4, 1, E));
    MUST(data_sha256(d, NULL, first, E));
    MUST(data_sha256(d, NULL, second, E));
    data_close(d);
    put("t.txt", "abcdefgi", 8);
    MUST(data_open(&d, &o, 256, 4, 1, E));
    MUST(data_sha256(d, NULL, third, E));
    data_close(d);
    assert_string_equal(first, second);
    assert_string_not_equal(first, third);
    drop("t.txt");
}

/* Further sets: all of them is held out, their files come last, and the hash of the data stays. */
static void sets_beside_the_data(void **state) {
    char alone[65], with[65], hash[2][65], copy[4][128];
    const char *path[4], *names[] = { "own.txt", "c1.txt", "c2.txt", "law.txt" };
    const char *texts[] = { "abcdefghijklmnop", "0123456", "789", "xy" };
    for (int i = 0; i < 4; i++) {
        put(names[i], texts[i], strlen(texts[i]));
        path[i] = strcpy(copy[i], path_of(names[i]));
    }
    const struct data_set_options sets[] = { { "code", path + 1, 2 }, { "law", path + 3, 1 } };
    struct data_options o = options(DATA_TEXT, path);
    struct data_file files[4];
    int32_t tokens[4], targets[4];
    struct data *d;
    MUST(data_open(&d, &o, 256, 4, 1, E));
    MUST(data_sha256(d, NULL, alone, E));
    data_close(d);
    o.sets = sets;
    o.set_count = 2;
    MUST(data_open(&d, &o, 256, 4, 1, E));
    assert_int_equal(data_set_count(d), 2);
    assert_string_equal(data_set_name(d, 1), "law");
    const struct data *code = data_set_at(d, 0);
    assert_int_equal(data_sequences(code, SPLIT_EVAL), 3); /* 10 tokens, the last target alone */
    assert_int_equal(data_sequences(code, SPLIT_TRAIN), 0);
    MUST(data_batch(code, SPLIT_EVAL, 2, 1, tokens, targets, NULL, E));
    assert_true(tokens[0] == '8' && targets[0] == '9' && targets[1] == -1);
    assert_int_equal(data_file_count(d), 4);
    memset(files, 0, sizeof files);
    MUST(data_sha256(d, files, with, E));
    assert_string_equal(alone, with);
    for (int i = 0; i < 2; i++) MUST(data_set_sha256(d, files, i, hash[i], E));
    assert_string_not_equal(hash[0], hash[1]);
    for (int i = 0; i < 4; i++) {
        struct data_file f = data_file_at(d, i);
        char sample[65];
        MUST(data_sample_sha256(d, i, sample, E));
        assert_string_equal(sample, files[i].sample_sha256);
        assert_true(f.set == (i == 0 ? -1 : i == 3) && !strcmp(f.path, path[i]));
    }
    data_close(d);
    for (int i = 0; i < 4; i++) drop(names[i]);
}

static void a_wrong_set_is_named(void **state) {
    char copy[2][128];
    const char *path[2], *names[] = { "own.txt", "law.txt" };
    for (int i = 0; i < 2; i++) path[i] = strcpy(copy[i], path_of(names[i]));
    put("own.txt", "abcdefghijklmnop", 16);
    put("law.txt", "0", 1);
    struct data_set_options set = { "code", path + 1, 1 };
    struct data_options o = options(DATA_TEXT, path);
    struct data *d;
    o.sets = &set;
    o.set_count = 1;
    MUST_FAIL(ERR_CONFIG, "eval.also.code: ", data_open(&d, &o, 256, 4, 1, E));
    MUST_FAIL(ERR_CONFIG, "1 tokens; to evaluate takes at least two",
              data_open(&d, &o, 256, 4, 1, E));
    o.kind = DATA_SYNTHETIC;
    MUST_FAIL(ERR_CONFIG, "generated data have no files", data_open(&d, &o, 256, 4, 1, E));
    for (int i = 0; i < 2; i++) drop(names[i]);
}

static void sample(const char *bytes, size_t n, char hex[65]) {
    char copy[128];
    struct data *d;
    put("s.txt", bytes, n);
    const char *path = strcpy(copy, path_of("s.txt"));
    struct data_options o = options(DATA_TEXT, &path);
    MUST(data_open(&d, &o, 256, 4, 1, E));
    MUST(data_sample_sha256(d, 0, hex, E));
    data_close(d);
}

/* The sample covers all of a small file, and both ends and the middle of a large file. */
static void sample_covers_the_file(void **state) {
    enum { LARGE = 300001, SMALL = 5000 };
    static const struct { int bytes, at; bool seen; } CASES[] = {
        { SMALL, 0, true },         { SMALL, 4096, true },  { SMALL, SMALL - 1, true },
        { LARGE, 0, true },         { LARGE, 4095, true },  { LARGE, 4696, true },
        { LARGE, LARGE - 1, true }, { LARGE, 4096, false }, { LARGE, LARGE - 4097, false },
    };
    char *bytes = calloc(1, LARGE), before[65], after[65];
    assert_non_null(bytes);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        sample(bytes, (size_t)CASES[i].bytes, before);
        bytes[CASES[i].at] = 1;
        sample(bytes, (size_t)CASES[i].bytes, after);
        bytes[CASES[i].at] = 0;
        if ((strcmp(before, after) != 0) != CASES[i].seen) fail_msg("case %zu", i);
    }
    free(bytes);
    drop("s.txt");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sample_covers_the_file),
        cmocka_unit_test(text_windows),
        cmocka_unit_test(packed_text),
        cmocka_unit_test(all_is_evaluated),
        cmocka_unit_test(a_sequence_is_read_once),
        cmocka_unit_test(epochs_are_permutations),
        cmocka_unit_test(ids_beyond_the_vocabulary),
        cmocka_unit_test(a_file_that_shrinks),
        cmocka_unit_test(several_files_are_hashed_at_a_time),
        cmocka_unit_test(llmc_shards),
        cmocka_unit_test(megatron_datasets),
        cmocka_unit_test(synthetic_is_the_same_everywhere),
        cmocka_unit_test(data_has_an_identity),
        cmocka_unit_test(sets_beside_the_data),
        cmocka_unit_test(a_wrong_set_is_named),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
