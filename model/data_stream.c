/* Reads the tokens of a stream from its files, checked against the vocabulary. */
#include <string.h>

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
struct piece {
    const struct input_file *file, *loss; /* loss NULL: every token counts */
    int64_t offset, loss_offset, count;   /* in bytes, in bytes, in tokens */
};

/* The first part of tokens at .. at+count-1 that lies in one file; count > 0. */
static struct piece piece_at(const struct data *d, const struct token_stream *s, int64_t at,
                             int64_t count) {
    const struct token_run *run = find_run(s, at);
    int64_t left = run->first + run->count - at;
    return (struct piece){ .file = &d->file[run->file],
                           .loss = run->loss < 0 ? NULL : &d->file[run->loss],
                           .offset = run->offset + (at - run->first) * s->token_bytes,
                           .loss_offset = at - run->first,
                           .count = left < count ? left : count };
}

/* loss: whether the token counts where it is the target. A document's first token never is. */
static void take(struct window *w, int32_t id, bool loss) {
    bool target = w->taken > w->start && loss;
    if (w->taken < w->length) w->tokens[w->taken] = id;
    if (w->taken < w->length && w->starts) w->starts[w->taken] = (int32_t)w->start;
    if (w->taken > 0) w->targets[w->taken - 1] = target ? id : -1;
    w->taken++;
}

static enum status read_ids(const struct data *d, const struct piece *p, int bytes, int64_t first,
                            int64_t n, const unsigned char *loss, struct window *out,
                            struct err *e) {
    unsigned char buffer[READ_BYTES];
    int64_t offset = p->offset + first * bytes;
    TRY(input_read(p->file, offset, n * bytes, buffer, e));
    for (int64_t i = 0; i < n; i++) {
        uint64_t id = load_le(buffer + i * bytes, bytes);
        if (id >= (uint64_t)d->vocab)
            return FAIL(e, ERR_FORMAT, "%s: token id %llu at byte %lld is beyond the "
                        "vocabulary of %lld; model.vocab must be larger than each id",
                        p->file->path, (unsigned long long)id, (long long)(offset + i * bytes),
                        (long long)d->vocab);
        if (out) take(out, (int32_t)id, loss[i]);
    }
    return OK;
}

static enum status read_loss(const struct piece *p, int64_t first, int64_t n, unsigned char *loss,
                             struct err *e) {
    if (!p->loss) {
        memset(loss, 1, (size_t)n);
        return OK;
    }
    TRY(input_read(p->loss, p->loss_offset + first, n, loss, e));
    for (int64_t i = 0; i < n; i++)
        if (loss[i] > 1)
            return FAIL(e, ERR_FORMAT, "%s: byte %lld is %d; a token that counts in the loss has a "
                        "1, another a 0", p->loss->path, (long long)(p->loss_offset + first + i),
                        loss[i]);
    return OK;
}

/* Reads a piece and checks it. `out` NULL: only checks. */
static enum status read_piece(const struct data *d, const struct piece *p, int bytes,
                              struct window *out, struct err *e) {
    unsigned char loss[READ_BYTES];
    for (int64_t done = 0, n; done < p->count; done += n) {
        n = p->count - done < READ_BYTES / bytes ? p->count - done : READ_BYTES / bytes;
        TRY(read_loss(p, done, n, loss, e));
        if (!out || out->tokens) {
            TRY(read_ids(d, p, bytes, done, n, loss, out, e));
            continue;
        }
        for (int64_t i = 0; i < n; i++) out->counted += out->taken++ > out->start && loss[i];
    }
    return OK;
}

static void advise_piece(const struct piece *p, int bytes, bool loss_only) {
    if (!loss_only) input_advise(p->file, p->offset, p->count * bytes);
    if (p->loss) input_advise(p->loss, p->loss_offset, p->count);
}

enum status stream_read(const struct data *d, const struct token_stream *s, int64_t at,
                        int64_t count, struct window *out, struct err *e) {
    while (count > 0) {
        struct piece p = piece_at(d, s, at, count);
        if (out && out->advises) advise_piece(&p, s->token_bytes, out->loss_only);
        else TRY(read_piece(d, &p, s->token_bytes, out, e));
        at += p.count;
        count -= p.count;
    }
    return OK;
}
