/* The tokenizers of weights and of text. Weights read the ids of another tokenizer as other words:
 * they train, and their loss says nothing. */
#ifndef FP8LAB_RUNNER_RUN_INIT_TOKENIZER_H
#define FP8LAB_RUNNER_RUN_INIT_TOKENIZER_H

#include <jansson.h>

#include "runner/base/cli.h"
#include "runner/bundle/run_view.h"
#include "runner/ingest/tokenizer_content.h"
#include "runner/script/resolve.h"

struct tokenizer_id {
    char name[PATH_CAP];     /* its file, or "bytes" */
    struct tokenizer_hash hash;
    char shards[PATH_CAP];   /* the description of token shards that names it; "": nothing does */
};

/* That of a section `data`; `root`: of its paths, or NULL. Not known for synthetic data, for shards
 * whose first one no description names, and for a file that cannot be read. */
void tokenizer_of_data(const json_t *data, const char *root, struct tokenizer_id *out);
/* That of a run, at least of depth RUN_VIEW_DOCUMENTS. Of a run on shards only while these, or
 * others of the same bytes, lie where they were. */
void tokenizer_of_run(const struct run_view *v, struct tokenizer_id *out);
/* That of a Hugging Face folder: the file in it. */
void tokenizer_of_folder(const char *folder, struct tokenizer_id *out);

/* Whether both are known, and differ. */
bool tokenizer_differs(const struct tokenizer_id *a, const struct tokenizer_id *b);

/* Warns of rows whose initial weights have another tokenizer than their text: names both, and says
 * what to write. `root`: of the paths, or NULL. */
void init_tokenizer_warn(const struct cli *cli, const struct resolution *r, const char *root);

#endif
