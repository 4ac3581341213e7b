#include "runner/bundle/recheck.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/jsonl.h"
#include "runner/base/run_files.h"
#include "runner/record/inputs.h"

/* ---- the numbers --------------------------------------------------------------------------- */

/* Whether `value` is the f32 with these bits. JSON has no number that is not finite; finite ones
 * are written with enough digits for an f32. */
static bool same_number(double value, uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return isfinite(f) ? fabs(value) < 0x1p128 && (float)value == f : !isfinite(value);
}

static enum status check_bits(const struct columns *t, const char *stream, const char *name,
                              struct err *e) {
    char bits_name[64];
    snprintf(bits_name, sizeof bits_name, "%s_bits", name);
    const struct column *value = columns_find(t, name), *bits = columns_find(t, bits_name);
    if (!value || !bits || value->width != 1 || bits->width != 1 || bits->type != COLUMN_U32)
        return OK;
    for (int64_t i = 0; i < t->rows; i++) {
        uint32_t b = ((const uint32_t *)bits->data)[i];
        if (i % COLUMNS_CHUNK == 0) columns_forget(t);
        if (!same_number(column_value(value, i), b))
            return FAIL(e, ERR_VERIFY, "%s.cols, row %lld: %s is %.9g, but its bits are %08x, "
                        "another number", stream, (long long)i + 1, name, column_value(value, i),
                        b);
    }
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
        (void)!FAIL(e, ERR_VERIFY, "summary.json says %s is %.100s, its columns say %.100s", key,
                    says ? says : "?", is ? is : "?");
        free(says);
        free(is);
        return ERR_VERIFY;
    }
    return OK;
}

enum status recheck_numbers(const struct run_columns *c, const json_t *run,
                            const json_t *resolved, const json_t *summary, struct err *e) {
    json_t *made = NULL;
    char hex[SHA256_HEX];
    TRY(inputs_check(run, resolved, e));
    TRY(check_bits(c->train, "train", "loss", e));
    TRY(check_bits(c->train, "train", "grad_norm", e));
    TRY(check_bits(c->eval, "eval", "loss", e));
    TRY(summary_make(c, json_object_get(run, "attempts"), &made, e));
    enum status st = check_summary(summary, made, e);
    json_decref(made);
    if (st != OK) return st;
    const char *stated = json_text(run, "results_sha256", NULL);
    if (!stated) return OK;
    TRY(results_hash(c, json_text(run, "final_weights_sha256", NULL), hex, e));
    if (strcmp(stated, hex) == 0) return OK;
    return FAIL(e, ERR_VERIFY, "run.json says results_sha256 is %.16s…, its columns say %.16s…",
                stated, hex);
}

/* ---- the lines ------------------------------------------------------------------------------ */

static enum status check_record(const struct columns *c, int64_t row, const json_t *record,
                                const char *name, struct err *e) {
    for (int64_t i = 0; i < c->count; i++) {
        const struct column *column = &c->column[i];
        const json_t *value = json_object_get(record, column->name);
        if (columns_hold(column, row, value)) continue;
        char *text = value ? value_text(value) : NULL;
        (void)!FAIL(e, ERR_VERIFY, "%s:%lld: %s is %.100s, but its column has another value", name,
                    (long long)row + 1, column->name, text ? text : "missing");
        free(text);
        return ERR_VERIFY;
    }
    return OK;
}

static enum status check_records(FILE *in, const char *name, const struct columns *c,
                                 struct err *e) {
    struct jsonl lines;
    int64_t row = 0, rows = c ? c->rows : 0;
    enum status st = OK;
    jsonl_open(&lines, in, name);
    for (; st == OK; row++) {
        json_t *record = NULL;
        st = jsonl_next(&lines, &record, e);
        if (!record) break;
        if (row % COLUMNS_CHUNK == 0 && c) columns_forget(c);
        st = row < rows ? check_record(c, row, record, name, e)
                        : FAIL(e, ERR_VERIFY, "%s has more records than the %lld rows of its "
                               "columns", name, (long long)rows);
        json_decref(record);
    }
    jsonl_close(&lines);
    return st != OK || row == rows
               ? st
               : FAIL(e, ERR_VERIFY, "%s has %lld records, its columns have %lld rows", name,
                      (long long)row, (long long)rows);
}

/* ---- of a bundle that streams by ----------------------------------------------------------- */

enum { KEPT_MAX = 11 }; /* three JSON files, six files of columns and two of lines */

static const char RESOLVED[] = "data/experiment/resolved.json",
                  TRAIN_LINES[] = "data/metrics/train.jsonl",
                  EVAL_LINES[] = "data/metrics/eval.jsonl";

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
    static const char *const NEEDED[] = { "data/run.json", "data/metrics/summary.json", RESOLVED,
                                          TRAIN_LINES, EVAL_LINES };
    struct run_columns none = { 0 };
    for (size_t i = 0; i < sizeof NEEDED / sizeof *NEEDED; i++)
        if (strcmp(path, NEEDED[i]) == 0) return true;
    return run_columns_slot(&none, path) != NULL;
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

static enum status load_columns(const struct recheck *r, struct run_columns *out, struct err *e) {
    for (int64_t i = 0; i < r->count; i++) {
        const struct kept *k = &r->kept[i];
        struct columns **slot = run_columns_slot(out, k->path);
        if (slot) TRY(columns_map_part(r->fd, k->offset, k->bytes, k->path, slot, e));
    }
    return OK;
}

/* Lines that did not convert stay beside the columns of an earlier close; `show` prints that. */
static bool stays_text(const json_t *summary, const char *path) {
    size_t i, n = strlen(path);
    const json_t *problem;
    json_array_foreach(json_object_get(summary, "problems"), i, problem) {
        const char *text = json_string_value(problem);
        if (text && strncmp(text, path, n) == 0 && text[n] == ' ') return true;
    }
    return false;
}

/* The part of the temporary file that one file has. */
struct part {
    int fd;
    int64_t at, end;
};

static ssize_t part_read(void *cookie, char *out, size_t n) {
    struct part *p = cookie;
    int64_t left = p->end - p->at;
    ssize_t got = pread(p->fd, out, (int64_t)n < left ? n : (size_t)left, p->at);
    if (got > 0) p->at += got;
    return got;
}

static enum status check_lines(const struct recheck *r, const char *path,
                               const struct columns *columns, const json_t *summary,
                               struct err *e) {
    const struct kept *k = find_kept(r, path);
    if (!k || stays_text(summary, path)) return OK;
    struct part part = { .fd = r->fd, .at = k->offset, .end = k->offset + k->bytes };
    FILE *in = fopencookie(&part, "rb", (cookie_io_functions_t){ .read = part_read });
    enum status st = in ? check_records(in, path, columns, e)
                        : FAIL(e, ERR_MEMORY, "no memory to read %s", path);
    if (in) fclose(in);
    return st;
}

enum status recheck_finish(struct recheck *r, struct err *e) {
    json_t *run = NULL, *resolved = NULL, *summary = NULL;
    struct run_columns columns = { 0 };
    enum status st = load_json(r, "data/run.json", &run, e);
    if (st == OK && find_kept(r, RESOLVED)) st = load_json(r, RESOLVED, &resolved, e);
    if (st == OK) st = load_json(r, "data/metrics/summary.json", &summary, e);
    if (st == OK) st = load_columns(r, &columns, e);
    if (st == OK) st = recheck_numbers(&columns, run, resolved, summary, e);
    if (st == OK) st = check_lines(r, TRAIN_LINES, columns.train, summary, e);
    if (st == OK) st = check_lines(r, EVAL_LINES, columns.eval, summary, e);
    run_columns_free(&columns);
    json_decref(summary);
    json_decref(resolved);
    json_decref(run);
    return st;
}
