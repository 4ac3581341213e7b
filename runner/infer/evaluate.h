/* The loss of data, or the answers to multiple choice, by a model that was found (open_model.h): in
 * this process, or divided among several, each with a whole copy of the model. The bits do not
 * depend on their number: each micro-batch has its own sum, and these are added in order. */
#ifndef FP8LAB_RUNNER_INFER_EVALUATE_H
#define FP8LAB_RUNNER_INFER_EVALUATE_H

#include "runner/infer/answers.h"
#include "runner/infer/open_model.h"

/* All borrowed. Either data or questions; model->options has the sizes. */
struct evaluation {
    const struct model_request *request;
    struct open_model *model;
    const struct data *data;
    int64_t batches; /* of data: at most so many micro-batches */
    const struct questions *questions;
    struct answer *answers; /* with questions: out [questions->rows] */
    int64_t ranks;   /* processes; rank r has the device request->device + r */
};

struct evaluated {
    char backend[16];
    int64_t ranks; /* that had a micro-batch */
    int64_t us;    /* of the slowest rank, without its start */
    struct eval_result loss;        /* of data */
    struct answers_result answers; /* of questions */
};

/* Turns ERR_FORMAT and ERR_IO into ERR_CONFIG: the user must fix the file or name another one. */
enum status evaluate_blame(enum status st, struct err *e);

/* With one rank the model is open on return; its caller closes it in any case. ERR_NUMERIC: the
 * loss is not finite. */
NODISCARD enum status evaluate(const struct evaluation *v, struct evaluated *out, struct err *e);

#endif
