#include "runner/bundle/run_notes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/bundle/run_view.h"

static const char SCHEMA[] = "fp8lab.notes/1";
enum { FILE_MAX = 64 << 10 };

enum status run_notes_path(char out[PATH_CAP], const char *path, struct err *e) {
    char stem[PATH_CAP];
    run_stem(stem, path);
    int wrote = snprintf(out, PATH_CAP, "%s.notes.json", stem);
    return wrote > 0 && wrote < PATH_CAP ? OK : FAIL(e, ERR_ARG, "path too long: %.200s", path);
}

/* ---- reading: the folder may be someone else's ----------------------------------------------- */

/* The bytes of a regular file; *out NULL: there is none. */
static enum status read_small(const char *path, char **out, size_t *size, struct err *e) {
    struct stat info;
    *out = NULL;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return OK;
    if (fd < 0) return FAIL(e, ERR_FORMAT, "%s: %s", path, strerror(errno));
    enum status st = OK;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > FILE_MAX)
        st = FAIL(e, ERR_FORMAT, "%s is not a file of at most %d bytes", path, FILE_MAX);
    if (st == OK) st = file_read_open(fd, path, FILE_MAX, out, size, e);
    close(fd);
    return st;
}

static bool is_tag(const char *tag) {
    static const char LETTERS[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t n = strlen(tag);
    return n > 0 && n <= RUN_TAG_MAX && strspn(tag, LETTERS) == n;
}

static bool is_notes(const json_t *o) {
    const json_t *tags = json_object_get(o, "tags"), *note = json_object_get(o, "note"), *tag;
    size_t i;
    if (strcmp(json_text(o, "schema", ""), SCHEMA) != 0 || !json_is_array(tags) ||
        json_array_size(tags) > RUN_TAGS_MAX || !(json_is_string(note) || json_is_null(note)))
        return false;
    json_array_foreach(tags, i, tag)
        if (!json_is_string(tag) || !is_tag(json_string_value(tag))) return false;
    return true;
}

enum status run_notes_read(const char *path, json_t **out, struct err *e) {
    char file[PATH_CAP], *text = NULL;
    size_t n = 0;
    json_error_t why;
    *out = NULL;
    TRY(run_notes_path(file, path, e));
    TRY(read_small(file, &text, &n, e));
    if (!text) {
        *out = json_pack("{s:s, s:[], s:n}", "schema", SCHEMA, "tags", "note");
        return *out ? OK : FAIL(e, ERR_MEMORY, "%s", file);
    }
    enum status st = json_parse(out, text, n, JSON_REJECT_DUPLICATES, &why);
    free(text);
    if (st == ERR_MEMORY) return FAIL(e, st, "%s", file);
    if (st == OK && is_notes(*out)) return OK;
    json_decref(*out);
    *out = NULL;
    return FAIL(e, ERR_FORMAT, "%s does not hold tags and a note (schema %s); remove it to "
                "start over", file, SCHEMA);
}

enum status run_notes_lock(const char *path, int *fd, struct err *e) {
    int rc;
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0) return FAIL(e, ERR_IO, "open %s: %s", path, strerror(errno));
    do rc = flock(*fd, LOCK_EX);
    while (rc != 0 && errno == EINTR);
    return OK;
}

enum status run_notes_write(const char *path, const json_t *notes, struct err *e) {
    char file[PATH_CAP];
    TRY(run_notes_path(file, path, e));
    if (json_array_size(json_object_get(notes, "tags")) ||
        json_is_string(json_object_get(notes, "note")))
        return json_file_write(file, notes, e);
    if (unlink(file) == 0 || errno == ENOENT) return OK;
    return FAIL(e, ERR_IO, "remove %s: %s", file, strerror(errno));
}

/* ---- tags ------------------------------------------------------------------------------------ */

/* The place of the tag, or of the first one after it. */
static size_t place_of(const json_t *tags, const char *tag) {
    size_t i = 0;
    while (i < json_array_size(tags) &&
           strcmp(json_string_value(json_array_get(tags, i)), tag) < 0)
        i++;
    return i;
}

bool run_notes_have(const json_t *notes, const char *tag) {
    const json_t *tags = json_object_get(notes, "tags");
    const json_t *found = json_array_get(tags, place_of(tags, tag));
    return found && !strcmp(json_string_value(found), tag);
}

enum status run_notes_add(json_t *notes, const char *tag, struct err *e) {
    json_t *tags = json_object_get(notes, "tags");
    if (!is_tag(tag))
        return FAIL(e, ERR_ARG, "'%.60s' is not a tag: a tag has 1 to %d of A-Z a-z 0-9 . _ -", tag,
                    RUN_TAG_MAX);
    if (run_notes_have(notes, tag)) return OK;
    if (json_array_size(tags) >= RUN_TAGS_MAX)
        return FAIL(e, ERR_ARG, "the run has %d tags, and that is the limit", RUN_TAGS_MAX);
    if (json_array_insert_new(tags, place_of(tags, tag), json_string(tag)) != 0)
        return FAIL(e, ERR_MEMORY, "a tag");
    return OK;
}

enum status run_notes_remove(json_t *notes, const char *tag, struct err *e) {
    json_t *tags = json_object_get(notes, "tags");
    if (!run_notes_have(notes, tag))
        return FAIL(e, ERR_ARG, "the run does not have the tag '%.60s'", tag);
    json_array_remove(tags, place_of(tags, tag));
    return OK;
}

char *run_notes_tags(const json_t *notes) {
    struct text text = { 0 };
    const json_t *tag;
    size_t i;
    text_puts(&text, "");
    json_array_foreach(json_object_get(notes, "tags"), i, tag) {
        if (i) text_puts(&text, ", ");
        text_puts(&text, json_string_value(tag));
    }
    if (text.failed) text_free(&text);
    return text.bytes ? text.bytes : strdup("");
}
