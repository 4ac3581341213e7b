#include "runner/live/live_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/f32_bits.h"
#include "model/ground/json_safe.h"
#include "runner/record/documents.h"
#include "runner/record/npy.h"
#include "runner/record/run_log.h"

/* A record of these streams has a few hundred bytes. */
enum { CHUNK = 256 << 10 };

enum status live_reader_open(struct live_reader *r, const char *path, struct err *e) {
    *r = (struct live_reader){ .first = true };
    if (snprintf(r->path, sizeof r->path, "%s", path) >= (int)sizeof r->path)
        return FAIL(e, ERR_ARG, "the path of a run has more than %d bytes", PATH_CAP - 1);
    live_begin(&r->live);
    r->buffer = malloc(CHUNK);
    return r->buffer ? OK : FAIL(e, ERR_MEMORY, "%d bytes to read a run", CHUNK);
}

void live_reader_close(struct live_reader *r) {
    free(r->buffer);
    for (int i = 0; i < LIVE_WIDE_COUNT; i++) json_decref(r->wide[i].labels);
    memset(r->wide, 0, sizeof r->wide);
    r->buffer = NULL;
}

/* Forgets what was read. */
static void begin_again(struct live_reader *r) {
    live_begin(&r->live);
    memset(r->at, 0, sizeof r->at);
    r->run = r->resolved = r->decisions = r->suite = r->log = (struct live_stamp){ 0 };
    for (int i = 0; i < LIVE_WIDE_COUNT; i++) r->wide[i].stamp = (struct live_stamp){ 0 };
    r->damaged = 0;
    r->reread = false;
    r->first = true;
}

static struct live_stamp stamp_of(const struct stat *info) {
    return (struct live_stamp){
        .inode = (int64_t)info->st_ino, .bytes = info->st_size,
        .changed_ns = (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec,
    };
}

static bool is_same(const struct live_stamp *a, const struct live_stamp *b) {
    return a->inode == b->inode && a->bytes == b->bytes && a->changed_ns == b->changed_ns;
}

/* ---- JSON files ------------------------------------------------------------------------------ */

/* *out = a JSON file that changed since `last`; NULL: it did not, or it is not there yet. */
static enum status read_changed(const struct live_reader *r, int root, const char *file,
                                struct live_stamp *last, json_t **out, struct err *e) {
    struct stat info;
    int fd;
    *out = NULL;
    TRY(open_file_beneath(root, file, O_RDONLY, r->path, &fd, e));
    if (fd < 0) return OK;
    bool known = fstat(fd, &info) == 0;
    close(fd);
    if (!known) return FAIL(e, ERR_IO, "stat %s/%s: %s", r->path, file, strerror(errno));
    struct live_stamp now = stamp_of(&info);
    if (is_same(&now, last)) return OK;
    TRY(json_read_beneath(root, file, r->path, out, e));
    *last = now;
    return OK;
}

/* run.json. Another attempt means that the records were cut back to its checkpoint. */
static enum status read_run(struct live_reader *r, int root, struct err *e) {
    char before[sizeof r->live.attempt];
    json_t *run;
    memcpy(before, r->live.attempt, sizeof before);
    TRY(read_changed(r, root, DOCUMENT_run, &r->run, &run, e));
    if (!run && !r->run.inode)
        return FAIL(e, ERR_ARG, "%s is not a run: it has no %s", r->path, DOCUMENT_run);
    if (!run) return OK;
    bool whole = json_text(run, "status", NULL) != NULL;
    if (whole) live_take_run(&r->live, run);
    json_decref(run);
    if (!whole)
        return FAIL(e, ERR_FORMAT, "%s/%s is not the record of a run: it lacks \"status\"", r->path,
                    DOCUMENT_run);
    if (!r->first && strcmp(before, r->live.attempt) != 0) r->reread = true;
    return OK;
}

static enum status read_documents(struct live_reader *r, int root, struct err *e) {
    const struct {
        const char *file;
        struct live_stamp *last;
        void (*take)(struct live *l, const json_t *document);
    } DOCUMENTS_READ[] = {
        { DOCUMENT_resolved, &r->resolved, live_take_resolved },
        { DOCUMENT_decisions, &r->decisions, live_take_decisions },
        { RUN_PATH_suite, &r->suite, live_take_suite },
    };
    for (size_t i = 0; i < sizeof DOCUMENTS_READ / sizeof *DOCUMENTS_READ; i++) {
        json_t *found;
        TRY(read_changed(r, root, DOCUMENTS_READ[i].file, DOCUMENTS_READ[i].last, &found, e));
        if (found) DOCUMENTS_READ[i].take(&r->live, found);
        json_decref(found);
    }
    return OK;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Takes the whole lines of n bytes; *taken: how many bytes those have. A line that is no record
 * means that the file was cut back and grew again, so that we read on in the middle of a line. If
 * we read from the beginning, the line itself is damaged. */
static enum status take_lines(struct live_reader *r, enum stream_id stream, size_t n,
                              size_t *taken, struct err *e) {
    const char *from = r->buffer, *end;
    while ((end = memchr(from, '\n', (size_t)(r->buffer + n - from)))) {
        json_t *record = NULL;
        json_error_t why;
        enum status st = json_parse(&record, from, (size_t)(end - from), 0, &why);
        if (st == ERR_MEMORY) return FAIL(e, st, "a record of %s", STREAMS[stream].file);
        if (st == OK && json_is_object(record)) live_take_json(&r->live, stream, record);
        else if (r->first) r->damaged++;
        else r->reread = true;
        json_decref(record);
        from = end + 1;
    }
    *taken = (size_t)(from - r->buffer);
    return OK;
}

static enum status read_lines(struct live_reader *r, int root, enum stream_id stream,
                              struct err *e) {
    const char *file = STREAMS[stream].file;
    struct stat info;
    enum status st = OK;
    int fd;
    TRY(open_file_beneath(root, file, O_RDONLY, r->path, &fd, e));
    if (fd < 0) {
        r->reread = r->reread || r->at[stream] > 0;
        return OK;
    }
    if (fstat(fd, &info) != 0)
        st = FAIL(e, ERR_IO, "stat %s/%s: %s", r->path, file, strerror(errno));
    bool other = r->at[stream] > 0 && (int64_t)info.st_ino != r->inode[stream];
    if (st == OK && (other || info.st_size < r->at[stream])) r->reread = true;
    r->inode[stream] = (int64_t)info.st_ino;
    while (st == OK && !r->reread && r->at[stream] < info.st_size) {
        ssize_t n = pread(fd, r->buffer, CHUNK, r->at[stream]);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) st = FAIL(e, ERR_IO, "read %s/%s: %s", r->path, file, strerror(errno));
        if (n <= 0) break;
        size_t taken = 0;
        st = take_lines(r, stream, (size_t)n, &taken, e);
        if (st != OK || (!taken && n < CHUNK)) break; /* or the last line is not whole yet */
        r->at[stream] += taken ? (int64_t)taken : n; /* a line of this length is no record */
    }
    close(fd);
    return st;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static const struct {
    enum stream_id stream;
    const char *metric; /* without which a row is not taken */
    void (*take)(struct live *l, int64_t step, const struct live_shares *s);
} WIDE[LIVE_WIDE_COUNT] = {
    { STREAM_FP8, "saturated", live_take_fp8 },
    { STREAM_EVAL_SETS, "loss", live_take_sets },
};

struct row { const struct npy *layout; const char *bytes; const json_t *labels; };

static const struct npy_column *column_of(const struct npy *layout, const char *name) {
    for (int64_t i = 0; i < layout->count; i++)
        if (!strcmp(layout->column[i].name, name)) return &layout->column[i];
    return NULL;
}

static double share_of_row(const void *source, const char *metric, int64_t label) {
    const struct row *row = source;
    const struct npy_column *c = column_of(row->layout, metric);
    double value = (double)NAN;
    uint32_t bits;
    if (c && c->type == COLUMN_F64 && label < c->width)
        memcpy(&value, row->bytes + c->offset + label * (int64_t)sizeof value, sizeof value);
    if (!c || c->type != COLUMN_U32 || label >= c->width) return value;
    memcpy(&bits, row->bytes + c->offset + label * (int64_t)sizeof bits, sizeof bits);
    return (double)f32_from_bits(bits);
}

static const char *label_of_row(const void *source, int64_t label) {
    const struct row *row = source;
    return json_string_value(json_array_get(row->labels, (size_t)label));
}

/* The last row that the header counts is whole: it is counted after it was written. */
static enum status take_row(struct live_reader *r, int i, int fd, const struct npy *layout,
                            struct err *e) {
    struct row row = { .layout = layout, .labels = r->wide[i].labels };
    const struct npy_column *step = column_of(layout, "step");
    const struct npy_column *share = column_of(layout, WIDE[i].metric);
    if (!step || step->type != COLUMN_I64 || !share || layout->rows < 1) return OK;
    char *bytes = malloc((size_t)layout->row_bytes);
    if (!bytes)
        return FAIL(e, ERR_MEMORY, "%lld bytes of a row", (long long)layout->row_bytes);
    int64_t at = layout->header_bytes + (layout->rows - 1) * layout->row_bytes, number;
    if (pread(fd, bytes, (size_t)layout->row_bytes, at) == layout->row_bytes) {
        memcpy(&number, bytes + step->offset, sizeof number);
        row.bytes = bytes;
        struct live_shares shares = { .share = share_of_row, .label = label_of_row,
                                      .source = &row, .width = share->width };
        WIDE[i].take(&r->live, number, &shares);
    }
    free(bytes);
    return OK;
}

static enum status read_wide(struct live_reader *r, int i, int root, struct err *e) {
    const struct stream *s = &STREAMS[WIDE[i].stream];
    struct live_wide *w = &r->wide[i];
    char header[NPY_HEADER_MAX], name[PATH_CAP];
    struct stat info;
    struct npy layout;
    int fd;
    TRY(open_file_beneath(root, s->file, O_RDONLY, r->path, &fd, e));
    if (fd < 0) return OK;
    struct live_stamp now = { 0 };
    if (fstat(fd, &info) == 0) now = stamp_of(&info);
    ssize_t n = is_same(&now, &w->stamp) ? 0 : pread(fd, header, sizeof header, 0);
    enum status st = OK;
    if (n > 0 && !npy_is_torn(header, (size_t)n)) {
        w->stamp = now;
        st = path_join(name, r->path, s->file, e);
        if (st == OK) st = npy_parse(header, (size_t)n, name, &layout, e);
        struct live_stamp never = { 0 };
        if (st == OK && !w->labels)
            st = read_changed(r, root, s->labels, &never, &w->labels, e);
        if (st == OK) st = take_row(r, i, fd, &layout, e);
    }
    close(fd);
    return st;
}

/* ---- the log --------------------------------------------------------------------------------- */

/* Takes the last whole line of the run's log. */
static enum status read_log(struct live_reader *r, int root, struct err *e) {
    enum { TAIL = 4096 };
    struct stat info;
    int fd;
    TRY(open_file_beneath(root, RUN_LOG_FILE, O_RDONLY, r->path, &fd, e));
    if (fd < 0) return OK;
    struct live_stamp now = { 0 };
    if (fstat(fd, &info) == 0) now = stamp_of(&info);
    ssize_t n = 0;
    if (!is_same(&now, &r->log))
        n = pread(fd, r->buffer, TAIL, now.bytes > TAIL ? now.bytes - TAIL : 0);
    close(fd);
    while (n > 0 && r->buffer[n - 1] != '\n') n--; /* a line that is half written */
    if (n < 1) return OK;
    r->log = now;
    r->buffer[n - 1] = '\0';
    const char *before = memrchr(r->buffer, '\n', (size_t)n);
    live_take_event(&r->live, before ? before + 1 : r->buffer);
    return OK;
}

/* ---- a poll ---------------------------------------------------------------------------------- */

static enum status read_all(struct live_reader *r, int root, struct err *e) {
    if (r->reread) return OK;
    TRY(read_run(r, root, e));
    TRY(read_documents(r, root, e));
    for (int i = 0; i < LIVE_STREAM_COUNT && !r->reread; i++)
        TRY(read_lines(r, root, LIVE_STREAMS[i], e));
    if (r->reread) return OK;
    for (int i = 0; i < LIVE_WIDE_COUNT; i++) TRY(read_wide(r, i, root, e));
    return read_log(r, root, e);
}

enum status live_reader_poll(struct live_reader *r, struct err *e) {
    /* Before the files: what a run that is over wrote last is then read, too. */
    if (!r->own) r->live.life = run_lock_look(r->path, &r->live.writer);
    int root = open(r->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0 && (errno == ENOENT || errno == ESTALE)) {
        r->gone = true;
        return OK;
    }
    if (root < 0 && errno == ENOTDIR) return FAIL(e, ERR_ARG, "%s is not a run", r->path);
    if (root < 0) return FAIL(e, ERR_IO, "open %s: %s", r->path, strerror(errno));
    enum status st = read_all(r, root, e);
    if (st == OK && r->reread) {
        enum run_life life = r->live.life;
        struct run_writer writer = r->live.writer;
        begin_again(r);
        r->live.life = life;
        r->live.writer = writer;
        st = read_all(r, root, e);
    }
    close(root);
    r->first = false;
    r->reread = st == ERR_MEMORY; /* a part of the lines was taken */
    struct stat info;
    if (st != OK && stat(r->path, &info) != 0 && errno == ENOENT) { /* removed while we read */
        r->gone = true;
        return OK;
    }
    return st;
}
