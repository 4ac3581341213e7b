/* The answers of one model as a file, to compare those of another model with: JSON lines, a header
 * and one line a question.
 *
 *   {"answers_sha256": ..., "schema": "fp8lab.answers/1", "questions_sha256": ..., ...}
 *   {"answer": 2, "bytes": [8, ...], "nats": [21.5, ...], "question": 1, "right_byte": true, ...}
 *
 * answers_sha256 is the hash of the file as it is without this key. */
#ifndef FP8LAB_RUNNER_INFER_ANSWERS_FILE_H
#define FP8LAB_RUNNER_INFER_ANSWERS_FILE_H

#include <jansson.h>

#include "runner/infer/answers.h"

/* Whether --answers may write `path`: output_file.h. */
NODISCARD enum status answers_file_may_replace(const char *path, struct err *e);

/* `model`: keys that say whose answers they are; borrowed. */
NODISCARD enum status answers_file_write(const char *path, const json_t *model,
                                         const struct questions *c, const struct answer *a,
                                         struct err *e);

struct answers_file {
    json_t *header;         /* owned */
    struct answer *answers; /* [c->rows], owned */
};

/* Reads an untrusted file. ERR_CONFIG: no such file, one that was changed, answers to another file
 * of questions, or to other lines of it. *out is valid for answers_file_close() always. */
NODISCARD enum status answers_file_read(const char *path, const struct questions *c,
                                        struct answers_file *out, struct err *e);
void answers_file_close(struct answers_file *f); /* allowed for a zeroed struct */

#endif
