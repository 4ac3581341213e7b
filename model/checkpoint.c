#include "model/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/input_file.h"
#include "model/json_safe.h"
#include "model/safetensors.h"
#include "model/sha256.h"
#include "model/trainer.h"

enum { PATH_MAX_BYTES = CHECKPOINT_PATH_CAP, INFO_MAX = 64 << 20 };

/* Of the first schema a file's hash is that of its bytes from end to end. */
static const char SCHEMA[] = "fp8lab.checkpoint/2", FIRST_SCHEMA[] = "fp8lab.checkpoint/1",
                  MODEL_FILE[] = "model.safetensors",
                  STATE_FILE[] = "state.safetensors", INFO_FILE[] = "checkpoint.json";

static enum status join(char out[PATH_MAX_BYTES], const char *parent, const char *name,
                        struct err *e) {
    int n = snprintf(out, PATH_MAX_BYTES, "%s/%s", parent, name);
    if (n > 0 && n < PATH_MAX_BYTES) return OK;
    return FAIL(e, ERR_IO, "the path of %s is too long", name);
}

enum status checkpoint_path(char out[PATH_MAX_BYTES], const char *parent, int64_t step,
                            struct err *e) {
    char name[64];
    snprintf(name, sizeof name, "step-%06lld", (long long)step);
    return join(out, parent, name, e);
}

/* ---- what is saved ---- */

/* Adds the tensors of one file. */
typedef enum status (*lister)(const struct trainer *t, struct safetensors *s, struct err *e);

/* The one added last: this rank holds `bytes` for each `elements` of what it updates. */
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

/* One hash for the recipe: what each site's options are. */
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

/* null where positions are learned; owned by the caller. */
static json_t *rope_meaning(const struct model_config *c) {
    const struct rope_config *r = &c->rope;
    if (c->positions != POSITION_ROPE) return json_null();
    if (r->factor == 0) return json_pack("{sf}", "theta", r->theta);
    return json_pack("{sf sf sf sf sI}", "theta", r->theta, "factor", r->factor, "low_freq_factor",
                     r->low_freq_factor, "high_freq_factor", r->high_freq_factor,
                     "original_seq_len", (json_int_t)r->original_seq_len);
}

/* What must be equal for the tensors to mean the same; owned by the caller. */
static json_t *meaning(const struct trainer *t, const char *recipe) {
    static const char *const STATE[] = { "f32", "bf16", "8bit" };
    const struct model_config *c = &t->model;
    return json_pack("{sI sI sI sI sI sI sI sI sb sb sb ss ss sf so sI ss ss sb}",
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

/* What one file is to hold, on all ranks or on none; the caller's path and list. */
static enum status begin_file(const struct trainer *t, const char *dir, const char *name,
                              lister list, char path[PATH_MAX_BYTES], struct safetensors *s,
                              struct err *e) {
    enum status st = join(path, dir, name, e);
    if (st == OK) st = list(t, s, e);
    return pieces_agree(&t->pieces, st, name, e);
}

/* As checkpoint.json has it. */
struct written { int64_t bytes; char tree_sha256[SHA256_HEX]; };

static enum status write_file(const struct trainer *t, const char *dir, const char *name,
                              lister list, struct written *out, struct err *e) {
    struct safetensors s = { 0 };
    char path[PATH_MAX_BYTES];
    enum status st = begin_file(t, dir, name, list, path, &s, e);
    if (st == OK) st = safetensors_write(&s, &t->pieces, path, &out->bytes, out->tree_sha256, e);
    safetensors_free(&s);
    return st;
}

/* Owned by the caller; NULL without memory. */
static json_t *description(const struct trainer *t, const struct written *model,
                           const struct written *state, const char *choices, const char *recipe) {
    json_t *root =
        json_pack("{ss sI sI ss so}", "schema", SCHEMA, "step", (json_int_t)t->step, "cursor",
                  (json_int_t)t->cursor, "choices", choices, "meaning", meaning(t, recipe));
    json_t *files =
        json_pack("{s{sIss} s{sIss}}", MODEL_FILE, "bytes", (json_int_t)model->bytes,
                  "tree_sha256", model->tree_sha256, STATE_FILE, "bytes",
                  (json_int_t)state->bytes, "tree_sha256", state->tree_sha256);
    return json_whole(root, json_object_set_new(root, "files", files) != 0);
}

/* Rank 0's part: what the tensors mean, and everything on the disk. */
static enum status describe(const struct trainer *t, const char *dir, const struct written *model,
                            const struct written *state, struct checkpoint_info *info,
                            struct err *e) {
    char path[PATH_MAX_BYTES], recipe[65], *choices = NULL;
    TRY(join(path, dir, INFO_FILE, e));
    TRY(recipe_sha256(&t->recipe, recipe, e));
    TRY(t->backend->ops->choices_save(t->backend, &choices, e));
    json_t *root = description(t, model, state, choices, recipe);
    free(choices);
    char *text = root ? json_dump_text(root, JSON_INDENT(1) | JSON_SORT_KEYS) : NULL;
    json_decref(root);
    enum status st = text ? write_text(path, text, e)
                          : FAIL(e, ERR_MEMORY, "no host memory for a checkpoint's description");
    if (st == OK) st = sha256_bytes(text, strlen(text), info->sha256, e);
    if (text) info->bytes = model->bytes + state->bytes + (int64_t)strlen(text);
    free(text);
    return st == OK ? sync_directory(dir, e) : st;
}

static enum status write_checkpoint(const struct trainer *t, const char *dir,
                                    struct checkpoint_info *info, struct err *e) {
    struct written model, state;
    TRY(write_file(t, dir, MODEL_FILE, list_weights, &model, e));
    TRY(write_file(t, dir, STATE_FILE, list_state, &state, e));
    return t->rank == 0 ? describe(t, dir, &model, &state, info, e) : OK;
}

static enum status move(const char *from, const char *to, struct err *e) {
    if (rename(from, to) == 0) return OK;
    return FAIL(e, ERR_IO, "rename %s to %s: %s", from, to, strerror(errno));
}

/* Moves dir to its final name; one of the same step steps aside first, and back if that fails. */
static enum status publish(const char *dir, const char *parent, const char *final, struct err *e) {
    char old[PATH_MAX_BYTES];
    struct err lost;
    TRY(join(old, parent, ".replaced", e));
    bool replaces = access(final, F_OK) == 0;
    if (replaces) TRY(checkpoint_remove(old, e));
    if (replaces) TRY(move(final, old, e));
    enum status st = move(dir, final, e);
    if (st != OK && replaces && move(old, final, &lost) != OK)
        err_prefix(e, "the checkpoint of before is now %s", old);
    TRY(st);
    TRY(sync_directory(parent, e));
    return replaces ? checkpoint_remove(old, e) : OK;
}

/* Rank 0's part: a new directory to write in. */
static enum status begin_directory(const struct trainer *t, const char *parent, const char *dir,
                                   struct err *e) {
    if (t->rank != 0) return OK;
    if (mkdir(parent, 0777) != 0 && errno != EEXIST)
        return FAIL(e, ERR_IO, "create %s: %s", parent, strerror(errno));
    TRY(checkpoint_remove(dir, e)); /* what an earlier process left when it was killed */
    if (mkdir(dir, 0777) != 0) return FAIL(e, ERR_IO, "create %s: %s", dir, strerror(errno));
    return OK;
}

/* Rank 0's part: the directory under its name, or gone. */
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
    TRY(trainer_settled(t, e));
    info->step = t->step;
    info->cursor = t->cursor;
    char dir[PATH_MAX_BYTES];
    enum status st = checkpoint_path(info->path, parent, t->step, e);
    if (st == OK) st = join(dir, parent, ".unfinished", e);
    if (st == OK) st = begin_directory(t, parent, dir, e);
    TRY(pieces_agree(&t->pieces, st, "creating a checkpoint's directory", e));
    st = write_checkpoint(t, dir, info, e);
    st = end_directory(t, st, parent, dir, info->path, e);
    TRY(pieces_agree(&t->pieces, st, "saving a checkpoint", e));
    return pieces_tell(&t->pieces, info, sizeof *info, e);
}

/* ---- reading ---- */

/* All of a small file; *text is the caller's. */
static enum status read_whole(const char *path, char **text, size_t *n, struct err *e) {
    struct input_file f;
    TRY(input_open(&f, path, e));
    enum status st = OK;
    char *bytes = NULL;
    if (f.bytes > INFO_MAX)
        st = FAIL(e, ERR_FORMAT, "%s: %lld bytes, a checkpoint's has at most %d", path,
                  (long long)f.bytes, INFO_MAX);
    else if (!(bytes = malloc((size_t)f.bytes + 1)))
        st = FAIL(e, ERR_MEMORY, "no host memory for %lld bytes of %s", (long long)f.bytes, path);
    else st = input_read(&f, 0, f.bytes, bytes, e);
    *n = (size_t)f.bytes;
    input_close(&f);
    if (st != OK) {
        free(bytes);
        return st;
    }
    *text = bytes;
    return OK;
}

static enum status read_info(const char *path, json_t **root, struct checkpoint_info *info,
                             struct err *e) {
    char file[PATH_MAX_BYTES], *text = NULL;
    size_t n = 0;
    json_error_t why;
    memset(info, 0, sizeof *info);
    snprintf(info->path, sizeof info->path, "%s", path);
    TRY(join(file, path, INFO_FILE, e));
    TRY(read_whole(file, &text, &n, e));
    enum status st = sha256_bytes(text, n, info->sha256, e);
    if (st == OK) {
        st = json_parse(root, text, n, JSON_REJECT_DUPLICATES, &why);
        if (st != OK) FAIL(e, st, "%s: %s", file, why.text);
    }
    info->bytes = (int64_t)n;
    free(text);
    if (st != OK) return st;
    const char *schema = json_string_value(json_object_get(*root, "schema"));
    if (!schema || (strcmp(schema, SCHEMA) != 0 && strcmp(schema, FIRST_SCHEMA) != 0))
        return FAIL(e, ERR_FORMAT, "%s: schema %s, wanted %s", file,
                    schema ? schema : "none", SCHEMA);
    const json_t *step = json_object_get(*root, "step"), *cursor = json_object_get(*root, "cursor");
    info->step = json_integer_value(step);
    info->cursor = json_integer_value(cursor);
    if (json_is_integer(step) && json_is_integer(cursor) && info->step >= 0 && info->cursor >= 0)
        return OK;
    return FAIL(e, ERR_FORMAT, "%s: step %lld and cursor %lld; wanted: both, at least 0", file,
                (long long)info->step, (long long)info->cursor);
}

static enum status verify_file(const char *dir, const char *name, const json_t *root,
                               struct checkpoint_info *info, struct err *e) {
    char path[PATH_MAX_BYTES], found[65];
    struct input_file f;
    const json_t *entry = json_object_get(json_object_get(root, "files"), name);
    const char *tree = json_string_value(json_object_get(entry, "tree_sha256"));
    const char *wanted = tree ? tree : json_string_value(json_object_get(entry, "sha256"));
    int64_t wanted_bytes = json_integer_value(json_object_get(entry, "bytes")), bytes = 0;
    TRY(join(path, dir, name, e));
    if (!wanted) return FAIL(e, ERR_FORMAT, "%s/%s does not describe %s", dir, INFO_FILE, name);
    TRY(input_open(&f, path, e));
    enum status st = OK;
    if (f.bytes == wanted_bytes)
        st = (tree ? sha256_tree_fd : sha256_fd)(f.fd, path, found, &bytes, e);
    if (f.bytes != wanted_bytes)
        st = FAIL(e, ERR_FORMAT, "%s: %lld bytes, wanted %lld%s", path, (long long)f.bytes,
                  (long long)wanted_bytes, f.bytes < wanted_bytes ? " (truncated?)" : "");
    if (st == OK) st = input_whole(&f, bytes, e);
    if (st == OK && strcmp(found, wanted) != 0)
        st = FAIL(e, ERR_FORMAT, "%s: %s is %s, wanted %s", path,
                  tree ? "tree SHA-256" : "SHA-256", found, wanted);
    info->bytes += f.bytes;
    input_close(&f);
    return st;
}

static enum status verify(const char *path, json_t **root, struct checkpoint_info *info,
                          struct err *e) {
    TRY(read_info(path, root, info, e));
    TRY(verify_file(path, MODEL_FILE, *root, info, e));
    return verify_file(path, STATE_FILE, *root, info, e);
}

enum status checkpoint_verify(const char *path, struct checkpoint_info *info, struct err *e) {
    json_t *root = NULL;
    enum status st = verify(path, &root, info, e);
    json_decref(root);
    return st;
}

enum status checkpoint_choices(const char *path, char **text, struct err *e) {
    struct checkpoint_info info;
    json_t *root = NULL;
    *text = NULL;
    enum status st = read_info(path, &root, &info, e);
    const char *choices = json_string_value(json_object_get(root, "choices"));
    if (st == OK && !(*text = strdup(choices ? choices : ""))) /* an older checkpoint has none */
        st = FAIL(e, ERR_MEMORY, "no host memory for a choice table");
    json_decref(root);
    return st;
}

/* The first key whose value differs is named. */
static enum status check_meaning(const struct trainer *t, const json_t *root, const char *path,
                                 struct err *e) {
    char recipe[65];
    TRY(recipe_sha256(&t->recipe, recipe, e));
    json_t *wanted = meaning(t, recipe), *found = json_object_get(root, "meaning");
    if (!wanted) return FAIL(e, ERR_MEMORY, "no host memory to compare a checkpoint");
    enum status st = OK;
    const char *key;
    json_t *value;
    json_object_foreach(wanted, key, value) {
        json_t *other = json_object_get(found, key);
        if (json_equal(value, other)) continue;
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
    char path[PATH_MAX_BYTES];
    enum status st = begin_file(t, dir, name, list, path, &s, e);
    if (st == OK) st = safetensors_read(&s, &t->pieces, path, e);
    safetensors_free(&s);
    return st;
}

/* Rank 0's part: whether the checkpoint is whole and means what this trainer does. */
static enum status examine(const struct trainer *t, const char *path, struct checkpoint_info *info,
                           struct err *e) {
    json_t *root = NULL;
    if (t->rank != 0) return OK;
    enum status st = verify(path, &root, info, e);
    if (st == OK) st = check_meaning(t, root, path, e);
    json_decref(root);
    return st;
}

static const char IN_PART[] = "a checkpoint was read in part";

static enum status restore(struct trainer *t, const char *path, struct err *e) {
    TRY(read_file(t, path, MODEL_FILE, list_weights, e));
    TRY(read_file(t, path, STATE_FILE, list_state, e));
    TRY(slots_restore_factors(&t->slots, t->backend, e));
    return trainer_requantise(t, e);
}

enum status checkpoint_load(struct trainer *t, const char *path, struct checkpoint_info *info,
                            struct err *e) {
    TRY(trainer_settled(t, e));
    enum status st = examine(t, path, info, e);
    TRY(pieces_agree(&t->pieces, st, "verifying a checkpoint", e));
    TRY(pieces_tell(&t->pieces, info, sizeof *info, e));
    if (t->failure == IN_PART) t->failure = NULL; /* what is tried again may succeed */
    st = restore(t, path, e);
    st = pieces_agree(&t->pieces, st, path, e);
    if (st != OK) {
        t->failure = IN_PART; /* weights of one run, moments of another */
        return st;
    }
    t->step = info->step;
    t->cursor = info->cursor;
    t->has_trace = false;
    return OK;
}

/* ---- the directory of checkpoints ---- */

/* The largest step below `below` that has a directory here; -1 if none. */
static int64_t newest_below(DIR *dir, int64_t below) {
    int64_t newest = -1;
    rewinddir(dir);
    for (struct dirent *d; (d = readdir(dir));) {
        char *end;
        if (strncmp(d->d_name, "step-", 5) != 0) continue;
        long long step = strtoll(d->d_name + 5, &end, 10);
        if (*end == 0 && end != d->d_name + 5 && step < below && step > newest) newest = step;
    }
    return newest;
}

/* A file is not there: removing a checkpoint was cut short, or somebody took it. */
static bool misses_a_file(const char *path) {
    static const char *const FILES[] = { INFO_FILE, MODEL_FILE, STATE_FILE };
    char file[PATH_MAX_BYTES];
    struct err ignored;
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++)
        if (join(file, path, FILES[i], &ignored) == OK && access(file, F_OK) != 0 &&
            (errno == ENOENT || errno == ENOTDIR))
            return true;
    return false;
}

/* Verifies the checkpoint of `step`. ERR_FORMAT: damaged, as *e says. Of one that cannot be read
 * nobody knows: ERR_MEMORY, ERR_IO. */
static enum status examine_step(const char *parent, int64_t step, struct checkpoint_info *info,
                                struct err *e) {
    char path[PATH_MAX_BYTES];
    TRY(checkpoint_path(path, parent, step, e));
    enum status st = checkpoint_verify(path, info, e);
    if (st != ERR_IO) return st;
    if (misses_a_file(path)) return e->code = ERR_FORMAT;
    err_prefix(e, "a checkpoint cannot be read, and may be whole; try again, or remove %s to go on "
               "from the one before", path);
    return ERR_IO;
}

enum status checkpoint_latest(const char *parent, struct checkpoint_info *info, struct err *e) {
    memset(info, 0, sizeof *info);
    DIR *dir = opendir(parent);
    if (!dir && errno != ENOENT) return FAIL(e, ERR_IO, "open %s: %s", parent, strerror(errno));
    struct err first = { .code = OK }, why;
    enum status st = ERR_FORMAT;
    int64_t step = INT64_MAX;
    while (dir && st == ERR_FORMAT && (step = newest_below(dir, step)) >= 0) {
        st = examine_step(parent, step, info, &why);
        if (st == ERR_FORMAT && first.code == OK) first = why;
    }
    if (dir) closedir(dir);
    if (st == ERR_FORMAT) info->step = -1; /* there is none that is whole */
    snprintf(info->damage, sizeof info->damage, "%.511s", first.text);
    if (st == OK || st == ERR_FORMAT) return OK;
    if (e) *e = why;
    return st;
}

enum status checkpoint_remove(const char *path, struct err *e) {
    static const char *const FILES[] = { INFO_FILE, MODEL_FILE, STATE_FILE };
    char file[PATH_MAX_BYTES];
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        TRY(join(file, path, FILES[i], e));
        if (unlink(file) != 0 && errno != ENOENT)
            return FAIL(e, ERR_IO, "remove %s: %s", file, strerror(errno));
    }
    if (rmdir(path) != 0 && errno != ENOENT)
        return FAIL(e, ERR_IO, "remove %s: %s", path, strerror(errno));
    return OK;
}
