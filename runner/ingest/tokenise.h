/* Files of text into token shards: one thread reads and writes, the others encode. The shards are
 * the same bytes for any number of threads; memory does not grow with the text. */
#ifndef FP8LAB_RUNNER_INGEST_TOKENISE_H
#define FP8LAB_RUNNER_INGEST_TOKENISE_H

#include "runner/ingest/line_encoder.h"

struct json_t;

struct tokenise_options {
    const struct tokenizer *tokenizer;
    const char *tokenizer_path;
    const char *const *paths;
    int64_t path_count;
    const char *prefix;  /* of the shards */
    const char *field;   /* of a JSON line; NULL: "text", and only of files named as JSON lines */
    /* NULL: text. Otherwise all files are JSON lines, `field` and `end` are not used, and there is
     * PREFIX.loss: a byte for each token, 1 or 0, without a header. */
    const struct line_encoder *lines;
    int32_t end;         /* the token behind each document, or -1 */
    int threads;         /* at least 1 */
    int64_t skip_bad;    /* lines that may be left out */
    bool unique;         /* a document with the text of an earlier one is left out */
    /* Called with the share of the input that is read; and with a warning, such as for each line
     * that is left out. */
    void (*progress)(void *context, double share, int64_t tokens);
    void (*warn)(void *context, const char *text);
    void *context;
};

/* What was made; the caller releases the description. */
struct tokenise_result {
    int64_t documents, empty, skipped, tokens, text_bytes, replaced, dropped;
    int64_t duplicates;                 /* documents left out by `unique` */
    int64_t loss_tokens, cut, lossless; /* of conversations; see struct line_outcome */
    int64_t us;
    struct json_t *description; /* PREFIX.json */
};

/* ERR_FORMAT with file and line for damage and for a bad JSON line; ERR_CONFIG for a file that
 * cannot be opened, for no document at all, and where PREFIX exists; ERR_IO for the output. */
NODISCARD enum status tokenise(const struct tokenise_options *o, struct tokenise_result *out,
                               struct err *e);

#endif
