/* The forms in which published data sets write a question with several completions. */
#ifndef FP8LAB_RUNNER_INFER_QUESTION_FORMS_H
#define FP8LAB_RUNNER_INFER_QUESTION_FORMS_H

#include <jansson.h>

#include "runner/infer/questions.h"

/* Texts are borrowed from the object. */
struct question_text {
    const char *context;
    const char *completion[COMPLETIONS_MAX];
    int64_t completions, right;
};

/* ERR_FORMAT: what was found under which key, and what is expected. */
NODISCARD enum status question_form_read(const json_t *object, struct question_text *out,
                                         struct err *e);

#endif
