/* Token files of other projects: Megatron's indexed datasets and llm.c's shards. Both are little
 * endian. Sizes in a header are checked against the file's size before any read. */
#include <stdlib.h>
#include <string.h>

#include "model/data_source.h"

/* ---- Megatron-LM: PATH.idx beside PATH.bin ----
 *   9 B magic, u64 version 1, u8 dtype, u64 S, u64 D, i32 length[S], i64 byte_pointer[S],
 *   i64 document_indices[D]; the i64 arrays need not be aligned. */
enum { MEGATRON_HEADER = 34, INDEX_PIECE = 1024 /* sequences per check */ };
static const unsigned char MEGATRON_MAGIC[9] = "MMIDIDX\0";

static int megatron_token_bytes(int code) {
    return code == 1 ? 1 : code == 8 ? 2 : code == 4 ? 4 : 0; /* u8, u16, i32 */
}

/* Checks that n sequences starting at `first` follow each other in the .bin without a gap.
 * *expected is the next byte of the .bin; it advances. */
static enum status check_some(const struct input_file *idx, const struct input_file *bin,
                              int64_t sequences, int64_t first, int64_t n, int size,
                              int64_t *expected, struct err *e) {
    unsigned char length[4 * INDEX_PIECE], pointer[8 * INDEX_PIECE];
    int64_t lengths = MEGATRON_HEADER + 4 * first;
    int64_t pointers = MEGATRON_HEADER + 4 * sequences + 8 * first;
    TRY(input_read(idx, lengths, 4 * n, length, e));
    TRY(input_read(idx, pointers, 8 * n, pointer, e));
    for (int64_t i = 0; i < n; i++) {
        int64_t count = (int32_t)load_le(length + 4 * i, 4);
        int64_t at = (int64_t)load_le(pointer + 8 * i, 8);
        if (count < 0)
            return FAIL(e, ERR_FORMAT, "%s: sequence %lld at byte %lld has length %lld", idx->path,
                        (long long)(first + i), (long long)(lengths + 4 * i), (long long)count);
        if (at != *expected)
            return FAIL(e, ERR_FORMAT, "%s: sequence %lld at byte %lld points to byte %lld of %s, "
                        "expected byte %lld", idx->path, (long long)(first + i),
                        (long long)(pointers + 8 * i), (long long)at, bin->path,
                        (long long)*expected);
        *expected += count * size;
    }
    return OK;
}

/* Checks that the index describes all bytes of the .bin in order. */
static enum status check_sequences(const struct input_file *idx, const struct input_file *bin,
                                   int64_t sequences, int size, struct err *e) {
    int64_t expected = 0;
    for (int64_t i = 0; i < sequences; i += INDEX_PIECE) {
        int64_t n = sequences - i < INDEX_PIECE ? sequences - i : INDEX_PIECE;
        TRY(check_some(idx, bin, sequences, i, n, size, &expected, e));
    }
    if (expected == bin->bytes) return OK;
    return FAIL(e, ERR_FORMAT, "%s: %lld bytes, but %s describes %lld%s", bin->path,
                (long long)bin->bytes, idx->path, (long long)expected,
                bin->bytes < expected ? " (truncated?)" : "");
}

static enum status check_index(const struct input_file *idx, const struct input_file *bin,
                               int *size, struct err *e) {
    if (idx->bytes < MEGATRON_HEADER)
        return FAIL(e, ERR_FORMAT, "%s: %lld bytes, an index has at least %d (truncated?)",
                    idx->path, (long long)idx->bytes, MEGATRON_HEADER);
    unsigned char head[MEGATRON_HEADER];
    TRY(input_read(idx, 0, sizeof head, head, e));
    if (memcmp(head, MEGATRON_MAGIC, sizeof MEGATRON_MAGIC) != 0)
        return FAIL(e, ERR_FORMAT, "%s: not a Megatron index: wrong magic at byte 0", idx->path);
    uint64_t version = load_le(head + 9, 8);
    if (version != 1)
        return FAIL(e, ERR_FORMAT, "%s: index version %llu at byte 9; only version 1 is "
                    "supported", idx->path, (unsigned long long)version);
    *size = megatron_token_bytes(head[17]);
    if (*size == 0)
        return FAIL(e, ERR_FORMAT, "%s: token dtype code %d at byte 17; known are 1 (u8), 4 (i32) "
                    "and 8 (u16)", idx->path, head[17]);
    uint64_t sequences = load_le(head + 18, 8), documents = load_le(head + 26, 8);
    uint64_t room = (uint64_t)(idx->bytes - MEGATRON_HEADER);
    if (sequences > room / 12 || documents > (room - 12 * sequences) / 8)
        return FAIL(e, ERR_FORMAT, "%s: %lld bytes do not hold the %llu sequences and %llu "
                    "document ends that byte 18 announces (truncated?)", idx->path,
                    (long long)idx->bytes, (unsigned long long)sequences,
                    (unsigned long long)documents);
    return check_sequences(idx, bin, (int64_t)sequences, *size, e);
}

/* PATH with its .bin or .idx replaced by the suffix; owned by the caller. */
static char *with_suffix(const char *path, const char *suffix) {
    size_t n = strlen(path);
    if (n > 4 && (strcmp(path + n - 4, ".bin") == 0 || strcmp(path + n - 4, ".idx") == 0)) n -= 4;
    char *out = malloc(n + strlen(suffix) + 1);
    if (!out) return NULL;
    memcpy(out, path, n);
    strcpy(out + n, suffix);
    return out;
}

/* PATH.loss: a byte for each token of the .bin, without a header. */
static enum status add_loss(struct data *d, struct token_stream *s, const char *path,
                            struct err *e) {
    struct token_run *run = &s->run[s->run_count - 1];
    TRY(data_add_file(d, path, &run->loss, e));
    const struct input_file *f = &d->file[run->loss];
    if (f->bytes == run->count) return OK;
    return FAIL(e, ERR_FORMAT, "%s: %lld bytes, but %s has %lld tokens, and a loss file has a byte "
                "for each (truncated?)", f->path, (long long)f->bytes, d->file[run->file].path,
                (long long)run->count);
}

/* The .bin does not open: ERR_CONFIG if PATH is a file itself, else the error that *e has. */
static enum status fail_shard(struct data *d, const char *path, const char *bin, enum status st,
                              struct err *e) {
    int64_t index;
    if (st != ERR_IO || data_add_file(d, path, &index, NULL) != OK) return st;
    return FAIL(e, ERR_CONFIG, "%s is no token shard: %s is not there. `fp8lab data tokenise %s "
                "--tokenizer FILE --to PREFIX` makes shards of text, and PREFIX names them", path,
                bin, path);
}

enum status data_add_megatron(struct data *d, struct token_stream *s, const char *path,
                              struct err *e) {
    enum status st = OK;
    int64_t bin = 0, idx = 0;
    int bytes = 0;
    char *bin_path = with_suffix(path, ".bin"), *idx_path = with_suffix(path, ".idx");
    char *loss_path = with_suffix(path, ".loss");
    if (!bin_path || !idx_path || !loss_path) {
        st = FAIL(e, ERR_MEMORY, "no host memory for a path");
        goto done;
    }
    st = data_add_file(d, bin_path, &bin, e);
    if (st != OK) st = fail_shard(d, path, bin_path, st, e);
    if (st == OK) st = data_add_file(d, idx_path, &idx, e);
    if (st == OK) st = check_index(&d->file[idx], &d->file[bin], &bytes, e);
    if (st == OK) st = stream_append(d, s, bin, 0, d->file[bin].bytes / bytes, bytes, e);
    if (st == OK && d->loss) st = add_loss(d, s, loss_path, e);
done:
    free(loss_path);
    free(bin_path);
    free(idx_path);
    return st;
}

/* ---- llm.c: 256 i32 {magic, version, tokens}, then u16 (GPT-2) or u32 (Llama-3) tokens ---- */
enum { LLMC_HEADER = 1024, LLMC_GPT2 = 20240520, LLMC_LLAMA3 = 20240801 };

enum status data_add_llmc(struct data *d, struct token_stream *s, const char *path,
                          struct err *e) {
    int64_t index;
    TRY(data_add_file(d, path, &index, e));
    const struct input_file *f = &d->file[index];
    if (f->bytes < LLMC_HEADER)
        return FAIL(e, ERR_FORMAT, "%s: %lld bytes, an llm.c shard has a header of %d (truncated?)",
                    path, (long long)f->bytes, LLMC_HEADER);
    unsigned char head[12];
    TRY(input_read(f, 0, sizeof head, head, e));
    int64_t magic = (int32_t)load_le(head, 4), version = (int32_t)load_le(head + 4, 4);
    if (magic != LLMC_GPT2 && magic != LLMC_LLAMA3)
        return FAIL(e, ERR_FORMAT, "%s: not an llm.c token shard: magic %lld at byte 0; known "
                    "are %d and %d", path, (long long)magic, LLMC_GPT2, LLMC_LLAMA3);
    int wanted = magic == LLMC_GPT2 ? 1 : 7;
    if (version != wanted)
        return FAIL(e, ERR_FORMAT, "%s: version %lld at byte 4; only version %d is supported", path,
                    (long long)version, wanted);
    int bytes = magic == LLMC_GPT2 ? 2 : 4;
    int64_t tokens = (int32_t)load_le(head + 8, 4);
    if (tokens < 0 || f->bytes != LLMC_HEADER + tokens * bytes)
        return FAIL(e, ERR_FORMAT, "%s: %lld bytes, but byte 8 announces %lld tokens, %lld bytes "
                    "(truncated?)", path, (long long)f->bytes, (long long)tokens,
                    (long long)(LLMC_HEADER + tokens * bytes));
    return stream_append(d, s, index, LLMC_HEADER, tokens, bytes, e);
}
