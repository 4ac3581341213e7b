/* Each allocation of the runner's library calls fails in turn: closing a run, reading bundles,
 * resolving scripts, parsing queries. Each time the result is an error value and no data is lost. A
 * call that returns OK must have its usual result. */
/* long: 8 */
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>
#include <omp.h>

#include "runner/base/run_files.h"
#include "runner/bundle/bundle.h"
#include "runner/bundle/unpack.h"
#include "runner/compare/compare.h"
#include "runner/hardware/query.h"
#include "runner/launch/launch.h"
#include "runner/live/live_reader.h"
#include "runner/record/environment.h"
#include "runner/record/npy.h"
#include "runner/repro/repro_verdict.h"
#include "runner/script/resolve.h"
#include "runner/tensorboard/tensorboard.h"
#include "tests/support/allocations.h"
#include "tests/support/must.h"
#include "tests/support/run_fixture.h"

/* ---- bundles ---- */

struct bundle_case {
    char parent[PATH_CAP], dir[PATH_CAP], file[PATH_CAP];
    char sha256[SHA256_HEX]; /* of the bundle file made without a failing allocation */
    struct bundle_options options;
};

/* A fresh directory on tmpfs if there is one: these tests sync thousands of files. */
static void fast_directory(char dir[PATH_CAP]) {
    snprintf(dir, PATH_CAP, "/dev/shm/fp8lab-test-XXXXXX");
    if (!mkdtemp(dir)) scratch_directory(dir);
}

/* Each step is evaluated, so that a comparison has losses. */
static struct run_fixture three_steps(void) {
    struct run_fixture f = run_fixture_default();
    f.steps = 3;
    f.eval_every = 1;
    return f;
}

static void bundle_case_open(struct bundle_case *c) {
    struct run_fixture f = three_steps();
    struct bundle_result result;
    memset(c, 0, sizeof *c);
    c->options = (struct bundle_options){ .checkpoints = BUNDLE_CHECKPOINTS_FULL,
                                          .keep_directory = true, .threads = 1 };
    fast_directory(c->parent);
    run_fixture_write(c->parent, &f, c->dir);
    MUST(bundle_finish(c->dir, &c->options, &result, E));
    snprintf(c->file, sizeof c->file, "%s", result.path);
    MUST(sha256_file(c->file, c->sha256, NULL, E));
}

static void bundle_case_close(struct bundle_case *c) { MUST(tree_remove(c->parent, E)); }

static enum status finish(void *context, struct err *e) {
    struct bundle_case *c = context;
    struct bundle_result result;
    return bundle_finish(c->dir, &c->options, &result, e);
}

/* Calling again after a failure completes the work, with the same bytes. */
static enum status finishes_equal(void *context, enum status st, struct err *e) {
    struct bundle_case *c = context;
    char hex[SHA256_HEX];
    if (st != OK) TRY(finish(c, e));
    TRY(sha256_file(c->file, hex, NULL, e));
    return strcmp(hex, c->sha256) == 0 ? OK : FAIL(e, ERR_VERIFY, "the bundle has other bytes");
}

/* A run that has just ended: its metrics are still text. */
static void as_it_ended(void *context) {
    struct bundle_case *c = context;
    struct run_fixture f = three_steps();
    MUST(tree_remove(c->dir, E));
    run_fixture_write(c->parent, &f, c->dir);
}

static void closing_a_run_survives(void **state) {
    struct bundle_case c;
    bundle_case_open(&c);
    fault_every_allocation(&(struct fault_case){ .name = "bundle_finish", .before = as_it_ended,
                                                 .attempt = finish, .after = finishes_equal,
                                                 .context = &c });
    bundle_case_close(&c);
}

static enum status verify(void *context, struct err *e) {
    const struct bundle_case *c = context;
    struct unpack_report report;
    return bundle_unpack(c->file, NULL, &BUNDLE_LIMITS, &report, e);
}

static enum status extract(void *context, struct err *e) {
    const struct bundle_case *c = context;
    struct unpack_report report;
    char dest[PATH_CAP];
    TRY(path_join(dest, c->parent, "extracted", e));
    return bundle_unpack(c->file, dest, &BUNDLE_LIMITS, &report, e);
}

/* Complete or absent. Clearing a directory also allocates: a directory that is left over has a
 * reserved name, and the next extraction asks the user to remove it. */
static enum status is_extracted(void *context, enum status st, struct err *e) {
    struct bundle_case *c = context;
    char dest[PATH_CAP], partial[PATH_CAP];
    struct unpack_report report;
    TRY(path_join(dest, c->parent, "extracted", e));
    TRY(path_join(partial, c->parent, "extracted.partial", e));
    if (path_exists(dest) != (st == OK)) return FAIL(e, ERR_VERIFY, "%s: there or not?", dest);
    TRY(tree_remove(partial, e));
    if (st != OK) TRY(extract(c, e));
    if (path_exists(partial)) return FAIL(e, ERR_VERIFY, "%s is left behind", partial);
    TRY(bundle_unpack(dest, NULL, &BUNDLE_LIMITS, &report, e));
    return tree_remove(dest, e);
}

static void reading_a_bundle_survives(void **state) {
    struct bundle_case c;
    bundle_case_open(&c);
    fault_every_allocation(&(struct fault_case){ .name = "bundle_unpack, verify",
                                                 .attempt = verify, .context = &c });
    fault_every_allocation(&(struct fault_case){ .name = "bundle_unpack, extract",
                                                 .attempt = extract, .after = is_extracted,
                                                 .context = &c });
    bundle_case_close(&c);
}

/* ---- following ---- */

struct follow_case {
    struct bundle_case bundle;
    struct live_reader reader;
    json_t *whole; /* the state that was read without a failing allocation; owned */
};

static void follow_afresh(void *context) {
    struct follow_case *c = context;
    live_reader_close(&c->reader);
}

static enum status follow(void *context, struct err *e) {
    struct follow_case *c = context;
    TRY(live_reader_open(&c->reader, c->bundle.dir, e));
    return live_reader_poll(&c->reader, e);
}

/* A poll after one that failed reads all that there is, and nothing twice. */
static enum status has_all(void *context, enum status st, struct err *e) {
    struct follow_case *c = context;
    if (!c->reader.buffer) return OK;
    if (st != OK) TRY(live_reader_poll(&c->reader, e));
    json_t *now = live_json(&c->reader.live, "x", 0);
    if (!c->whole) c->whole = json_incref(now);
    bool same = json_equal(now, c->whole) && c->reader.live.losses.bins == 3 &&
                c->reader.damaged == 0;
    json_decref(now);
    return same ? OK : FAIL(e, ERR_VERIFY, "the state is another one");
}

static void following_a_run_survives(void **state) {
    struct follow_case *c = calloc(1, sizeof *c);
    assert_non_null(c);
    bundle_case_open(&c->bundle);
    fault_every_allocation(&(struct fault_case){ .name = "live_reader_poll",
                                                 .before = follow_afresh, .attempt = follow,
                                                 .after = has_all, .context = c });
    live_reader_close(&c->reader);
    json_decref(c->whole);
    bundle_case_close(&c->bundle);
    free(c);
}

/* ---- comparing ---- */

struct compare_case {
    struct bundle_case bundle;
    char other[PATH_CAP];
    char *text; /* the report made without a failing allocation; owned */
};

static enum status compare(void *context, struct err *e) {
    struct compare_case *c = context;
    const char *paths[] = { c->bundle.file, c->other };
    struct comparison comparison;
    char *text = NULL;
    TRY(compare_runs(paths, 2, NULL, &comparison, e));
    enum status st = compare_text(&comparison, true, &text, e);
    if (st == OK) st = compare_html(&comparison, "/dev/null/not-a-directory", e) == ERR_MEMORY
                           ? ERR_MEMORY : OK;
    compare_free(&comparison);
    if (st == OK && c->text && strcmp(text, c->text) != 0)
        st = FAIL(e, ERR_VERIFY, "the report is another one: %s", text);
    if (st == OK && !c->text) c->text = text;
    else free(text);
    return st;
}

static void comparing_survives(void **state) {
    struct compare_case c = { .text = NULL };
    struct run_fixture f = three_steps();
    omp_set_num_threads(1); /* so that all failing allocations are in this thread */
    bundle_case_open(&c.bundle);
    f.id = "20261121T024900Z-tiny-1badcafe";
    f.recipe = "bf16";
    run_fixture_write(c.bundle.parent, &f, c.other); /* a live directory: JSON lines */
    fault_every_allocation(&(struct fault_case){ .name = "compare_runs", .attempt = compare,
                                                 .context = &c });
    free(c.text);
    bundle_case_close(&c.bundle);
}

/* A verdict; and no band, since two runs without different seeds give none. */
static enum status judge(void *context, struct err *e) {
    struct compare_case *c = context;
    const char *paths[] = { c->bundle.file, c->bundle.file };
    struct seed_band none = { 0 };
    struct comparison comparison;
    struct repro_verdict verdict = { 0 };
    json_t *band = NULL;
    TRY(compare_runs(paths, 2, NULL, &comparison, e));
    enum status st = repro_judge(&comparison, &none, 0, &verdict, e);
    json_t *json = st == OK ? repro_verdict_json(&verdict) : NULL;
    if (st == OK && !json) st = FAIL(e, ERR_MEMORY, "a verdict");
    if (st == OK && verdict.kind != REPRO_BITWISE)
        st = FAIL(e, ERR_VERIFY, "the verdict is another one: %s", repro_kind_name(verdict.kind));
    if (st == OK && seed_band_make(&comparison, &band, e) != ERR_CONFIG) st = e->code;
    json_decref(json);
    repro_verdict_free(&verdict);
    compare_free(&comparison);
    return st;
}

static void judging_survives(void **state) {
    struct compare_case c = { .text = NULL };
    omp_set_num_threads(1);
    bundle_case_open(&c.bundle);
    fault_every_allocation(&(struct fault_case){ .name = "repro_judge", .attempt = judge,
                                                 .context = &c });
    bundle_case_close(&c.bundle);
}

/* ---- launching ---- */

static enum status make_command(void *context, struct err *e) {
    struct launch_mounts mounts = { 0 };
    struct words none = { 0 }, command = { 0 }, argv = { 0 };
    struct launch_plan plan = {
        .launcher = *(enum launcher *)context, .name = "tiny", .image = "nvcr.io/nvidia/cuda:13",
        .gpu = true, .gpus = 8, .nodes = 2, .time_limit_s = 60, .constraint = "h200",
        .cwd = "/home/me",
        .program = "/opt/x/bin/fp8lab", .grace_s = LAUNCH_GRACE_S, .extra = &none,
        .environment = &none, .command = &command, .mounts = &mounts,
    };
    char *text = NULL;
    words_add(&command, "run");
    words_addf(&command, "--set=%s", "about=two words");
    enum status st = command.failed ? FAIL(e, ERR_MEMORY, "words")
                                    : mounts_add(&mounts, "/home/me", false, e);
    if (st == OK) st = mounts_add(&mounts, "/home/me/runs", true, e);
    if (st == OK) st = launch_command(&plan, &argv, e);
    if (st == OK) text = words_text(&argv);
    if (st == OK && !text) st = FAIL(e, ERR_MEMORY, "a text");
    if (st == OK && !strstr(text, "run '--set=about=two words'"))
        st = FAIL(e, ERR_VERIFY, "the command is another one: %s", text);
    free(text);
    words_free(&argv);
    words_free(&command);
    mounts_free(&mounts);
    return st;
}

static void launching_survives(void **state) {
    for (int i = 0; i < LAUNCHER_COUNT; i++) {
        enum launcher launcher = (enum launcher)i;
        fault_every_allocation(&(struct fault_case){ .name = launcher_name(launcher),
                                                     .attempt = make_command,
                                                     .context = &launcher });
    }
}

/* ---- scripts ---- */

static const char SCRIPT[] =
    "local tiny = require 'models.tiny'\n"
    "return suite { name = 'two', matrix = { recipe = { bf16, fp8.delayed { margin = 1 } } },\n"
    "  model = tiny.llama, data = synthetic, train = { steps = 10, global_batch = 8 } }\n";

struct script_case {
    char dir[PATH_CAP], path[PATH_CAP];
    const char *override;
    char sha256[SHA256_HEX]; /* of the last run's configuration; empty at first */
};

static enum status resolve(void *context, struct err *e) {
    struct script_case *c = context;
    struct resolve_options options = { .path = c->path, .overrides = &c->override,
                                       .override_count = 1 };
    struct resolution r;
    enum status st = resolve_experiment(&options, &r, e);
    if (st == OK) {
        const char *sha256 = r.runs[r.run_count - 1].config_sha256;
        if (!*c->sha256) snprintf(c->sha256, sizeof c->sha256, "%s", sha256);
        if (r.run_count != 2 || strcmp(sha256, c->sha256) != 0)
            st = FAIL(e, ERR_VERIFY, "another configuration");
    }
    resolution_destroy(&r);
    return st;
}

static void resolving_survives(void **state) {
    struct script_case c = { .override = "train.steps=20" };
    fast_directory(c.dir);
    put_file(c.dir, "x.lua", "%s", SCRIPT);
    MUST(path_join(c.path, c.dir, "x.lua", E));
    fault_every_allocation(&(struct fault_case){ .name = "resolve_experiment",
                                                 .attempt = resolve, .context = &c });
    MUST(tree_remove(c.dir, E));
}

/* ---- the query language ---- */

static enum status query(void *context, struct err *e) {
    static const char TEXT[] = "gpu.count >= 1 and not (gpu.memory < 80GiB or cuda.driver ~ "
                               "\"12*\") and gpu.product_name = \"NVIDIA H200\" and memory.unified";
    struct query *q = NULL;
    json_t *facts = context, *mismatch = NULL;
    TRY(query_parse(TEXT, &q, e));
    enum status st = query_match(q, facts, &mismatch, e);
    char *text = st == OK && mismatch ? query_mismatch_text(mismatch) : NULL;
    if (st == OK && !text) st = FAIL(e, ERR_MEMORY, "no text of what does not match");
    if (st == OK && !strstr(text, "equality is exact"))
        st = FAIL(e, ERR_VERIFY, "the hint is lost: %s", text);
    free(text);
    json_decref(mismatch);
    query_free(q);
    return st;
}

static void querying_survives(void **state) {
    json_t *facts = json_pack("{s:i, s:s, s:b}", "gpu.count", 1, "gpu.product_name",
                              "NVIDIA GH200 480GB", "memory.unified", 0);
    assert_non_null(facts);
    fault_every_allocation(&(struct fault_case){ .name = "query_parse, query_match",
                                                 .attempt = query, .context = facts });
    json_decref(facts);
}

static enum status make_environment(void *context, struct err *e) {
    struct environment environment;
    size_t wanted = *(size_t *)context;
    TRY(environment_make(NULL, false, &environment, e));
    size_t kept = json_object_size(json_object_get(environment.record, "kept")) +
                  json_array_size(json_object_get(environment.record, "withheld"));
    if (!wanted) *(size_t *)context = kept;
    environment_free(&environment);
    return !wanted || kept == wanted ? OK : FAIL(e, ERR_VERIFY, "%zu variables", kept);
}

static void making_an_environment_survives(void **state) {
    size_t count = 0;
    fault_every_allocation(&(struct fault_case){ .name = "environment_make",
                                                 .attempt = make_environment, .context = &count });
}

/* ---- TensorBoard ---- */

struct drawing {
    struct run_dir dir;
    char folder[PATH_CAP]; /* data/tensorboard */
    json_t *config, *events;
    int64_t bytes; /* of the file made without a failing allocation */
};

static void clear_drawing(void *context) {
    const struct drawing *d = context;
    MUST(tree_remove(d->folder, E));
}

static enum status draw(void *context, struct err *e) {
    struct drawing *d = context;
    struct tensorboard *board;
    struct tree files;
    const json_t *event;
    size_t i;
    TRY(tensorboard_open(&d->dir, d->config, 20, 0, &board, e));
    enum status st = OK;
    json_array_foreach(d->events, i, event)
        if (st == OK) st = tensorboard_put(board, event, e);
    if (st == OK) st = tensorboard_end(board, EVENT_SUCCEEDED, e);
    tensorboard_close(board);
    if (st != OK) return st;
    TRY(tree_list(d->folder, INT64_MAX, &files, e));
    int64_t bytes = files.count == 1 ? files.file[0].size : -1;
    tree_free(&files);
    if (!d->bytes) d->bytes = bytes;
    return bytes == d->bytes ? OK : FAIL(e, ERR_VERIFY, "%lld bytes", (long long)bytes);
}

static void drawing_survives(void **state) {
    struct drawing d = { .dir = RUN_DIR_NONE };
    struct fp8_slot slot = { 0 };
    struct stream_source source = { .slot = &slot, .step_number = 1, .width = 1 };
    struct npy layout;
    unsigned char row[128];
    char parent[PATH_CAP], hex[2 * sizeof row + 1];
    fast_directory(parent);
    MUST(run_dir_create(parent, "drawn", "0badcafe", &d.dir, E));
    MUST(path_join(d.folder, d.dir.path, "data/tensorboard", E));
    npy_layout(&STREAMS[STREAM_FP8], 1, &layout);
    assert_true(layout.row_bytes <= (int64_t)sizeof row);
    npy_row(&STREAMS[STREAM_FP8], &source, &layout, (char *)row);
    for (int64_t i = 0; i < layout.row_bytes; i++) snprintf(hex + 2 * i, 3, "%02x", row[i]);
    d.config = json_pack("{s:[i,i],s:{s:f}}", "a", 1, 2, "b", "c", 0.5);
    d.events = json_pack("[{s:s,s:[s]},{s:s,s:i,s:s},{s:s,s:i,s:f},{s:s,s:i,s:s,s:n,s:[i]},"
                         "{s:s,s:i,s:{s:s}}]", "event", "slots", "names", "a.x", "event", "fp8",
                         "step", 1, "row", hex, "event", "step", "step", 1, "loss", 1.5, "event",
                         "sample", "step", 1, "prompt", "A", "text", "ids", 7, "event",
                         "histograms", "step", 1, "tensors", "out:embed", "64:1 70:2");
    assert_true(d.config && d.events);
    fault_every_allocation(&(struct fault_case){ .name = "tensorboard", .before = clear_drawing,
                                                 .attempt = draw, .context = &d });
    json_decref(d.config);
    json_decref(d.events);
    run_dir_close(&d.dir);
    MUST(tree_remove(parent, E));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closing_a_run_survives),
        cmocka_unit_test(reading_a_bundle_survives),
        cmocka_unit_test(following_a_run_survives),
        cmocka_unit_test(comparing_survives),
        cmocka_unit_test(judging_survives),
        cmocka_unit_test(launching_survives),
        cmocka_unit_test(resolving_survives),
        cmocka_unit_test(querying_survives),
        cmocka_unit_test(making_an_environment_survives),
        cmocka_unit_test(drawing_survives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
