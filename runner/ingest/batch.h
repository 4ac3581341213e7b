/* A batch: some text on its way through the threads, and the tokens that it became. */
#ifndef FP8LAB_RUNNER_INGEST_BATCH_H
#define FP8LAB_RUNNER_INGEST_BATCH_H

#include "runner/ingest/line_encoder.h"
#include "runner/ingest/unicode.h"

enum { BATCH_BYTES = 1 << 20 };

struct batch_options {
    const struct tokenizer *tokenizer;
    const char *field; /* of a JSON line */
    const struct line_encoder *lines; /* in place of the field; NULL: none */
    int32_t end;       /* the token behind each document, or -1 */
    int id_bytes;
};

struct bad_line { int64_t line; char text[200]; };

struct batch {
    /* Set by the reader. */
    struct bytes text;      /* JSON lines, or a part of a plain text */
    bool lines;
    bool begins, ends;      /* a plain text: its first part, its last */
    int64_t source, line;   /* index of the file; number of the first line, from 1 */
    char name[128];         /* of the file inside a tar, or "" */
    /* Set by the encoder. */
    struct bytes ids;       /* of id_bytes each */
    struct bytes loss;      /* of each id, if lines are encoded otherwise than by their field */
    struct bytes ends_at;   /* int64_t: tokens up to the end of each document in this batch */
    struct bytes bad;       /* struct bad_line */
    int64_t documents, empty, text_bytes, replaced, dropped, cut, lossless;
    enum status status;
    struct err e;
};

void batch_free(struct batch *b);

/* Encodes a batch. `line` is spare memory. The status and error are the batch's. */
void batch_encode(struct batch *b, const struct batch_options *o, struct encoder *x,
                  struct bytes *line);

#endif
