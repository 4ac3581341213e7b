/* The data of `fp8lab eval`: the run's own held-out data, found by content, or other files of the
 * kind that the model reads: bytes, token shards, or text and conversations for its tokenizer. */
#ifndef FP8LAB_RUNNER_EVAL_DATA_H
#define FP8LAB_RUNNER_EVAL_DATA_H

#include "runner/base/folder_guard.h"
#include "runner/cache/cache.h"
#include "runner/infer/open_model.h"
#include "runner/repro/repro_source.h"

struct eval_data {
    struct data_options options; /* lists owned; strings of the members below */
    double bytes_a_token;        /* of text; 0: not known, or not all tokens have loss */
    char root[PATH_CAP];
    struct repro_source source;  /* the run, unpacked; zero for a folder */
    struct folder_guard guard;   /* of where it is unpacked */
    struct cache_entry tokens;   /* of text that has a tokenizer */
    json_t *config;              /* of those tokens; owned, or NULL */
};

struct eval_data_request {
    const struct cli *cli;
    const struct model_request *model;
    const struct open_model *opened;
    const char *const *files;  /* `count`, all of which are evaluated; none: the run's own data;
                                * one folder: these, looked for there by content */
    int64_t count;
    const char *tokenizer;     /* in place of the model's own; NULL: that one */
    const char *field;         /* of JSON lines of text; NULL: as the run, or "text" */
    int64_t skip_bad;          /* lines that may be left out; -1: as the run */
};

/* Finds the data, and makes tokens of text in the cache. ERR_ARG, ERR_CONFIG: what is missing, or
 * does not fit the model, and what to do. *out must not move, and is always valid for
 * eval_data_close(). */
NODISCARD enum status eval_data_find(const struct eval_data_request *q, struct eval_data *out,
                                     struct err *e);
void eval_data_close(struct eval_data *d);

#endif
