#include "runner/ingest/batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/ingest/json_line.h"

void batch_free(struct batch *b) {
    free(b->text.bytes);
    free(b->ids.bytes);
    free(b->loss.bytes);
    free(b->ends_at.bytes);
    free(b->bad.bytes);
}

int64_t batch_lines(const struct batch *b) {
    int64_t lines = 0;
    const uint8_t *p = b->text.bytes, *end = p + b->text.count;
    for (; (p = memchr(p, '\n', (size_t)(end - p))); p++) lines++;
    return lines;
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static enum status add_end(struct batch *b, const struct encoder *x, int64_t text_bytes,
                           const unsigned char *key, struct err *e) {
    struct document_end end = { .text_bytes = text_bytes };
    encoder_ids(x, &end.tokens);
    memcpy(end.key, key, UNIQUE_KEY);
    b->documents++;
    return bytes_add(&b->ends_at, &end, sizeof end, e);
}

static enum status end_document(struct batch *b, struct encoder *x, int64_t text_bytes,
                                const unsigned char *key, const struct batch_options *o,
                                struct err *e) {
    TRY(encoder_end(x, e));
    if (o->end >= 0) TRY(encoder_push(x, (uint32_t)o->end, e));
    return add_end(b, x, text_bytes, key, e);
}

static enum status one_document(struct batch *b, struct encoder *x, const char *text, size_t n,
                                const struct batch_options *o, struct err *e) {
    unsigned char digest[SHA256_BYTES] = { 0 };
    if (n == 0) return b->empty++, OK;
    if (o->unique) TRY(sha256_digest(text, n, digest, e));
    b->text_bytes += (int64_t)n;
    TRY(encoder_begin(x, e));
    TRY(encoder_add(x, text, n, e));
    return end_document(b, x, (int64_t)n, digest, o, e);
}

/* A line that is more than its field. After an error nothing of it is left. */
static enum status one_record(struct batch *b, struct encoder *x, const char *line, size_t n,
                              const struct line_encoder *lines, struct err *e) {
    struct line_outcome out = { 0 };
    size_t losses = b->loss.count;
    int64_t before, count;
    encoder_ids(x, &before);
    enum status st = lines->encode(lines->context, line, n, x, &b->loss, &out, e);
    if (st != OK) {
        encoder_cut(x, before);
        b->loss.count = losses;
        return st;
    }
    b->text_bytes += out.text_bytes;
    b->cut += out.cut;
    b->lossless += out.lossless;
    encoder_ids(x, &count);
    if (count == before) return OK;
    return add_end(b, x, out.text_bytes, out.key, e);
}

static enum status one_line(struct batch *b, struct encoder *x, struct bytes *spare,
                            const char *line, size_t n, const struct batch_options *o,
                            struct err *e) {
    if (o->lines) return one_record(b, x, line, n, o->lines, e);
    spare->count = 0;
    TRY(json_line_text(line, n, o->field, spare, e));
    return one_document(b, x, (const char *)spare->bytes, spare->count, o, e);
}

static enum status add_bad(struct batch *b, int64_t number, const char *text, struct err *e) {
    struct bad_line bad = { .line = number };
    snprintf(bad.text, sizeof bad.text, "%.199s", text);
    return bytes_add(&b->bad, &bad, sizeof bad, e);
}

static enum status too_long(struct batch *b, struct err *e) {
    char text[80];
    snprintf(text, sizeof text, "a line of %lld MiB or more; divide its text into documents",
             (long long)(b->line_max >> 20));
    return add_bad(b, b->line, text, e);
}

static enum status encode_lines(struct batch *b, struct encoder *x, struct bytes *line,
                                const struct batch_options *o, struct err *e) {
    const char *p = (const char *)b->text.bytes, *end = p + b->text.count;
    if (b->line_max) return too_long(b, e);
    for (int64_t number = b->line; p < end; number++) {
        const char *next = memchr(p, '\n', (size_t)(end - p));
        const char *stop = next ? next : end, *from = p;
        p = stop + (next != NULL);
        while (from < stop && is_space(*from)) from++;
        if (from == stop) continue; /* an empty line */
        struct err why;
        enum status st = one_line(b, x, line, from, (size_t)(stop - from), o, &why);
        if (st == ERR_FORMAT) {
            TRY(add_bad(b, number, why.text, e));
            if ((int64_t)(b->bad.count / sizeof(struct bad_line)) > o->skip_bad) return OK;
        } else if (st != OK) {
            *e = why;
            err_prefix(e, "line %lld", (long long)number);
            return st;
        }
    }
    return OK;
}

/* A plain text is one document; its parts come one by one. */
static enum status encode_part(struct batch *b, struct encoder *x, const struct batch_options *o,
                               struct err *e) {
    b->text_bytes += (int64_t)b->text.count;
    if (b->begins && b->ends && b->text.count == 0) return b->empty++, OK;
    if (b->begins) TRY(encoder_begin(x, e));
    TRY(encoder_add(x, (const char *)b->text.bytes, b->text.count, e));
    return b->ends ? end_document(b, x, b->text_bytes, b->key, o, e) : OK;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "shards are little-endian");

static enum status narrow(struct batch *b, struct encoder *x, int id_bytes, struct err *e) {
    int64_t count;
    const uint32_t *ids = encoder_ids(x, &count);
    TRY(bytes_reserve(&b->ids, (size_t)(count * id_bytes), e));
    uint8_t *out = b->ids.bytes;
    for (int64_t i = 0; i < count && id_bytes == 2; i++)
        memcpy(out + 2 * i, &(uint16_t){ (uint16_t)ids[i] }, 2);
    if (id_bytes == 4 && count) memcpy(out, ids, (size_t)count * 4);
    b->ids.count = (size_t)(count * id_bytes);
    return OK;
}

void batch_encode(struct batch *b, const struct batch_options *o, struct encoder *x,
                  struct bytes *line) {
    struct encoder_counts before = encoder_counts(x), after;
    encoder_clear(x);
    b->ids.count = b->loss.count = b->ends_at.count = b->bad.count = 0;
    b->documents = b->empty = b->text_bytes = b->cut = b->lossless = 0;
    b->status = b->lines ? encode_lines(b, x, line, o, &b->e) : encode_part(b, x, o, &b->e);
    if (b->status == OK) b->status = narrow(b, x, o->id_bytes, &b->e);
    after = encoder_counts(x);
    b->replaced = after.replaced - before.replaced;
    b->dropped = after.dropped - before.dropped;
}
