/* Reads the tokens of a stream from its files, checked against the vocabulary. */
#include "model/data_source.h"

enum { READ_BYTES = 1 << 15 }; /* a read buffer on the stack */

/* The run that holds token `at`; at < count. */
static const struct token_run *find_run(const struct token_stream *s, int64_t at) {
    int64_t low = 0, high = s->run_count - 1;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (s->run[middle].first <= at) low = middle;
        else high = middle - 1;
    }
    return &s->run[low];
}

/* Contiguous tokens of one file. */
struct piece { const struct input_file *file; int64_t offset, count; };

/* The first part of tokens at .. at+count-1 that lies in one file; count > 0. */
static struct piece piece_at(const struct data *d, const struct token_stream *s, int64_t at,
                             int64_t count) {
    const struct token_run *run = find_run(s, at);
    int64_t left = run->first + run->count - at;
    return (struct piece){ .file = &d->file[run->file],
                           .offset = run->offset + (at - run->first) * s->token_bytes,
                           .count = left < count ? left : count };
}

static void take(struct window *w, int32_t id) {
    if (w->taken < w->length) w->tokens[w->taken] = id;
    if (w->taken > 0) w->targets[w->taken - 1] = id;
    w->taken++;
}

/* Reads a piece and checks each token against the vocabulary. `out` NULL: only checks. */
static enum status read_piece(const struct data *d, const struct piece *p, int bytes,
                              struct window *out, struct err *e) {
    unsigned char buffer[READ_BYTES];
    int64_t offset = p->offset, count = p->count;
    while (count > 0) {
        int64_t n = count < READ_BYTES / bytes ? count : READ_BYTES / bytes;
        TRY(input_read(p->file, offset, n * bytes, buffer, e));
        for (int64_t i = 0; i < n; i++, offset += bytes) {
            uint64_t id = load_le(buffer + i * bytes, bytes);
            if (id >= (uint64_t)d->vocab)
                return FAIL(e, ERR_FORMAT, "%s: token id %llu at byte %lld is beyond the "
                            "vocabulary of %lld", p->file->path, (unsigned long long)id,
                            (long long)offset, (long long)d->vocab);
            if (out) take(out, (int32_t)id);
        }
        count -= n;
    }
    return OK;
}

enum status stream_read(const struct data *d, const struct token_stream *s, int64_t at,
                        int64_t count, struct window *out, struct err *e) {
    while (count > 0) {
        struct piece p = piece_at(d, s, at, count);
        TRY(read_piece(d, &p, s->token_bytes, out, e));
        at += p.count;
        count -= p.count;
    }
    return OK;
}
