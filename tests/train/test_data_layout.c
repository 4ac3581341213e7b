/* Documents in sequences: where they begin, borders without a target, layouts of whole documents,
 * loss files, and the number of tokens with loss. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "model/data_ahead.h"
#include "tests/support/must.h"
#include "tests/support/shards.h"

enum { T = 8, N = 60, VOCAB = 50000 };

static char DIR[64], PREFIX[80]; /* of this test program only */
static int LENGTH[N];            /* 0 to 8 tokens a document */
static int64_t START[N + 1];

static int make_directory(void **state) {
    strcpy(DIR, "/tmp/fp8lab-layout-XXXXXX");
    if (!mkdtemp(DIR)) return -1;
    snprintf(PREFIX, sizeof PREFIX, "%s/m", DIR);
    for (int i = 0; i < N; i++) {
        LENGTH[i] = i % 7 == 3 ? 0 : 1 + i * 37 % T;
        START[i + 1] = START[i] + LENGTH[i];
    }
    shard_put(&(struct shard){ .prefix = PREFIX, .documents = N, .length = LENGTH, .split = true,
                               .loss = true });
    return 0;
}

static int remove_directory(void **state) {
    shard_drop(PREFIX);
    return rmdir(DIR);
}

static struct data_options options(void) {
    static const char *const paths[] = { PREFIX };
    return (struct data_options){ .kind = DATA_MEGATRON, .paths = paths, .path_count = 1 };
}

/* The document of the token whose id is its place. */
static int document_of(int64_t token) {
    int i = 0;
    while (START[i + 1] <= token) i++;
    return i;
}

struct sequence { int32_t tokens[T], targets[T], starts[T]; };

static struct sequence draw(const struct data *d, enum data_split split, int64_t position) {
    struct sequence s;
    MUST(data_batch(d, split, position, 1, s.tokens, s.targets, s.starts, E));
    return s;
}

/* Every token's start is where its document begins in the sequence, and a target is the next token
 * of the document, if that counts. Returns the targets; *padding: tokens of padding. */
static int64_t check(const struct sequence *s, bool loss, int *padding) {
    int64_t counted = 0;
    *padding = 0;
    for (int k = 0; k < T; k++) {
        int32_t token = s->tokens[k], next = token + 1;
        bool filler = k > 0 && s->starts[k] == k && token == s->tokens[0];
        if (filler) *padding += 1;
        bool same = k > 0 && !filler && document_of(s->tokens[k - 1]) == document_of(token);
        assert_int_equal(s->starts[k], same ? s->starts[k - 1] : k);
        if (same) assert_int_equal(token, s->tokens[k - 1] + 1);
        bool target = !filler && next < START[N] && document_of(next) == document_of(token) &&
                      (!loss || shard_counts(next));
        assert_int_equal(s->targets[k], target ? next : -1);
        counted += target;
    }
    return counted;
}

static void windows_know_their_documents(void **state) {
    for (int which = 0; which < 6; which++) {
        struct data_options o = options();
        o.documents = (struct document_options){ .mask = which % 3 != 1, .restart = which % 3 > 0 };
        o.order = which / 3 ? ORDER_DOCUMENTS : ORDER_WINDOWS;
        struct data *d, *plain;
        MUST(data_open(&d, &o, VOCAB, T, 7, E));
        o.documents = (struct document_options){ 0 };
        MUST(data_open(&plain, &o, VOCAB, T, 7, E));
        int64_t n = data_sequences(d, SPLIT_TRAIN), all = 0, counted;
        assert_int_equal(n, (START[N] - 1) / T);
        for (int64_t p = 0; p < 2 * n; p++) {
            int padding;
            struct sequence s = draw(d, SPLIT_TRAIN, p), t = draw(plain, SPLIT_TRAIN, p);
            all += check(&s, false, &padding);
            assert_int_equal(padding, 0);
            assert_memory_equal(s.tokens, t.tokens, sizeof s.tokens); /* the same order as ever */
            for (int k = 0; k < T; k++) assert_int_equal(t.starts[k], 0);
        }
        MUST(data_count(d, SPLIT_TRAIN, 0, 2 * n, &counted, E));
        assert_int_equal(counted, all);
        assert_true(!data_counts_all(d) && data_counts_all(plain) && all < 2 * n * T);
        MUST(data_count(plain, SPLIT_TRAIN, 3, 5, &counted, E));
        assert_int_equal(counted, 5 * T);
        data_close(d);
        data_close(plain);
    }
}

/* An epoch has every document once, whole; sequences are those of next fit. */
static void whole_documents(enum data_layout layout) {
    struct data_options o = options();
    o.layout = layout;
    o.loss = true;
    struct data *d;
    MUST(data_open(&d, &o, VOCAB, T, 7, E));
    int64_t n = data_sequences(d, SPLIT_TRAIN), wanted = 0, room = 0, moved = 0, counted;
    for (int i = 0; i < N; i++) {
        if (LENGTH[i] == 0) continue;
        if (LENGTH[i] > room) wanted++, room = T;
        room = layout == LAYOUT_PADDED ? 0 : room - LENGTH[i];
    }
    assert_int_equal(n, wanted);
    for (int epoch = 0; epoch < 2; epoch++) {
        int seen[T * N] = { 0 };
        int64_t all = 0;
        for (int64_t p = 0; p < n; p++) {
            int padding;
            struct sequence s = draw(d, SPLIT_TRAIN, epoch * n + p), next;
            int64_t mine = check(&s, true, &padding);
            for (int k = 0; k < T - padding; k++) seen[s.tokens[k]]++;
            MUST(data_count(d, SPLIT_TRAIN, epoch * n + p, 1, &counted, E));
            assert_int_equal(counted, mine);
            all += mine;
            next = draw(d, SPLIT_TRAIN, (epoch + 1) * n + p);
            moved += next.tokens[0] != s.tokens[0];
        }
        for (int64_t i = 0; i < START[N]; i++) assert_int_equal(seen[i], 1);
        MUST(data_count(d, SPLIT_TRAIN, epoch * n, n, &counted, E));
        assert_int_equal(counted, all);
    }
    assert_true(moved > n);
    assert_int_equal(data_use_at(d, 0, 3 * n + 1).read, 3 * n + 1);
    assert_int_equal(data_use_at(d, 0, 0).sequences, n);
    data_close(d);
}

static void documents_are_packed(void **state) { whole_documents(LAYOUT_PACKED); }
static void documents_are_padded(void **state) { whole_documents(LAYOUT_PADDED); }

/* Documents that end behind the training share are for evaluation, in the order of the file, also
 * from a file of their own. */
static void whole_documents_are_evaluated(void **state) {
    struct data_options o = options();
    o.layout = LAYOUT_PACKED;
    o.holdout = 0.3;
    o.loss = true;
    struct data *d;
    int64_t kept = (int64_t)((double)START[N] * 0.7), token = 0, counted, all = 0;
    for (int i = 0; i <= N; i++) token = START[i] <= kept ? START[i] : token;
    for (int file = 0; file < 2; file++, token = 0) {
        int padding;
        if (file) o.eval_path = PREFIX;
        MUST(data_open(&d, &o, VOCAB, T, 7, E));
        int64_t n = data_sequences(d, SPLIT_EVAL);
        for (int64_t p = 0; p < n; p++) {
            struct sequence s = draw(d, SPLIT_EVAL, p);
            assert_int_equal(s.tokens[0], token);
            all += check(&s, true, &padding);
            token += T - padding;
        }
        assert_int_equal(token, START[N]);
        struct sequence s = draw(d, SPLIT_EVAL, n); /* filler */
        for (int k = 0; k < T; k++) assert_int_equal(s.targets[k], -1);
        MUST(data_count(d, SPLIT_EVAL, 0, n + 5, &counted, E));
        assert_int_equal(counted, all);
        all = 0;
        data_close(d);
    }
}

/* More documents than are read of the index at once. */
static void many_documents(void **state) {
    enum { MANY = 2500, OF = 3 };
    static int length[MANY];
    char prefix[100];
    const char *paths[] = { prefix };
    struct data *d;
    snprintf(prefix, sizeof prefix, "%s/many", DIR);
    for (int i = 0; i < MANY; i++) length[i] = OF;
    shard_put(&(struct shard){ .prefix = prefix, .documents = MANY, .length = length });
    struct data_options o = options();
    o.paths = paths;
    o.layout = LAYOUT_PACKED;
    o.eval_path = prefix;
    MUST(data_open(&d, &o, VOCAB, T, 7, E));
    assert_int_equal(data_sequences(d, SPLIT_EVAL), MANY / 2); /* two and padding of two */
    for (int64_t p = 0; p < MANY / 2; p++) {
        struct sequence s = draw(d, SPLIT_EVAL, p);
        int32_t first = (int32_t)p * 2 * OF;
        const struct sequence wanted = {
            { first, first + 1, first + 2, first + 3, first + 4, first + 5, first, first },
            { first + 1, first + 2, -1, first + 4, first + 5, -1, -1, -1 },
            { 0, 0, 0, 3, 3, 3, 6, 7 },
        };
        assert_memory_equal(&s, &wanted, sizeof s);
    }
    data_close(d);
    shard_drop(prefix);
}

/* A step's first batch has the number of tokens with loss of all ranks, also from the thread. */
static void a_step_is_counted_ahead(void **state) {
    enum { COUNT = 2, RANKS = 2, BATCHES = 3, STRIDE = COUNT * RANKS, GLOBAL = STRIDE * BATCHES };
    struct data_options o = options();
    o.layout = LAYOUT_PADDED;
    o.documents.mask = o.loss = true;
    struct data *d;
    struct data_ahead *ahead;
    int32_t tokens[COUNT * T], targets[COUNT * T], starts[COUNT * T], wanted[COUNT * T];
    struct ahead_batch taken = { .tokens = tokens, .targets = targets, .starts = starts };
    struct ahead_plan plan = { .count = COUNT, .seq_len = T, .stride = STRIDE, .batches = BATCHES,
                               .offset = COUNT };
    MUST(data_open(&d, &o, VOCAB, T, 7, E));
    MUST(data_ahead_create(&ahead, d, &plan, E));
    for (int64_t step = 5; step < 20; step++)
        for (int64_t i = 0; i < BATCHES; i++) {
            int64_t counted = 0, position = step * GLOBAL + i * STRIDE + COUNT;
            MUST(data_ahead_take(ahead, position, &taken, E));
            if (i == 0) MUST(data_count(d, SPLIT_TRAIN, step * GLOBAL, GLOBAL, &counted, E));
            assert_int_equal(taken.counted, counted);
            MUST(data_batch(d, SPLIT_TRAIN, position, COUNT, tokens, targets, wanted, E));
            assert_memory_equal(starts, wanted, sizeof wanted);
        }
    data_ahead_destroy(ahead);
    data_close(d);
}

static void put_loss(const char *prefix, int bytes, int value) {
    char path[128];
    snprintf(path, sizeof path, "%s.loss", prefix);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int i = 0; i < bytes; i++) fputc(i == 5 ? value : 1, f);
    assert_int_equal(fclose(f), 0);
}

static void bad_input_is_named(void **state) {
    static const int WIDE[] = { 4, 9, 3 };
    char prefix[100];
    const char *paths[] = { prefix };
    struct data *d;
    snprintf(prefix, sizeof prefix, "%s/bad", DIR);
    shard_put(&(struct shard){ .prefix = prefix, .documents = 3, .length = WIDE });
    struct data_options o = options();
    o.paths = paths;
    o.layout = LAYOUT_PADDED;
    MUST_FAIL(ERR_CONFIG, "bad.idx: document 1 has 9 tokens", data_open(&d, &o, VOCAB, T, 7, E));
    o.order = ORDER_DOCUMENTS;
    MUST_FAIL(ERR_CONFIG, "leave out order", data_open(&d, &o, VOCAB, T, 7, E));
    o.order = ORDER_WINDOWS;
    o.holdout = 0.8;
    MUST_FAIL(ERR_CONFIG, "ends before its token 3, where the held-out part begins",
              data_open(&d, &o, VOCAB, 9, 7, E));
    o.holdout = 0;
    o.loss = true;
    MUST_FAIL(ERR_IO, "bad.loss: No such file", data_open(&d, &o, VOCAB, 9, 7, E));
    put_loss(prefix, 15, 1);
    MUST_FAIL(ERR_FORMAT, "bad.loss: 15 bytes, but", data_open(&d, &o, VOCAB, 9, 7, E));
    put_loss(prefix, 16, 2);
    MUST_FAIL(ERR_FORMAT, "bad.loss: byte 5 is 2", data_open(&d, &o, VOCAB, 9, 7, E));
    put_loss(prefix, 16, 0);
    char path[128];
    snprintf(path, sizeof path, "%s.loss", prefix);
    FILE *f = fopen(path, "wb"); /* 1 for the first tokens of documents alone: nobody's targets */
    assert_non_null(f);
    for (int i = 0; i < 16; i++) fputc(i == 0 || i == 4 || i == 13, f);
    assert_int_equal(fclose(f), 0);
    MUST_FAIL(ERR_CONFIG, "bad.loss: no token of the training data carries loss",
              data_open(&d, &o, VOCAB, 9, 7, E));
    put_loss(prefix, 16, 0);
    MUST(data_open(&d, &o, VOCAB, 9, 7, E));
    assert_int_equal(data_file_count(d), 3); /* the loss file has part in the hash of the data */
    data_close(d);
    shard_drop(prefix);
}

static void options_need_documents(void **state) {
    const struct { struct data_options o; const char *words; } CASE[] = {
        { { .layout = LAYOUT_PACKED }, "data.layout = \"packed\" needs Megatron's index" },
        { { .layout = LAYOUT_PADDED }, "data.layout = \"padded\" needs Megatron's index" },
        { { .documents = { .mask = true } }, "data.mask = \"document\" needs Megatron's index" },
        { { .documents = { .restart = true } }, "data.positions = \"document\" needs" },
        { { .loss = true }, "data.loss needs Megatron's files" },
    };
    static const char *const paths[] = { PREFIX };
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        struct data_options o = CASE[i].o;
        struct data *d;
        o.kind = DATA_TEXT;
        o.paths = paths;
        o.path_count = 1;
        MUST_FAIL(ERR_CONFIG, CASE[i].words, data_open(&d, &o, VOCAB, T, 7, E));
        o.kind = DATA_SYNTHETIC;
        o.path_count = 0;
        MUST_FAIL(ERR_CONFIG, "generated data", data_open(&d, &o, VOCAB, T, 7, E));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_know_their_documents), cmocka_unit_test(documents_are_packed),
        cmocka_unit_test(documents_are_padded), cmocka_unit_test(many_documents),
        cmocka_unit_test(whole_documents_are_evaluated),
        cmocka_unit_test(a_step_is_counted_ahead), cmocka_unit_test(bad_input_is_named),
        cmocka_unit_test(options_need_documents),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
