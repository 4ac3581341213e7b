#include "runner/weights/weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/parallel.h"
#include "model/params.h"
#include "runner/base/canonical.h"
#include "runner/base/run_files.h"
#include "runner/weights/blocks.h"
#include "runner/weights/hf_config.h"
#include "runner/weights/llmc_file.h"

const char *const WEIGHTS_KIND_NAMES[] = { "hf", "checkpoint", "llmc" };

/* ---- the tensors of a parameter ---------------------------------------------------------------*/

static int parts_of(const struct weights *w, const char *name, int64_t rows, int64_t cols,
                    struct weight_part out[WEIGHT_PARTS_MAX]) {
    if (w->kind == WEIGHTS_HF) return hf_names_parts(&w->model, name, rows, cols, out);
    out[0] = (struct weight_part){ .rows = rows, .cols = cols };
    snprintf(out[0].name, sizeof out[0].name, "%s", name);
    return 1;
}

/* OpenAI's own files lack the prefix. */
static struct tensor_entry *entry_of(const struct weights *w, const struct weight_part *p) {
    static const char PREFIX[] = "transformer.";
    struct tensor_entry *x = tensor_find(&w->files, p->name);
    if (!x && !strncmp(p->name, PREFIX, sizeof PREFIX - 1))
        x = tensor_find(&w->files, p->name + sizeof PREFIX - 1);
    return x;
}

/* A table of positions may be longer than the run's sequences. */
static bool may_be_longer(const struct weight_part *p) {
    size_t n = strlen(p->name);
    return n >= 10 && (!strcmp(p->name + n - 10, "wpe.weight") || !strcmp(p->name,
                                                                          "position.weight"));
}

/* The factors of an E4M3 tensor; NULL: it has none of the right shape. */
static const struct tensor_entry *factors_entry(const struct weights *w,
                                                const struct tensor_entry *x) {
    char name[WEIGHT_NAME_CAP + 16];
    snprintf(name, sizeof name, "%.159s_scale_inv", x->name);
    const struct tensor_entry *f = tensor_find(&w->files, name);
    bool fits = f && f->type == WEIGHT_F32 && f->rank == 2 && x->rank == 2 &&
                f->shape[0] == blocks_count(x->shape[0]) &&
                f->shape[1] == blocks_count(x->shape[1]);
    return fits ? f : NULL;
}

static enum status check_part(const struct weights *w, const struct weight_part *p,
                              const char *path, struct err *e) {
    const struct tensor_entry *x = entry_of(w, p);
    char found[96];
    if (!x) return FAIL(e, ERR_CONFIG, "%s: tensor %s is missing", path, p->name);
    tensor_text(x, found);
    if (x->type == WEIGHT_OTHER)
        return FAIL(e, ERR_CONFIG, "%s: %s is %s; expected F32, F16, BF16 or F8_E4M3", path,
                    p->name, found);
    if (x->type == WEIGHT_E4M3 && (p->transposed || !factors_entry(w, x)))
        return FAIL(e, ERR_CONFIG, "%s: %s is %s without an F32 tensor %s_scale_inv of one factor "
                    "for each 128 x 128 block", path, p->name, found, p->name);
    int64_t rows = p->transposed ? p->cols : p->rows, cols = p->transposed ? p->rows : p->cols;
    bool fits = x->rank == (p->cols ? 2 : 1) && (!p->cols || x->shape[1] == cols) &&
                (x->shape[0] == rows || (x->shape[0] > rows && may_be_longer(p)));
    if (fits) return OK;
    char wanted[48];
    snprintf(wanted, sizeof wanted, p->cols ? "[%" PRId64 ", %" PRId64 "]" : "[%" PRId64 "]", rows,
             cols);
    return FAIL(e, ERR_CONFIG, "%s: %s is %s; the model needs %s", path, p->name, found, wanted);
}

/* ---- opening ----------------------------------------------------------------------------------*/

/* The table of parameters, for their names and shapes. */
static enum status list_params(const struct model_config *model, struct params *out,
                               struct err *e) {
    const struct param_options options = { .shard = { SHARD_NONE, 0, 1 } };
    enum status st = params_init(out, model, &options, e);
    if (st != OK) params_destroy(out);
    return st;
}

static bool is_used(const struct weights *w, const struct params *params,
                    const struct tensor_entry *x) {
    struct weight_part part[WEIGHT_PARTS_MAX];
    for (int i = 0; i < params->count; i++) {
        const struct param *p = &params->param[i];
        int n = parts_of(w, p->name, p->rows, p->cols, part);
        for (int k = 0; k < n; k++)
            if (entry_of(w, &part[k]) == x) return true;
    }
    return false;
}

static bool is_factors(const struct weights *w, const struct tensor_entry *x) {
    char name[WEIGHT_NAME_CAP + 16];
    size_t n = strlen(x->name), suffix = sizeof "_scale_inv" - 1;
    if (n <= suffix || n >= sizeof name || strcmp(x->name + n - suffix, "_scale_inv") != 0)
        return false;
    snprintf(name, sizeof name, "%.*s", (int)(n - suffix), x->name);
    const struct tensor_entry *of = tensor_find(&w->files, name);
    return of && of->type == WEIGHT_E4M3;
}

static bool is_tied_head(const struct weights *w, const struct tensor_entry *x) {
    return w->kind == WEIGHTS_HF && w->model.tied && !strcmp(x->name, "lm_head.weight");
}

static enum status check_all(const struct weights *w, const struct params *params,
                             const char *path, struct err *e) {
    struct weight_part part[WEIGHT_PARTS_MAX];
    int64_t used = 0;
    for (int i = 0; i < params->count; i++) {
        const struct param *p = &params->param[i];
        int n = parts_of(w, p->name, p->rows, p->cols, part);
        for (int k = 0; k < n; k++) TRY(check_part(w, &part[k], path, e));
        used += n;
    }
    if (used == w->files.count) return OK;
    for (int64_t i = 0; i < w->files.count; i++) {
        const struct tensor_entry *x = &w->files.entry[i];
        char found[96];
        if (hf_names_ignored(x->name) || is_tied_head(w, x) || is_factors(w, x)) continue;
        if (is_used(w, params, x)) continue;
        tensor_text(x, found);
        return FAIL(e, ERR_CONFIG, "%s: the model has no tensor %.160s, %s", path, x->name, found);
    }
    return OK;
}

/* A tied model has one matrix for embedding and head: a file that has both must have them equal. */
static enum status check_tied(const struct weights *w, struct err *e) {
    const struct tensor_entry *head = tensor_find(&w->files, "lm_head.weight");
    struct weight_part part[WEIGHT_PARTS_MAX];
    bool same = false;
    if (!head || !is_tied_head(w, head)) return OK;
    (void)parts_of(w, "embed.weight", w->model.vocab, w->model.width, part);
    TRY(tensor_same(&w->files, head, entry_of(w, &part[0]), &same, e));
    if (same) return OK;
    return FAIL(e, ERR_CONFIG, "%s: lm_head.weight differs from %s, but the model is tied; write "
                "tied = false to use both", w->files.file[head->file].path, part[0].name);
}

static enum weights_kind kind_of(const char *path) {
    char file[PATH_CAP];
    bool ours = path_join(file, path, "checkpoint.json", NULL) == OK && path_exists(file);
    return ours ? WEIGHTS_CHECKPOINT : WEIGHTS_HF;
}

/* Whether folders of these two types may have the same tensors, although the names differ. */
static bool is_alike(const char *type, const char *other) {
    bool llama = !strcmp(type, "llama") || !strcmp(type, "mistral");
    bool other_llama = !strcmp(other, "llama") || !strcmp(other, "mistral");
    return !strcmp(type, other) || (llama && other_llama);
}

/* Names a folder's architecture, if that is why its tensors are not the model's. */
static void name_architecture(const char *folder, const struct model_config *model,
                              struct err *e) {
    char path[PATH_CAP], why[sizeof e->text];
    json_t *config = NULL;
    struct err ignored;
    const char *wanted = hf_config_type(model);
    if (e->code != ERR_CONFIG || path_join(path, folder, "config.json", &ignored) != OK ||
        !path_exists(path) || json_file_read(path, &config, &ignored) != OK)
        return;
    const char *type = json_text(config, "model_type", wanted);
    snprintf(why, sizeof why, "%s", e->text);
    if (!is_alike(type, wanted))
        (void)FAIL(e, ERR_CONFIG, "%s is of another architecture than the model: its model_type is "
                   "\"%.60s\", the model's is \"%s\"; name weights of a %s (%s)", path, type,
                   wanted, wanted, why);
    json_decref(config);
}

enum status weights_open(const char *path, const struct model_config *model, struct weights *out,
                         struct err *e) {
    struct params params;
    bool llmc;
    *out = (struct weights){ .kind = kind_of(path), .model = *model };
    TRY(llmc_open(path, &out->files, &llmc, e));
    if (llmc) out->kind = WEIGHTS_LLMC;
    else tensor_files_close(&out->files);
    if (out->kind == WEIGHTS_HF) TRY(hf_names_check(model, e));
    if (!llmc) TRY(tensor_files_open(path, &out->files, e));
    TRY(list_params(model, &params, e));
    enum status st = check_all(out, &params, path, e);
    params_destroy(&params);
    if (st != OK && out->kind == WEIGHTS_HF) name_architecture(path, model, e);
    return st == OK ? check_tied(out, e) : st;
}

static void drop_beside(struct weights *w) {
    for (int k = 0; k < WEIGHT_PARTS_MAX; k++) {
        free(w->beside[k]);
        w->beside[k] = NULL;
    }
}

void weights_close(struct weights *w) {
    tensor_files_close(&w->files);
    drop_beside(w);
}

/* ---- the hash ---------------------------------------------------------------------------------*/

static void add_line(struct sha256 *sha, const struct tensor_entry *x) {
    char line[WEIGHT_NAME_CAP + 512], shape[96];
    tensor_text(x, shape);
    int n = snprintf(line, sizeof line, "%.300s %s %s\n", x->name, shape, x->sha256);
    sha256_add(sha, line, (size_t)n);
}

static enum status hash_one(void *user, int64_t i, struct err *e) {
    const struct weights *w = user;
    struct tensor_entry *x = &w->files.entry[i];
    return hf_names_ignored(x->name) ? OK : tensor_hash(&w->files, x, e);
}

enum status weights_hash(struct weights *w, char hex[SHA256_HEX], struct err *e) {
    struct sha256 *sha = NULL;
    TRY(parallel_each(w->files.count, parallel_processors(), hash_one, w, e));
    TRY(sha256_create(&sha, e));
    for (int64_t i = 0; i < w->files.count; i++) {
        const struct tensor_entry *x = &w->files.entry[i];
        if (!hf_names_ignored(x->name) && !is_tied_head(w, x)) add_line(sha, x);
    }
    sha256_finish(sha, hex);
    sha256_destroy(sha);
    return OK;
}

/* ---- reading ----------------------------------------------------------------------------------*/

static enum status load_beside(struct weights *w, const struct weight_part *p, int k,
                               struct err *e) {
    const struct tensor_entry *x = entry_of(w, p);
    int64_t n = p->rows * p->cols;
    if (!p->transposed && x->type != WEIGHT_E4M3) return OK;
    if (!p->transposed) {
        x = factors_entry(w, x);
        n = x->shape[0] * x->shape[1];
    }
    w->beside[k] = malloc((size_t)n * sizeof *w->beside[k]);
    if (!w->beside[k]) return FAIL(e, ERR_MEMORY, "no host memory for %s", x->name);
    return tensor_read(&w->files, x, 0, n, w->beside[k], e);
}

static enum status prepare(void *user, const struct param *param, struct err *e) {
    struct weights *w = user;
    struct weight_part part[WEIGHT_PARTS_MAX];
    int n = parts_of(w, param->name, param->rows, param->cols, part);
    drop_beside(w);
    for (int k = 0; k < n; k++) TRY(load_beside(w, &part[k], k, e));
    return OK;
}

/* Elements of a transposed tensor. */
static void take_transposed(const float *whole, const struct weight_part *p, int64_t first,
                            int64_t count, float *out) {
    for (int64_t i = 0; i < count; i++) {
        int64_t row = (first + i) / p->cols, col = (first + i) % p->cols;
        out[i] = whole[col * p->rows + row];
    }
}

/* Multiplies elements of an E4M3 tensor by the factors of their blocks. */
static void apply_factors(const float *factors, int64_t cols, int64_t first, int64_t count,
                          float *out) {
    int64_t across = blocks_count(cols);
    for (int64_t i = 0; i < count; i++) {
        int64_t row = (first + i) / cols, col = (first + i) % cols;
        out[i] *= factors[row / BLOCK_ROWS * across + col / BLOCK_ROWS];
    }
}

static enum status read_param(void *user, const struct param *param, int64_t first, int64_t count,
                              float *out, struct err *e) {
    const struct weights *w = user;
    struct weight_part part[WEIGHT_PARTS_MAX];
    int n = parts_of(w, param->name, param->rows, param->cols, part);
    int64_t begin = 0; /* of the part, in the parameter's elements */
    for (int k = 0; k < n && count > 0; k++) {
        int64_t size = part[k].rows * (part[k].cols ? part[k].cols : 1);
        int64_t at = first - begin, here = begin + size - first;
        const struct tensor_entry *x = entry_of(w, &part[k]);
        begin += size;
        if (here <= 0) continue;
        if (here > count) here = count;
        if (part[k].transposed) take_transposed(w->beside[k], &part[k], at, here, out);
        else TRY(tensor_read(&w->files, x, at, here, out, e));
        if (x->type == WEIGHT_E4M3) apply_factors(w->beside[k], x->shape[1], at, here, out);
        first += here;
        count -= here;
        out += here;
    }
    return OK;
}

struct weight_source weights_source(struct weights *w) {
    return (struct weight_source){ .prepare = prepare, .read = read_param, .user = w };
}
