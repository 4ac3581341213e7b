#include "model/checkpoint_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/checkpoint_content.h"
#include "model/ground/clock.h"
#include "model/ground/json_safe.h"

enum { FILES = 2 };
static const struct content { const char *name; checkpoint_lister list; } CONTENT[FILES] = {
    { CHECKPOINT_MODEL, checkpoint_list_weights }, { CHECKPOINT_STATE, checkpoint_list_state },
};

struct checkpoint_writer {
    struct trainer *t; /* borrowed */
    char *room;        /* owned, of the backend: the copies; NULL: every rank writes at once */
    int64_t room_bytes;
    bool begun, threaded;
    struct checkpoint_info info;
    char parent[CHECKPOINT_PATH_CAP], dir[CHECKPOINT_PATH_CAP]; /* dir: the temporary one */
    char *choices; /* owned; rank 0 */
    struct safetensors_file *file[FILES];
    pthread_t thread;
    atomic_bool done;
    enum status st; /* of the thread, as the next two; read after `done` */
    struct err why;
    int64_t write_us;
};

/* ---- files and directories ------------------------------------------------------------------ */

static enum status sync_directory(const char *path, struct err *e) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return FAIL(e, ERR_IO, "open %s: %s", path, strerror(errno));
    enum status st = OK;
    if (fsync(fd) != 0) st = FAIL(e, ERR_IO, "sync %s: %s", path, strerror(errno));
    close(fd);
    return st;
}

static enum status write_text(const char *path, const char *text, struct err *e) {
    enum status st = OK;
    FILE *f = fopen(path, "wbxe");
    if (!f) return FAIL(e, ERR_IO, "create %s: %s", path, strerror(errno));
    if (fputs(text, f) < 0 || fflush(f) != 0 || fsync(fileno(f)) != 0)
        st = FAIL(e, ERR_IO, "write %s: %s", path, strerror(errno));
    if (fclose(f) != 0 && st == OK) st = FAIL(e, ERR_IO, "close %s: %s", path, strerror(errno));
    return st;
}

static enum status move(const char *from, const char *to, struct err *e) {
    if (rename(from, to) == 0) return OK;
    return FAIL(e, ERR_IO, "rename %s to %s: %s", from, to, strerror(errno));
}

/* Renames dir to its final name. An existing one is renamed first, and restored after an error. */
static enum status publish(const char *dir, const char *parent, const char *final, struct err *e) {
    char old[CHECKPOINT_PATH_CAP];
    struct err lost;
    TRY(checkpoint_join(old, parent, ".replaced", e));
    bool replaces = access(final, F_OK) == 0;
    if (replaces) TRY(checkpoint_remove(old, e));
    if (replaces) TRY(move(final, old, e));
    enum status st = move(dir, final, e);
    if (st != OK && replaces && move(old, final, &lost) != OK)
        err_prefix(e, "the previous checkpoint is now %s", old);
    TRY(st);
    TRY(sync_directory(parent, e));
    return replaces ? checkpoint_remove(old, e) : OK;
}

/* Rank 0: creates the temporary directory. */
static enum status begin_directory(const struct trainer *t, const char *parent, const char *dir,
                                   struct err *e) {
    if (t->rank != 0) return OK;
    if (mkdir(parent, 0777) != 0 && errno != EEXIST)
        return FAIL(e, ERR_IO, "create %s: %s", parent, strerror(errno));
    TRY(checkpoint_remove(dir, e)); /* left by a killed process */
    if (mkdir(dir, 0777) != 0) return FAIL(e, ERR_IO, "create %s: %s", dir, strerror(errno));
    return OK;
}

/* Rank 0: renames the directory to its final name, or removes it. */
static enum status end_directory(const struct trainer *t, enum status st, const char *parent,
                                 const char *dir, const char *final, struct err *e) {
    struct err ignored;
    if (t->rank != 0) return st;
    if (st == OK) st = publish(dir, parent, final, e);
    if (st != OK && checkpoint_remove(dir, &ignored) != OK)
        err_prefix(e, "%s is left behind", dir);
    return st;
}

/* ---- what describes them -------------------------------------------------------------------- */

/* The entry of a file in checkpoint.json. */
struct written { int64_t bytes; char tree_sha256[SHA256_HEX]; };

/* The text with CHECKPOINT_UNSIGNED as its hash; owned by the caller; NULL: no memory. */
static json_t *description(const struct checkpoint_writer *w, const struct written of[FILES],
                           const char *recipe) {
    json_t *root = json_pack("{ss ss sI sI ss so}", "schema", CHECKPOINT_SCHEMA, "sha256",
                             CHECKPOINT_UNSIGNED, "step", (json_int_t)w->info.step, "cursor",
                             (json_int_t)w->info.cursor, "choices", w->choices, "meaning",
                             checkpoint_meaning(w->t, recipe));
    json_t *files = json_object();
    bool failed = !files;
    int64_t before = w->t->updates_before;
    if (before) json_put(root, "updates_before", json_integer(before), &failed);
    for (int i = 0; i < FILES; i++)
        json_put(files, CONTENT[i].name,
                 json_pack("{sIss}", "bytes", (json_int_t)of[i].bytes, "tree_sha256",
                           of[i].tree_sha256), &failed);
    return json_whole(root, json_object_set_new(root, "files", json_whole(files, failed)) != 0);
}

/* Rank 0: writes checkpoint.json and syncs everything to disk. */
static enum status describe(struct checkpoint_writer *w, const struct written of[FILES],
                            struct err *e) {
    char path[CHECKPOINT_PATH_CAP], recipe[65];
    TRY(checkpoint_join(path, w->dir, CHECKPOINT_JSON, e));
    TRY(checkpoint_recipe_sha256(&w->t->recipe, recipe, e));
    json_t *root = description(w, of, recipe);
    char *text = root ? json_dump_text(root, JSON_INDENT(1) | JSON_SORT_KEYS) : NULL;
    json_decref(root);
    enum status st = text ? checkpoint_sign(text, e)
                          : FAIL(e, ERR_MEMORY, "no host memory for a checkpoint's description");
    if (st == OK) st = write_text(path, text, e);
    if (st == OK) st = sha256_bytes(text, strlen(text), w->info.sha256, e);
    if (text) w->info.bytes = (int64_t)strlen(text);
    for (int i = 0; i < FILES; i++) w->info.bytes += of[i].bytes;
    free(text);
    return st == OK ? sync_directory(w->dir, e) : st;
}

/* ---- life ----------------------------------------------------------------------------------- */

static enum status add_room(const struct trainer *t, int64_t *bytes, struct err *e) {
    for (int i = 0; i < FILES; i++) {
        struct safetensors s = { 0 };
        int64_t one = 0;
        enum status st = CONTENT[i].list(t, &s, e);
        if (st == OK) st = safetensors_room(&s, &t->pieces, &one, e);
        safetensors_free(&s);
        TRY(st);
        *bytes += one;
    }
    return OK;
}

enum status checkpoint_writer_create(struct trainer *t, int64_t copy_max,
                                     struct checkpoint_writer **out, struct err *e) {
    struct checkpoint_writer *w = calloc(1, sizeof *w);
    *out = NULL;
    if (!w) return FAIL(e, ERR_MEMORY, "no host memory to write checkpoints");
    w->t = t;
    enum status st = copy_max > 0 ? add_room(t, &w->room_bytes, e) : OK;
    if (st == OK && w->room_bytes > copy_max)
        st = FAIL(e, ERR_MEMORY, "a copy of a checkpoint takes %lld bytes of host memory, %lld are "
                  "free for it", (long long)w->room_bytes, (long long)copy_max);
    if (st == OK && w->room_bytes)
        st = t->backend->ops->memory_create_pinned(t->backend, "the copy of a checkpoint",
                                                   w->room_bytes, (void **)&w->room, e);
    if (st == OK) *out = w;
    else free(w);
    return st;
}

static void join(struct checkpoint_writer *w) {
    if (w->threaded) pthread_join(w->thread, NULL);
    w->threaded = false;
}

/* Forgets the files of a write that ended. */
static void clear(struct checkpoint_writer *w) {
    join(w);
    for (int i = 0; i < FILES; i++) {
        safetensors_drop(w->file[i]);
        w->file[i] = NULL;
    }
    free(w->choices);
    w->choices = NULL;
    w->begun = false;
}

void checkpoint_writer_destroy(struct checkpoint_writer *w) {
    if (!w) return;
    clear(w);
    if (w->room) w->t->backend->ops->memory_destroy(w->t->backend, w->room);
    free(w);
}

/* ---- a write -------------------------------------------------------------------------------- */

static enum status write_copies(struct checkpoint_writer *w, struct err *e) {
    for (int i = 0; i < FILES; i++) TRY(safetensors_put(w->file[i], e));
    return OK;
}

static void *write_all(void *context) {
    struct checkpoint_writer *w = context;
    int64_t begin = clock_us();
    w->st = write_copies(w, &w->why);
    w->write_us = clock_us() - begin;
    atomic_store(&w->done, true);
    return NULL;
}

/* Writes here if the host starts no thread, or if there is no copy to write. */
static void start(struct checkpoint_writer *w, bool copied) {
    sigset_t all, before;
    atomic_store(&w->done, false);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    w->threaded = copied && pthread_create(&w->thread, NULL, write_all, w) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!w->threaded) (void)write_all(w);
}

/* Copies both files. *copied: every rank has all of its bytes in `room`. */
static enum status begin_files(struct checkpoint_writer *w, bool *copied, struct err *e) {
    int64_t used = 0;
    *copied = w->room != NULL;
    for (int i = 0; i < FILES; i++) {
        struct safetensors s = { 0 };
        char path[CHECKPOINT_PATH_CAP];
        int64_t bytes = w->room_bytes - used;
        enum status st = checkpoint_begin_file(w->t, w->dir, CONTENT[i].name, CONTENT[i].list,
                                               path, &s, e);
        if (st == OK)
            st = safetensors_begin(&s, &w->t->pieces, path, w->room ? w->room + used : NULL,
                                   &bytes, &w->file[i], e);
        safetensors_free(&s);
        TRY(st);
        used += bytes;
    }
    return OK;
}

enum status checkpoint_begin(struct checkpoint_writer *w, const char *parent, struct err *e) {
    struct trainer *t = w->t;
    if (t->failure)
        return FAIL(e, ERR_STATE, "%s after step %lld: nothing is saved", t->failure,
                    (long long)t->step);
    if (w->begun) return FAIL(e, ERR_STATE, "a checkpoint is being written");
    TRY(trainer_audit_settle(t, e)); /* nothing is saved after wrong results */
    if (t->options.forward_only)
        return FAIL(e, ERR_STATE, "the trainer was created to evaluate: it has no state to save");
    TRY(trainer_check_idle(t, e));
    w->info = (struct checkpoint_info){ .step = t->step, .cursor = t->cursor };
    bool copied;
    int n = snprintf(w->parent, sizeof w->parent, "%s", parent);
    enum status st = n < CHECKPOINT_PATH_CAP ? checkpoint_path(w->info.path, parent, t->step, e)
                                             : FAIL(e, ERR_IO, "the path %s is too long", parent);
    if (st == OK) st = checkpoint_join(w->dir, parent, ".unfinished", e);
    if (st == OK) st = begin_directory(t, parent, w->dir, e);
    if (st == OK) st = t->backend->ops->choices_save(t->backend, &w->choices, e);
    st = pieces_agree(&t->pieces, st, "creating a checkpoint's directory", e);
    if (st == OK) st = begin_files(w, &copied, e);
    if (st != OK) {
        st = end_directory(t, st, w->parent, w->dir, w->info.path, e);
        clear(w);
        return st;
    }
    w->begun = true;
    start(w, copied);
    return OK;
}

bool checkpoint_begun(const struct checkpoint_writer *w) { return w && w->begun; }

bool checkpoint_writing(const struct checkpoint_writer *w) {
    return w->begun && !atomic_load(&w->done);
}

enum status checkpoint_finish(struct checkpoint_writer *w, struct checkpoint_info *info,
                              int64_t *write_us, struct err *e) {
    struct trainer *t = w->t;
    struct written written[FILES];
    join(w);
    enum status st = w->st, one;
    if (st != OK && e) *e = w->why;
    for (int i = 0; i < FILES; i++) {
        one = safetensors_end(w->file[i], &t->pieces, st, &written[i].bytes,
                              written[i].tree_sha256, e);
        if (st == OK) st = one;
    }
    if (st == OK && t->rank == 0) st = describe(w, written, e);
    st = end_directory(t, st, w->parent, w->dir, w->info.path, e);
    *info = w->info;
    *write_us = w->write_us;
    clear(w);
    TRY(pieces_agree(&t->pieces, st, "saving a checkpoint", e));
    return pieces_broadcast(&t->pieces, info, sizeof *info, e);
}

enum status checkpoint_survive(struct trainer *t, enum status st, struct err *e) {
    if (st != ERR_IO && st != ERR_MEMORY && st != ERR_PEER) return st;
    return pieces_agree(&t->pieces, OK, "going on without a checkpoint", e);
}
