/* The documents of a Megatron stream: where they begin, and their shuffled order as one stream.
 *
 * An epoch's order is a permutation without a table. To find a token, a sparse table holds the
 * token at which every DOCUMENTS_STRIDE-th document of the order begins. That is 8 bytes a document
 * for the documents, and 2 / 64 of that for the tables of two epochs.
 *
 * Filling a table takes about 0.4 s for a million documents. So the table of the next epoch is
 * filled in slices while batches are ready. Who needs a token fills what is left. */
#include <pthread.h>
#include <stdlib.h>

#include "kernels/rng.h"
#include "model/data_source.h"

enum {
    DOCUMENTS_STRIDE = 64,
    SLICE = 16 * DOCUMENTS_STRIDE, /* documents; below a millisecond */
    TABLES = 2                     /* a batch may reach into the next epoch */
};

struct table {
    int64_t epoch;         /* -1: none */
    int64_t filled, token; /* documents of the order so far; where the next one begins */
    int64_t *begin;
};

struct document_order {
    const int64_t *start; /* of the stream's documents, borrowed */
    int64_t count;        /* documents in the order */
    pthread_mutex_t lock; /* of the tables */
    struct table table[TABLES];
};

/* ---- where documents begin ---- */

enum { IDX_COUNTS = 18, IDX_LENGTHS = 34, PIECE = 1024 };

/* Checks that document i of a file begins with sequence `begin`, behind sequence `before`. */
static enum status check_begin(const struct input_file *idx, int64_t i, int64_t ends,
                               int64_t begin, int64_t before, int64_t sequences, struct err *e) {
    if (begin >= before && begin <= sequences && (i > 0 || begin == 0) &&
        (i < ends - 1 || begin == sequences))
        return OK;
    return FAIL(e, ERR_FORMAT, "%s: document %lld at byte %lld begins with sequence %lld; "
                "documents must cover sequences 0 to %lld in order", idx->path, (long long)i,
                (long long)(IDX_LENGTHS + 12 * sequences + 8 * i), (long long)begin,
                (long long)sequences);
}

/* Adds the lengths of sequences first .. end-1 to *token. */
static enum status add_lengths(const struct input_file *idx, int64_t first, int64_t end,
                               int64_t *token, struct err *e) {
    unsigned char bytes[4 * PIECE];
    for (int64_t n; first < end; first += n) {
        n = end - first < PIECE ? end - first : PIECE;
        TRY(input_read(idx, IDX_LENGTHS + 4 * first, 4 * n, bytes, e));
        for (int64_t k = 0; k < n; k++) *token += (int64_t)load_le(bytes + 4 * k, 4);
    }
    return OK;
}

/* Appends the starts of the documents of one file, whose tokens begin at `first` of the stream.
 * Documents are ranges of Megatron's sequences. The last entry of its array is their end. */
static enum status read_starts(struct documents *o, const struct input_file *idx, int64_t first,
                               int64_t longest, struct err *e) {
    unsigned char head[16], next[8 * PIECE];
    TRY(input_read(idx, IDX_COUNTS, sizeof head, head, e));
    int64_t sequences = (int64_t)load_le(head, 8), ends = (int64_t)load_le(head + 8, 8);
    if (ends < 1) return FAIL(e, ERR_FORMAT, "%s: it lists no document", idx->path);
    int64_t *fresh = realloc(o->start, (size_t)(o->count + ends) * sizeof *fresh);
    if (!fresh) return FAIL(e, ERR_MEMORY, "no host memory for %lld documents", (long long)ends);
    o->start = fresh;
    int64_t at = IDX_LENGTHS + 12 * sequences, sequence = 0, token = first;
    for (int64_t i = 0; i < ends; i++) {
        int64_t before = token, left = ends - i < PIECE ? ends - i : PIECE;
        if (i % PIECE == 0) TRY(input_read(idx, at + 8 * i, 8 * left, next, e));
        int64_t begin = (int64_t)load_le(next + 8 * (i % PIECE), 8);
        TRY(check_begin(idx, i, ends, begin, sequence, sequences, e));
        TRY(add_lengths(idx, sequence, begin, &token, e));
        if (longest && token - before > longest)
            return FAIL(e, ERR_CONFIG, "%s: document %lld has %lld tokens; data.layout puts whole "
                        "documents into sequences of model.seq_len %lld: cut it when tokenising, "
                        "or use layout = \"windows\"", idx->path, (long long)i - 1,
                        (long long)(token - before), (long long)longest);
        sequence = begin;
        o->start[o->count + i] = token; /* each file's end is the next one's begin */
    }
    o->count += ends - 1;
    return OK;
}

enum status documents_open(const struct data *d, struct token_stream *s, int64_t longest,
                           struct err *e) {
    for (int64_t i = 0; i < s->run_count; i++)
        TRY(read_starts(&s->documents, &d->file[s->run[i].file + 1], s->run[i].first, longest, e));
    return OK;
}

int64_t documents_before(const struct documents *o, int64_t end) {
    int64_t low = 0, high = o->count;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (o->start[middle] <= end) low = middle;
        else high = middle - 1;
    }
    return low;
}

enum status documents_read(const struct data *d, const struct token_stream *s, int64_t at,
                           int64_t count, struct window *out, struct err *e) {
    const int64_t *start = s->documents.start;
    for (int64_t i = documents_before(&s->documents, at); count > 0; i++) {
        int64_t left = start[i + 1] - at, n = left < count ? left : count;
        window_document(d, out);
        TRY(stream_read(d, s, at, n, out, e));
        at += n;
        count -= n;
    }
    return OK;
}

/* ---- their order ---- */

enum status order_open(struct document_order **out, const struct token_source *part, int64_t count,
                       struct err *e) {
    struct document_order *o = calloc(1, sizeof *o);
    if (!o) return FAIL(e, ERR_MEMORY, "no host memory for an order of documents");
    pthread_mutex_init(&o->lock, NULL);
    o->start = part->stream.documents.start;
    o->count = count;
    enum status st = OK;
    for (int i = 0; i < TABLES; i++) {
        o->table[i].epoch = -1;
        o->table[i].begin = malloc((size_t)(count / DOCUMENTS_STRIDE + 1) * sizeof(int64_t));
        if (!o->table[i].begin)
            st = FAIL(e, ERR_MEMORY, "no host memory for the order of %lld documents",
                      (long long)count);
    }
    if (st == OK) *out = o;
    else order_close(o);
    return st;
}

void order_close(struct document_order *o) {
    if (!o) return;
    for (int i = 0; i < TABLES; i++) free(o->table[i].begin);
    pthread_mutex_destroy(&o->lock);
    free(o);
}

static uint64_t order_key(const struct data *d, int64_t part, int64_t epoch) {
    return rng_key(d->seed, RNG_DOCUMENT_ORDER, (uint64_t)part, (uint64_t)epoch);
}

static int64_t length_of(const struct document_order *o, int64_t document) {
    return o->start[document + 1] - o->start[document];
}

/* The table of an epoch, empty if it was another's. Called with the lock. */
static struct table *table_of(struct document_order *o, int64_t epoch) {
    struct table *t = &o->table[epoch % TABLES];
    if (t->epoch == epoch) return t;
    t->epoch = epoch;
    t->filled = t->token = 0;
    return t;
}

/* Fills at most `most` further documents of a table. Called with the lock. */
static void fill_table(struct document_order *o, struct table *t, uint64_t key, int64_t most) {
    int64_t left = o->count - t->filled, end = t->filled + (left < most ? left : most);
    for (; t->filled < end; t->filled++) {
        if (t->filled % DOCUMENTS_STRIDE == 0) t->begin[t->filled / DOCUMENTS_STRIDE] = t->token;
        t->token += length_of(o, data_permute(key, o->count, t->filled));
    }
}

bool order_prepared(struct document_order *o, int64_t epoch) {
    pthread_mutex_lock(&o->lock);
    const struct table *t = &o->table[epoch % TABLES];
    bool prepared = t->epoch == epoch && t->filled == o->count;
    pthread_mutex_unlock(&o->lock);
    return prepared;
}

void order_prepare(const struct data *d, int64_t part, int64_t epoch) {
    struct document_order *o = d->part[part].order;
    pthread_mutex_lock(&o->lock);
    fill_table(o, table_of(o, epoch), order_key(d, part, epoch), SLICE);
    pthread_mutex_unlock(&o->lock);
}

/* The last document of the order's multiples of the stride that begins at or before token `at`;
 * *begin: where. */
static int64_t find_document(struct document_order *o, uint64_t key, int64_t epoch, int64_t at,
                             int64_t *begin) {
    pthread_mutex_lock(&o->lock);
    struct table *t = table_of(o, epoch);
    fill_table(o, t, key, o->count);
    int64_t low = 0, high = (o->count - 1) / DOCUMENTS_STRIDE;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (t->begin[middle] <= at) low = middle;
        else high = middle - 1;
    }
    *begin = t->begin[low];
    pthread_mutex_unlock(&o->lock);
    return low * DOCUMENTS_STRIDE;
}

enum status shuffled_read(const struct data *d, int64_t part, int64_t epoch, int64_t at,
                          int64_t count, struct window *out, struct err *e) {
    const struct token_source *source = &d->part[part];
    struct document_order *o = source->order;
    uint64_t key = order_key(d, part, epoch);
    int64_t begin;
    for (int64_t i = find_document(o, key, epoch, at, &begin); count > 0; i++) {
        int64_t document = data_permute(key, o->count, i), length = length_of(o, document);
        int64_t skip = at - begin, left = length - skip;
        int64_t n = left < count ? left : count;
        begin += length;
        if (n <= 0) continue; /* it ends before the token that is wanted */
        window_document(d, out);
        TRY(stream_read(d, &source->stream, o->start[document] + skip, n, out, e));
        at += n;
        count -= n;
    }
    return OK;
}
