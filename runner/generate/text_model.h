/* Text for a model that generates: prompts into tokens, tokens into text that may be shown. */
#ifndef FP8LAB_RUNNER_GENERATE_TEXT_MODEL_H
#define FP8LAB_RUNNER_GENERATE_TEXT_MODEL_H

#include "runner/chat/chat_tokens.h"
#include "runner/ingest/tokenizer_choice.h"

struct text_model {
    struct tokenizer_choice choice; /* owned */
    struct chat_tokens chat;        /* owned; zero unless text_model_chat() was called */
};

/* The tokenizer of a run: `data` is the section of its configuration, `own` the folder that has the
 * files that it kept. ERR_CONFIG for data that are no text. */
NODISCARD enum status text_model_of_run(const json_t *data, const char *own,
                                        struct text_model *out, struct err *e);
/* The same of a run whose data have none: the file that its folder `own` has, else bytes if
 * `bytes`. *found: there is one. */
NODISCARD enum status text_model_kept(const char *own, bool bytes, struct text_model *out,
                                      bool *found, struct err *e);
/* A file, the folder that has a tokenizer.json, or "bytes". ERR_CONFIG. */
NODISCARD enum status text_model_open(const char *name, struct text_model *out, struct err *e);
/* Adds the chat template: of the run as above, or, with data and own NULL, beside the tokenizer. */
NODISCARD enum status text_model_chat(struct text_model *m, const json_t *data, const char *own,
                                      struct err *e);
void text_model_close(struct text_model *m); /* allowed for a zeroed struct */

/* Ids from 0 to this, excluded, are the tokenizer's. */
int64_t text_model_ids(const struct text_model *m);
/* The token that ends a text of this model: of a turn after text_model_chat(), else of a document;
 * -1: none. */
int32_t text_model_end(const struct text_model *m);

/* *ids, owned by the caller: the text behind what the tokenizer sets before one; after
 * text_model_chat() the text as a user's message, rendered with the beginning of an answer.
 * ERR_CONFIG if there is no token, or one that a model of `vocab` ids lacks. */
NODISCARD enum status text_model_encode(const struct text_model *m, const char *text, int64_t vocab,
                                        int32_t **ids, int64_t *count, struct err *e);

/* The same of a conversation, after text_model_chat(): one JSON object, of the forms of
 * runner/chat/conversation.h, whose last message is not the assistant's. ERR_CONFIG. */
NODISCARD enum status text_model_encode_chat(const struct text_model *m, const char *object,
                                             int64_t vocab, int32_t **ids, int64_t *count,
                                             struct err *e);

/* *text, owned by the caller: what ids prompt .. count-1 add to the text of those before, special
 * tokens left out; *n bytes and a NUL. */
NODISCARD enum status text_model_decode(const struct text_model *m, const int32_t *ids,
                                        int64_t prompt, int64_t count, char **text, size_t *n,
                                        struct err *e);

/* The text as a JSON string; each byte that is no UTF-8, and NUL, becomes U+FFFD. New reference;
 * NULL: out of memory. */
json_t *text_json(const char *text, size_t n);

/* The number of leading bytes that a continuation cannot change: without a torn character at the
 * end, or the U+FFFD that stands for one. */
size_t text_settled(const char *text, size_t n);

/* The bytes before the first of `stops`, with *found; without one, those before what may be the
 * beginning of one. */
size_t text_until_stop(const char *text, size_t n, const char *const *stops, int64_t count,
                       bool *found);

#endif
