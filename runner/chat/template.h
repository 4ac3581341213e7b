/* A chat template: parsed once, rendered for each conversation.
 *
 * Rendering has the meaning that the package transformers 5.23 gives to it (its
 * utils/chat_template_utils.py), without a clock: strftime_now exists only if a date is set. The
 * result names for each byte where it comes from. */
#ifndef FP8LAB_RUNNER_CHAT_TEMPLATE_H
#define FP8LAB_RUNNER_CHAT_TEMPLATE_H

#include "model/ground/sha256.h"
#include "runner/chat/conversation.h"
#include "runner/chat/jinja_text.h"

struct node;

struct chat_template {
    struct chat_arena arena; /* of the tree */
    struct node *tree;
    bool generation;   /* it has {% generation %}, which alone then decides what carries loss */
    char *name;        /* for messages; owned by the arena */
    char *source;      /* the text of the template, source_n bytes and a NUL; the arena's */
    int64_t source_n;
    char sha256[SHA256_HEX]; /* of the source */
    json_t *variables; /* owned: special tokens and the user's own variables */
    json_t *tokens;    /* owned: the special tokens among them */
    char date[16];     /* "2024-07-26", or empty: no strftime_now */
    bool without_tools; /* the tokenizer has another template for conversations with tools */
};

enum { CHAT_TEMPLATE_LIMIT = 1 << 20 }; /* bytes of a template */

/* Parses n bytes. `name` begins each message. ERR_CONFIG for a mistake in the template,
 * ERR_UNSUPPORTED for what this interpreter lacks; both with the line. On failure there is nothing
 * to free. */
NODISCARD enum status chat_template_parse(struct chat_template *t, const char *name,
                                          const char *bytes, size_t n, struct err *e);
void chat_template_free(struct chat_template *t); /* allowed for a zeroed struct */

/* Makes the special tokens of a tokenizer_config.json (bos_token and so on) known to the template.
 * A token is a string, an object with `content`, or null. ERR_FORMAT otherwise. */
NODISCARD enum status chat_template_tokens(struct chat_template *t, const json_t *config,
                                           struct err *e);
/* Sets one variable, for example enable_thinking; `value` stays the caller's. */
NODISCARD enum status chat_template_set(struct chat_template *t, const char *name,
                                        const json_t *value, struct err *e);
/* The same of a text NAME=JSON; a value that is no JSON is a string. `what` begins a message.
 * ERR_ARG for another text. */
NODISCARD enum status chat_template_set_text(struct chat_template *t, const char *given,
                                             const char *what, struct err *e);
/* Sets the date of strftime_now: "2024-07-26". ERR_ARG for anything else. */
NODISCARD enum status chat_template_date(struct chat_template *t, const char *date,
                                         struct err *e);

/* Finds, reads and parses the template of a tokenizer, and its special tokens. `template` is a file
 * of Jinja text, or a tokenizer_config.json; NULL: chat_template.jinja beside `config`, or the key
 * chat_template in it. `config` is a tokenizer_config.json; NULL: no special tokens, unless
 * `template` is one. Errors name the file. */
NODISCARD enum status chat_template_load(struct chat_template *t, const char *template,
                                         const char *config, struct err *e);

/* Bytes begin .. end-1 of the text have one origin. Fragments follow each other without a gap. An
 * empty fragment marks where an empty field of a message stands. */
struct chat_fragment {
    int64_t begin, end;
    struct chat_origin origin;
};

struct chat_rendering {
    char *text; /* NUL-terminated; valid UTF-8 */
    int64_t n;
    struct chat_fragment *fragments;
    int64_t count;
    struct chat_arena arena; /* owns all of it */
};

/* Renders the first `messages` messages of a conversation. ERR_CONFIG or ERR_UNSUPPORTED with the
 * line of the template; on failure there is nothing to free. */
NODISCARD enum status chat_render(const struct chat_template *t, const struct conversation *c,
                                  int64_t messages, bool generation_prompt,
                                  struct chat_rendering *out, struct err *e);
void chat_rendering_free(struct chat_rendering *r); /* allowed for a zeroed struct */

/* Whether special tokens may be found in text of this origin: the template's own text, and roles,
 * which are words of a fixed list. */
bool chat_origin_is_control(struct chat_origin origin);

#endif
