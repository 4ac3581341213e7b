/* Where in a text each token ends, through everything that changes the text on its way. */
#ifndef FP8LAB_RUNNER_INGEST_TRACE_H
#define FP8LAB_RUNNER_INGEST_TRACE_H

#include "runner/ingest/tokenizer_parts.h"

/* The buffer that is being split, and for each of its bytes where in the text the character ends
 * that it came from. Without a map the buffer is a part of the text. */
struct trace_view {
    const uint8_t *base;
    const uint32_t *map; /* NULL: byte i ends at origin + i + 1 */
    size_t origin;
};

/* One per encoder. Zero-initialise it. */
struct trace {
    bool on;
    const struct byte_range *control; /* borrowed: special tokens are found only inside these */
    int64_t control_count;
    struct trace_view view;
    struct bytes ends;                /* uint32_t for each id since trace_begin */
    struct bytes map[STAGES_MAX + 2]; /* of each stage; two for the normalizer, by turns */
    int flip;
};

void trace_begin(struct trace *t, const uint8_t *text, const struct byte_range *control,
                 int64_t count);
void trace_free(struct trace *t);

/* Whether a special token may be found in p[0..n-1], a part of the view. */
bool trace_allows(const struct trace *t, const uint8_t *p, size_t n);

/* The next id stands for what ends behind `last`. */
NODISCARD enum status trace_push(struct trace *t, const uint8_t *last, struct err *e);
/* The next ids are those of the word p[0..n-1]. */
NODISCARD enum status trace_word(struct trace *t, const struct tokenizer *k, const uint8_t *p,
                                 size_t n, const uint32_t *id, size_t count, struct err *e);

/* The next ids are those of whole words from p on, in a tokenizer of `whole_bytes`: each id stands
 * for as many bytes as its token has. */
NODISCARD enum status trace_ids(struct trace *t, const struct tokenizer *k, const uint8_t *p,
                                const uint32_t *id, size_t count, struct err *e);

/* The view becomes `base`: what a stage made of p[0..n-1], with `prefix` bytes set before it and
 * each `from` (NULL: nothing) replaced. The caller restores the view. */
NODISCARD enum status trace_stage(struct trace *t, int stage, const uint8_t *base, size_t prefix,
                                  const uint8_t *p, size_t n, const struct text_ref *from,
                                  const struct text_ref *to, struct err *e);
/* The same for a step of the normalizer on the whole view, p[0..n-1]. */
NODISCARD enum status trace_step(struct trace *t, const struct unicode *u,
                                 const struct normal_step *s, const uint8_t *base,
                                 const uint8_t *p, size_t n, struct err *e);

#endif
