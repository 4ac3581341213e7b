/* The tokens of a context, and of a completion behind it. */
#ifndef FP8LAB_RUNNER_INFER_COMPLETION_TOKENS_H
#define FP8LAB_RUNNER_INFER_COMPLETION_TOKENS_H

#include "runner/ingest/tokenizer_choice.h"

struct completion_tokens; /* opaque: the context, and memory of an encoder */

/* `choice` is borrowed. */
NODISCARD enum status completion_tokens_create(struct completion_tokens **out,
                                               const struct tokenizer_choice *choice,
                                               struct err *e);
void completion_tokens_destroy(struct completion_tokens *t); /* NULL is fine */

/* The context from now on. White space at its end goes to the completions; white space is what
 * Python's str.isspace takes for it. *ids, borrowed until the next context, begin as a text of
 * training data does: with the tokens that the tokenizer sets before one. A text that begins with
 * these itself has them once. A context without text is these, or else the token that ends a
 * document. ERR_FORMAT: there is neither. */
NODISCARD enum status completion_tokens_context(struct completion_tokens *t, const char *text,
                                                const int32_t **ids, int64_t *count,
                                                struct err *e);

/* The completion behind the context, with a space between the two unless one of them has white
 * space there, or there is no context. Both together become tokens. *keep: how many tokens of the
 * context remain before the first that differs, where the completion begins; *inside: this token
 * has a piece of the context as well. *ids, at least one, are borrowed until the next call.
 * ERR_FORMAT: an empty text, or no token of the context remains. */
NODISCARD enum status completion_tokens_behind(struct completion_tokens *t, const char *text,
                                               const int32_t **ids, int64_t *keep, int64_t *count,
                                               bool *inside, struct err *e);

#endif
