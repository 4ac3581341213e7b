/* The names that Hugging Face's models have for our parameters (model/params.h). One of ours may be
 * several of theirs, one below the other: q, k, v; gate, up. */
#ifndef FP8LAB_RUNNER_WEIGHTS_HF_NAMES_H
#define FP8LAB_RUNNER_WEIGHTS_HF_NAMES_H

#include "model/config.h"

enum { WEIGHT_PARTS_MAX = 3, WEIGHT_NAME_CAP = 160 };

struct weight_part {
    char name[WEIGHT_NAME_CAP];
    int64_t rows, cols; /* of our parameter; cols 0: a vector */
    bool transposed;    /* theirs is [cols, rows], as GPT-2 stores linear layers */
};

/* ERR_CONFIG, naming the keys, for a model that no family here has. */
NODISCARD enum status hf_names_check(const struct model_config *c, struct err *e);

/* The parts of the parameter `name` of rows x cols, top to bottom; returns their number. */
int hf_names_parts(const struct model_config *c, const char *name, int64_t rows, int64_t cols,
                   struct weight_part out[WEIGHT_PARTS_MAX]);

/* Whether a tensor that is no parameter of ours changes nothing: masks, RoPE's frequencies. */
bool hf_names_ignored(const char *name);

#endif
