#include "runner/bundle/bundle.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/version.h"
#include "runner/bundle/archive.h"
#include "runner/bundle/bag.h"
#include "runner/bundle/crate.h"
#include "runner/bundle/format.h"
#include "runner/bundle/kept.h"
#include "runner/bundle/step_order.h"
#include "runner/bundle/summary.h"
#include "runner/bundle/unpack.h"
#include "runner/record/documents.h"
#include "runner/record/row_file.h"
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

/* ---- records -------------------------------------------------------------------------------- */

/* summary.json names it ("problems"). */
static enum status add_problem(struct finish *f, const char *text, struct err *e) {
    bool failed = false;
    json_append(f->problems, json_from_text(text), &failed);
    if (!*f->result->problem)
        snprintf(f->result->problem, sizeof f->result->problem, "%.511s", text);
    return failed ? FAIL(e, ERR_MEMORY, "no memory to say: %.200s", text) : OK;
}

/* A stream that cannot be read stays as it is. */
static enum status leave_stream(struct finish *f, const char *file, const char *why,
                                struct err *e) {
    char text[PATH_CAP + sizeof e->text];
    snprintf(text, sizeof text, "%s is damaged, so the summary is without it: %s", file, why);
    return add_problem(f, text, e);
}

/* The step that a finished run reached; 0: not known, or it did not finish. */
static int64_t last_step(const json_t *run) {
    const json_t *attempts = json_object_get(run, "attempts");
    size_t n = json_array_size(attempts);
    if (n == 0 || strcmp(json_text(run, "status", ""), "done") != 0) return 0;
    return json_int(json_array_get(attempts, n - 1), "to_step");
}

/* The steps without a record, from the run's first step to its last one: if it did not finish, the
 * last with a record. A run that goes on with the optimizer of another one begins at a later
 * step. */
static enum status find_gaps(struct finish *f, struct err *e) {
    const struct columns *train = f->columns.of[STREAM_TRAIN];
    const struct column *step = train ? columns_scalar(train, "step") : NULL;
    const json_t *first = json_array_get(json_object_get(f->run, "attempts"), 0);
    char init[PATH_CAP], text[256];
    TRY(path_join(init, f->dir, DOCUMENT_init, e));
    if (!step || train->rows == 0) return OK;
    int64_t before = (int64_t)column_value(step, 0, 0) - 1, missing = 0, end = last_step(f->run);
    if (!path_exists(init) && first) before = json_int(first, "from_step");
    for (int64_t i = 0; i < train->rows; i++) {
        int64_t now = (int64_t)column_value(step, i, 0);
        if (now > before + 1) missing += now - before - 1;
        before = now;
    }
    if (end > before) missing += end - before;
    if (!missing) return OK;
    snprintf(text, sizeof text, "the records of %" PRId64 " steps were lost: %s lacks them",
             missing, STREAMS[STREAM_TRAIN].file);
    return add_problem(f, text, e);
}

/* Reads JSON lines through a mapping. */
static enum status read_lines(int fd, const char *path, struct columns **out, struct err *e) {
    struct stat info;
    if (fstat(fd, &info) != 0) return FAIL(e, ERR_IO, "stat %s: %s", path, strerror(errno));
    size_t n = (size_t)info.st_size;
    if (n == 0) return columns_of_lines("", 0, path, out, e); /* a mapping is never empty */
    void *text = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
    if (text == MAP_FAILED) return FAIL(e, ERR_IO, "map %s: %s", path, strerror(errno));
    enum status st = columns_of_lines(text, n, path, out, e);
    munmap(text, n);
    return st;
}

/* Rows that a wide stream's header counts and its file lacks. A kill loses no counted row. */
static enum status find_lost_rows(struct finish *f, int i, const struct row_file *rows,
                                  struct err *e) {
    char text[256];
    struct stat info;
    const struct npy *layout = &rows->layout;
    if (!layout->row_bytes) {
        if (fstat(rows->fd, &info) != 0 || info.st_size == 0) return OK;
        snprintf(text, sizeof text, "%s has no whole header, so the bundle lacks its rows",
                 STREAMS[i].file);
        return add_problem(f, text, e);
    }
    int64_t lost = layout->rows - (rows->size - layout->header_bytes) / layout->row_bytes;
    if (lost <= 0) return OK;
    snprintf(text, sizeof text, "%" PRId64 " rows were lost: %s counts %" PRId64, lost,
             STREAMS[i].file, layout->rows);
    return add_problem(f, text, e);
}

/* Cuts off a part of a row, writes the number of rows, and maps the file. */
static enum status read_rows(struct finish *f, int i, int fd, const char *path, struct err *e) {
    struct columns **out = &f->columns.of[i];
    struct row_file rows;
    TRY(row_file_open(fd, path, &rows, e));
    TRY(find_lost_rows(f, i, &rows, e));
    TRY(row_file_cut(&rows, path, INT64_MAX, e));
    return rows.size ? columns_map(fd, 0, rows.size, path, out, e) : OK;
}

/* The summary has the losses of sets by name. Without the names it has none. */
static enum status name_sets(struct finish *f, struct err *e) {
    struct columns *sets = f->columns.of[STREAM_EVAL_SETS];
    char path[PATH_CAP];
    struct err ignored;
    if (!sets || sets->labels) return OK;
    TRY(path_join(path, f->dir, STREAMS[STREAM_EVAL_SETS].labels, e));
    return json_file_read(path, &sets->labels, &ignored) == ERR_MEMORY
               ? FAIL(e, ERR_MEMORY, "%s", path) : OK;
}

static enum status read_stream(struct finish *f, int i, struct err *e) {
    char path[PATH_CAP];
    TRY(path_join(path, f->dir, STREAMS[i].file, e));
    bool wide = STREAMS[i].labels != NULL;
    int fd = open(path, (wide ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT) return OK;
    if (fd < 0) return FAIL(e, ERR_IO, "open %s: %s", path, strerror(errno));
    enum status st = wide ? read_rows(f, i, fd, path, e)
                          : read_lines(fd, path, &f->columns.of[i], e);
    close(fd);
    if (st == OK && i == STREAM_EVAL_SETS) st = name_sets(f, e);
    if (st == OK) st = step_order_check(i, f->columns.of[i], STREAMS[i].file, e);
    if (st == OK) return OK;
    columns_destroy(f->columns.of[i]);
    f->columns.of[i] = NULL;
    return st;
}

static enum status read_streams(struct finish *f, struct err *e) {
    struct err why = { 0 };
    enum status st = format_upgrade(f->dir, &why);
    if (st == ERR_FORMAT) st = leave_stream(f, "a file of bundle format 1", why.text, e);
    else if (st != OK) return FAIL(e, st, "%s", why.text);
    for (int i = 0; st == OK && i < STREAM_COUNT; i++) {
        st = read_stream(f, i, &why);
        if (st == ERR_FORMAT) st = leave_stream(f, STREAMS[i].file, why.text, e);
        else if (st == OK) st = format_drop_columns(f->dir, i, e);
        else return FAIL(e, st, "%s", why.text);
    }
    return st;
}

/* ---- run.json, summary.json ---------------------------------------------------------------- */

static enum status load_run(struct finish *f, struct err *e) {
    char path[PATH_CAP];
    TRY(path_join(path, f->dir, DOCUMENT_run, e));
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
    json_put(f->run, "bundle_format", json_integer(BUNDLE_FORMAT), &failed);
    if (failed) return FAIL(e, ERR_MEMORY, "no memory for run.json");
    TRY(path_join(path, f->dir, DOCUMENT_run, e));
    TRY(json_file_write(path, f->run, e));
    TRY(summary_make(&f->columns, json_object_get(f->run, "attempts"), &summary, e));
    json_put(summary, "problems", json_incref(f->problems), &failed);
    enum status st = failed ? FAIL(e, ERR_MEMORY, "no memory for the summary") : OK;
    if (st == OK) st = path_join(path, f->dir, DOCUMENT_summary, e);
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
    TRY(path_join(inside, dir, RUN_PATH_checkpoints, e));
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
        TRY(path_join(path, f->dir, RUN_PATH_checkpoints, e));
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

/* What this program writes beside data/ and the bag's own files. */
static bool is_beside(const char *path) {
    static const char *const BESIDE[] = { "lock", "offered.json", RUN_PATH_suite };
    size_t n = strlen(path);
    if (n > 8 && !strcmp(path + n - 8, ".partial")) n -= 8;
    for (size_t i = 0; i < sizeof BESIDE / sizeof *BESIDE; i++)
        if (n == strlen(BESIDE[i]) && !strncmp(path, BESIDE[i], n)) return true;
    return !strncmp(path, ARCHIVE_ASIDE "/", sizeof ARCHIVE_ASIDE);
}

/* Removes the directory, unless a user has put a file beside data/, which no bundle takes. */
static enum status remove_directory(struct finish *f, struct err *e) {
    struct tree all;
    TRY(tree_list(f->dir, BUNDLE_LIMITS.entries, &all, e));
    for (int64_t i = 0; i < all.count && !*f->result->stays; i++)
        if (!bag_holds(all.file[i].path) && !is_beside(all.file[i].path))
            snprintf(f->result->stays, sizeof f->result->stays, "its directory stays: the bundle "
                     "lacks %.400s", all.file[i].path);
    tree_free(&all);
    return *f->result->stays ? OK : tree_remove(f->dir, e);
}

enum status bundle_finish(const char *run_dir, const struct bundle_options *options,
                          struct bundle_result *result, struct err *e) {
    assert(options->threads >= 1);
    *result = (struct bundle_result){ 0 };
    struct finish f = { .dir = run_dir, .options = options, .result = result,
                        .problems = json_array() };
    enum status st = f.problems ? load_run(&f, e) : FAIL(e, ERR_MEMORY, "closing %s", run_dir);
    if (st == OK) st = prune(&f, e);
    if (st == OK) st = read_streams(&f, e);
    if (st == OK) st = find_gaps(&f, e);
    if (st == OK) st = conclude(&f, e);
    run_columns_free(&f.columns);
    if (st == OK) st = seal(&f, e);
    if (st == OK) st = pack(&f, e);
    if (st == OK && !options->keep_directory) st = remove_directory(&f, e);
    tree_free(&f.list);
    json_decref(f.problems);
    json_decref(f.run);
    return st;
}
