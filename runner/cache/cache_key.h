/* What determines the tokens of an experiment's text: the files, the tokenizer and the options
 * that change a token, each by content. Their hash names the shards. */
#ifndef FP8LAB_RUNNER_CACHE_CACHE_KEY_H
#define FP8LAB_RUNNER_CACHE_CACHE_KEY_H

#include <jansson.h>

#include "runner/chat/chat_tokens.h"
#include "runner/ingest/tokenizer_choice.h"

#define CACHE_OF_KEY "of" /* in the data of a set: the key that names its files, "eval.also.code" */
enum { CACHE_NAME = 32 }; /* digits of the key in file names */

struct cache_text {
    const json_t *data;  /* borrowed: the section of the configuration */
    bool of_run;         /* the tokenizer is the one that a run kept, at a path that nobody knows */
    bool of_script;      /* of an experiment, not of a command's flags */
    struct tokenizer_choice choice;
    struct chat_tokens chat; /* of conversations; it must not move */
    json_t *kept;            /* {name in a bundle: path}: tokenizer and template; owned */
    char **paths;        /* of the sources, as they are opened; owned, as are the texts */
    int64_t path_count;
    json_t *sources;     /* [{"path" as configured, "bytes", "sha256"}]; owned */
    char key[SHA256_HEX];
};

/* Whether the data of a configuration become tokens before training. */
bool cache_is_needed(const json_t *config);

/* The tokenizer of text or chats; bytes without the key `tokenizer`. `root` and `own` as below.
 * ERR_CONFIG. The caller frees *out. */
NODISCARD enum status cache_tokenizer(const json_t *data, const char *root, const char *own,
                                      struct tokenizer_choice *out, struct err *e);

/* The name under which a bundle has a tokenizer's file; NULL: bytes have none. */
const char *cache_kept_name(enum tokenizer_kind kind);
/* Whether the folder has such a file: its path, else "". */
bool cache_kept_tokenizer(const char *own, char path[PATH_CAP]);
/* The files beside a tokenizer that a bundle keeps as well, by name; NULL ends the list. */
extern const char *const CACHE_BESIDE[];

/* What can be found wrong without reading the text: the tokenizer, the vocabulary, missing files,
 * also those of the sets of eval.also.
 * ERR_CONFIG; ERR_IO for a missing file of text. */
NODISCARD enum status cache_text_check(const json_t *config, const char *root, struct err *e);

/* Opens the tokenizer and hashes all sources. `root`: prefix of all paths, or NULL; `own`: a folder
 * with the files of `kept`, used instead of the configured ones, or NULL; `render`: what opens a
 * function that renders. ERR_CONFIG with what to do: a file that is not there, a tokenizer that
 * cannot be read, model.vocab below its ids. *out is always valid for cache_text_close(). */
NODISCARD enum status cache_text_open(struct cache_text *out, const json_t *config,
                                      const char *root, const char *own,
                                      const struct chat_render_source *render, struct err *e);
void cache_text_close(struct cache_text *t);

/* The description of an experiment's tokens for its bundle, from that beside the shards. New
 * reference, NULL: out of memory. */
json_t *cache_record(const struct cache_text *t, const char *prefix, const json_t *description);

#endif
