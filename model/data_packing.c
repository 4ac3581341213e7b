/* Whole documents in sequences of T tokens. A table holds the first document of each sequence, so a
 * sequence is found by one look. 8 bytes a sequence, and 8 a document for where they begin. */
#include <stdlib.h>

#include "model/data_source.h"

static int64_t length_of(const struct documents *o, int64_t document) {
    return o->start[document + 1] - o->start[document];
}

/* Next fit: a document that does not fit begins the next sequence. Writes the first document of
 * each sequence if `first` is not NULL. Returns the number of sequences. */
static int64_t lay_out(int64_t *first, const struct data *d, const struct documents *documents,
                       int64_t begin, int64_t end) {
    int64_t sequences = 0, room = 0;
    for (int64_t i = begin; i < end; i++) {
        int64_t length = length_of(documents, i);
        if (length > room) {
            if (first) first[sequences] = i;
            sequences++;
            room = d->seq_len;
        }
        room = d->layout == LAYOUT_PADDED ? 0 : room - length;
    }
    if (first) first[sequences] = end;
    return sequences;
}

enum status packing_make(struct packing *out, const struct data *d,
                         const struct documents *documents, int64_t first, int64_t end,
                         struct err *e) {
    out->count = lay_out(NULL, d, documents, first, end);
    out->first = malloc((size_t)(out->count + 1) * sizeof *out->first);
    if (!out->first)
        return FAIL(e, ERR_MEMORY, "no host memory for a table of %lld sequences",
                    (long long)out->count);
    lay_out(out->first, d, documents, first, end);
    return OK;
}

/* Padding repeats the first token, each as a document of its own. With document masks and positions
 * it computes what the first token computed, so that no amax grows. It has no target, and nor has
 * the last real token. */
void window_pad(struct window *w) {
    if (!w->tokens) return;
    w->targets[w->taken - 1] = -1;
    for (int64_t i = w->taken; i < w->length; i++) {
        w->tokens[i] = w->tokens[0];
        w->targets[i] = -1;
        if (w->starts) w->starts[i] = (int32_t)i;
    }
}

enum status packing_read(const struct data *d, const struct token_stream *s,
                         const struct packing *p, int64_t sequence, struct window *out,
                         struct err *e) {
    const struct documents *documents = &s->documents;
    for (int64_t i = p->first[sequence]; i < p->first[sequence + 1]; i++) {
        window_document(d, out);
        TRY(stream_read(d, s, documents->start[i], length_of(documents, i), out, e));
    }
    window_pad(out);
    return OK;
}
