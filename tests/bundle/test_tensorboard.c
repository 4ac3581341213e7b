/* The event files of a run, read back byte by byte: checksums, fields, values; which records are
 * left out; resumed runs; a full disk. tests/outside/tensorboard.sh reads such files with the
 * package itself. */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "runner/record/npy.h"
#include "runner/tensorboard/event_file.h"
#include "runner/tensorboard/tensorboard.h"
#include "tests/support/run_fixture.h"

static const char SHA[] = "0badcafe0badcafe0badcafe0badcafe0badcafe0badcafe0badcafe0badcafe";

/* ---- reading ----------------------------------------------------------------------------------*/

/* A field of a message: a number, or the bytes of a text or a message. */
struct field {
    int number;
    uint64_t value; /* a number's bits */
    const char *at; /* of bytes; NULL: a number */
    size_t n;
};

static uint64_t take_varint(const char **at, const char *end) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        assert_true(*at < end && shift < 70);
        unsigned char byte = (unsigned char)*(*at)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
    }
}

/* False at the end. */
static bool next_field(const char **at, const char *end, struct field *out) {
    if (*at == end) return false;
    uint64_t key = take_varint(at, end);
    size_t fixed = (key & 7) == 1 ? 8 : (key & 7) == 5 ? 4 : 0;
    *out = (struct field){ .number = (int)(key >> 3) };
    if ((key & 7) == 0) {
        out->value = take_varint(at, end);
        return true;
    }
    assert_true(fixed || (key & 7) == 2);
    size_t n = fixed ? fixed : (size_t)take_varint(at, end);
    assert_true((size_t)(end - *at) >= n);
    if (fixed) memcpy(&out->value, *at, n);
    else out->at = *at;
    out->n = n;
    *at += n;
    return true;
}

/* The first field of that number in a message; a field of number 0 if there is none. */
static struct field field_of(struct field message, int number) {
    struct field f = { 0 };
    const char *at = message.at;
    while (at && next_field(&at, message.at + message.n, &f))
        if (f.number == number) return f;
    return (struct field){ 0 };
}

static double double_of(struct field f) {
    double x;
    memcpy(&x, &f.value, sizeof x);
    return x;
}

static double float_of(struct field f) {
    float x;
    uint32_t bits = (uint32_t)f.value;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

static void assert_text(struct field f, const char *text) {
    assert_non_null(f.at);
    if (f.n != strlen(text) || memcmp(f.at, text, f.n) != 0)
        fail_msg("expected '%s', found '%.*s'", text, (int)f.n, f.at);
}

struct file {
    char *bytes;
    struct field event[4096];
    int64_t count;
    bool torn; /* bytes that are no whole record follow */
};

static struct file *read_events(const char *path) {
    struct file *f = calloc(1, sizeof *f);
    struct err e = { 0 };
    size_t n;
    assert_non_null(f);
    CHECK(file_read(path, 1 << 26, &f->bytes, &n, &e));
    const char *at = f->bytes, *end = at + n;
    while (end - at >= 16) {
        uint64_t length;
        uint32_t head, tail;
        memcpy(&length, at, 8);
        memcpy(&head, at + 8, 4);
        assert_int_equal(head, event_file_checksum(at, 8));
        if ((uint64_t)(end - at) < length + 16) break;
        memcpy(&tail, at + 12 + length, 4);
        assert_int_equal(tail, event_file_checksum(at + 12, length));
        assert_true(f->count < 4096);
        f->event[f->count++] = (struct field){ 1, 0, at + 12, (size_t)length };
        at += length + 16;
    }
    f->torn = at != end;
    return f;
}

static void free_events(struct file *f) {
    free(f->bytes);
    free(f);
}

/* The value with a tag in the event of a step; *times: how many events have it at any step. */
static struct field value_of(const struct file *f, const char *tag, int64_t step, int *times) {
    struct field found = { 0 };
    int count = 0;
    for (int64_t i = 0; i < f->count; i++) {
        struct field summary = field_of(f->event[i], 5), value;
        const char *at = summary.at;
        while (at && next_field(&at, summary.at + summary.n, &value)) {
            struct field name = field_of(value, 1);
            if (name.n != strlen(tag) || memcmp(name.at, tag, name.n) != 0) continue;
            count++;
            if ((int64_t)field_of(f->event[i], 2).value == step) found = value;
        }
    }
    if (times) *times = count;
    return found;
}

static void expect_scalar(const struct file *f, const char *tag, int64_t step, double value) {
    struct field v = value_of(f, tag, step, NULL);
    if (!v.at) fail_msg("no %s at step %lld", tag, (long long)step);
    double found = float_of(field_of(v, 2));
    if (isnan(value) ? !isnan(found) : found != (double)(float)value)
        fail_msg("%s is %g, not %g", tag, found, value);
}

static int times(const struct file *f, const char *tag) {
    int count;
    (void)value_of(f, tag, -1, &count);
    return count;
}

/* ---- a run ------------------------------------------------------------------------------------*/

#define LONG "\"a/long/path/a\",\"a/long/path/b\",\"a/long/path/c\","

struct scene {
    char folder[PATH_CAP];
    struct run_dir dir;
    json_t *config;
    struct tensorboard *board;
    struct err e;
};

static void begin(struct scene *s) {
    struct err e = { 0 };
    *s = (struct scene){ .dir = RUN_DIR_NONE };
    scratch_directory(s->folder);
    CHECK(run_dir_create(s->folder, "drawn", SHA, &s->dir, &e));
    s->config = json_loads("{\"long\":[" LONG LONG LONG LONG LONG "\"\"],"
                           "\"about\":\"a \\\"test\\\"\",\"eval\":null,\"train\":{\"steps\":20,"
                           "\"optimizer\":{\"lr\":0.5,\"betas\":[0.9,0.95]},\"tied\":true}}", 0,
                           NULL);
    assert_non_null(s->config);
}

static void end(struct scene *s) {
    struct err e = { 0 };
    tensorboard_close(s->board);
    run_dir_close(&s->dir);
    json_decref(s->config);
    CHECK(tree_remove(s->folder, &e));
}

static void open_board(struct scene *s, int64_t steps, int64_t from) {
    struct err e = { 0 };
    tensorboard_close(s->board);
    CHECK(tensorboard_open(&s->dir, s->config, steps, from, &s->board, &e));
}

static enum status put(struct scene *s, const char *format, ...) {
    char text[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    json_t *event = json_loads(text, 0, NULL);
    if (!event) fail_msg("not JSON: %s", text);
    enum status st = tensorboard_put(s->board, event, &s->e);
    json_decref(event);
    return st;
}

/* A record of two FP8 tensors. */
static enum status put_fp8(struct scene *s, int64_t step) {
    struct fp8_slot slot[2] = {
        { .amax_bits = 0x40400000, .scale = 0.25f, .saturated = 1, .elements = 4 },
        { .amax_bits = 0x7fc00000, .scale = 8.0f, .underflow = 3, .elements = 4 },
    };
    struct stream_source source = { .slot = slot, .step_number = step, .width = 2 };
    struct npy layout;
    char hex[1024];
    npy_layout(&STREAMS[STREAM_FP8], 2, &layout);
    unsigned char row[256];
    assert_true(layout.row_bytes <= 256);
    npy_row(&STREAMS[STREAM_FP8], &source, &layout, (char *)row);
    for (int64_t i = 0; i < layout.row_bytes; i++) snprintf(hex + 2 * i, 3, "%02x", row[i]);
    return put(s, "{\"event\":\"fp8\",\"step\":%lld,\"row\":\"%s\"}", (long long)step, hex);
}

/* The n-th event file of the run, in the order of the names. */
static struct file *nth(const struct scene *s, int n) {
    char path[PATH_CAP], full[2 * PATH_CAP];
    struct dirent **list;
    struct err e = { 0 };
    CHECK(path_join(path, s->dir.path, "data/tensorboard", &e));
    int count = scandir(path, &list, NULL, alphasort);
    assert_true(count > n + 2); /* . and .. */
    snprintf(full, sizeof full, "%s/%s", path, list[n + 2]->d_name);
    for (int i = 0; i < count; i++) free(list[i]);
    free(list);
    return read_events(full);
}

/* ---- tests ------------------------------------------------------------------------------------*/

/* RFC 3720, appendix B.4: 32 bytes of zeros, of ones, and ascending. */
static void test_checksums(void **state) {
    unsigned char x[32] = { 0 };
    assert_int_equal(event_file_checksum(x, 32),
                     (uint32_t)((0x8a9136aau >> 15 | 0x8a9136aau << 17) + 0xa282ead8u));
    memset(x, 0xff, 32);
    assert_int_equal(event_file_checksum(x, 32),
                     (uint32_t)((0x62a8ab43u >> 15 | 0x62a8ab43u << 17) + 0xa282ead8u));
    for (int i = 0; i < 32; i++) x[i] = (unsigned char)i;
    assert_int_equal(event_file_checksum(x, 32),
                     (uint32_t)((0x46dd794eu >> 15 | 0x46dd794eu << 17) + 0xa282ead8u));
}

static void test_each_stream(void **state) {
    struct scene s;
    begin(&s);
    open_board(&s, 20, 0);
    assert_int_equal(put(&s, "{\"event\":\"slots\",\"names\":[\"a.x\",\"b.w\"]}"), OK);
    assert_int_equal(put(&s, "{\"event\":\"step\",\"step\":1,\"loss\":2.5,"
                         "\"loss_bits\":\"40200000\","
                         "\"grad_norm\":null,\"grad_norm_bits\":\"7fc00000\",\"lr\":null,"
                         "\"mfu_gemm\":0.5,\"tokens\":64,\"other\":1}"), OK);
    assert_int_equal(put(&s, "{\"event\":\"step\",\"step\":2,\"loss\":null,"
                         "\"loss_bits\":\"7fc00000\",\"loss_tokens\":0}"), OK);
    assert_int_equal(put(&s, "{\"event\":\"eval\",\"step\":1,\"loss\":2.25,"
                         "\"loss_bits\":\"40100000\",\"accuracy\":0.125}"), OK);
    assert_int_equal(put(&s, "{\"event\":\"telemetry\",\"step\":1,\"rank\":3,\"device\":3,"
                         "\"time\":1795432882,\"gpu_power_mw\":5000}"), OK);
    assert_int_equal(put_fp8(&s, 1), OK);
    assert_int_equal(put(&s, "{\"event\":\"trace\",\"step\":1,\"row\":\"00\"}"), OK);
    assert_int_equal(put(&s, "{\"event\":\"sample\",\"step\":1,\"number\":0,\"prompt_tokens\":2,"
                         "\"tokens\":3,\"prompt\":\"Ab\\nc\",\"text\":null,\"ids\":[7,8,9],"
                         "\"end\":\"length\"}"), OK);
    struct file *f = nth(&s, 0);
    assert_text(field_of(f->event[0], 3), "brain.Event:2");
    assert_true(double_of(field_of(f->event[0], 1)) > 1.7e9);
    assert_int_equal(field_of(field_of(f->event[1], 7), 1).value, 1); /* START */
    assert_int_equal(field_of(f->event[1], 2).value, 0);
    expect_scalar(f, "train/loss", 1, 2.5);
    assert_int_equal(times(f, "train/loss"), 1); /* not of the step without a token with loss */
    expect_scalar(f, "train/grad_norm", 1, (double)NAN);
    expect_scalar(f, "train/mfu_gemm", 1, 0.5);
    expect_scalar(f, "eval/loss", 1, 2.25);
    expect_scalar(f, "eval/accuracy", 1, 0.125);
    expect_scalar(f, "telemetry/rank3/gpu_power_mw", 1, 5000);
    expect_scalar(f, "fp8/a.x/amax", 1, 3);
    expect_scalar(f, "fp8/a.x/saturated", 1, 0.25);
    expect_scalar(f, "fp8/b.w/amax", 1, (double)NAN);
    expect_scalar(f, "fp8/b.w/scale", 1, 8);
    expect_scalar(f, "fp8/b.w/underflow", 1, 0.75);
    static const char *const ABSENT[] = { "train/step", "train/lr", "train/other",
                                          "telemetry/rank3/time", "telemetry/rank3/device" };
    for (size_t i = 0; i < sizeof ABSENT / sizeof *ABSENT; i++)
        assert_int_equal(times(f, ABSENT[i]), 0);
    struct field text = value_of(f, "samples/0", 1, NULL);
    assert_text(field_of(field_of(field_of(text, 9), 1), 1), "text");
    assert_int_equal(field_of(field_of(text, 8), 1).value, 7); /* DT_STRING */
    assert_text(field_of(field_of(text, 8), 8),
                "prompt\n\n    Ab\n    c\n\n3 new tokens, end: length\n\n    [7,8,9]\n\n");
    assert_false(f->torn);
    free_events(f);
    end(&s);
}

/* The value of a hyperparameter: google.protobuf.Value. */
static struct field hparam(struct field start, const char *name) {
    struct field entry;
    const char *at = start.at;
    while (at && next_field(&at, start.at + start.n, &entry)) {
        struct field key = field_of(entry, 1);
        if (entry.number == 1 && key.n == strlen(name) && !memcmp(key.at, name, key.n))
            return field_of(entry, 2);
    }
    return (struct field){ 0 };
}

static void test_hyperparameters(void **state) {
    struct scene s;
    struct err e = { 0 };
    begin(&s);
    open_board(&s, 20, 0);
    CHECK(tensorboard_end(s.board, EVENT_SUCCEEDED, &e));
    struct file *f = nth(&s, 0);
    struct field value = value_of(f, "_hparams_/session_start_info", 0, NULL);
    struct field plugin = field_of(field_of(value, 9), 1);
    assert_text(field_of(plugin, 1), "hparams");
    struct field start = field_of(field_of(plugin, 2), 3);
    assert_true(double_of(field_of(hparam(start, "train.optimizer.lr"), 2)) == 0.5);
    assert_true(double_of(field_of(hparam(start, "train.steps"), 2)) == 20);
    assert_text(field_of(hparam(start, "train.optimizer.betas"), 3), "[0.9,0.95]");
    assert_text(field_of(hparam(start, "about"), 3), "a \"test\"");
    assert_int_equal(field_of(hparam(start, "train.tied"), 4).value, 1);
    assert_null(hparam(start, "eval").at);
    assert_text(field_of(hparam(start, "long"), 3), "16 items");
    value = value_of(f, "_hparams_/session_end_info", 0, NULL);
    struct field done = field_of(field_of(field_of(field_of(value, 9), 1), 2), 4);
    assert_int_equal(field_of(done, 1).value, 1);
    free_events(f);
    end(&s);
}

/* Buckets touch one another; a gap is one empty bucket; NaN is left out. */
static void test_histograms(void **state) {
    static const double WANT[][3] = { { -2, -1, 5 },           { -1, -0x1p-48, 0 },
                                      { -0x1p-48, 0x1p-48, 7 }, { 0x1p-48, 0x1p-47, 9 },
                                      { 0x1p-47, 2, 0 },        { 2, 4, 1 } };
    static const char *const TAGS[] = { "weights/a.w", "gradients/a.w", "activations/embed" };
    struct scene s;
    begin(&s);
    open_board(&s, 20, 0);
    assert_int_equal(put(&s, "{\"event\":\"histograms\",\"step\":4,\"tensors\":{"
                         "\"a.w\":\"15:5 64:7 65:9 114:1 129:2\",\"out:embed\":\"64:1\","
                         "\"grad:a.w\":\"64:3\",\"b.w\":\"\"}}"), OK);
    struct file *f = nth(&s, 0);
    for (int i = 0; i < 3; i++) {
        struct field value = value_of(f, TAGS[i], 4, NULL), tensor = field_of(value, 8);
        assert_text(field_of(field_of(field_of(value, 9), 1), 1), "histograms");
        assert_int_equal(field_of(tensor, 1).value, 2); /* DT_DOUBLE */
        struct field rows = field_of(field_of(tensor, 2), 2), content = field_of(tensor, 4);
        assert_int_equal(field_of(rows, 1).value, i ? 1 : 6);
        assert_int_equal(content.n, (i ? 1 : 6) * sizeof *WANT);
        if (i == 0) assert_memory_equal(content.at, WANT, sizeof WANT);
    }
    assert_int_equal(times(f, "weights/b.w"), 0);
    free_events(f);
    end(&s);
}

/* A run of a million steps does not fill the disk, and its last step is there. */
static void test_long_runs_are_thinned(void **state) {
    struct scene s;
    int64_t steps = 1000000;
    begin(&s);
    open_board(&s, steps, 0);
    assert_int_equal(put(&s, "{\"event\":\"slots\",\"names\":[\"a.x\",\"b.w\"]}"), OK);
    for (int64_t step = 1; step <= 8000; step++) {
        int64_t at = step < 8000 ? step : steps;
        if (step % 100 == 1 || step == 8000) assert_int_equal(put_fp8(&s, at), OK);
        assert_int_equal(put(&s, "{\"event\":\"step\",\"step\":%lld,\"loss\":1.5}", (long long)at),
                         OK);
        for (int rank = 0; rank < 2 && step % 50 == 0; rank++)
            assert_int_equal(put(&s, "{\"event\":\"telemetry\",\"step\":%lld,\"rank\":%d,"
                                 "\"rss_bytes\":1}", (long long)at, rank), OK);
    }
    struct file *f = nth(&s, 0);
    assert_int_equal(times(f, "train/tokens"), 0);
    assert_int_equal(times(f, "fp8/a.x/amax"), 5);                 /* 1, 2001, 4001, 6001, last */
    assert_int_equal(times(f, "telemetry/rank1/rss_bytes"), 9);    /* 50, 1000, ... 7000, last */
    assert_int_equal(times(f, "train/loss"), 801);                 /* 1, 10, 20, ... 7990, last */
    expect_scalar(f, "train/loss", steps, 1.5);
    expect_scalar(f, "fp8/b.w/scale", steps, 8);
    free_events(f);
    end(&s);
}

/* A resumed run begins a file whose name comes last, even if the clock has stepped back. */
static void test_resumed_runs(void **state) {
    struct scene s;
    begin(&s);
    open_board(&s, 20, 0);
    char path[PATH_CAP];
    struct err e = { 0 };
    CHECK(path_join(path, s.dir.path, "data/tensorboard", &e));
    put_file(path, "events.out.tfevents.8888888888.fp8lab", "torn");
    open_board(&s, 20, 5);
    assert_int_equal(put(&s, "{\"event\":\"step\",\"step\":6,\"loss\":1.5}"), OK);
    struct file *f = nth(&s, 2);
    assert_int_equal(field_of(f->event[1], 2).value, 6);
    assert_int_equal(field_of(field_of(f->event[1], 7), 1).value, 1);
    expect_scalar(f, "train/loss", 6, 1.5);
    free_events(f);
    end(&s);
}

/* A file that cannot grow ends with a whole record. A file in place of the folder is an error. */
static void test_full_disk(void **state) {
    struct scene s;
    struct rlimit before, small;
    enum status st = OK;
    int64_t step = 0;
    begin(&s);
    open_board(&s, 20, 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 2000;
    void (*then)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    while (st == OK && step < 100)
        st = put(&s, "{\"event\":\"step\",\"step\":%lld,\"loss\":1.5,\"lr\":1}",
                 (long long)++step);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, then);
    assert_int_equal(st, ERR_IO);
    assert_non_null(strstr(s.e.text, "events.out.tfevents."));
    struct file *f = nth(&s, 0);
    assert_false(f->torn);
    assert_int_equal(times(f, "train/loss"), step - 1);
    free_events(f);
    char path[PATH_CAP];
    struct err e = { 0 };
    struct tensorboard *none;
    CHECK(path_join(path, s.dir.path, "data/tensorboard", &e));
    CHECK(tree_remove(path, &e));
    put_file(s.dir.path, "data/tensorboard", "a file");
    assert_int_equal(tensorboard_open(&s.dir, s.config, 20, 0, &none, &e), ERR_FORMAT);
    assert_null(none);
    assert_non_null(strstr(e.text, "data/tensorboard"));
    end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checksums),      cmocka_unit_test(test_each_stream),
        cmocka_unit_test(test_hyperparameters), cmocka_unit_test(test_histograms),
        cmocka_unit_test(test_long_runs_are_thinned), cmocka_unit_test(test_resumed_runs),
        cmocka_unit_test(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
