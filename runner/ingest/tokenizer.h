/* Tokenizers: text into token ids and back, exactly as the packages `tokenizers` 0.23.3 and
 * tiktoken 0.14 do. A tokenizer is read-only once it is open, so threads share it; each thread has
 * an encoder of its own. */
#ifndef FP8LAB_RUNNER_INGEST_TOKENIZER_H
#define FP8LAB_RUNNER_INGEST_TOKENIZER_H

#include "kernels/base.h"
#include "model/ground/sha256.h"

enum tokenizer_kind { TOKENIZER_BYTES, TOKENIZER_JSON, TOKENIZER_TIKTOKEN };

struct tokenizer; /* opaque */

struct tokenizer_options {
    const char *pattern; /* split pattern of a tiktoken file, by its name; NULL: by its hash */
    bool ordinary;       /* special tokens in a text are text, as tiktoken's encode_ordinary */
    bool ignores_eos;    /* tokenizer_choose() does not look for an eos_token beside the file */
};

/* Opens tokenizer.json (Hugging Face, BPE), a tiktoken file, or bytes for the path "bytes".
 * ERR_FORMAT with file, place and what to do: damage, or a part that is not known, by its name.
 * ERR_IO, ERR_CONFIG for the pattern, ERR_MEMORY. */
NODISCARD enum status tokenizer_open(struct tokenizer **out, const char *path,
                                     const struct tokenizer_options *options, struct err *e);
void tokenizer_close(struct tokenizer *t);

/* Whether a file is a tokenizer, by its first bytes. *out is TOKENIZER_BYTES if it is none. */
NODISCARD enum status tokenizer_find(const char *path, enum tokenizer_kind *out, struct err *e);

struct tokenizer_facts {
    enum tokenizer_kind kind;
    int64_t bytes;           /* of the file */
    int64_t vocab;           /* the largest id, and one */
    int64_t tokens, merges;  /* of the model */
    int64_t added, specials; /* added tokens; those of them that are special */
    const char *split;       /* the split patterns in words; borrowed */
    int32_t end;             /* the token that ends a document, or -1: none is known */
    const char *end_text;    /* its text, or NULL; borrowed */
    bool ordinary;           /* of the options */
    int32_t behind;          /* the last that the post-processor sets behind a text, or -1 */
    char sha256[SHA256_HEX]; /* of the file; of the empty text for bytes */
};
struct tokenizer_facts tokenizer_facts(const struct tokenizer *t);

/* The id of a token by its text, added tokens first; -1 if there is none. */
int32_t tokenizer_id(const struct tokenizer *t, const char *text);

/* Whether a text may be cut at tokenizer_cut() and its parts encoded one by one, for the same ids.
 * True for the known split patterns without a normalizer that looks across the cut. */
bool tokenizer_may_cut(const struct tokenizer *t);
/* The last place in text[0..n-1], n excluded, where it may be cut; 0: there is none. */
size_t tokenizer_cut(const struct tokenizer *t, const char *text, size_t n);

/* ---- encoding ------------------------------------------------------------------------------ */

struct encoder; /* the memory of one thread */

NODISCARD enum status encoder_create(struct encoder **out, const struct tokenizer *t,
                                     struct err *e);
void encoder_destroy(struct encoder *x);

/* Appends the ids of a text. Bytes that are no UTF-8 become U+FFFD, as Python's "replace" does;
 * a tokenizer of bytes takes them as they are. ERR_MEMORY; ERR_FORMAT for 256 MiB or
 * more. */
NODISCARD enum status encoder_add(struct encoder *x, const char *text, size_t n, struct err *e);
/* Appends the tokens that the post-processor sets before a text, or behind it. */
NODISCARD enum status encoder_begin(struct encoder *x, struct err *e);
NODISCARD enum status encoder_end(struct encoder *x, struct err *e);
NODISCARD enum status encoder_push(struct encoder *x, uint32_t id, struct err *e);

/* The ids so far; borrowed until the next call. encoder_cut forgets all but the first `count`. */
const uint32_t *encoder_ids(const struct encoder *x, int64_t *count);
void encoder_clear(struct encoder *x);
void encoder_cut(struct encoder *x, int64_t count);

/* As encoder_add, for text of several authors: special tokens are found only inside the `count`
 * ranges, which are in order and do not touch. Other added tokens are found everywhere. ERR_FORMAT
 * also for a text that is no UTF-8. */
struct byte_range { int64_t begin, end; };
NODISCARD enum status encoder_add_placed(struct encoder *x, const char *text, size_t n,
                                         const struct byte_range *control, int64_t count,
                                         struct err *e);
/* For each id that the last encoder_add_placed appended: where in its text the bytes end that the
 * id stands for. What NFC changes ends where the whole character does. Borrowed as the ids are. */
const uint32_t *encoder_places(const struct encoder *x);

/* Counted since encoder_create. */
struct encoder_counts {
    int64_t replaced; /* U+FFFD for bytes that are no UTF-8 */
    int64_t dropped;  /* characters without a token, where the tokenizer has no unknown token */
};
struct encoder_counts encoder_counts(const struct encoder *x);

/* ---- decoding ------------------------------------------------------------------------------ */

/* The text of ids, owned by the caller; *n bytes and a NUL. It is valid UTF-8 unless `t` is of
 * bytes. ERR_ARG for an id that is not in the vocabulary. */
NODISCARD enum status tokenizer_decode(const struct tokenizer *t, const uint32_t *ids,
                                       int64_t count, bool skip_specials, char **out, size_t *n,
                                       struct err *e);

#endif
