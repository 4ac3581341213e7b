/* The chat template of chats { ... }, and which of its tokens carry loss. */
#ifndef FP8LAB_RUNNER_CACHE_CACHE_CHAT_H
#define FP8LAB_RUNNER_CACHE_CACHE_CHAT_H

#include <jansson.h>

#include "runner/chat/chat_tokens.h"

/* Whether the data are conversations. */
bool cache_is_chat(const json_t *data);

/* Whether a function of the script renders them. */
bool cache_is_rendered(const json_t *data);

/* Opens the function that renders them, with a server for each thread. *out must not move
 * afterwards: chat_tokens_close(). ERR_CONFIG. */
NODISCARD enum status cache_chat_render(struct chat_tokens *out, const json_t *data,
                                        const struct chat_render_source *source, int threads,
                                        struct err *e);

/* Opens the template that the data name, or that lies beside `tokenizer`, the tokenizer's file.
 * `own` is a folder whose template is taken instead, or NULL. Adds the files of which it is made to
 * `kept`, {name in a bundle: path}. *out must not move afterwards: chat_tokens_close(). ERR_CONFIG
 * with what to do. */
NODISCARD enum status cache_chat_open(struct chat_tokens *out, const json_t *data,
                                      const char *root, const char *own, const char *tokenizer,
                                      json_t *kept, struct err *e);

#endif
