#include "runner/bundle/format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runner/base/jsonl.h"
#include "runner/base/run_files.h"
#include "runner/bundle/columns.h"
#include "runner/record/row_file.h"

enum status bundle_format_of(const json_t *run, int64_t *format, struct err *e) {
    const json_t *stated = json_object_get(run, "bundle_format");
    *format = stated ? json_integer_value(stated) : 1;
    if (*format >= 1 && *format <= BUNDLE_FORMAT) return OK;
    return FAIL(e, ERR_FORMAT, "run.json says bundle_format %lld, and this program reads formats 1 "
                "to %d: use a newer fp8lab", (long long)*format, BUNDLE_FORMAT);
}

struct stream_file stream_file_of(const char *path) {
    struct stream_file out = { .stream = stream_of_file(path) };
    for (int i = 0; out.stream < 0 && i < STREAM_COUNT; i++)
        if (strcmp(path, STREAMS[i].old_columns) == 0)
            out = (struct stream_file){ .stream = i, .columns = true };
    return out;
}

bool stream_is_damaged(const json_t *summary, const char *file) {
    size_t i, n = strlen(file);
    const json_t *problem;
    json_array_foreach(json_object_get(summary, "problems"), i, problem) {
        const char *text = json_string_value(problem);
        if (text && strncmp(text, file, n) == 0 && text[n] == ' ') return true;
    }
    return false;
}

/* ---- from format 1 -------------------------------------------------------------------------- */

static uint64_t bits_of(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* One record of format 1: a row of columns, or a line. */
struct old_record {
    const struct columns *columns;
    int64_t row;
    const json_t *line; /* NULL: the row counts */
};

/* The number of values that a record has for a metric; 0: it lacks the metric. */
static int64_t width_in(const struct old_record *o, const struct metric *m) {
    const json_t *value = json_object_get(o->line, m->name);
    const struct column *c = o->line ? NULL : columns_find(o->columns, m->name);
    if (!o->line) return c ? c->width : 0;
    return json_is_array(value) ? (int64_t)json_array_size(value) : value ? 1 : 0;
}

static uint64_t value_in(const struct old_record *o, const struct metric *m, int64_t label) {
    if (width_in(o, m) == 0) return UINT64_MAX;
    if (!o->line) {
        const struct column *c = columns_find(o->columns, m->name);
        return m->type == COLUMN_F64 ? bits_of(column_value(c, o->row, label))
                                     : column_bits(c, o->row, label);
    }
    const json_t *value = json_object_get(o->line, m->name);
    if (json_is_array(value)) value = json_array_get(value, (size_t)label);
    if (json_is_string(value)) return strtoull(json_string_value(value), NULL, 16);
    if (!json_is_number(value)) return UINT64_MAX;
    return m->type == COLUMN_F64 ? bits_of(json_number_value(value))
                                 : (uint64_t)json_integer_value(value);
}

static enum status append(struct row_file *f, const struct stream *s, const struct old_record *o,
                          struct err *e) {
    struct npy layout;
    int64_t width = 0;
    for (int64_t i = 0; i < s->metric_count; i++) {
        int64_t n = width_in(o, &s->metric[i]);
        if (!s->metric[i].wide || n == 0) continue;
        if (width && n != width)
            return FAIL(e, ERR_FORMAT, "%s: %s has %lld values, and other metrics have %lld",
                        s->name, s->metric[i].name, (long long)n, (long long)width);
        width = n;
    }
    if (width == 0) return FAIL(e, ERR_FORMAT, "%s: a record without values", s->name);
    npy_layout(s, width, &layout);
    char *row = malloc((size_t)layout.row_bytes);
    if (!row) return FAIL(e, ERR_MEMORY, "%lld bytes for a row", (long long)layout.row_bytes);
    for (int64_t i = 0; i < layout.count; i++) {
        int64_t bytes = column_type_bytes(layout.column[i].type);
        for (int64_t k = 0; k < layout.column[i].width; k++) {
            uint64_t bits = value_in(o, &s->metric[i], k);
            memcpy(row + layout.column[i].offset + k * bytes, &bits, (size_t)bytes);
        }
    }
    enum status st = row_file_append(f, s, row, layout.row_bytes, e);
    free(row);
    return st;
}

static enum status open_columns(const char *path, struct columns **out, struct err *e) {
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return FAIL(e, ERR_IO, "open %s: %s", path, strerror(errno));
    enum status st = fstat(fd, &info) == 0
                         ? columns_map(fd, 0, info.st_size, path, out, e)
                         : FAIL(e, ERR_IO, "stat %s: %s", path, strerror(errno));
    close(fd);
    return st;
}

static enum status copy_columns(struct row_file *f, const struct stream *s, const char *path,
                                struct err *e) {
    struct columns *c = NULL;
    TRY(open_columns(path, &c, e));
    enum status st = OK;
    for (int64_t i = 0; st == OK && i < c->rows; i++)
        st = append(f, s, &(struct old_record){ .columns = c, .row = i }, e);
    columns_destroy(c);
    return st;
}

static enum status copy_lines(struct row_file *f, const struct stream *s, const char *path,
                              struct err *e) {
    struct jsonl lines;
    json_t *line = NULL;
    FILE *in = fopen(path, "re");
    if (!in) return FAIL(e, ERR_IO, "open %s: %s", path, strerror(errno));
    jsonl_open(&lines, in, path);
    enum status st;
    while ((st = jsonl_next(&lines, &line, e)) == OK && line) {
        st = append(f, s, &(struct old_record){ .line = line }, e);
        json_decref(line);
        if (st != OK) err_prefix(e, "%s:%lld", path, (long long)lines.number);
        if (st != OK) break;
    }
    jsonl_close(&lines);
    fclose(in);
    return st;
}

/* Writes `to` from an old file, whole or not at all. With `columns`, the old file is a .cols file
 * or an array. */
static enum status copy_stream(const struct stream *s, const char *from, bool columns,
                               const char *to, struct err *e) {
    char partial[PATH_CAP + 16];
    struct row_file f = { 0 };
    snprintf(partial, sizeof partial, "%s.partial", to);
    f.fd = open(partial, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (f.fd < 0) return FAIL(e, ERR_IO, "open %s: %s", partial, strerror(errno));
    enum status st = columns ? copy_columns(&f, s, from, e) : copy_lines(&f, s, from, e);
    if (st == OK) st = row_file_cut(&f, partial, INT64_MAX, e);
    if (st == OK && fsync(f.fd) != 0)
        st = FAIL(e, ERR_IO, "fsync %s: %s", partial, strerror(errno));
    close(f.fd);
    if (st == OK && f.size == 0) { /* no record */
        (void)unlink(partial);
        return OK;
    }
    if (st == OK && rename(partial, to) != 0)
        st = FAIL(e, ERR_IO, "rename to %s: %s", to, strerror(errno));
    if (st != OK) (void)unlink(partial);
    return st;
}

static enum status upgrade_stream(const char *run_dir, const struct stream *s, struct err *e) {
    char columns[PATH_CAP], lines[PATH_CAP], to[PATH_CAP];
    TRY(path_join(columns, run_dir, s->old_columns, e));
    TRY(path_join(lines, run_dir, s->old_lines, e));
    TRY(path_join(to, run_dir, s->file, e));
    bool from_columns = path_exists(columns);
    if (!path_exists(to) && (from_columns || path_exists(lines)))
        TRY(copy_stream(s, from_columns ? columns : lines, from_columns, to, e));
    TRY(tree_remove(columns, e));
    return tree_remove(lines, e);
}

enum status format_upgrade(const char *run_dir, struct err *e) {
    char folder[PATH_CAP];
    for (int i = 0; i < STREAM_COUNT; i++)
        if (STREAMS[i].labels) TRY(upgrade_stream(run_dir, &STREAMS[i], e));
    TRY(path_join(folder, run_dir, "data/fp8", e));
    (void)rmdir(folder); /* of format 1; removed if it is empty now */
    return OK;
}

enum status format_drop_columns(const char *run_dir, int stream, struct err *e) {
    char lines[PATH_CAP], columns[PATH_CAP];
    TRY(path_join(lines, run_dir, STREAMS[stream].file, e));
    TRY(path_join(columns, run_dir, STREAMS[stream].old_columns, e));
    return path_exists(lines) ? tree_remove(columns, e) : OK;
}

/* ---- continuing ----------------------------------------------------------------------------- */

/* Whether an array has other metrics than the table of streams. */
static enum status has_other_metrics(const char *path, const struct stream *s, bool *other,
                                     struct err *e) {
    struct row_file f = { 0 };
    struct npy now;
    *other = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT) return OK;
    if (fd < 0) return FAIL(e, ERR_IO, "open %s: %s", path, strerror(errno));
    enum status st = row_file_open(fd, path, &f, e);
    close(fd);
    if (st != OK || !f.layout.row_bytes) return st;
    npy_layout(s, f.layout.column[f.layout.count - 1].width, &now);
    *other = now.count != f.layout.count;
    for (int64_t i = 0; !*other && i < now.count; i++) {
        const struct npy_column *a = &now.column[i], *b = &f.layout.column[i];
        *other = strcmp(a->name, b->name) != 0 || a->type != b->type || a->width != b->width;
    }
    return OK;
}

enum status format_continue(const char *run_dir, struct err *e) {
    char path[PATH_CAP];
    TRY(format_upgrade(run_dir, e));
    for (int i = 0; i < STREAM_COUNT; i++) {
        bool other = false;
        TRY(format_drop_columns(run_dir, i, e));
        if (!STREAMS[i].labels) continue;
        TRY(path_join(path, run_dir, STREAMS[i].file, e));
        TRY(has_other_metrics(path, &STREAMS[i], &other, e));
        if (other) TRY(copy_stream(&STREAMS[i], path, true, path, e));
    }
    return OK;
}
