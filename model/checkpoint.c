#include "model/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "model/checkpoint_content.h"
#include "model/checkpoint_writer.h"
#include "model/ground/json_safe.h"

enum status checkpoint_save(struct trainer *t, const char *parent, struct checkpoint_info *info,
                            struct err *e) {
    struct checkpoint_writer *w;
    int64_t write_us;
    memset(info, 0, sizeof *info);
    enum status st = checkpoint_writer_create(t, 0, &w, e);
    st = pieces_agree(&t->pieces, st, "saving a checkpoint", e);
    if (st == OK) st = checkpoint_begin(w, parent, e);
    if (st == OK) st = checkpoint_finish(w, info, &write_us, e);
    checkpoint_writer_destroy(w);
    return st;
}

/* ---- reading ---- */

static enum status check_frozen(const json_t *wanted, const json_t *found, const char *path,
                                struct err *e) {
    const json_t *a = json_object_get(found, "frozen"), *b = json_object_get(wanted, "frozen");
    if (!a && !b) return OK;
    if (a && b && json_equal(a, b)) return OK;
    return FAIL(e, ERR_CONFIG, "%s was made with %zu frozen parameters, this run has %zu%s: both "
                "need the same train.freeze", path, json_array_size(a), json_array_size(b),
                json_array_size(a) == json_array_size(b) ? " others" : "");
}

/* Whether a trainer needs the key to be equal. One that only evaluates needs no state, and RoPE
 * makes any length of a sequence. */
static bool matters(const struct trainer *t, const char *key) {
    static const char *const STATE[] = { "seed", "optimizer_state", "master", "frozen" };
    if (!t->options.forward_only) return true;
    for (size_t i = 0; i < sizeof STATE / sizeof *STATE; i++)
        if (!strcmp(key, STATE[i])) return false;
    return strcmp(key, "seq_len") != 0 || t->model.positions != POSITION_ROPE;
}

/* The error names the first key whose value differs. */
static enum status check_meaning(const struct trainer *t, const json_t *root, const char *path,
                                 struct err *e) {
    char recipe[65];
    TRY(checkpoint_recipe_sha256(&t->recipe, recipe, e));
    json_t *wanted = checkpoint_meaning(t, recipe), *found = json_object_get(root, "meaning");
    if (!wanted) return FAIL(e, ERR_MEMORY, "no host memory to compare a checkpoint");
    long long window = json_integer_value(json_object_get(found, "window"));
    enum status st = OK;
    if (window != t->model.window)
        st = FAIL(e, ERR_CONFIG, "%s was made with window %lld, this run has %lld (0: none)", path,
                  window, (long long)t->model.window);
    if (st == OK && matters(t, "frozen")) st = check_frozen(wanted, found, path, e);
    const char *key;
    json_t *value;
    json_object_foreach(wanted, key, value) {
        json_t *other = json_object_get(found, key);
        if (st != OK || json_equal(value, other) || !matters(t, key)) continue;
        char *a = json_dump_text(value, JSON_ENCODE_ANY);
        char *b = other ? json_dump_text(other, JSON_ENCODE_ANY) : NULL;
        st = FAIL(e, ERR_CONFIG, "%s was made with %s %s, this run has %s", path, key,
                  b ? b : "unknown", a ? a : "another");
        free(a);
        free(b);
        break;
    }
    json_decref(wanted);
    return st;
}

static enum status read_file(const struct trainer *t, const char *dir, const char *name,
                             checkpoint_lister list, struct err *e) {
    struct safetensors s = { 0 };
    char path[CHECKPOINT_PATH_CAP];
    enum status st = checkpoint_begin_file(t, dir, name, list, path, &s, e);
    if (st == OK) st = safetensors_read(&s, &t->pieces, path, e);
    safetensors_free(&s);
    return st;
}

/* Rank 0: verifies the checkpoint and that it fits this trainer. */
static enum status examine(const struct trainer *t, const char *path, struct checkpoint_info *info,
                           struct err *e) {
    json_t *root = NULL;
    if (t->rank != 0) return OK;
    enum status st = checkpoint_read(path, &root, info, e);
    if (st == OK) st = check_meaning(t, root, path, e);
    json_decref(root);
    return st;
}

static const char IN_PART[] = "a checkpoint was read in part";

static enum status restore(struct trainer *t, const char *path, struct err *e) {
    TRY(read_file(t, path, CHECKPOINT_MODEL, checkpoint_list_weights, e));
    TRY(read_file(t, path, CHECKPOINT_STATE, checkpoint_list_state, e));
    TRY(slots_restore_factors(&t->slots, t->backend, e));
    return trainer_requantise(t, e);
}

enum status checkpoint_load(struct trainer *t, const char *path, struct checkpoint_info *info,
                            struct err *e) {
    TRY(trainer_check_idle(t, e));
    enum status st = examine(t, path, info, e);
    TRY(pieces_agree(&t->pieces, st, "verifying a checkpoint", e));
    TRY(pieces_broadcast(&t->pieces, info, sizeof *info, e));
    if (t->failure == IN_PART) t->failure = NULL; /* a retry may succeed */
    trainer_draw_from(t, info->cursor);           /* while the state is read */
    st = restore(t, path, e);
    st = pieces_agree(&t->pieces, st, path, e);
    if (st != OK) {
        t->failure = IN_PART; /* a mix of two states */
        return st;
    }
    t->step = info->step;
    t->cursor = info->cursor;
    t->updates_before = info->updates_before;
    t->has_trace = t->has_errors = t->has_histograms = false;
    return OK;
}
