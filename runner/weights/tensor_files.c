#include "runner/weights/tensor_files.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dtype.h"
#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"

enum { HEADER_MAX = 100000000, NAME_MAX_ = 512, FILES_MAX = 4096, PIECE = 1 << 20 };

/* ---- one entry of a header --------------------------------------------------------------------*/

static const char *const TYPE_NAMES[] = { "F32", "F16", "BF16", "F8_E4M3" };
static int64_t type_bytes(enum weight_type t) {
    return t == WEIGHT_F32 ? 4 : t == WEIGHT_E4M3 ? 1 : 2;
}

void tensor_text(const struct tensor_entry *x, char out[96]) {
    int used = snprintf(out, 96, "%s [", x->type_name);
    for (int i = 0; i < x->rank && i < TENSOR_DIMS && used < 80; i++)
        used += snprintf(out + used, 96 - (size_t)used, "%s%" PRId64, i ? ", " : "", x->shape[i]);
    snprintf(out + used, 96 - (size_t)used, x->rank > TENSOR_DIMS ? ", ...]" : "]");
}

/* The number of elements; -1 if it is no shape, or above 2^48. */
static int64_t read_shape(const json_t *shape, struct tensor_entry *x) {
    const json_t *dim;
    size_t i;
    int64_t n = 1;
    if (!json_is_array(shape)) return -1;
    x->rank = json_array_size(shape) < 64 ? (int)json_array_size(shape) : 64;
    json_array_foreach(shape, i, dim) {
        int64_t d = json_integer_value(dim);
        if (!json_is_integer(dim) || d < 0 || d > (int64_t)1 << 40) return -1;
        if (i < TENSOR_DIMS) x->shape[i] = d;
        if (d > 0 && n > ((int64_t)1 << 48) / d) return -1;
        n *= d;
    }
    return n;
}

/* `space`: bytes behind the header, which begin at `start`. */
static enum status read_entry(const char *name, const json_t *json, const struct input_file *f,
                              int64_t start, struct tensor_entry *x, struct err *e) {
    const char *type = json_string_value(json_object_get(json, "dtype"));
    const json_t *range = json_object_get(json, "data_offsets");
    int64_t begin = json_integer_value(json_array_get(range, 0));
    int64_t end = json_integer_value(json_array_get(range, 1)), space = f->bytes - start;
    if (strlen(name) > NAME_MAX_ || !type || json_array_size(range) != 2)
        return FAIL(e, ERR_FORMAT, "%s: the entry of %.80s has no dtype or data_offsets", f->path,
                    name);
    snprintf(x->type_name, sizeof x->type_name, "%s", type);
    x->type = WEIGHT_OTHER;
    for (int t = 0; t < WEIGHT_OTHER; t++)
        if (!strcmp(type, TYPE_NAMES[t])) x->type = (enum weight_type)t;
    int64_t n = read_shape(json_object_get(json, "shape"), x);
    if (x->rank > TENSOR_DIMS) x->type = WEIGHT_OTHER;
    bool fits = n >= 0 && begin >= 0 && end >= begin && end <= space;
    if (x->type != WEIGHT_OTHER) fits = fits && end - begin == n * type_bytes(x->type);
    if (!fits)
        return FAIL(e, ERR_FORMAT, "%s: %.80s has bytes %" PRId64 " to %" PRId64 " of %" PRId64
                    ", which is not its shape (truncated?)", f->path, name, begin, end, space);
    x->at = start + begin;
    x->bytes = end - begin;
    x->name = strdup(name);
    return x->name ? OK : FAIL(e, ERR_MEMORY, "the tensors of %s", f->path);
}

/* ---- one file ---------------------------------------------------------------------------------*/

static enum status read_header(const struct input_file *f, json_t **header, int64_t *start,
                               struct err *e) {
    unsigned char at[8] = { 0 };
    json_error_t why;
    if (f->bytes >= 8) TRY(input_read(f, 0, 8, at, e));
    uint64_t length = load_le(at, 8);
    if (length < 2 || length > HEADER_MAX || (int64_t)length > f->bytes - 8)
        return FAIL(e, ERR_FORMAT, "%s: %" PRId64 " bytes with a header of %" PRIu64 "; expected "
                    "a safetensors file (truncated?)", f->path, f->bytes, length);
    char *text = malloc((size_t)length);
    if (!text) return FAIL(e, ERR_MEMORY, "the header of %s", f->path);
    enum status st = input_read(f, 8, (int64_t)length, text, e);
    if (st == OK && (st = json_parse(header, text, (size_t)length, JSON_REJECT_DUPLICATES, &why)))
        FAIL(e, st, "%s: header: %s", f->path, why.text);
    free(text);
    *start = 8 + (int64_t)length;
    if (st == OK && !json_is_object(*header))
        st = FAIL(e, ERR_FORMAT, "%s: the header is not a JSON object", f->path);
    return st;
}

static int by_place(const void *a, const void *b) {
    const struct tensor_entry *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* The format allows no gap, no byte in two tensors and no byte behind the last. */
static enum status check_places(struct tensor_entry *x, size_t count, const struct input_file *f,
                                int64_t start, struct err *e) {
    int64_t end = start;
    if (count) qsort(x, count, sizeof *x, by_place);
    for (size_t i = 0; i < count; i++) {
        if (x[i].at != end)
            return FAIL(e, ERR_FORMAT, "%s: %.80s begins at byte %" PRId64 " behind the header; "
                        "the tensor before it ends at %" PRId64, f->path, x[i].name,
                        x[i].at - start, end - start);
        end += x[i].bytes;
    }
    if (end == f->bytes) return OK;
    return FAIL(e, ERR_FORMAT, "%s: the tensors end at byte %" PRId64 " behind the header, the "
                "file at %" PRId64, f->path, end - start, f->bytes - start);
}

static enum status add_entries(struct tensor_files *t, const json_t *header, int64_t start,
                               struct err *e) {
    const struct input_file *f = &t->file[t->file_count - 1];
    const char *name;
    json_t *json;
    size_t more = json_object_size(header);
    struct tensor_entry *all =
        realloc(t->entry, ((size_t)t->count + more + 1) * sizeof *all);
    if (!all) return FAIL(e, ERR_MEMORY, "%zu tensors of %s", more, f->path);
    t->entry = all;
    int64_t first = t->count;
    json_object_foreach((json_t *)header, name, json) {
        struct tensor_entry x = { .file = t->file_count - 1 };
        if (!strcmp(name, "__metadata__")) continue;
        TRY(read_entry(name, json, f, start, &x, e));
        t->entry[t->count++] = x;
    }
    return check_places(t->entry + first, (size_t)(t->count - first), f, start, e);
}

static enum status add_file(struct tensor_files *t, const char *path, struct err *e) {
    json_t *header = NULL;
    int64_t start = 0;
    struct input_file *all = realloc(t->file, ((size_t)t->file_count + 1) * sizeof *all);
    if (!all) return FAIL(e, ERR_MEMORY, "files of weights");
    t->file = all;
    TRY(input_open(&t->file[t->file_count], path, e));
    t->file_count++;
    enum status st = read_header(&t->file[t->file_count - 1], &header, &start, e);
    if (st == OK) st = add_entries(t, header, start, e);
    json_decref(header);
    return st;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct tensor_entry *)a)->name, ((const struct tensor_entry *)b)->name);
}

enum status tensor_files_finish(struct tensor_files *t, struct err *e) {
    if (t->count) qsort(t->entry, (size_t)t->count, sizeof *t->entry, by_name);
    for (int64_t i = 1; i < t->count; i++)
        if (!strcmp(t->entry[i - 1].name, t->entry[i].name))
            return FAIL(e, ERR_FORMAT, "%s is in %s and in %s", t->entry[i].name,
                        t->file[t->entry[i - 1].file].path, t->file[t->entry[i].file].path);
    return OK;
}

/* ---- a folder ---------------------------------------------------------------------------------*/

static bool is_plain_name(const char *name) {
    return name && *name && *name != '.' && !strchr(name, '/') && strlen(name) < 256;
}

static bool was_added(const struct tensor_files *t, const char *path) {
    for (int64_t i = 0; i < t->file_count; i++)
        if (!strcmp(t->file[i].path, path)) return true;
    return false;
}

/* Each tensor must be in the shard that the index names. */
static enum status check_index(const struct tensor_files *t, const char *folder, const json_t *map,
                               struct err *e) {
    const char *name;
    json_t *file;
    json_object_foreach((json_t *)map, name, file) {
        char path[PATH_CAP];
        const struct tensor_entry *x = tensor_find(t, name);
        TRY(path_join(path, folder, json_string_value(file), e));
        if (!x || strcmp(t->file[x->file].path, path) != 0)
            return FAIL(e, ERR_FORMAT, "%s does not hold %.200s, as the index says", path, name);
    }
    return OK;
}

static enum status open_shards(struct tensor_files *t, const char *folder, const char *index,
                               struct err *e) {
    json_t *root = NULL, *file;
    const char *name;
    TRY(json_file_read(index, &root, e));
    const json_t *map = json_object_get(root, "weight_map");
    enum status st = json_object_size(map)
                         ? OK : FAIL(e, ERR_FORMAT, "%s has no weight_map", index);
    json_object_foreach((json_t *)map, name, file) {
        char path[PATH_CAP];
        const char *shard = json_string_value(file);
        if (st != OK) break;
        if (!is_plain_name(shard))
            st = FAIL(e, ERR_FORMAT, "%s: %.200s is in no file beside the index", index, name);
        if (st == OK) st = path_join(path, folder, shard, e);
        if (st == OK && was_added(t, path)) continue;
        if (st == OK && t->file_count == FILES_MAX)
            st = FAIL(e, ERR_FORMAT, "%s names more than %d files", index, FILES_MAX);
        if (st == OK && !path_exists(path))
            st = FAIL(e, ERR_CONFIG, "%s names %s, which is not there: download or copy the folder "
                      "again", index, shard);
        if (st == OK) st = add_file(t, path, e);
    }
    if (st == OK) st = tensor_files_finish(t, e);
    if (st == OK) st = check_index(t, folder, map, e);
    json_decref(root);
    return st;
}

static bool ends_with(const char *name, const char *suffix) {
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && !strcmp(name + n - m, suffix);
}

/* What a file of another format is, and how to convert it; NULL: its name says nothing. */
static const char *advice_for(const char *name) {
    static const struct { const char *suffix, *advice; } KINDS[] = {
        { ".distcp", "PyTorch's distributed checkpoint; convert it: python -m "
          "torch.distributed.checkpoint.format_utils dcp_to_torch DIR out.pt, then load out.pt and "
          "write it with model.save_pretrained(\"NEW\")" },
        { ".bin", "weights of torch.save; convert them: python -c 'from transformers import "
          "AutoModelForCausalLM as M; M.from_pretrained(\"DIR\").save_pretrained(\"NEW\")'" },
        { ".pth", "weights of torch.save; write them as safetensors with transformers: "
          "model.save_pretrained(\"NEW\")" },
        { ".pt", "weights of torch.save; write them as safetensors with transformers: "
          "model.save_pretrained(\"NEW\")" },
        { "snapshots", "the versions of a model in Hugging Face's cache; name a folder below "
          "snapshots/" },
        { ".gguf", "a GGUF file, with quantised weights; take the model's safetensors" },
    };
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (ends_with(name, KINDS[i].suffix)) return KINDS[i].advice;
    return NULL;
}

static enum status refuse_folder(const char *folder, struct err *e) {
    DIR *dir = opendir(folder);
    const char *advice = NULL;
    for (const struct dirent *d; dir && !advice && (d = readdir(dir));)
        advice = advice_for(d->d_name);
    if (dir) closedir(dir);
    return FAIL(e, ERR_CONFIG, "%s has neither model.safetensors nor model.safetensors.index.json"
                "%s%s", folder, advice ? "; it has " : "", advice ? advice : "");
}

enum status tensor_files_open(const char *path, struct tensor_files *out, struct err *e) {
    char one[PATH_CAP], index[PATH_CAP];
    *out = (struct tensor_files){ 0 };
    if (!path_is_directory(path)) {
        const char *advice = advice_for(path);
        if (advice) return FAIL(e, ERR_CONFIG, "%s is %s", path, advice);
        TRY(add_file(out, path, e));
        return tensor_files_finish(out, e);
    }
    TRY(path_join(one, path, "model.safetensors", e));
    TRY(path_join(index, path, "model.safetensors.index.json", e));
    if (path_exists(index)) return open_shards(out, path, index, e);
    if (!path_exists(one)) return refuse_folder(path, e);
    TRY(add_file(out, one, e));
    return tensor_files_finish(out, e);
}

void tensor_files_close(struct tensor_files *t) {
    for (int64_t i = 0; i < t->count; i++) free(t->entry[i].name);
    for (int64_t i = 0; i < t->file_count; i++) input_close(&t->file[i]);
    free(t->entry);
    free(t->file);
    *t = (struct tensor_files){ 0 };
}

struct tensor_entry *tensor_find(const struct tensor_files *t, const char *name) {
    struct tensor_entry key = { .name = (char *)name };
    if (!t->count) return NULL;
    return bsearch(&key, t->entry, (size_t)t->count, sizeof *t->entry, by_name);
}

/* ---- values -----------------------------------------------------------------------------------*/

static float f16_decode(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
    if (exponent == 31) return f32_from_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent) return f32_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    float small = (float)fraction * 0x1p-24f; /* exact */
    return sign ? -small : small;
}

/* Little-endian numbers at `raw`. Each loop has one type, so that the compiler can vectorise it. */
static void convert(enum weight_type type, const unsigned char *raw, int64_t n, float *out) {
    uint16_t half;
    switch (type) {
    case WEIGHT_F32: break; /* in place already */
    case WEIGHT_BF16:
        for (int64_t i = 0; i < n; i++) {
            memcpy(&half, raw + 2 * i, 2);
            out[i] = bf16_decode(half);
        }
        break;
    case WEIGHT_F16:
        for (int64_t i = 0; i < n; i++) {
            memcpy(&half, raw + 2 * i, 2);
            out[i] = f16_decode(half);
        }
        break;
    case WEIGHT_E4M3:
        for (int64_t i = 0; i < n; i++) out[i] = e4m3_decode(raw[i]);
        break;
    case WEIGHT_OTHER: break;
    }
}

enum status tensor_read(const struct tensor_files *t, const struct tensor_entry *x, int64_t first,
                        int64_t count, float *out, struct err *e) {
    int64_t size = type_bytes(x->type);
    /* The end of `out` receives the file's bytes; converting upwards never overtakes them. */
    unsigned char *raw = (unsigned char *)out + (4 - size) * count;
    TRY(input_read(&t->file[x->file], x->at + first * size, count * size, raw, e));
    convert(x->type, raw, count, out);
    return OK;
}

static enum status find_bad(const struct tensor_files *t, const struct tensor_entry *x,
                            float *piece, int64_t room, struct bad_element *out, struct err *e) {
    int64_t count = x->type == WEIGHT_OTHER ? 0 : x->bytes / type_bytes(x->type);
    for (int64_t first = 0; first < count; first += room) {
        int64_t n = count - first < room ? count - first : room;
        TRY(tensor_read(t, x, first, n, piece, e));
        for (int64_t i = 0; i < n; i++) {
            if (isfinite(piece[i])) continue;
            *out = (struct bad_element){ x, first + i, piece[i] };
            return OK;
        }
    }
    return OK;
}

enum status tensor_files_find_bad(const struct tensor_files *t, struct bad_element *out,
                                  struct err *e) {
    *out = (struct bad_element){ 0 };
    float *piece = malloc(PIECE);
    if (!piece) return FAIL(e, ERR_MEMORY, "a buffer to look for values that are not finite");
    enum status st = OK;
    for (int64_t i = 0; st == OK && i < t->count && !out->tensor; i++)
        st = find_bad(t, &t->entry[i], piece, PIECE / (int64_t)sizeof *piece, out, e);
    free(piece);
    return st;
}

enum status tensor_hash(const struct tensor_files *t, struct tensor_entry *x, struct err *e) {
    struct sha256 *sha = NULL;
    unsigned char *piece = malloc(PIECE);
    if (!piece) return FAIL(e, ERR_MEMORY, "a buffer to hash weights");
    enum status st = sha256_create(&sha, e);
    for (int64_t at = 0; st == OK && at < x->bytes; at += PIECE) {
        int64_t n = x->bytes - at < PIECE ? x->bytes - at : PIECE;
        st = input_read(&t->file[x->file], x->at + at, n, piece, e);
        if (st == OK) sha256_add(sha, piece, (size_t)n);
    }
    if (st == OK) sha256_finish(sha, x->sha256);
    sha256_destroy(sha);
    free(piece);
    return st;
}

enum status tensor_same(const struct tensor_files *t, const struct tensor_entry *a,
                        const struct tensor_entry *b, bool *same, struct err *e) {
    enum status st = OK;
    *same = a->type == b->type && a->bytes == b->bytes;
    unsigned char *piece = malloc(2 * PIECE);
    if (!piece) return FAIL(e, ERR_MEMORY, "a buffer to compare weights");
    for (int64_t at = 0; st == OK && *same && at < a->bytes; at += PIECE) {
        int64_t n = a->bytes - at < PIECE ? a->bytes - at : PIECE;
        st = input_read(&t->file[a->file], a->at + at, n, piece, e);
        if (st == OK) st = input_read(&t->file[b->file], b->at + at, n, piece + PIECE, e);
        if (st == OK) *same = !memcmp(piece, piece + PIECE, (size_t)n);
    }
    free(piece);
    return st;
}
