/* Readers show only files that the manifests cover, and numbers that match the records. The cases
 * are forged archives of a good run. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "runner/bundle/archive.h"
#include "runner/bundle/bag.h"
#include "runner/bundle/bundle.h"
#include "runner/bundle/columns.h"
#include "runner/bundle/format.h"
#include "runner/bundle/run_view.h"
#include "runner/bundle/unpack.h"
#include "runner/compare/compare.h"
#include "runner/record/row_file.h"
#include "tests/support/must.h"
#include "tests/support/run_fixture.h"

static const struct bundle_options KEEP = { .checkpoints = BUNDLE_CHECKPOINTS_FULL,
                                            .keep_directory = true, .threads = 1 };
static const struct archive_options PACKING = { .threads = 1, .level = 3 };

#define ID "20261121T024823Z-tiny-0badcafe"

/* A closed run, and the archive that the forger makes of its directory. */
struct scene {
    char parent[PATH_CAP], dir[PATH_CAP], bundle[PATH_CAP], forged[PATH_CAP];
};

static int set_up(void **state) {
    struct scene *s = calloc(1, sizeof *s);
    struct bundle_result result;
    struct run_fixture f = run_fixture_default();
    scratch_directory(s->parent);
    run_fixture_write(s->parent, &f, s->dir);
    MUST(bundle_finish(s->dir, &KEEP, &result, E));
    snprintf(s->bundle, PATH_CAP, "%s", result.path);
    MUST(path_join(s->forged, s->parent, "forged.tar.zst", E));
    *state = s;
    return 0;
}

static int tear_down(void **state) {
    struct scene *s = *state;
    MUST(tree_remove(s->parent, E));
    free(s);
    return 0;
}

static char *text_of(const struct scene *s, const char *name, size_t *n) {
    char path[PATH_CAP], *text = NULL;
    MUST(path_join(path, s->dir, name, E));
    MUST(file_read(path, 1 << 24, &text, n, E));
    return text;
}

/* Replaces the only occurrence of `old` in the file by `new`. */
static void edit(const struct scene *s, const char *name, const char *old, const char *new) {
    size_t n;
    char *text = text_of(s, name, &n), *at = strstr(text, old);
    if (!at) fail_msg("%s holds no %s", name, old);
    *at = 0;
    put_file(s->dir, name, "%s%s%s", text, new, at + strlen(old));
    free(text);
}

/* Packs the directory in the order of a bundle, without the files that begin with `head`. */
static void pack_without(const struct scene *s, const char *head) {
    struct tree list, kept = { 0 };
    MUST(tree_list(s->dir, 1000, &list, E));
    kept.file = calloc((size_t)list.count, sizeof *kept.file);
    archive_sort(&list);
    for (int64_t i = 0; i < list.count; i++)
        if (strcmp(list.file[i].path, "lock") != 0 &&
            (!head || strncmp(list.file[i].path, head, strlen(head)) != 0))
            kept.file[kept.count++] = list.file[i];
    MUST(archive_pack(s->dir, &kept, ID, s->forged, &PACKING, NULL, E));
    free(kept.file);
    tree_free(&list);
}

/* The same with correct manifests, as a forger with knowledge of RFC 8493 makes them. */
static void sign_and_pack(const struct scene *s) {
    static const struct bag_info INFO = { ID, "a run", "2026-11-21", "a forger" };
    struct tree list;
    char identity[SHA256_HEX];
    int64_t bytes;
    MUST(bag_write(s->dir, &INFO, &list, identity, &bytes, E));
    MUST(archive_pack(s->dir, &list, ID, s->forged, &PACKING, NULL, E));
    tree_free(&list);
}

/* Every reader must reject it; `list` checks only the numbers of the summary. */
static void expect(const char *path, enum status status, const char *words, bool listed) {
    struct unpack_report report;
    struct run_view view;
    struct comparison c;
    const char *both[2] = { path, path };
    MUST_FAIL(status, words, bundle_unpack(path, NULL, &BUNDLE_LIMITS, &report, E));
    MUST_FAIL(status, words, run_view_load(path, RUN_VIEW_FULL, &view, E));
    MUST_FAIL(status, words, compare_runs(both, 2, NULL, &c, E));
    if (!listed) MUST_FAIL(status, words, run_view_load(path, RUN_VIEW_BRIEF, &view, E));
    else {
        MUST(run_view_load(path, RUN_VIEW_BRIEF, &view, E));
        run_view_free(&view);
    }
}

/* ---- manifests ------------------------------------------------------------------------------- */

static void a_good_bundle_is_verified(void **state) {
    struct scene *s = *state;
    const char *paths[2] = { s->bundle, s->dir };
    for (int i = 0; i < 4; i++) {
        struct run_view v;
        MUST(run_view_load(paths[i / 2], i % 2 ? RUN_VIEW_FULL : RUN_VIEW_BRIEF, &v, E));
        assert_true(v.verified);
        assert_int_equal(strlen(v.identity), SHA256_HEX - 1);
        run_view_free(&v);
    }
}

static void a_kept_tag_manifest_does_not_cover_another_manifest(void **state) {
    struct scene *s = *state;
    size_t n;
    char *tags = text_of(s, "tagmanifest-sha256.txt", &n);
    edit(s, "data/run.json", "\"name\": \"tiny\"", "\"name\": \"best\"");
    sign_and_pack(s);
    put_file(s->dir, "tagmanifest-sha256.txt", "%s", tags);
    free(tags);
    pack_without(s, NULL);
    expect(s->forged, ERR_VERIFY, "the tag manifest says", false);
    expect(s->dir, ERR_VERIFY, "the tag manifest says", false);
}

static void an_empty_manifest_covers_no_file(void **state) {
    struct scene *s = *state;
    char path[PATH_CAP], hex[SHA256_HEX], old[SHA256_HEX];
    MUST(path_join(path, s->dir, "manifest-sha256.txt", E));
    MUST(sha256_file(path, old, NULL, E));
    put_file(s->dir, "manifest-sha256.txt", "%s", "");
    MUST(sha256_file(path, hex, NULL, E));
    edit(s, "tagmanifest-sha256.txt", old, hex);
    pack_without(s, NULL);
    expect(s->forged, ERR_VERIFY, "extra file that the manifest does not list: data/run.json",
           false);
    expect(s->dir, ERR_VERIFY, "extra file that the manifest does not list: data/run.json", false);
}

static void archives_need_manifests(void **state) {
    struct scene *s = *state;
    pack_without(s, "manifest");
    expect(s->forged, ERR_FORMAT, "data/run.json comes before the manifest", false);
    pack_without(s, "tagmanifest");
    expect(s->forged, ERR_VERIFY, "missing file tagmanifest-sha256.txt", false);
}

/* Readers read lines before they know the hash of the file. */
static void damaged_lines_are_a_wrong_hash(void **state) {
    struct scene *s = *state;
    put_file(s->dir, "data/metrics/train.jsonl", "no record\n");
    pack_without(s, NULL);
    expect(s->forged, ERR_VERIFY, "wrong hash: data/metrics/train.jsonl", true);
    expect(s->dir, ERR_VERIFY, "wrong hash: data/metrics/train.jsonl", true);
}

/* Packs a bundle with the file `name` at the end. */
static void pack_last(const struct scene *s, const char *name) {
    struct tree list, order = { 0 };
    MUST(tree_list(s->dir, 1000, &list, E));
    order.file = calloc((size_t)list.count, sizeof *order.file);
    archive_sort(&list);
    for (int last = 0; last < 2; last++)
        for (int64_t i = 0; i < list.count; i++)
            if (strcmp(list.file[i].path, "lock") != 0 &&
                (strcmp(list.file[i].path, name) == 0) == last)
                order.file[order.count++] = list.file[i];
    MUST(archive_pack(s->dir, &order, ID, s->forged, &PACKING, NULL, E));
    free(order.file);
    tree_free(&list);
}

static void files_out_of_order_are_rejected(void **state) {
    struct scene *s = *state;
    struct unpack_report report;
    struct run_view v;
    pack_last(s, "tagmanifest-sha256.txt");
    expect(s->forged, ERR_VERIFY, "missing file tagmanifest-sha256.txt", false);
    pack_last(s, "manifest-sha256.txt");
    expect(s->forged, ERR_FORMAT, "data/run.json comes before the manifest", false);
    pack_last(s, "data/metrics/summary.json");
    MUST_FAIL(ERR_FORMAT, "summary.json follows files that it must precede",
              bundle_unpack(s->forged, NULL, &BUNDLE_LIMITS, &report, E));
    MUST_FAIL(ERR_VERIFY, "missing file data/metrics/summary.json",
              run_view_load(s->forged, RUN_VIEW_BRIEF, &v, E));
}

/* The rest of the file may be a bomb, or truncated. */
static void a_list_reads_no_further_than_the_summary(void **state) {
    struct scene *s = *state;
    struct run_view v;
    char path[PATH_CAP];
    MUST(path_join(path, s->dir, "data/system/zeros", E));
    put_file(s->dir, "data/system/zeros", "0");
    FILE *out = fopen(path, "r+");
    assert_true(out && fseek(out, 300 << 20, SEEK_SET) == 0 && putc(0, out) == 0);
    assert_int_equal(fclose(out), 0);
    sign_and_pack(s);
    MUST(run_view_load(s->forged, RUN_VIEW_BRIEF, &v, E));
    run_view_free(&v);
    MUST_FAIL(ERR_FORMAT, "decompression bomb refused",
              run_view_load(s->forged, RUN_VIEW_FULL, &v, E));
    pack_without(s, "data/metrics/summary.json"); /* without it, all files were unpacked */
    MUST_FAIL(ERR_VERIFY, "missing file data/metrics/summary.json",
              run_view_load(s->forged, RUN_VIEW_BRIEF, &v, E));
}

static void a_missing_file_is_detected(void **state) {
    struct scene *s = *state;
    pack_without(s, "data/metrics/fp8.npy");
    expect(s->forged, ERR_VERIFY, "missing file data/metrics/fp8.npy", true);
}

/* A directory without manifests may be a live run. It has no identity and is shown so. */
static void a_directory_without_manifests_is_not_verified(void **state) {
    static const char *const GONE[] = { "tagmanifest-sha256.txt", "manifest-sha256.txt" };
    struct scene *s = *state;
    for (int i = 0; i < 2; i++) {
        struct run_view v;
        struct comparison c;
        char path[PATH_CAP], *text = NULL;
        const char *both[2] = { s->bundle, s->dir };
        MUST(path_join(path, s->dir, GONE[i], E));
        MUST(tree_remove(path, E));
        for (int depth = RUN_VIEW_BRIEF; depth <= RUN_VIEW_FULL; depth++) {
            MUST(run_view_load(s->dir, (enum run_view_depth)depth, &v, E));
            assert_false(v.verified);
            assert_string_equal(v.identity, "");
            run_view_free(&v);
        }
        MUST(compare_runs(both, 2, NULL, &c, E));
        MUST(compare_text(&c, false, &text, E));
        const char *a = strstr(text, "A   " ID "  done\n"),
                   *b = strstr(text, "B   " ID "  done  (not verified: no manifest)\n");
        if (!a || !b) fail_msg("%s", text);
        free(text);
        MUST(path_join(path, s->parent, "page.html", E));
        MUST(compare_html(&c, path, E));
        MUST(file_read(path, 1 << 24, &text, &(size_t){ 0 }, E));
        assert_non_null(strstr(text, "done, not verified: no manifest<"));
        free(text);
        compare_free(&c);
    }
    /* A summary without a manifest is not read. */
    edit(s, "data/metrics/summary.json", "\"steps\": 20", "\"steps\": 99");
    struct run_view v;
    MUST(run_view_load(s->dir, RUN_VIEW_BRIEF, &v, E));
    assert_int_equal(json_integer_value(json_object_get(v.summary, "steps")), 20);
    run_view_free(&v);
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* The text of a number in summary.json: "\"loss_final\": 1.02". */
static void summary_line(const struct scene *s, const char *key, char out[128]) {
    size_t n;
    char *text = text_of(s, "data/metrics/summary.json", &n), *at = strstr(text, key);
    assert_non_null(at);
    snprintf(out, 128, "%.*s", (int)strcspn(at, ",\n"), at);
    free(text);
}

static void a_forged_summary_is_detected(void **state) {
    struct scene *s = *state;
    char line[128];
    summary_line(s, "\"eval_loss_final\":", line);
    edit(s, "data/metrics/summary.json", line, "\"eval_loss_final\": 0.0001");
    sign_and_pack(s);
    expect(s->forged, ERR_VERIFY, "summary.json says eval_loss_final is 0.0001, its records say 1.",
           true);
    expect(s->dir, ERR_VERIFY, "summary.json says eval_loss_final is 0.0001", true);
    edit(s, "data/metrics/summary.json", "\"eval_loss_final\": 0.0001", line);
    sign_and_pack(s);
    struct unpack_report report;
    MUST(bundle_unpack(s->forged, NULL, &BUNDLE_LIMITS, &report, E));
}

static void a_forged_results_hash_is_detected(void **state) {
    struct scene *s = *state;
    char old[128];
    size_t n;
    char *text = text_of(s, "data/run.json", &n), *at = strstr(text, "\"results_sha256\": \"");
    snprintf(old, sizeof old, "%.*s", 27, at);
    free(text);
    edit(s, "data/run.json", old, "\"results_sha256\": \"01234567");
    sign_and_pack(s);
    expect(s->forged, ERR_VERIFY, "run.json says results_sha256 is 01234567", true);
}

/* Each closed run states the hash of its results, of whatever format and end. */
static void a_removed_results_hash_is_detected(void **state) {
    static const char WORDS[] = "run.json lacks results_sha256, which every closed run has";
    struct scene *s = *state;
    edit(s, "data/run.json", "\"results_sha256\"", "\"results\"");
    sign_and_pack(s);
    expect(s->forged, ERR_VERIFY, WORDS, true);
    expect(s->dir, ERR_VERIFY, WORDS, true);
    edit(s, "data/run.json", "\"status\": \"done\"", "\"status\": \"interrupted\"");
    sign_and_pack(s);
    expect(s->forged, ERR_VERIFY, WORDS, true);
}

/* Every reader that shows the configuration, or takes the run for one with the same inputs. */
static void expect_inputs(const struct scene *s, const char *words) {
    struct run_view view;
    sign_and_pack(s);
    expect(s->forged, ERR_VERIFY, words, true);
    expect(s->dir, ERR_VERIFY, words, true);
    MUST_FAIL(ERR_VERIFY, words, run_view_load(s->forged, RUN_VIEW_INPUTS, &view, E));
}

static void a_forged_configuration_is_detected(void **state) {
    struct scene *s = *state;
    struct run_view view;
    MUST(run_view_load(s->bundle, RUN_VIEW_INPUTS, &view, E));
    assert_non_null(view.resolved);
    run_view_free(&view);
    edit(s, "data/experiment/resolved.json", "\"fp8.delayed\"", "\"fp8.tensorwise\"");
    expect_inputs(s, "run.json says config is ");
    edit(s, "data/experiment/resolved.json", "\"fp8.tensorwise\"", "\"fp8.delayed\"");
    edit(s, "data/run.json", "\"code\": \"bb\"", "\"code\": \"b0\"");
    expect_inputs(s, "run.json says inputs_sha256 is ");
    edit(s, "data/run.json", "\"inputs\"", "\"outputs\"");
    expect_inputs(s, "run.json has inputs_sha256, but no inputs");
}

/* Copies of one run with other seeds would be runs of several seeds. */
static void a_forged_seed_is_detected(void **state) {
    static const char NONE[] = "run.json says seed is not a whole number, but train.seed of ";
    struct scene *s = *state;
    edit(s, "data/run.json", "\"seed\": 1", "\"seed\": 2");
    expect_inputs(s, "run.json says seed is 2, but train.seed of data/experiment/resolved.json is "
                     "1");
    edit(s, "data/run.json", "\"seed\": 2", "\"sort\": 2");
    expect_inputs(s, NONE);
    edit(s, "data/run.json", "\"sort\": 2", "\"seed\": \"1\"");
    expect_inputs(s, NONE);
}

static void a_hidden_smoke_run_is_detected(void **state) {
    struct scene *s = *state;
    edit(s, "data/experiment/argv.json", "\"tiny.lua\"", "\"tiny.lua\",\"--smoke\"");
    sign_and_pack(s);
    expect(s->forged, ERR_VERIFY, "run.json says it is not a smoke run, but its command in ", true);
    expect(s->dir, ERR_VERIFY, "run.json says it is not a smoke run, but its command in ", true);
    edit(s, "data/run.json", "\"smoke\": false", "\"smoke\": true");
    sign_and_pack(s);
    struct unpack_report report;
    MUST(bundle_unpack(s->forged, NULL, &BUNDLE_LIMITS, &report, E));
}

static void a_run_without_its_last_step_is_not_done(void **state) {
    static const char WORDS[] = "run.json says the run is done, but its last record is of step 12, "
                                "and train.steps is 20";
    struct scene *s = *state;
    struct bundle_result result;
    struct run_fixture f = run_fixture_default();
    MUST(tree_remove(s->dir, E));
    f.status = "interrupted";
    f.planned = 20;
    f.steps = 12;
    run_fixture_write(s->parent, &f, s->dir);
    MUST(bundle_finish(s->dir, &KEEP, &result, E));
    edit(s, "data/run.json", "\"status\": \"interrupted\"", "\"status\": \"done\"");
    sign_and_pack(s);
    expect(s->forged, ERR_VERIFY, WORDS, true);
    expect(s->dir, ERR_VERIFY, WORDS, true);
    /* A run whose last records were lost is closed, and says so. */
    edit(s, "data/run.json", "\"attempts\": []",
         "\"attempts\": [{\"from_step\": 0, \"to_step\": 20}]");
    MUST(bundle_finish(s->dir, &KEEP, &result, E));
    if (!strstr(result.problem, "the records of 8 steps were lost")) fail_msg("%s", result.problem);
}

/* Replaces the value of a member of one record. */
static void forge_record(const struct scene *s, const char *file, int step, const char *name,
                         const char *value) {
    char old[512], new[600], member[32];
    size_t n;
    char *text = text_of(s, file, &n);
    snprintf(old, sizeof old, "{\"step\":%d,", step);
    const char *from = strstr(text, old);
    snprintf(member, sizeof member, "\"%s\":", name);
    const char *at = strstr(from, member) + strlen(member), *end = at + strcspn(at, ",}");
    snprintf(old, sizeof old, "%.*s", (int)(end - from), from);
    snprintf(new, sizeof new, "%.*s%s", (int)(at - from), from, value);
    free(text);
    edit(s, file, old, new);
}

/* The number and summary are forged alike, but not the bits. */
static void a_loss_must_equal_its_bits(void **state) {
    struct scene *s = *state;
    char line[128];
    forge_record(s, "data/metrics/train.jsonl", 20, "loss", "0.0001");
    summary_line(s, "\"loss_final\":", line);
    edit(s, "data/metrics/summary.json", line, "\"loss_final\": 0.0001");
    sign_and_pack(s);
    expect(s->forged, ERR_VERIFY, "train, record 20: loss is 0.0001, but its bits are", true);
}

/* Nor may a loss that no summary has differ from its bits. */
static void an_evaluation_must_equal_its_bits(void **state) {
    struct scene *s = *state;
    forge_record(s, "data/metrics/eval.jsonl", 10, "loss", "1.75");
    sign_and_pack(s);
    expect(s->forged, ERR_VERIFY, "eval, record 1: loss is 1.75, but its bits are", true);
}

static void a_number_has_no_bits_of_nan(void **state) {
    struct scene *s = *state;
    forge_record(s, "data/metrics/train.jsonl", 7, "loss_bits", "\"7fc00000\"");
    sign_and_pack(s);
    expect(s->forged, ERR_VERIFY, "but its bits are 7fc00000, another number", true);
}

/* Rows that the header does not count would be in the file, and in no number. */
static void every_row_is_counted(void **state) {
    struct scene *s = *state;
    char path[PATH_CAP], *bytes = NULL;
    size_t n;
    MUST(path_join(path, s->dir, "data/metrics/fp8.npy", E));
    MUST(file_read(path, 1 << 24, &bytes, &n, E));
    char *rows = memmem(bytes, n, "(20,)", 5);
    assert_non_null(rows);
    memcpy(rows, "(19,)", 5);
    MUST(file_replace(path, bytes, n, E));
    sign_and_pack(s);
    expect(s->forged, ERR_FORMAT, "fp8.npy: the header says 19 rows of 80 bytes", true);
    memcpy(rows, "(20,)", 5);
    MUST(file_replace(path, bytes, n - 80, E));
    sign_and_pack(s);
    expect(s->forged, ERR_FORMAT, "fp8.npy: the header says 20 rows of 80 bytes", true);
    bytes[n - 72] ^= 1; /* the amax of a label, in the last row */
    MUST(file_replace(path, bytes, n, E));
    free(bytes);
    sign_and_pack(s);
    expect(s->forged, ERR_VERIFY, "run.json says results_sha256 is", true);
}

static void a_newer_format_is_rejected(void **state) {
    struct scene *s = *state;
    edit(s, "data/run.json", "\"bundle_format\": 2", "\"bundle_format\": 3");
    sign_and_pack(s);
    expect(s->forged, ERR_FORMAT, "run.json says bundle_format 3, and this program reads formats 1 "
           "to 2: use a newer fp8lab", false);
}

/* ---- format 1 -------------------------------------------------------------------------------- */

/* A bundle that an older program wrote, unpacked. */
static int set_up_old(void **state) {
    static const char OLD[] = "experiments/reference/cpu/repro-cpu-fp8.delayed.tar.zst";
    struct scene *s = calloc(1, sizeof *s);
    struct unpack_report report;
    scratch_directory(s->parent);
    snprintf(s->bundle, PATH_CAP, "%s", OLD);
    MUST(path_join(s->dir, s->parent, ID, E));
    MUST(bundle_unpack(OLD, s->dir, &BUNDLE_LIMITS, &report, E));
    MUST(path_join(s->forged, s->parent, "forged.tar.zst", E));
    *state = s;
    return 0;
}

/* Readers of text see the lines, and `show` the columns. */
static void old_lines_must_equal_their_columns(void **state) {
    static const struct {
        const char *name, *old, *new, *words;
    } CASES[] = {
        { "train", "\"loss\":5.57", "\"loss\":4.57",
          "data/metrics/train.jsonl:1: loss is 4.57549, but its column has 5.57549" },
        { "train", "\"step\":7,", "\"step\":8,", "data/metrics/train.jsonl:7: step is 8" },
        { "train", "\"step\":7,", "\"step\":\"7\",",
          "data/metrics/train.jsonl: the values of step are not those of its column" },
        { "train", "\"step\":9,", "\"stop\":9,",
          "data/metrics/train.jsonl: the values of step are not those of its column" },
        { "eval", "}\n", "}\n{}\n", "data/metrics/eval.jsonl has 3 records, its columns have 2" },
    };
    struct scene *s = *state;
    struct unpack_report report;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char name[64];
        size_t n;
        snprintf(name, sizeof name, "data/metrics/%s.jsonl", CASES[i].name);
        char *text = text_of(s, name, &n);
        edit(s, name, CASES[i].old, CASES[i].new);
        sign_and_pack(s);
        MUST_FAIL(ERR_VERIFY, CASES[i].words,
                  bundle_unpack(s->forged, NULL, &BUNDLE_LIMITS, &report, E));
        put_file(s->dir, name, "%s", text);
        free(text);
    }
    sign_and_pack(s);
    MUST(bundle_unpack(s->forged, NULL, &BUNDLE_LIMITS, &report, E));
}

/* The numbers of an old bundle are those of its columns. */
static void old_columns_are_checked(void **state) {
    struct scene *s = *state;
    char path[PATH_CAP], *bytes = NULL;
    size_t n;
    MUST(path_join(path, s->dir, "data/fp8/fp8.cols", E));
    MUST(file_read(path, 1 << 24, &bytes, &n, E));
    char *header_end = memmem(bytes, n, "fp8lab.columns/1\"}", 18);
    assert_non_null(header_end);
    header_end[26 + 64] ^= 1;
    MUST(file_replace(path, bytes, n, E));
    free(bytes);
    sign_and_pack(s);
    expect(s->forged, ERR_VERIFY, "run.json says results_sha256 is", true);
}

/* A directory of format 1 that is closed again becomes a bundle of format 2 with the same
 * results. */
static void an_old_run_keeps_its_results(void **state) {
    struct scene *s = *state;
    struct bundle_result result;
    struct comparison c;
    char path[PATH_CAP], old[SHA256_HEX];
    json_t *run = NULL;
    MUST(path_join(path, s->dir, "data/run.json", E));
    MUST(json_file_read(path, &run, E));
    snprintf(old, sizeof old, "%s", json_text(run, "results_sha256", "?"));
    json_decref(run);
    MUST(bundle_finish(s->dir, &KEEP, &result, E));
    assert_string_equal(result.results_sha256, old);
    assert_string_equal(result.problem, "");
    const char *both[2] = { s->bundle, result.path };
    MUST(compare_runs(both, 2, NULL, &c, E));
    assert_true(c.equal);
    const json_t *row = json_array_get(json_object_get(c.report, "divergences"), 0);
    assert_int_equal(json_integer_value(json_object_get(row, "common_steps")), 60);
    compare_free(&c);
    static const char *const GONE[] = { "data/fp8", "data/trace.cols", "data/metrics/train.cols",
                                        "data/metrics/eval.cols", "data/metrics/telemetry.cols" };
    for (size_t i = 0; i < sizeof GONE / sizeof *GONE; i++) {
        MUST(path_join(path, s->dir, GONE[i], E));
        assert_false(path_exists(path));
    }
}

/* A run that an older program left open: its wide streams are JSON lines. */
static void old_lines_become_arrays(void **state) {
    static const char NAMES[] = "[\"a\",\"b\"]";
    struct scene *s = *state;
    struct run_view v;
    char path[PATH_CAP];
    MUST(path_join(path, s->dir, "data/metrics/fp8.npy", E));
    MUST(tree_remove(path, E));
    put_file(s->dir, "data/metrics/fp8_slots.json", NAMES);
    put_file(s->dir, "data/metrics/fp8.jsonl",
             "{\"amax\":[\"3f800000\",\"00000001\"],\"saturated\":[0,0.5],"
             "\"scale\":[\"43e00000\",\"7f800000\"],\"step\":1,\"underflow\":[0.25,0]}\n"
             "{\"amax\":[\"3f800001\",\"00000002\"],\"saturated\":[0.0,0.0],"
             "\"scale\":[\"43e00000\",\"7f800000\"],\"step\":2,\"underflow\":[0.0,0.0]}\n"
             "{\"amax\":[");
    MUST(format_upgrade(s->dir, E));
    struct bundle_result result;
    MUST(bundle_finish(s->dir, &KEEP, &result, E));
    MUST(run_view_load(result.path, RUN_VIEW_FULL, &v, E));
    const struct columns *fp8 = v.columns.of[STREAM_FP8];
    assert_non_null(fp8);
    assert_int_equal(fp8->rows, 2);
    assert_int_equal(column_bits(columns_find(fp8, "amax"), 1, 1), 2);
    assert_int_equal(column_bits(columns_find(fp8, "scale"), 0, 1), 0x7f800000);
    assert_true(column_value(columns_find(fp8, "saturated"), 0, 1) == 0.5);
    assert_string_equal(columns_label(fp8, 1), "b");
    run_view_free(&v);
    /* Records of another number of slots: the file stays as it is. */
    MUST(tree_remove(path, E));
    put_file(s->dir, "data/metrics/fp8.jsonl",
             "{\"amax\":[\"3f800000\"],\"step\":1}\n{\"amax\":[],\"step\":2}\n");
    MUST(bundle_finish(s->dir, &KEEP, &result, E));
    if (!strstr(result.problem, "fp8.jsonl:2: fp8: a record without values"))
        fail_msg("%s", result.problem);
    MUST(path_join(path, s->dir, "data/metrics/fp8.jsonl", E));
    assert_true(path_exists(path));
}

/* A run is continued by a program with one more metric. */
static void an_array_gets_new_metrics(void **state) {
    struct scene *s = *state;
    struct stream fewer = STREAMS[STREAM_FP8];
    const struct fp8_slot slot[2] = { { .amax_bits = 7, .scale = 2 }, { .amax_bits = 9 } };
    struct stream_source source = { .slot = slot, .width = 2, .step_number = 1 };
    struct row_file f;
    struct npy layout;
    struct columns *c = NULL;
    char path[PATH_CAP], row[128], *bytes = NULL;
    size_t n;
    fewer.metric_count--; /* without "underflow" */
    npy_layout(&fewer, 2, &layout);
    npy_row(&fewer, &source, &layout, row);
    MUST(path_join(path, s->dir, fewer.file, E));
    FILE *file = fopen(path, "w+b");
    assert_non_null(file);
    MUST(row_file_open(fileno(file), path, &f, E));
    MUST(row_file_append(&f, &fewer, row, layout.row_bytes, E));
    fclose(file);
    for (int i = 0; i < 2; i++) { /* the second call finds nothing to do */
        MUST(format_continue(s->dir, E));
        MUST(file_read(path, 1 << 20, &bytes, &n, E));
        MUST(columns_parse(bytes, n, ROWS_COMPLETE, "fp8.npy", &c, E));
        assert_int_equal(c->rows, 1);
        assert_int_equal(column_bits(columns_find(c, "amax"), 0, 1), 9);
        assert_true(column_value(columns_find(c, "scale"), 0, 0) == 0x40000000);
        assert_true(isnan(column_value(columns_find(c, "underflow"), 0, 1)));
        columns_destroy(c);
    }
}

/* ---- live runs ------------------------------------------------------------------------------- */

/* A directory that is not closed has no manifest; its printed numbers are still compared. */
static void printed_numbers_are_compared(void **state) {
    struct scene *s = *state;
    struct run_fixture f = run_fixture_default();
    struct comparison c;
    char dir[PATH_CAP], path[PATH_CAP], *text = NULL, *last;
    size_t n;
    f.id = "20261121T024824Z-live-0badcafe";
    run_fixture_write(s->parent, &f, dir);
    const char *both[2] = { s->bundle, dir };
    MUST(compare_runs(both, 2, NULL, &c, E));
    assert_true(c.equal);
    compare_free(&c);
    MUST(path_join(path, dir, "data/metrics/train.jsonl", E));
    MUST(file_read(path, 1 << 24, &text, &n, E));
    last = strstr(text, "{\"step\":20,\"loss\":");
    assert_non_null(last);
    last += strlen("{\"step\":20,\"loss\":");
    memset(last, '0', strcspn(last, ","));
    last[1] = '.';
    MUST(file_replace(path, text, n, E));
    free(text);
    MUST(compare_runs(both, 2, NULL, &c, E));
    assert_false(c.equal);
    assert_string_equal(json_text(json_array_get(json_object_get(c.report, "divergences"), 0),
                                  "note", ""),
                        "the bits of all common steps are equal, but the last loss is not");
    compare_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_good_bundle_is_verified, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_kept_tag_manifest_does_not_cover_another_manifest, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(an_empty_manifest_covers_no_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(archives_need_manifests, set_up, tear_down),
        cmocka_unit_test_setup_teardown(damaged_lines_are_a_wrong_hash, set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_out_of_order_are_rejected, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_list_reads_no_further_than_the_summary, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_missing_file_is_detected, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_directory_without_manifests_is_not_verified, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_forged_summary_is_detected, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_forged_results_hash_is_detected, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_removed_results_hash_is_detected, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_removed_results_hash_is_detected, set_up_old, tear_down),
        cmocka_unit_test_setup_teardown(a_forged_configuration_is_detected, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_forged_seed_is_detected, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_hidden_smoke_run_is_detected, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_run_without_its_last_step_is_not_done, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_row_is_counted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_newer_format_is_rejected, set_up, tear_down),
        cmocka_unit_test_setup_teardown(old_lines_must_equal_their_columns, set_up_old,
                                        tear_down),
        cmocka_unit_test_setup_teardown(old_columns_are_checked, set_up_old, tear_down),
        cmocka_unit_test_setup_teardown(an_old_run_keeps_its_results, set_up_old, tear_down),
        cmocka_unit_test_setup_teardown(old_lines_become_arrays, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_array_gets_new_metrics, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_loss_must_equal_its_bits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_evaluation_must_equal_its_bits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_number_has_no_bits_of_nan, set_up, tear_down),
        cmocka_unit_test_setup_teardown(printed_numbers_are_compared, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
