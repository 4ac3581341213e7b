#include "runner/text_stats.h"

#include <math.h>
#include <stdlib.h>

#include "model/ground/input_file.h"

enum { SYMBOLS = 256, CHUNK = 1 << 16 };

/* Counts while the text streams by. pair[a][b]: how often b followed a. */
struct tally {
    int64_t single[SYMBOLS];
    int64_t pair[SYMBOLS][SYMBOLS];
    int64_t total;
    struct text_head head;
    int last; /* the byte before the next one; -1 at the start */
    unsigned char chunk[CHUNK];
};

static void tally_add(struct tally *t, const unsigned char *text, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        int byte = text[i];
        t->single[byte]++;
        if (t->last >= 0) t->pair[t->last][byte]++;
        t->last = byte;
    }
    t->total += n;
    text_head_add(&t->head, text, (size_t)n);
}

/* -sum p log p = log(total) - sum(c log c) / total. */
double text_entropy(const int64_t *count, int64_t n, int64_t total) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (count[i] > 0) sum += (double)count[i] * log((double)count[i]);
    return total > 0 ? log((double)total) - sum / (double)total : 0;
}

/* H(b | a): each row's own entropy, weighted by how often the row was entered. */
static double conditional_entropy(const struct tally *t) {
    double sum = 0;
    for (int64_t a = 0; a < SYMBOLS; a++) {
        int64_t row = 0;
        for (int64_t b = 0; b < SYMBOLS; b++) row += t->pair[a][b];
        sum += (double)row * text_entropy(t->pair[a], SYMBOLS, row);
    }
    return t->total > 1 ? sum / (double)(t->total - 1) : 0;
}

static void summarise(const struct tally *t, struct text_stats *out) {
    out->bytes = t->total;
    out->distinct = 0;
    for (int64_t i = 0; i < SYMBOLS; i++) out->distinct += t->single[i] > 0;
    out->controls = 0;
    for (int i = 0; i < ' '; i++)
        if (text_is_control(i)) out->controls += t->single[i];
    out->head = t->head;
    out->unigram_nats = text_entropy(t->single, SYMBOLS, t->total);
    out->bigram_nats = conditional_entropy(t);
}

static enum status count(const struct input_file *f, struct tally *tally, struct sha256 *sha,
                         struct err *e) {
    for (int64_t at = 0; at < f->bytes; at += CHUNK) {
        int64_t n = f->bytes - at < CHUNK ? f->bytes - at : CHUNK;
        TRY(input_read(f, at, n, tally->chunk, e));
        sha256_add(sha, tally->chunk, (size_t)n);
        tally_add(tally, tally->chunk, n);
    }
    return OK;
}

static enum status tally_create(struct tally **out, const char *path, struct err *e) {
    *out = calloc(1, sizeof **out);
    if (!*out)
        return FAIL(e, ERR_MEMORY, "%zu bytes to count the bytes of %s", sizeof **out, path);
    (*out)->last = -1;
    return OK;
}

enum status text_stats_memory(const void *text, int64_t n, const char *path,
                              struct text_stats *out, struct err *e) {
    struct tally *tally = NULL;
    TRY(tally_create(&tally, path, e));
    tally_add(tally, text, n);
    summarise(tally, out);
    out->sha256[0] = 0;
    free(tally);
    return OK;
}

enum status text_stats_file(const char *path, struct text_stats *out, struct err *e) {
    struct sha256 *sha = NULL;
    struct tally *tally = NULL;
    struct input_file f;
    TRY(input_open(&f, path, e));
    enum status st = tally_create(&tally, path, e);
    if (st == OK) st = sha256_create(&sha, e);
    if (st == OK) st = count(&f, tally, sha, e);
    if (st == OK) {
        summarise(tally, out);
        sha256_finish(sha, out->sha256);
    }
    sha256_destroy(sha);
    free(tally);
    input_close(&f);
    return st;
}
