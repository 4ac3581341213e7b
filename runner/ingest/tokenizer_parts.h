/* The parts of a tokenizer, for the files that load it and those that use it. */
#ifndef FP8LAB_RUNNER_INGEST_TOKENIZER_PARTS_H
#define FP8LAB_RUNNER_INGEST_TOKENIZER_PARTS_H

#include <jansson.h>

#include "runner/ingest/bpe.h"
#include "runner/ingest/split.h"
#include "runner/ingest/tokenizer.h"

#define NO_TOKEN UINT32_MAX

enum { VOCAB_MAX = 1 << 22, STAGES_MAX = 16, TOKENIZER_FILE_MAX = 256 << 20 };

/* ---- vocabulary ---------------------------------------------------------------------------- */
enum { TOKEN_MODEL = 1, TOKEN_SPECIAL = 2, TOKEN_ADDED = 4, TOKEN_REACHED = 8 };

/* Tokens by id, and the model's by their bytes. */
struct vocab {
    int64_t size;        /* ids are 0 .. size-1; some may have no token */
    uint32_t *begin;     /* [size + 1] into text; owned */
    uint8_t *text;       /* owned */
    uint8_t *flags;      /* [size] TOKEN_..., 0: no token; owned */
    uint32_t *slot;      /* ids by a hash of their bytes, NO_TOKEN in empty ones; owned */
    uint64_t mask;
};
static inline size_t vocab_length(const struct vocab *v, uint32_t id) {
    return v->begin[id + 1] - v->begin[id];
}
/* One token before the vocabulary is built. `text` is borrowed. */
struct vocab_row { const uint8_t *text; size_t n; uint8_t flags; };
struct vocab_rows {
    struct vocab_row *row; /* by id; owned */
    int64_t size, room;    /* the largest id that is reached, and one */
};
/* The row of an id below VOCAB_MAX; empty at first. */
NODISCARD enum status vocab_row(struct vocab_rows *rows, int64_t id, struct vocab_row **out,
                                struct err *e);
/* Copies the rows; those with TOKEN_REACHED are found by vocab_find. */
NODISCARD enum status vocab_build(struct vocab *v, const struct vocab_rows *rows, struct err *e);
void vocab_free(struct vocab *v);
/* NO_TOKEN if no token has exactly these bytes. */
uint32_t vocab_find(const struct vocab *v, const uint8_t *text, size_t n);

/* ---- added tokens -------------------------------------------------------------------------- */
struct added {
    const char *text; /* owned */
    size_t n;
    uint32_t id;
    bool special, normalized, lstrip, rstrip;
};
/* Sorted contents of one pass, for the leftmost longest match. */
struct added_pass {
    struct added *token; /* owned; their texts too */
    int64_t count;
    bool first[256];     /* bytes that a token begins with */
    int only;            /* the byte, if it is just one; -1 */
};
void added_build(struct added_pass *a); /* sorts; call it when all are there */
void added_free(struct added_pass *a);
/* The next match in text[from..n-1], or NULL. *at receives its place. */
const struct added *added_find(const struct added_pass *a, const uint8_t *text, size_t n,
                               size_t from, size_t *at);

/* ---- stages -------------------------------------------------------------------------------- */
struct text_ref { char *text; size_t n; }; /* owned by its part */

enum step_kind { STEP_NFC, STEP_PREPEND, STEP_REPLACE };
struct normal_step { enum step_kind kind; struct text_ref a, b; };

enum stage_kind { STAGE_SPLIT, STAGE_PATTERN, STAGE_SPACE_BEFORE, STAGE_METASPACE };
enum prepend { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS };
struct stage {
    enum stage_kind kind;
    enum split_kind split;
    struct pattern *pattern; /* owned */
    enum split_behavior behavior;
    bool invert;
    struct text_ref replacement; /* of Metaspace */
    enum prepend prepend;
};

enum decoder_kind { DECODE_BYTE_LEVEL, DECODE_METASPACE, DECODE_REPLACE, DECODE_BYTE_FALLBACK,
                    DECODE_FUSE, DECODE_STRIP };
struct decoder_step {
    enum decoder_kind kind;
    struct text_ref a, b; /* Replace: a by b; Metaspace: its replacement in a; Strip: what in a */
    int64_t start, stop;
    enum prepend prepend;
};

struct tokenizer {
    enum tokenizer_kind kind;
    struct unicode *unicode; /* owned */
    struct vocab vocab;
    struct bpe *bpe;         /* owned */
    int64_t merges, tokens;
    uint32_t byte_id[256];   /* the token of one byte; NO_TOKEN */
    bool byte_level, byte_fallback, fuse_unk, ignore_merges, ordinary;
    bool whole_bytes;        /* byte_level, and each byte has a token */
    bool cut_at_marks;       /* no token contains U+2581 behind another character, and a whole
                              * piece is not looked up */
    uint32_t unk;
    struct added_pass raw, normalized;
    struct normal_step step[STAGES_MAX];
    struct stage stage[STAGES_MAX];
    struct decoder_step decoder[STAGES_MAX];
    int steps, stages, decoders;
    uint32_t *before, *behind; /* of the post-processor; owned */
    int64_t before_count, behind_count;
    char split_words[256];
    int64_t bytes;
    char sha256[SHA256_HEX];
    char content[SHA256_HEX]; /* tokenizer_content.h; "" for other kinds */
    int32_t end;
    const char *end_text; /* borrowed from an added token, or static */
};

/* ---- loading ------------------------------------------------------------------------------- */

/* The file is in memory: text[0..n-1]. */
NODISCARD enum status tokenizer_load_json(struct tokenizer *t, const char *path, const char *text,
                                          size_t n, struct err *e);
NODISCARD enum status tokenizer_load_tiktoken(struct tokenizer *t, const char *path,
                                              const char *text, size_t n, const char *pattern,
                                              struct err *e);

/* The parts of tokenizer.json around the model (tokenizer_stages.c). `path` is for messages. */
NODISCARD enum status load_normalizer(struct tokenizer *t, const char *path, const json_t *value,
                                      struct err *e);
NODISCARD enum status load_pre_tokenizer(struct tokenizer *t, const char *path,
                                         const json_t *value, struct err *e);
NODISCARD enum status load_post_processor(struct tokenizer *t, const char *path,
                                          const json_t *value, struct err *e);
NODISCARD enum status load_decoder(struct tokenizer *t, const char *path, const json_t *value,
                                   struct err *e);
/* A copy of a text, owned by the part. */
NODISCARD enum status text_copy(struct text_ref *out, const char *text, size_t n, struct err *e);
/* After the normalizer is known: adds a token to its pass. */
NODISCARD enum status add_token(struct tokenizer *t, const struct added *token, struct err *e);

/* Appends `text` with each `from` replaced. */
NODISCARD enum status replace_all(struct bytes *out, const uint8_t *text, size_t n,
                                  const struct text_ref *from, const struct text_ref *to,
                                  struct err *e);

/* The character of `tokenizers`' ByteLevel for a byte, and the bytes of such characters. */
uint32_t byte_level_character(uint8_t byte);
/* Appends the bytes; false if a character is none of ByteLevel's. */
bool byte_level_bytes(const uint8_t *text, size_t n, uint8_t *out, size_t *count);

/* ---- typed members of JSON ------------------------------------------------------------------ */
/* Each reads object[key]; `where` is the object's place for messages. A missing or null member
 * leaves *out as it is. ERR_FORMAT for another type. */
NODISCARD enum status get_bool(const char *path, const char *where, const json_t *object,
                               const char *key, bool *out, struct err *e);
NODISCARD enum status get_text(const char *path, const char *where, const json_t *object,
                               const char *key, const char **out, size_t *n, struct err *e);
NODISCARD enum status get_array(const char *path, const char *where, const json_t *object,
                                const char *key, const json_t **out, struct err *e);
/* Rejects members that are not in `known`, a list that ends with NULL. */
NODISCARD enum status only_members(const char *path, const char *where, const json_t *object,
                                   const char *const *known, struct err *e);

#endif
