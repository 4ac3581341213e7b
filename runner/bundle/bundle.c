#include "runner/bundle/bundle.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/version.h"
#include "runner/bundle/archive.h"
#include "runner/bundle/bag.h"
#include "runner/bundle/columns.h"
#include "runner/bundle/crate.h"
#include "runner/bundle/kept.h"
#include "runner/bundle/summary.h"
#include "runner/bundle/unpack.h"
#include "runner/record/run_dir.h"

/* Level 3 is as fast as a disk; weights hardly shrink at any level. */
enum { ZSTD_LEVEL = 3 };

enum bundle_checkpoints bundle_policy(const char *archive, const char *status) {
    if (strcmp(status, "done") != 0) return BUNDLE_CHECKPOINTS_FULL;
    if (archive && strcmp(archive, "full") == 0) return BUNDLE_CHECKPOINTS_FULL;
    if (archive && strcmp(archive, "weights") == 0) return BUNDLE_CHECKPOINTS_WEIGHTS;
    return BUNDLE_CHECKPOINTS_NONE;
}

struct finish {
    const char *dir;
    const struct bundle_options *options;
    struct bundle_result *result;
    json_t *run, *problems; /* owned */
    struct run_columns columns;
    struct tree list;
};

/* ---- metrics to columns -------------------------------------------------------------------- */

/* Streams of records: source, destination, and whether the text stays. The text of the large
 * streams is removed, since the columns hold every digit of it. */
static const struct stream {
    const char *lines, *labels, *columns;
    bool keep_text;
} STREAMS[] = {
    { "data/metrics/train.jsonl", NULL, "data/metrics/train.cols", true },
    { "data/metrics/eval.jsonl", NULL, "data/metrics/eval.cols", true },
    { "data/metrics/telemetry.jsonl", NULL, "data/metrics/telemetry.cols", true },
    { "data/metrics/ranks.jsonl", NULL, "data/metrics/ranks.cols", true },
    { "data/metrics/fp8.jsonl", "data/metrics/fp8_slots.json", "data/fp8/fp8.cols", false },
    { "data/metrics/trace.jsonl", "data/metrics/trace_tensors.json", "data/trace.cols", false },
};
enum { STREAM_COUNT = sizeof STREAMS / sizeof *STREAMS };

/* Lines that do not convert stay as they are, and the bundle names the problem. Columns that an
 * earlier close of this run made still count: they may hold what is damaged in the lines. */
static enum status stays_text(struct finish *f, const struct stream *s, const char *columns,
                              const char *why, struct columns **out, struct err *e) {
    char text[PATH_CAP + sizeof e->text];
    bool failed = false, older = path_exists(columns);
    snprintf(text, sizeof text, "%s stays text: %s%s", s->lines, why,
             older ? "; its columns are those of an earlier close" : "");
    json_append(f->problems, json_from_text(text), &failed);
    if (!*f->result->problem)
        snprintf(f->result->problem, sizeof f->result->problem, "%.511s", text);
    if (failed) return FAIL(e, ERR_MEMORY, "no memory to say: %s", why);
    return older ? columns_map(columns, out, e) : OK;
}

/* A stream that does not convert is reported in summary.json and kept as text. A full disk is an
 * error. */
static enum status convert_stream(struct finish *f, const struct stream *s, struct columns **out,
                                  struct err *e) {
    char lines[PATH_CAP], labels[PATH_CAP], columns[PATH_CAP];
    struct err why = { 0 };
    TRY(path_join(lines, f->dir, s->lines, e));
    TRY(path_join(columns, f->dir, s->columns, e));
    TRY(path_join(labels, f->dir, s->labels ? s->labels : "", e));
    if (path_exists(lines)) {
        enum status st =
            columns_convert_file(lines, s->labels ? labels : NULL, columns, NULL, &why);
        if (st == ERR_FORMAT) return stays_text(f, s, columns, why.text, out, e);
        if (st != OK) return FAIL(e, st, "%s", why.text);
        if (!s->keep_text && unlink(lines) != 0) return FAIL(e, ERR_IO, "remove %s", lines);
    }
    return path_exists(columns) ? columns_map(columns, out, e) : OK;
}

static enum status convert(struct finish *f, struct err *e) {
    char folder[PATH_CAP];
    struct columns **out[STREAM_COUNT] = { &f->columns.train, &f->columns.eval,
                                           &f->columns.telemetry, &f->columns.ranks,
                                           &f->columns.fp8, &f->columns.trace };
    TRY(path_join(folder, f->dir, "data/fp8", e));
    (void)mkdir(folder, 0755); /* may exist; the conversion reports an error */
    for (int i = 0; i < STREAM_COUNT; i++) TRY(convert_stream(f, &STREAMS[i], out[i], e));
    (void)rmdir(folder); /* otherwise a run without FP8 has an empty folder */
    return OK;
}

/* ---- run.json, summary.json ---------------------------------------------------------------- */

static enum status load_run(struct finish *f, struct err *e) {
    char path[PATH_CAP];
    TRY(path_join(path, f->dir, "data/run.json", e));
    TRY(json_file_read(path, &f->run, e));
    const char *status = json_text(f->run, "status", "");
    if (*status == 0 || !json_text(f->run, "id", NULL))
        return FAIL(e, ERR_FORMAT, "%s lacks \"id\" or \"status\"", path);
    if (strcmp(status, "running") == 0)
        return FAIL(e, ERR_STATE, "%s still says \"running\"", path);
    return OK;
}

static enum status conclude(struct finish *f, struct err *e) {
    char path[PATH_CAP];
    json_t *summary = NULL;
    char *hex = f->result->results_sha256;
    TRY(results_hash(&f->columns, json_text(f->run, "final_weights_sha256", NULL), hex, e));
    bool failed = false;
    json_put(f->run, "results_sha256", json_string(hex), &failed);
    if (failed) return FAIL(e, ERR_MEMORY, "no memory for results_sha256");
    TRY(path_join(path, f->dir, "data/run.json", e));
    TRY(json_file_write(path, f->run, e));
    TRY(summary_make(&f->columns, json_object_get(f->run, "attempts"), &summary, e));
    json_put(summary, "problems", json_incref(f->problems), &failed);
    enum status st = failed ? FAIL(e, ERR_MEMORY, "no memory for the summary") : OK;
    if (st == OK) st = path_join(path, f->dir, "data/metrics/summary.json", e);
    if (st == OK) st = json_file_write(path, summary, e);
    json_decref(summary);
    return st;
}

/* ---- the payload --------------------------------------------------------------------------- */

static bool kept_by(enum bundle_checkpoints policy, const char *path) {
    if (!archive_is_checkpoint(path) || policy == BUNDLE_CHECKPOINTS_FULL) return true;
    const char *base = strrchr(path, '/') + 1;
    return policy == BUNDLE_CHECKPOINTS_WEIGHTS &&
           (strcmp(base, "model.safetensors") == 0 || strcmp(base, "checkpoint.json") == 0);
}

/* Moves data/checkpoints out of the bag, or back into it. */
static enum status move_checkpoints(const char *dir, bool aside, struct err *e) {
    char inside[PATH_CAP], beside[PATH_CAP];
    TRY(path_join(inside, dir, "data/checkpoints", e));
    TRY(path_join(beside, dir, ARCHIVE_ASIDE, e));
    const char *from = aside ? inside : beside, *to = aside ? beside : inside;
    if (!path_exists(from)) return OK;
    (void)rmdir(to); /* rename needs the destination to be absent */
    if (rename(from, to) == 0) return OK;
    return FAIL(e, ERR_IO, "rename %s to %s: %s", from, to, strerror(errno));
}

enum status bundle_checkpoints_back(const char *run_dir, struct err *e) {
    return move_checkpoints(run_dir, false, e);
}

/* What a killed process left half-written, and the log of a worker that printed nothing. */
static bool is_leftover(const struct tree_file *file) {
    static const char LOG[] = "data/logs/worker-";
    size_t n = strlen(file->path);
    if (n > 8 && strcmp(file->path + n - 8, ".partial") == 0) return true;
    return file->size == 0 && strncmp(file->path, LOG, strlen(LOG)) == 0;
}

/* Removes leftovers, and the checkpoints that the policy leaves out. */
static enum status prune(struct finish *f, struct err *e) {
    char path[PATH_CAP];
    if (f->options->checkpoints == BUNDLE_CHECKPOINTS_ASIDE)
        TRY(move_checkpoints(f->dir, true, e));
    enum bundle_checkpoints policy = f->options->checkpoints;
    TRY(kept_move(f->dir, f->run, policy == BUNDLE_CHECKPOINTS_WEIGHTS, e));
    if (policy == BUNDLE_CHECKPOINTS_NONE) {
        TRY(path_join(path, f->dir, "data/checkpoints", e));
        TRY(tree_remove(path, e));
    }
    TRY(tree_list(f->dir, BUNDLE_LIMITS.entries, &f->list, e));
    enum status st = OK;
    for (int64_t i = 0; st == OK && i < f->list.count; i++) {
        const char *name = f->list.file[i].path;
        if (!is_leftover(&f->list.file[i]) && kept_by(policy, name)) continue;
        st = path_join(path, f->dir, name, e);
        if (st == OK && unlink(path) != 0) st = FAIL(e, ERR_IO, "remove %s", path);
    }
    tree_free(&f->list);
    return st;
}

static const char *end_time(const json_t *run) {
    return json_text(run, "ended", json_text(run, "started", "1970-01-01T00:00:00Z"));
}

static enum status seal(struct finish *f, struct err *e) {
    char about[1024], date[11];
    TRY(tree_list(f->dir, BUNDLE_LIMITS.entries, &f->list, e));
    TRY(crate_write(f->dir, f->run, &f->list, e));
    tree_free(&f->list);
    snprintf(date, sizeof date, "%.10s", end_time(f->run));
    snprintf(about, sizeof about, "fp8lab run of %s, %s", json_text(f->run, "name", "?"),
             json_text(f->run, "status", "?"));
    struct bag_info info = { .identifier = json_text(f->run, "id", "?"), .description = about,
                             .date = date, .agent = "fp8lab " FP8LAB_VERSION };
    return bag_write(f->dir, &info, &f->list, f->result->identity, &f->result->payload_bytes, e);
}

static enum status pack(struct finish *f, struct err *e) {
    char folder[PATH_CAP];
    struct unpack_report report;
    struct archive_options options = { .time = run_time_parse(end_time(f->run)),
                                       .threads = f->options->threads, .level = ZSTD_LEVEL };
    path_base(folder, f->dir);
    size_t length = strlen(f->dir);
    while (length > 1 && f->dir[length - 1] == '/') length--;
    int n = snprintf(f->result->path, PATH_CAP, "%.*s.tar.zst", (int)length, f->dir);
    if (n >= PATH_CAP) return FAIL(e, ERR_ARG, "path too long: %.200s…", f->dir);
    TRY(archive_pack(f->dir, &f->list, folder, f->result->path, &options, &f->result->packed_bytes,
                     e));
    /* No limit on the ratio: this program wrote the bundle, and zeros compress well. */
    struct bundle_limits limits = BUNDLE_LIMITS;
    limits.ratio = INT64_MAX / 2;
    TRY(bundle_unpack(f->result->path, NULL, &limits, &report, e));
    if (strcmp(report.identity, f->result->identity) != 0)
        return FAIL(e, ERR_VERIFY, "%s reads back as %.16s…, written as %.16s…", f->result->path,
                    report.identity, f->result->identity);
    return OK;
}

enum status bundle_finish(const char *run_dir, const struct bundle_options *options,
                          struct bundle_result *result, struct err *e) {
    assert(options->threads >= 1);
    *result = (struct bundle_result){ 0 };
    struct finish f = { .dir = run_dir, .options = options, .result = result,
                        .problems = json_array() };
    enum status st = f.problems ? load_run(&f, e) : FAIL(e, ERR_MEMORY, "closing %s", run_dir);
    if (st == OK) st = prune(&f, e);
    if (st == OK) st = convert(&f, e);
    if (st == OK) st = conclude(&f, e);
    run_columns_free(&f.columns);
    if (st == OK) st = seal(&f, e);
    if (st == OK) st = pack(&f, e);
    if (st == OK && !options->keep_directory) st = tree_remove(run_dir, e);
    tree_free(&f.list);
    json_decref(f.problems);
    json_decref(f.run);
    return st;
}
