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
    bool unique;       /* keys are needed */
    int64_t skip_bad;  /* a batch with more bad lines ends at the first of these */
};

/* Behind the last token of a document. */
struct document_end {
    int64_t tokens, text_bytes;    /* of the batch up to here; of the document in this batch */
    unsigned char key[UNIQUE_KEY]; /* if asked for */
};

struct bad_line { int64_t line; char text[200]; };

struct batch {
    /* Set by the reader. */
    struct bytes text;      /* JSON lines, or a part of a plain text */
    bool lines;
    bool begins, ends;      /* a plain text: its first part, its last */
    unsigned char key[UNIQUE_KEY]; /* of a plain text, with its last part */
    int64_t line_max;       /* 0, or its one line had this many bytes or more, and was left out */
    int64_t source, line;   /* index of the file; number of the first line, from 1 */
    char name[128];         /* of the file inside a tar, or "" */
    /* Set by the encoder. */
    struct bytes ids;       /* of id_bytes each */
    struct bytes loss;      /* of each id, if lines are encoded otherwise than by their field */
    struct bytes ends_at;   /* struct document_end */
    struct bytes bad;       /* struct bad_line */
    int64_t documents, empty, replaced, dropped, cut, lossless;
    int64_t text_bytes;     /* of an open document too */
    enum status status;
    struct err e;
};

void batch_free(struct batch *b);

/* The line ends of its text. */
int64_t batch_lines(const struct batch *b);

/* Encodes a batch. `line` is spare memory. The status and error are the batch's. */
void batch_encode(struct batch *b, const struct batch_options *o, struct encoder *x,
                  struct bytes *line);

#endif
