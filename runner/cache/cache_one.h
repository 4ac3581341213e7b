/* The tokens of one text: made once, kept under the hash of what they are made of, and found again.
 * FOLDER/KEY.bin, .idx and .json are Megatron's shards (ingest/shards.h). */
#ifndef FP8LAB_RUNNER_CACHE_CACHE_ONE_H
#define FP8LAB_RUNNER_CACHE_CACHE_ONE_H

#include <jansson.h>

#include "runner/base/cli.h"
#include "runner/base/paths.h"
#include "runner/chat/renderer.h"

/* All borrowed. */
struct cache_request {
    const struct cli *cli;
    const json_t *config;   /* resolved; cache_is_needed() */
    const char *data_root;  /* prefix of all its paths, or NULL */
    const char *own;        /* a folder with tokenizer and template, used instead of the configured
                             * ones: `kept` of a run; or NULL */
    const char *folder;     /* made if tokens are made */
    const struct chat_render_source *render; /* of the script, whose functions may render */
};

struct cache_entry {
    char prefix[PATH_CAP]; /* of the shards, absolute */
    json_t *record;        /* for the bundle: cache_record(), with the records of the sets of
                            * eval.also as {"also": {name: record}}; owned */
    json_t *kept;          /* {name: path} of the files that the bundle keeps; owned */
};

/* The folder of the tokens: `named` (--cache), or "cache" in the folder of runs. */
NODISCARD enum status cache_folder(char out[PATH_CAP], const char *named, const char *runs,
                                   struct err *e);

/* The tokens of a record that now are at `prefix`. ERR_FORMAT: `kept` has a name that no run
 * keeps. */
NODISCARD enum status cache_entry_recorded(const json_t *record, const char *prefix,
                                           const char *own, struct cache_entry *out,
                                           struct err *e);
void cache_entry_free(struct cache_entry *x);

/* As cache_take(), cache_find_recorded() and cache_check() of cache.h, without the sets. */
NODISCARD enum status cache_take_one(const struct cache_request *q, struct cache_entry *out,
                                     struct err *e);
NODISCARD enum status cache_find_one(const struct cli *cli, const json_t *record,
                                     const char *folder, const char *own, struct cache_entry *out,
                                     struct err *e);
NODISCARD enum status cache_check_one(const struct cli *cli, const json_t *record,
                                      const json_t *files, bool *intact, struct err *e);

#endif
