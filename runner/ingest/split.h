/* Text into words: the split patterns that tokenizers name, by hand-written code where the pattern
 * is known and by Oniguruma where it is not.
 *
 * Text is valid UTF-8. Every byte of it is in exactly one piece; a piece is never empty. */
#ifndef FP8LAB_RUNNER_INGEST_SPLIT_H
#define FP8LAB_RUNNER_INGEST_SPLIT_H

#include "runner/ingest/unicode.h"

enum split_kind {
    SPLIT_NONE,      /* the whole text is one piece */
    SPLIT_GPT2,      /* ByteLevel's own pattern */
    SPLIT_LLAMA3,    /* Llama-3: numbers of up to three digits */
    SPLIT_QWEN2,     /* Qwen2, 2.5, 3: digits alone */
    SPLIT_CL100K,    /* tiktoken's cl100k_base */
    SPLIT_O200K,     /* tiktoken's o200k_base */
    SPLIT_TEKKEN,    /* Mistral NeMo: o200k without contractions, digits alone */
    SPLIT_DEEPSEEK,  /* the third pattern of DeepSeek-V3 */
    SPLIT_NUMBERS_3, /* \p{N}{1,3} */
    SPLIT_CJK,       /* [一-龥぀-ゟ゠-ヿ]+ */
    SPLIT_DIGITS,    /* each digit alone */
    SPLIT_DIGIT_RUNS, /* runs of digits */
    SPLIT_KINDS
};

/* The known pattern of a regular expression, with matches isolated; SPLIT_NONE if it is unknown. */
enum split_kind split_known(const char *regex);
/* The word for a kind, for messages and --pattern: "gpt2", "llama3", ... */
const char *split_name(enum split_kind kind);

enum { BLOCK_PIECES = 24 }; /* pieces that are found together, in most text */

/* Writes where the next pieces from p on end, at most `most` of them; returns how many, at least
 * one if there is text. */
int split_next(const struct unicode *u, enum split_kind kind, const uint8_t *p, const uint8_t *end,
               const uint8_t **ends, int most);

/* ---- other patterns ------------------------------------------------------------------------ */
enum split_behavior { SPLIT_ISOLATED, SPLIT_REMOVED, SPLIT_MERGED_PREVIOUS, SPLIT_MERGED_NEXT,
                      SPLIT_CONTIGUOUS };

struct pattern; /* compiled; read-only */

/* `literal`: the text is matched as it is. ERR_FORMAT with the place in the expression. */
NODISCARD enum status pattern_create(struct pattern **out, const char *regex, size_t n,
                                     bool literal, struct err *e);
void pattern_destroy(struct pattern *p);

/* What Oniguruma needs for one thread; zeroed at first. */
struct pattern_work {
    struct re_registers *region; /* owned, with its arrays behind it */
    struct OnigMatchParamStruct *limits; /* owned */
    size_t *piece; /* pairs begin, end; owned */
    size_t count, room;
};
void pattern_work_free(struct pattern_work *w);

/* The pieces of text[0..n-1] in w->piece, after the behaviour. `invert` exchanges matches and
 * gaps. ERR_FORMAT when a match exceeds Oniguruma's limits. */
NODISCARD enum status pattern_split(const struct pattern *p, enum split_behavior behavior,
                                    bool invert, const uint8_t *text, size_t n,
                                    struct pattern_work *w, struct err *e);

#endif
