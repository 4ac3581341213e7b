/* Conversations of the formats that users have, read from one JSON object into one form.
 *
 * messages       [{role, content, tool_calls, ...}]: OpenAI's form, with tools beside it
 * conversations  [{from, value}]: ShareGPT's form, with system and tools beside it
 * prompt, completion  strings or lists of messages: TRL's form
 * instruction, input, output  Alpaca's columns, with system and history beside them */
#ifndef FP8LAB_RUNNER_CHAT_CONVERSATION_H
#define FP8LAB_RUNNER_CHAT_CONVERSATION_H

#include <jansson.h>

#include "kernels/base.h"

enum { CONVERSATION_LIMIT = 64 << 20 }; /* bytes of its JSON */

struct conversation {
    json_t *messages;  /* owned: objects as transformers gives them to a template */
    json_t *tools;     /* owned, an array; NULL: none */
    json_t *documents; /* owned, an array; NULL: none */
    json_t *arguments; /* owned, an object: "chat_template_kwargs"; NULL: none */
    int64_t count;
    bool *assistant; /* owned: message i is the assistant's */
    bool *trained;   /* owned: false if message i says training: false or weight: 0 */
};

/* Reads one conversation. Keys of a message whose value is null are dropped, and reasoning,
 * thinking and reasoning_content are copied into each other as transformers 5 does. ERR_FORMAT
 * with the path of the field, as in "messages[2].content: ...". The caller adds file and line. */
NODISCARD enum status conversation_read(const json_t *row, struct conversation *out,
                                        struct err *e);
/* The same from the text of one JSON object, n bytes. */
NODISCARD enum status conversation_parse(const char *bytes, size_t n, struct conversation *out,
                                         struct err *e);
void conversation_free(struct conversation *c); /* allowed for a zeroed struct */

#endif
