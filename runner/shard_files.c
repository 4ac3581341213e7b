#include "runner/shard_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/data.h"
#include "model/data_source.h"
#include "runner/base/run_files.h"

enum { IDS_MAX = 1 << 22, INDEX_COUNTS = 18, INDEX_LENGTHS = 34 };

static void strip_suffix(char prefix[PATH_CAP], const char *path) {
    static const char *const ENDS[] = { ".bin", ".idx", ".json", ".loss" };
    snprintf(prefix, PATH_CAP, "%s", path);
    for (size_t i = 0; i < sizeof ENDS / sizeof *ENDS; i++) {
        size_t n = strlen(prefix), m = strlen(ENDS[i]);
        if (n <= m || strcmp(prefix + n - m, ENDS[i]) != 0) continue;
        prefix[n - m] = 0;
        return;
    }
}

static enum status open_index(struct shard_files *f, struct err *e) {
    const char *const paths[] = { f->prefix };
    const struct data_options o = { .kind = DATA_MEGATRON, .paths = paths, .path_count = 1 };
    unsigned char head[16];
    TRY(data_open(&f->data, &o, IDS_MAX, 1, 0, e));
    const struct token_stream *s = &f->data->part[0].stream;
    f->bin = &f->data->file[s->run[0].file];
    f->idx = f->bin + 1;
    f->token_bytes = s->token_bytes;
    f->tokens = s->run[0].count;
    TRY(input_read(f->idx, INDEX_COUNTS, sizeof head, head, e));
    f->sequences = (int64_t)load_le(head, 8);
    f->documents = (int64_t)load_le(head + 8, 8) - 1; /* the array has their ends, and a 0 */
    return f->documents >= 0 ? OK : FAIL(e, ERR_FORMAT, "%s: it lists no document", f->idx->path);
}

enum status shard_files_open(struct shard_files *f, const char *path, struct err *e) {
    char name[PATH_CAP + 8];
    *f = (struct shard_files){ 0 };
    strip_suffix(f->prefix, path);
    TRY(open_index(f, e));
    snprintf(name, sizeof name, "%s.loss", f->prefix);
    if (path_exists(name)) TRY(input_open(&f->loss, name, e));
    snprintf(name, sizeof name, "%s.json", f->prefix);
    if (path_exists(name)) TRY(json_file_read(name, &f->description, e));
    if (strcmp(json_text(f->description, "schema", ""), "fp8lab.tokens/1") == 0) return OK;
    json_decref(f->description); /* another program's */
    f->description = NULL;
    return OK;
}

void shard_files_close(struct shard_files *f) {
    data_close(f->data);
    input_close(&f->loss);
    json_decref(f->description);
    *f = (struct shard_files){ 0 };
}

/* Element i of the index: an array of `size` bytes each that begins at byte `from`. */
static enum status element(const struct shard_files *f, int64_t from, int size, int64_t i,
                           int64_t *out, struct err *e) {
    unsigned char bytes[8];
    TRY(input_read(f->idx, from + size * i, size, bytes, e));
    *out = (int64_t)load_le(bytes, size);
    return OK;
}

/* The number of tokens before a sequence. */
static enum status sequence_begin(const struct shard_files *f, int64_t sequence, int64_t *out,
                                  struct err *e) {
    *out = f->tokens;
    if (sequence == f->sequences) return OK;
    TRY(element(f, INDEX_LENGTHS + 4 * f->sequences, 8, sequence, out, e));
    *out /= f->token_bytes;
    return OK;
}

enum status shard_ends(const struct shard_files *f, int64_t first, int64_t n, int64_t *end,
                       struct err *e) {
    int64_t array = INDEX_LENGTHS + 12 * f->sequences, before, next;
    TRY(element(f, array, 8, first, &before, e));
    for (int64_t i = 0; i < n; i++, before = next) {
        TRY(element(f, array, 8, first + i + 1, &next, e));
        bool last = first + i + 1 == f->documents;
        if (next < before || next > f->sequences || (last && next != f->sequences) ||
            (first + i == 0 && before != 0))
            return FAIL(e, ERR_FORMAT, "%s: document %lld has sequences %lld to %lld; documents "
                        "must cover sequences 0 to %lld in order", f->idx->path,
                        (long long)(first + i), (long long)before, (long long)next,
                        (long long)f->sequences);
        TRY(sequence_begin(f, next, &end[i], e));
    }
    return OK;
}

enum status shard_ids(const struct shard_files *f, int64_t at, int64_t n, uint32_t *out,
                      struct err *e) {
    unsigned char bytes[4 * 1024];
    for (int64_t done = 0, some; done < n; done += some) {
        some = n - done < 1024 ? n - done : 1024;
        TRY(input_read(f->bin, f->token_bytes * (at + done), f->token_bytes * some, bytes, e));
        for (int64_t i = 0; i < some; i++)
            out[done + i] = (uint32_t)load_le(bytes + f->token_bytes * i, f->token_bytes);
    }
    return OK;
}
