/* Documents of a Megatron dataset in shuffled order, as one stream of tokens.
 *
 * An epoch's order is a permutation without a table. To find a token, a sparse table holds the
 * token at which every DOCUMENTS_STRIDE-th document of the order begins: 8 bytes a document for the
 * documents, and 2 / 64 of that for the tables of two epochs. */
#include <pthread.h>
#include <stdlib.h>

#include "kernels/rng.h"
#include "model/data_source.h"

enum { DOCUMENTS_STRIDE = 64, TABLES = 2 /* a batch may reach into the next epoch */ };

struct table {
    int64_t epoch; /* -1: none */
    int64_t *begin;
};

struct document_order {
    int64_t *start, count; /* first token of each training document, and the end of the last */
    pthread_mutex_t lock;  /* of the tables */
    struct table table[TABLES];
};

/* ---- opening ---- */

enum { IDX_COUNTS = 18, IDX_LENGTHS = 34, PIECE = 1024 };

/* Appends the starts of the documents of one file, whose tokens begin at `first` of the stream.
 * Documents are ranges of Megatron's sequences. The last entry of its array is their end. */
static enum status read_starts(struct document_order *o, const struct input_file *idx,
                               const struct token_run *run, struct err *e) {
    unsigned char head[16], bytes[8 * PIECE];
    TRY(input_read(idx, IDX_COUNTS, sizeof head, head, e));
    int64_t sequences = (int64_t)load_le(head, 8), ends = (int64_t)load_le(head + 8, 8);
    if (ends < 1) return FAIL(e, ERR_FORMAT, "%s: it lists no document", idx->path);
    int64_t *fresh = realloc(o->start, (size_t)(o->count + ends) * sizeof *fresh);
    if (!fresh) return FAIL(e, ERR_MEMORY, "no host memory for %lld documents", (long long)ends);
    o->start = fresh;
    int64_t at = IDX_LENGTHS + 12 * sequences, sequence = 0, token = run->first;
    for (int64_t i = 0; i < ends; i++) {
        unsigned char next[8];
        TRY(input_read(idx, at + 8 * i, sizeof next, next, e));
        int64_t begin = (int64_t)load_le(next, 8);
        if (begin < sequence || begin > sequences || (i == 0 && begin != 0) ||
            (i == ends - 1 && begin != sequences))
            return FAIL(e, ERR_FORMAT, "%s: document %lld at byte %lld begins with sequence %lld; "
                        "documents must cover sequences 0 to %lld in order", idx->path,
                        (long long)i, (long long)(at + 8 * i), (long long)begin,
                        (long long)sequences);
        while (sequence < begin) {
            int64_t n = begin - sequence < PIECE ? begin - sequence : PIECE;
            TRY(input_read(idx, IDX_LENGTHS + 4 * sequence, 4 * n, bytes, e));
            for (int64_t k = 0; k < n; k++) token += (int64_t)load_le(bytes + 4 * k, 4);
            sequence += n;
        }
        if (i < ends - 1) o->start[o->count++] = token;
    }
    return OK;
}

enum status documents_open(struct document_order **out, const struct data *d,
                           const struct token_source *part, int64_t *kept, struct err *e) {
    struct document_order *o = calloc(1, sizeof *o);
    if (!o) return FAIL(e, ERR_MEMORY, "no host memory for an order of documents");
    pthread_mutex_init(&o->lock, NULL);
    enum status st = OK;
    for (int64_t i = 0; st == OK && i < part->stream.run_count; i++)
        st = read_starts(o, &d->file[part->stream.run[i].file + 1], &part->stream.run[i], e);
    const char *path = part->stream.run_count ? d->file[part->stream.run[0].file].path : "";
    int64_t end = part->stream.count, wanted = *kept;
    while (st == OK && o->count > 0 && end > wanted) end = o->start[--o->count]; /* whole ones */
    if (st == OK && o->count == 0)
        st = FAIL(e, ERR_CONFIG, "%s: its first document ends behind the first %lld tokens, which "
                  "data.holdout leaves for training; hold out less, or use order = \"windows\"",
                  path, (long long)wanted);
    if (st == OK) {
        o->start[o->count] = end; /* the array has a place for each file's end */
        for (int i = 0; i < TABLES; i++) {
            o->table[i].epoch = -1;
            o->table[i].begin = malloc((size_t)(o->count / DOCUMENTS_STRIDE + 1) * sizeof(int64_t));
            if (!o->table[i].begin)
                st = FAIL(e, ERR_MEMORY, "no host memory for the order of %lld documents",
                          (long long)o->count);
        }
    }
    if (st != OK) {
        documents_close(o);
        return st;
    }
    *kept = end;
    *out = o;
    return OK;
}

void documents_close(struct document_order *o) {
    if (!o) return;
    for (int i = 0; i < TABLES; i++) free(o->table[i].begin);
    pthread_mutex_destroy(&o->lock);
    free(o->start);
    free(o);
}

/* ---- reading ---- */

static uint64_t order_key(const struct data *d, int64_t part, int64_t epoch) {
    return rng_key(d->seed, RNG_DOCUMENT_ORDER, (uint64_t)part, (uint64_t)epoch);
}

static int64_t length_of(const struct document_order *o, int64_t document) {
    return o->start[document + 1] - o->start[document];
}

static void fill_table(struct document_order *o, struct table *t, uint64_t key) {
    int64_t token = 0;
    for (int64_t i = 0; i < o->count; i++) {
        if (i % DOCUMENTS_STRIDE == 0) t->begin[i / DOCUMENTS_STRIDE] = token;
        token += length_of(o, data_permute(key, o->count, i));
    }
}

/* The last document of the order's multiples of the stride that begins at or before token `at`;
 * *begin: where. */
static int64_t find_document(struct document_order *o, uint64_t key, int64_t epoch, int64_t at,
                             int64_t *begin) {
    pthread_mutex_lock(&o->lock);
    struct table *t = &o->table[epoch % TABLES];
    if (t->epoch != epoch) fill_table(o, t, key);
    t->epoch = epoch;
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

enum status documents_read(const struct data *d, int64_t part, int64_t epoch, int64_t at,
                           int64_t count, struct window *out, struct err *e) {
    const struct token_source *source = &d->part[part];
    struct document_order *o = source->documents;
    uint64_t key = order_key(d, part, epoch);
    int64_t begin;
    for (int64_t i = find_document(o, key, epoch, at, &begin); count > 0; i++) {
        int64_t document = data_permute(key, o->count, i), length = length_of(o, document);
        int64_t skip = at - begin, left = length - skip;
        int64_t n = left < count ? left : count;
        begin += length;
        if (n <= 0) continue; /* it ends before the token that is wanted */
        TRY(stream_read(d, &source->stream, o->start[document] + skip, n, out, e));
        at += n;
        count -= n;
    }
    return OK;
}
