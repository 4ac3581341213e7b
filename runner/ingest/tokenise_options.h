/* What tokenise() is asked for, and what it made. */
#ifndef FP8LAB_RUNNER_INGEST_TOKENISE_OPTIONS_H
#define FP8LAB_RUNNER_INGEST_TOKENISE_OPTIONS_H

#include "runner/ingest/line_encoder.h"

struct json_t;

/* Counted up when the same text gets other tokens than before: older shards are then not found, and
 * no run goes on with older ones. */
enum { INGESTION_VERSION = 4 };

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
    int64_t save_bytes;  /* of text, after which a killed run can go on; 0: 64 MiB */
    int64_t part_max;    /* bytes of a line, or of a text that cannot be cut; 0: 256 MiB */
    bool in_script;      /* messages name the script's keys in place of flags */
    bool looked;         /* the caller has warned of plain files that may be no text */
    bool keep_bad;       /* an error in the text, too, leaves the parts for the next run */
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
    int64_t text_before; /* of text_bytes: made by a run that was killed */
    struct json_t *description; /* PREFIX.json */
};

#endif
