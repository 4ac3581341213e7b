/* Closing runs into bundles: the same bytes twice, the same content back, constant memory, a full
 * disk. With an argument, writes a done, a failed and a killed bundle into that directory and
 * leaves them there. unpacked.sh and tests/outside/bags.sh read them with other tools. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "runner/bundle/bag.h"
#include "runner/bundle/bundle.h"
#include "runner/bundle/bundle_reader.h"
#include "runner/bundle/guard.h"
#include "runner/bundle/run_view.h"
#include "runner/bundle/unpack.h"
#include "tests/support/run_fixture.h"

static const struct bundle_options KEEP = { .checkpoints = BUNDLE_CHECKPOINTS_FULL,
                                            .keep_directory = true, .threads = 1 };

static void hash_of(const char *path, char hex[SHA256_HEX]) {
    struct err e = { 0 };
    CHECK(sha256_file(path, hex, NULL, &e));
}

/* Runs `body` in a child; returns its exit status. */
static int in_child(int (*body)(const char *dir), const char *dir, struct rusage *usage) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(body(dir));
    int status = 0;
    assert_int_equal(wait4(child, &status, 0, usage), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int finish_quietly(const char *dir) {
    struct err e = { 0 };
    struct bundle_result result;
    enum status st = bundle_finish(dir, &KEEP, &result, &e);
    if (st != OK) fprintf(stderr, "%s\n", e.text);
    return (int)st;
}

static void packs_the_same_bytes_for_any_threads(void **state) {
    char parent[PATH_CAP], dir[PATH_CAP], first[SHA256_HEX], second[SHA256_HEX];
    struct err e = { 0 };
    struct bundle_result a, b;
    struct rusage usage;
    char name[256];
    scratch_directory(parent);
    struct run_fixture f = run_fixture_default();
    f.checkpoint_bytes = 5 << 20;
    run_fixture_write(parent, &f, dir);
    snprintf(name, sizeof name, "data/logs/%0200d.log", 7); /* too long for ustar: a pax header */
    put_file(dir, name, "worker 7");
    CHECK(bundle_finish(dir, &KEEP, &a, &e));
    hash_of(a.path, first);
    assert_int_equal(in_child(finish_quietly, dir, &usage), OK); /* another process id */
    hash_of(a.path, second);
    assert_string_equal(first, second);
    struct bundle_options four = KEEP;
    four.threads = 4;
    CHECK(bundle_finish(dir, &four, &b, &e));
    hash_of(b.path, second);
    assert_string_equal(first, second);
    assert_string_equal(a.identity, b.identity);
    assert_string_equal(a.results_sha256, b.results_sha256);
    assert_true(a.packed_bytes > 0 && a.packed_bytes == b.packed_bytes);
    CHECK(tree_remove(parent, &e));
}

static void another_copy_of_the_run_gives_the_same_bundle(void **state) {
    char parent[2][PATH_CAP], dir[PATH_CAP], hex[2][SHA256_HEX];
    struct err e = { 0 };
    struct bundle_result result;
    struct run_fixture f = run_fixture_default();
    for (int i = 0; i < 2; i++) {
        scratch_directory(parent[i]);
        run_fixture_write(parent[i], &f, dir);
        chmod(dir, i ? 0700 : 0755);
        CHECK(bundle_finish(dir, &KEEP, &result, &e));
        hash_of(result.path, hex[i]);
        CHECK(tree_remove(parent[i], &e));
    }
    assert_string_equal(hex[0], hex[1]);
}

static void entries_are_in_the_documented_order(void **state) {
    static const char *const FIRST[] = { "bagit.txt", "bag-info.txt", "manifest-sha256.txt",
                                         "tagmanifest-sha256.txt", "data/run.json",
                                         "data/metrics/summary.json",
                                         "data/ro-crate-metadata.json" };
    char parent[PATH_CAP], dir[PATH_CAP];
    struct err e = { 0 };
    struct bundle_result result;
    struct bundle *b = NULL;
    struct bundle_entry entry;
    scratch_directory(parent);
    struct run_fixture f = run_fixture_default();
    run_fixture_write(parent, &f, dir);
    CHECK(bundle_finish(dir, &KEEP, &result, &e));
    CHECK(bundle_open(result.path, &BUNDLE_LIMITS, &b, &e));
    bool labels = false, records = false, checkpoint = false;
    for (int i = 0;; i++) {
        CHECK(bundle_next(b, &entry, &e));
        if (!entry.path) break;
        if (i < 7) assert_string_equal(entry.path, FIRST[i]);
        assert_string_not_equal(entry.path, "lock");
        bool is_checkpoint = strncmp(entry.path, "data/checkpoints/", 17) == 0;
        bool is_labels = strstr(entry.path, "_slots.json") || strstr(entry.path, "_tensors.json");
        if (is_labels) assert_false(records);
        labels |= is_labels;
        records |= stream_of_file(entry.path) >= 0;
        if (!is_checkpoint) assert_false(checkpoint);
        checkpoint |= is_checkpoint;
    }
    assert_true(labels && records && checkpoint);
    assert_string_equal(bundle_folder(b), f.id);
    bundle_close(b);
    CHECK(tree_remove(parent, &e));
}

static void extracting_gives_the_directory_back(void **state) {
    char parent[PATH_CAP], dir[PATH_CAP], out[PATH_CAP], path[PATH_CAP];
    struct err e = { 0 };
    struct bundle_result result;
    struct unpack_report report, again;
    struct tree before, after;
    struct stat info;
    scratch_directory(parent);
    struct run_fixture f = run_fixture_default();
    run_fixture_write(parent, &f, dir);
    CHECK(bundle_finish(dir, &KEEP, &result, &e));
    CHECK(path_join(out, parent, "out", &e));
    mode_t old = umask(027);
    CHECK(bundle_unpack(result.path, out, &BUNDLE_LIMITS, &report, &e));
    assert_string_equal(report.identity, result.identity);
    assert_int_equal(report.bytes, result.payload_bytes);
    assert_true(stat(out, &info) == 0 && (info.st_mode & 0777) == 0750);
    CHECK(path_join(path, out, "data/metrics", &e));
    assert_true(stat(path, &info) == 0 && (info.st_mode & 0777) == 0750);
    (void)umask(old);
    CHECK(bundle_unpack(out, NULL, &BUNDLE_LIMITS, &again, &e));
    assert_string_equal(report.identity, again.identity);
    CHECK(path_join(path, dir, "lock", &e));
    CHECK(tree_remove(path, &e));
    CHECK(tree_list(dir, 1000, &before, &e));
    CHECK(tree_list(out, 1000, &after, &e));
    assert_int_equal(before.count, after.count);
    for (int64_t i = 0; i < before.count; i++) {
        assert_string_equal(before.file[i].path, after.file[i].path);
        assert_int_equal(before.file[i].size, after.file[i].size);
    }
    tree_free(&before);
    tree_free(&after);
    assert_int_equal(bundle_unpack(result.path, out, &BUNDLE_LIMITS, &report, &e), ERR_STATE);
    CHECK(tree_remove(parent, &e));
}

static void the_directory_is_removed_on_request_and_pruned_by_policy(void **state) {
    char parent[PATH_CAP], dir[PATH_CAP];
    struct err e = { 0 };
    struct bundle_result result;
    scratch_directory(parent);
    struct run_fixture f = run_fixture_default();
    run_fixture_write(parent, &f, dir);
    struct bundle_options options = KEEP;
    options.checkpoints = BUNDLE_CHECKPOINTS_WEIGHTS;
    options.keep_directory = false;
    put_file(dir, "data/logs/worker-0.log", "%s", "");
    put_file(dir, "data/logs/worker-1.log", "out of paper\n");
    CHECK(bundle_finish(dir, &options, &result, &e));
    assert_false(path_exists(dir));
    struct bundle *b = NULL;
    struct bundle_entry entry;
    int checkpoints = 0, worker_logs = 0;
    CHECK(bundle_open(result.path, &BUNDLE_LIMITS, &b, &e));
    for (;;) {
        CHECK(bundle_next(b, &entry, &e));
        if (!entry.path) break;
        assert_null(strstr(entry.path, "state.safetensors"));
        assert_string_not_equal(entry.path, "data/logs/worker-0.log"); /* it is empty */
        worker_logs += strcmp(entry.path, "data/logs/worker-1.log") == 0;
        checkpoints += strncmp(entry.path, "data/checkpoints/", 17) == 0;
    }
    assert_int_equal(checkpoints, 2);
    assert_int_equal(worker_logs, 1);
    bundle_close(b);
    assert_int_equal(bundle_policy("none", "done"), BUNDLE_CHECKPOINTS_NONE);
    assert_int_equal(bundle_policy("weights", "done"), BUNDLE_CHECKPOINTS_WEIGHTS);
    assert_int_equal(bundle_policy("none", "killed"), BUNDLE_CHECKPOINTS_FULL);
    CHECK(tree_remove(parent, &e));
}

static void results_hash_sees_results_and_not_times(void **state) {
    char parent[PATH_CAP], dir[PATH_CAP], hex[3][SHA256_HEX];
    struct err e = { 0 };
    struct bundle_result result;
    for (int i = 0; i < 3; i++) {
        scratch_directory(parent);
        struct run_fixture f = run_fixture_default();
        if (i == 1) f.status = "time_limit", f.id = "20270101T000000Z-tiny-0badcafe";
        if (i == 2) f.flip_step = 3, f.flip_tensor = 4;
        run_fixture_write(parent, &f, dir);
        CHECK(bundle_finish(dir, &KEEP, &result, &e));
        memcpy(hex[i], result.results_sha256, SHA256_HEX);
        CHECK(tree_remove(parent, &e));
    }
    assert_string_equal(hex[0], hex[1]);
    assert_string_not_equal(hex[0], hex[2]);
}

static void a_live_run_is_rejected_and_damaged_records_stay(void **state) {
    char parent[PATH_CAP], dir[PATH_CAP], path[PATH_CAP];
    struct err e = { 0 };
    struct bundle_result result;
    scratch_directory(parent);
    struct run_fixture f = run_fixture_default();
    f.status = "running";
    run_fixture_write(parent, &f, dir);
    assert_int_equal(bundle_finish(dir, &KEEP, &result, &e), ERR_STATE);
    f.status = "killed";
    run_fixture_write(parent, &f, dir);
    put_file(dir, "data/metrics/eval.jsonl", "{\"step\":1}\nnot json\n{\"step\":2}\n");
    CHECK(bundle_finish(dir, &KEEP, &result, &e));
    json_t *summary = NULL;
    CHECK(path_join(path, dir, "data/metrics/summary.json", &e));
    CHECK(json_file_read(path, &summary, &e));
    const char *problem =
        json_string_value(json_array_get(json_object_get(summary, "problems"), 0));
    assert_non_null(problem);
    assert_non_null(strstr(problem, "eval.jsonl:2"));
    assert_int_equal(json_integer_value(json_object_get(summary, "steps")), 20);
    json_decref(summary);
    /* Readers skip the stream; the summary without it is right. */
    struct unpack_report report;
    struct run_view v;
    CHECK(bundle_unpack(result.path, NULL, &BUNDLE_LIMITS, &report, &e));
    CHECK(run_view_load(result.path, RUN_VIEW_FULL, &v, &e));
    assert_null(v.columns.of[STREAM_EVAL]);
    assert_int_equal(v.columns.of[STREAM_FP8]->rows, 20);
    run_view_free(&v);
    CHECK(tree_remove(parent, &e));
}

/* As after a retry on one rank, from the first step: ranks of the attempt before left no row. */
static void a_stream_without_a_row_gives_a_bundle_that_verifies(void **state) {
    char parent[PATH_CAP], dir[PATH_CAP];
    struct err e = { 0 };
    struct bundle_result result;
    struct unpack_report report;
    scratch_directory(parent);
    struct run_fixture f = run_fixture_default();
    run_fixture_write(parent, &f, dir);
    put_file(dir, "data/metrics/ranks.jsonl", "%s", "");
    CHECK(bundle_finish(dir, &KEEP, &result, &e));
    CHECK(bundle_unpack(result.path, NULL, &BUNDLE_LIMITS, &report, &e));
    CHECK(tree_remove(parent, &e));
}

/* ---- limits of the machine ------------------------------------------------------------------ */

static void memory_use_is_constant(void **state) {
    char parent[PATH_CAP], dir[PATH_CAP];
    struct err e = { 0 };
    struct rusage small, large;
    struct run_fixture f = run_fixture_default();
    for (int i = 0; i < 2; i++) {
        scratch_directory(parent);
        f.checkpoint_bytes = i ? INT64_C(300) << 20 : 4096;
        f.steps = i ? 5000 : 20;
        run_fixture_write(parent, &f, dir);
        assert_int_equal(in_child(finish_quietly, dir, i ? &large : &small), OK);
        CHECK(tree_remove(parent, &e));
    }
    /* 64 MiB for us, plus one zstd worker of level 3: measured below 16 MiB. */
    long growth_kib = large.ru_maxrss - small.ru_maxrss;
    int64_t quarantine_kib = 0;
#ifdef __SANITIZE_ADDRESS__
    quarantine_kib = 256 * 1024; /* the sanitizer's default quarantine of freed blocks */
#endif
    if (growth_kib > (64 + 16) * 1024 + quarantine_kib)
        fail_msg("%ld KiB more for a large run", growth_kib);
}

static int finish_without_room(const char *dir) {
    struct err e = { 0 };
    struct bundle_result result;
    struct rlimit room = { .rlim_cur = 64 * 1024, .rlim_max = 64 * 1024 };
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &room);
    enum status st = bundle_finish(dir, &KEEP, &result, &e);
    if (st != ERR_IO || !strstr(e.text, "is kept") || !strstr(e.text, "fp8lab close")) {
        fprintf(stderr, "status %d: %s\n", st, e.text);
        return 1;
    }
    return 0;
}

static void a_full_disk_keeps_the_directory(void **state) {
    char parent[PATH_CAP], dir[PATH_CAP], path[PATH_CAP];
    struct err e = { 0 };
    struct bundle_result result;
    struct rusage usage;
    scratch_directory(parent);
    struct run_fixture f = run_fixture_default();
    run_fixture_write(parent, &f, dir);
    CHECK(path_join(path, dir, "data/checkpoints/step-000020/model.safetensors", &e));
    FILE *out = fopen("/dev/urandom", "rb");
    char *bytes = malloc(1 << 20);
    assert_int_equal(fread(bytes, 1, 1 << 20, out), 1 << 20);
    fclose(out);
    CHECK(file_replace(path, bytes, 1 << 20, &e));
    free(bytes);
    assert_int_equal(in_child(finish_without_room, dir, &usage), 0);
    struct tree left;
    CHECK(tree_list(parent, 1000, &left, &e));
    for (int64_t i = 0; i < left.count; i++) assert_null(strstr(left.file[i].path, ".tar.zst"));
    tree_free(&left);
    CHECK(bundle_finish(dir, &KEEP, &result, &e));
    CHECK(tree_remove(parent, &e));
}

/* sha256sum -b marks a file with a star; other programs end lines or pad otherwise. */
static void manifests_of_other_programs_are_read(void **state) {
    static const char *const FORMS[] = { "%064d *data/b\n%064d *data/a\n",
                                         "%064d  data/b\r\n%064d\tdata/a" };
    for (size_t i = 0; i < sizeof FORMS / sizeof *FORMS; i++) {
        struct bag_manifest m;
        struct err e = { 0 };
        char text[200];
        snprintf(text, sizeof text, FORMS[i], 1, 2);
        CHECK(bag_manifest_parse(text, "manifest-sha256.txt", &m, &e));
        assert_int_equal(m.count, 2);
        assert_string_equal(m.line[0].path, "data/a");
        assert_string_equal(m.line[1].path, "data/b");
        assert_int_equal(m.line[0].hex[63], '2');
        bag_manifest_free(&m);
    }
}

static void a_manifest_of_too_many_files_is_refused(void **state) {
    enum { LINE = SHA256_HEX + 16 };
    int64_t lines = BUNDLE_LIMITS.entries + 1;
    char *text = malloc((size_t)(lines * LINE)), *at = text;
    struct bag_manifest m;
    struct err e = { 0 };
    assert_non_null(text);
    for (int64_t i = 0; i < lines; i++)
        at += snprintf(at, LINE, "%064d  data/%d\n", 1, (int)i);
    assert_int_equal(bag_manifest_parse(text, "m.txt", &m, &e), ERR_FORMAT);
    assert_string_equal(e.text, "m.txt lists more than 20000 files");
    free(text);
}

static int leave_bundles(const char *parent) {
    static const char *const STATUS[] = { "done", "failed", "killed" };
    for (int i = 0; i < 3; i++) {
        char dir[PATH_CAP], id[64];
        struct err e = { 0 };
        struct bundle_result result;
        struct run_fixture f = run_fixture_default();
        snprintf(id, sizeof id, "20261121T02482%dZ-%s-0badcafe", i, STATUS[i]);
        f.id = id;
        f.status = STATUS[i];
        run_fixture_write(parent, &f, dir);
        if (bundle_finish(dir, &KEEP, &result, &e) != OK) {
            fprintf(stderr, "%s: %s\n", dir, e.text);
            return 1;
        }
        printf("%s\n", result.path);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2) return leave_bundles(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packs_the_same_bytes_for_any_threads),
        cmocka_unit_test(another_copy_of_the_run_gives_the_same_bundle),
        cmocka_unit_test(entries_are_in_the_documented_order),
        cmocka_unit_test(extracting_gives_the_directory_back),
        cmocka_unit_test(the_directory_is_removed_on_request_and_pruned_by_policy),
        cmocka_unit_test(results_hash_sees_results_and_not_times),
        cmocka_unit_test(a_live_run_is_rejected_and_damaged_records_stay),
        cmocka_unit_test(a_stream_without_a_row_gives_a_bundle_that_verifies),
        cmocka_unit_test(manifests_of_other_programs_are_read),
        cmocka_unit_test(a_manifest_of_too_many_files_is_refused),
        cmocka_unit_test(memory_use_is_constant),
        cmocka_unit_test(a_full_disk_keeps_the_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
