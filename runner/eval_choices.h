/* The multiple choice of `fp8lab eval`: reads the questions, prints the answers. */
#ifndef FP8LAB_RUNNER_EVAL_CHOICES_H
#define FP8LAB_RUNNER_EVAL_CHOICES_H

#include "runner/infer/answers_file.h"
#include "runner/infer/model_text.h"

struct eval_choices {
    const struct found_weights *found; /* whose answers they are; borrowed */
    struct questions questions;
    struct text_model text; /* that read JSON lines; zero: the file has tokens */
    struct answer *answers; /* [questions.rows], owned; evaluate() fills them */
    struct answers_file against; /* of --against; zero without it */
};

/* The flags --choices, --answers and --against, before any work. ERR_ARG. */
NODISCARD enum status eval_choices_check(const struct cli *cli, struct err *e);

/* Reads the file of --choices, JSON lines with --tokenizer or the model's own, and that of
 * --against. skip_bad: -1: not given. ERR_ARG, ERR_CONFIG: with what to do. *out must not move, and
 * is valid for eval_choices_close() always. m: borrowed until then. */
NODISCARD enum status eval_choices_open(const struct cli *cli, const struct open_model *m,
                                        int64_t skip_bad, struct eval_choices *out, struct err *e);
void eval_choices_close(struct eval_choices *c); /* allowed for a zeroed struct */

/* Keys that say whose answers they are; `own`: run, model, step, recipe and so on; borrowed. The
 * file of --answers, if it was asked for. */
NODISCARD enum status eval_choices_write(const struct cli *cli, const struct eval_choices *c,
                                         const json_t *own, struct err *e);

/* The lines of the answers; those of --against, if it was asked for; the keys of --json of both. */
void eval_choices_print(const struct cli *cli, const struct answers_result *r);
void eval_choices_print_against(const struct cli *cli, const struct eval_choices *c);
void eval_choices_json(const struct cli *cli, const struct eval_choices *c,
                       const struct answers_result *r, json_t *object, bool *failed);

#endif
