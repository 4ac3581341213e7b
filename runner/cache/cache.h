/* The tokens of an experiment's text: made once, kept under the hash of what they are made of, and
 * found again. FOLDER/KEY.bin, .idx and .json are Megatron's shards (ingest/shards.h). */
#ifndef FP8LAB_RUNNER_CACHE_CACHE_H
#define FP8LAB_RUNNER_CACHE_CACHE_H

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
    json_t *record;        /* for the bundle: cache_record(); owned */
    json_t *kept;          /* {name: path} of the files that the bundle keeps; owned */
};

/* The folder of the tokens: `named` (--cache), or "cache" in the folder of runs. */
NODISCARD enum status cache_folder(char out[PATH_CAP], const char *named, const char *runs,
                                   struct err *e);

/* Finds the tokens, or makes them: then says so, shows progress, and waits for another process
 * that makes the same ones. ERR_CONFIG: the user must change script, files or folder;
 * ERR_IO: writing failed, and nothing is left under a final name. */
NODISCARD enum status cache_take(const struct cache_request *q, struct cache_entry *out,
                                 struct err *e);
/* The tokens that a run's record describes, without its text: where the record says, or in `folder`
 * by their key. All their bytes are hashed. *out has no record if they are not there; damaged ones
 * in `folder` are removed after a warning. `own`: the folder that has the run's `kept` files. */
NODISCARD enum status cache_find_recorded(const struct cli *cli, const json_t *record,
                                          const char *folder, const char *own,
                                          struct cache_entry *out, struct err *e);
/* The tokens of a record that now are at `prefix`. ERR_FORMAT: `kept` has a name that no run
 * keeps. */
NODISCARD enum status cache_entry_recorded(const json_t *record, const char *prefix,
                                           const char *own, struct cache_entry *out,
                                           struct err *e);
void cache_entry_free(struct cache_entry *x);

/* Whether the shards hold what was written, by the hashes in `files`, the list of inputs_hash();
 * NULL, where that failed: reads them. If not, warns and removes them, so that cache_take() makes
 * them. */
NODISCARD enum status cache_check(const struct cli *cli, const struct cache_entry *x,
                                  const json_t *files, bool *intact, struct err *e);

#endif
