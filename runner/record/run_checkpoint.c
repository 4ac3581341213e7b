#include "runner/record/run_checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "model/ground/sha256.h"
#include "runner/base/canonical.h"
#include "runner/record/documents.h"
#include "runner/record/records.h"
#include "runner/record/run_log.h"

#define NOTE "checkpoint of step %" PRId64 ", sha256 %s"

void run_checkpoint_note(const struct run_dir *dir, int64_t step, const char *sha256) {
    run_log(dir, NOTE, step, sha256);
}

struct note {
    int64_t step;
    char sha256[SHA256_HEX];
};

struct notes {
    struct note *note; /* owned; in the log's order */
    int64_t count, capacity;
};

/* Other lines, and damaged ones, are ignored. */
static enum status take_line(struct notes *all, const char *line, struct err *e) {
    const char *text = strstr(line, "Z "); /* after the time, as run_log() writes it */
    struct note found;
    int end = 0;
    if (!text || sscanf(text, "Z checkpoint of step %" SCNd64 ", sha256 %64[0-9a-f]%n", &found.step,
                        found.sha256, &end) != 2)
        return OK;
    if (strcmp(text + end, "\n") != 0 || !sha256_is_hex(found.sha256)) return OK;
    if (all->count == all->capacity) {
        int64_t capacity = all->capacity ? 2 * all->capacity : 64;
        struct note *more = realloc(all->note, (size_t)capacity * sizeof *more);
        if (!more) return FAIL(e, ERR_MEMORY, "%" PRId64 " notes of checkpoints", capacity);
        all->note = more;
        all->capacity = capacity;
    }
    all->note[all->count++] = found;
    return OK;
}

static enum status read_notes(const struct run_dir *dir, struct notes *out, struct err *e) {
    char *line = NULL;
    size_t capacity = 0;
    FILE *f;
    TRY(open_stream_beneath(dir->root, RUN_LOG_FILE, dir->path, &f, e));
    if (!f) return OK;
    enum status st = OK;
    while (st == OK && getline(&line, &capacity, f) > 0) st = take_line(out, line, e);
    if (st == OK && !feof(f)) st = FAIL(e, ERR_IO, "read %s/%s: %s", dir->path, RUN_LOG_FILE,
                                           strerror(errno));
    free(line);
    fclose(f);
    return st;
}

/* The last line of a step counts: a run that resumes from an earlier step saves it again. */
static void look_up(void *user, int64_t step, char sha256[65]) {
    const struct notes *all = user;
    for (int64_t i = all->count - 1; i >= 0; i--) {
        if (all->note[i].step != step) continue;
        memcpy(sha256, all->note[i].sha256, SHA256_HEX);
        return;
    }
}

/* The last step that the run has a record of: at least that of the optimizer it began with. */
static enum status find_recorded(const struct run_dir *dir, int64_t *step, struct err *e) {
    char path[PATH_CAP];
    json_t *init = NULL;
    TRY(records_last_step(dir, step, e));
    TRY(path_join(path, dir->path, DOCUMENT_init, e));
    if (!path_exists(path)) return OK;
    TRY(json_file_read(path, &init, e));
    int64_t begin = json_int(json_object_get(init, "optimizer"), "step");
    json_decref(init);
    if (begin > *step) *step = begin;
    return OK;
}

enum status run_checkpoint_latest(const struct run_dir *dir, struct checkpoint_info *out,
                                  struct err *e) {
    char path[PATH_CAP];
    struct notes notes = { 0 };
    struct checkpoint_log log = { .look_up = look_up, .user = &notes };
    *out = (struct checkpoint_info){ .step = -1 };
    TRY(path_join(path, dir->path, RUN_PATH_checkpoints, e));
    TRY(find_recorded(dir, &log.recorded, e));
    enum status st = read_notes(dir, &notes, e);
    if (st == OK && path_is_directory(path)) st = checkpoint_latest(path, &log, out, e);
    if (out->step < 0) out->step = 0;
    free(notes.note);
    return st;
}
