/* What may make tokens of a line of JSON lines in place of its field: runner/chat, for example. */
#ifndef FP8LAB_RUNNER_INGEST_LINE_ENCODER_H
#define FP8LAB_RUNNER_INGEST_LINE_ENCODER_H

#include "runner/ingest/tokenizer.h"
#include "runner/ingest/unique.h"

struct bytes;
struct json_t;

/* What became of one line; the caller zeroes it. */
struct line_outcome {
    int64_t text_bytes;  /* of the text that was encoded */
    bool cut, lossless;  /* shortened to a limit; left out, because no token would carry loss */
    unsigned char key[UNIQUE_KEY]; /* of the text and of what carries loss */
};

/* Called by several threads at once. Each line is one document. */
struct line_encoder {
    const void *context;
    /* Appends ids to x, and for each a byte to `loss`: 1 if the token carries loss. No ids: no
     * document. ERR_FORMAT for a line that --skip-bad may leave out; then nothing is appended. */
    enum status (*encode)(const void *context, const char *line, size_t n, struct encoder *x,
                          struct bytes *loss, struct line_outcome *out, struct err *e);
    /* A new object for PREFIX.json, all that determines the result; NULL: no memory. */
    struct json_t *(*describe)(const void *context);
};

#endif
