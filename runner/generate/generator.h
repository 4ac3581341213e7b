/* Continues token sequences by a trainer's forward pass, several at a time. Each new token is a
 * pass over the whole batch, without a cache of keys and values. So it needs no memory of its own
 * on the device, and computes what training computes. */
#ifndef FP8LAB_RUNNER_GENERATE_GENERATOR_H
#define FP8LAB_RUNNER_GENERATE_GENERATOR_H

#include "model/train.h"
#include "runner/generate/sampling.h"

struct generator; /* its host buffers */

/* `batch`, `length` and `vocab` are the trainer's. Ids at or above `ids` are never chosen: a
 * tokenizer may have fewer than the model. The trainer is borrowed until destroy. ERR_MEMORY. */
struct generator_sizes { int64_t batch, length, vocab, ids; };
NODISCARD enum status generator_create(struct generator **out, struct trainer *t,
                                       const struct generator_sizes *sizes, struct err *e);
void generator_destroy(struct generator *g); /* NULL is fine */

enum generation_end {
    GENERATION_GOES_ON,
    GENERATION_TOKENS, /* it has the tokens that were asked for */
    GENERATION_STOP,   /* a stop token, which is the last of `ids`, or the caller's wish */
    GENERATION_LENGTH  /* the sequence of the model is full */
};
extern const char *const GENERATION_END_NAMES[]; /* "", "tokens", "stop", "length" */

struct generation {
    int32_t *ids;    /* [length], the caller's: the prompt, then what is generated */
    int64_t prompt;  /* tokens of the prompt; at least 1, at most length - 1 */
    int64_t number;  /* of the prompt, for the draws */
    int64_t count;   /* tokens in `ids`; set by generator_run */
    enum generation_end end;
};

struct generation_rules {
    struct sampling sampling;
    int64_t tokens;        /* at most so many new ones for each prompt */
    const int32_t *stop;   /* tokens that end a text */
    int64_t stop_count;
    /* Called after each new token of x. Sets x->end to end it. NULL: not called. With several ranks
     * it must decide by the ids alone. */
    enum status (*added)(void *user, struct generation *x, struct err *e);
    /* Called before each token; true ends the work. Rank 0's answer counts on all ranks. NULL: not
     * called. */
    bool (*stopped)(void *user);
    void *user;
};

/* Continues `count` prompts, a batch after the other. Every rank calls it with the same prompts and
 * gets rank 0's tokens. What a prompt becomes does not depend on the others, except through a scale
 * of the recipe that covers the whole batch. After rules->stopped those that are not finished have
 * the end GENERATION_GOES_ON. */
NODISCARD enum status generator_run(struct generator *g, const struct generation_rules *rules,
                                    struct generation *x, int64_t count, struct err *e);

#endif
