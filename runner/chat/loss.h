/* Which bytes of a rendered conversation carry loss: what the model must write itself.
 *
 * A range begins behind the header of an assistant turn and ends behind its end-of-turn token; the
 * newline after that token carries no loss. A token across a border has loss if its last byte lies
 * in a range. */
#ifndef FP8LAB_RUNNER_CHAT_LOSS_H
#define FP8LAB_RUNNER_CHAT_LOSS_H

#include "runner/chat/template.h"

/* What the template writes around an assistant turn, learned from two short conversations. */
struct chat_markers {
    char *prompt; /* what add_generation_prompt adds: "<|im_start|>assistant\n"; may be "" */
    char *end;    /* behind an assistant's content, up to the newline: "<|im_end|>"; may be "" */
};

/* Both are owned by the caller: chat_markers_free. A template that rejects the short conversations
 * has empty markers; only ERR_MEMORY is an error. */
NODISCARD enum status chat_markers_find(const struct chat_template *t, struct chat_markers *out,
                                        struct err *e);
void chat_markers_free(struct chat_markers *m); /* allowed for a zeroed struct */

enum chat_loss {
    CHAT_LOSS_ALL, /* each assistant message */
    CHAT_LOSS_LAST /* the last assistant message only */
};

struct chat_range {
    int64_t begin, end; /* bytes begin .. end-1 of the rendered text */
    int64_t message;
};

/* The ranges of a rendering of the whole conversation, in the order of the text; none for a message
 * that is not trained. {% generation %} decides if the template has it. Otherwise a turn is found
 * by the origins of its text and by the markers. *out is owned by the caller (free). The only error
 * is ERR_MEMORY. For a turn without one of the markers the conversation up to it is rendered. */
NODISCARD enum status chat_loss_ranges(const struct chat_template *t, const struct chat_markers *m,
                                       const struct conversation *c,
                                       const struct chat_rendering *r, enum chat_loss which,
                                       struct chat_range **out, int64_t *count, struct err *e);

#endif
