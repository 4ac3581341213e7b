/* Conversations into token ids, and which of them carry loss: what tokenise() calls for each line.
 * A template renders them, or a renderer.
 *
 * The rendered whole is tokenised, without the tokens that the post-processor of a tokenizer would
 * add, as transformers' apply_chat_template does. Special tokens are found only in text of control
 * origin (chat_origin_is_control), and in fragments that allow them. A token has loss if its last
 * byte is in a range of loss.h. */
#ifndef FP8LAB_RUNNER_CHAT_CHAT_TOKENS_H
#define FP8LAB_RUNNER_CHAT_CHAT_TOKENS_H

#include "runner/chat/loss.h"
#include "runner/chat/renderer.h"
#include "runner/ingest/tokenise.h"

struct chat_tokens {
    struct chat_template template; /* owned; its variables and date are set by the caller */
    struct chat_markers markers;   /* owned */
    enum chat_loss which;
    struct chat_renderer renderer; /* owned; in place of the three above if it has `render` */
    int64_t max_tokens;            /* of a conversation, of which the rest is cut; 0: no limit */
    struct line_encoder lines;     /* for struct tokenise_options; borrows this struct */
};

/* Takes over a template, which is ready to render, and learns its markers. ERR_MEMORY. */
NODISCARD enum status chat_tokens_open(struct chat_tokens *c, struct chat_template *template,
                                       enum chat_loss which, int64_t max_tokens, struct err *e);
/* Takes over a renderer, which decides what carries loss. */
void chat_tokens_open_with(struct chat_tokens *c, struct chat_renderer *renderer,
                           int64_t max_tokens);
void chat_tokens_close(struct chat_tokens *c); /* allowed for a zeroed struct */

#endif
