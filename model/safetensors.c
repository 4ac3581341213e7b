#include "model/safetensors.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/ground/input_file.h"
#include "model/ground/json_safe.h"
#include "model/ground/sha256.h"

enum { HEADER_MAX = 100000000 };

const char *safetensors_dtype(enum dtype t) {
    switch (t) {
    case DTYPE_F32: return "F32";
    case DTYPE_BF16: return "BF16";
    case DTYPE_E4M3: return "F8_E4M3";
    case DTYPE_E5M2: return "F8_E5M2";
    case DTYPE_E8M0: return "F8_E8M0";
    case DTYPE_I32: return "I32";
    case DTYPE_U32: return "U32";
    case DTYPE_U64: return "U64";
    case DTYPE_E2M1: /* no file holds such codes */
    case DTYPE_COUNT: break;
    }
    return "";
}

enum status safetensors_add(struct safetensors *s, enum dtype dtype, int64_t rows, int64_t cols,
                            void *data, struct err *e, const char *format, ...) {
    if (s->count == s->capacity) {
        int64_t wanted = s->capacity ? 2 * s->capacity : 64;
        struct safetensor *fresh = realloc(s->tensor, (size_t)wanted * sizeof *fresh);
        if (!fresh) return FAIL(e, ERR_MEMORY, "no host memory for a list of tensors");
        s->tensor = fresh;
        s->capacity = wanted;
    }
    struct safetensor *t = &s->tensor[s->count++];
    memset(t, 0, sizeof *t);
    va_list args;
    va_start(args, format);
    vsnprintf(t->name, sizeof t->name, format, args);
    va_end(args);
    t->dtype = dtype;
    t->shape[0] = rows;
    t->shape[1] = cols;
    t->rank = cols ? 2 : 1;
    t->held = holding_whole(data, safetensor_bytes(t));
    return OK;
}

void safetensors_free(struct safetensors *s) {
    free(s->tensor);
    memset(s, 0, sizeof *s);
}

/* ---- reading ---- */

/* Checks one header entry against the expected tensor; *at is its first byte. */
static enum status check_tensor(const struct safetensor *t, const json_t *header, int64_t space,
                                const char *path, int64_t *at, struct err *e) {
    const json_t *entry = json_object_get(header, t->name);
    if (!entry) return FAIL(e, ERR_CONFIG, "%s: tensor %s is missing", path, t->name);
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!dtype || strcmp(dtype, safetensors_dtype(t->dtype)) != 0)
        return FAIL(e, ERR_CONFIG, "%s: %s is %s, wanted %s", path, t->name,
                    dtype ? dtype : "untyped", safetensors_dtype(t->dtype));
    const json_t *shape = json_object_get(entry, "shape");
    bool same = json_array_size(shape) == (size_t)t->rank;
    for (int i = 0; same && i < t->rank; i++)
        same = json_integer_value(json_array_get(shape, (size_t)i)) == t->shape[i];
    if (!same)
        return FAIL(e, ERR_CONFIG, "%s: %s does not have %d dimensions of %lld by %lld", path,
                    t->name, t->rank, (long long)t->shape[0],
                    (long long)(t->rank == 2 ? t->shape[1] : 1));
    const json_t *range = json_object_get(entry, "data_offsets");
    int64_t begin = json_integer_value(json_array_get(range, 0));
    int64_t end = json_integer_value(json_array_get(range, 1));
    if (begin < 0 || end < begin || end > space || end - begin != safetensor_bytes(t))
        return FAIL(e, ERR_FORMAT, "%s: %s has bytes %lld to %lld of %lld", path, t->name,
                    (long long)begin, (long long)end, (long long)space);
    *at = begin;
    return OK;
}

static enum status check_names(const struct safetensors *s, const json_t *header, const char *path,
                               struct err *e) {
    size_t extra = json_object_get(header, "__metadata__") ? 1 : 0;
    if (s->partial || json_object_size(header) == (size_t)s->count + extra) return OK;
    return FAIL(e, ERR_CONFIG, "%s: %zu tensors, wanted %lld", path,
                json_object_size(header) - extra, (long long)s->count);
}

/* Reads the header and checks it against the expected tensors; *start is their first byte. */
static enum status read_header(const struct safetensors *s, const struct input_file *f,
                               json_t **header, int64_t *start, struct err *e) {
    unsigned char at[8] = { 0 };
    if (f->bytes >= 8) TRY(input_read(f, 0, 8, at, e));
    uint64_t length = load_le(at, 8);
    if (length < 2 || length > HEADER_MAX || (int64_t)length > f->bytes - 8)
        return FAIL(e, ERR_FORMAT, "%s: %lld bytes with a header of %llu (truncated?)", f->path,
                    (long long)f->bytes, (unsigned long long)length);
    json_error_t why;
    char *text = malloc((size_t)length);
    if (!text) return FAIL(e, ERR_MEMORY, "no host memory for the header of %s", f->path);
    enum status st = input_read(f, 8, (int64_t)length, text, e);
    if (st == OK && (st = json_parse(header, text, (size_t)length, JSON_REJECT_DUPLICATES, &why)))
        FAIL(e, st, "%s: header: %s", f->path, why.text);
    free(text);
    if (st != OK) return st;
    if (!json_is_object(*header))
        return FAIL(e, ERR_FORMAT, "%s: the header is not a JSON object", f->path);
    *start = 8 + (int64_t)length;
    int64_t ignored;
    for (int64_t i = 0; i < s->count; i++)
        TRY(check_tensor(&s->tensor[i], *header, f->bytes - *start, f->path, &ignored, e));
    return check_names(s, *header, f->path, e);
}

/* `from` (the tensor's first byte in the file) and `piece` (PIECE_BYTES) are rank 0's. After a read
 * error rank 0 continues to send pieces, because the other ranks do not know of the error yet. */
static enum status read_tensor(const struct safetensor *t, const struct pieces *p,
                               const struct input_file *f, int64_t from, char *piece,
                               struct err *e) {
    enum status st = OK;
    int64_t bytes = safetensor_bytes(t);
    for (int64_t at = 0; at < bytes; at += PIECE_BYTES) {
        int64_t n = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        struct err lost;
        if (p->rank == 0 && st == OK) st = input_read(f, from + at, n, piece, e);
        enum status moved = pieces_write(p, &t->held, at, n, piece, st == OK ? e : &lost);
        if (st == OK) st = moved;
    }
    return st;
}

/* Rank 0, before any copy. */
static enum status begin_reading(const struct safetensors *s, const char *path,
                                 struct input_file *f, char **piece, json_t **header,
                                 int64_t *start, struct err *e) {
    *piece = calloc(1, PIECE_BYTES);
    if (!*piece) return FAIL(e, ERR_MEMORY, "no host memory to read %s", path);
    TRY(input_open(f, path, e));
    return read_header(s, f, header, start, e);
}

enum status safetensors_read(const struct safetensors *s, const struct pieces *p, const char *path,
                             struct err *e) {
    struct input_file f = { 0 };
    json_t *header = NULL;
    char *piece = NULL;
    int64_t start = 0;
    enum status st = p->rank == 0 ? begin_reading(s, path, &f, &piece, &header, &start, e) : OK;
    st = pieces_agree(p, st, path, e);
    for (int64_t i = 0; st == OK && i < s->count; i++) {
        const struct safetensor *t = &s->tensor[i];
        int64_t at = 0;
        if (p->rank == 0) st = check_tensor(t, header, f.bytes - start, path, &at, e);
        if (st == OK) st = read_tensor(t, p, &f, start + at, piece, e);
        st = pieces_agree(p, st, path, e);
    }
    json_decref(header);
    free(piece);
    input_close(&f);
    return st;
}
