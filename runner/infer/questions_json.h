/* Multiple choice as JSON lines, one question an object, read with a model's tokenizer. README.md
 * lists the forms. */
#ifndef FP8LAB_RUNNER_INFER_QUESTIONS_JSON_H
#define FP8LAB_RUNNER_INFER_QUESTIONS_JSON_H

#include "runner/base/cli.h"
#include "runner/infer/questions.h"
#include "runner/ingest/tokenizer_choice.h"

/* Whether the first character of the file, behind a byte-order mark and white space, begins an
 * object. If not, it may be a file of llm.c. ERR_CONFIG: it cannot be read, or is another kind of
 * file, such as other text. */
NODISCARD enum status questions_are_json(const char *path, bool *json, struct err *e);

/* All borrowed. */
struct questions_source {
    const struct cli *cli; /* for warnings: a line that is left out, and tokens across the place
                            * where completions begin */
    const char *path;
    const struct tokenizer_choice *choice;
    int64_t vocab, seq_len; /* of the model */
    int64_t skip;           /* lines that may be left out */
};

/* Reads and checks every line of an untrusted file. ERR_CONFIG names the line, what was found and
 * what is expected; also a token beyond `vocab`, and a row of more than `seq_len` tokens. *out is
 * valid for questions_close() always. */
NODISCARD enum status questions_json_open(const struct questions_source *s, struct questions *out,
                                          struct err *e);

#endif
