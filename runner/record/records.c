#include "runner/record/records.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/jsonl.h"
#include "runner/record/documents.h"
#include "runner/record/row_file.h"

struct records {
    const struct run_dir *dir;
    int fd[STREAM_COUNT];       /* of a stream of lines; -1 until its first record */
    int64_t size[STREAM_COUNT]; /* of its file */
    struct row_file rows[STREAM_COUNT]; /* of a wide stream */
};

static bool is_wide(int64_t i) { return STREAMS[i].labels != NULL; }

/* ---- cutting back -----------------------------------------------------------------------------*/

enum line { LINE_KEPT, LINE_BEYOND, LINE_GARBLED };

/* Classifies a line: a whole record of a step up to `last_step` or without a step (telemetry), a
 * record of a later step, or garbage. ERR_MEMORY: there was no memory to parse the line. */
static enum status judge_line(const char *line, ssize_t n, int64_t last_step, enum line *out,
                              struct err *e) {
    *out = LINE_GARBLED;
    if (n == 0 || line[n - 1] != '\n') return OK;
    json_error_t why;
    json_t *record = NULL;
    enum status st = json_parse(&record, line, (size_t)n, 0, &why);
    if (st == ERR_MEMORY) return FAIL(e, st, "a record of %zd bytes: %s", n, why.text);
    const json_t *step = json_object_get(record, "step");
    if (json_is_object(record))
        *out = !step || json_integer_value(step) <= last_step ? LINE_KEPT : LINE_BEYOND;
    json_decref(record);
    return OK;
}

/* *bytes: the size of the records up to `last_step`; records are in step order. A killed process
 * leaves garbage only at the end: ERR_FORMAT if garbage comes before a record that is kept. */
static enum status measure(FILE *f, const char *name, int64_t last_step, int64_t *bytes,
                           struct err *e) {
    char *line = NULL;
    size_t capacity = 0;
    int64_t at = 0, number = 0, garbled = 0;
    ssize_t n;
    enum line kind = LINE_KEPT;
    enum status st = OK;
    *bytes = 0;
    while (kind != LINE_BEYOND && st == OK && (n = getline(&line, &capacity, f)) > 0) {
        at += n;
        number++;
        st = judge_line(line, n, last_step, &kind, e);
        if (st != OK || kind == LINE_BEYOND) break;
        if (kind == LINE_GARBLED && !garbled) garbled = number;
        if (kind == LINE_GARBLED) continue;
        if (garbled)
            st = FAIL(e, ERR_FORMAT, "%s: line %" PRId64 " is not a record, but whole records "
                      "follow it; correct the line, or delete it to resume without that record",
                      name, garbled);
        *bytes = at;
    }
    /* getline also stops for lack of memory; unread records must not be cut off. */
    if (st == OK && kind != LINE_BEYOND && !feof(f))
        st = FAIL(e, ERR_IO, "read %s: %s", name, strerror(errno));
    free(line);
    return st;
}

static enum status open_to_read(const struct run_dir *dir, int64_t i, char name[PATH_CAP],
                                FILE **f, struct err *e) {
    TRY(path_join(name, dir->path, STREAMS[i].file, e));
    return open_stream_beneath(dir->root, STREAMS[i].file, dir->path, f, e);
}

/* Opens the file of a wide stream. With `cut`, cuts it after its last row that is kept. */
static enum status look_at_rows(const struct run_dir *dir, int64_t i, bool cut, int64_t last_step,
                                struct err *e) {
    char name[PATH_CAP];
    struct row_file f;
    int fd;
    TRY(path_join(name, dir->path, STREAMS[i].file, e));
    TRY(open_file_beneath(dir->root, STREAMS[i].file, cut ? O_RDWR : O_RDONLY, dir->path, &fd,
                          e));
    if (fd < 0) return OK;
    enum status st = row_file_open(fd, name, &f, e);
    if (st == OK && cut) st = row_file_cut(&f, name, last_step, e);
    close(fd);
    return st;
}

/* Cuts a stream after its last record that is kept. */
static enum status cut_back(const struct run_dir *dir, int64_t i, int64_t last_step,
                            struct err *e) {
    char name[PATH_CAP];
    int64_t bytes;
    FILE *f;
    int fd;
    if (is_wide(i)) return look_at_rows(dir, i, true, last_step, e);
    TRY(open_to_read(dir, i, name, &f, e));
    if (!f) return OK;
    enum status st = measure(f, name, last_step, &bytes, e);
    fclose(f);
    TRY(st);
    TRY(open_file_beneath(dir->root, STREAMS[i].file, O_WRONLY, dir->path, &fd, e));
    if (ftruncate(fd, bytes) != 0) st = FAIL(e, ERR_IO, "truncate %s: %s", name, strerror(errno));
    if (fd >= 0) close(fd);
    return st;
}

enum status records_check(const struct run_dir *dir, struct err *e) {
    char name[PATH_CAP];
    int64_t bytes;
    enum status st = OK;
    for (int64_t i = 0; i < STREAM_COUNT && st == OK; i++) {
        FILE *f;
        if (is_wide(i)) {
            st = look_at_rows(dir, i, false, 0, e);
            continue;
        }
        TRY(open_to_read(dir, i, name, &f, e));
        if (!f) continue;
        st = measure(f, name, INT64_MAX, &bytes, e);
        fclose(f);
    }
    return st;
}

enum status records_last_step(const struct run_dir *dir, int64_t *step, struct err *e) {
    char name[PATH_CAP];
    json_t *record = NULL;
    struct jsonl lines;
    struct err torn; /* a killed process leaves garbage at the end */
    FILE *f;
    *step = 0;
    TRY(open_to_read(dir, STREAM_TRAIN, name, &f, e));
    if (!f) return OK;
    jsonl_open(&lines, f, name);
    while (jsonl_next(&lines, &record, &torn) == OK && record) {
        *step = json_int(record, "step");
        json_decref(record);
    }
    jsonl_close(&lines);
    fclose(f);
    return OK;
}

/* ---- open, close ------------------------------------------------------------------------------*/

enum status records_open(const struct run_dir *dir, int64_t last_step, struct records **out,
                         struct err *e) {
    *out = NULL;
    for (int64_t i = 0; i < STREAM_COUNT; i++) TRY(cut_back(dir, i, last_step, e));
    struct records *r = calloc(1, sizeof *r);
    if (!r) return FAIL(e, ERR_MEMORY, "run records");
    r->dir = dir;
    for (int64_t i = 0; i < STREAM_COUNT; i++) r->fd[i] = r->rows[i].fd = -1;
    *out = r;
    return OK;
}

void records_close(struct records *r) {
    if (!r) return;
    for (int64_t i = 0; i < STREAM_COUNT; i++) {
        if (r->rows[i].fd >= 0) close(r->rows[i].fd);
        if (r->fd[i] >= 0) close(r->fd[i]);
    }
    free(r);
}

/* ---- write ------------------------------------------------------------------------------------*/

static enum status open_stream(struct records *r, int64_t i, struct err *e) {
    struct stat info;
    if (r->fd[i] >= 0) return OK;
    TRY(open_file_beneath(r->dir->root, STREAMS[i].file, O_WRONLY | O_APPEND | O_CREAT,
                          r->dir->path, &r->fd[i], e));
    if (fstat(r->fd[i], &info) != 0)
        return FAIL(e, ERR_IO, "stat %s/%s: %s", r->dir->path, STREAMS[i].file, strerror(errno));
    r->size[i] = info.st_size;
    return OK;
}

/* Without this check, a run whose directory was deleted would train on for hours unrecorded. */
static enum status still_there(const struct records *r, int64_t i, int fd, struct err *e) {
    struct stat info;
    if (fstat(fd, &info) != 0 || info.st_nlink > 0) return OK;
    return FAIL(e, ERR_IO, "%s/%s was deleted while the run writes it; the run stops, since it "
                "cannot be recorded", r->dir->path, STREAMS[i].file);
}

static enum status append(struct records *r, int64_t i, const json_t *record, struct err *e) {
    TRY(open_stream(r, i, e));
    char *line = json_dump_text(record, JSON_COMPACT | JSON_SORT_KEYS);
    if (!line) return FAIL(e, ERR_MEMORY, "record of %s", STREAMS[i].file);
    size_t n = strlen(line);
    line[n] = '\n'; /* overwrites the terminating NUL; n is the length */
    enum status st = write_all(r->fd[i], line, n + 1, STREAMS[i].file, e);
    free(line);
    if (st == OK) r->size[i] += (int64_t)n + 1;
    else if (ftruncate(r->fd[i], r->size[i]) != 0)
        err_prefix(e, "and its torn last line remains");
    return st == OK ? still_there(r, i, r->fd[i], e) : st;
}

enum status record_row(const json_t *event, char **out, size_t *n, struct err *e) {
    static const char DIGITS[] = "0123456789abcdef";
    const char *text = json_text(event, "row", "?"), *kind = json_text(event, "event", "");
    size_t digits = strspn(text, DIGITS);
    *out = NULL;
    if (text[digits] || digits % 2 != 0)
        return FAIL(e, ERR_FORMAT, "event %s has no row of hexadecimal digits", kind);
    *n = digits / 2;
    char *row = malloc(*n + 1);
    if (!row) return FAIL(e, ERR_MEMORY, "a row of %zu bytes in event %s", *n, kind);
    for (size_t i = 0; i < *n; i++) {
        const char *high = strchr(DIGITS, text[2 * i]), *low = strchr(DIGITS, text[2 * i + 1]);
        row[i] = (char)((high - DIGITS) << 4 | (low - DIGITS));
    }
    *out = row;
    return OK;
}

static enum status append_row(struct records *r, int64_t i, const json_t *event, struct err *e) {
    const struct stream *s = &STREAMS[i];
    struct row_file *f = &r->rows[i];
    if (f->fd < 0) {
        int fd;
        TRY(open_file_beneath(r->dir->root, s->file, O_RDWR | O_CREAT, r->dir->path, &fd, e));
        enum status st = row_file_open(fd, s->file, f, e);
        f->fd = fd;
        TRY(st);
    }
    size_t n = 0;
    char *row;
    TRY(record_row(event, &row, &n, e));
    enum status st = row_file_append(f, s, row, (int64_t)n, e);
    free(row);
    return st == OK ? still_there(r, i, f->fd, e) : st;
}

bool record_lacks_loss(const json_t *record) {
    const json_t *tokens = json_object_get(record, "loss_tokens");
    return json_is_integer(tokens) && json_integer_value(tokens) == 0;
}

/* The names of the values of a wide stream. */
static enum status put_labels(struct records *r, const struct stream *s, const json_t *event,
                              struct err *e) {
    const json_t *names = json_object_get(event, "names");
    if (!names) return FAIL(e, ERR_FORMAT, "event %s has no names", s->labels_event);
    return run_dir_put(r->dir, s->labels, names, e);
}

enum status records_sync(const struct records *r, struct err *e) {
    for (int64_t i = 0; i < STREAM_COUNT; i++) {
        int fd = is_wide(i) ? r->rows[i].fd : r->fd[i];
        if (fd >= 0 && fdatasync(fd) != 0)
            return FAIL(e, ERR_IO, "sync %s/%s: %s", r->dir->path, STREAMS[i].file,
                        strerror(errno));
    }
    return OK;
}

/* A worker does not know the certificates of its device: run.json has their counts. The reference
 * has none, also where an earlier attempt used a device. */
static enum status put_decisions(const struct records *r, json_t *body, struct err *e) {
    json_t *counts = json_object_get(r->dir->run, "certificates");
    bool on_device = strcmp(json_text(body, "backend", "cpu"), "cpu") != 0;
    if (on_device && counts && json_object_set(body, "certificates", counts) != 0)
        return FAIL(e, ERR_MEMORY, "decisions of a run");
    return run_dir_put(r->dir, DOCUMENT_decisions, body, e);
}

enum status records_put(struct records *r, const json_t *event, struct err *e) {
    const char *kind = json_text(event, "event", "");
    int stream = stream_of_event(kind);
    if (stream >= 0 && is_wide(stream)) return append_row(r, stream, event, e);
    for (int64_t i = 0; i < STREAM_COUNT; i++)
        if (is_wide(i) && !strcmp(kind, STREAMS[i].labels_event))
            return put_labels(r, &STREAMS[i], event, e);
    json_t *body = json_copy((json_t *)event);
    if (!body) return FAIL(e, ERR_MEMORY, "record of event %s", kind);
    (void)json_object_del(body, "event");
    enum status st = stream >= 0 ? append(r, stream, body, e) : OK;
    if (!strcmp(kind, "decisions")) st = put_decisions(r, body, e);
    json_decref(body);
    return st;
}
