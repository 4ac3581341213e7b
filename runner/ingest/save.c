#include "runner/ingest/save.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/run_files.h"

/* The hash of a state without its member "sha256". */
static enum status hash_state(const json_t *state, char hex[SHA256_HEX], struct err *e) {
    json_t *rest = json_copy((json_t *)state);
    char *bytes = NULL;
    size_t n = 0;
    if (!rest) return FAIL(e, ERR_MEMORY, "memory for the progress of the ingestion");
    (void)json_object_del(rest, "sha256");
    enum status st = json_canonical(rest, &bytes, &n, e);
    if (st == OK) st = sha256_bytes(bytes, n, hex, e);
    free(bytes);
    json_decref(rest);
    return st;
}

enum status save_read(struct save *s, json_t **out, bool *damaged, struct err *e) {
    json_t *state = NULL;
    char hex[SHA256_HEX] = "";
    *out = NULL;
    *damaged = false;
    if (!path_exists(s->path)) return OK;
    s->exists = true;
    enum status st = json_file_read(s->path, &state, e);
    if (st == OK) st = hash_state(state, hex, e);
    if (st == OK && !strcmp(hex, json_text(state, "sha256", ""))) {
        *out = state;
        return OK;
    }
    json_decref(state);
    *damaged = true;
    return st == ERR_MEMORY ? st : OK;
}

static enum status write_now(struct save *s, struct err *e) {
    char parent[PATH_CAP];
    for (int i = 0; i < s->parts; i++)
        if (fsync(s->part[i]->fd) != 0)
            return FAIL(e, ERR_IO, "write %s: %s", s->part[i]->path, strerror(errno));
    TRY(file_replace(s->path, s->text, strlen(s->text), e));
    s->exists = true;
    path_parent(parent, s->path);
    return directory_sync(parent, e);
}

static void *work(void *argument) {
    struct save *s = argument;
    s->status = write_now(s, &s->e);
    return NULL;
}

void save_end(struct save *s) {
    if (s->running) pthread_join(s->thread, NULL);
    s->running = false;
    free(s->text);
    s->text = NULL;
}

enum status save_wait(struct save *s, struct err *e) {
    save_end(s);
    enum status st = s->status;
    if (st != OK && e) *e = s->e;
    s->status = OK;
    return st;
}

static enum status make_text(json_t *state, char **out, struct err *e) {
    char hex[SHA256_HEX];
    bool failed = false;
    TRY(hash_state(state, hex, e));
    json_put(state, "sha256", json_string(hex), &failed);
    *out = failed ? NULL : json_dump_text(state, JSON_SORT_KEYS | JSON_INDENT(2));
    return *out ? OK : FAIL(e, ERR_MEMORY, "memory for the progress of the ingestion");
}

enum status save_write(struct save *s, json_t *state, const struct part *const *part, int parts,
                       struct err *e) {
    enum status st = save_wait(s, e);
    if (st == OK && !state) st = FAIL(e, ERR_MEMORY, "memory for the progress of the ingestion");
    if (st == OK) st = make_text(state, &s->text, e);
    json_decref(state);
    TRY(st);
    memcpy(s->part, part, (size_t)parts * sizeof *part);
    s->parts = parts;
    s->running = pthread_create(&s->thread, NULL, work, s) == 0;
    if (s->running) return OK;
    work(s); /* no thread is to be had: the caller waits */
    return save_wait(s, e);
}

void save_remove(struct save *s) {
    char partial[PART_NAME + 16];
    save_end(s);
    snprintf(partial, sizeof partial, "%s.partial", s->path); /* of file_replace() */
    unlink(partial);
    unlink(s->path);
    s->exists = false;
}
