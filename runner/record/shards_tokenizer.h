/* The tokenizer that made a run's token shards: PREFIX.json of `data tokenise`, beside the first
 * shard, names it. */
#ifndef FP8LAB_RUNNER_RECORD_SHARDS_TOKENIZER_H
#define FP8LAB_RUNNER_RECORD_SHARDS_TOKENIZER_H

#include "model/ground/sha256.h"
#include "runner/ingest/tokenizer_choice.h"
#include "runner/ingest/tokenizer_content.h"

struct json_t;

struct shards_tokenizer {
    char name[PATH_CAP];      /* as tokenizer_choose() takes it; "": none is named */
    char described[PATH_CAP]; /* PREFIX.json, whether it is there or not; "": the data name no
                                 shard */
    struct tokenizer_hash hash; /* as described */
    char shards[SHA256_HEX];  /* of PREFIX.bin, as described; "": not known */
    int32_t end;              /* the token behind each document; -1: none */
};

/* `data`: of a configuration. `root`: of its paths; NULL: the working directory. Another program's
 * PREFIX.json names nothing. ERR_CONFIG for too long a path; the errors of json_file_read. */
NODISCARD enum status shards_tokenizer_find(const struct json_t *data, const char *root,
                                            struct shards_tokenizer *out, struct err *e);

/* ERR_CONFIG: the tokenizer is another one than that which made the shards. */
NODISCARD enum status shards_tokenizer_check(const struct shards_tokenizer *s,
                                             const struct tokenizer_choice *choice, struct err *e);

#endif
