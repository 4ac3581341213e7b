#include "runner/weights/llmc_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/dtype.h"
#include "model/params.h"
#include "runner/base/run_files.h"

enum { MAGIC_GPT2 = 20240326, MAGIC_LLAMA = 20240803, HEADER_BYTES = 1024,
       VERSION_F32 = 3, VERSION_BF16 = 5, SIZE_MAX_ = 1 << 24 };

struct sizes { int64_t length, vocab, layers, width, vocab_padded; };

/* The tensors in the order of the file; those of a layer are stacked over all layers. Rows and
 * columns are in units of the width; 0 columns: a vector. */
struct row { const char *name; int rows, cols; };
static const struct row LAYER[] = {
    { "norm1.weight", 1, 0 },  { "norm1.bias", 1, 0 },    { "qkv.weight", 3, 1 },
    { "qkv.bias", 3, 0 },      { "attn_out.weight", 1, 1 }, { "attn_out.bias", 1, 0 },
    { "norm2.weight", 1, 0 },  { "norm2.bias", 1, 0 },    { "ffn_in.weight", 4, 1 },
    { "ffn_in.bias", 4, 0 },   { "ffn_out.weight", 1, 4 }, { "ffn_out.bias", 1, 0 },
};
enum { LAYER_ROWS = sizeof LAYER / sizeof *LAYER };

static int64_t header_at(const unsigned char *header, int i) {
    return (int32_t)(uint32_t)load_le(header + 4 * i, 4);
}

static enum status read_sizes(const struct input_file *f, const unsigned char *header,
                              struct sizes *s, enum weight_type *type, struct err *e) {
    int64_t version = header_at(header, 1);
    if (version != VERSION_F32 && version != VERSION_BF16)
        return FAIL(e, ERR_CONFIG, "%s: version %" PRId64 " of llm.c's model files; expected 3 "
                    "(f32) or 5 (bf16)", f->path, version);
    *type = version == VERSION_F32 ? WEIGHT_F32 : WEIGHT_BF16;
    *s = (struct sizes){ header_at(header, 2), header_at(header, 3), header_at(header, 4),
                         header_at(header, 6), header_at(header, 7) };
    bool fits = s->length > 0 && s->length <= SIZE_MAX_ && s->vocab > 0 &&
                s->vocab <= s->vocab_padded && s->vocab_padded <= SIZE_MAX_ && s->layers > 0 &&
                s->layers <= 4096 && s->width > 0 && s->width <= 1 << 20;
    if (fits) return OK;
    return FAIL(e, ERR_FORMAT, "%s: length %" PRId64 ", vocabulary %" PRId64 " of %" PRId64
                ", %" PRId64 " layers, width %" PRId64 ": not the sizes of a GPT-2", f->path,
                s->length, s->vocab, s->vocab_padded, s->layers, s->width);
}

/* Appends a tensor of rows x cols at *at, of which `kept` rows are read, and advances *at. */
static enum status add(struct tensor_files *t, enum weight_type type, const char *name,
                       int64_t rows, int64_t kept, int64_t cols, int64_t *at, struct err *e) {
    int64_t size = (type == WEIGHT_F32 ? 4 : 2) * (cols ? cols : 1);
    struct tensor_entry *x = &t->entry[t->count++];
    *x = (struct tensor_entry){ .name = strdup(name), .type = type, .rank = cols ? 2 : 1,
                                .shape = { kept, cols }, .bytes = kept * size, .at = *at };
    snprintf(x->type_name, sizeof x->type_name, "%s", type == WEIGHT_F32 ? "F32" : "BF16");
    *at += rows * size;
    return x->name ? OK : FAIL(e, ERR_MEMORY, "the tensors of a model file");
}

static enum status add_all(struct tensor_files *t, const struct sizes *s, enum weight_type type,
                           int64_t *at, struct err *e) {
    int64_t width = s->width;
    t->entry = calloc((size_t)(LAYER_ROWS * s->layers + 4), sizeof *t->entry);
    if (!t->entry) return FAIL(e, ERR_MEMORY, "the tensors of a model file");
    TRY(add(t, type, "embed.weight", s->vocab_padded, s->vocab, width, at, e));
    TRY(add(t, type, "position.weight", s->length, s->length, width, at, e));
    for (int i = 0; i < LAYER_ROWS; i++)
        for (int64_t l = 0; l < s->layers; l++) {
            char name[64];
            int64_t rows = LAYER[i].rows * width;
            snprintf(name, sizeof name, "layers.%" PRId64 ".%s", l, LAYER[i].name);
            TRY(add(t, type, name, rows, rows, LAYER[i].cols * width, at, e));
        }
    TRY(add(t, type, "final_norm.weight", width, width, 0, at, e));
    return add(t, type, "final_norm.bias", width, width, 0, at, e);
}

/* ---- reading --------------------------------------------------------------------------------- */

enum status llmc_open(const char *path, struct tensor_files *out, bool *is, struct err *e) {
    unsigned char header[HEADER_BYTES];
    struct sizes s = { 0 };
    enum weight_type type = WEIGHT_OTHER;
    int64_t at = HEADER_BYTES;
    *out = (struct tensor_files){ 0 };
    *is = false;
    if (!path_exists(path) || path_is_directory(path)) return OK;
    out->file = calloc(1, sizeof *out->file);
    if (!out->file) return FAIL(e, ERR_MEMORY, "a file of weights");
    TRY(input_open(out->file, path, e));
    out->file_count = 1;
    const struct input_file *f = out->file;
    if (f->bytes < HEADER_BYTES) return OK;
    TRY(input_read(f, 0, HEADER_BYTES, header, e));
    int64_t magic = header_at(header, 0);
    *is = magic == MAGIC_GPT2 || magic == MAGIC_LLAMA;
    if (!*is) return OK;
    if (magic == MAGIC_LLAMA)
        return FAIL(e, ERR_CONFIG, "%s: llm.c's file of a Llama; its layout is not fixed: several "
                    "have this version. Give the Hugging Face folder that it was made of", path);
    TRY(read_sizes(f, header, &s, &type, e));
    TRY(add_all(out, &s, type, &at, e));
    if (at != f->bytes)
        return FAIL(e, ERR_FORMAT, "%s: %" PRId64 " bytes; a model of its header has %" PRId64
                    " (truncated?)", path, f->bytes, at);
    return tensor_files_finish(out, e);
}

/* ---- writing --------------------------------------------------------------------------------- */

enum { CHUNK = 1 << 20 }; /* elements converted at a time */

struct output {
    FILE *f;
    const struct params *params;
    const struct weight_source *source;
    float *values; /* owned: CHUNK */
    bool f32;
};

static enum status check_model(const struct model_config *c, struct err *e) {
    bool gpt2 = c->positions == POSITION_LEARNED && c->norm == NORM_LAYER && c->bias && c->tied &&
                c->activation == ACTIVATION_GELU && !c->qk_norm && !c->window &&
                c->kv_heads == c->heads && c->heads * c->head_dim == c->width &&
                c->ffn == 4 * c->width;
    if (gpt2) return OK;
    return FAIL(e, ERR_CONFIG, "llm.c's file has a GPT-2: learned positions, layernorm, gelu, "
                "bias, tied, as many kv_heads as heads, ffn = 4 * width; this model differs");
}

static enum status put_values(struct output *o, float *values, int64_t n, struct err *e) {
    unsigned char *to = (unsigned char *)values;
    int64_t size = o->f32 ? 4 : 2;
    for (int64_t i = 0; !o->f32 && i < n; i++) {
        uint16_t code = bf16_encode(values[i]);
        memcpy(to + 2 * i, &code, 2);
    }
    if (fwrite(values, (size_t)size, (size_t)n, o->f) == (size_t)n) return OK;
    return FAIL(e, ERR_IO, "write weights: %s", strerror(errno));
}

static enum status put_param(struct output *o, const char *name, struct err *e) {
    const struct param *p = params_find(o->params, "%s", name);
    int64_t count = param_count(p), padded = param_count_padded(p);
    for (int64_t at = 0; at < padded; at += CHUNK) {
        int64_t n = padded - at < CHUNK ? padded - at : CHUNK, here = count - at;
        if (here > n) here = n;
        memset(o->values, 0, (size_t)n * sizeof *o->values);
        if (here > 0) TRY(o->source->read(o->source->user, p, at, here, o->values, e));
        TRY(put_values(o, o->values, n, e));
    }
    return OK;
}

static enum status put_all(struct output *o, const struct model_config *c, struct err *e) {
    const int32_t sizes[] = { MAGIC_GPT2, o->f32 ? VERSION_F32 : VERSION_BF16, (int32_t)c->seq_len,
                              (int32_t)c->vocab, (int32_t)c->layers, (int32_t)c->heads,
                              (int32_t)c->width, (int32_t)model_vocab_padded(c) };
    unsigned char header[HEADER_BYTES] = { 0 };
    for (size_t i = 0; i < 4 * (sizeof sizes / sizeof *sizes); i++)
        header[i] = (unsigned char)((uint32_t)sizes[i / 4] >> i % 4 * 8);
    if (fwrite(header, 1, sizeof header, o->f) != sizeof header)
        return FAIL(e, ERR_IO, "write weights: %s", strerror(errno));
    TRY(put_param(o, "embed.weight", e));
    TRY(put_param(o, "position.weight", e));
    for (int i = 0; i < LAYER_ROWS; i++)
        for (int64_t l = 0; l < c->layers; l++) {
            char name[64];
            snprintf(name, sizeof name, "layers.%" PRId64 ".%s", l, LAYER[i].name);
            TRY(put_param(o, name, e));
        }
    TRY(put_param(o, "final_norm.weight", e));
    return put_param(o, "final_norm.bias", e);
}

enum status llmc_write(const char *path, const struct model_config *model,
                       const struct params *params, bool f32, const struct weight_source *source,
                       int64_t *bytes, struct err *e) {
    struct output o = { .params = params, .source = source, .f32 = f32 };
    TRY(check_model(model, e));
    o.values = malloc(CHUNK * sizeof *o.values);
    if (!o.values) return FAIL(e, ERR_MEMORY, "no host memory to convert weights");
    o.f = fopen(path, "wbxe");
    enum status st = o.f ? put_all(&o, model, e)
                         : FAIL(e, ERR_IO, "create %s: %s", path, strerror(errno));
    if (st == OK && (fflush(o.f) != 0 || fsync(fileno(o.f)) != 0))
        st = FAIL(e, ERR_IO, "write %s: %s", path, strerror(errno));
    if (st == OK) *bytes = (int64_t)ftello(o.f);
    if (o.f && fclose(o.f) != 0 && st == OK)
        st = FAIL(e, ERR_IO, "close %s: %s", path, strerror(errno));
    free(o.values);
    return st;
}
