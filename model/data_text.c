/* Byte text, and generated sequences. */
#include "kernels/rng.h"
#include "model/data_source.h"
#include "model/ground/input_kind.h"

/* A model would learn the bytes of a packed file, and no error would follow. */
static enum status check_text(const struct input_file *f, struct err *e) {
    char head[INPUT_KIND_HEAD];
    int64_t n = f->bytes < INPUT_KIND_HEAD ? f->bytes : INPUT_KIND_HEAD;
    TRY(input_read(f, 0, n, head, e));
    const char *kind = input_kind(head, (size_t)n);
    if (!kind) return OK;
    return FAIL(e, ERR_FORMAT, "%s is %s, and its bytes are not text; unpack it, or name the "
                "tokenizer \"bytes\", which unpacks gzip, zstd and tar", f->path, kind);
}

enum status data_add_text(struct data *d, struct token_stream *s, const char *path,
                          struct err *e) {
    int64_t index;
    TRY(data_add_file(d, path, &index, e));
    TRY(check_text(&d->file[index], e));
    int64_t bytes = d->file[index].bytes;
    return bytes > 0 ? stream_append(d, s, index, 0, bytes, 1, e) : OK;
}

/* 7 of 8 tokens follow from the token before by a fixed rule, and one is uniform. The best possible
 * loss is about 1/8 ln V + 0.4 nats. */
void synthetic_sequence(const struct data *d, enum data_split which, int64_t index, int32_t *tokens,
                        int32_t *targets) {
    uint32_t V = (uint32_t)d->vocab;
    uint64_t key = rng_key(d->synthetic_seed, RNG_DATA_SYNTHETIC, which, (uint64_t)index);
    uint32_t previous = rng_below(rng_bits(key, 0), V);
    for (int64_t i = 0; i < d->seq_len; i++) {
        uint64_t bits = rng_bits(key, (uint64_t)i + 1);
        uint32_t next = (bits & 7) == 0 ? rng_below(bits, V)
                                        : (uint32_t)(((uint64_t)previous * 5 + 7) % V);
        tokens[i] = (int32_t)previous;
        targets[i] = (int32_t)next;
        previous = next;
    }
}
