#include "model/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "model/safetensors.h"
#include "model/trainer.h"

/* ---- what is saved ---- */

/* Adds the tensors of one file. */
typedef enum status (*lister)(const struct trainer *t, struct safetensors *s, struct err *e);

/* The tensor added last is sharded: `bytes` bytes for each `elements` elements of x->own. */
static void held(struct safetensors *s, const struct trainer *t, const struct param *p, void *data,
                 int64_t bytes, int64_t elements) {
    s->tensor[s->count - 1].held = holding_of(&t->params, p, data, bytes, elements);
}

static enum status list_weights(const struct trainer *t, struct safetensors *s, struct err *e) {
    for (int i = 0; i < t->params.count; i++) {
        const struct param *p = &t->params.param[i];
        const struct tensor *x = &p->own_value;
        TRY(safetensors_add(s, x->dtype, p->rows, p->cols, NULL, e, "%s", p->name));
        held(s, t, p, x->data, dtype_bytes(x->dtype), 1);
    }
    return OK;
}

static enum status list_moment(const struct trainer *t, const struct param *p,
                               const struct tensor *x, const char *kind, struct safetensors *s,
                               struct err *e) {
    TRY(safetensors_add(s, x->dtype, p->rows, p->cols, NULL, e, "%s:%s", kind, p->name));
    held(s, t, p, x->data, dtype_bytes(x->dtype), 1);
    if (!dtype_is_fp8(x->dtype)) return OK;
    int64_t scales = ceil_div(param_count(p), 128);
    TRY(safetensors_add(s, DTYPE_F32, scales, 0, NULL, e, "%s.scale:%s", kind, p->name));
    held(s, t, p, x->scale.data, 4, 128);
    return OK;
}

static enum status list_state(const struct trainer *t, struct safetensors *s, struct err *e) {
    for (int i = 0; i < t->params.count; i++) {
        const struct param *p = &t->params.param[i];
        if (t->params.options.master) {
            TRY(safetensors_add(s, DTYPE_F32, p->rows, p->cols, NULL, e, "master:%s", p->name));
            held(s, t, p, p->master.data, 4, 1);
        }
        TRY(list_moment(t, p, &p->m, "m", s, e));
        TRY(list_moment(t, p, &p->v, "v", s, e));
    }
    for (int r = 0; r < t->slots.run_count; r++) {
        const struct slot_run *run = &t->slots.run[r];
        TRY(safetensors_add(s, DTYPE_F32, run->history.dim[0], run->count, run->history.data, e,
                            "fp8.%d.history", r));
        TRY(safetensors_add(s, DTYPE_F32, run->count, 0, run->multiplier.data, e,
                            "fp8.%d.multiplier", r));
    }
    return OK;
}

/* One hash of the recipe: the options of every site. */
static enum status recipe_sha256(const struct recipe *r, char hex[65], struct err *e) {
    struct sha256 *sha = NULL;
    char line[160];
    TRY(sha256_create(&sha, e));
    for (int64_t i = 0; i <= r->layers * GEMM_SITE_COUNT; i++) {
        const struct recipe_options *o = i ? &r->site[i - 1] : &r->head;
        int n = snprintf(line, sizeof line, "%d %d %d %d %d %d %d %d %d %d %d %d\n", o->kind,
                         o->format, o->constants, o->pow2, o->margin, o->history, o->algo, o->roll,
                         o->wgrad_bf16, o->weight_2d, o->param_gather,
                         o->fprop_fast | o->dgrad_fast << 1 | o->wgrad_fast << 2);
        sha256_add(sha, line, (size_t)n);
    }
    sha256_finish(sha, hex);
    sha256_destroy(sha);
    return OK;
}

/* null with learned positions; owned by the caller. */
static json_t *rope_meaning(const struct model_config *c) {
    const struct rope_config *r = &c->rope;
    if (c->positions != POSITION_ROPE) return json_null();
    if (r->factor == 0) return json_pack("{sf}", "theta", r->theta);
    return json_pack("{sf sf sf sf sI}", "theta", r->theta, "factor", r->factor, "low_freq_factor",
                     r->low_freq_factor, "high_freq_factor", r->high_freq_factor,
                     "original_seq_len", (json_int_t)r->original_seq_len);
}

/* The settings that give the tensors their meaning; owned by the caller. */
static json_t *meaning(const struct trainer *t, const char *recipe) {
    static const char *const STATE[] = { "f32", "bf16", "8bit" };
    const struct model_config *c = &t->model;
    json_t *all = json_pack("{sI sI sI sI sI sI sI sI sb sb sb ss ss sf so sI ss ss sb}",
                            "vocab", (json_int_t)c->vocab, "seq_len", (json_int_t)c->seq_len,
                            "layers", (json_int_t)c->layers, "width", (json_int_t)c->width,
                            "heads", (json_int_t)c->heads, "kv_heads", (json_int_t)c->kv_heads,
                            "head_dim", (json_int_t)c->head_dim, "ffn", (json_int_t)c->ffn,
                            "tied", c->tied, "bias", c->bias, "qk_norm", c->qk_norm,
                            "norm", c->norm == NORM_RMS ? "rmsnorm" : "layernorm",
                            "activation", c->activation == ACTIVATION_SWIGLU ? "swiglu" : "gelu",
                            "norm_eps", c->norm_eps, "rope", rope_meaning(c),
                            "seed", (json_int_t)t->options.seed, "recipe_sha256", recipe,
                            "optimizer_state", STATE[t->options.optimizer.state],
                            "master", t->params.options.master);
    /* Without these there is no key, as in checkpoints from before there were windows. */
    bool failed = false;
    if (c->window) json_put(all, "window", json_integer(c->window), &failed);
    if (c->qkv_bias) json_put(all, "qkv_bias", json_true(), &failed);
    return json_whole(all, failed);
}

/* ---- writing ---- */

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

/* The content and path of one file. Fails on all ranks or on none. The caller frees the list. */
static enum status begin_file(const struct trainer *t, const char *dir, const char *name,
                              lister list, char path[CHECKPOINT_PATH_CAP], struct safetensors *s,
                              struct err *e) {
    enum status st = checkpoint_join(path, dir, name, e);
    if (st == OK) st = list(t, s, e);
    return pieces_agree(&t->pieces, st, name, e);
}

/* The entry of a file in checkpoint.json. */
struct written { int64_t bytes; char tree_sha256[SHA256_HEX]; };

static enum status write_file(const struct trainer *t, const char *dir, const char *name,
                              lister list, struct written *out, struct err *e) {
    struct safetensors s = { 0 };
    char path[CHECKPOINT_PATH_CAP];
    enum status st = begin_file(t, dir, name, list, path, &s, e);
    if (st == OK) st = safetensors_write(&s, &t->pieces, path, &out->bytes, out->tree_sha256, e);
    safetensors_free(&s);
    return st;
}

/* The text with CHECKPOINT_UNSIGNED as its hash; owned by the caller; NULL: no memory. */
static json_t *description(const struct trainer *t, const struct written *model,
                           const struct written *state, const char *choices, const char *recipe) {
    json_t *root =
        json_pack("{ss ss sI sI ss so}", "schema", CHECKPOINT_SCHEMA, "sha256",
                  CHECKPOINT_UNSIGNED, "step", (json_int_t)t->step, "cursor",
                  (json_int_t)t->cursor, "choices", choices, "meaning", meaning(t, recipe));
    json_t *files =
        json_pack("{s{sIss} s{sIss}}", CHECKPOINT_MODEL, "bytes", (json_int_t)model->bytes,
                  "tree_sha256", model->tree_sha256, CHECKPOINT_STATE, "bytes",
                  (json_int_t)state->bytes, "tree_sha256", state->tree_sha256);
    return json_whole(root, json_object_set_new(root, "files", files) != 0);
}

/* Rank 0: writes checkpoint.json and syncs everything to disk. */
static enum status describe(const struct trainer *t, const char *dir, const struct written *model,
                            const struct written *state, struct checkpoint_info *info,
                            struct err *e) {
    char path[CHECKPOINT_PATH_CAP], recipe[65], *choices = NULL;
    TRY(checkpoint_join(path, dir, CHECKPOINT_JSON, e));
    TRY(recipe_sha256(&t->recipe, recipe, e));
    TRY(t->backend->ops->choices_save(t->backend, &choices, e));
    json_t *root = description(t, model, state, choices, recipe);
    free(choices);
    char *text = root ? json_dump_text(root, JSON_INDENT(1) | JSON_SORT_KEYS) : NULL;
    json_decref(root);
    enum status st = text ? checkpoint_sign(text, e)
                          : FAIL(e, ERR_MEMORY, "no host memory for a checkpoint's description");
    if (st == OK) st = write_text(path, text, e);
    if (st == OK) st = sha256_bytes(text, strlen(text), info->sha256, e);
    if (text) info->bytes = model->bytes + state->bytes + (int64_t)strlen(text);
    free(text);
    return st == OK ? sync_directory(dir, e) : st;
}

static enum status write_checkpoint(const struct trainer *t, const char *dir,
                                    struct checkpoint_info *info, struct err *e) {
    struct written model, state;
    TRY(write_file(t, dir, CHECKPOINT_MODEL, list_weights, &model, e));
    TRY(write_file(t, dir, CHECKPOINT_STATE, list_state, &state, e));
    return t->rank == 0 ? describe(t, dir, &model, &state, info, e) : OK;
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

enum status checkpoint_save(struct trainer *t, const char *parent, struct checkpoint_info *info,
                            struct err *e) {
    memset(info, 0, sizeof *info);
    if (t->failure)
        return FAIL(e, ERR_STATE, "%s after step %lld: nothing is saved", t->failure,
                    (long long)t->step);
    TRY(trainer_check_idle(t, e));
    info->step = t->step;
    info->cursor = t->cursor;
    char dir[CHECKPOINT_PATH_CAP];
    enum status st = checkpoint_path(info->path, parent, t->step, e);
    if (st == OK) st = checkpoint_join(dir, parent, ".unfinished", e);
    if (st == OK) st = begin_directory(t, parent, dir, e);
    TRY(pieces_agree(&t->pieces, st, "creating a checkpoint's directory", e));
    st = write_checkpoint(t, dir, info, e);
    st = end_directory(t, st, parent, dir, info->path, e);
    TRY(pieces_agree(&t->pieces, st, "saving a checkpoint", e));
    return pieces_broadcast(&t->pieces, info, sizeof *info, e);
}

/* ---- reading ---- */

/* The error names the first key whose value differs. */
static enum status check_meaning(const struct trainer *t, const json_t *root, const char *path,
                                 struct err *e) {
    char recipe[65];
    TRY(recipe_sha256(&t->recipe, recipe, e));
    json_t *wanted = meaning(t, recipe), *found = json_object_get(root, "meaning");
    if (!wanted) return FAIL(e, ERR_MEMORY, "no host memory to compare a checkpoint");
    long long window = json_integer_value(json_object_get(found, "window"));
    enum status st = OK;
    if (window != t->model.window)
        st = FAIL(e, ERR_CONFIG, "%s was made with window %lld, this run has %lld (0: none)", path,
                  window, (long long)t->model.window);
    const char *key;
    json_t *value;
    json_object_foreach(wanted, key, value) {
        json_t *other = json_object_get(found, key);
        if (st != OK || json_equal(value, other)) continue;
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
                             lister list, struct err *e) {
    struct safetensors s = { 0 };
    char path[CHECKPOINT_PATH_CAP];
    enum status st = begin_file(t, dir, name, list, path, &s, e);
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
    TRY(read_file(t, path, CHECKPOINT_MODEL, list_weights, e));
    TRY(read_file(t, path, CHECKPOINT_STATE, list_state, e));
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
    st = restore(t, path, e);
    st = pieces_agree(&t->pieces, st, path, e);
    if (st != OK) {
        t->failure = IN_PART; /* a mix of two states */
        return st;
    }
    t->step = info->step;
    t->cursor = info->cursor;
    t->has_trace = false;
    return OK;
}
