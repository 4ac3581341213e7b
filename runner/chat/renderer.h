/* What may render conversations in place of a template: a function of the script, which another
 * room calls. It gives fragments, and says of each whether it carries loss. */
#ifndef FP8LAB_RUNNER_CHAT_RENDERER_H
#define FP8LAB_RUNNER_CHAT_RENDERER_H

#include "runner/chat/conversation.h"
#include "runner/chat/loss.h"
#include "runner/ingest/tokenizer.h"

struct chat_renderer {
    void *context; /* owned */
    /* Called by several threads at once. *fragments, a new reference, is [{"text", "loss",
     * "special"}]. ERR_FORMAT: this conversation cannot be rendered. Any other error ends the
     * ingestion: its cause may not come again with the same conversation. */
    enum status (*render)(void *context, const json_t *conversation, json_t **fragments,
                          struct err *e);
    /* A new object: all that determines the fragments; NULL: no memory. */
    json_t *(*describe)(const void *context);
    void (*close)(void *context);
};

/* Opens the renderer that a configuration names; the caller closes it. */
struct chat_render_source {
    enum status (*open)(const struct chat_render_source *s, const char *name, int threads,
                        struct chat_renderer *out, struct err *e);
    const char *script, *lib; /* borrowed; lib may be NULL */
};

/* A conversation as text. All owned: chat_text_free(). */
struct chat_text {
    char *text; /* n bytes of UTF-8 and a NUL */
    int64_t n;
    struct byte_range *control; /* where special tokens are found */
    struct chat_range *loss;    /* what carries loss; a renderer's are of no message */
    int64_t controls, losses;   /* both in order, and none touches another */
};

/* Renders a conversation and joins the fragments. ERR_FORMAT as above. */
NODISCARD enum status chat_render_text(const struct chat_renderer *r, const struct conversation *c,
                                       struct chat_text *out, struct err *e);
/* The same of a template's rendering, which stays the caller's. ERR_MEMORY. */
NODISCARD enum status chat_template_text(const struct chat_template *t,
                                         const struct chat_markers *m,
                                         const struct conversation *c,
                                         const struct chat_rendering *r, enum chat_loss which,
                                         struct chat_text *out, struct err *e);
void chat_text_free(struct chat_text *t); /* allowed for a zeroed struct */

#endif
