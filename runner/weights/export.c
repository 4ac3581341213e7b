#include "runner/weights/export.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/dtype.h"
#include "model/ground/json_safe.h"
#include "model/ground/parallel.h"
#include "model/params.h"
#include "runner/base/run_files.h"
#include "runner/weights/blocks.h"
#include "runner/weights/export_source.h"
#include "runner/weights/hf_config.h"
#include "runner/weights/hf_names.h"
#include "runner/weights/llmc_file.h"

const char *const EXPORT_TYPE_NAMES[] = { "bf16", "f32", "fp8-block", NULL };

enum { CHUNK = 1 << 20 }; /* elements converted at a time */

/* One tensor to write: a part of a parameter, or the factors of the part written before it. */
struct piece {
    char name[WEIGHT_NAME_CAP + 16];
    const struct param *param;
    struct weight_part part;
    int64_t first;  /* of the part, in the parameter's elements */
    bool codes, factors;
    int64_t bytes, file;
    int64_t at;     /* its first byte in the file */
};

struct job {
    const struct export_request *request;
    struct params params;
    struct export_source source;
    struct piece *piece;                  /* owned */
    int64_t count, file_count;
};

/* A file being written. Each thread has a copy for the tensor that it writes. */
struct writing {
    struct job *job;
    int fd;
    const char *path;
    int64_t first;   /* of the file's pieces */
    int64_t at;      /* where the next bytes go */
    float *values;   /* owned: CHUNK, or what a transposed or quantised tensor needs */
    struct blocks blocks; /* of codes */
};

static int64_t part_count(const struct weight_part *p) {
    return p->rows * (p->cols ? p->cols : 1);
}

/* ---- what is written --------------------------------------------------------------------------*/

static enum status add(struct job *j, const struct piece *p, struct err *e) {
    if (j->count % 256 == 0) {
        struct piece *more = realloc(j->piece, ((size_t)j->count + 256) * sizeof *more);
        if (!more) return FAIL(e, ERR_MEMORY, "a list of tensors");
        j->piece = more;
    }
    j->piece[j->count++] = *p;
    return OK;
}

static enum status add_part(struct job *j, const struct param *param,
                            const struct weight_part *part, int64_t first, struct err *e) {
    const struct export_request *q = j->request;
    struct piece p = { .param = param, .part = *part, .first = first };
    snprintf(p.name, sizeof p.name, "%.159s", part->name);
    if (q->type == EXPORT_FP8_BLOCK)
        TRY(blocks_wanted(q->recipe, param->name, first, part, &p.codes, e));
    int64_t size = p.codes ? 1 : q->type == EXPORT_F32 ? 4 : 2;
    p.bytes = part_count(part) * size;
    TRY(add(j, &p, e));
    if (!p.codes) return OK;
    p.factors = true;
    p.codes = false;
    p.bytes = 4 * blocks_count(part->rows) * blocks_count(part->cols);
    snprintf(p.name, sizeof p.name, "%.159s_scale_inv", part->name);
    return add(j, &p, e);
}

/* Cuts the list into files of at most shard_bytes; codes and their factors stay together. */
static void cut(struct job *j) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < j->count; i++) {
        struct piece *p = &j->piece[i];
        int64_t both = p->bytes + (p->codes ? j->piece[i + 1].bytes : 0);
        if (bytes && !p->factors && bytes + both > j->request->shard_bytes) {
            j->file_count++;
            bytes = 0;
        }
        p->file = j->file_count;
        bytes += p->bytes;
    }
    j->file_count++;
}

static enum status plan(struct job *j, struct err *e) {
    struct weight_part part[WEIGHT_PARTS_MAX];
    bool any = false;
    for (int i = 0; i < j->params.count; i++) {
        const struct param *p = &j->params.param[i];
        int n = hf_names_parts(j->request->model, p->name, p->rows, p->cols, part);
        int64_t first = 0;
        for (int k = 0; k < n; k++, first += part_count(&part[k - 1]))
            TRY(add_part(j, p, &part[k], first, e));
    }
    for (int64_t i = 0; i < j->count; i++) any = any || j->piece[i].codes;
    if (j->request->type == EXPORT_FP8_BLOCK && !any)
        return FAIL(e, ERR_CONFIG, "the run's recipe has no weights with a scale for each 128 x "
                    "128 block: fp8-block needs fp8.blockwise");
    cut(j);
    return OK;
}

/* ---- bytes ------------------------------------------------------------------------------------*/

static enum status put(struct writing *w, const void *bytes, int64_t n, struct err *e) {
    const char *from = bytes;
    while (n > 0) {
        ssize_t done = pwrite(w->fd, from, (size_t)n, w->at);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return FAIL(e, ERR_IO, "write %s: %s", w->path, strerror(errno));
        from += done;
        w->at += done;
        n -= done;
    }
    return OK;
}

/* Converts the values in place, and writes them. */
static enum status put_values(struct writing *w, float *values, int64_t n, struct err *e) {
    if (w->job->request->type == EXPORT_F32) return put(w, values, 4 * n, e);
    unsigned char *to = (unsigned char *)values;
    for (int64_t i = 0; i < n; i++) {
        uint16_t code = bf16_encode(values[i]);
        memcpy(to + 2 * i, &code, 2);
    }
    return put(w, values, 2 * n, e);
}

static enum status need(struct writing *w, int64_t elements, struct err *e) {
    w->values = malloc((size_t)elements * sizeof *w->values);
    if (w->values) return OK;
    return FAIL(e, ERR_MEMORY, "no host memory for %" PRId64 " values", elements);
}

/* The second half of `values` receives the transposed copy. */
static enum status put_transposed(struct writing *w, const struct piece *p, struct err *e) {
    int64_t rows = p->part.rows, cols = p->part.cols, n = rows * cols;
    TRY(need(w, 2 * n, e));
    TRY(export_source_read(&w->job->source, p->param, p->first, n, w->values, e));
    float *to = w->values + n;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) to[c * rows + r] = w->values[r * cols + c];
    return put_values(w, to, n, e);
}

/* The codes of a tensor; its factors are the next piece. */
static enum status put_codes(struct writing *w, const struct piece *p, struct err *e) {
    const struct weight_part *x = &p->part;
    struct job *j = w->job;
    TRY(blocks_begin(&w->blocks, j->request->recipe, p->param->name, x->rows, x->cols, e));
    TRY(need(w, BLOCK_ROWS * x->cols, e));
    for (int64_t row = 0; row < x->rows; row += BLOCK_ROWS) {
        int64_t rows = x->rows - row < BLOCK_ROWS ? x->rows - row : BLOCK_ROWS;
        unsigned char *codes = (unsigned char *)w->values; /* one byte never overtakes four */
        TRY(export_source_read(&j->source, p->param, p->first + row * x->cols, rows * x->cols,
                               w->values, e));
        blocks_quantise(&w->blocks, row / BLOCK_ROWS, rows, w->values, codes);
        TRY(put(w, codes, rows * x->cols, e));
    }
    return put(w, w->blocks.factor, p[1].bytes, e);
}

static enum status put_plain(struct writing *w, const struct piece *p, struct err *e) {
    int64_t count = part_count(&p->part);
    TRY(need(w, CHUNK, e));
    for (int64_t at = 0; at < count; at += CHUNK) {
        int64_t n = count - at < CHUNK ? count - at : CHUNK;
        TRY(export_source_read(&w->job->source, p->param, p->first + at, n, w->values, e));
        TRY(put_values(w, w->values, n, e));
    }
    return OK;
}

/* One piece of the file, by one of several threads. */
static enum status put_piece(void *user, int64_t i, struct err *e) {
    struct writing w = *(const struct writing *)user; /* with memory of its own */
    const struct piece *p = &w.job->piece[w.first + i];
    if (p->factors) return OK; /* written with its codes */
    w.at = p->at;
    enum status st = p->codes ? put_codes(&w, p, e)
                     : p->part.transposed ? put_transposed(&w, p, e) : put_plain(&w, p, e);
    blocks_free(&w.blocks);
    free(w.values);
    return st;
}

/* ---- files ------------------------------------------------------------------------------------*/

static json_t *shape_of(const struct piece *p) {
    const struct weight_part *x = &p->part;
    int64_t rows = x->rows, cols = x->cols;
    if (p->factors) rows = blocks_count(rows), cols = blocks_count(cols);
    if (!cols) return json_pack("[I]", (json_int_t)rows);
    return x->transposed ? json_pack("[II]", (json_int_t)cols, (json_int_t)rows)
                         : json_pack("[II]", (json_int_t)rows, (json_int_t)cols);
}

/* Sets where the file's pieces begin, and writes what says so. */
static enum status put_header(struct writing *w, int64_t end, struct err *e) {
    const struct job *j = w->job;
    json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    bool failed = false;
    int64_t at = 0;
    for (int64_t i = w->first; i < end; i++) {
        struct piece *p = &w->job->piece[i];
        const char *type = p->codes ? "F8_E4M3"
                           : p->factors || j->request->type == EXPORT_F32 ? "F32" : "BF16";
        json_put(root, p->name, json_pack("{s:s,s:o,s:[II]}", "dtype", type, "shape", shape_of(p),
                                          "data_offsets", (json_int_t)at,
                                          (json_int_t)(at + p->bytes)), &failed);
        p->at = at;
        at += p->bytes;
    }
    char *text = failed ? NULL : json_dump_text(root, JSON_COMPACT);
    json_decref(root);
    if (!text) return FAIL(e, ERR_MEMORY, "the header of weights");
    size_t n = strlen(text), padded = (n + 7) / 8 * 8;
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(padded >> 8 * i);
    enum status st = put(w, length, 8, e);
    if (st == OK) st = put(w, text, (int64_t)n, e);
    if (st == OK) st = put(w, "       ", (int64_t)(padded - n), e);
    free(text);
    for (int64_t i = w->first; i < end; i++) w->job->piece[i].at += w->at;
    return st;
}

static void file_name(const struct job *j, int64_t file, char name[64]) {
    if (j->file_count == 1) snprintf(name, 64, "model.safetensors");
    else snprintf(name, 64, "model-%05" PRId64 "-of-%05" PRId64 ".safetensors", file + 1,
                  j->file_count);
}

/* The pieces first .. end-1 are those of one file. Several threads write it. */
static enum status write_file(struct job *j, int64_t first, int64_t end,
                              struct export_report *out, struct err *e) {
    char path[PATH_CAP], name[64];
    file_name(j, j->piece[first].file, name);
    TRY(path_join(path, j->request->to, name, e));
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return FAIL(e, ERR_IO, "create %s: %s", path, strerror(errno));
    struct writing w = { .job = j, .fd = fd, .path = path, .first = first };
    enum status st = put_header(&w, end, e);
    if (st == OK) st = parallel_each(end - first, parallel_processors(), put_piece, &w, e);
    if (st == OK && fsync(fd) != 0) st = FAIL(e, ERR_IO, "sync %s: %s", path, strerror(errno));
    out->bytes += j->piece[end - 1].at + j->piece[end - 1].bytes;
    if (close(fd) != 0 && st == OK) st = FAIL(e, ERR_IO, "close %s: %s", path, strerror(errno));
    return st;
}

static enum status put_json(const struct job *j, const char *name, json_t *value, struct err *e) {
    char path[PATH_CAP];
    enum status st = value ? path_join(path, j->request->to, name, e)
                           : FAIL(e, ERR_MEMORY, "%s", name);
    if (st == OK) st = json_file_write(path, value, e);
    json_decref(value);
    return st;
}

static enum status write_index(const struct job *j, struct err *e) {
    json_t *map = json_object();
    bool failed = false;
    int64_t bytes = 0;
    if (j->file_count == 1) {
        json_decref(map);
        return OK;
    }
    for (int64_t i = 0; i < j->count; i++) {
        char name[64];
        file_name(j, j->piece[i].file, name);
        json_put(map, j->piece[i].name, json_string(name), &failed);
        bytes += j->piece[i].bytes;
    }
    json_t *index = json_pack("{s:{s:I},s:o}", "metadata", "total_size", (json_int_t)bytes,
                              "weight_map", map);
    return put_json(j, "model.safetensors.index.json", json_whole(index, failed), e);
}

/* Linear layers that stay in BF16, without ".weight". */
static json_t *quantization(const struct job *j) {
    json_t *plain = json_array();
    bool failed = false;
    for (int64_t i = 0; i < j->count; i++) {
        const struct piece *p = &j->piece[i];
        size_t n = strlen(p->name);
        if (p->codes || p->factors || !p->param->gemm || n < 7) continue;
        json_append(plain, json_stringn(p->name, n - 7), &failed);
    }
    return json_pack("{s:s,s:s,s:s,s:[ii],s:o}", "quant_method", "fp8", "fmt", "e4m3",
                     "activation_scheme", "dynamic", "weight_block_size", 128, 128,
                     "modules_to_not_convert", json_whole(plain, failed));
}

/* Adds an id, or each of a list, that `to` lacks. */
static void add_ids(json_t *to, const json_t *ids, bool *failed) {
    const json_t *item;
    size_t i;
    json_array_foreach(ids, i, item) add_ids(to, item, failed);
    if (!json_is_integer(ids)) return;
    json_array_foreach(to, i, item) if (json_equal(item, ids)) return;
    json_append(to, json_deep_copy(ids), failed);
}

/* generation_config.json: the one that the run began with, or one of these ids. */
static json_t *generation_of(const struct export_request *q, const json_t *config) {
    static const char *const IDS[] = { "bos_token_id", "eos_token_id", "pad_token_id" };
    if (q->generation) return json_deep_copy(q->generation);
    json_t *made = json_pack("{s:b}", "_from_model_config", true), *ends = json_array();
    bool failed = !made || !ends;
    for (size_t i = 0; i < sizeof IDS / sizeof *IDS; i++) {
        json_t *id = json_object_get(config, IDS[i]);
        if (id) json_put(made, IDS[i], json_incref(id), &failed);
    }
    add_ids(ends, json_object_get(config, "eos_token_id"), &failed);
    add_ids(ends, q->ends, &failed);
    if (json_array_size(q->ends)) json_put(made, "eos_token_id", json_incref(ends), &failed);
    json_decref(ends);
    return json_whole(made, failed);
}

static enum status write_configs(const struct job *j, struct err *e) {
    const struct export_request *q = j->request;
    json_t *config = NULL;
    bool failed = false;
    TRY(hf_config_write(q->model, q->type == EXPORT_F32 ? "float32" : "bfloat16", q->base, &config,
                        e));
    if (q->type == EXPORT_FP8_BLOCK)
        json_put(config, "quantization_config", quantization(j), &failed);
    enum status st = put_json(j, "config.json", json_whole(json_incref(config), failed), e);
    if (st == OK) st = put_json(j, "generation_config.json", generation_of(q, config), e);
    json_decref(config);
    return st;
}

/* ---- the whole --------------------------------------------------------------------------------*/

static enum status open_weights(struct job *j, struct export_report *out, struct err *e) {
    const struct export_request *q = j->request;
    const struct param_options options = { .shard = { SHARD_NONE, 0, 1 } };
    TRY(hf_names_check(q->model, e));
    TRY(params_init(&j->params, q->model, &options, e));
    TRY(export_source_open(q->checkpoint, q->type == EXPORT_F32, &j->source, e));
    out->masters = j->source.has_masters;
    return OK;
}

/* Everything in one file, model.bin. */
static enum status write_llmc(struct job *j, struct export_report *out, struct err *e) {
    const struct export_request *q = j->request;
    const struct weight_source source = { .read = export_source_read, .user = &j->source };
    char path[PATH_CAP];
    if (q->type == EXPORT_FP8_BLOCK)
        return FAIL(e, ERR_CONFIG, "llm.c's files are bf16 or f32, not fp8-block");
    TRY(path_join(path, q->to, "model.bin", e));
    out->tensors = j->params.count;
    out->files = 1;
    return llmc_write(path, q->model, &j->params, q->type == EXPORT_F32, &source, &out->bytes, e);
}

static enum status write_hf(struct job *j, struct export_report *out, struct err *e) {
    TRY(plan(j, e));
    TRY(write_configs(j, e));
    for (int64_t first = 0, end; first < j->count; first = end) {
        for (end = first; end < j->count && j->piece[end].file == j->piece[first].file;) end++;
        TRY(write_file(j, first, end, out, e));
    }
    out->tensors = j->count;
    out->files = j->file_count;
    return write_index(j, e);
}

enum status export_write(const struct export_request *q, struct export_report *out,
                         struct err *e) {
    struct job j = { .request = q };
    *out = (struct export_report){ 0 };
    enum status st = open_weights(&j, out, e);
    if (st == OK) st = (q->llmc ? write_llmc : write_hf)(&j, out, e);
    if (st == OK) st = directory_sync(q->to, e);
    params_destroy(&j.params);
    export_source_close(&j.source);
    free(j.piece);
    return st;
}
