#include "runner/run/records.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/json_safe.h"
#include "runner/base/run_files.h"
#include "runner/worker/events.h"

static const struct { const char *event, *file; } STREAMS[] = {
    { "step", "data/metrics/train.jsonl" },
    { "eval", "data/metrics/eval.jsonl" },
    { "fp8", "data/metrics/fp8.jsonl" },
    { "trace", "data/metrics/trace.jsonl" },
    { "telemetry", "data/metrics/telemetry.jsonl" },
    { "ranks", "data/metrics/ranks.jsonl" },
};
enum { STREAM_COUNT = sizeof STREAMS / sizeof *STREAMS };

/* Events that come once an attempt: member `key` (NULL: all but "event") becomes the file. */
static const struct { const char *event, *key, *file; } DOCUMENTS[] = {
    { "slots", "names", "data/metrics/fp8_slots.json" },
    { "tensors", "names", "data/metrics/trace_tensors.json" },
    { "decisions", NULL, "data/decisions.json" },
};
enum { DOCUMENT_COUNT = sizeof DOCUMENTS / sizeof *DOCUMENTS };

struct records {
    char run_path[PATH_CAP];
    int fd[STREAM_COUNT]; /* -1 until its first record */
    int64_t size[STREAM_COUNT];
};

/* ---- cutting back -----------------------------------------------------------------------------*/

/* *keep: whether the line is a whole record of a step up to `last_step` (or of none, as
 * telemetry's). ERR_MEMORY: nobody knows. */
static enum status keep_line(const char *line, ssize_t n, int64_t last_step, bool *keep,
                             struct err *e) {
    *keep = false;
    if (n == 0 || line[n - 1] != '\n') return OK;
    json_error_t why;
    json_t *record = NULL;
    enum status st = json_parse(&record, line, (size_t)n, 0, &why);
    if (st == ERR_MEMORY) return FAIL(e, st, "a record of %zd bytes: %s", n, why.text);
    const json_t *step = json_object_get(record, "step");
    *keep = json_is_object(record) && (!step || json_integer_value(step) <= last_step);
    json_decref(record);
    return OK;
}

/* Cuts the file before its first record that is not kept; records stand in step order. */
static enum status cut_back(const char *path, int64_t last_step, struct err *e) {
    FILE *f = fopen(path, "re");
    if (!f) return errno == ENOENT ? OK : FAIL(e, ERR_IO, "open %s: %s", path, strerror(errno));
    char *line = NULL;
    size_t capacity = 0;
    int64_t bytes = 0;
    ssize_t n;
    bool keep = true;
    enum status st = OK;
    while (keep && st == OK && (n = getline(&line, &capacity, f)) > 0) {
        st = keep_line(line, n, last_step, &keep, e);
        if (st == OK && keep) bytes += n;
    }
    /* An unread record is not one to cut away: getline also ends for want of memory. */
    if (st == OK && keep && !feof(f)) st = FAIL(e, ERR_IO, "read %s: %s", path, strerror(errno));
    free(line);
    fclose(f);
    if (st == OK && truncate(path, bytes) != 0)
        st = FAIL(e, ERR_IO, "truncate %s: %s", path, strerror(errno));
    return st;
}

/* ---- open, close ------------------------------------------------------------------------------*/

enum status records_open(const char *run_path, int64_t last_step, struct records **out,
                         struct err *e) {
    *out = NULL;
    char path[PATH_CAP];
    for (int64_t i = 0; i < STREAM_COUNT; i++) {
        TRY(path_join(path, run_path, STREAMS[i].file, e));
        TRY(cut_back(path, last_step, e));
    }
    struct records *r = calloc(1, sizeof *r);
    if (!r) return FAIL(e, ERR_MEMORY, "run records");
    snprintf(r->run_path, sizeof r->run_path, "%s", run_path);
    for (int64_t i = 0; i < STREAM_COUNT; i++) r->fd[i] = -1;
    *out = r;
    return OK;
}

void records_close(struct records *r) {
    if (!r) return;
    for (int64_t i = 0; i < STREAM_COUNT; i++)
        if (r->fd[i] >= 0) close(r->fd[i]);
    free(r);
}

/* ---- filing -----------------------------------------------------------------------------------*/

static enum status open_stream(struct records *r, int64_t i, struct err *e) {
    if (r->fd[i] >= 0) return OK;
    char path[PATH_CAP];
    TRY(path_join(path, r->run_path, STREAMS[i].file, e));
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0) {
        int why = errno;
        if (fd >= 0) close(fd);
        return FAIL(e, ERR_IO, "open %s: %s", path, strerror(why));
    }
    r->fd[i] = fd;
    r->size[i] = info.st_size;
    return OK;
}

/* Else a run whose directory somebody removes would go on for hours, writing into nothing. */
static enum status still_there(const struct records *r, int64_t i, struct err *e) {
    struct stat info;
    if (fstat(r->fd[i], &info) != 0 || info.st_nlink > 0) return OK;
    return FAIL(e, ERR_IO, "%s/%s was removed while the run writes it; the run cannot be recorded "
                "and stops", r->run_path, STREAMS[i].file);
}

static enum status append(struct records *r, int64_t i, const json_t *record, struct err *e) {
    TRY(open_stream(r, i, e));
    char *line = json_dump_text(record, JSON_COMPACT | JSON_SORT_KEYS);
    if (!line) return FAIL(e, ERR_MEMORY, "record of %s", STREAMS[i].file);
    size_t n = strlen(line);
    line[n] = '\n'; /* the terminating NUL gives way: the length is known */
    enum status st = write_all(r->fd[i], line, n + 1, STREAMS[i].file, e);
    free(line);
    if (st == OK) r->size[i] += (int64_t)n + 1;
    else if (ftruncate(r->fd[i], r->size[i]) != 0)
        err_prefix(e, "and its torn last line stays");
    return st == OK ? still_there(r, i, e) : st;
}

static enum status put_document(struct records *r, int64_t i, json_t *event, struct err *e) {
    char path[PATH_CAP];
    TRY(path_join(path, r->run_path, DOCUMENTS[i].file, e));
    const json_t *value = DOCUMENTS[i].key ? json_object_get(event, DOCUMENTS[i].key) : event;
    if (!value)
        return FAIL(e, ERR_FORMAT, "event %s has no %s", DOCUMENTS[i].event, DOCUMENTS[i].key);
    return json_file_write(path, value, e);
}

enum status records_put(struct records *r, const json_t *event, struct err *e) {
    const char *kind = json_text(event, "event", "");
    json_t *body = json_copy((json_t *)event);
    if (!body) return FAIL(e, ERR_MEMORY, "record of event %s", kind);
    (void)json_object_del(body, "event");
    enum status st = OK;
    for (int64_t i = 0; i < STREAM_COUNT; i++)
        if (!strcmp(kind, STREAMS[i].event)) st = append(r, i, body, e);
    for (int64_t i = 0; i < DOCUMENT_COUNT; i++)
        if (!strcmp(kind, DOCUMENTS[i].event)) st = put_document(r, i, body, e);
    json_decref(body);
    return st;
}
