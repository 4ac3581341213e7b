#include "runner/bundle/recheck.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/f32_bits.h"
#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"
#include "runner/bundle/format.h"
#include "runner/bundle/step_order.h"
#include "runner/record/documents.h"
#include "runner/record/inputs.h"

/* ---- the numbers --------------------------------------------------------------------------- */

/* Whether `value` is the f32 with these bits. JSON has no number that is not finite; finite ones
 * are written with enough digits for an f32. */
static bool same_number(double value, uint32_t bits) {
    float f = f32_from_bits(bits);
    return isfinite(f) ? fabs(value) < 0x1p128 && (float)value == f : !isfinite(value);
}

/* A line has an f32 as a number and as its bits. */
static enum status check_bits(const struct columns *t, const struct stream *s,
                              const struct metric *m, struct err *e) {
    char bits_name[COLUMN_NAME_CAP];
    result_column(s, m, bits_name);
    const struct column *value = columns_scalar(t, m->name), *bits = columns_scalar(t, bits_name);
    if (!value || !bits || value == bits || bits->type != COLUMN_U32) return OK;
    for (int64_t i = 0; i < t->rows; i++) {
        uint32_t b = (uint32_t)column_bits(bits, i, 0);
        columns_pass(t, bits, i);
        if (!same_number(column_value(value, i, 0), b))
            return FAIL(e, ERR_VERIFY, "%s, record %lld: %s is %.9g, but its bits are %08x, "
                        "another number", s->name, (long long)i + 1, m->name,
                        column_value(value, i, 0), b);
    }
    return OK;
}

static enum status check_all_bits(const struct run_columns *c, struct err *e) {
    for (int i = 0; i < STREAM_COUNT; i++)
        for (int64_t k = 0; k < STREAMS[i].metric_count; k++)
            if (STREAMS[i].metric[k].type == COLUMN_U32)
                TRY(check_bits(c->of[i], &STREAMS[i], &STREAMS[i].metric[k], e));
    return OK;
}

static bool same_value(const json_t *a, const json_t *b) {
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

/* "0.0001", or "?" without memory. Owned by the caller. */
static char *value_text(const json_t *value) {
    char *text = json_dump_text(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    return text ? text : strdup("?");
}

/* A key that only one of the two has belongs to another version of this program. */
static enum status check_summary(const json_t *stated, json_t *made, struct err *e) {
    const char *key;
    json_t *value;
    json_object_foreach(made, key, value) {
        const json_t *other = json_object_get(stated, key);
        if (!other || same_value(other, value)) continue;
        char *says = value_text(other), *is = value_text(value);
        (void)!FAIL(e, ERR_VERIFY, "summary.json says %s is %.100s, its records say %.100s", key,
                    says ? says : "?", is ? is : "?");
        free(says);
        free(is);
        return ERR_VERIFY;
    }
    return OK;
}

/* Only the last record can say which step the run reached. A run without any claims no result. */
static enum status check_done(const struct run_columns *c, const struct statements *s,
                              struct err *e) {
    const struct columns *train = c->of[STREAM_TRAIN];
    const struct column *step = columns_scalar(train, "step");
    const json_t *steps = json_object_get(json_object_get(s->resolved, "train"), "steps");
    bool lost = json_array_size(json_object_get(s->summary, "problems")) > 0;
    bool done = !strcmp(json_text(s->run, "status", ""), "done");
    if (!done || lost || !json_is_integer(steps) || !step || train->rows == 0) return OK;
    double last = column_value(step, train->rows - 1, 0);
    if (last == (double)json_integer_value(steps)) return OK;
    return FAIL(e, ERR_VERIFY, "run.json says the run is done, but its last record is of step "
                "%.0f, and train.steps is %lld", last, (long long)json_integer_value(steps));
}

static enum status check_smoke(const struct statements *s, struct err *e) {
    const json_t *word;
    size_t i;
    if (json_is_true(json_object_get(s->run, "smoke"))) return OK;
    json_array_foreach(json_object_get(s->argv, "argv"), i, word)
        if (json_is_string(word) && !strcmp(json_string_value(word), "--smoke"))
            return FAIL(e, ERR_VERIFY, "run.json says it is not a smoke run, but its command in %s "
                        "has --smoke", DOCUMENT_argv);
    return OK;
}

static enum status check_results(const struct run_columns *c, const json_t *run, struct err *e) {
    const char *stated = json_text(run, "results_sha256", NULL);
    char hex[SHA256_HEX];
    if (!stated)
        return FAIL(e, ERR_VERIFY, "run.json lacks results_sha256, which every closed run has: its "
                    "records cannot be checked");
    TRY(results_hash(c, json_text(run, "final_weights_sha256", NULL), hex, e));
    if (strcmp(stated, hex) == 0) return OK;
    return FAIL(e, ERR_VERIFY, "run.json says results_sha256 is %.16s…, its records say %.16s…",
                stated, hex);
}

enum status recheck_numbers(const struct run_columns *c, const struct statements *s,
                            struct err *e) {
    json_t *made = NULL;
    TRY(inputs_check(s->run, s->resolved, e));
    TRY(check_smoke(s, e));
    TRY(check_all_bits(c, e));
    TRY(summary_make(c, json_object_get(s->run, "attempts"), &made, e));
    enum status st = check_summary(s->summary, made, e);
    json_decref(made);
    if (st == OK) st = check_results(c, s->run, e);
    return st == OK ? check_done(c, s, e) : st;
}

/* ---- the lines of format 1 ------------------------------------------------------------------ */

/* Whether both columns have the same value in a row; two NaNs are the same. */
static bool same_cell(const struct column *a, const struct column *b, int64_t row) {
    if (column_bits(a, row, 0) == column_bits(b, row, 0)) return true;
    return isnan(column_value(a, row, 0)) && isnan(column_value(b, row, 0));
}

/* Checks that the lines of a stream are what its columns are. */
static enum status check_lines(const struct columns *columns, const struct columns *lines,
                               const char *name, struct err *e) {
    int64_t rows = columns ? columns->rows : 0;
    if (lines->rows != rows)
        return FAIL(e, ERR_VERIFY, "%s has %lld records, its columns have %lld rows", name,
                    (long long)lines->rows, (long long)rows);
    for (int64_t i = 0; columns && i < columns->count; i++) {
        const struct column *c = &columns->column[i], *line = columns_scalar(lines, c->name);
        if (!line || c->width != 1 || line->type != c->type)
            return FAIL(e, ERR_VERIFY, "%s: the values of %s are not those of its column", name,
                        c->name);
        for (int64_t row = 0; row < rows; row++) {
            columns_pass(columns, c, row);
            if (!same_cell(c, line, row))
                return FAIL(e, ERR_VERIFY, "%s:%lld: %s is %.9g, but its column has %.9g", name,
                            (long long)row + 1, c->name, column_value(line, row, 0),
                            column_value(c, row, 0));
        }
    }
    return OK;
}

/* ---- of a bundle that is read as a stream --------------------------------------------------- */

enum { KEPT_MAX = 5 + 2 * STREAM_COUNT }; /* five JSON files; two files a stream in format 1 */

struct kept {
    char path[64];
    int64_t offset, bytes;
};

struct recheck {
    int fd;
    struct kept kept[KEPT_MAX];
    int64_t count, end; /* end: size of the temporary file */
    bool keeping;       /* the current file is the last of kept */
};

enum status recheck_create(struct recheck **out, struct err *e) {
    const char *folder = getenv("TMPDIR");
    struct recheck *r = calloc(1, sizeof *r);
    if (!r) return FAIL(e, ERR_MEMORY, "a bundle's numbers");
    r->fd = open(folder && *folder ? folder : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (r->fd < 0) r->fd = memfd_create("columns", MFD_CLOEXEC);
    if (r->fd >= 0) {
        *out = r;
        return OK;
    }
    free(r);
    return FAIL(e, ERR_IO, "no temporary file for a bundle's columns: %s", strerror(errno));
}

void recheck_destroy(struct recheck *r) {
    if (!r) return;
    close(r->fd);
    free(r);
}

static bool is_needed(const char *path) {
    const char *const NEEDED[] = { DOCUMENT_run, DOCUMENT_summary, DOCUMENT_resolved,
                                   DOCUMENT_argv, STREAMS[STREAM_EVAL_SETS].labels };
    for (size_t i = 0; i < sizeof NEEDED / sizeof *NEEDED; i++)
        if (strcmp(path, NEEDED[i]) == 0) return true;
    return stream_file_of(path).stream >= 0;
}

enum status recheck_begin(struct recheck *r, const char *path, struct err *e) {
    r->keeping = is_needed(path) && r->count < KEPT_MAX;
    if (!r->keeping) return OK;
    int64_t page = sysconf(_SC_PAGESIZE); /* each file is mapped separately */
    struct kept *k = &r->kept[r->count++];
    r->end = round_up(r->end, page);
    *k = (struct kept){ .offset = r->end };
    snprintf(k->path, sizeof k->path, "%s", path);
    return lseek(r->fd, r->end, SEEK_SET) == r->end
               ? OK : FAIL(e, ERR_IO, "a temporary file for %s: %s", path, strerror(errno));
}

enum status recheck_add(struct recheck *r, const void *bytes, size_t n, struct err *e) {
    if (!r->keeping) return OK;
    struct kept *k = &r->kept[r->count - 1];
    k->bytes += (int64_t)n;
    r->end += (int64_t)n;
    enum status st = write_all(r->fd, bytes, n, "a temporary file (TMPDIR names its folder)", e);
    if (st != OK) err_prefix(e, "keep %s, to check the numbers", k->path);
    return st;
}

static const struct kept *find_kept(const struct recheck *r, const char *path) {
    for (int64_t i = 0; i < r->count; i++)
        if (strcmp(r->kept[i].path, path) == 0) return &r->kept[i];
    return NULL;
}

static enum status load_json(const struct recheck *r, const char *path, json_t **out,
                             struct err *e) {
    const struct kept *k = find_kept(r, path);
    json_error_t why;
    if (!k) return FAIL(e, ERR_VERIFY, "missing file %s", path);
    if (k->bytes > JSON_FILE_LIMIT)
        return FAIL(e, ERR_FORMAT, "%s has %lld bytes, at most %d are read", path,
                    (long long)k->bytes, JSON_FILE_LIMIT);
    char *text = malloc((size_t)k->bytes + 1);
    if (!text) return FAIL(e, ERR_MEMORY, "%lld bytes of %s", (long long)k->bytes, path);
    enum status st = OK;
    if (pread(r->fd, text, (size_t)k->bytes, k->offset) != k->bytes)
        st = FAIL(e, ERR_IO, "read %s back: %s", path, strerror(errno));
    if (st == OK) st = json_parse(out, text, (size_t)k->bytes, JSON_REJECT_DUPLICATES, &why);
    if (st != OK && st != ERR_IO) st = FAIL(e, st, "%s:%d: %s", path, why.line, why.text);
    free(text);
    return st;
}

/* Maps a file that was kept, reads its lines, and unmaps it. */
static enum status read_lines(const struct recheck *r, const struct kept *k, struct columns **out,
                              struct err *e) {
    size_t n = (size_t)k->bytes;
    void *text = n ? mmap(NULL, n, PROT_READ, MAP_PRIVATE, r->fd, k->offset) : NULL;
    if (text == MAP_FAILED) return FAIL(e, ERR_IO, "map %s: %s", k->path, strerror(errno));
    enum status st = columns_of_lines(text ? text : "", n, k->path, out, e);
    if (text) munmap(text, n);
    return st;
}

static enum status read_stream(const struct recheck *r, int i, const json_t *summary,
                               struct columns **out, struct err *e) {
    const struct kept *k = find_kept(r, STREAMS[i].file);
    if (!k || stream_is_damaged(summary, k->path)) return OK;
    return STREAMS[i].labels ? columns_map(r->fd, k->offset, k->bytes, k->path, out, e)
                             : read_lines(r, k, out, e);
}

/* Format 1: the numbers are those of the columns. Readers of text see the lines of train and eval,
 * so these are checked too. */
static enum status read_old_stream(const struct recheck *r, int i, const json_t *summary,
                                   struct columns **out, struct err *e) {
    const struct kept *k = find_kept(r, STREAMS[i].old_columns);
    struct columns *lines = NULL;
    if (k) TRY(columns_map(r->fd, k->offset, k->bytes, k->path, out, e));
    k = find_kept(r, STREAMS[i].file);
    bool text = i == STREAM_TRAIN || i == STREAM_EVAL;
    if (!text || !k || stream_is_damaged(summary, k->path)) return OK;
    TRY(read_lines(r, k, &lines, e));
    enum status st = check_lines(*out, lines, k->path, e);
    columns_destroy(lines);
    return st;
}

static enum status read_streams(const struct recheck *r, const json_t *run, const json_t *summary,
                                struct run_columns *out, struct err *e) {
    int64_t format = 0;
    TRY(bundle_format_of(run, &format, e));
    for (int i = 0; i < STREAM_COUNT; i++) {
        TRY(format == 1 ? read_old_stream(r, i, summary, &out->of[i], e)
                        : read_stream(r, i, summary, &out->of[i], e));
        const char *file = format == 1 ? STREAMS[i].old_columns : STREAMS[i].file;
        TRY(step_order_check(i, out->of[i], file, e));
    }
    return OK;
}

enum status recheck_finish(struct recheck *r, struct err *e) {
    json_t *run = NULL, *resolved = NULL, *argv = NULL, *summary = NULL;
    struct run_columns columns = { 0 };
    enum status st = load_json(r, DOCUMENT_run, &run, e);
    if (st == OK && find_kept(r, DOCUMENT_resolved))
        st = load_json(r, DOCUMENT_resolved, &resolved, e);
    if (st == OK && find_kept(r, DOCUMENT_argv)) st = load_json(r, DOCUMENT_argv, &argv, e);
    if (st == OK) st = load_json(r, DOCUMENT_summary, &summary, e);
    if (st == OK) st = read_streams(r, run, summary, &columns, e);
    struct columns *sets = columns.of[STREAM_EVAL_SETS];
    if (st == OK && sets && !sets->labels && find_kept(r, STREAMS[STREAM_EVAL_SETS].labels))
        st = load_json(r, STREAMS[STREAM_EVAL_SETS].labels, &sets->labels, e);
    const struct statements said = { run, resolved, argv, summary };
    if (st == OK) st = recheck_numbers(&columns, &said, e);
    run_columns_free(&columns);
    json_decref(summary);
    json_decref(argv);
    json_decref(resolved);
    json_decref(run);
    return st;
}
