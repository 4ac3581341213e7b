/* The order of sequences in blends, of shuffled documents, and of batches that a thread draws. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "model/checkpoint.h"
#include "model/data_ahead.h"
#include "tests/support/must.h"
#include "tests/support/shards.h"
#include "tests/support/tiny.h"

static char DIR[64]; /* of this test program only */

static int make_directory(void **state) {
    strcpy(DIR, "/tmp/fp8lab-order-XXXXXX");
    return mkdtemp(DIR) ? 0 : -1;
}

static int remove_directory(void **state) { return rmdir(DIR); }

struct path { char text[128]; };

static struct path path_of(const char *name, const char *suffix) {
    struct path p;
    snprintf(p.text, sizeof p.text, "%s/%s%s", DIR, name, suffix);
    return p;
}

static void put(struct path p, const void *bytes, size_t n) {
    FILE *f = fopen(p.text, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* A Megatron dataset; see tests/support/shards.h. */
static int64_t put_documents(const char *name, int64_t count, const int *length, int32_t first,
                             bool split) {
    struct path p = path_of(name, "");
    return shard_put(&(struct shard){ .prefix = p.text, .documents = count, .length = length,
                                      .first = first, .split = split });
}

static void drop(const char *name) { shard_drop(path_of(name, "").text); }

/* ---- blends ---- */

enum { T = 4, PARTS = 3 };
static const int FIRST[PARTS] = { 0, 10000, 20000 };

static void open_blend(struct data **d, const double *weight, double holdout) {
    static const char *const NAMES[PARTS] = { "a", "b", "c" };
    static struct path path[PARTS];
    const char *paths[PARTS];
    struct data_part parts[PARTS];
    for (int i = 0; i < PARTS; i++) {
        int length[] = { 4 * 50 + 1 + 40 * i };
        put_documents(NAMES[i], 1, length, FIRST[i], false);
        path[i] = path_of(NAMES[i], "");
        paths[i] = path[i].text;
        parts[i] = (struct data_part){ .path_count = 1, .weight = weight[i] };
    }
    struct data_options o = { .kind = DATA_MEGATRON, .paths = paths, .path_count = PARTS,
                              .parts = parts, .part_count = PARTS, .holdout = holdout };
    MUST(data_open(d, &o, 50000, T, 7, E));
}

static void drop_blend(struct data *d) {
    data_close(d);
    drop("a");
    drop("b");
    drop("c");
}

static int part_of(int32_t id) { return id < FIRST[1] ? 0 : id < FIRST[2] ? 1 : 2; }

/* Of any first n positions, each part has its share to less than two sequences. Every epoch of a
 * part visits each of its sequences once. */
static void a_blend_keeps_its_shares(void **state) {
    static const double WEIGHT[PARTS] = { 0.7, 0.05, 0.25 };
    struct data *d;
    open_blend(&d, WEIGHT, 0);
    assert_int_equal(data_sequences(d, SPLIT_TRAIN), 50 + 60 + 70);
    int64_t drawn[PARTS] = { 0 };
    int seen[PARTS][100] = { 0 };
    for (int64_t p = 0; p < 2000; p++) {
        int32_t tokens[T], targets[T];
        MUST(data_batch(d, SPLIT_TRAIN, p, 1, tokens, targets, NULL, E));
        int part = part_of(tokens[0]);
        int64_t sequences = 50 + 10 * part;
        int at = (tokens[0] - FIRST[part]) / T;
        assert_int_equal(tokens[0], FIRST[part] + at * T);
        assert_int_equal(seen[part][at], drawn[part] / sequences); /* once an epoch */
        seen[part][at]++;
        drawn[part]++;
        for (int i = 0; i < PARTS; i++) {
            double wanted = WEIGHT[i] * (double)(p + 1);
            assert_true((double)drawn[i] > wanted - 2 && (double)drawn[i] < wanted + 2);
            assert_int_equal(data_use_at(d, i, p + 1).read, drawn[i]);
            assert_int_equal(data_use_at(d, i, p + 1).sequences, 50 + 10 * i);
        }
    }
    drop_blend(d);
}

/* Parts of equal weight still have different orders. */
static void parts_have_orders_of_their_own(void **state) {
    static const double EVEN[PARTS] = { 1, 1, 1 };
    struct data *d;
    open_blend(&d, EVEN, 0);
    int32_t place[PARTS][50], tokens[T], targets[T];
    int drawn[PARTS] = { 0 }, same = 0;
    for (int64_t p = 0; p < 150; p++) {
        MUST(data_batch(d, SPLIT_TRAIN, p, 1, tokens, targets, NULL, E));
        int part = part_of(tokens[0]);
        place[part][drawn[part]++] = tokens[0] - FIRST[part];
    }
    for (int i = 0; i < 50; i++) same += place[1][i] == place[2][i];
    assert_true(drawn[0] == 50 && same < 15);
    drop_blend(d);
}

/* Evaluation reads the held-out tails in the same shares, until the first part has no more. */
static void a_blend_is_evaluated_in_its_shares(void **state) {
    static const double WEIGHT[PARTS] = { 2, 1, 1 };
    struct data *d;
    open_blend(&d, WEIGHT, 0.2);
    int64_t drawn[PARTS] = { 0 }, n = data_sequences(d, SPLIT_EVAL);
    int32_t tokens[T], targets[T];
    for (int64_t p = 0; p < n; p++) {
        MUST(data_batch(d, SPLIT_EVAL, p, 1, tokens, targets, NULL, E));
        int part = part_of(tokens[0]);
        int64_t count = 4 * 50 + 1 + 40 * part, kept = (int64_t)((double)count * 0.8);
        assert_int_equal(tokens[0] - FIRST[part], kept + T * drawn[part]);
        drawn[part]++;
    }
    assert_int_equal(drawn[0], 10); /* (201 - 160 - 1) / 4: all of the first part */
    assert_in_range(n, 20, 21);
    MUST(data_batch(d, SPLIT_EVAL, n, 1, tokens, targets, NULL, E));
    for (int k = 0; k < T; k++) assert_int_equal(targets[k], -1);
    drop_blend(d);
}

/* A weight may be below 2^-33 of another. */
static void a_tiny_weight_is_drawn_from_seldom(void **state) {
    static const double WEIGHT[PARTS] = { 1, 1e-12, 1e-12 };
    struct data *d;
    int64_t all = 0;
    open_blend(&d, WEIGHT, 0);
    for (int i = 0; i < PARTS; i++) all += data_use_at(d, i, 100).read;
    assert_int_equal(all, 100);
    assert_in_range(data_use_at(d, 0, 100).read, 98, 100);
    drop_blend(d);
}

static void weights_are_above_0(void **state) {
    int length[] = { 30 };
    put_documents("a", 1, length, 0, false);
    struct path path = path_of("a", "");
    const char *paths[2] = { path.text, path.text };
    struct data_part parts[2] = { { 1, 1 }, { 1, 0 } };
    struct data_options o = { .kind = DATA_MEGATRON, .paths = paths, .path_count = 2,
                              .parts = parts, .part_count = 2 };
    struct data *d;
    MUST_FAIL(ERR_CONFIG, "part 2 of the data has weight 0", data_open(&d, &o, 50000, T, 7, E));
    drop("a");
}

/* ---- documents ---- */

/* The tokens of an epoch, window after window. In each window a token is followed by the next one
 * of its document, or by the first one of another. */
static void read_epoch(const struct data *d, int64_t epoch, int64_t windows, int32_t *out,
                       const int32_t *follows) {
    for (int64_t p = 0; p < windows; p++) {
        int32_t *tokens = out + p * T, targets[T];
        MUST(data_batch(d, SPLIT_TRAIN, epoch * windows + p, 1, tokens, targets, NULL, E));
        for (int k = 0; k < T - 1; k++) assert_int_equal(targets[k], tokens[k + 1]);
        for (int k = 0; k < T; k++) { /* the next token of the document, or a document's first */
            int32_t next = follows[tokens[k]];
            if (next >= 0) assert_int_equal(targets[k], next);
            else assert_true(targets[k] == 0 || follows[targets[k] - 1] < 0);
        }
    }
}

/* Windows cross from a document's last token to another document's first. An epoch has every token
 * once, except those of the last, incomplete window. Epochs and seeds differ. */
static void documents_are_shuffled(void **state) {
    enum { N = 200 };
    static int32_t follows[1 << 14], epochs[3][1 << 14];
    static int seen[1 << 14];
    int length[N];
    int64_t tokens = 0;
    for (int i = 0; i < N; i++) {
        length[i] = i % 7 == 3 ? 0 : 1 + (i * 37) % 23;
        for (int k = 0; k < length[i]; k++)
            follows[tokens + k] = k + 1 < length[i] ? (int32_t)(tokens + k + 1) : -1;
        tokens += length[i];
    }
    assert_int_equal(put_documents("m", N, length, 0, true), tokens);
    struct path path = path_of("m", "");
    const char *paths[] = { path.text };
    struct data_options o = { .kind = DATA_MEGATRON, .paths = paths, .path_count = 1,
                              .order = ORDER_DOCUMENTS };
    struct data *d, *other;
    MUST(data_open(&d, &o, 50000, T, 7, E));
    MUST(data_open(&other, &o, 50000, T, 8, E));
    int64_t windows = data_sequences(d, SPLIT_TRAIN);
    assert_int_equal(windows, (tokens - 1) / T);
    for (int epoch = 0; epoch < 2; epoch++) read_epoch(d, epoch, windows, epochs[epoch], follows);
    read_epoch(other, 0, windows, epochs[2], follows);
    for (int which = 0; which < 3; which++) {
        memset(seen, 0, sizeof seen);
        for (int64_t i = 0; i < windows * T; i++)
            assert_int_equal(seen[epochs[which][i]]++, 0);
        int same = 0;
        const int32_t *other_order = epochs[(which + 1) % 3];
        for (int64_t i = 0; i < windows * T; i++) same += epochs[which][i] == other_order[i];
        assert_true(same < windows * T / 10);
    }
    int32_t again[T], targets[T];
    MUST(data_batch(d, SPLIT_TRAIN, 3, 1, again, targets, NULL, E)); /* back in an earlier epoch */
    assert_memory_equal(again, &epochs[0][3 * T], sizeof again);
    data_close(d);
    data_close(other);
    drop("m");
}

/* What is held out begins with a document. */
static void whole_documents_are_held_out(void **state) {
    static const int LENGTH[] = { 40, 40, 40, 40 };
    put_documents("m", 4, LENGTH, 0, false);
    struct path path = path_of("m", "");
    const char *paths[] = { path.text };
    struct data_options o = { .kind = DATA_MEGATRON, .paths = paths, .path_count = 1,
                              .order = ORDER_DOCUMENTS, .holdout = 0.3 };
    struct data *d;
    int32_t tokens[T], targets[T];
    MUST(data_open(&d, &o, 50000, T, 7, E)); /* 112 tokens are for training: two documents */
    assert_int_equal(data_sequences(d, SPLIT_TRAIN), 79 / T);
    assert_int_equal(data_sequences(d, SPLIT_EVAL), 79 / T);
    MUST(data_batch(d, SPLIT_EVAL, 0, 1, tokens, targets, NULL, E));
    assert_int_equal(tokens[0], 80);
    for (int64_t p = 0; p < 40; p++) {
        MUST(data_batch(d, SPLIT_TRAIN, p, 1, tokens, targets, NULL, E));
        for (int k = 0; k < T; k++) assert_true(tokens[k] < 80 && targets[k] < 80);
    }
    data_close(d);
    o.holdout = 0.8;
    MUST_FAIL(ERR_CONFIG, "its first document ends behind the first 31 tokens",
              data_open(&d, &o, 50000, T, 7, E));
    o.kind = DATA_TEXT;
    MUST_FAIL(ERR_CONFIG, "needs Megatron's index", data_open(&d, &o, 50000, T, 7, E));
    drop("m");
}

static void damaged_documents_are_named(void **state) {
    static const int LENGTH[] = { 40, 40, 40 };
    static const struct { long at; unsigned char value; const char *words; } DAMAGE[] = {
        { 70, 1, "m.idx: document 0 at byte 70 begins with sequence 1" },
        { 86, 0, "m.idx: document 2 at byte 86 begins with sequence 0" },
        { 86, 9, "m.idx: document 2 at byte 86 begins with sequence 9" },
        { 94, 2, "m.idx: document 3 at byte 94 begins with sequence 2" },
        { 26, 0, "m.idx: it lists no document" },
    };
    struct path path = path_of("m", "");
    const char *paths[] = { path.text };
    struct data_options o = { .kind = DATA_MEGATRON, .paths = paths, .path_count = 1,
                              .order = ORDER_DOCUMENTS };
    struct data *d;
    for (size_t i = 0; i < sizeof DAMAGE / sizeof *DAMAGE; i++) {
        put_documents("m", 3, LENGTH, 0, false);
        FILE *f = fopen(path_of("m", ".idx").text, "r+b");
        assert_non_null(f);
        assert_int_equal(fseek(f, DAMAGE[i].at, SEEK_SET), 0);
        assert_int_equal(fputc(DAMAGE[i].value, f), DAMAGE[i].value);
        assert_int_equal(fclose(f), 0);
        MUST_FAIL(ERR_FORMAT, DAMAGE[i].words, data_open(&d, &o, 50000, T, 7, E));
    }
    drop("m");
}

/* ---- batches drawn by a thread ---- */

/* Of this test program only: how many reads were made, and where the first ones were; the same for
 * what the system was asked for. While `held` is set, reads do not return, as on a slow disk. */
enum { PLACES = 256 };
static _Atomic int reads, asks;
static _Atomic int64_t read_at[PLACES], asked_at[PLACES];
static _Atomic bool held;

/* Replaces the C library's function, as the next. */
ssize_t pread(int fd, void *out, size_t n, off_t at) {
    ssize_t (*real)(int, void *, size_t, off_t);
    *(void **)&real = dlsym(RTLD_NEXT, "pread");
    while (atomic_load(&held)) usleep(1000);
    int i = atomic_fetch_add(&reads, 1);
    if (i < PLACES) atomic_store(&read_at[i], at);
    return real(fd, out, n, at);
}

int posix_fadvise(int fd, off_t at, off_t n, int advice) {
    assert_int_equal(advice, POSIX_FADV_WILLNEED);
    assert_true(fd >= 0 && n > 0);
    int i = atomic_load(&asks); /* by one thread */
    if (i < PLACES) atomic_store(&asked_at[i], at);
    atomic_store(&asks, i + 1);
    return 0;
}

/* Waits until `count` reads were made. */
static void wait_for_reads(int count) {
    time_t limit = time(NULL) + 60;
    while (atomic_load(&reads) < count && time(NULL) < limit) usleep(1000);
    assert_int_equal(atomic_load(&reads), count);
}

static void batches_are_drawn_ahead(void **state) {
    enum { BATCH = 2, STRIDE = 6 };
    int length[] = { 4 * 40 + 1 };
    put_documents("m", 1, length, 0, false);
    struct path path = path_of("m", "");
    const char *paths[] = { path.text };
    struct data_options o = { .kind = DATA_MEGATRON, .paths = paths, .path_count = 1 };
    struct data *d;
    struct data_ahead *ahead;
    int32_t tokens[BATCH * T], targets[BATCH * T], wanted[BATCH * T], wanted_targets[BATCH * T];
    struct ahead_plan plan = { .count = BATCH, .seq_len = T, .stride = STRIDE, .batches = 1 };
    struct ahead_batch taken = { .tokens = tokens, .targets = targets };
    MUST(data_open(&d, &o, 50000, T, 7, E));
    MUST(data_ahead_create(&ahead, d, &plan, E));
    int before = atomic_load(&reads);
    MUST(data_ahead_take(ahead, 0, &taken, E));
    wait_for_reads(before + (1 + BATCHES_AHEAD) * BATCH);
    /* In order, and with jumps as a resumed run makes them. */
    for (int64_t i = 0, position = 0; i < 300; i++) {
        position = i % 11 == 10 ? (i * 31) % 97 : position + STRIDE;
        MUST(data_ahead_take(ahead, position, &taken, E));
        MUST(data_batch(d, SPLIT_TRAIN, position, BATCH, wanted, wanted_targets, NULL, E));
        assert_memory_equal(tokens, wanted, sizeof wanted);
        assert_memory_equal(targets, wanted_targets, sizeof wanted);
        assert_int_equal(taken.counted, STRIDE * T);
    }
    data_ahead_destroy(ahead);
    data_close(d);
    drop("m");
}

static void wait_for_asks(int count) {
    time_t limit = time(NULL) + 60;
    while (atomic_load(&asks) < count && time(NULL) < limit) usleep(1000);
    assert_int_equal(atomic_load(&asks), count);
}

/* Where batches 0 .. batches-1 of a step of one are read. */
static void places_of(const struct data *d, const struct ahead_plan *plan, int batches,
                      int64_t *place) {
    int32_t tokens[4 * T], targets[4 * T];
    atomic_store(&reads, 0);
    for (int k = 0; k < batches; k++)
        MUST(data_batch(d, SPLIT_TRAIN, k * plan->stride, plan->count, tokens, targets, NULL, E));
    assert_int_equal(atomic_load(&reads), batches * plan->count);
    for (int i = 0; i < batches * plan->count; i++) place[i] = atomic_load(&read_at[i]);
}

/* A disk that does not answer: the first batches were asked for before the first read returns. Then
 * BATCHES_AHEAD are drawn, and BATCHES_ASKED behind them are asked for, all in order. */
static void batches_are_asked_for_before_they_are_read(void **state) {
    enum { BATCH = 2, STRIDE = 2, TAKEN = 5, DRAWN = TAKEN + BATCHES_AHEAD };
    enum { ASKED = DRAWN - 1 + BATCHES_ASKED, SEQUENCES = 2 * ASKED };
    _Static_assert(BATCH * ASKED <= PLACES, "all places are kept");
    _Static_assert(BATCHES_ASKED_AT_ONCE * DRAWN > ASKED, "the last are not limited by this");
    int length[] = { 4 * SEQUENCES + 1 };
    int64_t place[PLACES];
    put_documents("m", 1, length, 0, false);
    struct path path = path_of("m", "");
    const char *paths[] = { path.text };
    struct data_options o = { .kind = DATA_MEGATRON, .paths = paths, .path_count = 1 };
    struct data *d;
    struct data_ahead *ahead;
    int32_t tokens[BATCH * T], targets[BATCH * T];
    struct ahead_plan plan = { .count = BATCH, .seq_len = T, .stride = STRIDE, .batches = 1 };
    struct ahead_batch taken = { .tokens = tokens, .targets = targets };
    MUST(data_open(&d, &o, 50000, T, 7, E));
    places_of(d, &plan, ASKED, place);
    MUST(data_ahead_create(&ahead, d, &plan, E));
    atomic_store(&reads, 0);
    atomic_store(&asks, 0);
    atomic_store(&held, true);
    data_ahead_begin(ahead, 0);
    wait_for_asks(BATCH * BATCHES_ASKED_AT_ONCE);
    assert_int_equal(atomic_load(&reads), 0);
    atomic_store(&held, false);
    for (int64_t k = 0; k < TAKEN; k++) {
        MUST(data_ahead_take(ahead, k * STRIDE, &taken, E));
        assert_int_equal(tokens[0], place[k * BATCH] / 4); /* ids of four bytes, from 0 on */
    }
    wait_for_reads(BATCH * DRAWN);
    wait_for_asks(BATCH * ASKED);
    for (int i = 0; i < BATCH * ASKED; i++) assert_int_equal(atomic_load(&asked_at[i]), place[i]);
    for (int i = 0; i < BATCH * DRAWN; i++) assert_int_equal(atomic_load(&read_at[i]), place[i]);
    data_ahead_destroy(ahead);
    data_close(d);
    drop("m");
}

/* The thread draws what data_ahead_begin names before anything was taken. It can begin again
 * elsewhere. A step has two batches, and its first one has the count. */
static void drawing_begins_before_the_first_batch(void **state) {
    enum { BATCH = 2, STRIDE = 6, BATCHES = 2 };
    static const int64_t BEGIN[] = { 0, 2 * STRIDE, 7 };
    int length[] = { 4 * 40 + 1 };
    put_documents("m", 1, length, 0, false);
    struct path path = path_of("m", "");
    const char *paths[] = { path.text };
    struct data_options o = { .kind = DATA_MEGATRON, .paths = paths, .path_count = 1 };
    struct data *d;
    struct data_ahead *ahead;
    int32_t tokens[BATCH * T], targets[BATCH * T], wanted[BATCH * T], wanted_targets[BATCH * T];
    struct ahead_plan plan = { .count = BATCH, .seq_len = T, .stride = STRIDE, .batches = BATCHES };
    struct ahead_batch taken = { .tokens = tokens, .targets = targets };
    MUST(data_open(&d, &o, 50000, T, 7, E));
    MUST(data_ahead_create(&ahead, d, &plan, E));
    for (size_t i = 0; i < sizeof BEGIN / sizeof *BEGIN; i++) {
        int before = atomic_load(&reads);
        data_ahead_begin(ahead, BEGIN[i]);
        wait_for_reads(before + BATCHES_AHEAD * BATCH);
        for (int64_t k = 0; k < BATCHES_AHEAD; k++) {
            int64_t position = BEGIN[i] + k * STRIDE;
            MUST(data_ahead_take(ahead, position, &taken, E));
            wait_for_reads(before + (BATCHES_AHEAD + 1) * BATCH); /* one more, and none here */
            MUST(data_batch(d, SPLIT_TRAIN, position, BATCH, wanted, wanted_targets, NULL, E));
            before += 2 * BATCH;
            assert_memory_equal(tokens, wanted, sizeof wanted);
            assert_memory_equal(targets, wanted_targets, sizeof wanted);
            assert_int_equal(taken.counted, k % BATCHES ? 0 : BATCHES * STRIDE * T);
        }
    }
    data_ahead_destroy(ahead);
    data_close(d);
    drop("m");
}

static void make_trainer(struct tiny_run *r, const struct data *d) {
    trainer_destroy(r->trainer);
    MUST(trainer_create(&r->trainer, r->backend, &r->model, &r->recipe, &r->train, d, E));
}

/* A trainer has its first batches drawn without a step. One that resumes draws none before the
 * checkpoint is loaded, and then those that follow it. */
static void a_trainer_draws_before_its_first_step(void **state) {
    char text[32 * 40 + 1];
    struct tiny_run r;
    struct step_result s;
    struct checkpoint_info info, found;
    memset(text, 'A', sizeof text);
    struct path path = path_of("t", ".txt");
    put(path, text, sizeof text);
    const char *paths[] = { path.text };
    tiny_run_init(&r, RECIPE_BF16, 2);
    r.data_options = (struct data_options){ .kind = DATA_TEXT, .paths = paths, .path_count = 1 };
    MUST(tiny_run_open(&r, E)); /* with all else that it needs */
    trainer_destroy(r.trainer);
    r.trainer = NULL;
    int before = atomic_load(&reads), ahead = (int)(BATCHES_AHEAD * r.train.micro_batch);
    make_trainer(&r, r.data);
    wait_for_reads(before + ahead);
    MUST(trainer_step(r.trainer, false, &s, E));
    MUST(checkpoint_save(r.trainer, DIR, &info, E));
    make_trainer(&r, NULL);
    before = atomic_load(&reads);
    MUST(checkpoint_load(r.trainer, info.path, &found, E));
    int loading = atomic_load(&reads) - before;
    r.train.resumes = true;
    make_trainer(&r, r.data);
    before = atomic_load(&reads);
    MUST(checkpoint_load(r.trainer, info.path, &found, E));
    wait_for_reads(before + loading + ahead);
    MUST(trainer_step(r.trainer, false, &s, E)); /* a step takes two of them */
    wait_for_reads(before + loading + ahead + (int)r.train.global_batch);
    make_trainer(&r, r.data);
    before = atomic_load(&reads);
    tiny_run_close(&r);
    assert_int_equal(atomic_load(&reads), before);
    MUST(checkpoint_remove(info.path, E));
    assert_int_equal(unlink(path.text), 0);
}

/* While its batches are ready, the thread prepares the order of the next epoch. It has the first
 * batch of that epoch before the last one of this is taken. The epoch ends inside a batch. */
static void the_next_epoch_is_ready(void **state) {
    enum { N = 2998, BATCH = 2 };
    int length[N], made[1 << 13] = { 0 };
    for (int i = 0; i < N; i++) length[i] = 1 + i % 5;
    put_documents("m", N, length, 0, false);
    struct path path = path_of("m", "");
    const char *paths[] = { path.text };
    struct data_options o = { .kind = DATA_MEGATRON, .paths = paths, .path_count = 1,
                              .order = ORDER_DOCUMENTS };
    struct data *d, *alone;
    struct data_ahead *ahead;
    int32_t tokens[BATCH * T], targets[BATCH * T], wanted[BATCH * T], wanted_targets[BATCH * T];
    struct ahead_plan plan = { .count = BATCH, .seq_len = T, .stride = BATCH, .batches = 1 };
    struct ahead_batch taken = { .tokens = tokens, .targets = targets };
    MUST(data_open(&d, &o, 50000, T, 7, E));
    MUST(data_open(&alone, &o, 50000, T, 7, E));
    int64_t windows = data_sequences(d, SPLIT_TRAIN), last = windows / BATCH;
    assert_int_equal(windows % BATCH, 1);
    for (int64_t i = 0; i <= last + BATCHES_AHEAD; i++) { /* reads for each batch */
        int before = atomic_load(&reads);
        MUST(data_batch(alone, SPLIT_TRAIN, i * BATCH, BATCH, wanted, wanted_targets, NULL, E));
        made[i] = atomic_load(&reads) - before;
    }
    atomic_store(&reads, 0);
    MUST(data_ahead_create(&ahead, d, &plan, E));
    assert_false(data_prepared(d, 0));
    int expected = 0;
    for (int64_t i = 0; i < BATCHES_AHEAD; i++) expected += made[i];
    for (int64_t i = 0; i <= last; i++) {
        MUST(data_ahead_take(ahead, i * BATCH, &taken, E));
        expected += made[i + BATCHES_AHEAD];
        wait_for_reads(expected);
        time_t limit = time(NULL) + 60;
        while (!data_prepared(d, i * BATCH) && time(NULL) < limit) usleep(1000);
        assert_true(data_prepared(d, i * BATCH));
        MUST(data_batch(alone, SPLIT_TRAIN, i * BATCH, BATCH, wanted, wanted_targets, NULL, E));
        assert_memory_equal(tokens, wanted, sizeof wanted);
        assert_memory_equal(targets, wanted_targets, sizeof wanted);
        atomic_fetch_sub(&reads, made[i]);
    }
    data_ahead_destroy(ahead);
    data_close(alone);
    data_close(d);
    drop("m");
}

/* A batch that the thread could not draw is an error when it is taken, not before. */
static void an_error_belongs_to_its_batch(void **state) {
    unsigned char text[T * 20 + 1];
    memset(text, 'a', sizeof text);
    text[T * 10] = 0xFF; /* beyond the vocabulary; the id is in two sequences */
    struct path path = path_of("t", ".txt");
    put(path, text, sizeof text);
    const char *paths[] = { path.text };
    struct data_options o = { .kind = DATA_TEXT, .paths = paths, .path_count = 1 };
    struct data *d;
    struct data_ahead *ahead;
    int32_t tokens[T], targets[T];
    struct ahead_plan plan = { .count = 1, .seq_len = T, .stride = 1, .batches = 1 };
    struct ahead_batch taken = { .tokens = tokens, .targets = targets };
    text[T * 10] = 'a';
    put(path, text, sizeof text);
    MUST(data_open(&d, &o, 200, T, 7, E)); /* opening checks ids */
    text[T * 10] = 0xFF;
    put(path, text, sizeof text);
    MUST(data_ahead_create(&ahead, d, &plan, E));
    int failed = 0;
    for (int64_t p = 0; p < 20; p++) {
        struct err e = { 0 };
        enum status st = data_ahead_take(ahead, p, &taken, &e);
        enum status alone = data_batch(d, SPLIT_TRAIN, p, 1, tokens, targets, NULL, NULL);
        assert_int_equal(st, alone);
        failed += st != OK;
        if (st != OK) assert_non_null(strstr(e.text, "token id 255 at byte 40"));
    }
    assert_int_equal(failed, 2);
    data_ahead_destroy(ahead);
    data_close(d);
    assert_int_equal(unlink(path.text), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_blend_keeps_its_shares),
        cmocka_unit_test(parts_have_orders_of_their_own),
        cmocka_unit_test(a_blend_is_evaluated_in_its_shares),
        cmocka_unit_test(a_tiny_weight_is_drawn_from_seldom),
        cmocka_unit_test(weights_are_above_0),
        cmocka_unit_test(documents_are_shuffled),
        cmocka_unit_test(whole_documents_are_held_out),
        cmocka_unit_test(damaged_documents_are_named),
        cmocka_unit_test(batches_are_drawn_ahead),
        cmocka_unit_test(batches_are_asked_for_before_they_are_read),
        cmocka_unit_test(drawing_begins_before_the_first_batch),
        cmocka_unit_test(a_trainer_draws_before_its_first_step),
        cmocka_unit_test(the_next_epoch_is_ready),
        cmocka_unit_test(an_error_belongs_to_its_batch),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
